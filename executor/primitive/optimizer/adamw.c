#include "executor/primitive/optimizer/optimizer.h"

static const double clip_norm = 1.0;
static const struct adamw hyper = {
    .rate = 3e-4F, .beta1 = 0.9F, .beta2 = 0.95F, .epsilon = 1e-8F, .decay = 0.1F
};

/* Elements [from, to) of a part: what of them lies in this rank's slice. */
static void update_run(struct state *state, const struct state_part *part, uint64_t from,
                       uint64_t to, struct adamw call)
{
    uint64_t slice_end = part->slice_first + part->slice;

    from = from > part->slice_first ? from : part->slice_first;
    to = to < slice_end ? to : slice_end;
    if (from >= to)
        return;
    uint64_t at = from - part->slice_first;
    call.count = (int64_t)(to - from);
    call.gradient = element_at(state_gradient_slice(state, part), at, dtype_bytes(call.grad_type));
    call.master = element_at(part->master.data, at, sizeof(float));
    call.moment1 = element_at(part->moments.data, at, sizeof(float));
    call.moment2 = element_at(part->moments.data, part->slice + at, sizeof(float));
    call.weight = element_at(state_weight_slice(state, part), at, sizeof(bf16));
    WORK_OP(state->work, adamw, &call);
}

/* The tensor of which a copy begins at `place` of its part, or NULL. */
static const struct state_tensor *tensor_at(const struct state_unit *unit, enum mesh mesh,
                                            uint64_t place)
{
    for (int i = 0; i < unit->tensor_count; i++) {
        const struct state_tensor *tensor = &unit->tensors[i];
        if (tensor->mesh != mesh || place < tensor->offset)
            continue;
        uint64_t within = place - tensor->offset;
        if (within % tensor->stride == 0 && within / tensor->stride < (uint64_t)tensor->copies)
            return tensor;
    }
    return NULL;
}

/* Tensors lie one after another; neighbours that decay alike are updated at once. */
static void update_part(struct state *state, const struct state_unit *unit, enum mesh mesh,
                        const struct adamw *call)
{
    const struct state_tensor *tensor = tensor_at(unit, mesh, 0);

    for (uint64_t place = 0; tensor;) {
        uint64_t first = place;
        bool decays = !state_tensor_is_norm(tensor);
        struct adamw run = *call;
        do {
            place += tensor->elements;
            tensor = tensor_at(unit, mesh, place);
        } while (tensor && state_tensor_is_norm(tensor) != decays);
        run.decay = decays ? call->decay : 0;
        update_run(state, &unit->parts[mesh], first, place, run);
    }
}

void optimizer_adamw(struct state *state, double norm, int step)
{
    struct adamw call = hyper;

    call.step = step;
    call.scale = norm > clip_norm ? (float)(clip_norm / norm) : 1;
    call.grad_type = state->work->plan->choices.primitives.grad_dtype;
    for (int i = 0; i < state->unit_count; i++) {
        update_part(state, &state->units[i], MESH_DENSE, &call);
        update_part(state, &state->units[i], MESH_EXPERT, &call);
    }
    state_spread_weights(state);
}
