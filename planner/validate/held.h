/* held.h - the engines whose resident set is known by rules, a row each: found by the name that a
 * file of public peaks says. */
#ifndef RANKFIT_PLANNER_VALIDATE_HELD_H
#define RANKFIT_PLANNER_VALIDATE_HELD_H

#include "planner/validate/saved.h"

struct held_engine {
    const char *name, *family; /* family: engines whose errors are counted together */
    bool whole;                /* the rules tell all that is held; otherwise what is beside */
    int (*hold)(const struct prediction *prediction, const struct rank_budget *rank, struct pos at,
                struct saved *ret, struct diag_list *reterr);
};

/* NULL with a diagnostic at `at`. */
const struct held_engine *held_engine_find(const char *name, struct pos at,
                                           struct diag_list *reterr);

#endif
