#include "base/model/hf.h"

#include <string.h>

int hf_int(const struct node *map, const char *key, bool need, int64_t min, int *ret,
           struct diag_list *reterr)
{
    int64_t value = 0;
    int got = node_int(map, key, min, HF_MAX_SIZE, &value, reterr);
    if (got == 1)
        *ret = (int)value;
    if (got == 0 && need) {
        diag_error(reterr, map->at, "required key '%s' is missing", key);
        return diag_hint(reterr, "a config.json as published holds it; nothing is assumed");
    }
    return got;
}

static bool is_neutral(const struct node *value)
{
    switch (value->kind) {
    case NODE_NULL:
        return true;
    case NODE_BOOL:
        return !value->boolean;
    case NODE_INT:
    case NODE_REAL:
        return value->real == 0.0 && value->integer == 0;
    case NODE_TEXT:
        return value->text[0] == '\0';
    case NODE_LIST:
    case NODE_MAP:
        return value->count == 0;
    }
    return false;
}

int hf_refuse(const struct node *map, const char *const *keys, size_t count,
              struct diag_list *reterr)
{
    int result = 0;
    for (size_t i = 0; i < count; i++) {
        const struct node *value = node_get(map, keys[i]);
        if (value == NULL || is_neutral(value))
            continue;
        result = diag_error(reterr, value->at,
                            "'%s' is set, which this architecture's reader does not understand",
                            keys[i]);
        diag_hint(reterr, "it changes the parameters or the arithmetic, so counting without it "
                          "would be a guess");
    }
    return result;
}

int hf_expect_text(const struct node *map, const char *key, const char *value,
                   struct diag_list *reterr)
{
    const char *text = NULL;
    int got = node_text(map, key, &text, reterr);
    if (got != 1 || strcmp(text, value) == 0)
        return got < 0 ? -1 : 0;
    diag_error(reterr, node_get(map, key)->at, "'%s' is '%s', which is not read", key, text);
    return diag_hint(reterr, "only '%s' is", value);
}

int hf_layer_types(const struct node *text, int layers,
                   int (*visit)(const char *type, int layer, void *context), void *context,
                   struct diag_list *reterr)
{
    const struct node *list = NULL;
    int got = node_list(text, "layer_types", &list, reterr);
    if (got != 1)
        return got;
    if (list->count != (size_t)layers)
        return diag_error(reterr, list->at,
                          "'layer_types' names %zu layers, 'num_hidden_layers' %d", list->count,
                          layers);
    int layer = 0, result = 1;
    for (const struct node *type = list->child; type != NULL; type = type->next, layer++) {
        if (type->kind == NODE_TEXT && visit(type->text, layer, context) == 0)
            continue;
        result = diag_error(reterr, type->at, "layer type '%s' is not read by this architecture",
                            type->kind == NODE_TEXT ? type->text : node_kind_name(type->kind));
    }
    return result;
}

static int read_head_dim(const struct node *text, struct model *ret, struct diag_list *reterr)
{
    int got = hf_int(text, "head_dim", false, 1, &ret->gqa.head_dim, reterr);
    if (got != 0 || ret->gqa.heads == 0 || ret->hidden == 0)
        return got < 0 ? -1 : 0;
    if (ret->hidden % ret->gqa.heads != 0) {
        diag_error(reterr, text->at,
                   "'head_dim' is not given and hidden_size %d / heads %d is not "
                   "whole",
                   ret->hidden, ret->gqa.heads);
        return diag_hint(reterr, "write head_dim");
    }
    ret->gqa.head_dim = ret->hidden / ret->gqa.heads;
    return 0;
}

/* Transformers 5 moved rope_theta and partial_rotary_factor from the root into rope_parameters. */
static int read_rope(const struct node *text, struct model *ret, struct diag_list *reterr)
{
    const struct node *rope = NULL;
    int result = node_map(text, "rope_parameters", &rope, reterr) < 0 ? -1 : 0;
    const struct node *places[] = { text, rope };
    for (size_t i = 0; i < 2; i++) {
        if (places[i] == NULL)
            continue;
        if (node_real(places[i], "rope_theta", 1.0, 1e12, &ret->gqa.rope_theta, reterr) < 0)
            result = -1;
        if (node_real(places[i], "partial_rotary_factor", 0.0, 1.0, &ret->gqa.rotary_fraction,
                      reterr) < 0)
            result = -1;
    }
    return result;
}

/* A multimodal file says it at the root, others in the text part; root wins. */
static int read_tied(const struct node *text, const struct node *root, struct model *ret,
                     struct diag_list *reterr)
{
    int got = node_bool(root, "tie_word_embeddings", &ret->tied, reterr);
    if (got == 0 && text != root)
        got = node_bool(text, "tie_word_embeddings", &ret->tied, reterr);
    return got < 0 ? -1 : 0;
}

int hf_read_decoder(const struct node *text, const struct node *root, struct model *ret,
                    struct diag_list *reterr)
{
    static const char *const refused[] = {
        "attention_bias", "mlp_bias", "kv_lora_rank", "q_lora_rank", "index_topk", "lm_head_bias",
    };
    int before = reterr->errors, layers = 0, vocab = 0;
    ret->norm_eps = 1e-6;
    ret->gqa.rope_theta = 1e4;
    if (ret->gqa.rotary_fraction == 0.0)
        ret->gqa.rotary_fraction = 1.0;
    if (hf_int(text, "num_hidden_layers", true, 1, &layers, reterr) == 1 &&
        layers > MODEL_MAX_LAYERS)
        diag_error(reterr, node_get(text, "num_hidden_layers")->at,
                   "'num_hidden_layers' is %d; at most %d are read", layers, MODEL_MAX_LAYERS);
    ret->layers = layers > MODEL_MAX_LAYERS ? MODEL_MAX_LAYERS : layers;
    hf_int(text, "hidden_size", true, 1, &ret->hidden, reterr);
    hf_int(text, "vocab_size", true, 1, &vocab, reterr);
    ret->vocab = vocab;
    hf_int(text, "num_attention_heads", true, 1, &ret->gqa.heads, reterr);
    if (hf_int(text, "num_key_value_heads", false, 1, &ret->gqa.kv_heads, reterr) == 0)
        ret->gqa.kv_heads = ret->gqa.heads;
    read_head_dim(text, ret, reterr);
    node_real(text, "rms_norm_eps", 1e-12, 1.0, &ret->norm_eps, reterr);
    node_int(text, "max_position_embeddings", 1, INT64_C(1) << 40, &ret->context_tokens, reterr);
    read_rope(text, ret, reterr);
    read_tied(text, root, ret, reterr);
    hf_expect_text(text, "hidden_act", "silu", reterr);
    hf_refuse(text, refused, sizeof refused / sizeof refused[0], reterr);
    return reterr->errors == before ? 0 : -1;
}

int hf_read_experts(const struct node *text, struct model *ret, struct diag_list *reterr)
{
    int before = reterr->errors;
    struct moe *moe = &ret->moe;
    hf_int(text, "num_experts", true, 0, &moe->experts, reterr);
    if (moe->experts > 0) {
        hf_int(text, "num_experts_per_tok", true, 1, &moe->top_k, reterr);
        hf_int(text, "moe_intermediate_size", true, 1, &moe->width, reterr);
    }
    return reterr->errors == before ? 0 : -1;
}
