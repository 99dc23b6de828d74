/* stage.c - one micro-batch of a stage, its layers counted by kind, and what comes once a step. */
#include "planner/time/stage.h"

#include "base/layout/trained.h"

#include <string.h>

static double positive(double value)
{
    return value > 0 ? value : 0;
}

/* What gathers and reduce-scatters of a unit leave exposed. Gathers hide behind the pass when
 * units are gathered ahead; a reduce-scatter ends before the next unit's backward begins, unless it
 * has a stream of its own. What hides takes processors from the computation beside it. */
static double exposed_unit(const struct budget_input *in, const struct unit_seconds *unit,
                           double forward, double backward)
{
    const struct primitives *p = &in->choices->primitives;
    double gather = unit->gather, scatter = unit->scatter, exposed;
    bool ahead = p->prefetch_units > 0;
    if (p->comm_streams > 1)
        exposed = (ahead ? positive(gather - forward) : 2 * gather) +
                  positive((ahead ? gather : 0) + scatter - backward);
    else
        exposed = ahead ? positive(gather - forward) + positive(gather - backward) + scatter
                        : 2 * gather + scatter;
    return exposed + in->hardware->gather_contention * (2 * gather + scatter - exposed);
}

/* The first layer's weights have only the embedding to come behind, the last gradients only the
 * embedding's to leave behind: what exposed_unit lets hide there does not. */
static double exposed_ends(const struct budget_input *in, const struct unit_seconds *unit,
                           double forward, double backward, bool first)
{
    const struct primitives *p = &in->choices->primitives;
    bool ahead = p->prefetch_units > 0, behind = p->comm_streams > 1;
    double gather = ahead && first ? unit->gather : 0, scatter = behind ? unit->scatter : 0;
    double hidden = gather - positive(gather - forward) + scatter - positive(scatter - backward);
    return (1 - in->hardware->gather_contention) * hidden;
}

static void add_pass(struct pass *to, const struct pass *pass)
{
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        to->item[i] += pass->item[i];
}

void kind_seconds_init(const struct budget_input *in, const struct machine *machine,
                       uint64_t received, enum mixer mixer, enum ffn ffn, struct kind_seconds *ret)
{
    struct residency_shape shape;
    struct layer_shape layer;
    struct layer_cost cost;
    memset(&cost, 0, sizeof cost);
    working_shape(in, received, &shape);
    layer_shape_init(in, machine, &shape, received, &layer);
    compute_cost(&layer, mixer, ffn, &cost);
    exposed_cost(in, received, mixer, ffn, &cost);
    ret->forward = compute_seconds(&cost.forward);
    ret->alone = pass_seconds(&cost.forward);
    double backward = compute_seconds(&cost.backward);
    ret->hiding[0] = backward + compute_seconds(&cost.nested);
    ret->hiding[1] = backward + compute_seconds(&cost.replay);
    ret->layer[0] = cost.backward;
    add_pass(&ret->layer[0], &cost.forward);
    ret->layer[1] = ret->layer[0];
    add_pass(&ret->layer[0], &cost.nested);
    add_pass(&ret->layer[1], &cost.replay);
}

void unit_seconds_init(const struct budget_input *in, const struct unit *unit,
                       struct unit_seconds *ret)
{
    *ret = (struct unit_seconds){ .gather = unit_gather_seconds(in, unit),
                                  .scatter = unit_scatter_seconds(in, unit) };
}

/* Trained elements of a stage's parts. */
struct elements {
    double dense, expert; /* whole */
    double n, e;          /* ranks that share them */
    double gradients;     /* a rank's: held for the whole step */
    double updated;       /* a rank's */
    double second;        /* of these, with a second moment */
};

static void elements_init(const struct budget_input *in, const struct stage_sums *stage,
                          struct elements *ret)
{
    const struct layout *l = &in->choices->layout;
    enum sharding sharding = in->choices->primitives.sharding;
    bool whole = sharding == SHARDING_REPLICATED;
    bool scattered = sharding == SHARDING_FSDP || sharding == SHARDING_ZERO2;
    *ret = (struct elements){ .dense = stage->dense.all, .expert = stage->expert.all };
    ret->n = whole ? 1 : layout_dense_shards(l);
    ret->e = whole ? 1 : layout_expert_shards(l);
    ret->updated = ret->dense / ret->n + ret->expert / ret->e;
    ret->second = stage->dense.second / ret->n + stage->expert.second / ret->e;
    ret->gradients = scattered ? ret->updated : ret->dense + ret->expert;
}

/* Rows of the table read and written; in backward rows of the gradient added to. */
static double embedding_seconds(const struct budget_input *in, const struct machine *machine)
{
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    double elements = (double)norm_tokens(in) * in->model->hidden;
    unsigned trained = trained_components(&in->choices->primitives);
    if (!has_component(trained, COMPONENT_EMBEDDING))
        return machine->kernel + 4 * elements * machine->moved_byte;
    return 2 * machine->kernel + (4 + 2 + 2 * grad) * elements * machine->moved_byte;
}

/* Bytes of one part's gradient buffer, zeroed for each micro-batch, and of its slice, added to the
 * resident one. */
static double buffer_bytes(double elements, int shards, double grad)
{
    return shards > 1 ? grad * elements + 3 * grad * elements / shards : 0;
}

static double unit_passes(const struct budget_input *in, const struct elements *part)
{
    const struct layout *l = &in->choices->layout;
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    if (in->choices->primitives.sharding != SHARDING_FSDP)
        return 0;
    return buffer_bytes(part->dense, layout_dense_shards(l), grad) +
           buffer_bytes(part->expert, layout_expert_shards(l), grad);
}

/* A layer's input goes to the host while the layer computes, and comes back while the one above
 * does. */
static double exposed_offload(const struct budget_input *in, const struct kind_seconds *kind,
                              int replayed)
{
    double bytes = 2.0 * (double)norm_tokens(in) * in->model->hidden;
    double seconds = over(bytes, in->hardware->host_link_bytes_per_second);
    if (!(in->choices->primitives.offload & OFFLOAD_CHECKPOINTS))
        return 0;
    return positive(seconds - kind->forward) + positive(seconds - kind->hiding[replayed]);
}

static void add_layers(const struct step_terms *t, const struct stage_sums *stage, enum mixer mixer,
                       enum ffn ffn, struct pass *ret)
{
    const struct kind_seconds *kind = t->kinds[mixer][ffn];
    const struct unit_seconds *unit = &t->units[mixer][ffn];
    for (int replayed = 0; replayed < 2; replayed++) {
        double count = stage->layers[mixer][ffn][replayed];
        if (count <= 0)
            continue;
        for (int i = 0; i < TIME_ITEM_COUNT; i++)
            ret->item[i] += count * kind->layer[replayed].item[i];
        ret->item[TIME_EXPOSED_GATHER] +=
            count * exposed_unit(t->in, unit, kind->forward, kind->hiding[replayed]);
        ret->item[TIME_EXPOSED_OFFLOAD] += count * exposed_offload(t->in, kind, replayed);
    }
}

/* Trained prediction layers, on the head's stage. Each joins hidden states and embeddings, 2 H to H
 * (a product forward, two backward, of 2 x 2 H x H / tp FLOPs a token), is a layer more of its
 * kind, and goes through the head and its loss once more (DeepSeek-AI, DeepSeek-V3, section 2.2).
 */
static void add_predictions(const struct step_terms *t, struct pass *ret)
{
    const struct budget_input *in = t->in;
    const struct model *m = in->model;
    const struct kind_seconds *kind = t->kinds[model_mtp_mixer(m)][model_mtp_ffn(m)];
    int replayed = in->choices->primitives.recompute == RECOMPUTE_FULL;
    double joins = 3 * 2.0 * 2 * m->hidden * m->hidden / in->choices->layout.tp;
    if (!m->mtp_trained)
        return;
    for (int i = 0; i < m->mtp_layers; i++) {
        add_pass(ret, t->loss);
        if (kind)
            add_pass(ret, &kind->layer[replayed]);
        ret->item[TIME_MATMUL] += joins * (double)local_tokens(in) * t->machine->flop;
    }
}

/* One micro-batch. */
static void stage_pass(const struct step_terms *t, const struct stage_sums *stage,
                       const struct elements *part, struct pass *ret)
{
    const struct budget_input *in = t->in;
    const struct layout *l = &in->choices->layout;
    double ends = 0;
    memset(ret, 0, sizeof *ret);
    for (int mixer = 0; mixer < MIXER_COUNT; mixer++)
        for (int ffn = 0; ffn < FFN_COUNT; ffn++) {
            const struct kind_seconds *kind = t->kinds[mixer][ffn];
            if (!kind)
                continue;
            add_layers(t, stage, (enum mixer)mixer, (enum ffn)ffn, ret);
            double seconds = exposed_ends(in, &t->units[mixer][ffn], kind->forward, kind->hiding[1],
                                          stage->has_embedding);
            ends = seconds > ends ? seconds : ends;
        }
    ret->item[TIME_EXPOSED_GATHER] += ends;
    if (stage->has_head) {
        add_pass(ret, t->loss);
        add_predictions(t, ret);
        struct unit_seconds gradients = { .scatter = t->head.scatter };
        ret->item[TIME_EXPOSED_GATHER] += exposed_unit(in, &gradients, 0, ret->item[TIME_LOSS]);
    }
    if (stage->has_embedding) {
        ret->item[TIME_EXPOSED_GATHER] += t->embedding.gather + t->embedding.scatter;
        ret->item[TIME_ELEMENTWISE] += embedding_seconds(in, t->machine);
    }
    ret->item[TIME_ELEMENTWISE] += unit_passes(in, part) * t->machine->moved_byte;
    struct ranks stages = { l->pp, layout_world(l) / l->pp };
    double bytes = 2.0 * (double)norm_tokens(in) * in->model->hidden;
    ret->item[TIME_PIPELINE] =
        2 * (l->vpp > 1 ? l->vpp : 1) * send_seconds(in->hardware, stages, bytes);
}

/* Layers of a forward that keeps nothing. */
static double forward_layers(const struct step_terms *t, const struct stage_sums *stage)
{
    bool ahead = t->in->choices->primitives.prefetch_units > 0;
    double ret = 0;
    for (int mixer = 0; mixer < MIXER_COUNT; mixer++)
        for (int ffn = 0; ffn < FFN_COUNT; ffn++) {
            const struct kind_seconds *kind = t->kinds[mixer][ffn];
            double layers = stage->layers[mixer][ffn][0] + stage->layers[mixer][ffn][1];
            if (!kind)
                continue;
            double gather = t->units[mixer][ffn].gather;
            ret += layers * (kind->alone + (ahead ? positive(gather - kind->forward) : gather));
        }
    return ret;
}

/* One micro-batch through the stage for log-probabilities. */
static double logprob_seconds(const struct step_terms *t, const struct stage_sums *stage)
{
    const struct budget_input *in = t->in;
    const struct layout *l = &in->choices->layout;
    struct ranks stages = { l->pp, layout_world(l) / l->pp };
    double bytes = 2.0 * (double)norm_tokens(in) * in->model->hidden;
    double ret = forward_layers(t, stage) + send_seconds(in->hardware, stages, bytes);
    if (stage->has_embedding)
        ret += t->embedding.gather + t->machine->kernel + 2 * bytes * t->machine->moved_byte;
    return ret + (stage->has_head ? t->logprob : 0);
}

/* The reference's weights from the host for each micro-batch, beyond the pass that hides them. */
static double reference_link_seconds(const struct step_terms *t, const struct elements *part,
                                     double pass)
{
    const struct primitives *p = &t->in->choices->primitives;
    bool sharded = p->sharding == SHARDING_FSDP;
    double held =
        sharded ? part->dense / part->n + part->expert / part->e : part->dense + part->expert;
    if (!(p->rl & RL_REFERENCE) || p->reference_weights != REFERENCE_HOST || p->lora_rank > 0)
        return 0;
    return positive(over(2 * held, t->in->hardware->host_link_bytes_per_second) - pass);
}

static void add_logprob(const struct step_terms *t, const struct stage_sums *stage,
                        const struct elements *part, struct step_sums *sums)
{
    if (logprob_passes(&t->in->choices->primitives) == 0)
        return;
    double pass = logprob_seconds(t, stage), link = reference_link_seconds(t, part, pass);
    sums->slowest_logprob = pass > sums->slowest_logprob ? pass : sums->slowest_logprob;
    sums->reference_link = link > sums->reference_link ? link : sums->reference_link;
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

/* AdamW is called for runs of tensors that decay alike, the norm for each part of a unit: of a
 * layer about six dense runs, and the experts. */
static double optimizer_calls(const struct stage_sums *stage)
{
    double ret = 4;
    for (int mixer = 0; mixer < MIXER_COUNT; mixer++)
        for (int ffn = 0; ffn < FFN_COUNT; ffn++) {
            double layers = stage->layers[mixer][ffn][0] + stage->layers[mixer][ffn][1];
            ret += layers * (ffn == FFN_MOE ? 2 + 6 + 1 : 1 + 6);
        }
    return ret;
}

/* Bytes that the update of a rank's elements reads and writes, once each: master weights and
 * moments, which the optimizer may keep on the host. Without a master the weight is read. */
static double state_bytes(const struct primitives *p, const struct elements *part)
{
    double moment = (double)moment_bytes(p);
    return ((double)master_bytes(p) + moment) * part->updated + moment * part->second;
}

/* Master and moments read and written; the gradient read, twice with its norm; the weight written,
 * 2, and read where it is its own master; AdamW in fp32: 26 + 2g. A matrix of Muon's is written in
 * bf16, read for its norm, and read as an update: 6. From host memory, master and moments come
 * while others go. */
static double update_seconds(const struct budget_input *in, const struct elements *part)
{
    const struct hardware *h = in->hardware;
    const struct primitives *p = &in->choices->primitives;
    double grad = (double)dtype_bytes(p->grad_dtype), state = state_bytes(p, part);
    double weight = p->master == MASTER_NONE ? 4 : 2, muon = 6 * (part->updated - part->second);
    double reached = h->optimizer_efficiency > 0 ? h->optimizer_efficiency : h->memory_efficiency;
    double both = h->host_link_both_bytes_per_second;
    if (!(p->offload & OFFLOAD_OPTIMIZER))
        return over(2 * state + (weight + 2 * grad) * part->updated + muon,
                    h->memory_bytes_per_second * reached);
    if (both > 0)
        return over(state + grad * part->updated, both);
    return over(2 * state + (2 + grad) * part->updated, h->host_link_bytes_per_second);
}

static double optimizer_seconds(const struct step_terms *t, const struct stage_sums *stage,
                                const struct elements *part)
{
    double calls = optimizer_calls(stage);
    double device = calls * t->machine->kernel + update_seconds(t->in, part);
    double host = calls * t->machine->launch;
    return device > host ? device : host;
}

/* Gradients zeroed at the step's start; a device does so beside the forward. */
static double zeroing_seconds(const struct step_terms *t, const struct stage_sums *stage,
                              const struct elements *part)
{
    double grad = (double)dtype_bytes(t->in->choices->primitives.grad_dtype), forward = 0;
    double seconds = grad * part->gradients * t->machine->moved_byte;
    if (t->in->hardware->host)
        return seconds;
    for (int mixer = 0; mixer < MIXER_COUNT; mixer++)
        for (int ffn = 0; ffn < FFN_COUNT; ffn++) {
            const int *layers = stage->layers[mixer][ffn];
            if (t->kinds[mixer][ffn])
                forward += (layers[0] + layers[1]) * t->kinds[mixer][ffn]->forward;
        }
    return positive(seconds - forward);
}

/* What comes once a step: gradients zeroed at its start; reduced, and weights updated, at its end.
 */
static void end_of_step(const struct step_terms *t, const struct stage_sums *stage,
                        const struct elements *part, double *item)
{
    item[TIME_ELEMENTWISE] = zeroing_seconds(t, stage, part);
    item[TIME_REDUCE] = reduce_seconds(t->in, part);
    item[TIME_OPTIMIZER] = optimizer_seconds(t, stage, part);
    if (t->in->choices->primitives.optimizer == OPTIMIZER_MUON)
        muon_end(t, stage, item);
}

/* The slowest stage paces the pipeline; the end of the step is that of the stage with the most. */
void step_sums_add(const struct step_terms *terms, const struct stage_sums *stage,
                   struct step_sums *sums)
{
    struct elements part;
    struct pass pass;
    double item[TIME_ITEM_COUNT] = { 0 };
    elements_init(terms->in, stage, &part);
    stage_pass(terms, stage, &part, &pass);
    add_logprob(terms, stage, &part, sums);
    end_of_step(terms, stage, &part, item);
    double seconds = pass_seconds(&pass), end = item[TIME_REDUCE] + item[TIME_OPTIMIZER];
    if (!sums->any || seconds > sums->slowest_seconds) {
        sums->slowest_seconds = seconds;
        sums->slowest = pass;
    }
    if (!sums->any || end > sums->longest_end) {
        sums->longest_end = end;
        memcpy(sums->end, item, sizeof item);
    }
    sums->any = true;
}

/* Ranks of one machine that are more than its cores take turns. */
static double turns(const struct budget_input *in)
{
    const struct hardware *h = in->hardware;
    return h->host && h->cores > 0 && in->gpus > h->cores ? (double)in->gpus / h->cores : 1;
}

void step_seconds(const struct budget_input *in, const struct step_sums *sums,
                  struct step_time *ret)
{
    const struct layout *l = &in->choices->layout;
    double m = micro_batches_of(in), v = l->vpp > 1 ? l->vpp : 1;
    m = m > 0 ? m : 1;
    double taken = turns(in), seconds = 0;
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        ret->item_seconds[i] = taken * (m * sums->slowest.item[i] + sums->end[i]);
    ret->item_seconds[TIME_BUBBLE] = taken * (l->pp - 1) / v * sums->slowest_seconds;
    ret->item_seconds[TIME_LOGPROBS] = taken * (logprob_passes(&in->choices->primitives) *
                                                    (m + (l->pp - 1) / v) * sums->slowest_logprob +
                                                m * sums->reference_link);
    ret->bubble_fraction = (l->pp - 1) / (m * v + l->pp - 1);
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        seconds += ret->item_seconds[i];
    ret->seconds = seconds;
    ret->exposed_communication_seconds = 0;
    for (int i = TIME_EXPOSED_GATHER; i <= TIME_PIPELINE; i++)
        ret->exposed_communication_seconds += ret->item_seconds[i];
    ret->exposed_communication_seconds += ret->item_seconds[TIME_REDUCE];
}
