/* torch.h - engine torch: a training step of a Hugging Face model in eager PyTorch on one GPU, as
 * tapes of the operations that its modules run. Sources by file: transformers 5.17
 * (models/{llama,qwen3,qwen3_moe}/modeling_*.py, integrations/{sdpa_attention,moe}.py,
 * loss/loss_utils.py), PyTorch 2.11 (derivatives.yaml,
 * autocast_mode.h, optim/adamw.py). Knows nothing of plans or reports. */
#ifndef RANKFIT_PLANNER_ENGINE_TORCH_H
#define RANKFIT_PLANNER_ENGINE_TORCH_H

#include "base/diag.h"
#include "base/model/model.h"
#include "planner/engine/tape.h"

/* How the step is run. `fp32`: weights, gradients and moments in fp32, computed under autocast to
 * bf16; else all of them in bf16. */
struct torch_run {
    const struct model *model;
    int64_t sequences, seq_tokens; /* of a micro-batch */
    bool fp32, autocast, checkpoint;
};

/* Bytes that PyTorch's allocator hands out and takes from the device at the peak of a step, and
 * those that stay between steps. */
struct torch_memory {
    uint64_t allocated_bytes, reserved_bytes, resting_bytes;
    uint64_t weight_bytes; /* of all parameters */
    bool peak_in_backward;
    int peak_layer; /* -1: embedding, head or loss */
};

/* -1 with an error at `at` for a model whose modules are not described. */
int torch_describes(const struct model *model, struct pos at, struct diag_list *reterr);

/* The tape of one micro-batch. -1: no memory, or a model whose modules are not described. */
int torch_tape(const struct torch_run *run, struct tape *ret, struct diag_list *reterr);

/* Two steps of `micro_batches` each: the second is that of the steady state. */
int torch_memory(const struct torch_run *run, int micro_batches, struct torch_memory *ret,
                 struct diag_list *reterr);

#endif
