/* stage.c - one micro-batch of a stage, its layers counted by kind, and the steps of stages. */
#include "planner/time/stage.h"

#include "base/checked.h"
#include "base/layout/trained.h"

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

void stage_sums_add_ends(const struct budget_input *in, const struct stage_ends *ends,
                         struct stage_sums *ret)
{
    bool tied = in->model->tied && ret->has_head, circulates = head_circulates(in);
    bool predicts = ret->has_head && model_predicts(in->model), apart = in->choices->layout.pp > 1;
    int buffers = ret->has_embedding + (tied && !circulates) + predicts;
    double embedding = (double)ends->embedding->dense_trained.all;
    ret->dense_weights += (ret->has_embedding || tied ? (double)ends->embedding->dense : 0) +
                          (ret->has_head ? (double)ends->head->dense : 0);
    ret->buffered = ret->dense.all + buffers * embedding;
    if (ret->has_embedding || tied || predicts)
        trained_sum_add(&ret->dense, 1, &ends->embedding->dense_trained);
    if (ret->has_head)
        trained_sum_add(&ret->dense, 1, &ends->head->dense_trained);
    if (ret->has_head && !circulates)
        ret->buffered += (double)ends->head->dense_trained.all;
    if (predicts)
        ret->buffered += (double)ends->prediction->dense_trained.all;
    trained_sum_add(&ret->dense, 1, &ends->extra->dense_trained);
    trained_sum_add(&ret->expert, 1, &ends->extra->expert_trained);
    bool both = in->model->tied || model_predicts(in->model);
    ret->copied = both && apart && (ret->has_embedding || ret->has_head) ? embedding : 0;
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

static double buffer_passes(const struct budget_input *in, const struct stage_sums *stage)
{
    const struct layout *l = &in->choices->layout;
    enum sharding sharding = in->choices->primitives.sharding;
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    if (sharding != SHARDING_FSDP && sharding != SHARDING_ZERO2)
        return 0;
    return buffer_bytes(stage->buffered, layout_dense_shards(l), grad) +
           buffer_bytes(stage->expert.all, layout_expert_shards(l), grad);
}

/* Of a stage's layer inputs those that the host takes. In the middle of a pipeline what the last of
 * its stages has: it holds the fewest inputs, so that the greatest share of them goes. */
static double offloaded_share(const struct budget_input *in, const struct stage_sums *stage)
{
    int last = in->choices->layout.pp - 1, index = stage->index;
    bool middle = index > 0 && index < last;
    uint64_t input = mul_sat(norm_tokens(in), (uint64_t)in->model->hidden);
    struct in_flight flight = { .checkpoint = arena_bytes(input, 2) };
    if (!(in->choices->primitives.offload & OFFLOAD_CHECKPOINTS))
        return 0;
    in_flight_counts(in, middle ? last - 1 : index, stage->count, &flight);
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

static void add_layers(const struct step_terms *t, const struct stage_sums *stage, enum mixer mixer,
                       enum ffn ffn, double offloaded, struct pass *ret)
{
    const struct kind_seconds *kind = t->kinds[mixer][ffn];
    for (int replayed = 0; kind && replayed < 2; replayed++) {
        double count = stage->layers[mixer][ffn][replayed];
        if (count <= 0)
            continue;
        for (int i = 0; i < TIME_ITEM_COUNT; i++)
            ret->item[i] += count * kind->layer[replayed].item[i];
        if (offloaded > 0)
            ret->item[TIME_EXPOSED_OFFLOAD] +=
                offloaded * count * exposed_offload(t->in, kind, replayed);
    }
}

/* One micro-batch. */
static void stage_pass(const struct step_terms *t, const struct stage_sums *stage, struct pass *ret)
{
    const struct budget_input *in = t->in;
    const struct layout *l = &in->choices->layout;
    double offloaded = offloaded_share(in, stage);
    memset(ret, 0, sizeof *ret);
    for (int mixer = 0; mixer < MIXER_COUNT; mixer++)
        for (int ffn = 0; ffn < FFN_COUNT; ffn++)
            add_layers(t, stage, (enum mixer)mixer, (enum ffn)ffn, offloaded, ret);
    ret->item[TIME_EXPOSED_GATHER] += exposed_gathers(t, stage);
    if (stage->has_head)
        add_pass(ret, t->loss);
    if (stage->has_head && t->predicted)
        predictions_add(t, ret);
    if (stage->has_embedding) {
        ret->item[TIME_ELEMENTWISE] += embedding_seconds(in, t->machine);
        ret->item[TIME_EXPOSED_TENSOR] += 2 * embedding_tensor_seconds(in);
    }
    ret->item[TIME_ELEMENTWISE] += buffer_passes(in, stage) * t->machine->moved_byte;
    struct ranks stages = { l->pp, layout_world(l) / l->pp };
    double bytes = 2.0 * (double)norm_tokens(in) * in->model->hidden;
    ret->item[TIME_PIPELINE] =
        2 * (l->vpp > 1 ? l->vpp : 1) * send_seconds(in->hardware, stages, bytes);
}

/* One micro-batch through the stage for log-probabilities, which keeps nothing. */
static double logprob_seconds(const struct step_terms *t, const struct stage_sums *stage)
{
    const struct budget_input *in = t->in;
    const struct layout *l = &in->choices->layout;
    struct ranks stages = { l->pp, layout_world(l) / l->pp };
    double bytes = 2.0 * (double)norm_tokens(in) * in->model->hidden;
    double ret = exposed_forward_gathers(t, stage) + send_seconds(in->hardware, stages, bytes);
    for (int mixer = 0; mixer < MIXER_COUNT; mixer++)
        for (int ffn = 0; ffn < FFN_COUNT; ffn++) {
            const int *layers = stage->layers[mixer][ffn];
            if (t->kinds[mixer][ffn])
                ret += (layers[0] + layers[1]) * t->kinds[mixer][ffn]->alone;
        }
    if (stage->has_embedding)
        ret +=
            t->machine->kernel + 2 * bytes * t->machine->moved_byte + embedding_tensor_seconds(in);
    return ret + (stage->has_head ? t->logprob : 0);
}

/* The reference's weights from the host for each micro-batch, beyond the pass that hides them. */
static double reference_link_seconds(const struct step_terms *t, const struct stage_sums *stage,
                                     const struct elements *part, double pass)
{
    const struct primitives *p = &t->in->choices->primitives;
    bool sharded = p->sharding == SHARDING_FSDP;
    double held = stage->dense_weights / (sharded ? part->n : 1) +
                  stage->expert_weights / (sharded ? part->e : 1);
    if (!(p->rl & RL_REFERENCE) || p->reference_weights != REFERENCE_HOST || p->lora_rank > 0)
        return 0;
    return positive(over(2 * held, t->in->hardware->host_link_bytes_per_second) - pass);
}

static void add_logprob(const struct step_terms *t, const struct stage_sums *stage,
                        const struct elements *part, struct step_sums *sums)
{
    if (logprob_passes(&t->in->choices->primitives) == 0)
        return;
    double pass = logprob_seconds(t, stage), link = reference_link_seconds(t, stage, part, pass);
    sums->slowest_logprob = pass > sums->slowest_logprob ? pass : sums->slowest_logprob;
    sums->reference_link = link > sums->reference_link ? link : sums->reference_link;
}

/* The slowest stage paces the pipeline; the end of the step is that of the stage with the most. */
void step_sums_add(const struct step_terms *terms, const struct stage_sums *stage,
                   struct step_sums *sums)
{
    struct elements part;
    struct pass pass;
    double item[TIME_ITEM_COUNT] = { 0 };
    elements_init(terms->in, stage, &part);
    stage_pass(terms, stage, &pass);
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
