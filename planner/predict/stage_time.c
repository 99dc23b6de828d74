/* stage.c - one micro-batch of a stage, its layers counted by kind, and the steps of stages. */
#include "planner/predict/stage_time.h"

#include "base/checked.h"
#include "base/layout/trained.h"
#include "planner/predict/layer_seconds.h"
#include "planner/predict/shared.h"

#include <string.h>

static double positive(double value)
{
    return value > 0 ? value : 0;
}

static void add_pass(struct pass *to, const struct pass *pass)
{
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        to->item[i] += pass->item[i];
}

/* All passes of a layer; what a capped schedule makes again comes with a layer that is saved. */
void kind_seconds_init(const struct budget_input *in, const struct machine *machine,
                       const struct step_sizes *sizes, enum mixer mixer,
                       const struct step_layer *layer, struct kind_seconds *ret)
{
    struct pass forward = { { 0 } }, recompute = { { 0 } }, backward = { { 0 } };
    struct pass nested = { { 0 } };
    struct layer_rates rates;
    layer_rates_init(in, machine, sizes, mixer, &rates);
    layer_seconds_fold(&layer->forward, &rates, &forward);
    layer_seconds_fold(&layer->recompute, &rates, &recompute);
    layer_seconds_fold(&layer->backward, &rates, &backward);
    if (sizes->chunks.count > 1)
        layer_seconds_fold(&layer->nested, &rates, &nested);
    ret->forward = compute_seconds(&forward);
    ret->alone = pass_seconds(&forward);
    ret->hiding[0] = compute_seconds(&backward) + compute_seconds(&nested);
    ret->hiding[1] = compute_seconds(&backward) + compute_seconds(&recompute);
    ret->layer[0] = backward;
    add_pass(&ret->layer[0], &forward);
    ret->layer[1] = ret->layer[0];
    add_pass(&ret->layer[0], &nested);
    add_pass(&ret->layer[1], &recompute);
}

void unit_seconds_init(const struct budget_input *in, const struct unit *unit,
                       struct unit_seconds *ret)
{
    *ret = (struct unit_seconds){ .gather = unit_gather_seconds(in, unit),
                                  .scatter = unit_scatter_seconds(in, unit) };
}

const struct kind_seconds *terms_prediction(const struct step_terms *terms)
{
    return model_predicts(terms->in->model) ? &terms->kinds[terms->classes->count] : NULL;
}

void step_terms_init(struct predictor *p, struct step_terms *ret)
{
    *ret = (struct step_terms){ .in = &p->in,
                                .machine = &p->machine,
                                .classes = &p->classes,
                                .units = shared_units(p),
                                .loss = shared_loss(p),
                                .kinds = shared_seconds(p, shared_body(p, -1)) };
}

/* Adds `times` parts; exact, as are whole numbers below 2^53. */
static void trained_sum_add(struct trained_sum *sum, double times, const struct trained *part)
{
    sum->all += times * (double)part->all;
    sum->second += times * (double)part->second;
}

static void add_layer_units(const struct step_terms *t, const struct stage *stage,
                            struct stage_sums *ret)
{
    for (int c = 0; c < t->classes->count; c++) {
        const struct unit *unit = &t->units->layer[c].unit;
        double times = stage->classes[c];
        ret->dense_weights += times * (double)unit->dense;
        ret->expert_weights += times * (double)unit->expert;
        trained_sum_add(&ret->dense, times, &unit->dense_trained);
        trained_sum_add(&ret->expert, times, &unit->expert_trained);
    }
}

void stage_sums_init(const struct step_terms *t, const struct stage *stage, struct stage_sums *ret)
{
    const struct budget_input *in = t->in;
    const struct unit *embedding = &t->units->embedding.unit, *head = &t->units->head.unit;
    bool tied = in->model->tied && stage->has_head, circulates = head_circulates(in);
    bool predicts = stage->has_head && model_predicts(in->model);
    bool ends = stage->has_embedding || stage->has_head;
    int buffers = stage->has_embedding + (tied && !circulates) + predicts;
    double table = (double)embedding->dense_trained.all;
    *ret = (struct stage_sums){ .dense_weights = 0 };
    add_layer_units(t, stage, ret);
    ret->dense_weights += (stage->has_embedding || tied ? (double)embedding->dense : 0) +
                          (stage->has_head ? (double)head->dense : 0);
    ret->buffered = ret->dense.all + buffers * table;
    if (stage_holds_embedding(in->model, stage))
        trained_sum_add(&ret->dense, 1, &embedding->dense_trained);
    if (stage->has_head)
        trained_sum_add(&ret->dense, 1, &head->dense_trained);
    if (stage->has_head && !circulates)
        ret->buffered += (double)head->dense_trained.all;
    if (predicts)
        ret->buffered += (double)t->units->prediction.unit.dense_trained.all;
    trained_sum_add(&ret->dense, 1, &stage_extra(t->units, stage)->unit.dense_trained);
    trained_sum_add(&ret->expert, 1, &stage_extra(t->units, stage)->unit.expert_trained);
    bool both = in->model->tied || model_predicts(in->model);
    ret->copied = both && in->choices->layout.pp > 1 && ends ? table : 0;
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

static double buffer_passes(const struct budget_input *in, const struct stage_sums *sums)
{
    const struct layout *l = &in->choices->layout;
    enum sharding sharding = in->choices->primitives.sharding;
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    if (sharding != SHARDING_FSDP && sharding != SHARDING_ZERO2)
        return 0;
    return buffer_bytes(sums->buffered, layout_dense_shards(l), grad) +
           buffer_bytes(sums->expert.all, layout_expert_shards(l), grad);
}

/* Of a stage's layer inputs those that the host takes. In the middle of a pipeline what the last of
 * its stages has: it holds the fewest inputs, so that the greatest share of them goes. */
static double offloaded_share(const struct budget_input *in, const struct stage *stage)
{
    int last = in->choices->layout.pp - 1, index = stage->index;
    bool middle = index > 0 && index < last;
    uint64_t input = mul_sat(norm_tokens(in), (uint64_t)in->model->hidden);
    struct in_flight flight = { .checkpoint = arena_bytes(input, 2) };
    if (!(in->choices->primitives.offload & OFFLOAD_CHECKPOINTS))
        return 0;
    in_flight_counts(in, middle ? last - 1 : index, stage->layers, &flight);
    double all = (double)flight.other_layers + flight.run;
    return over((double)flight.offloaded_bytes, all * (double)flight.checkpoint);
}

/* Such an input goes to the host while its layer computes, and comes back while the one above does.
 */
static double exposed_offload(const struct budget_input *in, const struct kind_seconds *kind,
                              int replayed)
{
    double bytes = 2.0 * (double)norm_tokens(in) * in->model->hidden;
    double seconds = over(bytes, in->hardware->host_link_bytes_per_second);
    return positive(seconds - kind->forward) + positive(seconds - kind->hiding[replayed]);
}

static void add_layers(const struct step_terms *t, const struct stage *stage, int class,
                       double offloaded, struct pass *ret)
{
    const struct kind_seconds *kind = &t->kinds[class];
    const int counts[2] = { stage->kept[class], stage->classes[class] - stage->kept[class] };
    for (int again = 0; again < 2; again++) {
        double count = counts[again];
        if (count <= 0)
            continue;
        for (int i = 0; i < TIME_ITEM_COUNT; i++)
            ret->item[i] += count * kind->layer[again].item[i];
        if (offloaded > 0)
            ret->item[TIME_EXPOSED_OFFLOAD] +=
                offloaded * count * exposed_offload(t->in, kind, again);
    }
}

/* All MTP layers' layers and losses in one micro-batch. */
static void add_predictions(const struct step_terms *t, struct pass *ret)
{
    const struct primitives *p = &t->in->choices->primitives;
    const struct pass *layer = &terms_prediction(t)->layer[p->recompute == RECOMPUTE_FULL];
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        ret->item[i] += t->in->model->mtp_layers * (t->loss->pass.item[i] + layer->item[i]);
}

/* One micro-batch. */
static void stage_pass(const struct step_terms *t, const struct stage *stage,
                       const struct stage_sums *sums, struct pass *ret)
{
    const struct budget_input *in = t->in;
    const struct layout *l = &in->choices->layout;
    double offloaded = offloaded_share(in, stage);
    memset(ret, 0, sizeof *ret);
    for (int c = 0; c < t->classes->count; c++)
        add_layers(t, stage, c, offloaded, ret);
    ret->item[TIME_EXPOSED_GATHER] += exposed_gathers(t, stage);
    if (stage->has_head)
        add_pass(ret, &t->loss->pass);
    if (stage->has_head && terms_prediction(t))
        add_predictions(t, ret);
    if (stage->has_embedding) {
        ret->item[TIME_ELEMENTWISE] += embedding_seconds(in, t->machine);
        ret->item[TIME_EXPOSED_TENSOR] += 2 * hidden_tensor_seconds(in);
    }
    ret->item[TIME_ELEMENTWISE] += buffer_passes(in, sums) * t->machine->moved_byte;
    struct ranks stages = { l->pp, layout_world(l) / l->pp };
    double bytes = 2.0 * (double)norm_tokens(in) * in->model->hidden;
    ret->item[TIME_PIPELINE] =
        2 * (l->vpp > 1 ? l->vpp : 1) * send_seconds(in->hardware, stages, bytes);
}

/* One micro-batch through the stage for log-probabilities, which keeps nothing. */
static double logprob_seconds(const struct step_terms *t, const struct stage *stage)
{
    const struct budget_input *in = t->in;
    const struct layout *l = &in->choices->layout;
    struct ranks stages = { l->pp, layout_world(l) / l->pp };
    double bytes = 2.0 * (double)norm_tokens(in) * in->model->hidden;
    double ret = exposed_forward_gathers(t, stage) + send_seconds(in->hardware, stages, bytes);
    for (int c = 0; c < t->classes->count; c++)
        ret += stage->classes[c] * t->kinds[c].alone;
    if (stage->has_embedding)
        ret += t->machine->kernel + 2 * bytes * t->machine->moved_byte + hidden_tensor_seconds(in);
    return ret + (stage->has_head ? t->loss->logprob : 0);
}

/* The reference's weights from the host for each micro-batch, beyond the pass that hides them. */
static double reference_link_seconds(const struct step_terms *t, const struct stage_sums *sums,
                                     const struct elements *part, double pass)
{
    const struct primitives *p = &t->in->choices->primitives;
    bool sharded = p->sharding == SHARDING_FSDP;
    double held = sums->dense_weights / (sharded ? part->n : 1) +
                  sums->expert_weights / (sharded ? part->e : 1);
    if (!(p->rl & RL_REFERENCE) || p->reference_weights != REFERENCE_HOST || p->lora_rank > 0)
        return 0;
    return positive(over(2 * held, t->in->hardware->host_link_bytes_per_second) - pass);
}

static void add_logprob(const struct step_terms *t, const struct stage *stage,
                        const struct stage_sums *state, const struct elements *part,
                        struct step_sums *sums)
{
    if (logprob_passes(&t->in->choices->primitives) == 0)
        return;
    double pass = logprob_seconds(t, stage), link = reference_link_seconds(t, state, part, pass);
    sums->slowest_logprob = pass > sums->slowest_logprob ? pass : sums->slowest_logprob;
    sums->reference_link = link > sums->reference_link ? link : sums->reference_link;
}

/* The slowest stage paces the pipeline; the end of the step is that of the stage with the most. */
void step_sums_add(const struct step_terms *terms, const struct stage *stage,
                   struct step_sums *sums)
{
    struct stage_sums state;
    struct elements part;
    struct pass pass;
    double item[TIME_ITEM_COUNT] = { 0 };
    stage_sums_init(terms, stage, &state);
    elements_init(terms->in, &state, &part);
    stage_pass(terms, stage, &state, &pass);
    add_logprob(terms, stage, &state, &part, sums);
    end_of_step(terms, stage, &state, &part, item);
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
