/* peak.c - the phases of timeline.c at the spots of a stage only, as totals. */
#include "planner/estimate/shared.h"

#include "base/checked.h"

#include <string.h>

/* now: alive throughout the current phase, beside what the layer's own table says. */
struct climb {
    const struct stage_parts *p;
    int rows;
    uint64_t idle, steady; /* fixed, transfers; inputs too */
    uint64_t checkpoints, saved, gathered, gradients, pending;
    struct in_flight flight;     /* beside the current pass */
    const struct beside *beside; /* it */
    struct beside passes[RUNS_MAX][WAYS];
    struct stage_peak best;
};

static void look(struct climb *c, uint64_t others, uint64_t workspace)
{
    uint64_t total = add_sat(add_sat(c->steady, others), add_sat(c->checkpoints, c->saved));
    total = add_sat(total, add_sat(c->gathered, c->gradients));
    if (total <= c->best.bytes)
        return;
    c->best.bytes = total;
    c->best.moving = total - c->p->fixed - workspace;
}

static void look_at_layer(struct climb *c, uint64_t others, const struct kind_peak *kind,
                          bool output_elsewhere)
{
    if (output_elsewhere)
        look(c, add_sat(others, kind->bare), kind->bare_workspace);
    else
        look(c, add_sat(others, kind->peak), kind->workspace);
}

static const struct unit_shared *layer_of(const struct stage_parts *p, int layer)
{
    return &p->units->layer[p->e->classes.of[p->stage->first + layer]];
}

static bool has_tied_copy(const struct stage_parts *p)
{
    return p->e->in.model->tied && p->stage->has_head;
}

static int predicts(const struct stage_parts *p)
{
    return p->stage->has_head && model_predicts(p->e->in.model);
}

/* Of prediction layers, with the embedding that they look up in. */
static uint64_t predicted_gathered(const struct stage_parts *p)
{
    return add_sat(p->units->prediction.gathered, p->units->embedding.gathered);
}

/* Gathered bytes of the use-th use of a unit: embedding, layers, prediction layers, head, layers
 * backwards. */
static uint64_t use_bytes(const struct stage_parts *p, int use)
{
    const struct stage_spots *s = p->stage;
    if (s->has_embedding && use-- == 0)
        return p->units->embedding.gathered;
    if (use < s->layers)
        return layer_of(p, use)->gathered;
    use -= s->layers;
    if (predicts(p) && use-- == 0)
        return predicted_gathered(p);
    if (s->has_head && use-- == 0) {
        uint64_t tied = has_tied_copy(p) ? p->units->embedding.gathered : 0;
        return head_circulates(&p->e->in) ? 0 : add_sat(p->units->head.gathered, tied);
    }
    return layer_of(p, s->layers - 1 - use)->gathered;
}

/* While a use is current its own gather and those of the next ones are alive. Without a head the
 * forward ends before a backward begins. */
static uint64_t window(const struct stage_parts *p, int use)
{
    const struct stage_spots *s = p->stage;
    int end = pass_end(&p->e->in.choices->layout, s->layers, s->has_embedding,
                       s->has_head + predicts(p), use);
    int last = use + p->e->in.choices->primitives.prefetch_units;
    uint64_t bytes = 0;
    for (int i = use; i < end && i <= last; i++)
        bytes = add_sat(bytes, use_bytes(p, i));
    return bytes;
}

static void set_checkpoints(struct climb *c, int layer, bool own)
{
    int place = layer % c->p->stage->run, count = place + (own ? 1 : 0);
    c->checkpoints = checkpoint_bytes(&c->p->e->in, &c->flight, count, layer - place, count);
}

/* Bytes that these layers, counted by class, save in one mode. */
static uint64_t kept_bytes(const struct climb *c, const uint16_t *counts, enum residency_mode mode)
{
    const struct estimator *e = c->p->e;
    uint64_t bytes = 0;
    for (int i = 0; i < e->classes.count; i++)
        if (counts[i])
            bytes = add_sat(
                bytes,
                mul_sat(
                    counts[i],
                    shared_kind(c->p->e, c->p->body, c->rows, e->classes.layer[i], mode)->kept));
    return bytes;
}

/* Bytes that these layers save, mode: of those that are not recomputed. */
static uint64_t saved_by(const struct climb *c, const struct saving_layers *layers,
                         enum residency_mode mode)
{
    uint64_t kept = kept_bytes(c, layers->kept, mode);
    if (!c->p->e->in.choices->primitives.keep_attention)
        return kept;
    return add_sat(kept, kept_bytes(c, layers->again, RESIDENCY_FORWARD));
}

static const struct kind_peak *kind_at(const struct climb *c, int layer, enum residency_mode mode)
{
    return shared_kind(c->p->e, c->p->body, c->rows, c->p->stage->first + layer, mode);
}

static uint64_t extras_of_run(const struct climb *c, int run)
{
    const struct stage_spots *s = c->p->stage;
    int from = run * s->run, left = s->layers - from;
    return extras_bytes(&c->p->e->in, &c->p->flight, from, left < s->run ? left : s->run);
}

static bool is_async(const struct climb *c)
{
    return c->p->e->in.choices->primitives.comm_streams > 1;
}

static uint64_t open_bytes(const struct unit_gradient *g)
{
    return add_sat(g->dense, g->expert);
}

/* Two streams: buffers of a unit that stay until the next unit's backward has ended. */
static uint64_t pending_of(const struct climb *c, const struct unit_gradient *g)
{
    if (!is_async(c))
        return 0;
    return add_sat(add_sat(open_bytes(g), g->dense_receive), g->expert_receive);
}

static void reduce(struct climb *c, const struct unit_gradient *g, uint64_t others)
{
    uint64_t both = open_bytes(g), first = add_sat(both, g->dense_receive);
    uint64_t second = add_sat(g->expert, g->expert_receive);
    if (both == 0 && c->pending == 0)
        return;
    c->pending = pending_of(c, g);
    c->gradients = is_async(c) ? c->pending : first > second ? first : second;
    look(c, others, 0);
    c->gradients = c->pending;
}

/* What each run keeps while others are at work, and what is beside the fullest pass of each run
 * from `from` on. Without extras: of inputs and what layers save alone. */
static void passes_init(struct climb *c, int from, bool extras)
{
    const struct in_flight *f = &c->p->flight;
    const struct stage_spots *s = c->p->stage;
    struct run_bytes of[RUNS_MAX];
    int runs = run_count(s->run, s->layers);
    bool any = s->recomputed < s->layers || c->p->e->in.choices->primitives.keep_attention;
    bool saves = any && (f->micro_batches > 1 || runs > 1);
    for (int i = 0; i < runs; i++) {
        of[i].saved = saves ? saved_by(c, &s->in_run[i], RESIDENCY_FORWARD_SAVED) : 0;
        of[i].extras = extras ? extras_of_run(c, i) : 0;
    }
    beside_init(&c->p->e->in, s->index, f, of, from, c->passes);
}

static void enter_run(struct climb *c, int run, enum way way)
{
    const struct beside *b = &c->passes[run][way];
    c->beside = b;
    c->flight.other_layers = mul_sat(b->runs, (uint64_t)c->p->stage->run);
    c->flight.other_extras = b->extras;
    c->steady = add_sat(c->idle, mul_sat(b->micro_batches, c->flight.inputs));
}

/* The run of the layer, if it has not begun. */
static void enter_layer(struct climb *c, int layer, enum way way)
{
    int run = layer / c->p->stage->run;
    if (c->beside != &c->passes[run][way])
        enter_run(c, run, way);
}

static void climb_init(struct climb *c, const struct stage_parts *parts, int rows)
{
    c->p = parts;
    c->rows = rows;
    c->idle = c->steady = add_sat(parts->fixed, parts->pipeline);
    c->checkpoints = c->saved = c->gathered = c->gradients = c->pending = 0;
    c->flight = parts->flight;
    c->best = (struct stage_peak){ 0, 0 };
    c->beside = NULL;
}

/* While the last run is at work: inputs of it and of all others, those of micro-batches, and what
 * layers saved. */
static uint64_t held_at_last(struct climb *c, enum way way, uint64_t own)
{
    const struct stage_spots *s = c->p->stage;
    const struct in_flight *f = &c->flight;
    enter_run(c, (s->layers - 1) / s->run, way);
    int own_layers = (s->layers - 1) % s->run + 1;
    uint64_t layers = add_sat(f->other_layers, (uint64_t)own_layers);
    uint64_t inputs = mul_sat(layers, f->checkpoint);
    inputs = inputs < f->device_limit ? inputs : f->device_limit;
    inputs = add_sat(inputs, mul_sat(c->beside->micro_batches, f->inputs));
    return add_sat(inputs, add_sat(c->beside->saved, own));
}

void stage_held_find(const struct stage_parts *parts, int rows, struct stage_held *ret)
{
    struct climb c;
    const struct stage_spots *s = parts->stage;
    int run = run_count(s->run, s->layers) - 1;
    struct saving_layers layers = s->in_run[run];
    uint16_t *last = s->recomputed < s->layers ? layers.kept : layers.again;
    climb_init(&c, parts, rows);
    passes_init(&c, run, false);
    ret->loss = held_at_last(&c, WAY_FORWARD, saved_by(&c, &layers, RESIDENCY_FORWARD_SAVED));
    last[parts->e->classes.of[s->first + s->layers - 1]]--;
    uint64_t own = saved_by(&c, &layers, RESIDENCY_FORWARD_SAVED);
    ret->forward = held_at_last(&c, WAY_FORWARD, own);
    ret->backward = held_at_last(&c, WAY_BACKWARD, own);
}

/* In a transfer, or in the place of a checkpoint that left the device. */
static bool output_is_elsewhere(const struct stage_spots *s, const struct in_flight *f, int layer)
{
    int place = layer % s->run;
    if (layer == s->layers - 1)
        return !s->has_head;
    return place == s->run - 1 || checkpoints_are_full(f, place + 1);
}

static void forward(struct climb *c)
{
    const struct stage_spots *s = c->p->stage;
    if (s->has_embedding) {
        enter_run(c, 0, WAY_FORWARD);
        c->saved = c->beside->saved;
        c->gathered = window(c->p, 0);
        c->checkpoints = checkpoint_bytes(&c->p->e->in, &c->flight, 1, 0, 0);
        look(c, 0, 0);
    }
    for (int i = 0; i < s->count; i++) {
        const struct spot *spot = &s->spots[i];
        bool saves = spot->layer >= s->recomputed;
        enter_layer(c, spot->layer, WAY_FORWARD);
        c->gathered = window(c->p, spot->layer + s->has_embedding);
        set_checkpoints(c, spot->layer, true);
        c->saved = add_sat(c->beside->saved, saved_by(c, &spot->before, RESIDENCY_FORWARD_SAVED));
        look_at_layer(c, 0,
                      kind_at(c, spot->layer, saves ? RESIDENCY_FORWARD_SAVED : RESIDENCY_FORWARD),
                      output_is_elsewhere(s, &c->flight, spot->layer));
    }
    c->saved = add_sat(c->beside->saved, saved_by(c, &s->in_run[run_count(s->run, s->layers) - 1],
                                                  RESIDENCY_FORWARD_SAVED));
}

static struct unit_gradient head_gradient(const struct stage_parts *p)
{
    struct unit_gradient g = p->units->head.gradient;
    bool tied = has_tied_copy(p);
    if (head_circulates(&p->e->in))
        return (struct unit_gradient){ 0 };
    g.expert = tied ? p->units->embedding.gradient.dense : 0;
    g.expert_receive = tied ? p->units->embedding.gradient.dense_receive : 0;
    return g;
}

/* Trained prediction layers: the moments of predicted.c on top of what the stage holds. */
static void predictions(struct climb *c)
{
    const struct stage_parts *p = c->p;
    const struct stage_spots *s = p->stage;
    const struct predicted_gradients g = { head_gradient(p), p->units->prediction.gradient,
                                           p->units->embedding.gradient };
    int use = s->has_embedding + s->layers;
    uint64_t own = window(p, use), head = window(p, use + 1), saved = c->saved, kept, inputs;
    const uint64_t gathered[] = { own, add_sat(head, predicted_gathered(p)), head };
    struct predicted all;
    predicted_init(&p->e->in, p->loss, &g, &all);
    kept = shared_predicted(p->e, p->body, c->rows,
                            all.saves ? RESIDENCY_FORWARD_SAVED : RESIDENCY_FORWARD)
               ->kept;
    set_checkpoints(c, s->layers - 1, true);
    inputs = c->checkpoints;
    for (int i = 0; i < all.count; i++) {
        const struct predicted_moment *m = &all.moments[i];
        uint64_t others = add_sat(add_sat(m->working, m->loss_working), m->logits);
        c->checkpoints = add_sat(inputs, m->checkpoints);
        c->saved = add_sat(saved, mul_sat(kept, (uint64_t)m->saved));
        c->gathered = gathered[m->gather];
        c->gradients = m->gradients;
        if (m->mode < 0)
            look(c, others, 0);
        else
            look_at_layer(c, others,
                          shared_predicted(p->e, p->body, c->rows, (enum residency_mode)m->mode),
                          m->kind != PHASE_FORWARD);
    }
    c->saved = saved;
    c->pending = all.pending;
}

static void loss(struct climb *c)
{
    const struct stage_parts *p = c->p;
    const struct stage_spots *s = p->stage;
    const struct loss_bytes *l = p->loss;
    int use = s->has_embedding + s->layers + predicts(p);
    struct unit_gradient g = head_gradient(p);
    uint64_t working = l->tiles > l->normed ? l->tiles : l->normed, own = use_bytes(p, use);
    c->gathered = window(p, use);
    c->gradients = add_sat(c->pending, open_bytes(&g));
    set_checkpoints(c, s->layers - 1, true);
    /* the gradient that comes from the join of the first prediction layer */
    working = predicts(p) ? add_sat(working, p->flight.checkpoint) : working;
    look(c, add_sat(l->logits, working), 0);
    look(c, add_sat(l->stream, p->flight.checkpoint), 0);
    c->gathered -= own;
    reduce(c, &g, p->flight.checkpoint);
}

static void backward_at(struct climb *c, const struct spot *spot, uint64_t saved)
{
    const struct stage_parts *p = c->p;
    const struct stage_spots *s = p->stage;
    int layer = spot->layer, back = s->layers - 1 - layer;
    const struct unit_shared *unit = layer_of(p, layer);
    uint64_t dx = p->flight.checkpoint;
    c->gathered = window(p, s->has_embedding + s->layers + s->has_head + predicts(p) + back);
    c->gradients = add_sat(c->pending, open_bytes(&unit->gradient));
    c->saved = saved;
    set_checkpoints(c, layer, true);
    if (layer >= s->recomputed) {
        look_at_layer(c, dx, kind_at(c, layer, RESIDENCY_BACKWARD_SAVED), true);
    } else {
        look_at_layer(c, dx, kind_at(c, layer, RESIDENCY_REPLAY), true);
        look_at_layer(c, dx, kind_at(c, layer, RESIDENCY_BACKWARD), true);
    }
    set_checkpoints(c, layer, false);
    c->gathered -= unit->gathered;
    reduce(c, &unit->gradient, dx);
}

/* Before a spot the unit above it has left its buffers, unless a run ended there. */
static void backward(struct climb *c)
{
    const struct stage_spots *s = c->p->stage;
    for (int i = s->count - 1; i >= 0; i--) {
        const struct spot *spot = &s->spots[i];
        bool first = spot->layer == s->layers - 1; /* of the stage, or of a run */
        enter_layer(c, spot->layer, WAY_BACKWARD);
        if (!first && (spot->layer + 1) % s->run != 0)
            c->pending = pending_of(c, &layer_of(c->p, spot->layer + 1)->gradient);
        else if (!first)
            c->pending = 0;
        backward_at(
            c, spot,
            add_sat(c->beside->saved, saved_by(c, &spot->before, RESIDENCY_BACKWARD_SAVED)));
    }
    if (!s->has_embedding)
        return;
    const struct unit_gradient *g = &c->p->units->embedding.gradient;
    c->gradients = add_sat(c->pending, open_bytes(g));
    c->gathered = 0;
    look(c, c->p->flight.checkpoint, 0);
    reduce(c, g, 0);
}

static void raise_to(uint64_t bytes, uint64_t *largest)
{
    *largest = bytes > *largest ? bytes : *largest;
}

static uint64_t receive_bytes(const struct stage_parts *p)
{
    uint64_t largest = 0;
    for (int i = 0; i < p->e->classes.count; i++)
        if (p->stage->classes[i])
            raise_to(p->units->layer[i].receive, &largest);
    if (p->stage->has_embedding || has_tied_copy(p) || predicts(p))
        raise_to(p->units->embedding.receive, &largest);
    if (p->stage->has_head) {
        raise_to(p->units->head.receive, &largest);
        raise_to(p->units->last_extra.receive, &largest);
    }
    if (p->stage->has_embedding)
        raise_to(p->units->first_extra.receive, &largest);
    return largest;
}

static struct muon_bytes muon_of(const struct stage_parts *p)
{
    struct muon_bytes ret = { 0, 0 };
    for (int i = 0; i < p->e->classes.count; i++) {
        if (!p->stage->classes[i])
            continue;
        raise_to(p->units->muon[i].gathered, &ret.gathered);
        raise_to(p->units->muon[i].workspace, &ret.workspace);
    }
    return ret;
}

/* The end of the step: reduction, then the optimizer. */
static void finish(struct climb *c)
{
    c->steady = c->idle;
    c->checkpoints = c->saved = c->gathered = 0;
    c->gradients = receive_bytes(c->p);
    look(c, 0, 0);
    if (c->p->e->in.choices->primitives.optimizer != OPTIMIZER_MUON)
        return;
    struct muon_bytes muon = muon_of(c->p);
    c->gradients = muon.gathered;
    look(c, muon.workspace, muon.workspace);
}

void stage_peak_find(const struct stage_parts *parts, int rows, struct stage_peak *ret)
{
    struct climb c;
    climb_init(&c, parts, rows);
    passes_init(&c, 0, true);
    look(&c, 0, 0);
    forward(&c);
    if (predicts(parts))
        predictions(&c);
    if (parts->stage->has_head)
        loss(&c);
    backward(&c);
    finish(&c);
    *ret = c.best;
}
