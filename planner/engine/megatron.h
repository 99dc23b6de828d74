/* megatron.h - engine megatron: one rank of a step of Megatron-Core with Transformer Engine as a
 * tape of the operations of its stage, played by the 1F1B schedule. Sources by file: Megatron-LM
 * (core/transformer/{attention,mlp}.py, core/transformer/moe/{router,token_dispatcher,experts}.py,
 * core/tensor_parallel/{layers,random}.py, core/distributed/param_and_grad_buffer.py,
 * core/pipeline_parallel/schedules.py), Transformer Engine 2 (pytorch/module/{layernorm_linear,
 * linear,grouped_linear}.py, attention/dot_product_attention, cross_entropy.py). Knows nothing of
 * reports. */
#ifndef RANKFIT_PLANNER_ENGINE_MEGATRON_H
#define RANKFIT_PLANNER_ENGINE_MEGATRON_H

#include "planner/predict/budget.h"

/* Bytes on one rank at the peak of a step: those that PyTorch's allocator hands out, those that it
 * takes from the device, and of the former those between steps. */
struct megatron_memory {
    uint64_t allocated_bytes, reserved_bytes, resting_bytes;
    bool peak_in_backward;
    int peak_layer, peak_micro_batch; /* layer -1: the stage's ends */
};

/* Whether the engine's modules are described for the model, or for the choices; -1 with an error at
 * `at` for each part that is not. */
int megatron_describes(const struct model *model, struct pos at, struct diag_list *reterr);
int megatron_check(const struct choices *choices, struct pos at, struct diag_list *reterr);

/* Of the ranks of `rank`'s group, whose state and routed rows are taken as counted there. -1: the
 * planner has no memory. Both checks must have passed. */
int megatron_memory(const struct budget_input *in, const struct rank_budget *rank,
                    struct megatron_memory *ret, struct diag_list *reterr);

#endif
