/* budget_difference.h - a rank's budget beside a step that was played: what both count. */
#ifndef RANKFIT_TESTS_PROPERTY_BUDGET_DIFFERENCE_H
#define RANKFIT_TESTS_PROPERTY_BUDGET_DIFFERENCE_H

#include "planner/predict/budget.h"
#include "tests/simulator/simulator.h"

/* False for what is measured: communicators, context, modules, slack. */
bool is_played(int item);

/* The peak, of what is played. */
uint64_t played_bytes(const struct rank_budget *rank);

/* How many differ of the items live at the peak, their own maxima, the peak, its phase and what the
 * host holds; tell: each on standard error. */
int budget_differences(const struct rank_budget *got, const struct sim_result *want, bool tell);

/* How many of the moments beside the steady step differ from what is played: the first step, saving
 * and resuming, passes for log-probabilities; of these every item too. */
int moment_differences(const struct budget_input *in, const struct rank_budget *got,
                       const struct sim_job *job, bool tell);

/* The most that was alive in each phase of a step, in order, as sim_job.phase_ended collects it. */
enum { PHASES_MAX = 8192 };
struct phases_played {
    size_t count;
    struct phase_bytes items[PHASES_MAX];
};
void phase_played(const struct sim_phase *phase, uint64_t bytes, void *phases);

/* How many phases of a stage's budget were played with other bytes, or not at all; and how many
 * that were played, of any micro-batch, are fuller than those of the budget with the same work.
 * beside: bytes of what is not played. */
int phase_differences(const struct budget_input *in, int stage, uint64_t beside,
                      const struct phases_played *played, bool tell);

#endif
