/* recompute.h - which layers are computed again in the backward.
 *
 * Contract
 *   What it does: names the layers whose forward keeps nothing but its input: all of them, the
 *   first N of a stage, or none.
 *   A replay runs from the layer's input to the last tensor that the backward reads: not to the
 *   layer's output.
 *   What it preserves: the replay computes what the forward computed, bit for bit: the same
 *   operations on the same input with the same routing. Which layers recompute is therefore not to
 *   be seen in loss, hidden states or gradients, to the last bit.
 *   Memory bound: a recomputed layer keeps its checkpoint, 2 * tokens * hidden bytes, and under
 *   keep_attention attention's outputs, 2 * tokens * heads * head_dim, with 4 * tokens * heads of
 *   log-sum-exps, for which its replay attends to nothing; its working tensors live during its own
 *   forward and backward only. Another layer keeps, beside its
 *   checkpoint, what ARCHITECTURE.md marks as kept, from its forward to its backward.
 *   How it is tested: recompute none, first N and all against each other to the bit, and against a
 *   second implementation in double precision (tests/unit/executor). */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_RECOMPUTE_RECOMPUTE_H
#define RANKFIT_EXECUTOR_PRIMITIVE_RECOMPUTE_RECOMPUTE_H

#include "base/layout/primitives.h"

/* layer: index within the stage. */
bool recompute_covers(const struct primitives *primitives, int layer);

#endif
