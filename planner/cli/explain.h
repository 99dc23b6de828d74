/* explain.h - what `rankfit explain` finds under a name: one row of explainers for each kind of
 * thing. An entry is {kind, name, meaning, ...}; members are shown in their order. */
#ifndef RANKFIT_PLANNER_CLI_EXPLAIN_H
#define RANKFIT_PLANNER_CLI_EXPLAIN_H

#include "base/json.h"
#include "planner/report/prediction.h"

#include <stddef.h>

struct explainer {
    const char *kind;
    /* Fills the entry of the name; false: there is none. prediction NULL: no plan was given. */
    bool (*explain)(const char *name, const struct prediction *prediction, struct json *ret);
    /* The i-th name, or NULL past the last: for the nearest spelling. */
    const char *(*name)(size_t i);
};
extern const struct explainer explainers[];
extern const size_t explainer_count;

/* explain_option.c */
bool explain_option(const char *name, const struct prediction *prediction, struct json *ret);
const char *explain_option_name(size_t index);

/* explain_rules.c */
bool explain_arithmetic(const char *name, const struct prediction *prediction, struct json *ret);
const char *name_of_arithmetic(size_t i);
bool explain_fact(const char *name, const struct prediction *prediction, struct json *ret);
const char *name_of_fact(size_t i);

#endif
