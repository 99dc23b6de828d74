/* step_time.c - the seconds of a step: layers of the slowest stage, micro-batch by micro-batch, the
 * pipeline's bubble, and what comes once at the end. */
#include "planner/time/step_time.h"
#include "planner/time/cost.h"

#include <string.h>

const char *const time_item_names[TIME_ITEM_COUNT] = {
    [TIME_MATMUL] = "matmul",
    [TIME_EXPERTS] = "experts",
    [TIME_ATTENTION] = "attention",
    [TIME_LINEAR_ATTENTION] = "linear_attention",
    [TIME_ELEMENTWISE] = "elementwise",
    [TIME_LOSS] = "loss",
    [TIME_EXPOSED_GATHER] = "exposed_gather",
    [TIME_EXPOSED_EXCHANGE] = "exposed_exchange",
    [TIME_EXPOSED_CONTEXT] = "exposed_context",
    [TIME_EXPOSED_TENSOR] = "exposed_tensor",
    [TIME_PIPELINE] = "pipeline",
    [TIME_BUBBLE] = "bubble",
    [TIME_REDUCE] = "reduce",
    [TIME_OPTIMIZER] = "optimizer",
    [TIME_HOST] = "host",
};

/* One layer kind, replayed or not, with the exposed part of its unit's collectives. */
struct kind_cost {
    bool known;
    struct pass layer[2]; /* [recomputed]: all passes of one micro-batch */
    double gather, forward_compute;
};

struct model_cost {
    const struct budget_input *in;
    uint64_t received;
    struct kind_cost kinds[MIXER_COUNT][FFN_COUNT];
    uint64_t min_tokens;
    double gather, compute; /* of the unit whose gather hides worst */
};

static double positive(double value)
{
    return value > 0 ? value : 0;
}

/* What gathers and reduce-scatters of a unit leave exposed. Gathers hide behind the pass when
 * units are gathered ahead; a reduce-scatter ends before the next unit's backward begins, unless it
 * has a stream of its own. */
static double exposed_unit(const struct primitives *p, double gather, double scatter,
                           double forward, double backward)
{
    bool ahead = p->prefetch_units > 0;
    double first = ahead ? positive(gather - forward) : gather;
    if (p->comm_streams > 1)
        return first + (ahead ? 0 : gather) + positive((ahead ? gather : 0) + scatter - backward);
    return first + (ahead ? positive(gather - backward) : gather) + scatter;
}

static void add_pass(struct pass *to, const struct pass *pass)
{
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        to->item[i] += pass->item[i];
    to->launches += pass->launches;
}

static void kind_init(struct model_cost *c, enum mixer mixer, enum ffn ffn, const struct unit *unit,
                      struct kind_cost *ret)
{
    const struct budget_input *in = c->in;
    struct residency_shape shape;
    struct layer_cost cost;
    memset(&cost, 0, sizeof cost);
    working_shape(in, c->received, &shape);
    compute_cost(in, &shape, c->received, mixer, ffn, &cost);
    exposed_cost(in, c->received, mixer, ffn, &cost);
    ret->known = true;
    ret->gather = unit_gather_seconds(in, unit);
    ret->forward_compute = compute_seconds(&cost.forward);
    double scatter = unit_scatter_seconds(in, unit), back = compute_seconds(&cost.backward);
    for (int replayed = 0; replayed < 2; replayed++) {
        double hiding = back + (replayed ? ret->forward_compute : 0);
        ret->layer[replayed] = cost.backward;
        add_pass(&ret->layer[replayed], &cost.forward);
        if (replayed)
            add_pass(&ret->layer[replayed], &cost.forward);
        ret->layer[replayed].item[TIME_EXPOSED_GATHER] = exposed_unit(
            &in->choices->primitives, ret->gather, scatter, ret->forward_compute, hiding);
    }
}

/* Local tokens at which the kind's forward is as long as its unit's gather. */
static void note_gather(struct model_cost *c, const struct kind_cost *k)
{
    double per_token = over(k->forward_compute, (double)local_tokens(c->in));
    double tokens = over(k->gather, per_token);
    if (k->gather <= 0 || tokens <= (double)c->min_tokens)
        return;
    c->min_tokens = (uint64_t)tokens + 1;
    c->gather = k->gather;
    c->compute = k->forward_compute;
}

/* One micro-batch of one stage. */
static void stage_cost(struct model_cost *c, const struct stage *stage, struct pass *ret)
{
    const struct budget_input *in = c->in;
    const struct layout *l = &in->choices->layout;
    struct in_flight flight;
    in_flight_init(in, stage, &flight);
    memset(ret, 0, sizeof *ret);
    for (int i = 0; i < stage->layers; i++) {
        enum mixer mixer = (enum mixer)in->model->layer_mixer[stage->first + i];
        enum ffn ffn = (enum ffn)in->model->layer_ffn[stage->first + i];
        struct kind_cost *kind = &c->kinds[mixer][ffn];
        if (!kind->known) {
            kind_init(c, mixer, ffn, &stage->layer[i], kind);
            note_gather(c, kind);
        }
        add_pass(ret, &kind->layer[i < flight.recomputed]);
    }
    if (stage->has_head) {
        ret->item[TIME_LOSS] = loss_seconds(in);
        ret->item[TIME_EXPOSED_GATHER] +=
            exposed_unit(&in->choices->primitives, 0, unit_scatter_seconds(in, &stage->head), 0,
                         ret->item[TIME_LOSS]);
    }
    if (stage->has_embedding)
        ret->item[TIME_EXPOSED_GATHER] += unit_gather_seconds(in, &stage->embedding) +
                                          unit_scatter_seconds(in, &stage->embedding);
    struct ranks stages = { l->pp, layout_world(l) / l->pp };
    double bytes = 2.0 * (double)norm_tokens(in) * in->model->hidden;
    ret->item[TIME_PIPELINE] = 2 * send_seconds(in->hardware, stages, bytes);
}

static double pass_seconds(const struct pass *pass)
{
    double sum = 0;
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        sum += pass->item[i];
    return sum;
}

/* Elements of a stage that one rank updates, and the bytes of its gradients by group. */
static void end_of_step(const struct budget_input *in, const struct stage *stage, double *item)
{
    const struct layout *l = &in->choices->layout;
    const struct primitives *p = &in->choices->primitives;
    const struct hardware *h = in->hardware;
    double dense = (double)stage->embedding.dense * (stage->has_embedding || stage->tied_copy);
    double expert = 0, grad = (double)dtype_bytes(p->grad_dtype);
    dense += stage->has_head ? (double)stage->head.dense : 0;
    for (int i = 0; i < stage->layers; i++) {
        dense += (double)stage->layer[i].dense;
        expert += (double)stage->layer[i].expert;
    }
    bool whole = p->sharding == SHARDING_REPLICATED;
    double n = whole ? 1 : layout_dense_shards(l), e = whole ? 1 : layout_expert_shards(l);
    struct ranks d_rep = { l->d_rep, l->tp * l->cp * l->fsdp };
    struct ranks e_rep = { l->e_rep, l->etp * l->ep * l->e_fsdp };
    double reduce = 2 * gather_seconds(h, d_rep, grad * dense / n) +
                    2 * gather_seconds(h, e_rep, grad * expert / e);
    double passes = whole                           ? 2 * grad /* all-reduce */
                    : p->sharding == SHARDING_ZERO1 ? grad + 2 /* scatter, weights gathered */
                    : p->sharding == SHARDING_ZERO2 ? 2
                                                    : 0;
    reduce += gather_seconds(h, dense_shard_ranks(l), passes * dense);
    reduce += gather_seconds(h, expert_shard_ranks(l), passes * expert);
    /* Master and moments read and written, 24; the gradient read; the weight written, 2. */
    double bytes = (26 + grad) * (dense / n + expert / e);
    double rate = p->offload & OFFLOAD_OPTIMIZER
                      ? h->host_link_bytes_per_second
                      : h->memory_bytes_per_second * h->memory_efficiency;
    item[TIME_REDUCE] = reduce;
    item[TIME_OPTIMIZER] = over(bytes, rate);
}

static void rates(const struct budget_input *in, struct step_time *ret)
{
    const struct layout *l = &in->choices->layout;
    struct model_flops flops;
    int replayed = 0;
    for (int s = 0; s < l->pp && in->choices->primitives.recompute == RECOMPUTE_FULL; s++) {
        int first = in->choices->primitives.recompute_layers, all = l->stage_layers[s];
        replayed += first == RECOMPUTE_ALL_LAYERS || first > all ? all : first;
    }
    model_flops_per_token(in->model, in->seq_tokens, replayed, &flops);
    if (in->choices->primitives.vocab_strip > 0) /* each strip's logits are made twice */
        flops.hardware += 2.0 * in->model->hidden * (double)in->model->vocab;
    double tokens = (double)in->seq_tokens * l->micro_batch * layout_dp(l) * l->micro_batches;
    double rate = over(tokens, ret->seconds * layout_world(l));
    ret->tokens_per_second_per_gpu = rate;
    ret->model_flops_per_second_per_gpu = rate * flops.model;
    ret->hardware_flops_per_second_per_gpu = rate * flops.hardware;
    ret->mfu = over(ret->model_flops_per_second_per_gpu, in->hardware->bf16_flops_per_second);
    ret->hfu = over(ret->hardware_flops_per_second_per_gpu, in->hardware->bf16_flops_per_second);
}

/* The slowest stage paces the pipeline; the end of the step is that of the stage with the most. */
static void slowest_stage(struct model_cost *c, struct pass *ret, double *end)
{
    double slowest = -1, longest = -1;
    for (int s = 0; s < c->in->choices->layout.pp; s++) {
        struct stage stage;
        struct pass pass;
        double item[TIME_ITEM_COUNT] = { 0 };
        stage_init(c->in, s, &stage);
        stage_cost(c, &stage, &pass);
        end_of_step(c->in, &stage, item);
        if (pass_seconds(&pass) > slowest) {
            slowest = pass_seconds(&pass);
            *ret = pass;
        }
        if (item[TIME_REDUCE] + item[TIME_OPTIMIZER] > longest) {
            longest = item[TIME_REDUCE] + item[TIME_OPTIMIZER];
            memcpy(end, item, sizeof item);
        }
    }
}

/* Ranks of one machine that are more than its cores take turns. */
static double turns(const struct budget_input *in)
{
    const struct hardware *h = in->hardware;
    return h->host && h->cores > 0 && in->gpus > h->cores ? (double)in->gpus / h->cores : 1;
}

void step_time_compute(const struct budget_input *in, struct step_time *ret)
{
    const struct layout *l = &in->choices->layout;
    double m = l->micro_batches > 0 ? l->micro_batches : 1, v = l->vpp > 1 ? l->vpp : 1;
    struct model_cost c;
    struct pass pass = { 0 };
    double end[TIME_ITEM_COUNT] = { 0 };
    memset(ret, 0, sizeof *ret);
    memset(&c, 0, sizeof c);
    c.in = in;
    c.received = dispatch_rows(in, -1).point;
    slowest_stage(&c, &pass, end);
    pass.item[TIME_HOST] =
        positive(pass.launches * in->hardware->launch_seconds - compute_seconds(&pass));
    double once = pass_seconds(&pass);
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        ret->item_seconds[i] = turns(in) * (m * pass.item[i] + end[i]);
    ret->item_seconds[TIME_BUBBLE] = turns(in) * (l->pp - 1) / v * once;
    ret->bubble_fraction = (l->pp - 1) / (m * v + l->pp - 1);
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        ret->seconds += ret->item_seconds[i];
    for (int i = TIME_EXPOSED_GATHER; i <= TIME_PIPELINE; i++)
        ret->exposed_communication_seconds += ret->item_seconds[i];
    ret->exposed_communication_seconds += ret->item_seconds[TIME_REDUCE];
    ret->gather_seconds_per_unit = c.gather;
    ret->compute_seconds_per_unit = c.compute;
    ret->min_tokens_to_hide_gather = c.min_tokens;
    rates(in, ret);
}
