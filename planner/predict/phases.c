/* phases.c - live bytes at every phase of a step, and their names. */
#include "planner/predict/walk.h"

#include <stdio.h>

struct collection {
    struct phase_bytes *items;
    size_t count, room;
    int micro_batch_shift;
};

static bool same_phase(const struct phase *a, const struct phase *b)
{
    return a->kind == b->kind && a->layer == b->layer && a->micro_batch == b->micro_batch &&
           a->stage == b->stage;
}

/* A phase seen more than once (replay, backward, reduce-scatter) counts at its largest. */
static void collect(void *context, const struct phase *phase, uint64_t bytes)
{
    struct collection *all = context;
    struct phase at = *phase;
    at.micro_batch += all->micro_batch_shift;
    if (all->count > 0 && all->count <= all->room) {
        struct phase_bytes *last = &all->items[all->count - 1];
        if (same_phase(&last->phase, &at)) {
            last->bytes = bytes > last->bytes ? bytes : last->bytes;
            return;
        }
    }
    if (all->count < all->room)
        all->items[all->count] = (struct phase_bytes){ at, bytes };
    all->count++;
}

/* The last micro-batch passes the same phases as the first: its forward and backward once more,
 * before the reduction. Not where stages interleave, whose fullest passes are of any
 * micro-batches. */
static void collect_last(void *context, const struct phase *phase, uint64_t bytes)
{
    if (phase->kind == PHASE_FORWARD || phase->kind == PHASE_LOSS || phase->kind == PHASE_BACKWARD)
        collect(context, phase, bytes);
}

static void collect_first(void *context, const struct phase *phase, uint64_t bytes)
{
    if (phase->kind != PHASE_REDUCE && phase->kind != PHASE_OPTIMIZER)
        collect(context, phase, bytes);
}

static void collect_end(void *context, const struct phase *phase, uint64_t bytes)
{
    if (phase->kind == PHASE_REDUCE || phase->kind == PHASE_OPTIMIZER)
        collect(context, phase, bytes);
}

size_t budget_phases(struct predictor *p, int stage, struct phase_bytes *ret, size_t room)
{
    struct collection all = { ret, 0, room, 0 };
    struct walk_sink sink = { &all, collect_first };
    struct walk_request request = {
        .predictor = p, .stage = stage, .group = -1, .rows = ROWS_POINT, .sink = &sink
    };
    struct walk_result result;
    walk_stage(&request, &result);
    int held = held_micro_batches(&p->in, stage), micro_batches = micro_batches_of(&p->in);
    if (micro_batches > held && p->in.choices->layout.vpp <= 1) {
        all.micro_batch_shift = micro_batches - held;
        sink.phase = collect_last;
        walk_stage(&request, &result);
        all.micro_batch_shift = 0;
    }
    sink.phase = collect_end;
    walk_stage(&request, &result);
    return all.count < room ? all.count : room;
}

void phase_format(const struct phase *phase, char *ret, size_t size)
{
    const char *kind = phase_kind_names[phase->kind];
    bool in_layers = phase->kind == PHASE_FORWARD || phase->kind == PHASE_BACKWARD;
    bool in_loss = phase->kind == PHASE_LOSS; /* with a layer: of a prediction layer */
    if ((in_layers || in_loss) && phase->layer >= 0)
        (void)snprintf(ret, size, "%s of layer %d, micro-batch %d", kind, phase->layer,
                       phase->micro_batch);
    else if (in_layers)
        (void)snprintf(ret, size, "%s of the embedding, micro-batch %d", kind, phase->micro_batch);
    else if (in_loss)
        (void)snprintf(ret, size, "%s, micro-batch %d", kind, phase->micro_batch);
    else
        (void)snprintf(ret, size, "%s", kind);
}
