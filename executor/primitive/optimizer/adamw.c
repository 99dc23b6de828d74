#include "executor/primitive/optimizer/optimizer.h"

static const double clip_norm = 1.0;
static const struct adamw hyper = {
    .rate = 3e-4F, .beta1 = 0.9F, .beta2 = 0.95F, .epsilon = 1e-8F, .decay = 0.1F
};

/* The share of one tensor copy that lies in this rank's slice. */
static void update_copy(struct state *state, const struct state_part *part,
                        const struct state_tensor *tensor, int copy, struct adamw call)
{
    uint64_t place = tensor->offset + (uint64_t)copy * tensor->stride;
    uint64_t slice_end = part->slice_first + part->slice;
    uint64_t from = place > part->slice_first ? place : part->slice_first;
    uint64_t to = place + tensor->elements < slice_end ? place + tensor->elements : slice_end;

    if (from >= to)
        return;
    uint64_t at = from - part->slice_first;
    call.count = (int64_t)(to - from);
    call.gradient = element_at(state_gradient_slice(state, part), at, dtype_bytes(call.grad_type));
    call.master = element_at(part->master.data, at, sizeof(float));
    call.moment1 = element_at(part->moments.data, at, sizeof(float));
    call.moment2 = element_at(part->moments.data, part->slice + at, sizeof(float));
    call.weight = element_at(state_weight_slice(state, part), at, sizeof(bf16));
    call.decay = state_tensor_is_norm(tensor) ? 0 : call.decay;
    WORK_OP(state->work, adamw, &call);
}

void optimizer_adamw(struct state *state, double norm, int step)
{
    struct adamw call = hyper;

    call.step = step;
    call.scale = norm > clip_norm ? (float)(clip_norm / norm) : 1;
    call.grad_type = state->work->plan->choices.primitives.grad_dtype;
    for (int i = 0; i < state->unit_count; i++) {
        struct state_unit *unit = &state->units[i];
        for (int t = 0; t < unit->tensor_count; t++)
            for (int copy = 0; copy < unit->tensors[t].copies; copy++)
                update_copy(state, &unit->parts[unit->tensors[t].mesh], &unit->tensors[t], copy,
                            call);
    }
    state_spread_weights(state);
}
