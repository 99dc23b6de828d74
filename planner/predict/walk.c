#include "planner/predict/walk.h"

#include "base/checked.h"

#include <limits.h>
#include <string.h>

/* now: alive throughout the current phase, in addition to what the layer at work has. more: of one
 * item alone, how much more there is at another pass of the run. */
struct walk {
    struct predictor *p;
    const struct budget_input *in;
    const struct walk_request *request;
    struct walk_result *ret;
    struct body *body;
    const struct units *units;
    const struct stage *stage;
    struct in_flight flight;
    bool alone;      /* a forward without a backward */
    bool predicts;   /* trained MTP layers run */
    bool saves;      /* some layer saves more than its input */
    int head_use;    /* the use of the head, behind those of a forward */
    int last_use[2]; /* past the last use of a pass that has a single run: forward, backward */
    uint64_t now[ITEM_COUNT], more[ITEM_COUNT];
    uint64_t fixed;              /* sum of the items that never change */
    uint64_t steady;             /* and of those that do not change from layer to layer */
    bool maxima;                 /* each item's own is wanted */
    uint64_t saved_before;       /* bytes saved by the layers of the run before the current one */
    uint64_t pending;            /* two streams: gradient buffers of the unit before */
    uint64_t host_state;         /* optimizer state on the host */
    int order, peak_order;       /* of the current pass in the step, and of that with the peak */
    const struct beside *beside; /* the other passes in flight */
    struct layer_bytes measured; /* of the layer asked for last, where rows are measured */
};

/* Items that change from layer to layer are neighbours; some others change in a step, and are
 * summed when they do. */
enum { FIRST_MOVING = ITEM_CHECKPOINTS, LAST_MOVING = ITEM_GATHERED_GRADIENTS };
static const enum item changing[] = { ITEM_INPUTS, ITEM_LOGITS, ITEM_LOSS_WORKING, ITEM_WORKSPACE };
enum { CHANGING = sizeof changing / sizeof *changing };

static void raise_to(uint64_t *max, uint64_t bytes)
{
    *max = bytes > *max ? bytes : *max;
}

/* To be called when one of the changing items did. */
static void settle(struct walk *w)
{
    w->steady = w->fixed;
    for (int i = 0; i < CHANGING; i++) {
        w->steady = add_sat(w->steady, w->now[changing[i]]);
        raise_to(&w->ret->max[changing[i]], w->now[changing[i]]);
    }
}

/* To be called once, when all items are there that never change. */
static void fix(struct walk *w)
{
    for (int i = 0; i < ITEM_COUNT; i++)
        if (i < FIRST_MOVING || i > LAST_MOVING) {
            w->fixed = add_sat(w->fixed, w->now[i]);
            w->ret->max[i] = w->now[i];
        }
    for (int i = 0; i < CHANGING && w->fixed != UINT64_MAX; i++)
        w->fixed -= w->now[changing[i]];
    settle(w);
}

static uint64_t sum_now(struct walk *w)
{
    uint64_t total = w->steady;
    for (int i = FIRST_MOVING; i <= LAST_MOVING; i++)
        total = add_sat(total, w->now[i]);
    for (int i = FIRST_MOVING; w->maxima && i <= LAST_MOVING; i++)
        raise_to(&w->ret->max[i], add_sat(w->now[i], w->more[i]));
    return total;
}

/* Reports a phase; true when it is the fullest so far, of equals the first in the step. */
static bool is_peak(struct walk *w, const struct phase *phase, uint64_t total)
{
    if (w->request->sink)
        w->request->sink->phase(w->request->sink->context, phase, total);
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

/* A phase inside a layer: the fullest point of its pass on top of `now`. output: the item that the
 * layer's output belongs to; ITEM_COUNT: it is counted already. */
static void observe_layer(struct walk *w, const struct phase *phase,
                          const struct layer_bytes *layer, enum item output)
{
    bool bare = output == ITEM_COUNT;
    const uint64_t *live = bare ? layer->bare_live : layer->live;
    uint64_t total = add_sat(sum_now(w), bare ? layer->bare : layer->peak);
    for (int slot = 0; w->maxima && slot < SLOT_OUTPUT; slot++)
        if (layer->max[slot] > 0)
            raise_alone(w, layer_slot_items[slot], layer->max[slot]);
    if (!bare && w->maxima)
        raise_alone(w, output, layer->max[SLOT_OUTPUT]);
    if (!is_peak(w, phase, total))
        return;
    for (int slot = 0; slot < SLOT_COUNT; slot++) {
        enum item item = slot == SLOT_OUTPUT ? output : layer_slot_items[slot];
        if (item != ITEM_COUNT)
            w->ret->item[item] = add_sat(w->ret->item[item], live[slot]);
    }
}

static const struct layer_bytes *layer_measured(struct walk *w, int layer, enum step_mode mode)
{
    const struct measured_layers *m = w->request->measured;
    int kind = kind_of_layer(w->p, w->stage->first + layer);
    measured_bytes(w->p, kind, m->rows[layer], m->chunks[layer], mode, &w->measured);
    return &w->measured;
}

static inline const struct layer_bytes *layer_bytes(struct walk *w, int layer, enum step_mode mode)
{
    if (w->request->measured)
        return layer_measured(w, layer, mode);
    int kind = kind_of_layer(w->p, w->stage->first + layer);
    return shared_bytes(w->p, w->body, w->request->rows, kind, mode);
}

static bool is_recomputed(const struct walk *w, int layer)
{
    return layer < w->flight.recomputed;
}

static enum step_mode forward_mode(const struct walk *w, int layer)
{
    return is_recomputed(w, layer) ? MODE_FORWARD : MODE_FORWARD_SAVED;
}

/* Units in the order of use: embedding, layers, MTP layers, head, layers backwards. */

static const struct unit_shared *layer_unit_of(const struct walk *w, int layer)
{
    return &w->units->layer[w->p->classes.of[w->stage->first + layer]];
}

static bool has_tied_copy(const struct walk *w)
{
    return w->in->model->tied && w->stage->has_head;
}

static uint64_t predicted_gathered(const struct walk *w)
{
    return add_sat(w->units->prediction.gathered, w->units->embedding.gathered);
}

static uint64_t head_gathered(const struct walk *w)
{
    uint64_t tied = has_tied_copy(w) ? w->units->embedding.gathered : 0;
    return head_circulates(w->in) ? 0 : add_sat(w->units->head.gathered, tied);
}

static uint64_t use_bytes(const struct walk *w, int use)
{
    const struct stage *s = w->stage;
    if (s->has_embedding && use-- == 0)
        return w->units->embedding.gathered;
    if (use < s->layers)
        return layer_unit_of(w, use)->gathered;
    use -= s->layers;
    if (w->predicts && use-- == 0)
        return predicted_gathered(w);
    if (s->has_head && use-- == 0)
        return head_gathered(w);
    return layer_unit_of(w, s->layers - 1 - use)->gathered;
}

static int use_of_layer(const struct walk *w, int layer)
{
    return w->stage->has_embedding + layer;
}

static int use_of_backward(const struct walk *w, int layer)
{
    return w->head_use + w->stage->has_head + w->stage->layers - 1 - layer;
}

/* While a use is current its own gather and those of the next `prefetch_units` are alive, as far as
 * the pass goes. */
static uint64_t window(const struct walk *w, int use)
{
    const struct stage *s = w->stage;
    int end = w->last_use[use >= s->has_embedding + s->layers];
    int last = use + w->in->choices->primitives.prefetch_units;
    uint64_t bytes = 0;
    if (s->run < s->layers)
        end = pass_end(&w->in->choices->layout, s->layers, s->has_embedding,
                       s->has_head + w->predicts, use);
    if (w->alone && end > w->head_use + s->has_head)
        end = w->head_use + s->has_head;
    for (int i = use; i < end && i <= last; i++)
        bytes = add_sat(bytes, use_bytes(w, i));
    return bytes;
}

/* What stays of a window when its current use has ended. */
static uint64_t prefetched(const struct walk *w, uint64_t own)
{
    uint64_t bytes = w->now[ITEM_GATHERED_WEIGHTS];
    return bytes > own ? bytes - own : 0;
}

static struct unit_gradient head_gradient(const struct walk *w)
{
    struct unit_gradient g = w->units->head.gradient;
    bool tied = has_tied_copy(w);
    if (head_circulates(w->in))
        return (struct unit_gradient){ 0 };
    g.expert = tied ? w->units->embedding.gradient.dense : 0; /* the second part */
    g.expert_receive = tied ? w->units->embedding.gradient.dense_receive : 0;
    return g;
}

/* What layers save for backward. */

static uint64_t saved_by_class(struct predictor *p, struct body *body, int rows,
                               const uint16_t *counts, enum step_mode mode)
{
    uint64_t bytes = 0;
    for (int c = 0; c < p->classes.count; c++)
        if (counts[c])
            bytes = add_sat(bytes, mul_sat(counts[c], shared_bytes(p, body, rows, c, mode)->kept));
    return bytes;
}

uint64_t layers_saved(struct predictor *p, struct body *body, int rows,
                      const struct saving_layers *layers)
{
    uint64_t kept = saved_by_class(p, body, rows, layers->kept, MODE_FORWARD_SAVED);
    if (!p->in.choices->primitives.keep_attention)
        return kept;
    return add_sat(kept, saved_by_class(p, body, rows, layers->again, MODE_FORWARD));
}

/* Of layers [from, end) of the stage, whose counts by class are `layers`. */
static uint64_t saved_bytes(struct walk *w, int from, int end, const struct saving_layers *layers)
{
    uint64_t total = 0;
    if (!w->request->measured)
        return layers_saved(w->p, w->body, w->request->rows, layers);
    for (int i = from; i < end; i++)
        total = add_sat(total, layer_bytes(w, i, forward_mode(w, i))->kept);
    return total;
}

static int run_end(const struct walk *w, int run)
{
    int end = (run + 1) * w->stage->run;
    return end < w->stage->layers ? end : w->stage->layers;
}

static uint64_t run_saved(struct walk *w, int run)
{
    return saved_bytes(w, run * w->stage->run, run_end(w, run), &w->stage->in_run[run]);
}

static uint64_t saved_before(struct walk *w, const struct spot *spot)
{
    if (!w->saves)
        return 0;
    return saved_bytes(w, spot->layer - spot->layer % w->stage->run, spot->layer, &spot->before);
}

/* What each run of layers keeps while others are at work. */
static void passes_init(struct walk *w)
{
    struct run_bytes of[MODEL_MAX_LAYERS];
    int runs = run_count(w->stage->run, w->stage->layers);
    bool any = w->flight.micro_batches > 1 || runs > 1;
    for (int i = 0; i < runs; i++) {
        int from = i * w->stage->run;
        of[i].saved = any && w->saves ? run_saved(w, i) : 0;
        of[i].extras = any ? extras_bytes(w->in, &w->flight, from, run_end(w, i) - from) : 0;
    }
    beside_init(w->in, w->stage->index, &w->flight, of, 0, w->p->passes);
    beside_most(w->in, w->stage->index, &w->flight, of, w->p->passes);
}

static void set_inputs(struct walk *w, uint64_t micro_batches)
{
    uint64_t bytes = mul_sat(micro_batches, w->flight.inputs);
    if (bytes == w->now[ITEM_INPUTS])
        return;
    w->now[ITEM_INPUTS] = bytes;
    settle(w);
}

/* The fullest pass of the layer's run begins, if it has not. */
static void enter_run(struct walk *w, int layer, enum way way)
{
    const struct beside *b = &w->p->passes[layer / w->stage->run][way];
    if (w->beside == b)
        return;
    w->beside = b;
    w->order = b->order;
    w->flight.other_layers = mul_sat(b->runs, (uint64_t)w->stage->run);
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

/* The inputs of a layer's run up to its own, or without it. */
static void set_checkpoints(struct walk *w, int layer, bool own)
{
    int place = layer % w->stage->run, count = place + (own ? 1 : 0);
    w->now[ITEM_CHECKPOINTS] = checkpoint_bytes(w->in, &w->flight, count, layer - place, count);
}

/* Whose a layer's output is. What goes to another stage is in a transfer; between runs, and where
 * checkpoints leave the device, the next one takes the place of one that left. */
static enum item output_item(const struct walk *w, int layer)
{
    const struct stage *s = w->stage;
    int place = layer % s->run;
    if (layer == s->layers - 1)
        return s->has_head ? ITEM_LOSS_WORKING : ITEM_COUNT;
    bool elsewhere = place == s->run - 1 || checkpoints_are_full(&w->flight, place + 1);
    return elsewhere ? ITEM_COUNT : ITEM_CHECKPOINTS;
}

static void forward(struct walk *w)
{
    const struct stage *s = w->stage;
    struct phase phase = { PHASE_FORWARD, s->index, 0, -1 };
    enter_run(w, 0, WAY_FORWARD);
    if (s->has_embedding) {
        phase.micro_batch = w->beside->micro_batch;
        w->now[ITEM_GATHERED_WEIGHTS] = window(w, 0);
        w->now[ITEM_CHECKPOINTS] = checkpoint_bytes(w->in, &w->flight, 1, 0, 0);
        set_saved(w);
        observe(w, &phase);
    }
    for (int i = 0; i < s->count; i++) {
        int layer = s->spots[i].layer;
        enter_run(w, layer, WAY_FORWARD);
        w->saved_before = saved_before(w, &s->spots[i]);
        w->now[ITEM_GATHERED_WEIGHTS] = window(w, use_of_layer(w, layer));
        phase.layer = s->first + layer;
        phase.micro_batch = w->beside->micro_batch;
        set_checkpoints(w, layer, true);
        set_saved(w);
        observe_layer(w, &phase, layer_bytes(w, layer, forward_mode(w, layer)),
                      output_item(w, layer));
    }
    w->saved_before = run_saved(w, run_count(s->run, s->layers) - 1);
    set_saved(w);
}

static uint64_t open_bytes(const struct unit_gradient *g)
{
    return add_sat(g->dense, g->expert);
}

static void open_gradient(struct walk *w, const struct unit_gradient *g)
{
    w->now[ITEM_GATHERED_GRADIENTS] = add_sat(w->pending, open_bytes(g));
}

/* Two streams: buffers of a unit that stay until the next unit's backward has ended. */
static uint64_t pending_of(const struct walk *w, const struct unit_gradient *g)
{
    if (w->in->choices->primitives.comm_streams <= 1)
        return 0;
    return add_sat(add_sat(open_bytes(g), g->dense_receive), g->expert_receive);
}

/* The reduce-scatter of one unit's gradients. On one stream part by part, dense first, each into a
 * receive buffer that is released with it, before the next unit begins. On two streams all buffers
 * stay until the next unit's backward has ended. */
static void reduce_unit(struct walk *w, const struct phase *phase, const struct unit_gradient *g)
{
    uint64_t both = open_bytes(g), first = add_sat(both, g->dense_receive);
    uint64_t second = add_sat(g->expert, g->expert_receive);
    if (both == 0 && w->pending == 0)
        return;
    w->pending = pending_of(w, g);
    w->now[ITEM_GATHERED_GRADIENTS] = w->in->choices->primitives.comm_streams > 1 ? w->pending
                                      : first > second                            ? first
                                                                                  : second;
    observe(w, phase);
    w->now[ITEM_GATHERED_GRADIENTS] = w->pending;
}

static const struct layer_bytes *predicted_bytes(struct walk *w, enum step_mode mode)
{
    int kind = kind_of_prediction(w->p);
    if (!w->request->measured)
        return shared_bytes(w->p, w->body, w->request->rows, kind, mode);
    measured_bytes(w->p, kind, w->request->measured->fullest, NULL, mode, &w->measured);
    return &w->measured;
}

/* One moment of the MTP layers, on top of the stage's checkpoints and saved tensors. */
static void observe_predicted(struct walk *w, const struct predicted_moment *m)
{
    struct phase phase = { m->kind, w->stage->index, w->beside->micro_batch,
                           w->in->model->layers + m->layer };
    w->now[ITEM_LAYER_WORKING] = m->working;
    w->now[ITEM_LOSS_WORKING] = m->loss_working;
    w->now[ITEM_LOGITS] = m->logits;
    w->now[ITEM_GATHERED_GRADIENTS] = m->gradients;
    settle(w);
    if (m->mode < 0)
        observe(w, &phase);
    else
        observe_layer(w, &phase, predicted_bytes(w, (enum step_mode)m->mode),
                      m->kind == PHASE_FORWARD ? ITEM_LOSS_WORKING : ITEM_COUNT);
}

/* Trained MTP layers forward, and their losses and backwards from the last. */
static void predictions(struct walk *w)
{
    const struct predicted_gradients g = { head_gradient(w), w->units->prediction.gradient,
                                           w->units->embedding.gradient };
    struct predicted all;
    predicted_init(w->in, &shared_loss(w->p)->bytes, &g, &all);
    enum step_mode mode = all.saves ? MODE_FORWARD_SAVED : MODE_FORWARD;
    uint64_t kept = predicted_bytes(w, mode)->kept;
    uint64_t inputs, head = window(w, w->head_use), saved = w->now[ITEM_LAYER_SAVED];
    const uint64_t gathered[] = { window(w, w->head_use - 1), add_sat(head, predicted_gathered(w)),
                                  head };
    set_checkpoints(w, w->stage->layers - 1, true);
    inputs = w->now[ITEM_CHECKPOINTS];
    for (int i = 0; i < all.count; i++) {
        const struct predicted_moment *m = &all.moments[i];
        w->now[ITEM_CHECKPOINTS] = add_sat(inputs, m->checkpoints);
        w->now[ITEM_LAYER_SAVED] = add_sat(saved, mul_sat(kept, (uint64_t)m->saved));
        w->now[ITEM_GATHERED_WEIGHTS] = gathered[m->gather];
        observe_predicted(w, m);
    }
    w->now[ITEM_CHECKPOINTS] = inputs;
    w->now[ITEM_LAYER_SAVED] = saved;
    w->now[ITEM_LAYER_WORKING] = w->flight.checkpoint; /* the gradient of the trunk's output */
    w->pending = all.pending;
}

/* Head and loss: normed hidden states; then the tiles or whole logits; then the gradient stream. */
static void loss(struct walk *w)
{
    const struct stage *s = w->stage;
    const struct loss_bytes *l = &shared_loss(w->p)->bytes;
    struct phase phase = { PHASE_LOSS, s->index, w->beside->micro_batch, -1 };
    struct unit_gradient g = head_gradient(w);
    w->now[ITEM_GATHERED_WEIGHTS] = window(w, w->head_use);
    set_checkpoints(w, s->layers - 1, true);
    open_gradient(w, &g);
    w->now[ITEM_LOGITS] = l->logits;
    w->now[ITEM_LOSS_WORKING] = l->tiles > l->normed ? l->tiles : l->normed;
    settle(w);
    observe(w, &phase);
    w->now[ITEM_LOGITS] = 0;
    w->now[ITEM_LOSS_WORKING] = l->stream;
    w->now[ITEM_LAYER_WORKING] = w->flight.checkpoint; /* dx */
    settle(w);
    observe(w, &phase);
    w->now[ITEM_LOSS_WORKING] = 0;
    settle(w);
    w->now[ITEM_GATHERED_WEIGHTS] = prefetched(w, head_gathered(w));
    reduce_unit(w, &phase, &g);
}

/* A layer of which the unit above has left its buffers under way, unless a pass begins here. */
static void backward_layer(struct walk *w, const struct spot *spot)
{
    const struct stage *s = w->stage;
    int layer = spot->layer;
    const struct unit_shared *unit = layer_unit_of(w, layer);
    enter_run(w, layer, WAY_BACKWARD);
    struct phase phase = { PHASE_BACKWARD, s->index, w->beside->micro_batch, s->first + layer };
    if (layer < s->layers - 1)
        w->pending =
            (layer + 1) % s->run == 0 ? 0 : pending_of(w, &layer_unit_of(w, layer + 1)->gradient);
    w->now[ITEM_GATHERED_WEIGHTS] = window(w, use_of_backward(w, layer));
    open_gradient(w, &unit->gradient);
    set_checkpoints(w, layer, true);
    w->saved_before = saved_before(w, spot);
    set_saved(w);
    if (!is_recomputed(w, layer)) {
        observe_layer(w, &phase, layer_bytes(w, layer, MODE_BACKWARD_SAVED), ITEM_COUNT);
    } else {
        observe_layer(w, &phase, layer_bytes(w, layer, MODE_RECOMPUTE), ITEM_COUNT);
        observe_layer(w, &phase, layer_bytes(w, layer, MODE_BACKWARD), ITEM_COUNT);
    }
    set_checkpoints(w, layer, false);
    w->now[ITEM_GATHERED_WEIGHTS] = prefetched(w, unit->gathered);
    reduce_unit(w, &phase, &unit->gradient);
}

static void backward(struct walk *w)
{
    const struct stage *s = w->stage;
    w->now[ITEM_LAYER_WORKING] = w->flight.checkpoint;
    for (int i = s->count - 1; i >= 0; i--)
        backward_layer(w, &s->spots[i]);
    if (!s->has_embedding)
        return;
    struct phase phase = { PHASE_BACKWARD, s->index, w->beside->micro_batch, -1 };
    open_gradient(w, &w->units->embedding.gradient);
    w->now[ITEM_GATHERED_WEIGHTS] = 0;
    observe(w, &phase);
    w->now[ITEM_LAYER_WORKING] = 0;
    reduce_unit(w, &phase, &w->units->embedding.gradient);
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

/* zero1: at the end of the step every part is reduce-scattered into a receive buffer of 1/shards,
 * one part at a time. */
static uint64_t receive_bytes(const struct walk *w)
{
    uint64_t largest = 0;
    for (int c = 0; c < w->p->classes.count; c++)
        if (w->stage->classes[c])
            raise_to(&largest, w->units->layer[c].receive);
    if (w->stage->has_embedding || has_tied_copy(w) || w->predicts)
        raise_to(&largest, w->units->embedding.receive);
    if (w->stage->has_head)
        raise_to(&largest, w->units->head.receive);
    raise_to(&largest, stage_extra(w->units, w->stage)->receive);
    return largest;
}

/* Reduction, then the optimizer: Muon's matrices one at a time; all else is updated in place. */
static void reduce_and_update(struct walk *w)
{
    struct phase phase = { PHASE_REDUCE, w->stage->index, 0, -1 };
    struct muon_bytes muon = stage_muon_bytes(w->p, w->units, w->stage);
    clear_micro_batch(w);
    settle(w);
    w->now[ITEM_GATHERED_GRADIENTS] = receive_bytes(w);
    observe(w, &phase);
    phase.kind = PHASE_OPTIMIZER;
    w->now[ITEM_GATHERED_GRADIENTS] = muon.gathered;
    w->now[ITEM_WORKSPACE] = add_sat(w->now[ITEM_WORKSPACE], muon.workspace);
    settle(w);
    observe(w, &phase);
}

static const struct stage *stage_of(const struct walk_request *request)
{
    bool layers = request->sink != NULL || request->measured != NULL;
    const struct pipeline *pipeline =
        shared_pipeline(request->predictor, layers ? DETAIL_LAYERS : request->detail);
    for (int i = 0; i < pipeline->count; i++)
        if (pipeline->stages[i].index == request->stage)
            return &pipeline->stages[i];
    return &pipeline->stages[0];
}

/* What is known of a pass before it begins. */
static void uses_init(struct walk *w)
{
    const struct stage *s = w->stage;
    const struct primitives *p = &w->in->choices->primitives;
    int turn = s->has_embedding + s->layers, heads;
    w->predicts = s->has_head && model_predicts(w->in->model) && !w->alone;
    w->saves = w->flight.recomputed < s->layers || p->keep_attention;
    w->head_use = turn + w->predicts;
    heads = s->has_head + w->predicts;
    w->last_use[1] = turn + heads + s->layers;
    w->last_use[0] = heads > 0 ? w->last_use[1] : turn;
}

static void walk_init(struct walk *w, const struct walk_request *request, struct walk_result *ret,
                      bool alone)
{
    struct predictor *p = request->predictor;
    memset(w, 0, offsetof(struct walk, measured));
    memset(ret, 0, sizeof *ret);
    w->p = p;
    w->in = &p->in;
    w->request = request;
    w->ret = ret;
    w->alone = alone;
    w->body = shared_body(p, request->group);
    w->units = shared_units(p);
    w->stage = stage_of(request);
    w->flight.checkpoint = w->body->checkpoint;
    w->flight.inputs = w->body->inputs;
    in_flight_counts(w->in, w->stage->index, w->stage->layers, &w->flight);
    uses_init(w);
    w->host_state = stage_items(p, w->stage, w->units, w->now);
    w->now[ITEM_COMMUNICATORS] = shared_links(p);
    w->now[ITEM_PIPELINE_BUFFERS] = pipeline_bytes(w->in, w->stage->index);
    w->order = w->peak_order = INT_MIN;
    w->maxima = !request->peak_only;
}

uint64_t walk_doubt_bytes(const struct walk_result *result)
{
    uint64_t moving = 0;
    for (int i = 0; i < ITEM_COUNT; i++)
        if (item_infos[i].category == CATEGORY_DYNAMIC || item_infos[i].category == CATEGORY_LOGITS)
            moving = add_sat(moving, result->item[i]);
    return runtime_doubt_bytes(moving);
}

/* Phases of the last micro-batch of the warm-up (forward) and the first to return (backward): the
 * stage holds the most then. Interleaved, of that pass of each run during which the others in
 * flight hold the most. */
void walk_stage(const struct walk_request *request, struct walk_result *ret)
{
    struct walk w;
    walk_init(&w, request, ret, false);
    struct phase start = { PHASE_START, w.stage->index, 0, -1 };
    fix(&w);
    observe(&w, &start);
    passes_init(&w);
    raise_to(&ret->max[ITEM_INPUTS], mul_sat((uint64_t)w.flight.micro_batches, w.flight.inputs));
    forward(&w);
    if (w.predicts)
        predictions(&w);
    if (w.stage->has_head)
        loss(&w);
    backward(&w);
    reduce_and_update(&w);
    ret->host_bytes = add_sat(w.flight.offloaded_bytes, w.host_state);
}

/* A forward without a backward. */

static void alone_layers(struct walk *w)
{
    const struct stage *s = w->stage;
    struct phase phase = { PHASE_FORWARD, s->index, 0, -1 };
    for (int layer = 0; layer < s->layers; layer++) {
        int place = layer % s->run, from = s->first + layer - place;
        uint64_t extras = passing_extras_bytes(w->in, from, s->run, place);
        phase.layer = s->first + layer;
        w->now[ITEM_GATHERED_WEIGHTS] = window(w, use_of_layer(w, layer));
        w->now[ITEM_CHECKPOINTS] = add_sat(w->flight.checkpoint, extras);
        bool leaves = place == s->run - 1 || layer == s->layers - 1;
        enum item output = layer == s->layers - 1 && s->has_head ? ITEM_LOSS_WORKING
                           : leaves                              ? ITEM_COUNT
                                                                 : ITEM_CHECKPOINTS;
        observe_layer(w, &phase, layer_bytes(w, layer, MODE_FORWARD), output);
    }
}

static void alone_head(struct walk *w)
{
    struct phase phase = { PHASE_LOSS, w->stage->index, 0, -1 };
    struct loss_bytes loss;
    logprob_bytes(w->in, &loss);
    w->now[ITEM_GATHERED_WEIGHTS] = window(w, w->head_use);
    w->now[ITEM_CHECKPOINTS] = 0;
    w->now[ITEM_LOSS_WORKING] = loss.normed;
    settle(w);
    observe(w, &phase);
    w->now[ITEM_LOGITS] = loss.logits;
    w->now[ITEM_LOSS_WORKING] = loss.tiles;
    settle(w);
    observe(w, &phase);
}

void walk_forward_alone(const struct walk_request *request, struct walk_result *ret)
{
    struct predictor *p = request->predictor;
    const struct choices *whole = p->in.choices;
    const struct measured_rank *measured = p->in.measured;
    struct choices choices = *whole;
    struct walk w;
    choices.primitives.keep_attention = 0; /* no backward will want it */
    predictor_choose(p, &choices, measured);
    walk_init(&w, request, ret, true);
    uint64_t weights = stage_largest_weights(w.p, w.units, w.stage);
    w.now[ITEM_INPUTS] = w.flight.inputs;
    w.now[ITEM_REFERENCE_WEIGHTS] =
        add_sat(w.now[ITEM_REFERENCE_WEIGHTS], reference_slots_bytes(w.in, weights));
    fix(&w);
    w.now[ITEM_CHECKPOINTS] = w.flight.checkpoint;
    if (w.stage->has_embedding) {
        struct phase phase = { PHASE_FORWARD, w.stage->index, 0, -1 };
        w.now[ITEM_GATHERED_WEIGHTS] = window(&w, 0);
        observe(&w, &phase);
    }
    alone_layers(&w);
    if (w.stage->has_head)
        alone_head(&w);
    predictor_choose(p, whole, measured);
}
