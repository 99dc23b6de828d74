/* explain.h - what `rankfit explain` finds under a name: one row of explainers for each kind of
 * thing. An entry is {kind, name, meaning, ...}; members are shown in their order. */
#ifndef RANKFIT_PLANNER_CLI_EXPLAIN_H
#define RANKFIT_PLANNER_CLI_EXPLAIN_H

#include "planner/report/prediction.h"

#include <jansson.h>
#include <stddef.h>

struct explainer {
    const char *kind;
    /* The entry of the name, or NULL; prediction NULL: no plan was given. */
    json_t *(*explain)(const char *name, const struct prediction *prediction);
    /* The i-th name, or NULL past the last: for the nearest spelling. */
    const char *(*name)(size_t i);
};
extern const struct explainer explainers[];
extern const size_t explainer_count;

/* explain_rules.c */
json_t *explain_arithmetic(const char *name, const struct prediction *prediction);
const char *name_of_arithmetic(size_t i);
json_t *explain_fact(const char *name, const struct prediction *prediction);
const char *name_of_fact(size_t i);

#endif
