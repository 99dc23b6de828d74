/* Qwen3.5, dense and with experts: gated delta net in most layers, gated softmax attention in every
 * fourth, zero-centred norms, a multi-token-prediction layer, a vision tower. */
#include "base/model/hf.h"

#include <string.h>

static int set_mixer(const char *type, int layer, void *context)
{
    struct model *model = context;
    bool full = strcmp(type, "full_attention") == 0;
    model->layer_mixer[layer] = full ? MIXER_GQA : MIXER_GDN;
    return full || strcmp(type, "linear_attention") == 0 ? 0 : -1;
}

/* layer_types wins; without it every full_attention_interval-th layer is softmax attention. */
static int read_mixers(const struct node *text, struct model *ret, struct diag_list *reterr)
{
    int interval = 4;
    int got = hf_layer_types(text, ret->layers, set_mixer, ret, reterr);
    if (got != 0)
        return got < 0 ? -1 : 0;
    if (hf_int(text, "full_attention_interval", false, 1, &interval, reterr) < 0)
        return -1;
    for (int i = 0; i < ret->layers; i++)
        ret->layer_mixer[i] = (i + 1) % interval == 0 ? MIXER_GQA : MIXER_GDN;
    return 0;
}

static int read_delta_net(const struct node *text, struct model *ret, struct diag_list *reterr)
{
    int before = reterr->errors;
    if (memchr(ret->layer_mixer, MIXER_GDN, (size_t)ret->layers) == NULL)
        return 0;
    hf_int(text, "linear_num_key_heads", true, 1, &ret->gdn.key_heads, reterr);
    hf_int(text, "linear_num_value_heads", true, 1, &ret->gdn.value_heads, reterr);
    hf_int(text, "linear_key_head_dim", true, 1, &ret->gdn.key_dim, reterr);
    hf_int(text, "linear_value_head_dim", true, 1, &ret->gdn.value_dim, reterr);
    hf_int(text, "linear_conv_kernel_dim", true, 1, &ret->gdn.conv_width, reterr);
    return reterr->errors == before ? 0 : -1;
}

/* Absent keys take the class defaults, which are the released towers' values. */
static int read_vision(const struct node *root, struct model *ret, struct diag_list *reterr)
{
    static const char *const refused[] = { "deepstack_visual_indexes" };
    const struct node *map = NULL;
    int before = reterr->errors, out = ret->hidden;
    if (node_map(root, "vision_config", &map, reterr) != 1)
        return reterr->errors == before ? 0 : -1;
    ret->vision = (struct vision){ 27, 1152, 4304, 16, 16, 2, 2, 3, 2304 };
    const struct {
        const char *key;
        int *value;
    } fields[] = {
        { "depth", &ret->vision.depth },
        { "hidden_size", &ret->vision.width },
        { "intermediate_size", &ret->vision.mlp_width },
        { "num_heads", &ret->vision.heads },
        { "patch_size", &ret->vision.patch },
        { "temporal_patch_size", &ret->vision.temporal_patch },
        { "spatial_merge_size", &ret->vision.merge },
        { "in_channels", &ret->vision.in_channels },
        { "num_position_embeddings", &ret->vision.positions },
        { "out_hidden_size", &out },
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        hf_int(map, fields[i].key, false, 1, fields[i].value, reterr);
    if (out != ret->hidden && ret->hidden != 0)
        diag_error(reterr, node_get(map, "out_hidden_size")->at,
                   "the vision tower ends at width %d, the text model's hidden_size is %d", out,
                   ret->hidden);
    hf_refuse(map, refused, sizeof refused / sizeof refused[0], reterr);
    return reterr->errors == before ? 0 : -1;
}

static int read_hybrid(const struct node *text, const struct node *root, struct model *ret,
                       struct diag_list *reterr)
{
    static const char *const refused[] = {
        "mtp_use_dedicated_embeddings",
        "mlp_only_layers",
        "num_local_experts",
        "n_routed_experts",
        "n_shared_experts",
        "num_nextn_predict_layers",
    };
    int before = reterr->errors;
    ret->gqa.rotary_fraction = 0.25;
    hf_read_decoder(text, root, ret, reterr);
    ret->norm_zero_centred = true;
    ret->gqa.qk_norm = true;
    ret->gqa.output_gate = true;
    node_bool(text, "attn_output_gate", &ret->gqa.output_gate, reterr);
    read_mixers(text, ret, reterr);
    read_delta_net(text, ret, reterr);
    hf_int(text, "mtp_num_hidden_layers", false, 0, &ret->mtp_layers, reterr);
    hf_refuse(text, refused, sizeof refused / sizeof refused[0], reterr);
    if (text != root)
        read_vision(root, ret, reterr);
    return reterr->errors == before ? 0 : -1;
}

int family_qwen3_5_read(const struct node *text, const struct node *root, struct model *ret,
                        struct diag_list *reterr)
{
    static const char *const refused[] = { "num_experts", "shared_expert_intermediate_size" };
    int before = reterr->errors;
    read_hybrid(text, root, ret, reterr);
    hf_int(text, "intermediate_size", true, 1, &ret->dense_width, reterr);
    hf_refuse(text, refused, sizeof refused / sizeof refused[0], reterr);
    memset(ret->layer_ffn, FFN_DENSE, (size_t)ret->layers);
    return reterr->errors == before ? 0 : -1;
}

int family_qwen3_5_moe_read(const struct node *text, const struct node *root, struct model *ret,
                            struct diag_list *reterr)
{
    int before = reterr->errors;
    read_hybrid(text, root, ret, reterr);
    hf_read_experts(text, ret, reterr);
    hf_int(text, "shared_expert_intermediate_size", true, 0, &ret->moe.shared_width, reterr);
    ret->moe.shared_gate = ret->moe.shared_width > 0;
    ret->moe.normalize_top_k = true;
    memset(ret->layer_ffn, FFN_MOE, (size_t)ret->layers);
    return reterr->errors == before ? 0 : -1;
}
