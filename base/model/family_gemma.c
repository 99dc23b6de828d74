/* Gemma 3 and 4: norms before and behind both halves, windows in most layers. In Gemma 4 the layers
 * that see everything have heads of their own size, the last layers read the keys and values of
 * earlier ones, each layer adds to its output from an embedding of its own, and some models have
 * experts in addition to the MLP. */
#include "base/model/hf.h"

#include "base/checked.h"

#include <string.h>

/* Scales of scores and logits, and how images are seen. */
static void note_scales(struct hf *hf)
{
    static const char *const no_matter[] = {
        "query_pre_attn_scalar",  "attn_logit_softcapping",      "final_logit_softcapping",
        "sliding_window_pattern", "_sliding_window_pattern",     "rope_local_base_freq",
        "cache_implementation",   "use_bidirectional_attention",
    };
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_activation(hf, "hidden_activation");
}

static void read_layers(struct hf *hf)
{
    struct model *m = hf->model;
    int period = 6;
    hf_int(hf, "sliding_window_pattern", 1, &period);
    for (int i = 0; i < m->layers; i++)
        m->layer_mixer[i] = (i + 1) % period != 0 ? MIXER_LOCAL : MIXER_GQA;
    hf_layer_list(hf, "layer_types", m->layers, hf_window_kind, m->layer_mixer);
}

static void read_common(struct hf *hf)
{
    struct model *m = hf->model;
    int window = 4096;
    hf_dense_decoder(hf);
    hf_attention_bias(hf);
    note_scales(hf);
    m->gqa.qk_norm = m->norm_zero_centred = true;
    hf_int(hf, "sliding_window", 1, &window);
    m->gqa.local_tokens = window;
    read_layers(hf);
    hf_post_norms(hf);
}

void family_gemma3_read(struct hf *hf)
{
    read_common(hf);
    hf_window_layers(hf, hf->model->gqa.local_tokens);
    hf_note(hf->root, "mm_tokens_per_image");
    hf_vision_siglip(hf);
}

/* Sizes of Gemma 4's attention that no row has. */
struct gemma_layers {
    int head_dim, kv_heads; /* of the layers that see everything */
    bool keys_are_values;   /* in those: no value projection */
    int reusing;            /* the last layers, which have neither keys nor values */
};

static uint64_t attention_params(const struct model *m, int head_dim, int kv_heads, bool values,
                                 bool reuses)
{
    int64_t query = (int64_t)m->gqa.heads * head_dim, kv = (int64_t)kv_heads * head_dim;
    uint64_t sum = add_sat(linear_params(m->hidden, query, m->gqa.qkv_bias),
                           linear_params(query, m->hidden, m->gqa.output_bias));
    sum = add_sat(sum, (uint64_t)head_dim);
    if (reuses)
        return sum;
    sum = add_sat(sum, add_sat(linear_params(m->hidden, kv, m->gqa.qkv_bias), (uint64_t)head_dim));
    return values ? add_sat(sum, linear_params(m->hidden, kv, m->gqa.qkv_bias)) : sum;
}

/* Layers with a window that make their own keys and values are those of other models. */
static void count_attention(struct hf *hf, const struct gemma_layers *g)
{
    struct model *m = hf->model;
    int full = 0, full_reusing = 0, reusing = 0;
    for (int i = 0; i < m->layers; i++) {
        bool local = m->layer_mixer[i] == MIXER_LOCAL, reuses = i >= m->layers - g->reusing;
        full += !local && !reuses;
        full_reusing += !local && reuses;
        reusing += local && reuses;
        if (!local || reuses)
            m->layer_mixer[i] = MIXER_OTHER;
    }
    hf_part(hf, COMPONENT_ATTENTION, "attention over everything", full,
            attention_params(m, g->head_dim, g->kv_heads, !g->keys_are_values, false));
    hf_part(hf, COMPONENT_ATTENTION, "attention over everything, earlier keys", full_reusing,
            attention_params(m, g->head_dim, g->kv_heads, false, true));
    hf_part(hf, COMPONENT_ATTENTION, "attention in a window, earlier keys", reusing,
            attention_params(m, m->gqa.head_dim, m->gqa.kv_heads, false, true));
    if (full > 0)
        hf_unplanned(hf, "heads of two sizes");
    if (g->reusing > 0)
        hf_unplanned(hf, "keys and values of earlier layers");
}

/* Layers that reuse keys and values may have an MLP of twice the width. */
static void read_wide_layers(struct hf *hf, int reusing)
{
    struct model *m = hf->model;
    bool wide = false;
    if (hf_bool(hf, "use_double_wide_mlp", &wide) != 1 || !wide || reusing == 0)
        return;
    for (int i = m->layers - reusing; i < m->layers; i++)
        m->layer_ffn[i] = FFN_OTHER;
    hf_part(hf, COMPONENT_DENSE_MLP, "MLP of twice the width", reusing,
            mul3_sat(6, (uint64_t)m->hidden, (uint64_t)m->dense_width));
    hf_unplanned(hf, "MLPs of two widths");
}

/* Transformers writes them as exceptions of layers, all alike. */
static void read_global_heads(struct hf *hf, struct gemma_layers *g)
{
    const struct node *map = NULL;
    hf_note(hf, "global_head_dim");
    hf_note(hf, "per_layer_config");
    if (node_map(hf->map, "per_layer_config", &map, hf->errors) != 1 || map->child == NULL) {
        hf_int(hf, "global_head_dim", 1, &g->head_dim);
        return;
    }
    for (const struct node *n = map->child; n != NULL; n = n->next) {
        struct gemma_layers one = *g;
        struct hf layer;
        if (n->kind != NODE_MAP)
            continue;
        hf_init(&layer, n, hf->root, hf->model, hf->errors);
        hf_int(&layer, "head_dim", 1, &one.head_dim);
        hf_int(&layer, "num_key_value_heads", 1, &one.kv_heads);
        hf_refuse_rest(&layer);
        if (n != map->child && (one.head_dim != g->head_dim || one.kv_heads != g->kv_heads))
            diag_error(hf->errors, n->at,
                       "'per_layer_config' with more than one size of heads is "
                       "not read");
        *g = one;
    }
}

static void read_attention(struct hf *hf)
{
    struct model *m = hf->model;
    struct gemma_layers g = { .head_dim = m->gqa.head_dim, .kv_heads = m->gqa.kv_heads };
    int kv_heads = 0;
    read_global_heads(hf, &g);
    hf_bool(hf, "attention_k_eq_v", &g.keys_are_values);
    if (hf_int(hf, "num_global_key_value_heads", 1, &kv_heads) == 1 && g.keys_are_values)
        g.kv_heads = kv_heads;
    hf_int(hf, "num_kv_shared_layers", 0, &g.reusing);
    if (g.reusing > m->layers)
        g.reusing = m->layers;
    count_attention(hf, &g);
    read_wide_layers(hf, g.reusing);
}

/* Each layer's own embedding, and how it is added to the layer's output. */
static void read_layer_embedding(struct hf *hf)
{
    struct model *m = hf->model;
    int width = 0, vocab = (int)m->vocab;
    hf_int(hf, "hidden_size_per_layer_input", 0, &width);
    hf_int(hf, "vocab_size_per_layer_input", 1, &vocab);
    if (width == 0)
        return;
    int64_t all = (int64_t)m->layers * width;
    hf_lookup(hf, COMPONENT_EMBEDDING, "embeddings of layers", linear_params(vocab, all, false));
    hf_part(hf, COMPONENT_EMBEDDING, "projection to the layers' embeddings", 1,
            add_sat(linear_params(m->hidden, all, false), (uint64_t)width));
    hf_part(hf, COMPONENT_EMBEDDING, "gates of the layers' embeddings", m->layers,
            add_sat(mul_sat(2, linear_params(m->hidden, width, false)), (uint64_t)m->hidden));
    hf_unplanned(hf, "embeddings of layers");
}

/* In addition to the MLP of the layer, with norms of their own and a router with scales. */
static void read_experts(struct hf *hf)
{
    static const char *const keys[] = { "num_experts", "top_k_experts", "moe_intermediate_size" };
    struct model *m = hf->model;
    int layers = hf_count(m->layer_ffn, m, FFN_DENSE);
    bool experts = false;
    hf_bool(hf, "enable_moe_block", &experts);
    hf_notes(hf, keys, sizeof keys / sizeof keys[0]);
    if (!experts)
        return;
    if (layers < m->layers)
        diag_error(hf->errors, hf_place(hf, "enable_moe_block"),
                   "experts next to MLPs of two widths are not read");
    hf_need(hf, "num_experts", 1, &m->moe.experts);
    hf_need(hf, "top_k_experts", 1, &m->moe.top_k);
    hf_need(hf, "moe_intermediate_size", 1, &m->moe.width);
    m->moe.normalize_top_k = true;
    hf_part(hf, COMPONENT_DENSE_MLP, "MLP next to experts", layers,
            mul3_sat(3, (uint64_t)m->hidden, (uint64_t)m->dense_width));
    hf_part(hf, COMPONENT_ROUTER, "scales of the router", layers,
            add_sat((uint64_t)m->hidden, (uint64_t)m->moe.experts));
    hf_part(hf, COMPONENT_NORMS, "norms around experts", 3 * layers, norm_params(m->hidden, false));
    memset(m->layer_ffn, FFN_MOE, (size_t)m->layers);
    hf_unplanned(hf, "experts next to an MLP");
}

void family_gemma4_read(struct hf *hf)
{
    static const char *const no_matter[] = { "vision_soft_tokens_per_image" };
    struct model *m = hf->model;
    read_common(hf);
    if (m->layers > 0)
        m->layer_mixer[m->layers - 1] = MIXER_GQA; /* whatever the file says of it */
    hf_part(hf, COMPONENT_NORMS, "scales of layers", m->layers, 1);
    read_attention(hf);
    read_layer_embedding(hf);
    read_experts(hf);
    hf_notes(hf->root, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_vision_gemma4(hf);
}
