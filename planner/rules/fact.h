/* fact.h - what rankfit itself knows, by name: counts of a model, keys of a machine, degrees of a
 * layout, items of a budget, seconds of a step. One number of a prediction each, in base units. */
#ifndef RANKFIT_PLANNER_RULES_FACT_H
#define RANKFIT_PLANNER_RULES_FACT_H

#include "planner/report/prediction.h"

struct fact {
    const char *name, *unit, *meaning;
    double (*value)(const struct prediction *prediction);
};
extern const struct fact facts[];
extern const size_t fact_count;

/* Of the worst rank. "item.NAME": an item's own maximum; "live.NAME": what of it is live at the
 * peak; "seconds.NAME": an item of the step time; "hardware.KEY": a number of the hardware file;
 * else a row of facts. NAME/token: bytes by local token. -1 when there is none of that name;
 * *ret_unit is what it is given in ("" for hardware keys without one). */
int fact_value(const struct prediction *prediction, const char *name, double *ret,
               const char **ret_unit);

/* The nearest name of the table and of the families above, or NULL. */
const char *fact_nearest(const char *name);

#endif
