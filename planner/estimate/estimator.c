#include "planner/estimate/estimator.h"

#include "base/checked.h"
#include "planner/estimate/shared.h"

#include <stdlib.h>
#include <string.h>

enum { BODIES = 256, UNITS = 512, LINKS = 512, LOSSES = 64, SPOTS = 128, MEMOS = 5 };

struct estimator *estimator_open(const struct budget_input *facts)
{
    struct estimator *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->in = *facts;
    e->in.measured = NULL;
    layer_classes_init(facts->model, facts->sizes, &e->classes);
    machine_init(&e->in, &e->machine);
    if (memo_init(&e->bodies, BODIES, sizeof(struct body_key), sizeof(struct body)) == 0 &&
        memo_init(&e->units, UNITS, sizeof(struct units_key), sizeof(struct units)) == 0 &&
        memo_init(&e->links, LINKS, sizeof(struct links_key), sizeof(struct links)) == 0 &&
        memo_init(&e->losses, LOSSES, sizeof(struct loss_key), sizeof(struct loss_shared)) == 0 &&
        memo_init(&e->spots, SPOTS, sizeof(struct spots_key),
                  pipeline_spots_size(facts->model->layers)) == 0) {
        e->bodies.clear_size = offsetof(struct body, kinds);
        e->spots.clear_size = offsetof(struct pipeline_spots, stages);
        e->units.clear_size = offsetof(struct units, muon);
        return e;
    }
    estimator_close(e);
    return NULL;
}

void estimator_close(struct estimator *e)
{
    if (!e)
        return;
    memo_done(&e->bodies);
    memo_done(&e->units);
    memo_done(&e->links);
    memo_done(&e->losses);
    memo_done(&e->spots);
    free(e);
}

uint64_t estimator_settle(struct estimator *e)
{
    struct memo *const memos[MEMOS] = { &e->bodies, &e->units, &e->links, &e->losses, &e->spots };
    uint64_t bytes = 0;
    for (int i = 0; i < MEMOS; i++) {
        memo_settle(memos[i]);
        bytes += memos[i]->places * memos[i]->entry_size;
    }
    return bytes;
}

static void add_state(const struct unit_shared *unit, uint64_t times, uint64_t *items)
{
    static const enum item kept[] = { ITEM_WEIGHTS, ITEM_MASTER, ITEM_MOMENTS, ITEM_GRADIENTS };
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        items[kept[i]] = add_sat(items[kept[i]], mul_sat(times, unit->state[kept[i]]));
}

/* What is there in every phase. */
static uint64_t fixed_bytes(const struct estimator *e, const struct stage_spots *s,
                            const struct units *units, uint64_t links, uint64_t *ret_host)
{
    uint64_t items[ITEM_COUNT] = { 0 }, total = 0;
    for (int i = 0; i < e->classes.count; i++)
        add_state(&units->layer[i], s->classes[i], items);
    if (s->has_embedding || (s->has_head && (e->in.model->tied || model_predicts(e->in.model))))
        add_state(&units->embedding, 1, items);
    if (s->has_head)
        add_state(&units->head, 1, items);
    if (s->has_head)
        add_state(&units->last_extra, 1, items);
    else if (s->has_embedding)
        add_state(&units->first_extra, 1, items);
    if (s->has_embedding)
        frozen_state_add(&e->in, items);
    *ret_host = state_offload(&e->in.choices->primitives, items);
    *ret_host = add_sat(*ret_host, reference_add(&e->in, items));
    runtime_add(&e->in, items);
    items[ITEM_COMMUNICATORS] = links;
    for (int i = 0; i < ITEM_COUNT; i++)
        total = add_sat(total, items[i]);
    return total;
}

static struct peaks with_doubt(const struct stage_peak *point, const struct stage_peak *high)
{
    uint64_t upper = add_sat(high->bytes, runtime_doubt_bytes(high->moving));
    return (struct peaks){ point->bytes, upper, 0 };
}

/* A device reserves for the upper estimate; with more rows no tensor is smaller, so that peak is
 * the larger one. */
static struct peaks stage_peaks(const struct stage_parts *parts)
{
    struct stage_peak point, high;
    const uint64_t *rows = parts->body->rows;
    stage_peak_find(parts, ROWS_HIGH, &high);
    point = high;
    if (rows[ROWS_POINT] > rows[ROWS_HIGH] ||
        (parts->e->in.hardware->host && rows[ROWS_POINT] < rows[ROWS_HIGH]))
        stage_peak_find(parts, ROWS_POINT, &point);
    if (!parts->e->in.hardware->host && high.bytes > point.bytes)
        point = high;
    return with_doubt(&point, &high);
}

static void slow_peaks(const struct estimator *e, struct peaks *ret)
{
    struct rank_budget worst;
    budget_worst(&e->in, &worst);
    *ret = (struct peaks){ worst.peak_bytes, worst.peak_upper_bytes, worst.host_bytes };
}

/* NULL where the layers are of too many kinds, or the stages, to be told apart here. */
static const struct pipeline_spots *spots_of(struct estimator *e, const struct choices *choices)
{
    e->in.choices = choices;
    if (e->classes.count > CLASSES_MAX)
        return NULL;
    const struct pipeline_spots *spots = shared_spots(e);
    return spots->count > 0 ? spots : NULL;
}

static void parts_init(struct estimator *e, struct stage_parts *ret, bool links)
{
    *ret = (struct stage_parts){ .e = e, .body = shared_body(e), .units = shared_units(e) };
    ret->links = links ? shared_links(e) : 0;
    ret->flight.checkpoint = ret->body->checkpoint;
    ret->flight.inputs = ret->body->inputs;
}

/* Returns the stage's bytes on the host. */
static uint64_t parts_of_stage(struct stage_parts *parts, const struct stage_spots *s)
{
    struct estimator *e = parts->e;
    uint64_t host_state;
    parts->stage = s;
    parts->loss = s->has_head ? &shared_loss(e)->bytes : NULL;
    in_flight_counts(&e->in, s->index, s->layers, &parts->flight);
    parts->fixed = fixed_bytes(e, s, parts->units, parts->links, &host_state);
    parts->pipeline = pipeline_bytes(&e->in, s->index);
    return add_sat(parts->flight.offloaded_bytes, host_state);
}

void estimator_peaks(struct estimator *e, const struct choices *choices, struct peaks *ret)
{
    const struct pipeline_spots *spots = spots_of(e, choices);
    struct stage_parts parts;
    *ret = (struct peaks){ 0, 0, 0 };
    if (!spots) {
        slow_peaks(e, ret);
        return;
    }
    parts_init(e, &parts, true);
    for (int i = 0; i < spots->count; i++) {
        uint64_t host_bytes = parts_of_stage(&parts, &spots->stages[i]);
        struct peaks one = stage_peaks(&parts);
        one.host_bytes = host_bytes;
        if (i == 0 || one.peak_upper_bytes > ret->peak_upper_bytes)
            *ret = one;
    }
    if (bytes_overflowed(ret->peak_bytes) || bytes_overflowed(ret->peak_upper_bytes))
        slow_peaks(e, ret);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What a floor counts beside state, checkpoints and what layers save: the last layer at work; its
 * unit, and communicators; the loss. */
enum floor_of { FLOOR_OF_HELD, FLOOR_OF_SAVED, FLOOR_OF_BODY, FLOOR_OF_STATE, FLOOR_OF_ALL };

/* The last layer in one of two modes, without its output, which may be elsewhere. */
static uint64_t last_layer_in(const struct stage_parts *p, enum residency_mode one,
                              enum residency_mode other)
{
    struct estimator *e = p->e;
    int rows = e->in.hardware->host ? ROWS_POINT : ROWS_HIGH;
    int layer = p->stage->first + p->stage->layers - 1;
    return smaller(shared_kind(e, p->body, rows, layer, one)->bare,
                   shared_kind(e, p->body, rows, layer, other)->bare);
}

/* The last layer at work, whichever way it is kept or replayed, on top of what is held: backward
 * with the gradient stream; with its own unit gathered and its gradients, or forward. Of a body
 * without the latter: it would cost two more tables, and holds less. */
static uint64_t last_layer_bytes(const struct stage_parts *p, const struct stage_held *held,
                                 enum floor_of of)
{
    int layer = p->stage->first + p->stage->layers - 1;
    const struct unit_shared *unit = &p->units->layer[p->e->classes.of[layer]];
    uint64_t backward = last_layer_in(p, RESIDENCY_BACKWARD, RESIDENCY_BACKWARD_SAVED);
    backward = add_sat(held->backward, add_sat(backward, p->flight.checkpoint));
    if (of == FLOOR_OF_BODY)
        return backward;
    uint64_t forward = last_layer_in(p, RESIDENCY_FORWARD, RESIDENCY_FORWARD_SAVED);
    uint64_t gradients = add_sat(unit->gradient.dense, unit->gradient.expert);
    return add_sat(unit->gathered,
                   larger(add_sat(held->forward, forward), add_sat(backward, gradients)));
}

/* Of the last layer backward its mixer alone, which works whatever its experts are. */
static uint64_t last_mixer_bytes(const struct stage_parts *p, const struct stage_held *held)
{
    struct estimator *e = p->e;
    int rows = e->in.hardware->host ? ROWS_POINT : ROWS_HIGH;
    int layer = p->stage->first + p->stage->layers - 1;
    uint64_t bytes = smaller(shared_mixer(e, p->body, rows, layer, RESIDENCY_BACKWARD)->bare,
                             shared_mixer(e, p->body, rows, layer, RESIDENCY_BACKWARD_SAVED)->bare);
    return add_sat(held->backward, add_sat(bytes, p->flight.checkpoint));
}

static uint64_t loss_working_bytes(const struct loss_bytes *l)
{
    return add_sat(l->logits, larger(l->tiles, l->normed));
}

static uint64_t work_bytes(const struct stage_parts *p, enum floor_of of)
{
    struct stage_held held;
    stage_held_find(p, p->e->in.hardware->host ? ROWS_POINT : ROWS_HIGH, &held);
    if (of == FLOOR_OF_HELD)
        return larger(held.forward, held.backward);
    if (of == FLOOR_OF_SAVED)
        return larger(held.forward, last_mixer_bytes(p, &held));
    uint64_t work = last_layer_bytes(p, &held, of);
    if (!p->loss || of != FLOOR_OF_ALL)
        return work;
    return larger(work, add_sat(loss_working_bytes(p->loss), held.loss));
}

/* State, communicators, runtime and transfers; inputs and what is saved; and in the loss its logits
 * and tiles, or the last layer at work. Each is part of a sum of peak.c. */
static uint64_t floor_bytes(struct estimator *e, const struct choices *choices, enum floor_of of,
                            int stages)
{
    const struct pipeline_spots *spots = spots_of(e, choices);
    struct stage_parts parts;
    uint64_t most = 0;
    if (!spots)
        return 0;
    parts_init(e, &parts, of >= FLOOR_OF_STATE);
    for (int i = 0; i < spots->count && i < stages; i++) {
        (void)parts_of_stage(&parts, &spots->stages[i]);
        uint64_t still = add_sat(parts.fixed, parts.pipeline);
        most = larger(add_sat(still, work_bytes(&parts, of)), most);
    }
    return most;
}

uint64_t estimator_floor(struct estimator *e, const struct choices *choices)
{
    return floor_bytes(e, choices, FLOOR_OF_ALL, STAGES_MAX);
}

uint64_t estimator_state_floor(struct estimator *e, const struct choices *choices)
{
    return floor_bytes(e, choices, FLOOR_OF_STATE, STAGES_MAX);
}

uint64_t estimator_saved_floor(struct estimator *e, const struct choices *choices)
{
    return floor_bytes(e, choices, FLOOR_OF_SAVED, STAGES_MAX);
}

uint64_t estimator_first_floor(struct estimator *e, const struct choices *choices)
{
    return floor_bytes(e, choices, FLOOR_OF_HELD, 1);
}

uint64_t estimator_body_floor(struct estimator *e, const struct choices *choices)
{
    return floor_bytes(e, choices, FLOOR_OF_BODY, STAGES_MAX);
}

void estimator_time(struct estimator *e, const struct choices *choices, struct step_time *ret)
{
    const struct layout *l = &choices->layout;
    const struct pipeline_spots *spots = spots_of(e, choices);
    struct step_sums sums = { .any = false };
    struct step_terms terms;
    if (!spots) {
        step_time_compute(&e->in, ret);
        return;
    }
    const struct units *units = shared_units(e);
    shared_terms(e, shared_body(e), units, shared_loss(e), &terms);
    for (int i = 0; i < spots->count; i++) {
        struct stage_sums layers;
        stage_sums_of(e, units, &spots->stages[i], &layers);
        step_sums_add(&terms, &layers, &sums);
    }
    step_seconds(&e->in, &sums, ret);
    double tokens = step_tokens_of(&e->in);
    ret->tokens_per_second_per_gpu = over(tokens, ret->seconds * layout_world(l));
}

/* Every layer's forward and backward without its unit's collectives, the loss and the sends between
 * stages, in the fullest stage, for all micro-batches and the bubble; the end of the step. */
static double layer_seconds(struct estimator *e, const struct choices *choices, bool replays,
                            double exchange, const struct least_seconds *least, int stages)
{
    const struct pipeline_spots *spots = spots_of(e, choices);
    const struct layout *l = &choices->layout;
    double v = l->vpp > 1 ? l->vpp : 1, most = 0;
    if (!spots)
        return 0;
    double m = micro_batches_of(&e->in);
    m = m > 0 ? m : 1;
    for (int i = 0; i < spots->count && i < stages; i++) {
        double seconds =
            stage_layer_seconds(e, shared_body(e), &spots->stages[i], replays, exchange);
        seconds += spots->stages[i].has_head ? least->loss : 0;
        most = seconds > most ? seconds : most;
    }
    struct ranks ranks = { l->pp, layout_world(l) / l->pp };
    double bytes = 2.0 * (double)norm_tokens(&e->in) * e->in.model->hidden;
    most += 2 * v * send_seconds(e->in.hardware, ranks, bytes);
    return (m + (l->pp - 1) / v) * most + least->end;
}

double estimator_least_seconds(struct estimator *e, const struct choices *choices)
{
    const struct least_seconds nothing = { 0, 0 };
    return layer_seconds(e, choices, false, 1, &nothing, STAGES_MAX);
}

double estimator_layer_seconds(struct estimator *e, const struct choices *choices,
                               const struct least_seconds *least)
{
    return layer_seconds(e, choices, true, 1, least, STAGES_MAX);
}

double estimator_relaxed_seconds(struct estimator *e, const struct choices *choices,
                                 const struct least_seconds *least)
{
    return layer_seconds(e, choices, true, least_exchange_share(e->in.hardware), least, STAGES_MAX);
}

double estimator_first_seconds(struct estimator *e, const struct choices *choices,
                               const struct least_seconds *least)
{
    return layer_seconds(e, choices, true, least_exchange_share(e->in.hardware), least, 1);
}

double estimator_loss_seconds(struct estimator *e, const struct choices *choices)
{
    e->in.choices = choices;
    return pass_seconds(&shared_loss(e)->pass);
}

/* Muon's matrices are not shared out by their elements: nothing is said of it. */
double estimator_update_seconds(struct estimator *e, const struct choices *choices, bool first)
{
    const struct pipeline_spots *spots = spots_of(e, choices);
    struct step_terms terms;
    double most = 0;
    if (!spots || choices->primitives.optimizer == OPTIMIZER_MUON)
        return 0;
    const struct units *units = shared_units(e);
    shared_terms(e, shared_body(e), units, shared_loss(e), &terms);
    for (int i = 0; i < (first ? 1 : spots->count); i++) {
        double item[TIME_ITEM_COUNT] = { 0 };
        struct stage_sums layers;
        struct elements part;
        stage_sums_of(e, units, &spots->stages[i], &layers);
        elements_init(&e->in, &layers, &part);
        end_of_step(&terms, &layers, &part, item);
        most = item[TIME_OPTIMIZER] > most ? item[TIME_OPTIMIZER] : most;
    }
    return most;
}
