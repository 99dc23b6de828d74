/* group.h - what every fabric's group begins with. For fabrics only. */
#ifndef RANKFIT_EXECUTOR_FABRIC_GROUP_H
#define RANKFIT_EXECUTOR_FABRIC_GROUP_H

#include "executor/fabric/fabric.h"

struct group {
    struct group_info info;
};

#endif
