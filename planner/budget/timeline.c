/* timeline.c - the phases of one step on one stage: what lives in each, where the peak falls, and
 * every item's own maximum. Each phase is a constant part (state, checkpoints, units) plus, in a
 * layer, the steps of its liveness table. */
#include "planner/budget/live.h"

#include "base/checked.h"

#include <limits.h>
#include <string.h>

static bool is_recomputed(const struct live *w, int layer)
{
    return layer < w->flight.recomputed;
}

/* Gathers that stay when the current use has ended. */
static uint64_t prefetched(const struct live *w, uint64_t own)
{
    uint64_t window = w->now[ITEM_GATHERED_WEIGHTS];
    return window > own ? window - own : 0;
}

/* The inputs of a layer's run up to its own, or without it. */
static void set_checkpoints(struct live *w, int layer, bool own)
{
    int place = live_place_in_run(w, layer), count = place + (own ? 1 : 0);
    w->now[ITEM_CHECKPOINTS] = checkpoint_bytes(w->r->in, &w->flight, count, layer - place, count);
}

static enum residency_mode forward_mode(const struct live *w, int layer)
{
    return is_recomputed(w, layer) ? RESIDENCY_FORWARD : RESIDENCY_FORWARD_SAVED;
}

/* Whether any layer of the stage saves more than its input. */
static bool saves_any(const struct live *w)
{
    return w->flight.recomputed < w->r->stage->layers ||
           w->r->in->choices->primitives.keep_attention;
}

/* Bytes that layers of the stage save for one micro-batch. */
static uint64_t saved_bytes(struct live *w, int from, int end)
{
    uint64_t total = 0;
    for (int i = from; i < end; i++)
        total = add_sat(total, live_layer(w, i, forward_mode(w, i))->kept);
    return total;
}

/* Bytes that a run of the stage's layers keeps while others are at work. */
static void passes_init(struct live *w)
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

static void set_inputs(struct live *w, uint64_t micro_batches)
{
    uint64_t bytes = mul_sat(micro_batches, w->flight.inputs);
    if (bytes == w->now[ITEM_INPUTS])
        return;
    w->now[ITEM_INPUTS] = bytes;
    live_settle(w);
}

/* The fullest pass of a run begins. */
static void enter_run(struct live *w, int run, enum way way)
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
static void set_saved(struct live *w)
{
    w->now[ITEM_LAYER_SAVED] = add_sat(w->beside->saved, w->saved_before);
}

static void walk_forward(struct live *w)
{
    const struct stage *s = w->r->stage;
    struct phase phase = { PHASE_FORWARD, s->index, w->beside->micro_batch, -1 };
    if (s->has_embedding) {
        live_next_use(w);
        w->now[ITEM_CHECKPOINTS] = checkpoint_bytes(w->r->in, &w->flight, 1, 0, 0);
        set_saved(w);
        live_observe(w, &phase);
    }
    for (int i = 0; i < s->layers; i++) {
        if (live_place_in_run(w, i) == 0) {
            enter_run(w, i / w->flight.run, WAY_FORWARD);
            w->saved_before = 0;
        }
        const struct residency *table = live_layer(w, i, forward_mode(w, i));
        /* what goes to another stage is in a transfer; where checkpoints leave the device, the next
         * one takes the place of one that left */
        int place = live_place_in_run(w, i);
        bool in_place = i < s->layers - 1 &&
                        (place == w->flight.run - 1 || checkpoints_are_full(&w->flight, place + 1));
        live_next_use(w);
        phase.layer = s->first + i;
        phase.micro_batch = w->beside->micro_batch;
        set_checkpoints(w, i, true);
        set_saved(w);
        live_observe_layer(w, &phase, table, in_place ? ITEM_COUNT : live_output_item(s, i));
        w->saved_before = add_sat(w->saved_before, table->kept);
    }
    set_saved(w);
}

/* The reduce-scatter of one unit's gradients. On one stream part by part, dense first, each into a
 * receive buffer that is released with it, before the next unit begins. On two streams all buffers
 * stay until the next unit's backward has ended. */
static void reduce_unit(struct live *w, const struct phase *phase, const struct unit_gradient *g)
{
    uint64_t both = add_sat(g->dense, g->expert);
    uint64_t first = add_sat(both, g->dense_receive);
    uint64_t second = add_sat(g->expert, g->expert_receive);
    bool async = w->r->in->choices->primitives.comm_streams > 1;
    if (both == 0 && w->pending == 0)
        return;
    w->pending = async ? add_sat(first, g->expert_receive) : 0;
    w->now[ITEM_GATHERED_GRADIENTS] = async ? w->pending : first > second ? first : second;
    live_observe(w, phase);
    w->now[ITEM_GATHERED_GRADIENTS] = w->pending;
}

static void open_gradient(struct live *w, const struct unit_gradient *g)
{
    w->now[ITEM_GATHERED_GRADIENTS] = add_sat(w->pending, add_sat(g->dense, g->expert));
}

/* One moment of the prediction layers, on top of the stage's checkpoints and saved tensors. */
static void observe_predicted(struct live *w, const struct predicted_moment *m)
{
    const struct model *model = w->r->in->model;
    struct phase phase = { m->kind, w->r->stage->index, w->beside->micro_batch,
                           model->layers + m->layer };
    w->now[ITEM_LAYER_WORKING] = m->working;
    w->now[ITEM_LOSS_WORKING] = m->loss_working;
    w->now[ITEM_LOGITS] = m->logits;
    w->now[ITEM_GATHERED_GRADIENTS] = m->gradients;
    live_settle(w);
    if (m->mode < 0)
        live_observe(w, &phase);
    else
        live_observe_layer(w, &phase, live_predicted(w, (enum residency_mode)m->mode),
                           m->kind == PHASE_FORWARD ? ITEM_LOSS_WORKING : ITEM_COUNT);
}

/* Trained prediction layers forward, and their losses and backwards from the last. */
static void walk_predictions(struct live *w)
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
    uint64_t kept = live_predicted(w, forward)->kept;
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
static void walk_loss(struct live *w)
{
    const struct stage *s = w->r->stage;
    struct phase phase = { PHASE_LOSS, s->index, w->beside->micro_batch, -1 };
    struct unit_gradient g;
    struct loss_bytes loss;
    live_next_use(w);
    head_gradient_bytes(w->r->in, s, &g);
    open_gradient(w, &g);
    loss_bytes(w->r->in, &loss);
    w->now[ITEM_LOGITS] = loss.logits;
    w->now[ITEM_LOSS_WORKING] = loss.tiles > loss.normed ? loss.tiles : loss.normed;
    live_settle(w);
    live_observe(w, &phase);
    w->now[ITEM_LOGITS] = 0;
    w->now[ITEM_LOSS_WORKING] = loss.stream;
    w->now[ITEM_LAYER_WORKING] = w->flight.checkpoint; /* dx */
    live_settle(w);
    live_observe(w, &phase);
    w->now[ITEM_LOSS_WORKING] = 0;
    live_settle(w);
    w->now[ITEM_GATHERED_WEIGHTS] = prefetched(w, head_gathered_bytes(w->r->in, s));
    reduce_unit(w, &phase, &g);
}

/* The first layer of a run: nothing is left under way when its backward has ended. */
static bool ends_pass(const struct live *w, int layer)
{
    return live_place_in_run(w, layer) == 0;
}

/* The last layer of a run begins its backward. What the stage's last run saved is known from its
 * forward. */
static void enter_backward(struct live *w, int layer)
{
    bool last = layer == w->r->stage->layers - 1;
    if (!last && !ends_pass(w, layer + 1))
        return;
    enter_run(w, layer / w->flight.run, WAY_BACKWARD);
    if (!last)
        w->saved_before = saved_bytes(w, layer + 1 - w->flight.run, layer + 1);
}

static void backward_layer(struct live *w, int layer)
{
    const struct stage *s = w->r->stage;
    struct phase phase = { PHASE_BACKWARD, s->index, 0, s->first + layer };
    struct unit_gradient g;
    bool saves = !is_recomputed(w, layer);
    enter_backward(w, layer);
    phase.micro_batch = w->beside->micro_batch;
    live_next_use(w);
    unit_gradient_bytes(w->r->in, &s->layer[layer], &g);
    open_gradient(w, &g);
    set_checkpoints(w, layer, true);
    uint64_t own = live_layer(w, layer, forward_mode(w, layer))->kept;
    w->saved_before -= w->saved_before > own ? own : w->saved_before;
    set_saved(w);
    if (saves) {
        live_observe_layer(w, &phase, live_layer(w, layer, RESIDENCY_BACKWARD_SAVED), ITEM_COUNT);
    } else {
        live_observe_layer(w, &phase, live_layer(w, layer, RESIDENCY_REPLAY), ITEM_COUNT);
        live_observe_layer(w, &phase, live_layer(w, layer, RESIDENCY_BACKWARD), ITEM_COUNT);
    }
    set_checkpoints(w, layer, false);
    w->now[ITEM_GATHERED_WEIGHTS] = prefetched(w, unit_gathered_bytes(w->r->in, &s->layer[layer]));
    reduce_unit(w, &phase, &g);
    if (layer > 0 && ends_pass(w, layer))
        w->pending = 0;
}

static void walk_backward(struct live *w)
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
    live_observe(w, &phase);
    w->now[ITEM_LAYER_WORKING] = 0;
    reduce_unit(w, &phase, &g);
}

static void clear_micro_batch(struct live *w)
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
static void walk_optimizer(struct live *w)
{
    struct phase phase = { PHASE_OPTIMIZER, w->r->stage->index, 0, -1 };
    struct muon_bytes muon;
    uint64_t workspace = w->now[ITEM_WORKSPACE];
    stage_muon_bytes(w->r->in, w->r->stage, &muon);
    w->now[ITEM_GATHERED_GRADIENTS] = muon.gathered;
    w->now[ITEM_WORKSPACE] = add_sat(workspace, muon.workspace);
    live_settle(w);
    live_observe(w, &phase);
    w->now[ITEM_GATHERED_GRADIENTS] = 0;
    w->now[ITEM_WORKSPACE] = workspace;
    live_settle(w);
}

static void walk_end(struct live *w)
{
    struct phase phase = { PHASE_REDUCE, w->r->stage->index, 0, -1 };
    clear_micro_batch(w);
    live_settle(w);
    w->now[ITEM_GATHERED_GRADIENTS] = reduce_receive_bytes(w->r->in, w->r->stage);
    live_observe(w, &phase);
    walk_optimizer(w);
}

/* Phases of the last micro-batch of the warm-up (forward) and the first to return (backward): the
 * stage holds the most then. Interleaved, of the pass of each run beside which there is the most.
 */
static void walk_step(struct live *w, uint64_t received, struct timeline_result *ret)
{
    struct phase start = { PHASE_START, w->r->stage->index, 0, -1 };
    live_begin(w, received, ret);
    live_settle(w);
    live_observe(w, &start);
    passes_init(w);
    enter_run(w, 0, WAY_FORWARD);
    w->saved_before = 0;
    live_raise(w, ITEM_INPUTS, mul_sat((uint64_t)w->flight.micro_batches, w->flight.inputs));
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
    struct live w;
    live_open(&w, request, sink);
    walk_step(&w, request->received, ret);
}

void timeline_walk_both(const struct timeline_request *request, uint64_t upper,
                        struct timeline_result *ret, struct timeline_result *ret_upper)
{
    struct live w;
    live_open(&w, request, NULL);
    walk_step(&w, request->received, ret);
    if (upper == request->received)
        *ret_upper = *ret;
    else
        walk_step(&w, upper, ret_upper);
}
