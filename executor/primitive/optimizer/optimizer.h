/* optimizer.h - how weights follow gradients.
 *
 * Contract
 *   What it does: scales the gradient so that its norm over the whole model is at most 1, then
 *   updates the rank's slice of master, moments and weights: AdamW (Loshchilov, Hutter 2019) with
 *   bias correction; weight decay on matrices, none on norms.
 *   What it preserves: weights = bf16(master); an element's update depends on its own values only,
 *   so it is the same under every layout up to the gradient's rounding.
 *   Memory bound: nothing is taken.
 *   How it is tested: one rank against several over several steps (tests/unit/executor).
 */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_OPTIMIZER_OPTIMIZER_H
#define RANKFIT_EXECUTOR_PRIMITIVE_OPTIMIZER_OPTIMIZER_H

#include "executor/primitive/state/state.h"

/* step from 1; norm of the whole gradient. */
void optimizer_adamw(struct state *state, double norm, int step);

#endif
