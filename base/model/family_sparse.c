/* Mixtures of experts of many makers whose attention and experts are kinds that others have: OLMoE,
 * ERNIE 4.5, Hunyuan, Granite, dots.llm1, Phi-3.5-MoE, Ling. */
#include "base/model/hf.h"

#include <stddef.h>
#include <string.h>

void family_olmoe_read(struct hf *hf)
{
    double clip = 0;
    hf_decoder(hf);
    hf_attention_bias(hf);
    hf->model->gqa.qk_norm_wide = true;
    hf_experts_local(hf);
    hf->model->moe.normalize_top_k = false;
    hf_bool(hf, "norm_topk_prob", &hf->model->moe.normalize_top_k);
    if (hf_real(hf, "clip_qkv", 0, 1e9, &clip) == 1 && clip != 0)
        hf_unrun(hf, "clipped queries, keys and values");
}

/* Layers from start to end, every interval-th counted from layer 0, have experts. */
static void read_ernie_layers(struct hf *hf)
{
    struct model *m = hf->model;
    int start = 1, end = m->layers - 1, interval = 1;
    hf_int(hf, "moe_layer_start_index", 0, &start);
    hf_int(hf, "moe_layer_interval", 1, &interval);
    if (hf_int(hf, "moe_layer_end_index", -1, &end) == 1 && end < 0)
        end = m->layers - 1;
    for (int i = start; i < m->layers && i <= end; i++)
        if ((i + 1) % interval == 0)
            m->layer_ffn[i] = FFN_MOE;
}

void family_ernie_moe_read(struct hf *hf)
{
    static const char *const no_matter[] = { "moe_capacity", "moe_gate", "moe_norm_min",
                                             "moe_use_aux_free" };
    struct model *m = hf->model;
    int shared = 0;
    hf_dense_decoder(hf);
    hf_expect_bool(hf, "use_bias", false);
    hf_need(hf, "moe_num_experts", 1, &m->moe.experts);
    hf_need(hf, "num_experts_per_tok", 1, &m->moe.top_k);
    hf_need(hf, "moe_intermediate_size", 1, &m->moe.width);
    hf_int(hf, "moe_num_shared_experts", 0, &shared);
    m->moe.shared_width = hf_times(shared, m->moe.width);
    m->moe.router_bias = m->moe.normalize_top_k = true;
    read_ernie_layers(hf);
    hf_int(hf, "num_nextn_predict_layers", 0, &m->mtp_layers);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf->model->gqa.rope_adjacent = true;
}

/* A number, or a list that repeats it for every layer. */
static int read_same(struct hf *hf, const char *key, int *ret)
{
    const struct node *node = node_get(hf->map, key);
    if (node == NULL || node->kind != NODE_LIST)
        return hf_int(hf, key, 0, ret);
    hf_note(hf, key);
    for (const struct node *n = node->child; n != NULL; n = n->next)
        if (n->kind != NODE_INT || n->integer < 0 || n->integer > HF_MAX_SIZE ||
            n->integer != node->child->integer)
            return diag_error(hf->errors, n->at,
                              "'%s' other than one number for all layers is "
                              "not read",
                              key);
    if (node->child != NULL)
        *ret = (int)node->child->integer;
    return 1;
}

/* Experts as wide as intermediate_size, and one shared one. */
void family_hunyuan_moe_read(struct hf *hf)
{
    static const char *const no_matter[] = { "moe_drop_tokens",
                                             "moe_random_routing_dropped_token",
                                             "use_mixed_mlp_moe",
                                             "group_limited_greedy",
                                             "routed_scaling_factor",
                                             "n_group",
                                             "topk_group" };
    struct model *m = hf->model;
    int width = 0, shared = 1;
    hf_decoder(hf);
    hf_hunyuan_attention(hf);
    hf_need(hf, "num_experts", 1, &m->moe.experts);
    hf_need(hf, "intermediate_size", 1, &m->moe.width);
    read_same(hf, "moe_topk", &m->moe.top_k);
    if (read_same(hf, "moe_intermediate_size", &width) == 1 && width != m->moe.width)
        diag_error(hf->errors, hf_place(hf, "moe_intermediate_size"),
                   "'moe_intermediate_size' other than intermediate_size is not read");
    read_same(hf, "num_shared_expert", &shared);
    m->moe.shared_width = hf_times(shared, m->moe.width);
    hf_expect_int(hf, "moe_layer_num_skipped", 0);
    m->moe.normalize_top_k = true;
    hf_bool(hf, "norm_topk_prob", &m->moe.normalize_top_k);
    memset(m->layer_ffn, FFN_MOE, (size_t)m->layers);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}

void family_granite_moe_read(struct hf *hf)
{
    hf_decoder(hf);
    hf_attention_bias(hf);
    hf_experts_local(hf);
    hf_int(hf, "shared_intermediate_size", 0, &hf->model->moe.shared_width);
    hf_granite_scales(hf);
}

static int granite_kind(const struct node *n)
{
    if (n->kind != NODE_TEXT)
        return -1;
    if (strcmp(n->text, "mamba") == 0 || strcmp(n->text, "linear_attention") == 0)
        return MIXER_MAMBA;
    bool full = strcmp(n->text, "attention") == 0 || strcmp(n->text, "full_attention") == 0;
    return full ? MIXER_GQA : -1;
}

/* A head is as wide as the layer's inner width divided by the heads, however that is written. */
static void read_granite_mamba(struct hf *hf)
{
    static const struct hf_field fields[] = {
        { "mamba_n_heads", offsetof(struct model, mamba.heads), 1, true },
        { "mamba_d_state", offsetof(struct model, mamba.state), 1, true },
        { "mamba_n_groups", offsetof(struct model, mamba.groups), 1, true },
        { "mamba_d_conv", offsetof(struct model, mamba.conv_width), 1, true },
        { "mamba_chunk_size", offsetof(struct model, mamba.chunk_tokens), 1, true },
    };
    struct mamba *mamba = &hf->model->mamba;
    int expand = 2;
    hf_fields(hf, fields, sizeof fields / sizeof fields[0]);
    hf_int(hf, "mamba_expand", 1, &expand);
    int inner = hf_times(expand, hf->model->hidden);
    if (mamba->heads > 0 && inner % mamba->heads != 0)
        diag_error(hf->errors, hf_place(hf, "mamba_n_heads"),
                   "'mamba_n_heads' %d does not divide mamba_expand x hidden_size, %d",
                   mamba->heads, inner);
    mamba->head_dim = mamba->heads > 0 ? inner / mamba->heads : 0;
    const struct node *said = node_get(hf->map, "mamba_d_head");
    hf_note(hf, "mamba_d_head");
    if (said != NULL && said->kind == NODE_INT)
        hf_expect_int(hf, "mamba_d_head", mamba->head_dim);
    hf_expect_bool(hf, "mamba_conv_bias", true);
}

/* Mamba-2 or attention, then experts with a shared one; without experts the shared one alone. */
void family_granite_hybrid_read(struct hf *hf)
{
    static const char *const no_matter[] = {
        "position_embedding_type", "normalization_function", "init_method",
        "time_step_limit",         "num_experts_per_tok",    "intermediate_size"
    };
    struct model *m = hf->model;
    int experts = 0;
    hf_decoder(hf);
    hf_attention_bias(hf);
    memset(m->layer_mixer, MIXER_MAMBA, (size_t)m->layers);
    hf_layer_list(hf, "layer_types", m->layers, granite_kind, m->layer_mixer);
    if (hf_has(m->layer_mixer, m, MIXER_MAMBA))
        read_granite_mamba(hf);
    hf_need(hf, "num_local_experts", 0, &experts);
    if (experts > 0)
        hf_experts_local(hf);
    hf_need(hf, "shared_intermediate_size", 0, &m->moe.shared_width);
    if (experts == 0) {
        m->dense_width = m->moe.shared_width;
        m->moe.shared_width = 0;
    }
    hf_granite_scales(hf);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}

void family_dots1_read(struct hf *hf)
{
    static const char *const no_matter[] = { "sliding_window", "max_window_layers" };
    struct model *m = hf->model;
    hf_decoder(hf);
    hf_attention_bias(hf);
    m->gqa.qk_norm = true;
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_layer_list(hf, "layer_types", m->layers, hf_window_kind, m->layer_mixer);
    hf_experts_deepseek(hf, "sigmoid");
}

/* LayerNorm with biases; every projection of attention and the head may have one too. */
void family_phimoe_read(struct hf *hf)
{
    static const char *const no_matter[] = { "input_jitter_noise" };
    struct model *m = hf->model;
    bool head_bias = false;
    hf_decoder(hf);
    hf_attention_bias(hf);
    hf_experts_local(hf);
    hf_window(hf);
    hf_bool(hf, "lm_head_bias", &head_bias);
    hf_part(hf, COMPONENT_NORMS, "biases of norms", 2 * m->layers + 1,
            norm_params(m->hidden, false));
    hf_part(hf, COMPONENT_HEAD, "bias of the head", head_bias, (uint64_t)m->vocab);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_unplanned(hf, "norms with biases");
}

/* Ling 1 and 2: as DeepSeek's experts with grouped-query attention, in keys of its own. */
void family_bailing_read(struct hf *hf)
{
    static const char *const no_matter[] = {
        "norm_head",
        "norm_softmax",
        "embedding_dropout",
        "output_dropout",
        "use_rmsnorm",
        "max_window_layers",
        "multi_gate",
        "head_dim",
        "moe_shared_expert_intermediate_size",
        "routed_scaling_factor",
        "n_group",
        "topk_group",
        "use_sliding_window",
        "sliding_window",
    };
    struct model *m = hf->model;
    struct moe *moe = &m->moe;
    const char *score = "softmax";
    int shared = 0, first = 0;
    hf_decoder(hf);
    hf_bool(hf, "use_qkv_bias", &m->gqa.qkv_bias);
    hf_bool(hf, "use_bias", &m->gqa.output_bias);
    hf_bool(hf, "use_qk_norm", &m->gqa.qk_norm);
    hf_need(hf, "num_experts", 1, &moe->experts);
    hf_need(hf, "num_experts_per_tok", 1, &moe->top_k);
    hf_need(hf, "moe_intermediate_size", 1, &moe->width);
    hf_int(hf, "num_shared_experts", 0, &shared);
    moe->shared_width = hf_times(shared, moe->width);
    hf_bool(hf, "norm_topk_prob", &moe->normalize_top_k);
    hf_bool(hf, "moe_router_enable_expert_bias", &moe->router_bias);
    (void)hf_text(hf, "score_function", &score);
    moe->sigmoid = strcmp(score, "sigmoid") == 0;
    hf_int(hf, "first_k_dense_replace", 0, &first);
    for (int i = first; i < m->layers; i++)
        m->layer_ffn[i] = FFN_MOE;
    hf_note(hf, "intermediate_size");
    if (first > 0)
        hf_need(hf, "intermediate_size", 1, &m->dense_width);
    hf_int(hf, "num_nextn_predict_layers", 0, &m->mtp_layers);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}
