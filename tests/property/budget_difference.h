/* budget_difference.h - a rank's budget beside a step that was played: what both count. */
#ifndef RANKFIT_TESTS_PROPERTY_BUDGET_DIFFERENCE_H
#define RANKFIT_TESTS_PROPERTY_BUDGET_DIFFERENCE_H

#include "planner/budget/budget.h"
#include "tests/simulator/simulator.h"

/* False for what is measured: communicators, context, modules, slack. */
bool is_played(int item);

/* The peak, of what is played. */
uint64_t played_bytes(const struct rank_budget *rank);

/* How many differ of the items live at the peak, their own maxima, the peak, its phase and what the
 * host holds; tell: each on standard error. */
int budget_differences(const struct rank_budget *got, const struct sim_result *want, bool tell);

#endif
