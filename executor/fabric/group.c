#include "executor/fabric/group.h"

const struct group_info *group_info(const struct group *g)
{
    return &g->info;
}
