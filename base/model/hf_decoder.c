/* hf_decoder.c - what the decoders of many families have in common: sizes, heads, rope, windows,
 * and which of their layers have experts. */
#include "base/model/hf.h"

#include <stddef.h>
#include <string.h>

static void read_head_dim(struct hf *hf)
{
    struct model *m = hf->model;
    int got = hf_int(hf, "head_dim", 1, &m->gqa.head_dim);
    if (got != 0 || m->gqa.heads == 0 || m->hidden == 0)
        return;
    if (m->hidden % m->gqa.heads != 0) {
        diag_error(hf->errors, hf->map->at,
                   "'head_dim' is not given and hidden_size %d / heads %d is not whole", m->hidden,
                   m->gqa.heads);
        diag_hint(hf->errors, "write head_dim");
        return;
    }
    m->gqa.head_dim = m->hidden / m->gqa.heads;
}

/* Transformers 5 moved rope_theta and partial_rotary_factor from the root into rope_parameters. */
static void read_rope(struct hf *hf)
{
    struct gqa *gqa = &hf->model->gqa;
    const struct node *rope = NULL;
    (void)node_map(hf->map, "rope_parameters", &rope, hf->errors);
    const struct node *places[] = { hf->map, rope };
    for (size_t i = 0; i < 2; i++) {
        if (places[i] == NULL)
            continue;
        (void)node_real(places[i], "rope_theta", 1.0, 1e12, &gqa->rope_theta, hf->errors);
        (void)node_real(places[i], "partial_rotary_factor", 0.0, 1.0, &gqa->rotary_fraction,
                        hf->errors);
    }
}

/* A multimodal file says it at the root, others in the text part; root wins. */
static void read_tied(struct hf *hf)
{
    bool inner = false;
    int got = hf_bool(hf->root, "tie_word_embeddings", &hf->model->tied);
    if (hf != hf->root && hf_bool(hf, "tie_word_embeddings", &inner) == 1 && got == 0)
        hf->model->tied = inner;
}

void hf_layer_count(struct hf *hf)
{
    int layers = 0;
    if (hf_need(hf, "num_hidden_layers", 1, &layers) == 1 && layers > MODEL_MAX_LAYERS)
        diag_error(hf->errors, node_get(hf->map, "num_hidden_layers")->at,
                   "'num_hidden_layers' is %d; at most %d are read", layers, MODEL_MAX_LAYERS);
    hf->model->layers = layers > MODEL_MAX_LAYERS ? MODEL_MAX_LAYERS : layers;
}

void hf_decoder(struct hf *hf)
{
    struct model *m = hf->model;
    int vocab = 0;
    m->norm_eps = 1e-6;
    m->gqa.rope_theta = 1e4;
    if (m->gqa.rotary_fraction == 0.0)
        m->gqa.rotary_fraction = 1.0;
    if (m->layers == 0)
        hf_layer_count(hf);
    hf_need(hf, "hidden_size", 1, &m->hidden);
    hf_need(hf, "vocab_size", 1, &vocab);
    m->vocab = vocab;
    hf_need(hf, "num_attention_heads", 1, &m->gqa.heads);
    if (hf_int(hf, "num_key_value_heads", 1, &m->gqa.kv_heads) == 0)
        m->gqa.kv_heads = m->gqa.heads;
    read_head_dim(hf);
    hf_real(hf, "rms_norm_eps", 1e-12, 1.0, &m->norm_eps);
    (void)node_int(hf->map, "max_position_embeddings", 1, INT64_C(1) << 40, &m->context_tokens,
                   hf->errors);
    read_rope(hf);
    read_tied(hf);
    hf_expect_text(hf, "hidden_act", "silu");
    memset(m->layer_mixer, MIXER_GQA, (size_t)m->layers);
    memset(m->layer_ffn, FFN_DENSE, (size_t)m->layers);
}

void hf_window(struct hf *hf)
{
    hf_int(hf, "sliding_window", 1, &hf->model->gqa.window_tokens);
}

/* A layer has experts when it is not listed in mlp_only_layers and (i + 1) is a multiple of
 * decoder_sparse_step. */
void hf_sparse_layers_qwen(struct hf *hf)
{
    struct model *m = hf->model;
    const struct node *dense = NULL;
    int step = 1;
    hf_int(hf, "decoder_sparse_step", 1, &step);
    hf_list(hf, "mlp_only_layers", &dense);
    for (int i = step - 1; i < m->layers && m->moe.experts > 0; i += step)
        m->layer_ffn[i] = FFN_MOE;
    for (const struct node *n = dense != NULL ? dense->child : NULL; n != NULL; n = n->next) {
        if (n->kind == NODE_INT && n->integer >= 0 && n->integer < m->layers)
            m->layer_ffn[n->integer] = FFN_DENSE;
        else
            diag_error(hf->errors, n->at, "'mlp_only_layers' holds '%s', not a layer of 0..%d",
                       n->text != NULL ? n->text : node_kind_name(n->kind), m->layers - 1);
    }
    /* The published all-MoE files carry an intermediate_size that no layer uses. */
    hf_note(hf, "intermediate_size");
    if (memchr(m->layer_ffn, FFN_DENSE, (size_t)m->layers) != NULL)
        hf_need(hf, "intermediate_size", 1, &m->dense_width);
}

void hf_experts_qwen(struct hf *hf)
{
    struct moe *moe = &hf->model->moe;
    static const char *const sizes[] = { "num_experts_per_tok", "moe_intermediate_size",
                                         "norm_topk_prob" };
    hf_need(hf, "num_experts", 0, &moe->experts);
    hf_notes(hf, sizes, sizeof sizes / sizeof sizes[0]);
    if (moe->experts == 0)
        return;
    hf_need(hf, "num_experts_per_tok", 1, &moe->top_k);
    hf_need(hf, "moe_intermediate_size", 1, &moe->width);
    hf_bool(hf, "norm_topk_prob", &moe->normalize_top_k);
}

void hf_experts_local(struct hf *hf)
{
    static const struct hf_field fields[] = {
        { "num_local_experts", offsetof(struct model, moe.experts), 1, true },
        { "num_experts_per_tok", offsetof(struct model, moe.top_k), 1, true },
        { "intermediate_size", offsetof(struct model, moe.width), 1, true },
    };
    hf_fields(hf, fields, sizeof fields / sizeof fields[0]);
    hf->model->moe.normalize_top_k = true;
    memset(hf->model->layer_ffn, FFN_MOE, (size_t)hf->model->layers);
}

static int sparse_kind(const struct node *n)
{
    if (n->kind != NODE_TEXT)
        return -1;
    if (strcmp(n->text, "sparse") == 0)
        return FFN_MOE;
    return strcmp(n->text, "dense") == 0 ? FFN_DENSE : -1;
}

static int sparse_number(const struct node *n)
{
    if (n->kind != NODE_INT || n->integer < 0 || n->integer > 1)
        return -1;
    return n->integer == 1 ? FFN_MOE : FFN_DENSE;
}

/* mlp_layer_types wins; else the first layers are dense and of the others every moe_layer_freq-th,
 * counted from layer 0, has experts. The frequency may be a list of 0 and 1, one a layer. */
void hf_sparse_layers_deepseek(struct hf *hf)
{
    struct model *m = hf->model;
    const struct node *frequency = node_get(hf->map, "moe_layer_freq");
    int first = 0, step = 1;
    hf_int(hf, "first_k_dense_replace", 0, &first);
    if (frequency != NULL && frequency->kind == NODE_LIST)
        hf_layer_list(hf, "moe_layer_freq", m->layers, sparse_number, m->layer_ffn);
    else if (hf_int(hf, "moe_layer_freq", 1, &step) >= 0)
        for (int i = first; i < m->layers; i++)
            m->layer_ffn[i] = i % step == 0 ? FFN_MOE : FFN_DENSE;
    hf_layer_list(hf, "mlp_layer_types", m->layers, sparse_kind, m->layer_ffn);
    hf_note(hf, "intermediate_size");
    if (memchr(m->layer_ffn, FFN_DENSE, (size_t)m->layers) != NULL)
        hf_need(hf, "intermediate_size", 1, &m->dense_width);
}

/* num_experts, where a version of the library wrote it beside n_routed_experts, is a default of a
 * class and not the model's. Groups and the scale limit or weigh choices; they cost nothing. */
void hf_experts_deepseek(struct hf *hf)
{
    static const struct hf_field fields[] = {
        { "n_routed_experts", offsetof(struct model, moe.experts), 1, true },
        { "num_experts_per_tok", offsetof(struct model, moe.top_k), 1, true },
        { "moe_intermediate_size", offsetof(struct model, moe.width), 1, true },
    };
    static const char *const no_matter[] = { "num_experts", "n_group", "topk_group",
                                             "routed_scaling_factor" };
    struct moe *moe = &hf->model->moe;
    const char *scoring = "softmax", *method = "noaux_tc";
    int shared = 0;
    hf_fields(hf, fields, sizeof fields / sizeof fields[0]);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_int(hf, "n_shared_experts", 0, &shared);
    moe->shared_width =
        shared > 0 && moe->width > HF_MAX_SIZE / shared ? HF_MAX_SIZE : shared * moe->width;
    hf_bool(hf, "norm_topk_prob", &moe->normalize_top_k);
    bool scored = hf_text(hf, "scoring_func", &scoring) == 1;
    bool named = hf_text(hf, "topk_method", &method) == 1;
    moe->sigmoid = !scored || strcmp(scoring, "sigmoid") == 0;
    if (scored && !moe->sigmoid && strcmp(scoring, "softmax") != 0)
        hf_expect_text(hf, "scoring_func", "sigmoid");
    /* noaux_tc corrects each expert's score by a number of its own */
    moe->router_bias = !named ? moe->sigmoid : strcmp(method, "noaux_tc") == 0;
    if (named && !moe->router_bias && strcmp(method, "greedy") != 0 &&
        strcmp(method, "group_limited_greedy") != 0)
        hf_expect_text(hf, "topk_method", "noaux_tc");
    hf_sparse_layers_deepseek(hf);
}
