/* reduce.c - the end of the step: gradients summed over ranks, their norm, weights spread again. */
#include "base/checked.h"
#include "executor/primitive/state/state.h"

#include <math.h>

static enum dtype grad_dtype(const struct state *state)
{
    return state->work->plan->choices.primitives.grad_dtype;
}

/* zero1: the whole gradient is here; afterwards this rank's slice of it is the sum. */
static void reduce_to_slice(struct state *state, struct state_part *part)
{
    struct work *w = state->work;
    uint64_t bytes = mul_sat(part->slice, dtype_bytes(grad_dtype(state)));
    struct buffer received = work_take(w, OWNER_SCATTER_SHARD, bytes);

    WORK_FABRIC(w, reduce_scatter, part->group, part->gradients.data, received.data, part->slice,
                grad_dtype(state));
    WORK_OP(w, copy, state_gradient_slice(state, part), received.data, bytes);
    work_give(w, &received);
}

static void reduce_part(struct state *state, struct state_part *part)
{
    struct work *w = state->work;

    if (part->shards > 1 && !part->gathered)
        reduce_to_slice(state, part);
    else if (part->shards == 1 && group_info(part->group)->count > 1)
        WORK_FABRIC(w, all_reduce, part->group, part->gradients.data, part->slice,
                    grad_dtype(state));
    if (group_info(part->replicas)->count > 1)
        WORK_FABRIC(w, all_reduce, part->replicas, state_gradient_slice(state, part), part->slice,
                    grad_dtype(state));
}

static struct state_part *part_at(const struct state *state, int i)
{
    struct state_part *part = &state->units[i / 2].parts[i % 2];
    return part->elements > 0 ? part : NULL;
}

void state_zero_gradients(struct state *state)
{
    struct work *w = state->work;

    for (int i = 0; i < 2 * state->unit_count; i++) {
        struct state_part *part = part_at(state, i);
        if (part && w->backend->ops->zero_aside)
            WORK_OP(w, zero_aside, part->gradients.data, part->gradients.bytes);
        else if (part)
            WORK_OP(w, zero, part->gradients.data, part->gradients.bytes);
    }
}

void state_await_gradients(struct state *state)
{
    struct work *w = state->work;
    if (work_runs(w) && w->backend->ops->await_aside)
        work_note(w, w->backend->ops->await_aside(w->backend, STREAM_COMPUTE, w->errors));
}

void state_reduce(struct state *state)
{
    for (int i = 0; i < 2 * state->unit_count; i++) {
        struct state_part *part = part_at(state, i);
        if (part)
            reduce_part(state, part);
    }
}

/* Each slice is held by `copies` ranks of the world; divided by them, the sum over all ranks counts
 * every value once. */
double state_gradient_norm(struct state *state)
{
    struct work *w = state->work;
    double sum = 0;

    for (int i = 0; i < 2 * state->unit_count; i++) {
        struct state_part *part = part_at(state, i);
        double squares = 0;
        if (!part)
            continue;
        WORK_OP(w, sum_squares, (int64_t)part->slice, state_gradient_slice(state, part),
                grad_dtype(state), &squares);
        sum += squares / part->copies;
    }
    WORK_FABRIC(w, sum_doubles, w->mesh->fabric->all, &sum, 1);
    return sqrt(sum);
}

void state_spread_weights(struct state *state)
{
    struct work *w = state->work;

    for (int i = 0; i < 2 * state->unit_count; i++) {
        struct state_part *part = part_at(state, i);
        if (!part || part->shards == 1 || part->gathered)
            continue;
        WORK_FABRIC(w, all_gather, part->group, state_weight_slice(state, part), part->weights.data,
                    part->slice * sizeof(bf16));
        state_mend(state, part, part->weights.data);
    }
}
