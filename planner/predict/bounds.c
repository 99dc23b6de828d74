/* bounds.c - bounds from below for whole sets of layouts: the same lists folded for what all
 * layouts of the set have in common, and nothing counted that one of them may not have. */
#include "planner/predict/predictor.h"

#include "planner/predict/shared.h"
#include "planner/predict/walk.h"

#include "base/checked.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What a floor counts in addition to state, checkpoints and what layers save: the last layer at
 * work; its unit, and communicators; the loss. */
enum floor_of { FLOOR_OF_HELD, FLOOR_OF_SAVED, FLOOR_OF_BODY, FLOOR_OF_STATE, FLOOR_OF_ALL };

struct floor {
    struct predictor *p;
    struct body *body;
    const struct units *units;
    const struct stage *stage;
    struct in_flight flight;
    int rows;
};

/* Inputs and what layers saved while the last run of layers is at work, of all in flight: forward
 * and backward without what the last layer saves; in the loss. */
struct held {
    uint64_t forward, backward, loss;
};

static uint64_t held_at_last(const struct floor *f, enum way way, uint64_t own)
{
    const struct stage *s = f->stage;
    const struct beside *b = &f->p->passes[(s->layers - 1) / s->run][way];
    uint64_t others = mul_sat(b->runs, (uint64_t)s->run);
    uint64_t layers = add_sat(others, (uint64_t)((s->layers - 1) % s->run + 1));
    uint64_t inputs = mul_sat(layers, f->flight.checkpoint);
    inputs = smaller(inputs, f->flight.device_limit);
    inputs = add_sat(inputs, mul_sat(b->micro_batches, f->flight.inputs));
    return add_sat(inputs, add_sat(b->saved, own));
}

static void passes_init(const struct floor *f)
{
    const struct stage *s = f->stage;
    struct run_bytes of[MODEL_MAX_LAYERS];
    int runs = run_count(s->run, s->layers);
    bool any = f->flight.micro_batches > 1 || runs > 1;
    for (int i = 0; i < runs; i++) {
        of[i].saved = any ? layers_saved(f->p, f->body, f->rows, &s->in_run[i]) : 0;
        of[i].extras = 0;
    }
    beside_init(&f->p->in, s->index, &f->flight, of, runs - 1, f->p->passes);
}

static void held_init(const struct floor *f, struct held *ret)
{
    const struct stage *s = f->stage;
    struct saving_layers layers = s->in_run[run_count(s->run, s->layers) - 1];
    uint16_t *last = s->recomputed < s->layers ? layers.kept : layers.again;
    passes_init(f);
    ret->loss = held_at_last(f, WAY_FORWARD, layers_saved(f->p, f->body, f->rows, &layers));
    last[f->p->classes.of[s->first + s->layers - 1]]--;
    uint64_t own = layers_saved(f->p, f->body, f->rows, &layers);
    ret->forward = held_at_last(f, WAY_FORWARD, own);
    ret->backward = held_at_last(f, WAY_BACKWARD, own);
}

/* A kind of layer in one of two modes, without its output, which may be elsewhere. */
static uint64_t kind_in(const struct floor *f, int kind, enum step_mode one, enum step_mode other)
{
    return smaller(shared_bytes(f->p, f->body, f->rows, kind, one)->bare,
                   shared_bytes(f->p, f->body, f->rows, kind, other)->bare);
}

/* The last layer at work, whichever way it is saved or recomputed, on top of what is held: backward
 * with the gradient stream; with its own unit gathered and its gradients, or forward. */
static uint64_t last_layer_bytes(const struct floor *f, const struct held *held, enum floor_of of)
{
    int kind = kind_of_layer(f->p, f->stage->first + f->stage->layers - 1);
    const struct unit_shared *unit = &f->units->layer[kind];
    uint64_t backward = kind_in(f, kind, MODE_BACKWARD, MODE_BACKWARD_SAVED);
    backward = add_sat(held->backward, add_sat(backward, f->flight.checkpoint));
    if (of == FLOOR_OF_BODY)
        return backward;
    uint64_t forward = kind_in(f, kind, MODE_FORWARD, MODE_FORWARD_SAVED);
    uint64_t gradients = add_sat(unit->gradient.dense, unit->gradient.expert);
    return add_sat(unit->gathered,
                   larger(add_sat(held->forward, forward), add_sat(backward, gradients)));
}

/* Of the last layer backward its mixer alone, which works whatever its experts are. */
static uint64_t last_mixer_bytes(const struct floor *f, const struct held *held)
{
    int kind = kind_of_mixer(f->p, f->stage->first + f->stage->layers - 1);
    uint64_t bytes = kind_in(f, kind, MODE_BACKWARD, MODE_BACKWARD_SAVED);
    return add_sat(held->backward, add_sat(bytes, f->flight.checkpoint));
}

static uint64_t work_bytes(const struct floor *f, enum floor_of of)
{
    struct held held;
    held_init(f, &held);
    if (of == FLOOR_OF_HELD)
        return larger(held.forward, held.backward);
    if (of == FLOOR_OF_SAVED)
        return larger(held.forward, last_mixer_bytes(f, &held));
    uint64_t work = last_layer_bytes(f, &held, of);
    if (!f->stage->has_head || of != FLOOR_OF_ALL)
        return work;
    const struct loss_bytes *loss = &shared_loss(f->p)->bytes;
    uint64_t tiles = add_sat(loss->logits, larger(loss->tiles, loss->normed));
    return larger(work, add_sat(tiles, held.loss));
}

/* State, runtime and transfers; communicators; inputs and what is saved; and in the loss its logits
 * and tiles, or the last layer at work. Each is part of a sum of walk.c. */
static uint64_t stage_floor(struct floor *f, enum floor_of of)
{
    uint64_t items[ITEM_COUNT] = { 0 }, total = 0;
    in_flight_counts(&f->p->in, f->stage->index, f->stage->layers, &f->flight);
    (void)stage_items(f->p, f->stage, f->units, items);
    items[ITEM_COMMUNICATORS] = of >= FLOOR_OF_STATE ? shared_links(f->p) : 0;
    items[ITEM_PIPELINE_BUFFERS] = pipeline_bytes(&f->p->in, f->stage->index);
    for (int i = 0; i < ITEM_COUNT; i++)
        total = add_sat(total, items[i]);
    return add_sat(total, work_bytes(f, of));
}

static uint64_t floor_bytes(struct predictor *p, const struct choices *choices, enum floor_of of,
                            int stages)
{
    predictor_choose(p, choices, NULL);
    const struct pipeline *pipeline = shared_pipeline(p, DETAIL_WORST);
    struct floor f = { .p = p, .body = shared_body(p, -1), .units = shared_units(p) };
    uint64_t most = 0;
    f.rows = p->in.hardware->host ? ROWS_POINT : ROWS_HIGH;
    f.flight.checkpoint = f.body->checkpoint;
    f.flight.inputs = f.body->inputs;
    for (int i = 0; i < pipeline->count && i < stages; i++) {
        f.stage = &pipeline->stages[i];
        most = larger(stage_floor(&f, of), most);
    }
    return most;
}

uint64_t predictor_floor(struct predictor *p, const struct choices *choices)
{
    return floor_bytes(p, choices, FLOOR_OF_ALL, LAYOUT_MAX_STAGES);
}

uint64_t predictor_state_floor(struct predictor *p, const struct choices *choices)
{
    return floor_bytes(p, choices, FLOOR_OF_STATE, LAYOUT_MAX_STAGES);
}

uint64_t predictor_saved_floor(struct predictor *p, const struct choices *choices)
{
    return floor_bytes(p, choices, FLOOR_OF_SAVED, LAYOUT_MAX_STAGES);
}

uint64_t predictor_first_floor(struct predictor *p, const struct choices *choices)
{
    return floor_bytes(p, choices, FLOOR_OF_HELD, 1);
}

uint64_t predictor_body_floor(struct predictor *p, const struct choices *choices)
{
    return floor_bytes(p, choices, FLOOR_OF_BODY, LAYOUT_MAX_STAGES);
}

/* A pass with a share of its exchanges. */
static double seconds_with(const struct pass *pass, double exchange)
{
    return pass_seconds(pass) - (1 - exchange) * pass->item[TIME_EXPOSED_EXCHANGE];
}

/* Without what a gather leaves exposed; of layers that are recomputed, what that adds, or not. */
static double stage_layer_seconds(const struct predictor *p, const struct kind_seconds *kinds,
                                  const struct stage *stage, bool recomputes, double exchange)
{
    double seconds = 0;
    for (int c = 0; c < p->classes.count; c++) {
        int kept = recomputes ? stage->kept[c] : stage->classes[c];
        seconds += kept * seconds_with(&kinds[c].layer[0], exchange);
        if (kept < stage->classes[c])
            seconds += (stage->classes[c] - kept) * seconds_with(&kinds[c].layer[1], exchange);
    }
    return seconds;
}

/* Every layer's forward and backward without its unit's collectives, the loss and the sends between
 * stages, in the fullest stage, for all micro-batches and the bubble; the end of the step. */
static double layer_seconds(struct predictor *p, const struct choices *choices, bool recomputes,
                            double exchange, const struct least_seconds *least, int stages)
{
    const struct layout *l = &choices->layout;
    double v = l->vpp > 1 ? l->vpp : 1, most = 0;
    predictor_choose(p, choices, NULL);
    const struct pipeline *pipeline = shared_pipeline(p, DETAIL_WORST);
    const struct kind_seconds *kinds = shared_seconds(p, shared_body(p, -1));
    double m = micro_batches_of(&p->in);
    m = m > 0 ? m : 1;
    for (int i = 0; i < pipeline->count && i < stages; i++) {
        const struct stage *stage = &pipeline->stages[i];
        double seconds = stage_layer_seconds(p, kinds, stage, recomputes, exchange);
        seconds += stage->has_head ? least->loss : 0;
        most = seconds > most ? seconds : most;
    }
    struct ranks ranks = { l->pp, layout_world(l) / l->pp };
    double bytes = 2.0 * (double)norm_tokens(&p->in) * p->in.model->hidden;
    most += 2 * v * send_seconds(p->in.hardware, ranks, bytes);
    return (m + (l->pp - 1) / v) * most + least->end;
}

double predictor_least_seconds(struct predictor *p, const struct choices *choices)
{
    const struct least_seconds nothing = { 0, 0 };
    return layer_seconds(p, choices, false, 1, &nothing, LAYOUT_MAX_STAGES);
}

double predictor_layer_seconds(struct predictor *p, const struct choices *choices,
                               const struct least_seconds *least)
{
    return layer_seconds(p, choices, true, 1, least, LAYOUT_MAX_STAGES);
}

double predictor_relaxed_seconds(struct predictor *p, const struct choices *choices,
                                 const struct least_seconds *least)
{
    return layer_seconds(p, choices, true, least_exchange_share(p->in.hardware), least,
                         LAYOUT_MAX_STAGES);
}

double predictor_first_seconds(struct predictor *p, const struct choices *choices,
                               const struct least_seconds *least)
{
    return layer_seconds(p, choices, true, least_exchange_share(p->in.hardware), least, 1);
}

double predictor_loss_seconds(struct predictor *p, const struct choices *choices)
{
    predictor_choose(p, choices, NULL);
    return pass_seconds(&shared_loss(p)->pass);
}

/* Muon's matrices are not shared out by their elements: nothing is said of it. */
double predictor_update_seconds(struct predictor *p, const struct choices *choices, bool first)
{
    struct step_terms terms;
    double most = 0;
    if (choices->primitives.optimizer == OPTIMIZER_MUON)
        return 0;
    predictor_choose(p, choices, NULL);
    const struct pipeline *pipeline = shared_pipeline(p, DETAIL_WORST);
    step_terms_init(p, &terms);
    for (int i = 0; i < (first ? 1 : pipeline->count); i++) {
        double item[TIME_ITEM_COUNT] = { 0 };
        struct stage_sums sums;
        struct elements part;
        stage_sums_init(&terms, &pipeline->stages[i], &sums);
        elements_init(&p->in, &sums, &part);
        end_of_step(&terms, &pipeline->stages[i], &sums, &part, item);
        most = item[TIME_OPTIMIZER] > most ? item[TIME_OPTIMIZER] : most;
    }
    return most;
}
