/* recompute.h - which layers are computed again in the backward.
 *
 * Contract
 *   What it does: names the layers whose forward keeps nothing but its input.
 *   What it preserves: the replay computes what the forward computed, bit for bit: the same
 *   operations on the same input with the same routing.
 *   Memory bound: a recomputed layer keeps its checkpoint, 2 * tokens * hidden bytes; its working
 *   tensors live during its own forward and backward only.
 *   How it is tested: the gradients of a recomputed step against a second implementation that keeps
 *   everything (tests/unit/executor). */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_RECOMPUTE_RECOMPUTE_H
#define RANKFIT_EXECUTOR_PRIMITIVE_RECOMPUTE_RECOMPUTE_H

#include "base/layout/primitives.h"

/* layer: index within the stage. */
bool recompute_covers(const struct primitives *primitives, int layer);

#endif
