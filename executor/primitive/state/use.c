/* use.c - units in use: gathered ahead, their gradients scattered behind. */
#include "base/checked.h"
#include "executor/primitive/state/state.h"

#include <string.h>

static enum dtype grad_dtype(const struct state *state)
{
    return state->work->plan->choices.primitives.grad_dtype;
}

/* Embedding, layers, head, layers backwards. */
static int unit_of_use(const struct state *state, int use)
{
    int head = state_head_unit(state);
    return use <= head ? use : 2 * head - use;
}

int state_use_parts(const struct state *state, int unit, struct state_part **ret)
{
    int count = 0;
    for (int mesh = 0; mesh < 2; mesh++)
        if (state->units[unit].parts[mesh].elements > 0)
            ret[count++] = &state->units[unit].parts[mesh];
    if (unit == state_head_unit(state) && state->work->plan->model.tied)
        ret[count++] = &state->units[0].parts[MESH_DENSE];
    return count;
}

static void issue_gathers(struct state *state, int position)
{
    struct work *w = state->work;
    struct state_use *use = &state->uses[position];
    struct state_part *parts[USE_MAX_PARTS];
    int count = state_use_parts(state, unit_of_use(state, position), parts);

    if (use->issued)
        return;
    use->issued = true;
    for (int i = 0; i < count; i++) {
        if (!parts[i]->gathered)
            continue;
        use->weights[i] = work_take(w, OWNER_UNIT_WEIGHTS, parts[i]->padded * sizeof(bf16));
        WORK_FABRIC(w, all_gather_start, parts[i]->group, parts[i]->weights.data,
                    use->weights[i].data, parts[i]->slice * sizeof(bf16), &use->transfers[i]);
    }
}

static void await_gathers(struct state *state, int position)
{
    struct work *w = state->work;
    struct state_use *use = &state->uses[position];
    struct state_part *parts[USE_MAX_PARTS];
    int count = state_use_parts(state, unit_of_use(state, position), parts);

    for (int i = 0; i < count; i++) {
        struct state_part *part = parts[i];
        if (use->transfers[i])
            WORK_FABRIC(w, transfer_wait, part->group, use->transfers[i]);
        use->transfers[i] = NULL;
        part->used_weights = part->gathered ? use->weights[i].data : part->weights.data;
        if (part->gathered)
            state_mend(state, part, part->used_weights);
    }
}

void state_micro_batch(struct state *state)
{
    state->position = -1;
    memset(state->uses, 0, (size_t)state->use_count * sizeof *state->uses);
}

void state_unit_begin(struct state *state, int unit)
{
    int ahead = state->work->plan->choices.primitives.prefetch_units;

    if (state->work->failed)
        return;
    int position = ++state->position;
    if (position >= state->use_count || unit_of_use(state, position) != unit) {
        state->work->failed = true;
        diag_error(state->work->errors, (struct pos){ 0 }, "unit %d used out of order", unit);
        return;
    }
    for (int i = position; i <= position + ahead && i < state->use_count; i++)
        issue_gathers(state, i);
    await_gathers(state, position);
}

void state_unit_end(struct state *state)
{
    if (state->work->failed)
        return;
    struct state_use *use = &state->uses[state->position];
    for (int i = 0; i < USE_MAX_PARTS; i++)
        work_give(state->work, &use->weights[i]);
}

void state_gradient_begin(struct state *state, int unit)
{
    struct work *w = state->work;
    struct state_part *parts[USE_MAX_PARTS];
    int count = state_use_parts(state, unit, parts);

    for (int i = 0; i < count; i++) {
        struct state_part *part = parts[i];
        part->used_gradients = part->gradients.data;
        if (!part->gathered)
            continue;
        part->whole_gradients = work_take(w, OWNER_UNIT_GRADIENTS,
                                          mul_sat(part->padded, dtype_bytes(grad_dtype(state))));
        part->used_gradients = part->whole_gradients.data;
        WORK_OP(w, zero, part->used_gradients, part->whole_gradients.bytes);
    }
}

static void scatter(struct state *state, struct state_pending *pending)
{
    struct work *w = state->work;
    struct state_part *part = pending->part;
    pending->received =
        work_take(w, OWNER_SCATTER_SHARD, mul_sat(part->slice, dtype_bytes(grad_dtype(state))));
    WORK_FABRIC(w, reduce_scatter_start, part->group, part->whole_gradients.data,
                pending->received.data, part->slice, grad_dtype(state), &pending->transfer);
}

static void finish(struct state *state, struct state_pending *pending)
{
    struct work *w = state->work;
    if (pending->transfer)
        WORK_FABRIC(w, transfer_wait, pending->part->group, pending->transfer);
    WORK_OP(w, add, (int64_t)pending->part->slice, pending->received.data,
            pending->part->gradients.data, grad_dtype(state));
    work_give(w, &pending->whole);
    work_give(w, &pending->received);
}

void state_gradient_flush(struct state *state)
{
    for (int i = 0; i < state->pending_count; i++)
        finish(state, &state->pending[i]);
    state->pending_count = 0;
}

/* With one stream each part is done before the next begins; with two, what this unit starts ends
 * when the next unit's backward has ended. */
void state_gradient_end(struct state *state, int unit)
{
    bool overlaps = state->work->plan->choices.primitives.comm_streams > 1;
    struct state_part *parts[USE_MAX_PARTS];
    int count = state_use_parts(state, unit, parts);

    state_gradient_flush(state);
    for (int i = 0; i < count; i++) {
        struct state_part *part = parts[i];
        if (!part->gathered)
            continue;
        struct state_pending *pending = &state->pending[state->pending_count++];
        *pending = (struct state_pending){ .part = part };
        scatter(state, pending);
        pending->whole = part->whole_gradients;
        memset(&part->whole_gradients, 0, sizeof part->whole_gradients);
        if (!overlaps)
            state_gradient_flush(state);
    }
}

static const struct state_tensor *find(const struct state *state, int unit, enum role role)
{
    const struct state_unit *u = &state->units[unit];
    for (int i = 0; i < u->tensor_count; i++)
        if (u->tensors[i].role == role)
            return &u->tensors[i];
    return NULL;
}

const bf16 *state_weight(const struct state *state, int unit, enum role role)
{
    const struct state_tensor *tensor = find(state, unit, role);
    if (!tensor)
        return NULL;
    const struct state_part *part = &state->units[unit].parts[tensor->mesh];
    return element_at(part->used_weights, tensor->offset, sizeof(bf16));
}

void *state_gradient(const struct state *state, int unit, enum role role)
{
    const struct state_tensor *tensor = find(state, unit, role);
    if (!tensor)
        return NULL;
    const struct state_part *part = &state->units[unit].parts[tensor->mesh];
    return element_at(part->used_gradients, tensor->offset, dtype_bytes(grad_dtype(state)));
}
