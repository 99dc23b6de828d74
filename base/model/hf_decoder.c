/* hf_decoder.c - what the decoders of many families have in common: sizes, heads, rope, windows,
 * biases. Which layers have experts is hf_experts.c's. */
#include "base/model/hf.h"

#include <math.h>
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

/* The rope of layers that see the whole sequence: transformers 5 moved it from the root into
 * rope_parameters, and where kinds of layers differ into a map of each kind. */
static void find_ropes(const struct hf *hf, const struct node *ret[3])
{
    const struct node *rope = NULL, *full = NULL;
    (void)node_map(hf->map, "rope_parameters", &rope, hf->errors);
    if (rope != NULL)
        (void)node_map(rope, "full_attention", &full, hf->errors);
    ret[0] = full;
    ret[1] = rope;
    ret[2] = hf->map;
}

/* YaRN's correction of magnitudes for a context that is `factor` times as long. */
static double yarn_scale(double factor, double weight)
{
    return factor <= 1 ? 1.0 : 0.1 * weight * log(factor) + 1.0;
}

/* The form by its name in files; ROPE_OTHER where rope.c does not know it. */
static int hf_rope_form(const char *name)
{
    static const struct {
        const char *name;
        enum rope_form form;
    } forms[] = { { "linear", ROPE_LINEAR },
                  { "dynamic", ROPE_DYNAMIC },
                  { "llama3", ROPE_LLAMA3 },
                  { "yarn", ROPE_YARN } };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (strcmp(forms[i].name, name) == 0)
            return forms[i].form;
    return ROPE_OTHER;
}

static double number_of(struct hf *hf, const struct node *rope, const char *key, double absent)
{
    double ret = absent;
    const struct node *value = node_get(rope, key);
    if (value != NULL && (value->kind == NODE_INT || value->kind == NODE_REAL))
        (void)node_real(rope, key, 0, 1e12, &ret, hf->errors);
    return ret;
}

/* attention_factor where it is given; else the ratio of both scales, or that of the factor.
 * mscale_all_dim scales the scores of latent attention alone. */
static void read_yarn(struct hf *hf, const struct node *rope, struct rope_scaling *ret)
{
    const struct node *truncate = node_get(rope, "truncate");
    double mscale = number_of(hf, rope, "mscale", 0),
           all = number_of(hf, rope, "mscale_all_dim", 0);

    ret->low = number_of(hf, rope, "beta_slow", 1);
    ret->high = number_of(hf, rope, "beta_fast", 32);
    ret->unrounded = truncate != NULL && truncate->kind == NODE_BOOL && !truncate->boolean;
    ret->rotation_factor = mscale > 0 && all > 0
                               ? yarn_scale(ret->factor, mscale) / yarn_scale(ret->factor, all)
                               : yarn_scale(ret->factor, 1);
    ret->rotation_factor = number_of(hf, rope, "attention_factor", ret->rotation_factor);
    if (ret->rotation_factor == 1)
        ret->rotation_factor = 0;
    ret->score_factor = all > 0 ? pow(yarn_scale(ret->factor, all), 2) : 0;
}

/* Frequencies that are stretched; the first map that names a form wins. */
static void read_scaling(struct hf *hf, const struct node *rope)
{
    struct rope_scaling *ret = &hf->model->gqa.rope;
    const struct node *type = rope != NULL ? node_get(rope, "rope_type") : NULL;
    if (rope != NULL && type == NULL)
        type = node_get(rope, "type");
    if (type == NULL || type->kind != NODE_TEXT || ret->form != ROPE_PLAIN ||
        strcmp(type->text, "default") == 0 || strcmp(type->text, "mrope") == 0)
        return;
    ret->form = hf_rope_form(type->text);
    if (number_of(hf, rope, "alpha", 0) > 0) /* Hunyuan's own way of dynamic */
        ret->form = ROPE_OTHER;
    if (ret->form == ROPE_OTHER)
        return;
    const char *original = "original_max_position_embeddings";
    double context = (double)hf->model->context_tokens;
    double tokens = number_of(hf, rope, original, number_of(hf, hf->map, original, context));
    ret->original_tokens = (int64_t)(ret->form == ROPE_DYNAMIC ? context : tokens);
    ret->factor = number_of(hf, rope, "factor", tokens > 0 ? context / tokens : 1);
    if (ret->form == ROPE_LLAMA3) {
        ret->low = number_of(hf, rope, "low_freq_factor", 1);
        ret->high = number_of(hf, rope, "high_freq_factor", 4);
    } else if (ret->form == ROPE_YARN) {
        read_yarn(hf, rope, ret);
    }
}

static void read_rope(struct hf *hf)
{
    struct gqa *gqa = &hf->model->gqa;
    const struct node *ropes[3], *scaling = NULL;
    int theta = 0, fraction = 0;
    find_ropes(hf, ropes);
    for (int i = 0; i < 2; i++) {
        if (ropes[i] == NULL)
            continue;
        if (theta == 0)
            theta = node_real(ropes[i], "rope_theta", 1.0, 1e12, &gqa->rope_theta, hf->errors);
        if (fraction == 0)
            fraction = node_real(ropes[i], "partial_rotary_factor", 0.0, 1.0, &gqa->rotary_fraction,
                                 hf->errors);
        read_scaling(hf, ropes[i]);
    }
    if (theta == 0)
        (void)hf_real(hf, "rope_theta", 1.0, 1e12, &gqa->rope_theta);
    if (fraction == 0)
        (void)hf_real(hf, "partial_rotary_factor", 0.0, 1.0, &gqa->rotary_fraction);
    const struct node *said = node_get(hf->map, "rope_scaling");
    if (said != NULL && said->kind == NODE_MAP)
        scaling = said;
    read_scaling(hf, scaling);
}

/* 0.334 of 192 are 64 dimensions: as many as are whole pairs. */
static void round_rotary(struct gqa *gqa)
{
    int pairs = (int)(gqa->rotary_fraction * gqa->head_dim / 2 + 1e-9);
    if (gqa->head_dim > 0)
        gqa->rotary_fraction = 2.0 * pairs / gqa->head_dim;
}

/* A multimodal file says it at the root, others in the text part; the root wins. */
static void read_tied(struct hf *hf)
{
    static const char key[] = "tie_word_embeddings";
    bool inner = false, outer = false;
    hf_note(hf->root, key);
    hf_note(hf, key);
    if (hf != hf->root && node_get(hf->root->map, key) == NULL && node_get(hf->map, key) != NULL) {
        if (hf_bool(hf, key, &inner) == 1)
            hf->model->tied = inner;
        return;
    }
    if (hf_bool(hf->root, key, &outer) == 1)
        hf->model->tied = outer;
}

void hf_layer_count(struct hf *hf)
{
    int layers = 0;
    if (hf_need(hf, "num_hidden_layers", 1, &layers) == 1 && layers > MODEL_MAX_LAYERS)
        diag_error(hf->errors, hf_place(hf, "num_hidden_layers"),
                   "'num_hidden_layers' is %d; at most %d are read", layers, MODEL_MAX_LAYERS);
    hf->model->layers = layers > MODEL_MAX_LAYERS ? MODEL_MAX_LAYERS : layers;
}

void hf_sizes(struct hf *hf)
{
    struct model *m = hf->model;
    int vocab = 0, context = 0;
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
    if (hf_int(hf, "num_key_value_heads", 1, &m->gqa.kv_heads) == 0) {
        m->gqa.kv_heads = m->gqa.heads;
        hf_taken(hf, "num_key_value_heads", "as num_attention_heads");
    }
    if (hf_real(hf, "rms_norm_eps", 1e-12, 1.0, &m->norm_eps) == 0)
        (void)hf_real(hf, "layernorm_epsilon", 1e-12, 1.0, &m->norm_eps);
    hf_note(hf, "layernorm_epsilon");
    if (node_get(hf->map, "max_position_embeddings") != NULL)
        (void)node_int(hf->map, "max_position_embeddings", 1, INT64_C(1) << 40, &m->context_tokens,
                       hf->errors);
    else if (hf_int(hf, "max_position_embeddings", 1, &context) == 1)
        m->context_tokens = context;
    read_rope(hf);
    read_tied(hf);
    hf_activation(hf, "hidden_act");
    hf_activation(hf, "activation");
    memset(m->layer_mixer, MIXER_GQA, (size_t)m->layers);
    memset(m->layer_ffn, FFN_DENSE, (size_t)m->layers);
}

void hf_decoder(struct hf *hf)
{
    hf_sizes(hf);
    hf->model->gqa.rope.score_factor = 0;
    read_head_dim(hf);
    round_rotary(&hf->model->gqa);
}

void hf_dense_decoder(struct hf *hf)
{
    hf_decoder(hf);
    hf_need(hf, "intermediate_size", 1, &hf->model->dense_width);
}

void hf_post_norms(struct hf *hf)
{
    struct model *m = hf->model;
    hf_part(hf, COMPONENT_NORMS, "norms behind attention and MLP", 2 * m->layers,
            norm_params(m->hidden, false));
    hf_unplanned(hf, "norms behind attention and MLP");
}

void hf_attention_bias(struct hf *hf)
{
    struct gqa *gqa = &hf->model->gqa;
    if (hf_bool(hf, "attention_bias", &gqa->qkv_bias) == 1)
        gqa->output_bias = gqa->qkv_bias;
}

void hf_window(struct hf *hf)
{
    hf_int(hf, "sliding_window", 1, &hf->model->gqa.window_tokens);
}

int hf_window_kind(const struct node *n)
{
    if (n->kind != NODE_TEXT)
        return -1;
    if (strcmp(n->text, "sliding_attention") == 0)
        return MIXER_LOCAL;
    return strcmp(n->text, "full_attention") == 0 ? MIXER_GQA : -1;
}

void hf_window_layers(struct hf *hf, int window)
{
    struct model *m = hf->model;
    bool some = memchr(m->layer_mixer, MIXER_LOCAL, (size_t)m->layers) != NULL;
    if (some && memchr(m->layer_mixer, MIXER_GQA, (size_t)m->layers) == NULL) {
        m->gqa.window_tokens = window;
        memset(m->layer_mixer, MIXER_GQA, (size_t)m->layers);
    } else if (some) {
        m->gqa.local_tokens = window;
    }
}

bool hf_has(const uint8_t *kinds, const struct model *m, int kind)
{
    return memchr(kinds, kind, (size_t)m->layers) != NULL;
}

int hf_count(const uint8_t *kinds, const struct model *m, int kind)
{
    int count = 0;
    for (int i = 0; i < m->layers; i++)
        count += kinds[i] == kind;
    return count;
}
