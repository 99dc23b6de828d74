/* step_time.c - the seconds of a step: layers of the slowest stage, micro-batch by micro-batch, the
 * pipeline's bubble, and what comes once at the end. */
#include "planner/predict/step_time.h"

#include "base/layout/trained.h"
#include "planner/predict/shared.h"

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
    [TIME_EXPOSED_OFFLOAD] = "exposed_offload",
    [TIME_PIPELINE] = "pipeline",
    [TIME_BUBBLE] = "bubble",
    [TIME_REDUCE] = "reduce",
    [TIME_OPTIMIZER] = "optimizer",
    [TIME_LOGPROBS] = "log_probabilities",
    [TIME_HOST] = "host",
};

/* Local tokens at which a kind's forward is as long as its unit's gather; of the unit whose gather
 * hides worst. */
static void note_gather(const struct budget_input *in, const struct kind_seconds *kind,
                        const struct unit_seconds *unit, struct step_time *ret)
{
    double per_token = over(kind->forward, (double)local_tokens(in));
    double tokens = over(unit->gather, per_token);
    if (unit->gather <= 0 || tokens <= (double)ret->min_tokens_to_hide_gather)
        return;
    ret->min_tokens_to_hide_gather = (uint64_t)tokens + 1;
    ret->gather_seconds_per_unit = unit->gather;
    ret->compute_seconds_per_unit = kind->forward;
}

/* Rows received in a layer, on average. */
static uint64_t measured_rows(const struct measured_rank *rank)
{
    double sum = 0;
    for (size_t i = 0; i < rank->routed_count; i++)
        sum += (double)rank->routed[i].rows_received;
    return rank->routed_count > 0 ? (uint64_t)(sum / (double)rank->routed_count) : 0;
}

static void note_gathers(const struct step_terms *t, struct step_time *ret)
{
    for (int c = 0; c < t->classes->count; c++)
        note_gather(t->in, &t->kinds[c], &t->units->layer[c].seconds, ret);
}

/* FLOPs a token of a layer's last products, which a replay leaves out: 2 x width x hidden. */
static double last_products(const struct model *m, enum ffn ffn)
{
    double expert = (double)m->moe.top_k * m->moe.width + m->moe.shared_width;
    return 2.0 * m->hidden * (ffn == FFN_MOE ? expert : (double)m->dense_width);
}

/* Weights a token multiplies by, of a layer's tensor. */
static double active(const struct model *m, const struct layer_tensor *t, double elements)
{
    return elements * (t->expert ? (double)m->moe.top_k : 1);
}

/* Whether experts are stored as [in, out], which gate and up in one matrix tell. */
static bool stores_inputs_first(const struct model *m, const struct layer_tensors *tensors)
{
    for (int k = 0; k < tensors->count; k++) {
        const struct layer_tensor *t = &tensors->items[k];
        if (t->expert && t->matrix && t->tp_axis == 1 && t->cols == 2 * (uint64_t)m->moe.width)
            return true;
    }
    return false;
}

/* A frozen weight has no gradient: 2 FLOPs a token less. An adapter's weights have 6 each, and what
 * it makes again in backward, rank x in, 2 in hardware; its part of a replay is left out. */
static void trained_flops(const struct budget_input *in, struct model_flops *ret)
{
    const struct primitives *p = &in->choices->primitives;
    const struct model *m = in->model;
    unsigned trained = trained_components(p), adapted = adapted_components(p);
    enum component head = m->tied ? COMPONENT_EMBEDDING : COMPONENT_HEAD;
    double uses = 1 + (m->mtp_trained ? m->mtp_layers : 0), rank = p->lora_rank;
    double frozen = has_component(trained, head) ? 0 : uses * m->hidden * (double)m->vocab;
    double adapters = 0, again = 0;
    for (int i = 0; i < m->layers; i++) {
        const struct layer_tensors *layer = &in->sizes->tensors[m->layer_mixer[i]][m->layer_ffn[i]];
        bool swapped = stores_inputs_first(m, layer);
        for (int k = 0; k < layer->count; k++) {
            const struct layer_tensor *t = &layer->items[k];
            double rows = (double)t->rows, cols = (double)t->cols;
            enum component c = (enum component)t->component;
            if (t->matmul && !has_component(trained, c))
                frozen += active(m, t, rows * cols);
            if (t->matrix && has_component(adapted, c)) {
                adapters += active(m, t, rank * (rows + cols));
                again += active(m, t, rank * (swapped && t->expert ? rows : cols));
            }
        }
    }
    ret->model += 6 * adapters - 2 * frozen;
    ret->hardware += 6 * adapters + 2 * again - 2 * frozen;
}

static double matmul_weights(const struct model *m, const struct layer_tensors *tensors)
{
    double ret = 0;
    for (int k = 0; k < tensors->count; k++) {
        const struct layer_tensor *t = &tensors->items[k];
        if (t->matmul)
            ret += active(m, t, (double)t->rows * (double)t->cols);
    }
    return ret;
}

/* FLOPs a token of replaying all prediction layers; their attention is what they add to that of the
 * model, without what an indexer chose. Where the trunk has such layers in halves they are both. */
static double replayed_predictions(const struct budget_input *in, const struct model_flops *all)
{
    const struct model *m = in->model;
    enum mixer mixer = model_mtp_mixer(m);
    enum ffn ffn = model_mtp_ffn(m);
    struct model trunk = *m;
    struct model_flops without;
    double weights = matmul_weights(m, &in->sizes->tensors[mixer][ffn]), seq = piece_tokens(in);
    if (weights <= 0)
        weights = matmul_weights(m, &in->sizes->tensors[mixer][FFN_NONE]) +
                  matmul_weights(m, &in->sizes->tensors[MIXER_NONE][ffn]);
    trunk.mtp_trained = false;
    model_flops_per_token(&trunk, (uint64_t)(seq + 0.5), 0, &without);
    double scores = mixer == MIXER_DSA ? (double)m->indexer.heads * m->indexer.dim * seq : 0;
    double products = m->mtp_layers * (2 * weights - last_products(m, ffn));
    double attention = (all->attention - without.attention) / 3 - m->mtp_layers * scores;
    return products + (in->choices->primitives.keep_attention ? 0 : attention);
}

/* The convention's, less what no replay runs, and with what strips run twice. */
static void hardware_flops(const struct budget_input *in, struct model_flops *ret)
{
    const struct layout *l = &in->choices->layout;
    const struct primitives *p = &in->choices->primitives;
    double left_out = 0;
    int replayed = 0;
    for (int s = 0, first = 0; s < l->pp; first += l->stage_layers[s++]) {
        int all = l->stage_layers[s], most = p->recompute_layers;
        int count = p->recompute != RECOMPUTE_FULL               ? 0
                    : most == RECOMPUTE_ALL_LAYERS || most > all ? all
                                                                 : most;
        for (int i = first; i < first + count; i++)
            left_out += last_products(in->model, (enum ffn)in->model->layer_ffn[i]);
        replayed += count;
    }
    model_flops_per_token(in->model, (uint64_t)(piece_tokens(in) + 0.5), replayed, ret);
    ret->hardware -= left_out + (p->keep_attention ? ret->attention_again : 0);
    if (model_predicts(in->model) && p->recompute == RECOMPUTE_FULL)
        ret->hardware += replayed_predictions(in, ret);
    if (p->lora_rank > 0 || p->frozen != 0)
        trained_flops(in, ret);
    if (p->vocab_strip > 0 || p->loss == LOSS_RING_DTP)
        ret->hardware += 2.0 * in->model->hidden * (double)in->model->vocab;
    if (p->rl) /* a forward is a third of forward and backward */
        ret->hardware += logprob_passes(p) * ret->model / 3;
}

static void rates(const struct budget_input *in, struct step_time *ret)
{
    const struct layout *l = &in->choices->layout;
    struct model_flops flops;
    hardware_flops(in, &flops);
    double tokens = step_tokens_of(in);
    double rate = over(tokens, ret->seconds * layout_world(l));
    ret->tokens_per_second_per_gpu = rate;
    ret->model_flops_per_second_per_gpu = rate * flops.model;
    ret->hardware_flops_per_second_per_gpu = rate * flops.hardware;
    ret->mfu = over(ret->model_flops_per_second_per_gpu, in->hardware->bf16_flops_per_second);
    ret->hfu = over(ret->hardware_flops_per_second_per_gpu, in->hardware->bf16_flops_per_second);
}

void step_time_compute(struct predictor *p, struct step_time *ret)
{
    struct kind_seconds measured[CLASSES_MAX + 1];
    struct step_sums sums = { .any = false };
    struct step_terms terms;
    const struct pipeline *pipeline = shared_pipeline(p, DETAIL_STAGES);
    memset(ret, 0, sizeof *ret);
    step_terms_init(p, &terms);
    if (p->in.measured) {
        seconds_at(p, measured_rows(p->in.measured), measured);
        terms.kinds = measured;
    }
    note_gathers(&terms, ret);
    for (int s = 0; s < pipeline->count; s++)
        step_sums_add(&terms, &pipeline->stages[s], &sums);
    step_seconds(&p->in, &sums, ret);
    rates(&p->in, ret);
}
