/* neighbour.h - the layouts next to a decision: what one would take instead, and what would fit if
 * the question were another. */
#ifndef RANKFIT_PLANNER_DERIVE_NEIGHBOUR_H
#define RANKFIT_PLANNER_DERIVE_NEIGHBOUR_H

#include "planner/derive/decide.h"

/* Runners-up: one degree changed, settings chosen anew; deduplicated, best first. */
void neighbours_write(struct space *space, const struct decision *decision, struct answer *ret);

/* For a question without a layout that fits: more GPUs, a shorter sequence, another setting. Every
 * entry has been asked again and fits. */
void nearest_write(const struct space *space, const struct decision *decision, struct answer *ret);

#endif
