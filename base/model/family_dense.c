/* Dense decoders of many makers, each the Llama line with something of its own: Phi-3 and 4,
 * Mistral 3, OLMo 2 and 3, ERNIE 4.5, Seed-OSS, Hunyuan, Granite, SmolLM3. */
#include "base/model/hf.h"

#include <string.h>

/* Queries, keys and values in one matrix, gate and up in another: the same numbers. */
void family_phi3_read(struct hf *hf)
{
    static const char *const no_matter[] = { "interpolate_factor", "full_attn_mod" };
    hf_dense_decoder(hf);
    hf_window(hf);
    hf_expect_bool(hf, "attention_bias", false);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}

/* The text part is Mistral's or Ministral 3's, which differ in rope. */
void family_mistral3_read(struct hf *hf)
{
    const char *type = "mistral";
    (void)hf_text(hf, "model_type", &type);
    if (strcmp(type, "mistral") != 0 && strcmp(type, "ministral3") != 0)
        diag_error(hf->errors, hf_place(hf, "model_type"),
                   "a text part of model_type '%s' is not read by this architecture", type);
    hf->defaults = strcmp(type, "mistral") == 0 ? "num_key_value_heads 8, sliding_window 4096"
                                                : "num_key_value_heads 8, head_dim 128";
    family_mistral_read(hf);
    hf_vision_pixtral(hf);
}

/* Norms over all query and all key heads together, and behind both halves instead of before. */
void family_olmo2_read(struct hf *hf)
{
    hf_dense_decoder(hf);
    hf_attention_bias(hf);
    hf->model->gqa.qk_norm_wide = true;
    hf_unplanned(hf, "norms behind attention and MLP instead of before");
}

void family_olmo3_read(struct hf *hf)
{
    struct model *m = hf->model;
    int window = 4096;
    family_olmo2_read(hf);
    hf_int(hf, "sliding_window", 1, &window);
    for (int i = 0; i < m->layers; i++)
        m->layer_mixer[i] = (i + 1) % 4 != 0 ? MIXER_LOCAL : MIXER_GQA;
    hf_layer_list(hf, "layer_types", m->layers, hf_window_kind, m->layer_mixer);
    hf_window_layers(hf, window);
}

/* One key for the biases of attention and MLP. */
void family_ernie_read(struct hf *hf)
{
    struct model *m = hf->model;
    hf_dense_decoder(hf);
    hf_bool(hf, "use_bias", &m->mlp_bias);
    m->gqa.qkv_bias = m->gqa.output_bias = m->mlp_bias;
    hf->model->gqa.rope_adjacent = true;
}

void family_seed_oss_read(struct hf *hf)
{
    struct model *m = hf->model;
    hf_dense_decoder(hf);
    hf_bool(hf, "attention_bias", &m->gqa.qkv_bias);
    hf_bool(hf, "attention_out_bias", &m->gqa.output_bias);
    hf_bool(hf, "mlp_bias", &m->mlp_bias);
}

/* Head norms come behind rope; keys of the experts' sibling say that there are none. */
void hf_hunyuan_attention(struct hf *hf)
{
    static const char *const no_matter[] = { "cla_share_factor", "org_vocab_size", "norm_type" };
    struct model *m = hf->model;
    m->gqa.qk_norm = true;
    hf_bool(hf, "use_qk_norm", &m->gqa.qk_norm);
    hf_attention_bias(hf);
    hf_expect_bool(hf, "use_cla", false);
    hf_expect_int(hf, "attention_head_dim", m->gqa.head_dim);
    hf_expect_text(hf, "norm_type", "rms");
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_unrun(hf, "head norms behind rope");
}

void family_hunyuan_read(struct hf *hf)
{
    static const char *const no_matter[] = { "num_shared_expert", "moe_topk", "use_mixed_mlp_moe",
                                             "moe_intermediate_size", "moe_layer_num_skipped" };
    hf_dense_decoder(hf);
    hf_hunyuan_attention(hf);
    hf_expect_int(hf, "num_experts", 1);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}

void hf_granite_scales(struct hf *hf)
{
    static const char *const keys[] = { "embedding_multiplier", "attention_multiplier",
                                        "residual_multiplier", "logits_scaling" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        double scale = 1;
        if (hf_real(hf, keys[i], 1e-9, 1e9, &scale) == 1 && scale != 1)
            hf_unrun(hf, "scaled embeddings, residuals and logits");
    }
}

void family_granite_read(struct hf *hf)
{
    hf_dense_decoder(hf);
    hf_attention_bias(hf);
    hf_bool(hf, "mlp_bias", &hf->model->mlp_bias);
    hf_granite_scales(hf);
}

static int rope_number(const struct node *n)
{
    return n->kind == NODE_INT && n->integer >= 0 && n->integer <= 1 ? (int)n->integer : -1;
}

/* Every fourth layer has no rope; with a sliding window these are the layers that have it. */
void family_smollm3_read(struct hf *hf)
{
    struct model *m = hf->model;
    uint8_t rope[MODEL_MAX_LAYERS];
    int interval = 4, window = 0;
    bool slides = false;
    hf_dense_decoder(hf);
    hf_attention_bias(hf);
    hf_bool(hf, "mlp_bias", &m->mlp_bias);
    hf_int(hf, "no_rope_layer_interval", 1, &interval);
    for (int i = 0; i < m->layers; i++)
        rope[i] = (i + 1) % interval != 0;
    hf_layer_list(hf, "no_rope_layers", m->layers, rope_number, rope);
    hf_bool(hf, "use_sliding_window", &slides);
    hf_int(hf, "sliding_window", 1, &window);
    hf_note(hf, "max_window_layers");
    for (int i = 0; i < m->layers && slides && window > 0; i++)
        m->layer_mixer[i] = rope[i] ? MIXER_GQA : MIXER_LOCAL;
    hf_layer_list(hf, "layer_types", m->layers, hf_window_kind, m->layer_mixer);
    hf_window_layers(hf, window);
    if (hf_has(rope, m, 0))
        hf_unrun(hf, "layers without rope");
}
