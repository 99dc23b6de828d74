/* megatron_layer.h - the modules of a layer of Megatron-Core as steps of a tape. Internal to this
 * folder. */
#ifndef RANKFIT_PLANNER_ENGINE_MEGATRON_LAYER_H
#define RANKFIT_PLANNER_ENGINE_MEGATRON_LAYER_H

#include "planner/engine/tape.h"
#include "planner/predict/budget.h"
#include "planner/predict/sizes.h"

/* One rank: sizes after tensor parallelism, and where its tape grows. */
struct megatron_view {
    const struct budget_input *in;
    const struct model *model;
    struct step_sizes shape;
    struct tape *tape;
    int tp;
};

/* Bytes of rows x width in bf16. */
uint64_t megatron_bytes(const struct megatron_view *v, enum step_rows rows, enum step_width width);

/* Appends layer `layer` on the residual stream x; returns its output. The caller releases x. */
int megatron_layer(struct megatron_view *v, int x, int layer);

/* A norm of Transformer Engine: its input is saved for backward. */
int megatron_norm(struct megatron_view *v, int x);

#endif
