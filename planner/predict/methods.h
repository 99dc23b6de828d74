/* methods.h - how an engine other than rankfit's own counts memory. The predictor asks through this
 * table, so that it knows no engine; the tables are in planner/engine. */
#ifndef RANKFIT_PLANNER_PREDICT_METHODS_H
#define RANKFIT_PLANNER_PREDICT_METHODS_H

#include "planner/predict/budget.h"

struct engine_methods {
    /* Replaces the items and the peak of a group, counted for engine rankfit, by the engine's own.
     * A planner without memory leaves a peak of UINT64_MAX, which counts as an overflow. */
    void (*memory)(const struct budget_input *in, struct rank_budget *rank);
    /* Where the bytes of an item come from. */
    const char *(*formula)(enum item item);
};

#endif
