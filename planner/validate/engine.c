/* Sources of the rules: Megatron-Lite (ISEEKYAN/mlite, experimental/lite):
 * examples/bench/session.py (what a figure counts), primitive/optimizers/fsdp2 (what stays
 * gathered, dtypes), primitive/optimizers/megatron_wrap.py (fp32 gradients); PyTorch's FSDP2 for a
 * unit's gradients. */
#include "planner/validate/engine.h"

#include "base/text.h"
#include "planner/predict/shared.h"

#include <inttypes.h>
#include <string.h>

/* One stage of a prediction as both engines see it. */
struct view {
    const struct budget_input *in;
    const struct assumptions *assume;
    const struct rank_budget *rank;
    const struct stage *stage;
    const struct units *units;
    const struct layer_classes *classes;
    bool sharded; /* FSDP2 */
};

static const char *bytes_text(char *ret, size_t size, uint64_t bytes)
{
    (void)snprintf(ret, size, "%.3f", (double)bytes / 1e9);
    return ret;
}

static double millions(uint64_t elements)
{
    return (double)elements / 1e6;
}

static struct adjustment *add(struct adjusted *ret, const char *name, const char *mechanism,
                              int64_t bytes)
{
    struct adjustment *step = &ret->step[ret->count++];
    *step = (struct adjustment){ .name = name, .mechanism = mechanism, .bytes = bytes };
    return step;
}

static int64_t difference(uint64_t engine, uint64_t own)
{
    return (int64_t)engine - (int64_t)own;
}

/* Embedding, head and last norm, as far as they are on the stage: a unit of their own. */
static uint64_t root_elements(const struct view *v)
{
    return (v->stage->has_embedding ? v->units->embedding.unit.dense : 0) +
           (v->stage->has_head ? v->units->head.unit.dense : 0);
}

static const struct unit *layer_of(const struct view *v, int layer)
{
    return &v->units->layer[v->classes->of[v->stage->first + layer]].unit;
}

/* Parameters of all units of the stage: what a rank gathers of it. */
static uint64_t stage_elements(const struct view *v)
{
    uint64_t sum = root_elements(v);
    for (int i = 0; i < v->stage->layers; i++)
        sum += layer_of(v, i)->dense + layer_of(v, i)->expert;
    return sum;
}

/* FSDP2 with fp32 shards has no bf16 shards beside them: the master is what is gathered, rounded.
 * weights = 0 instead of 2 B an element of the shard. */
static void adjust_shards(const struct view *v, struct adjusted *ret)
{
    if (!v->sharded || v->assume->shards != SHARDS_FP32)
        return;
    uint64_t own = v->rank->item_bytes[ITEM_WEIGHTS];
    struct adjustment *step =
        add(ret, "shards", "fp32 shards are weights and master in one", difference(0, own));
    (void)snprintf(step->formula, sizeof step->formula, "- 2 B x %.1f M of the shard",
                   millions(own / 2));
}

/* What FSDP2 holds gathered at the backward of a layer. Several stages: every unit of the stage,
 * 2 B an element. One stage: the root (embedding, head, last norm), the layer, and the dense part
 * of the next one, which is fetched ahead. */
static uint64_t gathered_bytes(const struct view *v, char *formula, size_t size)
{
    const struct unit *layer = layer_of(v, v->stage->layers - 1);
    uint64_t root = v->assume->root == ROOT_KEPT ? root_elements(v) : 0;
    if (v->in->choices->layout.pp > 1 && v->assume->units == KEPT_SEVERAL_STAGES) {
        (void)snprintf(formula, size, "2 B x %.1f M of the stage's units",
                       millions(stage_elements(v)));
        return 2 * stage_elements(v);
    }
    (void)snprintf(formula, size, "2 B x (%.1f M of the root + %.1f M of layers)", millions(root),
                   millions(2 * layer->dense + layer->expert));
    return 2 * (root + 2 * layer->dense + layer->expert);
}

static void adjust_gathered(const struct view *v, struct adjusted *ret)
{
    char formula[160], own[32];
    uint64_t before = v->rank->item_bytes[ITEM_GATHERED_WEIGHTS];
    if (!v->sharded)
        return;
    uint64_t bytes = gathered_bytes(v, formula, sizeof formula);
    bool all = v->in->choices->layout.pp > 1 && v->assume->units == KEPT_SEVERAL_STAGES;
    struct adjustment *step = add(ret, "gathered",
                                  all ? "with several stages a unit stays gathered"
                                      : "the root unit stays gathered through the step",
                                  difference(bytes, before));
    size_t used = 0;
    text_append(step->formula, sizeof step->formula, &used, "%s, not %s GB", formula,
                bytes_text(own, sizeof own, before));
}

/* Gradients of a unit in the dtype of its weights, then in fp32 on their way into the shard: the
 * dense part of the layer at work, the experts' in the collective with what arrives of them. With
 * one stage the root's gradients wait for the end of the backward: the head's from the loss on. */
static void adjust_gradients(const struct view *v, struct adjusted *ret)
{
    const struct unit *layer = layer_of(v, v->stage->layers - 1);
    uint64_t before = v->rank->item_bytes[ITEM_GATHERED_GRADIENTS], width = 0;
    uint64_t shards = (uint64_t)layout_expert_shards(&v->in->choices->layout);
    if (!v->sharded)
        return;
    width = dtype_bytes(v->assume->unit_gradients);
    uint64_t flying = shards > 1 ? 4 * layer->expert + 4 * (layer->expert / shards) : 0;
    uint64_t head = v->stage->has_head ? v->units->head.unit.dense : 0;
    uint64_t bytes = width * (layer->dense + head) + flying;
    char own[32];
    struct adjustment *step = add(ret, "unit gradients", "bf16 until they are reduced, in fp32",
                                  difference(bytes, before));
    (void)snprintf(step->formula, sizeof step->formula,
                   "%" PRIu64 " B x (%.1f M + head %.1f M) + 4 B x %.1f M, not %s GB", width,
                   millions(layer->dense), millions(head), millions(flying / 4),
                   bytes_text(own, sizeof own, before));
}

/* The fullest moment of a layer with the inputs of the layers below it, over the stage. */
static uint64_t layers_bytes(const struct view *v, enum delta_share share)
{
    struct in_flight flight;
    uint64_t most = 0, kind[MIXER_COUNT] = { 0 };
    in_flight_init(v->in, v->stage->index, v->stage->layers, &flight);
    for (int i = 0; i < v->stage->layers; i++) {
        enum mixer mixer = (enum mixer)v->in->model->layer_mixer[v->stage->first + i];
        if (kind[mixer] == 0)
            kind[mixer] = engine_layer_bytes(v->in, mixer, v->rank->routed_rows, share);
        uint64_t bytes = kind[mixer] + checkpoint_bytes(v->in, &flight, i + 1, 0, i + 1);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static const enum item layer_items[] = { ITEM_CHECKPOINTS,   ITEM_LAYER_SAVED,   ITEM_LAYER_WORKING,
                                         ITEM_KV_GATHER,     ITEM_DISPATCH_SEND, ITEM_DISPATCH_RECV,
                                         ITEM_EXPERT_WORKING };

static uint64_t own_layers_bytes(const struct view *v)
{
    uint64_t scratch = v->in->hardware->workspace_bytes, sum = 0;
    uint64_t workspace = v->rank->item_bytes[ITEM_WORKSPACE];
    for (size_t i = 0; i < sizeof layer_items / sizeof *layer_items; i++)
        sum += v->rank->item_bytes[layer_items[i]];
    return sum + (workspace > scratch ? workspace - scratch : 0);
}

static void adjust_layers(const struct view *v, struct adjusted *ret)
{
    char own[32], other[32];
    uint64_t before = own_layers_bytes(v), bytes = layers_bytes(v, DELTA_SHARED);
    struct adjustment *step =
        add(ret, "layer at work", "operands of a replayed layer are kept for its backward",
            difference(bytes, before));
    (void)snprintf(step->formula, sizeof step->formula, "%s GB with layer inputs, not %s GB",
                   bytes_text(other, sizeof other, bytes), bytes_text(own, sizeof own, before));
}

/* Experts measured alone hold (measured - 4 B x parameters) x tokens here / tokens there; what that
 * is beyond the count. Not part of the adjusted figure: it tells how much of the rest lies there.
 */
static void adjust_experts(const struct view *v, struct adjusted *ret)
{
    const struct assumptions *a = v->assume;
    bool chunked = v->in->choices->primitives.moe == MOE_CHUNKED;
    double measured = chunked ? a->experts.chunked_bytes : a->experts.plain_bytes;
    double state = 4.0 * (double)layer_of(v, 0)->expert;
    if (a->experts.tokens <= 0)
        return;
    double held = (measured - state) * (double)norm_tokens(v->in) / a->experts.tokens;
    double counted = (double)engine_experts_bytes(v->in, v->rank->routed_rows);
    ret->experts_bytes = (int64_t)(held - counted);
}

/* Who and what is counted, before any rule of an engine. */
static void adjust_metric(const struct view *v, const struct prediction *prediction,
                          struct adjusted *ret)
{
    static const enum item outside[] = { ITEM_COMMUNICATORS, ITEM_CONTEXT, ITEM_MODULES,
                                         ITEM_SLACK };
    uint64_t sum = 0;
    if (v->rank != prediction_worst(prediction)) {
        struct adjustment *step =
            add(ret, "first rank", "of rank 0, which is on the first stage",
                difference(v->rank->peak_bytes, prediction_worst(prediction)->peak_bytes));
        (void)snprintf(step->formula, sizeof step->formula, "stage %d, not stage %d",
                       v->rank->stage, prediction_worst(prediction)->stage);
    }
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        sum += v->rank->item_bytes[outside[i]];
    if (v->assume->metric != FIGURE_ALLOCATED)
        return;
    struct adjustment *step =
        add(ret, "not allocated", "what torch's allocator does not hold", difference(0, sum));
    (void)snprintf(step->formula, sizeof step->formula,
                   "communicators, context, modules, room that stays empty");
}

/* What the delta rule takes at the other ranks' tokens too: (cp - 1) times its own part. */
static double whole_rule_seconds(const struct prediction *p)
{
    int cp = p->plan.choices.layout.cp;
    return (cp - 1) * p->time.item_seconds[TIME_LINEAR_ATTENTION];
}

/* Projections of the other ranks, 2 (cp - 1) T (2Kd + 2Vd) bytes a layer and pass at the rate that
 * gathers reach; forward, replay, and backward the sum of their gradients. */
static double whole_gather_seconds(const struct prediction *p)
{
    const struct layout *l = &p->plan.choices.layout;
    const struct hardware *h = &p->plan.hardware;
    struct step_sizes shape;
    int layers = 0;
    layer_sizes(&p->input, 0, &shape);
    for (int i = 0; i < p->plan.model.layers; i++)
        layers += p->plan.model.layer_mixer[i] == MIXER_GDN;
    double bytes =
        2.0 * (l->cp - 1) * (double)shape.rows[ROWS_TOKENS] * (double)shape.width[WIDTH_DELTA_IN];
    bool near = l->tp * l->cp <= h->domain_gpus;
    double rate = near ? h->link_bytes_per_second * h->gather_efficiency
                       : h->network_bytes_per_second * h->network_efficiency;
    return 3 * bytes / rate * layers / l->pp * l->micro_batches;
}

/* The bubble is a share of the step, so what stages do longer counts 1 / (1 - bubble) times. */
static void adjust_seconds(const struct prediction *p, struct adjusted *ret)
{
    double more = whole_rule_seconds(p) + whole_gather_seconds(p);
    ret->seconds = p->time.seconds;
    ret->whole_seconds = ret->seconds + more / (1 - p->time.bubble_fraction);
}

static int check(const struct prediction *p, const struct rank_budget *rank, struct pos at,
                 struct diag_list *reterr)
{
    const struct primitives *primitives = &p->plan.choices.primitives;
    if (primitives->recompute != RECOMPUTE_FULL || primitives->offload != 0 ||
        (primitives->sharding != SHARDING_ZERO1 && primitives->sharding != SHARDING_FSDP)) {
        diag_error(reterr, at,
                   "the other engine's rules are known for full recompute, nothing on "
                   "the host, and sharding zero1 or fsdp");
        return diag_hint(reterr, "recompute=full, offload=none, sharding=zero1");
    }
    if (rank->peak_phase.kind == PHASE_BACKWARD)
        return 0;
    diag_error(reterr, at, "the peak of rank %d is not in the backward of a layer", rank->rank);
    return diag_hint(reterr,
                     "the rules say what a layer holds; loss=linear_ce keeps the loss small");
}

int engine_adjust(const struct prediction *prediction, const struct assumptions *assumptions,
                  struct pos at, struct adjusted *ret, struct diag_list *reterr)
{
    struct view v = { .in = &prediction->input, .assume = assumptions };
    v.rank = assumptions->rank == FIGURE_FIRST ? prediction_rank(prediction, 0)
                                               : prediction_worst(prediction);
    v.sharded = prediction->plan.choices.primitives.sharding == SHARDING_FSDP;
    memset(ret, 0, sizeof *ret);
    if (check(prediction, v.rank, at, reterr) != 0)
        return -1;
    v.stage = stage_at(prediction->predictor, v.rank->stage);
    v.units = shared_units(prediction->predictor);
    v.classes = &prediction->predictor->classes;
    ret->peak_bytes = prediction_worst(prediction)->peak_bytes;
    adjust_metric(&v, prediction, ret);
    adjust_shards(&v, ret);
    adjust_gathered(&v, ret);
    adjust_gradients(&v, ret);
    adjust_layers(&v, ret);
    adjust_experts(&v, ret);
    adjust_seconds(prediction, ret);
    int64_t sum = (int64_t)ret->peak_bytes;
    for (int i = 0; i < ret->count; i++)
        sum += ret->step[i].bytes;
    ret->shared_bytes = (uint64_t)sum;
    ret->whole_bytes =
        ret->shared_bytes + layers_bytes(&v, DELTA_WHOLE) - layers_bytes(&v, DELTA_SHARED);
    return 0;
}
