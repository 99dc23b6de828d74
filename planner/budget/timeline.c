/* timeline.c - the phases of one step on one stage: what lives in each, where the peak falls, and
 * every item's own maximum. Each phase is a constant part (state, checkpoints, units) plus, in a
 * layer, the steps of its liveness table. */
#include "planner/budget/parts.h"

#include "base/checked.h"

#include <limits.h>
#include <string.h>

static const enum item owner_item[OWNER_COUNT] = {
    [OWNER_WORKING] = ITEM_LAYER_WORKING,       [OWNER_DISPATCH_SEND] = ITEM_DISPATCH_SEND,
    [OWNER_DISPATCH_RECV] = ITEM_DISPATCH_RECV, [OWNER_EXPERT] = ITEM_EXPERT_WORKING,
    [OWNER_SAVED] = ITEM_LAYER_SAVED,           [OWNER_CONTEXT] = ITEM_KV_GATHER,
    [OWNER_WORKSPACE] = ITEM_WORKSPACE,         [OWNER_OUTPUT] = ITEM_CHECKPOINTS,
};

/* One layer kind for the rows in force, evaluated when first asked for. */
struct kind {
    unsigned done; /* bit a mode */
    struct residency mode[RESIDENCY_MODES];
};

struct walk {
    const struct timeline_request *r;
    const struct timeline_sink *sink;
    struct timeline_result *ret;
    struct in_flight flight;
    struct residency_shape shape;
    uint64_t received;          /* rows of every layer, unless measured */
    uint64_t rows;              /* received rows that `shape` and `kinds` stand for */
    const uint64_t *chunk_rows; /* likewise, of each chunk */
    struct kind kinds[MIXER_COUNT][FFN_COUNT];
    struct kind predicted; /* where parts of the trunk are frozen */
    struct residency_half halves[RESIDENCY_HALVES];
    uint64_t window[MAX_USES]; /* gathered bytes alive while a use of a unit is current */
    int uses, use;
    uint64_t now[ITEM_COUNT];    /* alive throughout the phase */
    uint64_t more[ITEM_COUNT];   /* the item alone: how much more beside another pass of the run */
    uint64_t steady;             /* sum of the items that do not change from layer to layer */
    uint64_t saved_before;       /* bytes saved by the layers of the run before the current one */
    uint64_t pending;            /* two streams: gradient buffers of the unit before */
    uint64_t host_state;         /* optimizer state on the host */
    int order, peak_order;       /* of the current pass in the step, and of that with the peak */
    const struct beside *beside; /* what is beside the current pass */
    struct beside passes[MODEL_MAX_LAYERS][WAYS]; /* the fullest of each run */
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

/* To be called when an item changed that is not moving. */
static void settle(struct walk *w)
{
    w->steady = 0;
    for (int i = 0; i < ITEM_COUNT; i++) {
        if (is_moving(i))
            continue;
        w->steady = add_sat(w->steady, w->now[i]);
        raise_to(&w->ret->max[i], w->now[i]);
    }
}

static uint64_t sum_now(struct walk *w)
{
    uint64_t total = w->steady;
    for (int i = FIRST_MOVING; i <= LAST_MOVING; i++) {
        total = add_sat(total, w->now[i]);
        raise_to(&w->ret->max[i], add_sat(w->now[i], w->more[i]));
    }
    return total;
}

/* Reports a phase; true when it is the fullest so far, of equals the first in the step. */
static bool is_peak(struct walk *w, const struct phase *phase, uint64_t total)
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

/* A phase whose only tensors are those in `now`. */
static void observe(struct walk *w, const struct phase *phase)
{
    (void)is_peak(w, phase, sum_now(w));
}

/* An item's own maximum, by what a layer adds to it. */
static void raise_alone(struct walk *w, enum item item, uint64_t bytes)
{
    raise_to(&w->ret->max[item], add_sat(add_sat(w->now[item], w->more[item]), bytes));
}

/* A phase inside a layer: the table's fullest step on top of `now`. `output`: the item that the
 * layer's output belongs to; ITEM_COUNT: it is counted already. */
static void observe_layer(struct walk *w, const struct phase *phase, const struct residency *table,
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
static void raise_owners(struct walk *w, const struct residency *table)
{
    for (int owner = 0; owner < OWNER_COUNT; owner++) {
        enum item item = owner_item[owner];
        if (owner != OWNER_OUTPUT && owner != OWNER_SAVED)
            raise_to(&w->ret->max[item], add_sat(w->now[item], table->max[owner]));
    }
}

static void set_rows(struct walk *w, uint64_t rows, const uint64_t *chunks)
{
    if (rows != w->rows || chunks != w->chunk_rows) {
        w->rows = rows;
        w->chunk_rows = chunks;
        working_shape(w->r->in, rows, &w->shape);
        w->shape.chunks.received = chunks;
        for (int i = 0; i < MIXER_COUNT; i++)
            w->kinds[i][FFN_MOE].done = 0;
        memset(w->halves, 0, sizeof w->halves);
    }
}

static const struct residency *residency_of_kind(struct walk *w, enum mixer mixer, enum ffn ffn,
                                                 enum residency_mode mode)
{
    struct kind *kind = &w->kinds[mixer][ffn];
    if (!(kind->done & (1U << mode))) {
        working_shape_mixer(w->r->in, mixer, &w->shape);
        residency_evaluate(&w->shape, mixer, ffn, mode, w->halves, &kind->mode[mode]);
        kind->done |= 1U << mode;
        raise_owners(w, &kind->mode[mode]);
    }
    return &kind->mode[mode];
}

static const struct residency *residency_of(struct walk *w, int layer, enum residency_mode mode)
{
    const struct model *m = w->r->in->model;
    int l = w->r->stage->first + layer;
    set_rows(w, w->r->layer_received ? w->r->layer_received[layer] : w->received,
             w->r->layer_chunks ? w->r->layer_chunks[layer] : NULL);
    return residency_of_kind(w, (enum mixer)m->layer_mixer[l], (enum ffn)m->layer_ffn[l], mode);
}

/* Of a trained prediction layer. */
static const struct residency *residency_predicted(struct walk *w, enum residency_mode mode)
{
    const struct model *m = w->r->in->model;
    struct kind *kind = &w->predicted;
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

static bool is_recomputed(const struct walk *w, int layer)
{
    return layer < w->flight.recomputed;
}

/* The window of the next use in order; past the end nothing is gathered. */
static void next_use(struct walk *w)
{
    w->now[ITEM_GATHERED_WEIGHTS] = w->use < w->uses ? w->window[w->use] : 0;
    w->use++;
}

/* Gathers that stay when the current use has ended. */
static uint64_t prefetched(const struct walk *w, uint64_t own)
{
    uint64_t window = w->now[ITEM_GATHERED_WEIGHTS];
    return window > own ? window - own : 0;
}

/* The layer's place in the run of layers that is passed at once. */
static int place_in_run(const struct walk *w, int layer)
{
    return layer % w->flight.run;
}

/* The inputs of a layer's run up to its own, or without it. */
static void set_checkpoints(struct walk *w, int layer, bool own)
{
    int place = place_in_run(w, layer), count = place + (own ? 1 : 0);
    w->now[ITEM_CHECKPOINTS] = checkpoint_bytes(w->r->in, &w->flight, count, layer - place, count);
}

static enum residency_mode forward_mode(const struct walk *w, int layer)
{
    return is_recomputed(w, layer) ? RESIDENCY_FORWARD : RESIDENCY_FORWARD_SAVED;
}

/* Whether any layer of the stage saves more than its input. */
static bool saves_any(const struct walk *w)
{
    return w->flight.recomputed < w->r->stage->layers ||
           w->r->in->choices->primitives.keep_attention;
}

/* Bytes that layers of the stage save for one micro-batch. */
static uint64_t saved_bytes(struct walk *w, int from, int end)
{
    uint64_t total = 0;
    for (int i = from; i < end; i++)
        total = add_sat(total, residency_of(w, i, forward_mode(w, i))->kept);
    return total;
}

/* Bytes that a run of the stage's layers keeps while others are at work. */
static void passes_init(struct walk *w)
{
    struct run_bytes of[MODEL_MAX_LAYERS];
    const struct in_flight *f = &w->flight;
    int layers = w->r->stage->layers, runs = run_count(f->run, layers);
    bool any = f->micro_batches > 1 || runs > 1;
    for (int i = 0; i < runs; i++) {
        int from = i * f->run, end = from + f->run < layers ? from + f->run : layers;
        of[i].saved = any && saves_any(w) ? saved_bytes(w, from, end) : 0;
        of[i].extras = any ? extras_bytes(w->r->in, f, from, end - from) : 0;
    }
    beside_init(w->r->in, w->r->stage->index, f, of, 0, w->passes);
    beside_most(w->r->in, w->r->stage->index, f, of, w->passes);
}

static void set_inputs(struct walk *w, uint64_t micro_batches)
{
    uint64_t bytes = mul_sat(micro_batches, w->flight.inputs);
    if (bytes == w->now[ITEM_INPUTS])
        return;
    w->now[ITEM_INPUTS] = bytes;
    settle(w);
}

/* The fullest pass of a run begins. */
static void enter_run(struct walk *w, int run, enum way way)
{
    const struct beside *b = &w->passes[run][way];
    w->beside = b;
    w->order = b->order;
    w->flight.other_layers = mul_sat(b->runs, (uint64_t)w->flight.run);
    w->flight.other_extras = b->extras;
    w->more[ITEM_LAYER_SAVED] = b->most_saved - b->saved;
    w->more[ITEM_CHECKPOINTS] = b->most_extras - b->extras;
    set_inputs(w, b->micro_batches);
}

/* What layers of the run saved, and the other runs in flight. */
static void set_saved(struct walk *w)
{
    w->now[ITEM_LAYER_SAVED] = add_sat(w->beside->saved, w->saved_before);
}

static enum item output_item(const struct stage *s, int layer)
{
    if (layer < s->layers - 1)
        return ITEM_CHECKPOINTS;
    return s->has_head ? ITEM_LOSS_WORKING : ITEM_COUNT;
}

static void walk_forward(struct walk *w)
{
    const struct stage *s = w->r->stage;
    struct phase phase = { PHASE_FORWARD, s->index, w->beside->micro_batch, -1 };
    if (s->has_embedding) {
        next_use(w);
        w->now[ITEM_CHECKPOINTS] = checkpoint_bytes(w->r->in, &w->flight, 1, 0, 0);
        set_saved(w);
        observe(w, &phase);
    }
    for (int i = 0; i < s->layers; i++) {
        if (place_in_run(w, i) == 0) {
            enter_run(w, i / w->flight.run, WAY_FORWARD);
            w->saved_before = 0;
        }
        const struct residency *table = residency_of(w, i, forward_mode(w, i));
        /* what goes to another stage is in a transfer; where checkpoints leave the device, the next
         * one takes the place of one that left */
        int place = place_in_run(w, i);
        bool in_place = i < s->layers - 1 &&
                        (place == w->flight.run - 1 || checkpoints_are_full(&w->flight, place + 1));
        next_use(w);
        phase.layer = s->first + i;
        phase.micro_batch = w->beside->micro_batch;
        set_checkpoints(w, i, true);
        set_saved(w);
        observe_layer(w, &phase, table, in_place ? ITEM_COUNT : output_item(s, i));
        w->saved_before = add_sat(w->saved_before, table->kept);
    }
    set_saved(w);
}

/* The reduce-scatter of one unit's gradients. On one stream part by part, dense first, each into a
 * receive buffer that is released with it, before the next unit begins. On two streams all buffers
 * stay until the next unit's backward has ended. */
static void reduce_unit(struct walk *w, const struct phase *phase, const struct unit_gradient *g)
{
    uint64_t both = add_sat(g->dense, g->expert);
    uint64_t first = add_sat(both, g->dense_receive);
    uint64_t second = add_sat(g->expert, g->expert_receive);
    bool async = w->r->in->choices->primitives.comm_streams > 1;
    if (both == 0 && w->pending == 0)
        return;
    w->pending = async ? add_sat(first, g->expert_receive) : 0;
    w->now[ITEM_GATHERED_GRADIENTS] = async ? w->pending : first > second ? first : second;
    observe(w, phase);
    w->now[ITEM_GATHERED_GRADIENTS] = w->pending;
}

static void open_gradient(struct walk *w, const struct unit_gradient *g)
{
    w->now[ITEM_GATHERED_GRADIENTS] = add_sat(w->pending, add_sat(g->dense, g->expert));
}

/* One moment of the prediction layers, on top of the stage's checkpoints and saved tensors. */
static void observe_predicted(struct walk *w, const struct predicted_moment *m)
{
    const struct model *model = w->r->in->model;
    struct phase phase = { m->kind, w->r->stage->index, w->beside->micro_batch,
                           model->layers + m->layer };
    w->now[ITEM_LAYER_WORKING] = m->working;
    w->now[ITEM_LOSS_WORKING] = m->loss_working;
    w->now[ITEM_LOGITS] = m->logits;
    w->now[ITEM_GATHERED_GRADIENTS] = m->gradients;
    settle(w);
    if (m->mode < 0)
        observe(w, &phase);
    else
        observe_layer(w, &phase, residency_predicted(w, (enum residency_mode)m->mode),
                      m->kind == PHASE_FORWARD ? ITEM_LOSS_WORKING : ITEM_COUNT);
}

/* Trained prediction layers forward, and their losses and backwards from the last. */
static void walk_predictions(struct walk *w)
{
    const struct budget_input *in = w->r->in;
    const struct stage *s = w->r->stage;
    struct predicted_gradients g;
    struct loss_bytes loss;
    struct predicted p;
    unit_gradient_bytes(in, &s->prediction, &g.own);
    unit_gradient_bytes(in, &s->embedding, &g.embedding);
    head_gradient_bytes(in, s, &g.head);
    loss_bytes(in, &loss);
    predicted_init(in, &loss, &g, &p);
    enum residency_mode forward = p.saves ? RESIDENCY_FORWARD_SAVED : RESIDENCY_FORWARD;
    uint64_t kept = residency_predicted(w, forward)->kept;
    uint64_t inputs = w->now[ITEM_CHECKPOINTS], head = w->window[w->use + 1];
    const uint64_t gathered[] = { w->window[w->use], add_sat(head, predicted_gathered_bytes(in, s)),
                                  head };
    for (int i = 0; i < p.count; i++) {
        const struct predicted_moment *m = &p.moments[i];
        w->now[ITEM_CHECKPOINTS] = add_sat(inputs, m->checkpoints);
        set_saved(w);
        w->now[ITEM_LAYER_SAVED] =
            add_sat(w->now[ITEM_LAYER_SAVED], mul_sat(kept, (uint64_t)m->saved));
        w->now[ITEM_GATHERED_WEIGHTS] = gathered[m->gather];
        observe_predicted(w, m);
    }
    w->now[ITEM_CHECKPOINTS] = inputs;
    set_saved(w);
    w->now[ITEM_LAYER_WORKING] = w->flight.checkpoint; /* the gradient of the trunk's output */
    w->pending = p.pending;
    w->use++;
}

/* Head and loss: normed hidden states; then the tiles or whole logits; then the gradient stream. */
static void walk_loss(struct walk *w)
{
    const struct stage *s = w->r->stage;
    struct phase phase = { PHASE_LOSS, s->index, w->beside->micro_batch, -1 };
    struct unit_gradient g;
    struct loss_bytes loss;
    next_use(w);
    head_gradient_bytes(w->r->in, s, &g);
    open_gradient(w, &g);
    loss_bytes(w->r->in, &loss);
    w->now[ITEM_LOGITS] = loss.logits;
    w->now[ITEM_LOSS_WORKING] = loss.tiles > loss.normed ? loss.tiles : loss.normed;
    settle(w);
    observe(w, &phase);
    w->now[ITEM_LOGITS] = 0;
    w->now[ITEM_LOSS_WORKING] = loss.stream;
    w->now[ITEM_LAYER_WORKING] = w->flight.checkpoint; /* dx */
    settle(w);
    observe(w, &phase);
    w->now[ITEM_LOSS_WORKING] = 0;
    settle(w);
    w->now[ITEM_GATHERED_WEIGHTS] = prefetched(w, head_gathered_bytes(w->r->in, s));
    reduce_unit(w, &phase, &g);
}

/* The first layer of a run: nothing is left under way when its backward has ended. */
static bool ends_pass(const struct walk *w, int layer)
{
    return place_in_run(w, layer) == 0;
}

/* The last layer of a run begins its backward. What the stage's last run saved is known from its
 * forward. */
static void enter_backward(struct walk *w, int layer)
{
    bool last = layer == w->r->stage->layers - 1;
    if (!last && !ends_pass(w, layer + 1))
        return;
    enter_run(w, layer / w->flight.run, WAY_BACKWARD);
    if (!last)
        w->saved_before = saved_bytes(w, layer + 1 - w->flight.run, layer + 1);
}

static void backward_layer(struct walk *w, int layer)
{
    const struct stage *s = w->r->stage;
    struct phase phase = { PHASE_BACKWARD, s->index, 0, s->first + layer };
    struct unit_gradient g;
    bool saves = !is_recomputed(w, layer);
    enter_backward(w, layer);
    phase.micro_batch = w->beside->micro_batch;
    next_use(w);
    unit_gradient_bytes(w->r->in, &s->layer[layer], &g);
    open_gradient(w, &g);
    set_checkpoints(w, layer, true);
    uint64_t own = residency_of(w, layer, forward_mode(w, layer))->kept;
    w->saved_before -= w->saved_before > own ? own : w->saved_before;
    set_saved(w);
    if (saves) {
        observe_layer(w, &phase, residency_of(w, layer, RESIDENCY_BACKWARD_SAVED), ITEM_COUNT);
    } else {
        observe_layer(w, &phase, residency_of(w, layer, RESIDENCY_REPLAY), ITEM_COUNT);
        observe_layer(w, &phase, residency_of(w, layer, RESIDENCY_BACKWARD), ITEM_COUNT);
    }
    set_checkpoints(w, layer, false);
    w->now[ITEM_GATHERED_WEIGHTS] = prefetched(w, unit_gathered_bytes(w->r->in, &s->layer[layer]));
    reduce_unit(w, &phase, &g);
    if (layer > 0 && ends_pass(w, layer))
        w->pending = 0;
}

static void walk_backward(struct walk *w)
{
    const struct stage *s = w->r->stage;
    struct phase phase = { PHASE_BACKWARD, s->index, 0, -1 };
    struct unit_gradient g;
    w->now[ITEM_LAYER_WORKING] = w->flight.checkpoint;
    for (int i = s->layers - 1; i >= 0; i--)
        backward_layer(w, i);
    if (!s->has_embedding)
        return;
    phase.micro_batch = w->beside->micro_batch;
    unit_gradient_bytes(w->r->in, &s->embedding, &g);
    open_gradient(w, &g);
    w->now[ITEM_GATHERED_WEIGHTS] = 0;
    observe(w, &phase);
    w->now[ITEM_LAYER_WORKING] = 0;
    reduce_unit(w, &phase, &g);
}

static void clear_micro_batch(struct walk *w)
{
    static const enum item passing[] = {
        ITEM_CHECKPOINTS,      ITEM_LAYER_SAVED,        ITEM_LAYER_WORKING,
        ITEM_GATHERED_WEIGHTS, ITEM_GATHERED_GRADIENTS, ITEM_INPUTS,
    };
    for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++)
        w->now[passing[i]] = 0;
    memset(w->more, 0, sizeof w->more);
    w->order = INT_MAX;
}

/* Muon's matrices, one at a time; all else is updated in place. */
static void walk_optimizer(struct walk *w)
{
    struct phase phase = { PHASE_OPTIMIZER, w->r->stage->index, 0, -1 };
    struct muon_bytes muon;
    uint64_t workspace = w->now[ITEM_WORKSPACE];
    stage_muon_bytes(w->r->in, w->r->stage, &muon);
    w->now[ITEM_GATHERED_GRADIENTS] = muon.gathered;
    w->now[ITEM_WORKSPACE] = add_sat(workspace, muon.workspace);
    settle(w);
    observe(w, &phase);
    w->now[ITEM_GATHERED_GRADIENTS] = 0;
    w->now[ITEM_WORKSPACE] = workspace;
    settle(w);
}

static void walk_end(struct walk *w)
{
    struct phase phase = { PHASE_REDUCE, w->r->stage->index, 0, -1 };
    clear_micro_batch(w);
    settle(w);
    w->now[ITEM_GATHERED_GRADIENTS] = reduce_receive_bytes(w->r->in, w->r->stage);
    observe(w, &phase);
    walk_optimizer(w);
}

static void walk_init(struct walk *w, const struct timeline_request *request,
                      const struct timeline_sink *sink)
{
    memset(w->now, 0, sizeof w->now);
    memset(w->more, 0, sizeof w->more);
    w->order = w->peak_order = INT_MIN;
    w->r = request;
    w->sink = sink;
    in_flight_init(request->in, request->stage, &w->flight);
    w->uses = gather_windows(w->r->in, w->r->stage, false, w->window);
    w->use = 0;
    w->host_state = state_add(request->in, request->stage, w->now);
    w->host_state = add_sat(w->host_state, reference_add(request->in, w->now));
    runtime_add(request->in, w->now);
    w->now[ITEM_COMMUNICATORS] = communicator_bytes(request->in);
    w->now[ITEM_PIPELINE_BUFFERS] = pipeline_bytes(request->in, request->stage->index);
}

/* Phases of the last micro-batch of the warm-up (forward) and the first to return (backward): the
 * stage holds the most then. Interleaved, of the pass of each run beside which there is the most.
 */
static void walk_step(struct walk *w, uint64_t received, struct timeline_result *ret)
{
    struct phase start = { PHASE_START, w->r->stage->index, 0, -1 };
    memset(ret, 0, sizeof *ret);
    w->ret = ret;
    w->pending = 0;
    w->use = 0;
    w->rows = w->received = received;
    w->chunk_rows = NULL;
    w->predicted.done = 0;
    working_shape(w->r->in, received, &w->shape);
    for (int i = 0; i < MIXER_COUNT; i++)
        for (int j = 0; j < FFN_COUNT; j++)
            w->kinds[i][j].done = 0;
    memset(w->halves, 0, sizeof w->halves);
    w->order = w->peak_order = INT_MIN;
    settle(w);
    observe(w, &start);
    passes_init(w);
    enter_run(w, 0, WAY_FORWARD);
    w->saved_before = 0;
    raise_to(&ret->max[ITEM_INPUTS], mul_sat((uint64_t)w->flight.micro_batches, w->flight.inputs));
    walk_forward(w);
    if (w->r->stage->predicts)
        walk_predictions(w);
    if (w->r->stage->has_head)
        walk_loss(w);
    walk_backward(w);
    walk_end(w);
    ret->host_bytes = add_sat(w->flight.offloaded_bytes, w->host_state);
}

void timeline_walk(const struct timeline_request *request, const struct timeline_sink *sink,
                   struct timeline_result *ret)
{
    struct walk w;
    walk_init(&w, request, sink);
    walk_step(&w, request->received, ret);
}

/* What a pass finds of inputs is one micro-batch's. */
static void forward_init(struct walk *w, struct timeline_result *ret)
{
    const struct timeline_request *r = w->r;
    memset(ret, 0, sizeof *ret);
    w->ret = ret;
    w->pending = 0;
    w->uses = gather_windows(w->r->in, w->r->stage, true, w->window);
    w->use = 0;
    w->flight.recomputed = r->stage->layers;
    w->flight.micro_batches = 1;
    w->rows = w->received = r->received;
    w->chunk_rows = NULL;
    for (int i = 0; i < MIXER_COUNT; i++)
        for (int j = 0; j < FFN_COUNT; j++)
            w->kinds[i][j].done = 0;
    memset(w->halves, 0, sizeof w->halves);
    working_shape(r->in, r->received, &w->shape);
    w->shape.when &= ~(unsigned)WHEN_KEEPS_ATTENTION;
    w->now[ITEM_INPUTS] = w->flight.inputs;
    w->now[ITEM_REFERENCE_WEIGHTS] =
        add_sat(w->now[ITEM_REFERENCE_WEIGHTS], reference_slots_bytes(r->in, r->stage));
    settle(w);
}

static void forward_head(struct walk *w)
{
    struct phase phase = { PHASE_LOSS, w->r->stage->index, 0, -1 };
    struct loss_bytes loss;
    next_use(w);
    logprob_bytes(w->r->in, &loss);
    w->now[ITEM_CHECKPOINTS] = 0;
    w->now[ITEM_LOSS_WORKING] = loss.normed;
    settle(w);
    observe(w, &phase);
    w->now[ITEM_LOGITS] = loss.logits;
    w->now[ITEM_LOSS_WORKING] = loss.tiles;
    settle(w);
    observe(w, &phase);
}

void timeline_forward(const struct timeline_request *request, struct timeline_result *ret)
{
    const struct stage *s = request->stage;
    struct phase phase = { PHASE_FORWARD, s->index, 0, -1 };
    struct walk w;
    walk_init(&w, request, NULL);
    forward_init(&w, ret);
    w.now[ITEM_CHECKPOINTS] = w.flight.checkpoint;
    if (s->has_embedding) {
        next_use(&w);
        observe(&w, &phase);
    }
    for (int i = 0; i < s->layers; i++) {
        int from = i - place_in_run(&w, i);
        next_use(&w);
        phase.layer = s->first + i;
        w.now[ITEM_CHECKPOINTS] =
            add_sat(w.flight.checkpoint,
                    passing_extras_bytes(request->in, s->first + from, w.flight.run, i - from));
        bool leaves = i < s->layers - 1 && place_in_run(&w, i) == w.flight.run - 1;
        observe_layer(&w, &phase, residency_of(&w, i, RESIDENCY_FORWARD),
                      leaves ? ITEM_COUNT : output_item(s, i));
    }
    if (s->has_head)
        forward_head(&w);
}

void timeline_walk_both(const struct timeline_request *request, uint64_t upper,
                        struct timeline_result *ret, struct timeline_result *ret_upper)
{
    struct walk w;
    walk_init(&w, request, NULL);
    walk_step(&w, request->received, ret);
    if (upper == request->received)
        *ret_upper = *ret;
    else
        walk_step(&w, upper, ret_upper);
}
