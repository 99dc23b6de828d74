/* live.c - moments of a step: sums, the peak so far, the tables of layers when first asked for. */
#include "planner/budget/live.h"

#include "base/checked.h"

#include <limits.h>
#include <string.h>

static const enum item owner_item[OWNER_COUNT] = {
    [OWNER_WORKING] = ITEM_LAYER_WORKING,       [OWNER_DISPATCH_SEND] = ITEM_DISPATCH_SEND,
    [OWNER_DISPATCH_RECV] = ITEM_DISPATCH_RECV, [OWNER_EXPERT] = ITEM_EXPERT_WORKING,
    [OWNER_SAVED] = ITEM_LAYER_SAVED,           [OWNER_CONTEXT] = ITEM_KV_GATHER,
    [OWNER_WORKSPACE] = ITEM_WORKSPACE,         [OWNER_OUTPUT] = ITEM_CHECKPOINTS,
};

/* Items that change from layer to layer are neighbours; the others are summed when they change. */
enum { FIRST_MOVING = ITEM_CHECKPOINTS, LAST_MOVING = ITEM_GATHERED_GRADIENTS };

static bool is_moving(int item)
{
    return item >= FIRST_MOVING && item <= LAST_MOVING;
}

static void raise_to(uint64_t *max, uint64_t bytes)
{
    *max = bytes > *max ? bytes : *max;
}

void live_raise(struct live *w, enum item item, uint64_t bytes)
{
    raise_to(&w->ret->max[item], bytes);
}

void live_settle(struct live *w)
{
    w->steady = 0;
    for (int i = 0; i < ITEM_COUNT; i++) {
        if (is_moving(i))
            continue;
        w->steady = add_sat(w->steady, w->now[i]);
        raise_to(&w->ret->max[i], w->now[i]);
    }
}

static uint64_t sum_now(struct live *w)
{
    uint64_t total = w->steady;
    for (int i = FIRST_MOVING; i <= LAST_MOVING; i++) {
        total = add_sat(total, w->now[i]);
        raise_to(&w->ret->max[i], add_sat(w->now[i], w->more[i]));
    }
    return total;
}

/* Reports a phase; true when it is the fullest so far, of equals the first in the step. */
static bool is_peak(struct live *w, const struct phase *phase, uint64_t total)
{
    if (w->sink)
        w->sink->phase(w->sink->context, phase, total);
    if (total < w->ret->peak || (total == w->ret->peak && w->order >= w->peak_order))
        return false;
    w->ret->peak = total;
    w->peak_order = w->order;
    w->ret->phase = *phase;
    memcpy(w->ret->item, w->now, sizeof w->ret->item);
    return true;
}

void live_observe(struct live *w, const struct phase *phase)
{
    (void)is_peak(w, phase, sum_now(w));
}

/* An item's own maximum, by what a layer adds to it. */
static void raise_alone(struct live *w, enum item item, uint64_t bytes)
{
    raise_to(&w->ret->max[item], add_sat(add_sat(w->now[item], w->more[item]), bytes));
}

void live_observe_layer(struct live *w, const struct phase *phase, const struct residency *table,
                        enum item output)
{
    bool bare = output == ITEM_COUNT;
    const uint64_t *live = bare ? table->bare_live : table->live[table->peak_step];
    uint64_t total = add_sat(sum_now(w), bare ? table->bare : table->peak);
    if (!bare)
        raise_alone(w, output, table->max[OWNER_OUTPUT]);
    raise_alone(w, ITEM_LAYER_SAVED, table->max[OWNER_SAVED]);
    if (!is_peak(w, phase, total))
        return;
    for (int owner = 0; owner < OWNER_COUNT; owner++) {
        enum item item = owner == OWNER_OUTPUT ? output : owner_item[owner];
        if (item != ITEM_COUNT)
            w->ret->item[item] = add_sat(w->ret->item[item], live[owner]);
    }
}

/* Own maxima of what no other layer of the kind adds to. */
static void raise_owners(struct live *w, const struct residency *table)
{
    for (int owner = 0; owner < OWNER_COUNT; owner++) {
        enum item item = owner_item[owner];
        if (owner != OWNER_OUTPUT && owner != OWNER_SAVED)
            raise_to(&w->ret->max[item], add_sat(w->now[item], table->max[owner]));
    }
}

/* Rows received of every layer; a pass alone keeps nothing. */
static void shape_for(struct live *w, uint64_t rows)
{
    working_shape(w->r->in, rows, &w->shape);
    if (w->passes_alone)
        w->shape.when &= ~(unsigned)WHEN_KEEPS_ATTENTION;
}

static void set_rows(struct live *w, uint64_t rows, const uint64_t *chunks)
{
    if (rows != w->rows || chunks != w->chunk_rows) {
        w->rows = rows;
        w->chunk_rows = chunks;
        shape_for(w, rows);
        w->shape.chunks.received = chunks;
        for (int i = 0; i < MIXER_COUNT; i++)
            w->kinds[i][FFN_MOE].done = 0;
        memset(w->halves, 0, sizeof w->halves);
    }
}

static const struct residency *residency_of_kind(struct live *w, enum mixer mixer, enum ffn ffn,
                                                 enum residency_mode mode)
{
    struct live_kind *kind = &w->kinds[mixer][ffn];
    if (!(kind->done & (1U << mode))) {
        working_shape_mixer(w->r->in, mixer, &w->shape);
        residency_evaluate(&w->shape, mixer, ffn, mode, w->halves, &kind->mode[mode]);
        kind->done |= 1U << mode;
        raise_owners(w, &kind->mode[mode]);
    }
    return &kind->mode[mode];
}

const struct residency *live_layer(struct live *w, int layer, enum residency_mode mode)
{
    const struct model *m = w->r->in->model;
    int l = w->r->stage->first + layer;
    set_rows(w, w->r->layer_received ? w->r->layer_received[layer] : w->received,
             w->r->layer_chunks ? w->r->layer_chunks[layer] : NULL);
    return residency_of_kind(w, (enum mixer)m->layer_mixer[l], (enum ffn)m->layer_ffn[l], mode);
}

const struct residency *live_predicted(struct live *w, enum residency_mode mode)
{
    const struct model *m = w->r->in->model;
    struct live_kind *kind = &w->predicted;
    if (w->r->in->choices->primitives.frozen == 0) {
        set_rows(w, w->received, NULL);
        return residency_of_kind(w, model_mtp_mixer(m), model_mtp_ffn(m), mode);
    }
    if (!(kind->done & (1U << mode))) {
        predicted_residency(w->r->in, w->received, mode, &kind->mode[mode]);
        kind->done |= 1U << mode;
        raise_owners(w, &kind->mode[mode]);
    }
    return &kind->mode[mode];
}

void live_next_use(struct live *w)
{
    w->now[ITEM_GATHERED_WEIGHTS] = w->use < w->uses ? w->window[w->use] : 0;
    w->use++;
}

int live_place_in_run(const struct live *w, int layer)
{
    return layer % w->flight.run;
}

enum item live_output_item(const struct stage *s, int layer)
{
    if (layer < s->layers - 1)
        return ITEM_CHECKPOINTS;
    return s->has_head ? ITEM_LOSS_WORKING : ITEM_COUNT;
}

void live_open(struct live *w, const struct timeline_request *request,
               const struct timeline_sink *sink)
{
    memset(w->now, 0, sizeof w->now);
    memset(w->more, 0, sizeof w->more);
    w->r = request;
    w->sink = sink;
    w->passes_alone = false;
    in_flight_init(request->in, request->stage, &w->flight);
    w->uses = gather_windows(w->r->in, w->r->stage, false, w->window);
    w->host_state = state_add(request->in, request->stage, w->now);
    w->host_state = add_sat(w->host_state, reference_add(request->in, w->now));
    runtime_add(request->in, w->now);
    w->now[ITEM_COMMUNICATORS] = communicator_bytes(request->in);
    w->now[ITEM_PIPELINE_BUFFERS] = pipeline_bytes(request->in, request->stage->index);
}

void live_begin(struct live *w, uint64_t received, struct timeline_result *ret)
{
    memset(ret, 0, sizeof *ret);
    w->ret = ret;
    w->pending = 0;
    w->use = 0;
    w->rows = w->received = received;
    w->chunk_rows = NULL;
    w->predicted.done = 0;
    shape_for(w, received);
    for (int i = 0; i < MIXER_COUNT; i++)
        for (int j = 0; j < FFN_COUNT; j++)
            w->kinds[i][j].done = 0;
    memset(w->halves, 0, sizeof w->halves);
    w->order = w->peak_order = INT_MIN;
}
