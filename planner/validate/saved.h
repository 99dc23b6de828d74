/* saved.h - the parts of an engine's resident set at its fullest, by name. */
#ifndef RANKFIT_PLANNER_VALIDATE_SAVED_H
#define RANKFIT_PLANNER_VALIDATE_SAVED_H

#include "planner/report/prediction.h"

struct saved_item {
    const char *name, *mechanism;
    uint64_t bytes; /* of all layers of the stage and micro-batches in flight */
};
enum { SAVED_ITEMS_MAX = 8 };

struct saved {
    int count;
    struct saved_item item[SAVED_ITEMS_MAX];
    uint64_t bytes; /* the sum */
};

#endif
