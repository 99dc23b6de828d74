/* layer.h - what one recomputed layer holds at its fullest moment in an engine of modules under
 * automatic differentiation (Megatron, Megatron-Lite under FSDP2), where engine rankfit frees or
 * makes again what such an engine keeps. Knows tensors of a layer; nothing of state or stages. */
#ifndef RANKFIT_PLANNER_VALIDATE_LAYER_H
#define RANKFIT_PLANNER_VALIDATE_LAYER_H

#include "planner/predict/budget.h"

/* How delta nets share a sequence among the ranks of a context group. */
enum delta_share {
    DELTA_SHARED, /* heads are exchanged for tokens: a rank works at its share */
    DELTA_WHOLE,  /* projections are gathered: every rank works at the whole sequence */
    DELTA_SHARE_COUNT
};

/* Bytes of replay and backward of a layer with this mixer and experts, the layer's checkpoint and
 * gradient buffers left out, for `received` routed rows. A chunked schedule of experts counts as
 * engine rankfit has it. Softmax attention and delta nets; other mixers hold 0 here. */
uint64_t engine_layer_bytes(const struct budget_input *in, enum mixer mixer, uint64_t received,
                            enum delta_share share);

/* The same of a layer's experts alone, without a mixer and without their state. */
uint64_t engine_experts_bytes(const struct budget_input *in, uint64_t received);

#endif
