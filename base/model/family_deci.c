/* DeciLM (Llama-Nemotron Super and Ultra): Llama whose blocks a search has changed one by one. A
 * half is left out, or a matrix, or has its own width or number of key-value heads. */
#include "base/model/hf.h"

#include "base/checked.h"

#include <string.h>

enum half { HALF_WHOLE, HALF_LINEAR, HALF_NONE };

/* Reads the rest of a half; its other keys stay for the caller. */
static enum half read_half(struct hf *half)
{
    static const char *const off[] = { "sparsify",       "num_sink_tokens",
                                       "unshifted_sink", "use_prefill_window_in_sink_attention",
                                       "llama4",         "moe",
                                       "window_length",  "hidden_act" };
    bool none = false, linear = false;
    hf_bool(half, "no_op", &none);
    hf_bool(half, "replace_with_linear", &linear);
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
        const struct node *node = node_get(half->map, off[i]);
        if (node != NULL && node->kind == NODE_MAP)
            diag_error(half->errors, node->at, "'%s' of a block is not read", off[i]);
    }
    return none ? HALF_NONE : linear ? HALF_LINEAR : HALF_WHOLE;
}

/* The width that a multiple of the hidden one makes: 2/3 of it, up to the next multiple of 256. */
static int64_t mlp_width(const struct model *m, struct hf *ffn)
{
    double mult = 0;
    int width = 0;
    if (hf_int(ffn, "intermediate_size", 1, &width) == 1)
        return width;
    if (hf_real(ffn, "ffn_mult", 0, 1000, &mult) != 1)
        diag_error(ffn->errors, ffn->map->at,
                   "a block's MLP has neither ffn_mult nor "
                   "intermediate_size");
    int64_t whole = (int64_t)(2 * mult * m->hidden / 3);
    return (whole + 255) / 256 * 256;
}

static int kv_heads(const struct model *m, struct hf *attention)
{
    int group = 0, heads = m->gqa.kv_heads;
    if (hf_int(attention, "n_heads_in_group", 1, &group) == 1)
        heads = m->gqa.heads / group;
    hf_int(attention, "num_key_value_heads", 1, &heads);
    return heads;
}

struct sums {
    uint64_t attention, mlp;
};

static void read_attention_half(struct hf *hf, struct hf *half, int layer, struct sums *sums)
{
    struct model *m = hf->model;
    enum half kind = read_half(half);
    m->layer_mixer[layer] = kind == HALF_NONE ? MIXER_NONE : MIXER_OTHER;
    int64_t query = (int64_t)m->gqa.heads * m->gqa.head_dim;
    int64_t kv = (int64_t)kv_heads(m, half) * m->gqa.head_dim;
    if (kind == HALF_WHOLE)
        sums->attention =
            add_sat(sums->attention, add_sat(mul_sat(2, linear_params(m->hidden, query, false)),
                                             mul_sat(2, linear_params(m->hidden, kv, false))));
    else if (kind == HALF_LINEAR)
        sums->attention = add_sat(sums->attention, linear_params(m->hidden, m->hidden, false));
}

static void read_mlp_half(struct hf *hf, struct hf *half, int layer, struct sums *sums)
{
    struct model *m = hf->model;
    enum half kind = read_half(half);
    m->layer_ffn[layer] = kind == HALF_NONE ? FFN_NONE : FFN_OTHER;
    if (kind == HALF_WHOLE)
        sums->mlp =
            add_sat(sums->mlp, mul_sat(3, linear_params(m->hidden, mlp_width(m, half), false)));
    else if (kind == HALF_LINEAR)
        sums->mlp = add_sat(sums->mlp, linear_params(m->hidden, m->hidden, false));
}

static void read_block(struct hf *hf, const struct node *block, int layer, struct sums *sums)
{
    const struct node *attention = NULL, *ffn = NULL;
    struct hf inner;
    if (block->kind != NODE_MAP || node_map(block, "attention", &attention, hf->errors) != 1 ||
        node_map(block, "ffn", &ffn, hf->errors) != 1) {
        diag_error(hf->errors, block->at, "block %d lacks 'attention' or 'ffn'", layer);
        return;
    }
    hf_init(&inner, attention, hf->root, hf->model, hf->errors);
    read_attention_half(hf, &inner, layer, sums);
    hf_init(&inner, ffn, hf->root, hf->model, hf->errors);
    read_mlp_half(hf, &inner, layer, sums);
}

void family_deci_read(struct hf *hf)
{
    const struct node *list = NULL;
    struct model *m = hf->model;
    struct sums sums = { 0, 0 };
    int layer = 0;
    hf_note(hf, "num_key_value_heads");
    hf_note(hf, "intermediate_size");
    hf_decoder(hf);
    hf_expect_bool(hf, "attention_bias", false);
    hf_expect_bool(hf, "mlp_bias", false);
    if (hf_list(hf, "block_configs", &list) != 1) {
        diag_error(hf->errors, hf->map->at, "required key 'block_configs' is missing");
        return;
    }
    if (list->count != (size_t)m->layers) {
        diag_error(hf->errors, list->at, "'block_configs' names %zu layers, 'num_hidden_layers' %d",
                   list->count, m->layers);
        return;
    }
    for (const struct node *n = list->child; n != NULL; n = n->next)
        read_block(hf, n, layer++, &sums);
    hf_part(hf, COMPONENT_ATTENTION, "attention of all blocks", 1, sums.attention);
    hf_part(hf, COMPONENT_DENSE_MLP, "MLPs of all blocks", 1, sums.mlp);
    hf_unplanned(hf, "blocks that differ one by one");
}
