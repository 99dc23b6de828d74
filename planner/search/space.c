#include "planner/search/space.h"
#include "base/checked.h"

#include <string.h>

static void knob_set(struct knob *knob, bool open, int fixed_value, int count, const int *values)
{
    knob->count = open ? count : 1;
    knob->values[0] = fixed_value;
    for (int i = 0; open && i < count; i++)
        knob->values[i] = values[i];
}

static void note_layer_kinds(struct space *space)
{
    const struct model *model = space->q->model;
    for (int layer = 0; layer < model->layers; layer++) {
        space->has_softmax |= mixer_is_softmax((enum mixer)model->layer_mixer[layer]);
        space->has_linear |= mixer_is_linear((enum mixer)model->layer_mixer[layer]);
        space->has_moe |= model->layer_ffn[layer] == FFN_MOE;
    }
    space->has_softmax |= model_predicts(model);
}

/* A fixed moe_chunks above 1 asks for the chunked schedule and a fixed schedule for its chunks. */
static void note_chunks(struct space *space)
{
    static const int all[] = { 1, 2, 3, 4 };
    const struct fixed_choices *fixed = &space->q->fixed;
    bool open_chunks = !choice_is_fixed(fixed, "moe_chunks");
    int first = 0, count = 4;

    space->open_moe = !choice_is_fixed(fixed, "moe");
    if (!space->has_moe || (!space->open_moe && space->base.moe == MOE_PLAIN))
        count = 1;
    else if (!space->open_moe)
        first = 1, count = 3;
    knob_set(&space->chunks, open_chunks, space->base.moe_chunks, count, all + first);
}

/* The host's calls are blocking: a second stream would hold more and hide nothing. */
static void note_ahead(struct space *space)
{
    static const int levels[] = { AHEAD_BOTH, AHEAD_GATHERS, AHEAD_NOTHING };
    const struct fixed_choices *fixed = &space->q->fixed;
    int first, last;

    space->open_prefetch = !choice_is_fixed(fixed, "prefetch_units");
    space->open_streams = !choice_is_fixed(fixed, "comm_streams") && !space->q->hardware->host;
    first = space->open_streams ? 0 : 1;
    last = space->open_prefetch ? 2 : 1;
    knob_set(&space->ahead, true, 0, last - first + 1, levels + first);
}

/* Where layers may be recomputed that attend. */
static void note_attention(struct space *space)
{
    static const int values[] = { 1, 0 };
    bool recomputes = space->recompute.values[space->recompute.count - 1] == RECOMPUTE_FULL;

    space->open_attention =
        !choice_is_fixed(&space->q->fixed, "keep_attention") && space->has_softmax && recomputes;
    knob_set(&space->attention, space->open_attention, space->base.keep_attention, 2, values);
}

static void note_knobs(struct space *space)
{
    static const int shardings[] = { SHARDING_REPLICATED, SHARDING_ZERO1, SHARDING_FSDP };
    static const int recomputes[] = { RECOMPUTE_NONE, RECOMPUTE_FULL };
    static const int losses[] = { LOSS_FULL, LOSS_LINEAR_CE };
    const struct fixed_choices *fixed = &space->q->fixed;
    const struct primitives *base = &space->base;

    knob_set(&space->sharding, !choice_is_fixed(fixed, "sharding"), (int)base->sharding, 3,
             shardings);
    knob_set(&space->recompute, !choice_is_fixed(fixed, "recompute"), (int)base->recompute, 2,
             recomputes);
    knob_set(&space->loss, !choice_is_fixed(fixed, "loss"), (int)base->loss, 2, losses);
    if (!choice_is_fixed(fixed, "loss") && base->vocab_group > 1)
        space->loss = (struct knob){ .count = 1, .values = { LOSS_RING_DTP } };
    else if (!choice_is_fixed(fixed, "loss") && base->vocab_strip > 0)
        space->loss = (struct knob){ .count = 1, .values = { LOSS_LINEAR_CE } };
    space->context = (struct knob){ .count = 1, .values = { CONTEXT_ALLGATHER_KV } };
    space->exchange = (struct knob){ .count = 1, .values = { (int)base->exchange } };
    space->capped = (struct knob){ .count = 1, .values = { false } };
    note_ahead(space);
    note_chunks(space);
    note_attention(space);
}

static int count_stages(const struct layout *layout)
{
    int stages = 0;
    while (stages < LAYOUT_MAX_STAGES && layout->stage_layers[stages] > 0)
        stages++;
    return stages;
}

/* Which degrees the user left open; a list of stages fixes their number. */
static void note_degrees(struct space *space)
{
    const struct fixed_choices *fixed = &space->q->fixed;

    space->fixed = fixed->values.layout;
    space->open_tp = !choice_is_fixed(fixed, "tp");
    space->open_pp = !choice_is_fixed(fixed, "pp");
    space->open_cp = !choice_is_fixed(fixed, "cp");
    space->open_ep = !choice_is_fixed(fixed, "ep");
    space->open_etp = !choice_is_fixed(fixed, "etp");
    space->open_fsdp = !choice_is_fixed(fixed, "fsdp");
    space->open_e_fsdp = !choice_is_fixed(fixed, "e_fsdp");
    space->open_vocab_group = !choice_is_fixed(fixed, "vocab_group");
    space->open_tile = !choice_is_fixed(fixed, "loss_tile_tokens") && !space->q->hardware->host;
    space->open_host_bytes = !choice_is_fixed(fixed, "sco_host_bytes");
    space->open_vpp = !choice_is_fixed(fixed, "vpp");
    space->open_stages = !choice_is_fixed(fixed, "stage_layers");
    space->open_recompute_layers =
        !choice_is_fixed(fixed, "recompute_layers") && !choice_is_fixed(fixed, "recompute");
    space->open_offload = !choice_is_fixed(fixed, "offload");
    space->open_context = !choice_is_fixed(fixed, "context");
    space->open_linear_context = !choice_is_fixed(fixed, "linear_context");
    space->open_exchange = !choice_is_fixed(fixed, "exchange");
    space->open_cap = !choice_is_fixed(fixed, "moe_cap_tokens");
    if (space->open_pp && !space->open_stages) {
        space->open_pp = false;
        space->fixed.pp = count_stages(&fixed->values.layout);
    }
}

void space_init(struct space *space, const struct question *q)
{
    struct choices fixed = { .primitives = primitives_default() };

    memset(space, 0, sizeof *space);
    choices_apply(&q->fixed, &fixed);
    space->q = q;
    space->limit_bytes = question_limit_bytes(q);
    space->global_batch = question_global_batch(q);
    space->micro_batch = question_micro_batch(q);
    space->base = fixed.primitives;
    note_layer_kinds(space);
    note_knobs(space);
    note_degrees(space);
    if (q->hardware->host)
        space_restrict_to_host(space);
}

static void knob_add(struct knob *knob, int value)
{
    if (knob->count < SPACE_MAX_VALUES)
        knob->values[knob->count++] = value;
}

/* More chunks, and chunks under a cap. The steps widen: a chunk more matters less. */
static void open_chunks(struct space *space)
{
    static const int more[] = { 5, 6, 8, 12, 16 };
    const struct fixed_choices *fixed = &space->q->fixed;
    bool chunked = space->has_moe && (space->open_moe || space->base.moe != MOE_PLAIN);

    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (chunked && !choice_is_fixed(fixed, "moe_chunks"))
            knob_add(&space->chunks, more[i]);
    if (chunked && space->open_cap && space->open_moe)
        knob_add(&space->capped, true);
    else if (chunked && space->open_cap && space->base.moe == MOE_CAPPED)
        space->capped.values[0] = true;
}

/* What can be planned beside what derivation chooses from; the host's part is all derivation's. */
static void open_kinds(struct space *space)
{
    const struct fixed_choices *fixed = &space->q->fixed;

    space_open_kinds(space);
    if (!choice_is_fixed(fixed, "loss") && space->base.vocab_group <= 1 &&
        space->base.vocab_strip == 0 && space->open_vocab_group)
        knob_add(&space->loss, LOSS_RING_DTP);
    if (space->open_exchange && space->has_moe)
        knob_add(&space->exchange, EXCHANGE_COPY);
    if (space->open_prefetch && space->open_streams)
        space->ahead =
            (struct knob){ .count = 4,
                           .values = { AHEAD_BOTH, AHEAD_GATHERS, AHEAD_REDUCES, AHEAD_NOTHING } };
    open_chunks(space);
}

void space_open_kinds(struct space *space)
{
    bool open = !choice_is_fixed(&space->q->fixed, "sharding");
    if (space->q->hardware->host)
        return;
    if (open)
        space->sharding = (struct knob){ .count = 4,
                                         .values = { SHARDING_REPLICATED, SHARDING_ZERO1,
                                                     SHARDING_ZERO2, SHARDING_FSDP } };
    for (int c = CONTEXT_ULYSSES; space->open_context && c < CONTEXT_COUNT; c++)
        knob_add(&space->context, c);
}

void space_close_host(struct space *space)
{
    space->open_offload = false;
}

void space_open(struct space *space, bool everything)
{
    const struct fixed_choices *fixed = &space->q->fixed;
    space->open_micro_batch = everything && !choice_is_fixed(fixed, "micro_batch");
    space->every_divisor = everything;
    if (everything && !space->q->hardware->host)
        open_kinds(space);
    if (everything)
        return;
    if (space->open_vpp)
        space->fixed.vpp = 1;
    space->open_vpp = false;
}

struct degrees space_fixed_degrees(const struct space *space)
{
    return (struct degrees){
        .tp = space->open_tp ? 1 : space->fixed.tp,
        .pp = space->open_pp ? 1 : space->fixed.pp,
        .cp = space->open_cp ? 1 : space->fixed.cp,
        .ep = space->open_ep ? 1 : space->fixed.ep,
        .etp = space->open_etp ? 1 : space->fixed.etp,
        .fsdp = space->open_fsdp ? 0 : space->fixed.fsdp,
        .e_fsdp = space->open_e_fsdp ? 0 : space->fixed.e_fsdp,
    };
}

static struct settings settings_at(const struct space *space, bool last)
{
    const struct knob *knobs[] = { &space->sharding, &space->recompute, &space->loss,
                                   &space->chunks, &space->ahead };
    int values[5];
    for (int i = 0; i < 5; i++)
        values[i] = knobs[i]->values[last ? knobs[i]->count - 1 : 0];
    return (struct settings){ .sharding = (enum sharding)values[0],
                              .recompute = (enum recompute)values[1],
                              .loss = (enum loss)values[2],
                              .chunks = values[3],
                              .ahead = (enum ahead)values[4],
                              .keep_attention =
                                  space->attention.values[last ? space->attention.count - 1 : 0],
                              .linear_context = LINEAR_CONTEXT_HEAD_SPLIT };
}

struct settings space_fastest(const struct space *space)
{
    return settings_at(space, false);
}

struct settings space_leanest(const struct space *space)
{
    return settings_at(space, true);
}

struct settings settings_of(const struct choices *choices)
{
    const struct primitives *p = &choices->primitives;
    return (struct settings){
        .sharding = p->sharding,
        .recompute = p->recompute,
        .loss = p->loss,
        .chunks = p->moe_chunks,
        .ahead = p->comm_streams > 1     ? AHEAD_BOTH
                 : p->prefetch_units > 0 ? AHEAD_GATHERS
                                         : AHEAD_NOTHING,
        .linear_context = p->linear_context,
        .recompute_layers = p->recompute_layers > 0 ? p->recompute_layers : 0,
        .offload = p->offload,
        .keep_attention = p->keep_attention,
    };
}

struct knob space_linear_contexts(const struct space *space, int cp)
{
    struct knob knob = { .count = 1, .values = { LINEAR_CONTEXT_NONE } };

    if (!space->open_linear_context)
        knob.values[0] = (int)space->base.linear_context;
    else if (cp > 1 && space->has_linear)
        knob = (struct knob){ .count = 2,
                              .values = { LINEAR_CONTEXT_HEAD_SPLIT, LINEAR_CONTEXT_STATE_PASS } };
    return knob;
}

struct knob space_contexts(const struct space *space, int cp)
{
    if (cp > 1 && space->has_softmax && space->open_context)
        return space->context;
    return (struct knob){ .count = 1, .values = { CONTEXT_NONE } };
}

struct knob space_exchanges(const struct space *space, int ep)
{
    if (ep > 1)
        return space->exchange;
    return (struct knob){ .count = 1, .values = { (int)space->base.exchange } };
}

int space_vocab_groups(const struct space *space, const struct layout *layout, int *ret)
{
    int dp = layout_dp(layout), count = 0;

    if (!space->open_vocab_group)
        ret[count++] = space->base.vocab_group;
    for (int group = dp; space->open_vocab_group && group > 1 && count < SPACE_MAX_DIVISORS;
         group--)
        if (dp % group == 0 && space->q->model->vocab % group == 0)
            ret[count++] = group;
    return count;
}

static int at_least_one(int value)
{
    return value > 0 ? value : 1;
}

/* What the last stage has beside its layers counts as layers: predictions, and as many as it is
 * made lighter by. */
static int beside_last(const struct space *space, int lighter)
{
    const struct model *model = space->q->model;
    return (model->mtp_trained ? model->mtp_layers : 0) + space->lighter + lighter;
}

static void split_layers(const struct space *space, int lighter, struct layout *l)
{
    int more = beside_last(space, lighter);

    if (!space->open_stages)
        memcpy(l->stage_layers, space->fixed.stage_layers, sizeof l->stage_layers);
    else if (l->pp <= LAYOUT_MAX_STAGES)
        layout_split_with_last(l, space->q->model->layers, l->vpp > 1 ? 0 : more);
    else
        memset(l->stage_layers, 0, sizeof l->stage_layers);
}

void space_split_layers(const struct space *space, struct layout *l)
{
    split_layers(space, 0, l);
}

/* Layers are shared evenly with what counts as layers; some numbers of it leave the same stages. */
int space_lighter_values(const struct space *space, const struct degrees *d, int *ret)
{
    const int layers = space->q->model->layers;
    struct layout split = { .pp = d->pp };
    int count = 0, last = 0;

    ret[count++] = 0;
    if (d->pp == 1 || d->pp > LAYOUT_MAX_STAGES || d->vpp > 1 || !space->open_stages)
        return count;
    for (int lighter = 0; lighter < layers; lighter++) {
        int more = beside_last(space, lighter);
        layout_split_layers(&split, layers + more);
        int left = split.stage_layers[d->pp - 1] - more;
        if (left < 1)
            break;
        if (lighter > 0 && left != last)
            ret[count++] = lighter;
        last = left;
    }
    return count;
}

/* Everything that follows from tp, pp, cp, ep, etp: data-parallel widths, batches, stages. */
static void complete_layout(const struct space *space, const struct degrees *d, struct layout *l)
{
    int gpus = space->q->gpus;
    int dp = at_least_one(gpus / at_least_one(d->tp * d->pp * d->cp));
    int e_dp = at_least_one(gpus / at_least_one(d->etp * d->ep * d->pp));

    l->tp = d->tp;
    l->pp = d->pp;
    l->vpp = !space->open_vpp ? space->fixed.vpp : at_least_one(d->vpp);
    l->cp = d->cp;
    l->ep = d->ep;
    l->etp = d->etp;
    l->fsdp = d->fsdp > 0 ? d->fsdp : dp;
    l->e_fsdp = d->e_fsdp > 0 ? d->e_fsdp : e_dp;
    l->d_rep = at_least_one(dp / l->fsdp);
    l->e_rep = at_least_one(e_dp / l->e_fsdp);
    l->micro_batch =
        space->open_micro_batch && d->micro_batch > 0 ? d->micro_batch : space->micro_batch;
    int64_t batches = space->global_batch / ((int64_t)dp * l->micro_batch);
    l->micro_batches = batches < 1 ? 1 : batches > INT32_MAX ? INT32_MAX : (int)batches;
    split_layers(space, d->lighter, l);
}

/* Ranks that share the vocabulary: as many replicas as reach each other at link speed. */
static int ring_group(const struct space *space, const struct layout *l)
{
    int domain = space->q->hardware->domain_gpus / at_least_one(l->tp * l->cp);
    int dp = layout_dp(l);

    for (int group = domain < dp ? domain : dp; group > 2; group--)
        if (dp % group == 0 && space->q->model->vocab % group == 0)
            return group;
    return 2;
}

/* Half of what the node's memory is for one rank; the other half is the system's and the loader's.
 * Where the optimizer's state is there too, half of that half. */
static uint64_t host_budget(const struct hardware *h, unsigned offload)
{
    uint64_t share = h->host_memory_bytes / (uint64_t)at_least_one(h->gpus_per_node) / 2;
    return offload & OFFLOAD_OPTIMIZER ? share / 2 : share;
}

uint64_t space_host_room(const struct space *space)
{
    return question_host_room(space->q);
}

uint64_t space_local_tokens(const struct space *space, const struct layout *layout)
{
    uint64_t row = space->base.tokens_per_gpu;
    return row > 0 ? row : layout_local_tokens(layout, space->q->seq_tokens);
}

struct knob space_wider_tiles(const struct space *space, const struct layout *layout,
                              enum loss loss, int least)
{
    static const int sizes[] = { 4096, 2048, 1024 };
    uint64_t tokens = space_local_tokens(space, layout);
    struct knob ret = { .count = 0 };

    if (!space->open_tile || loss == LOSS_RING_DTP)
        return ret;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if ((uint64_t)sizes[i] <= tokens && sizes[i] > least)
            ret.values[ret.count++] = sizes[i];
    return ret;
}

/* Tokens that a rank routes, in so many chunks one after another; a larger cap makes as many. */
static uint64_t cap_tokens(const struct space *space, const struct layout *l, int chunks)
{
    uint64_t tokens = div_up(space_local_tokens(space, l), (uint64_t)at_least_one(l->tp));
    return div_up(tokens > 0 ? tokens : 1, (uint64_t)at_least_one(chunks));
}

static void complete_experts(const struct space *space, const struct settings *settings,
                             struct choices *ret)
{
    struct primitives *p = &ret->primitives;

    p->moe_chunks = settings->chunks;
    if (space->open_moe)
        p->moe = settings->chunks > 1 ? MOE_CHUNKED : MOE_PLAIN;
    if (settings->capped && settings->chunks > 1) {
        p->moe = MOE_CAPPED;
        p->moe_cap_tokens = cap_tokens(space, &ret->layout, settings->chunks);
    }
    if (space->open_exchange)
        p->exchange = settings->exchange;
}

static void complete_context(const struct space *space, const struct degrees *d,
                             const struct settings *settings, struct primitives *p)
{
    enum context softmax =
        settings->context != CONTEXT_NONE ? settings->context : CONTEXT_ALLGATHER_KV;

    if (space->open_context)
        p->context = d->cp > 1 && space->has_softmax ? softmax : CONTEXT_NONE;
    if (space->open_linear_context)
        p->linear_context =
            d->cp > 1 && space->has_linear ? settings->linear_context : LINEAR_CONTEXT_NONE;
}

void space_set_ahead(const struct space *space, enum ahead ahead, struct primitives *p)
{
    if (space->open_prefetch)
        p->prefetch_units = ahead == AHEAD_GATHERS || ahead == AHEAD_BOTH;
    if (space->open_streams)
        p->comm_streams = ahead == AHEAD_BOTH || ahead == AHEAD_REDUCES ? 2 : 1;
}

void space_complete_primitives(const struct space *space, const struct degrees *d,
                               const struct settings *settings, struct choices *ret)
{
    struct primitives *p = &ret->primitives;

    *p = space->base;
    p->sharding = settings->sharding;
    p->recompute = settings->recompute;
    p->loss = settings->loss;
    complete_experts(space, settings, ret);
    complete_context(space, d, settings, p);
    if (space->open_recompute_layers && p->recompute == RECOMPUTE_FULL &&
        settings->recompute_layers > 0)
        p->recompute_layers = settings->recompute_layers;
    if (space->open_attention)
        p->keep_attention = p->recompute == RECOMPUTE_FULL && settings->keep_attention;
    if (space->open_offload)
        p->offload = settings->offload;
    if (space->open_tile && settings->tile > 0)
        p->loss_tile_tokens = settings->tile;
    space_set_ahead(space, settings->ahead, p);
    if (space->open_vocab_group && p->loss == LOSS_RING_DTP)
        p->vocab_group =
            settings->vocab_group > 0 ? settings->vocab_group : ring_group(space, &ret->layout);
    if (space->open_host_bytes && (p->offload & OFFLOAD_CHECKPOINTS) != 0)
        p->sco_host_bytes = host_budget(space->q->hardware, p->offload);
}

void space_complete(const struct space *space, const struct degrees *degrees,
                    const struct settings *settings, struct choices *ret)
{
    complete_layout(space, degrees, &ret->layout);
    space_complete_primitives(space, degrees, settings, ret);
}
