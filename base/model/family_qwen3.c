/* Llama, Qwen2, Qwen3 and Qwen3-MoE: softmax attention in every layer; they differ in biases, in
 * head norms, in which layers have experts, and in how a sliding window is said. */
#include "base/model/hf.h"

#include <string.h>

static const char *const dense_only[] = {
    "num_experts",      "num_local_experts",        "n_routed_experts",
    "n_shared_experts", "num_nextn_predict_layers", "shared_expert_intermediate_size",
};

/* Keys of the mixture classes that Qwen3-MoE itself does not have. */
static const char *const no_other_experts[] = {
    "num_local_experts",        "n_routed_experts",
    "n_shared_experts",         "shared_expert_intermediate_size",
    "num_nextn_predict_layers", "mtp_num_hidden_layers",
};

static void fill_layers(struct model *model, enum ffn ffn)
{
    memset(model->layer_mixer, MIXER_GQA, (size_t)model->layers);
    memset(model->layer_ffn, ffn, (size_t)model->layers);
}

int family_llama_read(const struct node *text, const struct node *root, struct model *ret,
                      struct diag_list *reterr)
{
    int before = reterr->errors;
    hf_read_decoder(text, root, ret, reterr);
    hf_int(text, "intermediate_size", true, 1, &ret->dense_width, reterr);
    hf_refuse(text, dense_only, sizeof dense_only / sizeof dense_only[0], reterr);
    fill_layers(ret, FFN_DENSE);
    return reterr->errors == before ? 0 : -1;
}

static int count_sliding(const char *type, int layer, void *context)
{
    (void)layer;
    int *sliding = context;
    if (strcmp(type, "sliding_attention") == 0)
        ++*sliding;
    return strcmp(type, "sliding_attention") == 0 || strcmp(type, "full_attention") == 0 ? 0 : -1;
}

/* sliding_window counts only with use_sliding_window. In the dense class, layers from
 * max_window_layers on slide unless layer_types says which; in the mixture class all do. */
static int read_window(const struct node *text, bool every_layer, struct model *ret,
                       struct diag_list *reterr)
{
    bool use = false;
    int window = 0, from = every_layer ? 0 : 28, sliding = 0, before = reterr->errors;
    node_bool(text, "use_sliding_window", &use, reterr);
    if (!use)
        return reterr->errors == before ? 0 : -1;
    hf_int(text, "sliding_window", false, 1, &window, reterr);
    if (!every_layer)
        hf_int(text, "max_window_layers", false, 0, &from, reterr);
    int listed = hf_layer_types(text, ret->layers, count_sliding, &sliding, reterr);
    if (listed == 0)
        sliding = from < ret->layers ? ret->layers - from : 0;
    if (window == 0 || sliding == 0)
        return reterr->errors == before ? 0 : -1;
    if (sliding < ret->layers) {
        diag_error(reterr, node_get(text, "sliding_window")->at,
                   "a sliding window on %d of %d layers is not read", sliding, ret->layers);
        return diag_hint(reterr, "all layers or none may slide");
    }
    ret->gqa.window_tokens = window;
    return reterr->errors == before ? 0 : -1;
}

int family_qwen2_read(const struct node *text, const struct node *root, struct model *ret,
                      struct diag_list *reterr)
{
    int before = reterr->errors;
    family_llama_read(text, root, ret, reterr);
    ret->gqa.qkv_bias = true;
    read_window(text, false, ret, reterr);
    return reterr->errors == before ? 0 : -1;
}

int family_qwen3_read(const struct node *text, const struct node *root, struct model *ret,
                      struct diag_list *reterr)
{
    int before = reterr->errors;
    family_llama_read(text, root, ret, reterr);
    ret->gqa.qk_norm = true;
    read_window(text, false, ret, reterr);
    return reterr->errors == before ? 0 : -1;
}

/* A layer has experts when it is not listed in mlp_only_layers and (i + 1) is a multiple of
 * decoder_sparse_step. */
static int read_sparse_layers(const struct node *text, struct model *ret, struct diag_list *reterr)
{
    int step = 1, before = reterr->errors;
    const struct node *dense = NULL;
    hf_int(text, "decoder_sparse_step", false, 1, &step, reterr);
    node_list(text, "mlp_only_layers", &dense, reterr);
    fill_layers(ret, FFN_DENSE);
    for (int i = step - 1; i < ret->layers && ret->moe.experts > 0; i += step)
        ret->layer_ffn[i] = FFN_MOE;
    for (const struct node *n = dense != NULL ? dense->child : NULL; n != NULL; n = n->next) {
        if (n->kind == NODE_INT && n->integer >= 0 && n->integer < ret->layers)
            ret->layer_ffn[n->integer] = FFN_DENSE;
        else
            diag_error(reterr, n->at, "'mlp_only_layers' holds '%s', not a layer of 0..%d",
                       n->text != NULL ? n->text : node_kind_name(n->kind), ret->layers - 1);
    }
    return reterr->errors == before ? 0 : -1;
}

int family_qwen3_moe_read(const struct node *text, const struct node *root, struct model *ret,
                          struct diag_list *reterr)
{
    int before = reterr->errors;
    hf_read_decoder(text, root, ret, reterr);
    hf_read_experts(text, ret, reterr);
    node_bool(text, "norm_topk_prob", &ret->moe.normalize_top_k, reterr);
    ret->gqa.qk_norm = true;
    read_window(text, true, ret, reterr);
    read_sparse_layers(text, ret, reterr);
    hf_refuse(text, no_other_experts, sizeof no_other_experts / sizeof no_other_experts[0], reterr);
    /* The published all-MoE files carry an intermediate_size that no layer uses. */
    if (memchr(ret->layer_ffn, FFN_DENSE, (size_t)ret->layers) != NULL)
        hf_int(text, "intermediate_size", true, 1, &ret->dense_width, reterr);
    return reterr->errors == before ? 0 : -1;
}
