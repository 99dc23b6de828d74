/* hf_experts.c - experts: how many, how wide, how they are chosen, and which layers have them, in
 * the keys of Qwen, of DeepSeek and of Mixtral. */
#include "base/model/hf.h"

#include <stddef.h>
#include <string.h>

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

int hf_sparse_types(struct hf *hf)
{
    return hf_layer_list(hf, "mlp_layer_types", hf->model->layers, sparse_kind,
                         hf->model->layer_ffn);
}

/* mlp_layer_types wins; else the first layers are dense and of the others every moe_layer_freq-th,
 * counted from layer 0, has experts. The frequency may be a list of 0 and 1, one per layer. */
void hf_sparse_layers_deepseek(struct hf *hf, const char *width)
{
    struct model *m = hf->model;
    const struct node *frequency = node_get(hf->map, "moe_layer_freq");
    const char *const instead[] = { "first_k_dense_replace", "moe_layer_freq", width };
    int first = 0, step = 1;
    hf_notes(hf, instead, sizeof instead / sizeof instead[0]);
    bool named = hf_sparse_types(hf) != 0;
    if (!named && frequency != NULL && frequency->kind == NODE_LIST) {
        hf_layer_list(hf, "moe_layer_freq", m->layers, sparse_number, m->layer_ffn);
    } else if (!named) {
        hf_int(hf, "first_k_dense_replace", 0, &first);
        hf_int(hf, "moe_layer_freq", 1, &step);
        for (int i = 0; i < m->layers; i++)
            m->layer_ffn[i] = i >= first && i % step == 0 ? FFN_MOE : FFN_DENSE;
    }
    if (hf_has(m->layer_ffn, m, FFN_DENSE))
        hf_need(hf, width, 1, &m->dense_width);
}

/* Groups that limit the choice and the scale of its weights; they cost nothing. One group, all
 * groups and a scale of 1 are the same as none, and are read as none. */
static void read_limits(struct hf *hf)
{
    struct moe *moe = &hf->model->moe;

    hf_int(hf, "n_group", 0, &moe->groups);
    if (hf_int(hf, "topk_group", 0, &moe->group_limit) == 0 && moe->groups > 1) {
        moe->group_limit = moe->groups;
        hf_taken(hf, "topk_group", "as n_group");
    }
    if (moe->groups <= 1 || moe->groups == moe->group_limit)
        moe->groups = moe->group_limit = 0;
    (void)hf_real(hf, "routed_scaling_factor", 0, 1e6, &moe->scaling);
    if (moe->scaling == 1)
        moe->scaling = 0;
}

/* num_experts, where a version of the library wrote it next to n_routed_experts, is a default of a
 * class and not the model's. */
void hf_experts_deepseek(struct hf *hf, const char *scoring)
{
    static const struct hf_field fields[] = {
        { "n_routed_experts", offsetof(struct model, moe.experts), 1, true },
        { "num_experts_per_tok", offsetof(struct model, moe.top_k), 1, true },
        { "moe_intermediate_size", offsetof(struct model, moe.width), 1, true },
    };
    struct moe *moe = &hf->model->moe;
    const char *method = "noaux_tc";
    int shared = 0;
    hf_fields(hf, fields, sizeof fields / sizeof fields[0]);
    hf_note(hf, "num_experts");
    read_limits(hf);
    hf_int(hf, "n_shared_experts", 0, &shared);
    moe->shared_width = hf_times(shared, moe->width);
    hf_bool(hf, "norm_topk_prob", &moe->normalize_top_k);
    bool scored = hf_text(hf, "scoring_func", &scoring) == 1;
    bool named = hf_text(hf, "topk_method", &method) == 1;
    /* dots.llm1 names the way of choosing where others name the scores */
    moe->sigmoid = strcmp(scoring, "sigmoid") == 0 || strcmp(scoring, "noaux_tc") == 0;
    if (scored && !moe->sigmoid && strcmp(scoring, "softmax") != 0)
        hf_expect_text(hf, "scoring_func", "sigmoid");
    /* noaux_tc corrects each expert's score by a number of its own */
    moe->router_bias = !named ? moe->sigmoid : strcmp(method, "noaux_tc") == 0;
    if (named && !moe->router_bias && strcmp(method, "greedy") != 0 &&
        strcmp(method, "group_limited_greedy") != 0)
        hf_expect_text(hf, "topk_method", "noaux_tc");
    if (!moe->sigmoid && (!named || strcmp(method, "greedy") == 0))
        moe->groups = moe->group_limit = 0;
    hf_sparse_layers_deepseek(hf, "intermediate_size");
}
