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
    struct machine machine;
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
}

static void kind_init(struct model_cost *c, enum mixer mixer, enum ffn ffn, const struct unit *unit,
                      struct kind_cost *ret)
{
    const struct budget_input *in = c->in;
    struct residency_shape shape;
    struct layer_shape layer;
    struct layer_cost cost;
    memset(&cost, 0, sizeof cost);
    working_shape(in, c->received, &shape);
    layer_shape_init(in, &c->machine, &shape, c->received, &layer);
    compute_cost(&layer, mixer, ffn, &cost);
    exposed_cost(in, c->received, mixer, ffn, &cost);
    ret->known = true;
    ret->gather = unit_gather_seconds(in, unit);
    ret->forward_compute = compute_seconds(&cost.forward);
    double scatter = unit_scatter_seconds(in, unit), back = compute_seconds(&cost.backward);
    for (int replayed = 0; replayed < 2; replayed++) {
        double hiding = back + (replayed ? compute_seconds(&cost.replay) : 0);
        ret->layer[replayed] = cost.backward;
        add_pass(&ret->layer[replayed], &cost.forward);
        if (replayed)
            add_pass(&ret->layer[replayed], &cost.replay);
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

/* Elements of a stage's parts. */
struct elements {
    double dense, expert; /* whole */
    double n, e;          /* ranks that share them */
    double gradients;     /* a rank's: held for the whole step */
    double updated;       /* a rank's */
};

static void elements_init(const struct budget_input *in, const struct stage *stage,
                          struct elements *ret)
{
    const struct layout *l = &in->choices->layout;
    enum sharding sharding = in->choices->primitives.sharding;
    bool whole = sharding == SHARDING_REPLICATED;
    bool scattered = sharding == SHARDING_FSDP || sharding == SHARDING_ZERO2;
    double dense = (double)stage->embedding.dense * (stage->has_embedding || stage->tied_copy);
    double expert = 0;
    dense += stage->has_head ? (double)stage->head.dense : 0;
    for (int i = 0; i < stage->layers; i++) {
        dense += (double)stage->layer[i].dense;
        expert += (double)stage->layer[i].expert;
    }
    *ret = (struct elements){ .dense = dense, .expert = expert };
    ret->n = whole ? 1 : layout_dense_shards(l);
    ret->e = whole ? 1 : layout_expert_shards(l);
    ret->updated = dense / ret->n + expert / ret->e;
    ret->gradients = scattered ? ret->updated : dense + expert;
}

/* Rows of the table read and written; in backward rows of the gradient added to. */
static double embedding_seconds(const struct budget_input *in, const struct machine *machine)
{
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    double elements = (double)norm_tokens(in) * in->model->hidden;
    return 2 * machine->kernel + (4 + 2 + 2 * grad) * elements * machine->moved_byte;
}

/* Bytes of one part's gradient buffer, zeroed for each micro-batch, and of its slice, added to the
 * resident one. */
static double buffer_bytes(double elements, int shards, double grad)
{
    return shards > 1 ? grad * elements + 3 * grad * elements / shards : 0;
}

static double unit_passes(const struct budget_input *in, const struct stage *stage)
{
    const struct layout *l = &in->choices->layout;
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    struct elements part;
    if (in->choices->primitives.sharding != SHARDING_FSDP)
        return 0;
    elements_init(in, stage, &part);
    return buffer_bytes(part.dense, layout_dense_shards(l), grad) +
           buffer_bytes(part.expert, layout_expert_shards(l), grad);
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
        loss_cost(in, &c->machine, ret);
        ret->item[TIME_EXPOSED_GATHER] +=
            exposed_unit(&in->choices->primitives, 0, unit_scatter_seconds(in, &stage->head), 0,
                         ret->item[TIME_LOSS]);
    }
    if (stage->has_embedding) {
        ret->item[TIME_EXPOSED_GATHER] += unit_gather_seconds(in, &stage->embedding) +
                                          unit_scatter_seconds(in, &stage->embedding);
        ret->item[TIME_ELEMENTWISE] += embedding_seconds(in, &c->machine);
    }
    ret->item[TIME_ELEMENTWISE] += unit_passes(in, stage) * c->machine.moved_byte;
    struct ranks stages = { l->pp, layout_world(l) / l->pp };
    double bytes = 2.0 * (double)norm_tokens(in) * in->model->hidden;
    ret->item[TIME_PIPELINE] = 2 * send_seconds(in->hardware, stages, bytes);
}

static double reduce_seconds(const struct budget_input *in, const struct elements *part)
{
    const struct layout *l = &in->choices->layout;
    const struct hardware *h = in->hardware;
    enum sharding sharding = in->choices->primitives.sharding;
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    struct ranks d_rep = { l->d_rep, l->tp * l->cp * l->fsdp };
    struct ranks e_rep = { l->e_rep, l->etp * l->ep * l->e_fsdp };
    struct ranks dense = dense_shard_ranks(l), expert = expert_shard_ranks(l);
    double sums = sharding == SHARDING_REPLICATED ? grad : 0;    /* all-reduce: both ways */
    double scattered = sharding == SHARDING_ZERO1 ? grad : sums; /* zero1: then gathered */
    double gathered = sharding == SHARDING_ZERO1 || sharding == SHARDING_ZERO2 ? 2 : sums;
    double ret = gather_seconds(h, d_rep, grad * part->dense / part->n) +
                 scatter_seconds(h, d_rep, grad * part->dense / part->n) +
                 gather_seconds(h, e_rep, grad * part->expert / part->e) +
                 scatter_seconds(h, e_rep, grad * part->expert / part->e);
    ret += scatter_seconds(h, dense, scattered * part->dense) +
           scatter_seconds(h, expert, scattered * part->expert);
    return ret + gather_seconds(h, dense, gathered * part->dense) +
           gather_seconds(h, expert, gathered * part->expert);
}

/* Master and moments read and written, 24; the gradient read, twice with its norm; the weight
 * written, 2. From host memory, master and moments come while others go. */
static double optimizer_seconds(const struct budget_input *in, const struct elements *part)
{
    const struct hardware *h = in->hardware;
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    double reached = h->optimizer_efficiency > 0 ? h->optimizer_efficiency : h->memory_efficiency;
    double both = h->host_link_both_bytes_per_second;
    if (!(in->choices->primitives.offload & OFFLOAD_OPTIMIZER))
        return over((26 + 2 * grad) * part->updated, h->memory_bytes_per_second * reached);
    if (both > 0)
        return over((12 + grad) * part->updated, both);
    return over((26 + grad) * part->updated, h->host_link_bytes_per_second);
}

/* What comes once a step: gradients zeroed at its start; reduced, and weights updated, at its end.
 */
static void end_of_step(const struct budget_input *in, const struct stage *stage,
                        const struct machine *machine, double *item)
{
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    struct elements part;
    elements_init(in, stage, &part);
    item[TIME_ELEMENTWISE] = grad * part.gradients * machine->moved_byte;
    item[TIME_REDUCE] = reduce_seconds(in, &part);
    item[TIME_OPTIMIZER] = optimizer_seconds(in, &part);
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
        end_of_step(c->in, &stage, &c->machine, item);
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
    machine_init(in, &c.machine);
    c.received = dispatch_rows(in, -1).point;
    slowest_stage(&c, &pass, end);
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
