/* Qwen2, Qwen3, their mixtures and vision models: softmax attention in every layer; they differ in
 * biases, in head norms, in which layers have experts, and in how a sliding window is said. */
#include "base/model/hf.h"

/* sliding_window counts only with use_sliding_window. In the dense class, layers from
 * max_window_layers on slide unless layer_types says which; in the mixture class all do. */
static void read_window(struct hf *hf, bool every_layer)
{
    struct model *m = hf->model;
    static const char *const inactive[] = { "sliding_window", "max_window_layers", "layer_types" };
    int window = 0, from = every_layer ? 0 : 28;
    bool use = false;
    hf_bool(hf, "use_sliding_window", &use);
    hf_notes(hf, inactive, sizeof inactive / sizeof inactive[0]);
    if (!use || hf_int(hf, "sliding_window", 1, &window) != 1)
        return;
    if (!every_layer)
        hf_int(hf, "max_window_layers", 0, &from);
    for (int i = from; i < m->layers; i++)
        m->layer_mixer[i] = MIXER_LOCAL;
    hf_layer_list(hf, "layer_types", m->layers, hf_window_kind, m->layer_mixer);
    hf_window_layers(hf, window);
}

/* Dual chunk attention is a form of inference beyond the length that was trained. */
static void read_dense(struct hf *hf)
{
    hf_dense_decoder(hf);
    read_window(hf, false);
    hf_note(hf, "dual_chunk_attention_config");
}

void family_qwen2_read(struct hf *hf)
{
    read_dense(hf);
    hf->model->gqa.qkv_bias = true;
}

void family_qwen2_5_vl_read(struct hf *hf)
{
    static const char *const no_matter[] = { "vision_token_id" };
    family_qwen2_read(hf);
    hf_notes(hf->root, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_vision_qwen2(hf);
}

/* An MTP layer of the trunk's kind follows the trunk. */
void family_mimo_read(struct hf *hf)
{
    family_qwen2_read(hf);
    hf_note(hf, "attention_bias"); /* of queries, keys and values, as in Qwen2 */
    hf_int(hf, "num_nextn_predict_layers", 0, &hf->model->mtp_layers);
}

/* The file's keys of experts are those of Qwen3, and a shared expert behind a scalar gate. */
void family_qwen2_moe_read(struct hf *hf)
{
    struct moe *moe = &hf->model->moe;
    hf_decoder(hf);
    hf_experts_qwen(hf);
    hf->model->gqa.qkv_bias = true;
    hf_bool(hf, "qkv_bias", &hf->model->gqa.qkv_bias);
    hf_need(hf, "shared_expert_intermediate_size", 0, &moe->shared_width);
    moe->shared_gate = moe->shared_width > 0;
    read_window(hf, false);
    hf_sparse_layers_qwen(hf);
}

void family_qwen3_read(struct hf *hf)
{
    read_dense(hf);
    hf_attention_bias(hf);
    hf->model->gqa.qk_norm = true;
}

void family_qwen3_moe_read(struct hf *hf)
{
    hf_decoder(hf);
    hf_attention_bias(hf);
    hf_experts_qwen(hf);
    hf->model->gqa.qk_norm = true;
    hf_expect_bool(hf, "use_qk_norm", true);
    read_window(hf, true);
    hf_sparse_layers_qwen(hf);
}

void family_qwen3_vl_read(struct hf *hf)
{
    family_qwen3_read(hf);
    hf_vision_qwen(hf, 3);
}

void family_qwen3_vl_moe_read(struct hf *hf)
{
    family_qwen3_moe_read(hf);
    hf->model->moe.normalize_top_k = true; /* of the class; some files lack the key */
    hf_vision_qwen(hf, 3);
}
