#include "base/model/count.h"

/* Mean number of keys that a causal query sees: S / 2; of at most w < S: the first w queries see
 * w / 2 on average and the others w, together w (1 - w / 2S). */
static double mean_keys(double seq, double most)
{
    return most > 0 && most < seq ? most * (1 - most / (2 * seq)) : seq / 2;
}

/* A query in a chunk of c tokens sees half of it. */
static double local_keys(const struct gqa *gqa, double seq)
{
    double local = gqa->local_tokens;
    if (!gqa->local_chunked)
        return mean_keys(seq, local);
    return (local < seq ? local : seq) / 2;
}

/* Forward FLOPs of one token in one layer of softmax attention: scores and values, 2 x heads x
 * (query width + value width) a key (models-hardware notes 1.1; the convention of Megatron, halved
 * for causality). An indexer scores every key before: 2 x heads x dim a key (DeepSeek-V3.2). */
static double softmax_forward(const struct model *m, enum mixer mixer, double seq)
{
    const struct gqa *gqa = &m->gqa;
    double value = mixer_is_latent(mixer) ? m->mla.value_dim : gqa->head_dim;
    double keys = mean_keys(seq, gqa->window_tokens), scores = 0;
    if (mixer == MIXER_LOCAL)
        keys = local_keys(gqa, seq);
    if (mixer == MIXER_DSA || mixer == MIXER_DSA_SHARED)
        keys = mean_keys(seq, m->indexer.top_k);
    if (mixer == MIXER_DSA)
        scores = 2.0 * m->indexer.heads * m->indexer.dim * seq / 2;
    return 2.0 * gqa->heads * (gqa->head_dim + value) * keys + scores;
}

/* Forward FLOPs of one token in one layer of linear attention, which no length changes. Delta net:
 * decay, read, write and output of a state of key_dim x value_dim a value head, 2 each. Lightning:
 * write and output of head_dim x head_dim a head. Mamba-2: 7 an element of the state, as Megatron
 * counts its scan. */
static double linear_forward(const struct model *m, enum mixer mixer)
{
    if (mixer == MIXER_GDN)
        return 2.0 * 4.0 * m->gdn.value_heads * m->gdn.key_dim * m->gdn.value_dim;
    if (mixer == MIXER_LIGHTNING)
        return 2.0 * 2.0 * m->lightning.heads * m->lightning.head_dim * m->lightning.head_dim;
    if (mixer == MIXER_MAMBA)
        return 7.0 * m->mamba.heads * m->mamba.head_dim * m->mamba.state;
    return 0;
}

/* Forward FLOPs of one token in the mixers of the first `layers`, matrices apart. A replay does not
 * choose keys again. */
static void mixers_forward(const struct model *m, int layers, double seq, bool replay,
                           double *ret_softmax, double *ret_linear)
{
    *ret_softmax = *ret_linear = 0;
    for (int i = 0; i < layers; i++) {
        enum mixer mixer = (enum mixer)m->layer_mixer[i];
        if (replay && mixer == MIXER_DSA)
            mixer = MIXER_DSA_SHARED;
        if (mixer_is_softmax(mixer))
            *ret_softmax += softmax_forward(m, mixer, seq);
        else
            *ret_linear += linear_forward(m, mixer);
    }
}

void model_flops_per_token(const struct model *model, uint64_t seq_tokens, int recompute_layers,
                           struct model_flops *ret)
{
    struct model_counts counts;
    struct row_sum replayed;
    struct dims dims;
    double seq = (double)seq_tokens, softmax, linear, softmax_again, linear_again;
    int replay = recompute_layers < model->layers ? recompute_layers : model->layers;
    if (replay < 0)
        replay = 0;
    mixers_forward(model, model->layers, seq, false, &softmax, &linear);
    mixers_forward(model, replay, seq, true, &softmax_again, &linear_again);
    if (model->mtp_trained)
        softmax += model->mtp_layers * softmax_forward(model, model_mtp_mixer(model), seq);

    model_count(model, &counts);
    dims_of(model, &dims);
    sum_layers(model, &dims, 0, replay, &replayed);
    ret->matmul = 6.0 * (double)counts.matmul_active;
    ret->attention = 3 * softmax;
    ret->linear_attention = 3 * linear;
    ret->attention_again = softmax_again;
    ret->model = ret->matmul + ret->attention + ret->linear_attention;
    /* A replay is one more forward; flash attention's backward multiplies the scores again, half a
     * forward more than the two of the model FLOPs. */
    ret->hardware =
        ret->model + 0.5 * softmax + 2.0 * (double)replayed.matmul + softmax_again + linear_again;
}
