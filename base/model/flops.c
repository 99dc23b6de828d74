#include "base/model/count.h"

/* Mean number of keys a causal query sees: S / 2; under a window of w < S tokens, the first w
 * queries see w / 2 on average and the others w, together w (1 - w / 2S). */
static double mean_keys(const struct model *model, double seq)
{
    double window = model->gqa.window_tokens;
    if (window > 0 && window < seq)
        return window * (1 - window / (2 * seq));
    return seq / 2;
}

/* Forward FLOPs of one token in one softmax layer: scores and values, 2 x 2 x heads x head_dim a
 * key (models-hardware notes 1.1; the convention of Megatron, halved for causality). */
static double attention_forward(const struct model *model, double seq)
{
    return 4.0 * model->gqa.heads * model->gqa.head_dim * mean_keys(model, seq);
}

/* Forward FLOPs of one token in one delta-net layer: decay, read, write and output of a state of
 * key_dim x value_dim a value head, 2 each. */
static double linear_forward(const struct model *model)
{
    return 2.0 * 4.0 * model->gdn.value_heads * model->gdn.key_dim * model->gdn.value_dim;
}

static int count_mixer(const struct model *model, enum mixer mixer, int layers)
{
    int count = 0;
    for (int i = 0; i < layers; i++)
        count += model->layer_mixer[i] == mixer;
    return count;
}

void model_flops_per_token(const struct model *model, uint64_t seq_tokens, int recompute_layers,
                           struct model_flops *ret)
{
    struct model_counts counts;
    struct row_sum replayed;
    struct dims dims;
    int replay = recompute_layers < model->layers ? recompute_layers : model->layers;
    if (replay < 0)
        replay = 0;
    double attention = attention_forward(model, (double)seq_tokens), linear = linear_forward(model);
    double softmax_layers =
        count_mixer(model, MIXER_GQA, model->layers) + (model->mtp_trained ? model->mtp_layers : 0);

    model_count(model, &counts);
    dims_of(model, &dims);
    sum_layers(model, &dims, 0, replay, &replayed);
    ret->matmul = 6.0 * (double)counts.matmul_active;
    ret->attention = 3 * attention * softmax_layers;
    ret->linear_attention = 3 * linear * count_mixer(model, MIXER_GDN, model->layers);
    ret->model = ret->matmul + ret->attention + ret->linear_attention;
    /* A replay is one more forward; flash attention's backward multiplies the scores again, half a
     * forward more than the two of the model FLOPs. */
    ret->hardware = ret->model + 0.5 * attention * softmax_layers + 2.0 * (double)replayed.matmul +
                    attention * count_mixer(model, MIXER_GQA, replay) +
                    linear * count_mixer(model, MIXER_GDN, replay);
}
