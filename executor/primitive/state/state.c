/* state.c - what a rank holds for the whole step: buffers and first values. */
#include "executor/primitive/state/state.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_ELEMENTS = 1 << 16 };

static int no_memory(struct work *w)
{
    w->failed = true;
    return diag_error(w->errors, (struct pos){ 0 }, "no memory left for the state's table");
}

static enum dtype grad_dtype(const struct work *w)
{
    return w->plan->choices.primitives.grad_dtype;
}

static void take_part(struct work *w, struct state_part *part)
{
    uint64_t held = part->gathered ? part->slice : part->padded;

    if (part->elements == 0)
        return;
    part->weights = work_take(w, OWNER_WEIGHTS, mul_sat(held, sizeof(bf16)));
    part->gradients = work_take(w, OWNER_GRADIENTS, mul_sat(held, dtype_bytes(grad_dtype(w))));
    part->master = work_take(w, OWNER_MASTER, mul_sat(part->slice, sizeof(float)));
    part->moments = work_take(w, OWNER_MOMENTS, mul3_sat(part->slice, 2, sizeof(float)));
}

int state_open(struct state *state, struct work *work)
{
    memset(state, 0, sizeof *state);
    state->work = work;
    state->unit_count = work->plan->model.layers + 2;
    state->use_count = 2 * state->unit_count - 2;
    state->units = calloc((size_t)state->unit_count, sizeof *state->units);
    state->uses = calloc((size_t)state->use_count, sizeof *state->uses);
    if (!state->units || !state->uses)
        return no_memory(work);
    if (state_table_fill(state) != 0) {
        work->failed = true;
        return -1;
    }
    for (int i = 0; i < state->unit_count; i++)
        for (int mesh = 0; mesh < 2; mesh++)
            take_part(work, &state->units[i].parts[mesh]);
    return work->failed ? -1 : 0;
}

void state_close(struct state *state)
{
    free(state->units);
    free(state->uses);
    memset(state, 0, sizeof *state);
}

void state_resident(struct state *state)
{
    for (int i = 0; i < state->unit_count; i++)
        for (int mesh = 0; mesh < 2; mesh++) {
            struct state_part *part = &state->units[i].parts[mesh];
            if (part->elements == 0)
                continue;
            arena_resident(state->work->arena, &part->weights);
            arena_resident(state->work->arena, &part->gradients);
            arena_resident(state->work->arena, &part->master);
            arena_resident(state->work->arena, &part->moments);
        }
}

void *state_gradient_slice(const struct state *state, const struct state_part *part)
{
    uint64_t first = part->gathered ? 0 : part->slice_first;
    return element_at(part->gradients.data, first, dtype_bytes(grad_dtype(state->work)));
}

bf16 *state_weight_slice(const struct state *state, const struct state_part *part)
{
    (void)state;
    return element_at(part->weights.data, part->gathered ? 0 : part->slice_first, sizeof(bf16));
}

/* Elements from .. to of one copy, drawn by the backend. */
static void draw_copy(struct work *w, const struct state_part *part,
                      const struct state_tensor *tensor, int copy, uint64_t seed, uint64_t from,
                      uint64_t to)
{
    uint64_t place = tensor->offset + (uint64_t)copy * tensor->stride;
    char name[128];

    state_tensor_name(tensor, copy, name, sizeof name);
    WORK_OP(w, draw_normal, (int64_t)(to - from),
            element_at(part->master.data, place + from - part->slice_first, sizeof(float)),
            state_random_key(seed, name), state_tensor_before(tensor, copy) + from,
            state_random_deviation);
}

/* Values of one copy, those of the part's slice, into master; by way of a host buffer of
 * CHUNK_ELEMENTS. `place` is where the copy begins in the part. */
static void fill_copy(struct work *w, const struct state_part *part,
                      const struct state_tensor *tensor, int copy,
                      const struct state_source *source, float *chunk)
{
    uint64_t place = tensor->offset + (uint64_t)copy * tensor->stride;
    uint64_t slice_end = part->slice_first + part->slice;
    uint64_t from = part->slice_first > place ? part->slice_first - place : 0;
    uint64_t to = slice_end > place ? slice_end - place : 0;

    if (to > tensor->elements)
        to = tensor->elements;
    if (from < to && source->seed && tensor->start == START_DRAWN && w->backend->ops->draw_normal) {
        draw_copy(w, part, tensor, copy, *source->seed, from, to);
        return;
    }
    while (from < to && work_runs(w)) {
        uint64_t count = to - from < CHUNK_ELEMENTS ? to - from : CHUNK_ELEMENTS;
        const struct state_range range = { tensor, copy, from, count };
        float *master =
            element_at(part->master.data, place + from - part->slice_first, sizeof(float));
        work_note(w, source->read(source->context, &range, chunk, w->errors));
        WORK_OP(w, upload, master, chunk, count * sizeof(float));
        from += count;
    }
}

static void initialise_part(struct state *state, struct state_unit *unit, enum mesh mesh,
                            const struct state_source *source, float *chunk)
{
    struct work *w = state->work;
    struct state_part *part = &unit->parts[mesh];

    if (part->elements == 0)
        return;
    WORK_OP(w, zero, part->master.data, part->master.bytes);
    WORK_OP(w, zero, part->moments.data, part->moments.bytes);
    for (int i = 0; i < unit->tensor_count; i++) {
        struct state_tensor tensor = unit->tensors[i];
        tensor.start = state_first_start(state, part, &tensor);
        for (int copy = 0; tensor.mesh == mesh && copy < tensor.copies; copy++)
            fill_copy(w, part, &tensor, copy, source, chunk);
    }
    WORK_OP(w, to_bf16, (int64_t)part->slice, part->master.data, state_weight_slice(state, part));
}

void state_initialise_from(struct state *state, const struct state_source *source)
{
    float *chunk = malloc(CHUNK_ELEMENTS * sizeof *chunk);
    if (!chunk) {
        no_memory(state->work);
        return;
    }
    for (int i = 0; i < state->unit_count; i++)
        for (int mesh = 0; mesh < 2; mesh++)
            initialise_part(state, &state->units[i], (enum mesh)mesh, source, chunk);
    free(chunk);
    state_spread_weights(state);
}

void state_initialise(struct state *state)
{
    const struct state_source source = { state_random_read, &state->work->seed,
                                         &state->work->seed };
    state_initialise_from(state, &source);
}
