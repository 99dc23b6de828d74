/* Models whose layers differ in a way of their own, so that parts of them are only counted:
 * MiMo-V2, Step 3.5 and 3.7, MiniMax-M3, LongCat-Flash, and those that a search over blocks made
 * (DeciLM). */
#include "base/model/hf.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

/* Softmax attention whose sizes are not the model's own. */
struct heads {
    int heads, kv_heads, dim, value_dim;
};

static uint64_t heads_params(const struct model *m, const struct heads *h, bool bias)
{
    int64_t kv = h->kv_heads;
    uint64_t in = add_sat(linear_params(m->hidden, (int64_t)h->heads * h->dim, bias),
                          linear_params(m->hidden, kv * h->dim, bias));
    return add_sat(add_sat(in, linear_params(m->hidden, kv * h->value_dim, bias)),
                   linear_params((int64_t)h->heads * h->value_dim, m->hidden, false));
}

static int hybrid_number(const struct node *n)
{
    if (n->kind != NODE_INT || n->integer < 0 || n->integer > 1)
        return -1;
    return n->integer == 1 ? MIXER_LOCAL : MIXER_GQA;
}

/* Heads in a window have twice the keys and values, and sinks. */
static void read_mimo_window(struct hf *hf, struct heads *ret, bool *ret_sinks, bool *ret_others)
{
    struct model *m = hf->model;
    *ret_sinks = true;
    ret->kv_heads = hf_times(2, ret->kv_heads);
    hf_int(hf, "swa_num_attention_heads", 1, &ret->heads);
    hf_int(hf, "swa_num_key_value_heads", 1, &ret->kv_heads);
    hf_int(hf, "swa_head_dim", 1, &ret->dim);
    hf_int(hf, "swa_v_head_dim", 1, &ret->value_dim);
    hf_bool(hf, "add_swa_attention_sink_bias", ret_sinks);
    hf_bool(hf, "add_full_attention_sink_bias", ret_others);
    m->gqa.local_tokens = 128;
    hf_int(hf, "sliding_window", 1, &m->gqa.local_tokens);
    for (int i = 0; i < m->layers; i++)
        m->layer_mixer[i] = i == 0 || (i + 1) % 6 == 0 ? MIXER_GQA : MIXER_LOCAL;
    hf_layer_list(hf, "hybrid_layer_pattern", m->layers, hybrid_number, m->layer_mixer);
    hf_layer_list(hf, "layer_types", m->layers, hf_window_kind, m->layer_mixer);
}

void family_mimo_v2_read(struct hf *hf)
{
    static const char *const no_matter[] = { "sliding_window_size", "swa_rope_theta",
                                             "attention_value_scale", "hybrid_block_size",
                                             "attention_chunk_size" };
    struct model *m = hf->model;
    bool sinks = false, full_sinks = false;
    hf_decoder(hf);
    hf_bool(hf, "attention_bias", &m->gqa.qkv_bias);
    struct heads full = { m->gqa.heads, m->gqa.kv_heads, m->gqa.head_dim, m->gqa.head_dim };
    hf_int(hf, "v_head_dim", 1, &full.value_dim);
    struct heads local = full;
    read_mimo_window(hf, &local, &sinks, &full_sinks);
    hf_experts_deepseek(hf, "sigmoid");
    int locals = hf_count(m->layer_mixer, m, MIXER_LOCAL);
    hf_part(hf, COMPONENT_ATTENTION, "attention in a window", locals,
            heads_params(m, &local, m->gqa.qkv_bias) + (sinks ? (uint64_t)local.heads : 0));
    hf_part(hf, COMPONENT_ATTENTION, "attention over everything", m->layers - locals,
            heads_params(m, &full, m->gqa.qkv_bias) + (full_sinks ? (uint64_t)full.heads : 0));
    memset(m->layer_mixer, MIXER_OTHER, (size_t)m->layers);
    hf_unplanned(hf, "heads of two sizes, values narrower than keys");
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}

/* Heads of layers with a window, where the file has a map of them. */
static void read_step_window(struct hf *hf, struct heads *ret)
{
    const struct node *map = NULL;
    struct hf inner;
    bool named = hf_int(hf, "num_sliding_attention_heads", 1, &ret->heads) == 1;
    hf_notes(hf, (const char *const[]){ "attention_other_setting", "per_layer_config" }, 2);
    int got = node_map(hf->map, "attention_other_setting", &map, hf->errors);
    if (got == 0 && !named)
        hf_taken(hf, "attention_other_setting", "none");
    if (got != 1)
        return;
    hf_init(&inner, map, hf->root, hf->model, hf->errors);
    hf_int(&inner, "num_attention_heads", 1, &ret->heads);
    hf_int(&inner, "num_attention_groups", 1, &ret->kv_heads);
    hf_int(&inner, "head_dim", 1, &ret->dim);
    hf_note(&inner, "attention_type");
    hf_note(&inner, "true_head_dim");
    hf_refuse_rest(&inner);
}

/* A layer of attention as a part: query and key norms, a gate for each head. */
static uint64_t step_attention(const struct model *m, const struct heads *h)
{
    return add_sat(heads_params(m, h, m->gqa.qkv_bias),
                   add_sat(linear_params(m->hidden, h->heads, false),
                           norm_params(2 * (int64_t)h->dim, false)));
}

/* An MTP layer: two norms, a matrix that joins them, a dense layer, the head's norm. */
static void add_step_prediction(struct hf *hf, const struct heads *h, int times)
{
    const struct model *m = hf->model;
    hf_part(hf, COMPONENT_MTP, "MTP layers", times,
            add_sat(add_sat(step_attention(m, h),
                            mul3_sat(3, (uint64_t)m->hidden, (uint64_t)m->dense_width)),
                    add_sat(linear_params(2 * (int64_t)m->hidden, m->hidden, false),
                            norm_params(5 * (int64_t)m->hidden, false))));
}

/* MTP layers have the heads of their kind, of which layer_types has more entries than
 * layers, or mtp_layer_types; where neither says it, those of layers without a window. */
static void read_step_prediction(struct hf *hf, const struct heads *full, const struct heads *local)
{
    int layers = 0, locals = 0, skip = hf->model->layers;
    const struct node *list = NULL;
    hf_int(hf, "num_nextn_predict_layers", 0, &layers);
    if (hf_list(hf, "mtp_layer_types", &list) == 1)
        skip = 0;
    else
        (void)hf_list(hf, "layer_types", &list);
    for (const struct node *n = list != NULL ? list->child : NULL; n != NULL; n = n->next, skip--)
        if (skip <= 0 && skip > -layers && hf_window_kind(n) == MIXER_LOCAL)
            locals++;
    add_step_prediction(hf, local, locals);
    add_step_prediction(hf, full, layers - locals);
}

/* Lists may go on with the MTP layers'. */
static void read_step_layers(struct hf *hf)
{
    struct model *m = hf->model;
    const struct node *list = NULL;
    int layer = 0;
    if (hf_list(hf, "layer_types", &list) != 1)
        return;
    for (const struct node *n = list->child; n != NULL && layer < m->layers; n = n->next) {
        int kind = hf_window_kind(n);
        if (kind < 0)
            diag_error(hf->errors, n->at,
                       "'layer_types' holds another kind than "
                       "full_attention and sliding_attention");
        else
            m->layer_mixer[layer++] = (uint8_t)kind;
    }
    if (list->count < (size_t)m->layers)
        diag_error(hf->errors, list->at, "'layer_types' names %zu layers of %d", list->count,
                   m->layers);
}

/* "3,4,5": the layers with experts; without it all but the first three. */
static void read_step_experts(struct hf *hf)
{
    struct model *m = hf->model;
    const char *text = NULL;
    char *end = NULL;
    for (int i = 3; i < m->layers; i++)
        m->layer_ffn[i] = FFN_MOE;
    if (hf_text(hf, "moe_layers_enum", &text) == 1) {
        memset(m->layer_ffn, FFN_DENSE, (size_t)m->layers);
        for (; *text != '\0'; text = *end == ',' ? end + 1 : end) {
            long layer = strtol(text, &end, 10);
            if (end == text || (*end != ',' && *end != '\0')) {
                diag_error(hf->errors, hf_place(hf, "moe_layers_enum"),
                           "'moe_layers_enum' is no list of layers such as 3,4,5");
                break;
            }
            if (layer >= 0 && layer < m->layers)
                m->layer_ffn[layer] = FFN_MOE;
        }
    }
    if (hf_sparse_types(hf) == 0)
        hf_taken(hf, "moe_layers_enum", "all but the first three");
    hf_need(hf, "moe_num_experts", 1, &m->moe.experts);
    hf_need(hf, "num_experts_per_tok", 1, &m->moe.top_k);
    hf_need(hf, "moe_intermediate_size", 1, &m->moe.width);
    hf_need(hf, "share_expert_dim", 0, &m->moe.shared_width);
    hf_expect_text(hf, "moe_router_activation", "sigmoid");
    m->moe.sigmoid = m->moe.router_bias = m->moe.normalize_top_k = true;
    hf_bool(hf, "use_moe_router_bias", &m->moe.router_bias);
    hf_bool(hf, "norm_expert_weight", &m->moe.normalize_top_k);
}

void family_step_read(struct hf *hf)
{
    static const char *const no_matter[] = {
        "moe_router_scaling_factor", "query_pre_attn_scalar", "swiglu_limits",
        "partial_rotary_factors",    "swiglu_limits_shared",  "mtp_mlp_layer_types",
        "moe_every_n_layer",         "need_fp32_gate",        "sink",
        "use_rope_layers",           "yarn_only_types",       "use_qk_norm",
        "use_head_wise_attn_gate",   "zero_centered",
    };
    struct model *m = hf->model;
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_dense_decoder(hf);
    hf_attention_bias(hf);
    hf_expect_bool(hf, "mlp_bias", false);
    m->gqa.qk_norm = m->norm_zero_centred = true;
    struct heads full = { m->gqa.heads, m->gqa.kv_heads, m->gqa.head_dim, m->gqa.head_dim };
    struct heads local = full;
    hf_int(hf, "sliding_window", 1, &m->gqa.local_tokens);
    read_step_window(hf, &local);
    read_step_layers(hf);
    read_step_experts(hf);
    local.value_dim = local.dim;
    read_step_prediction(hf, &full, &local);
    int locals = hf_count(m->layer_mixer, m, MIXER_LOCAL);
    for (int i = 0; i < m->layers; i++)
        m->layer_mixer[i] = m->layer_mixer[i] == MIXER_LOCAL ? MIXER_OTHER : MIXER_GQA;
    hf_part(hf, COMPONENT_ATTENTION, "attention in a window", locals, step_attention(m, &local));
    hf_part(hf, COMPONENT_ATTENTION, "gates of heads", m->layers - locals,
            linear_params(m->hidden, m->gqa.heads, false));
    hf_unplanned(hf, "gates of heads");
    if (locals > 0)
        hf_unplanned(hf, "heads of two sizes");
    hf_vision_step(hf);
}

static int block_number(const struct node *n)
{
    return n->kind == NODE_INT && n->integer >= 0 && n->integer <= 1 ? (int)n->integer : -1;
}

static int block_kind(const struct node *n)
{
    if (n->kind != NODE_TEXT)
        return -1;
    if (strcmp(n->text, "minimax_m3_sparse") == 0)
        return 1;
    return strcmp(n->text, "full_attention") == 0 ? 0 : -1;
}

/* Which layers attend to blocks that an indexer of `heads` x `dim` chooses. */
static void read_block_indexer(struct hf *hf, uint8_t *ret_sparse, int *ret_heads, int *ret_dim)
{
    static const char *const no_matter[] = { "index_block_size", "index_topk_blocks",
                                             "index_local_blocks", "sparse_attention_config" };
    static const char *const inner_too[] = {
        "sparse_block_size",          "sparse_topk_blocks", "sparse_local_block",
        "use_sparse_attention",       "sparse_init_block",  "sparse_score_type",
        "sparse_disable_index_value",
    };
    const struct node *map = NULL;
    struct hf inner;
    hf_int(hf, "index_n_heads", 1, ret_heads);
    hf_int(hf, "index_head_dim", 1, ret_dim);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
    if (node_map(hf->map, "sparse_attention_config", &map, hf->errors) == 1) {
        hf_init(&inner, map, hf->root, hf->model, hf->errors);
        hf_int(&inner, "sparse_num_index_heads", 1, ret_heads);
        hf_int(&inner, "sparse_index_dim", 1, ret_dim);
        hf_layer_list(&inner, "sparse_attention_freq", hf->model->layers, block_number, ret_sparse);
        hf_notes(&inner, inner_too, sizeof inner_too / sizeof inner_too[0]);
        hf_refuse_rest(&inner);
    }
    hf_layer_list(hf, "layer_types", hf->model->layers, block_kind, ret_sparse);
}

void family_minimax_m3_read(struct hf *hf)
{
    static const char *const no_matter[] = { "swiglu_alpha", "swiglu_limit",
                                             "routed_scaling_factor" };
    static const char *const outer[] = { "merged_hidden_size", "projector_hidden_size",
                                         "video_token_index" };
    struct model *m = hf->model;
    uint8_t sparse[MODEL_MAX_LAYERS] = { 0 };
    int rotary = 0, heads = 4, dim = 128;
    hf_decoder(hf);
    m->gqa.qk_norm = true;
    if (hf_int(hf, "rotary_dim", 0, &rotary) == 1 && rotary <= m->gqa.head_dim)
        m->gqa.rotary_fraction = (double)rotary / m->gqa.head_dim;
    hf_experts_local(hf);
    m->moe.sigmoid = m->moe.router_bias = true;
    hf_need(hf, "shared_intermediate_size", 0, &m->moe.shared_width);
    hf_sparse_layers_deepseek(hf, "dense_intermediate_size");
    read_block_indexer(hf, sparse, &heads, &dim);
    hf_part(hf, COMPONENT_INDEXER, "indexer of blocks", hf_count(sparse, m, 1),
            add_sat(linear_params(m->hidden, (int64_t)heads * dim + dim, false),
                    norm_params(2 * (int64_t)dim, false)));
    for (int i = 0; i < m->layers; i++)
        if (sparse[i])
            m->layer_mixer[i] = MIXER_OTHER;
    struct heads own = { m->gqa.heads, m->gqa.kv_heads, m->gqa.head_dim, m->gqa.head_dim };
    hf_part(hf, COMPONENT_ATTENTION, "attention over chosen blocks", hf_count(sparse, m, 1),
            add_sat(heads_params(m, &own, false), norm_params(2 * (int64_t)own.dim, false)));
    if (hf_has(sparse, m, 1))
        hf_unplanned(hf, "attention over chosen blocks");
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_notes(hf->root, outer, sizeof outer / sizeof outer[0]);
    hf_vision_minimax(hf);
}

/* A layer is two of attention and MLP, the first with experts next to its MLP, of which some only
 * hand their rows on. */
void family_longcat_read(struct hf *hf)
{
    static const char *const no_matter[] = {
        "num_layers",        "zero_expert_type", "routed_scaling_factor", "mla_scale_q_lora",
        "mla_scale_kv_lora", "attention_method", "norm_topk_prob"
    };
    struct model *m = hf->model;
    int pairs = 0, idle = 0;
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_need(hf, "num_layers", 1, &pairs);
    if (pairs > MODEL_MAX_LAYERS / 2)
        diag_error(hf->errors, hf_place(hf, "num_layers"),
                   "'num_layers' is %d; at most %d are read", pairs, MODEL_MAX_LAYERS / 2);
    m->layers = pairs > MODEL_MAX_LAYERS / 2 ? MODEL_MAX_LAYERS : pairs > 0 ? 2 * pairs : 1;
    hf_latents(hf);
    hf_need(hf, "ffn_hidden_size", 1, &m->dense_width);
    hf_need(hf, "expert_ffn_hidden_size", 1, &m->moe.width);
    hf_need(hf, "n_routed_experts", 1, &m->moe.experts);
    hf_need(hf, "moe_topk", 1, &m->moe.top_k);
    hf_int(hf, "zero_expert_num", 0, &idle);
    hf_expect_bool(hf, "router_bias", false);
    m->moe.router_bias = true;
    for (int i = 0; i < m->layers; i += 2)
        m->layer_ffn[i] = FFN_MOE;
    hf_part(hf, COMPONENT_DENSE_MLP, "MLP next to experts", pairs,
            mul3_sat(3, (uint64_t)m->hidden, (uint64_t)m->dense_width));
    hf_part(hf, COMPONENT_ROUTER, "router of experts that hand on", pairs,
            add_sat(linear_params(m->hidden, idle, false), (uint64_t)idle));
    hf_unplanned(hf, "experts that span two layers");
}
