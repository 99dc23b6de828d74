/* budget_events.h - one training step as a sequence of tensors made and released, played one by one
 * as ARCHITECTURE.md tells it: a second opinion on the closed form, with nothing in common but the
 * model's facts. Engine rankfit without tensor, context or pipeline parallelism. */
#ifndef RANKFIT_TESTS_PLANNER_BUDGET_EVENTS_H
#define RANKFIT_TESTS_PLANNER_BUDGET_EVENTS_H

#include "planner/budget/budget.h"

struct played {
    uint64_t live[ITEM_COUNT], max[ITEM_COUNT], at_peak[ITEM_COUNT];
    uint64_t total, peak;
};

/* received: routed rows of a layer, one entry a layer. */
void play_step(const struct budget_input *in, const uint64_t *received, struct played *ret);

#endif
