/* DeepSeek-V4: one key-value head, the attention's output through groups of low-rank matrices, keys
 * and values of whole blocks compressed to one in most layers, of which an indexer chooses in some;
 * several residual streams; the first layers choose experts by the token. */
#include "base/model/hf.h"

#include "base/checked.h"

#include <stddef.h>
#include <string.h>

enum compression { COMPRESSION_NONE, COMPRESSION_SPARSE, COMPRESSION_HEAVY, COMPRESSIONS };

struct sizes {
    int q_rank, groups, group_rank, streams, index_heads, index_dim;
    int rate[COMPRESSIONS]; /* tokens of a block */
    uint8_t layer[MODEL_MAX_LAYERS];
};

static int kind_of_name(const struct node *n)
{
    static const char *const names[COMPRESSIONS] = { "sliding_attention",
                                                     "compressed_sparse_attention",
                                                     "heavily_compressed_attention" };
    for (int i = 0; i < COMPRESSIONS && n->kind == NODE_TEXT; i++)
        if (strcmp(names[i], n->text) == 0)
            return i;
    return -1;
}

static int kind_of_ratio(const struct node *n)
{
    if (n->kind != NODE_INT)
        return -1;
    return n->integer == 0     ? COMPRESSION_NONE
           : n->integer == 4   ? COMPRESSION_SPARSE
           : n->integer == 128 ? COMPRESSION_HEAVY
                               : -1;
}

/* Published files say a ratio of each layer, and go on with those of MTP layers. */
static void read_ratios(struct hf *hf, struct sizes *s)
{
    const struct node *list = NULL;
    int layer = 0;
    if (hf_list(hf, "compress_ratios", &list) != 1)
        return;
    for (const struct node *n = list->child; n != NULL && layer < hf->model->layers; n = n->next) {
        int kind = kind_of_ratio(n);
        if (kind < 0)
            diag_error(hf->errors, n->at, "'compress_ratios' holds another ratio than 0, 4 or 128");
        else
            s->layer[layer++] = (uint8_t)kind;
    }
    if (list->count < (size_t)hf->model->layers)
        diag_error(hf->errors, list->at, "'compress_ratios' names %zu layers of %d", list->count,
                   hf->model->layers);
}

static void read_compression(struct hf *hf, struct sizes *s)
{
    const struct node *rates = NULL;
    s->rate[COMPRESSION_SPARSE] = 4;
    s->rate[COMPRESSION_HEAVY] = 128;
    for (int i = 0; i < hf->model->layers; i++)
        s->layer[i] = i < 2 || i % 2 == 0 ? COMPRESSION_HEAVY : COMPRESSION_SPARSE;
    hf_note(hf, "compress_rates");
    if (node_map(hf->map, "compress_rates", &rates, hf->errors) == 1) {
        struct hf inner;
        hf_init(&inner, rates, hf->root, hf->model, hf->errors);
        hf_int(&inner, "compressed_sparse_attention", 1, &s->rate[COMPRESSION_SPARSE]);
        hf_int(&inner, "heavily_compressed_attention", 1, &s->rate[COMPRESSION_HEAVY]);
        hf_refuse_rest(&inner);
    }
    if (hf_layer_list(hf, "layer_types", hf->model->layers, kind_of_name, s->layer) == 0)
        read_ratios(hf, s);
    hf_note(hf, "compress_ratios");
}

static uint64_t attention_params(const struct model *m, const struct sizes *s)
{
    int64_t head = m->gqa.head_dim, query = head * m->gqa.heads;
    int64_t latents = (int64_t)s->groups * s->group_rank;
    uint64_t in =
        add_sat(linear_params(m->hidden, s->q_rank, false), linear_params(s->q_rank, query, false));
    uint64_t kv = add_sat(linear_params(m->hidden, head, false), (uint64_t)head);
    uint64_t out = add_sat(linear_params(s->groups > 0 ? query / s->groups : 0, latents, false),
                           linear_params(latents, m->hidden, false));
    return add_sat(add_sat(in, kv), add_sat(out, (uint64_t)s->q_rank + (uint64_t)m->gqa.heads));
}

/* A place of each token of a block, values and gates of `times` heads of `dim`, a norm. */
static uint64_t compressor_params(const struct model *m, int rate, int times, int dim)
{
    int64_t width = (int64_t)times * dim;
    return add_sat(add_sat(linear_params(rate, width, false), (uint64_t)dim),
                   mul_sat(2, linear_params(m->hidden, width, false)));
}

static void count_attention(struct hf *hf, const struct sizes *s)
{
    struct model *m = hf->model;
    int sparse = hf_count(s->layer, m, COMPRESSION_SPARSE);
    uint64_t indexer =
        add_sat(compressor_params(m, s->rate[COMPRESSION_SPARSE], 2, s->index_dim),
                add_sat(linear_params(s->q_rank, (int64_t)s->index_heads * s->index_dim, false),
                        linear_params(m->hidden, s->index_heads, false)));
    memset(m->layer_mixer, MIXER_OTHER, (size_t)m->layers);
    hf_part(hf, COMPONENT_ATTENTION, "attention", m->layers, attention_params(m, s));
    hf_part(hf, COMPONENT_ATTENTION, "compressor of sparse attention", sparse,
            compressor_params(m, s->rate[COMPRESSION_SPARSE], 2, m->gqa.head_dim));
    hf_part(hf, COMPONENT_ATTENTION, "compressor", hf_count(s->layer, m, COMPRESSION_HEAVY),
            compressor_params(m, s->rate[COMPRESSION_HEAVY], 1, m->gqa.head_dim));
    hf_part(hf, COMPONENT_INDEXER, "indexer", sparse, indexer);
    hf_unplanned(hf, "compressed attention");
}

/* How streams are mixed before and behind each half, and joined before the head. */
static void count_streams(struct hf *hf, int streams)
{
    struct model *m = hf->model;
    uint64_t mix = (uint64_t)streams * (uint64_t)(streams + 2), n = (uint64_t)streams;
    uint64_t wide = mul_sat(n, (uint64_t)m->hidden);
    hf_part(hf, COMPONENT_NORMS, "mixing of residual streams", 2 * m->layers,
            add_sat(mul_sat(mix, wide), mix + 3));
    hf_part(hf, COMPONENT_NORMS, "join of residual streams", 1, add_sat(mul_sat(n, wide), n + 1));
    hf_unplanned(hf, "residual streams");
}

static int hashed_kind(const struct node *n)
{
    if (n->kind != NODE_TEXT)
        return -1;
    return strcmp(n->text, "hash_moe") == 0 ? 1 : strcmp(n->text, "moe") == 0 ? 0 : -1;
}

static void read_experts(struct hf *hf)
{
    struct model *m = hf->model;
    uint8_t hashed[MODEL_MAX_LAYERS] = { 0 };
    int first = 3, shared = 1;
    hf_need(hf, "n_routed_experts", 1, &m->moe.experts);
    hf_need(hf, "num_experts_per_tok", 1, &m->moe.top_k);
    hf_need(hf, "moe_intermediate_size", 1, &m->moe.width);
    hf_int(hf, "n_shared_experts", 0, &shared);
    m->moe.shared_width = hf_times(shared, m->moe.width);
    hf_bool(hf, "norm_topk_prob", &m->moe.normalize_top_k);
    hf_expect_text(hf, "scoring_func", "sqrtsoftplus");
    hf_expect_text(hf, "topk_method", "noaux_tc");
    memset(m->layer_ffn, FFN_MOE, (size_t)m->layers);
    hf_note(hf, "num_hash_layers");
    if (hf_layer_list(hf, "mlp_layer_types", m->layers, hashed_kind, hashed) == 0) {
        hf_int(hf, "num_hash_layers", 0, &first);
        memset(hashed, 1, (size_t)(first < m->layers ? first : m->layers));
    }
    hf_part(hf, COMPONENT_ROUTER, "corrections of scores", hf_count(hashed, m, 0),
            (uint64_t)m->moe.experts);
    if (hf_has(hashed, m, 1))
        hf_unplanned(hf, "experts chosen by the token");
}

void family_deepseek_v4_read(struct hf *hf)
{
    static const char *const no_matter[] = {
        "qk_rope_head_dim", "swiglu_limit",      "compress_rope_theta",
        "hc_eps",           "hc_sinkhorn_iters", "routed_scaling_factor",
    };
    struct model *m = hf->model;
    struct sizes s = { .q_rank = 0 };
    hf_decoder(hf);
    hf_expect_bool(hf, "attention_bias", false);
    hf_expect_int(hf, "num_key_value_heads", 1);
    hf_need(hf, "q_lora_rank", 1, &s.q_rank);
    hf_need(hf, "o_groups", 1, &s.groups);
    hf_need(hf, "o_lora_rank", 1, &s.group_rank);
    hf_need(hf, "index_n_heads", 1, &s.index_heads);
    hf_need(hf, "index_head_dim", 1, &s.index_dim);
    hf_note(hf, "index_topk");
    hf_need(hf, "hc_mult", 1, &s.streams);
    hf_int(hf, "sliding_window", 1, &m->gqa.local_tokens);
    read_compression(hf, &s);
    count_attention(hf, &s);
    count_streams(hf, s.streams < 64 ? s.streams : 64);
    read_experts(hf);
    hf_warn_prediction(hf);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}
