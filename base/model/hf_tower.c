/* hf_tower.c - towers whose tensors are parts (struct model_part), since no row of the tables has
 * them: those of Qwen2.5-VL, Gemma 3 and 4, Mistral 3, MiniMax-M3 and Step. A tower of sound counts
 * with that of images. */
#include "base/model/hf.h"

#include "base/checked.h"

#include <stddef.h>
#include <string.h>

#define AT(member) offsetof(struct model, vision.member)

static uint64_t square(int64_t side)
{
    return (uint64_t)side * (uint64_t)side;
}

static void part(struct hf *hf, const char *name, int times, uint64_t params)
{
    hf_part(hf, COMPONENT_VISION, name, times, params);
}

/* Sizes under the keys that most towers have; heads etc. as the file says. */
static struct vision *read_sizes(struct hf *tower)
{
    static const struct hf_field fields[] = {
        { "num_hidden_layers", AT(depth), 1, true },
        { "hidden_size", AT(width), 1, true },
        { "intermediate_size", AT(mlp_width), 1, true },
        { "num_attention_heads", AT(heads), 1, true },
        { "patch_size", AT(patch), 1, true },
    };
    struct vision *v = &tower->model->vision;
    *v = (struct vision){ .temporal_patch = 1, .merge = 1, .in_channels = 3, .listed = true };
    hf_fields(tower, fields, sizeof fields / sizeof fields[0]);
    hf_int(tower, "num_channels", 1, &v->in_channels);
    hf_int(tower, "temporal_patch_size", 1, &v->temporal_patch);
    v->positions = 1;
    return v;
}

static uint64_t patch_params(const struct vision *v, bool bias)
{
    int64_t pixels = (int64_t)v->patch * v->patch * v->in_channels * v->temporal_patch;
    return linear_params(pixels, v->width, bias);
}

/* A block of SigLIP: attention and two matrices, all with biases, and two norms. */
static uint64_t plain_block(const struct vision *v)
{
    uint64_t mlp = add_sat(linear_params(v->width, v->mlp_width, true),
                           linear_params(v->mlp_width, v->width, true));
    return add_sat(add_sat(mul_sat(4, linear_params(v->width, v->width, true)), mlp),
                   2 * norm_params(v->width, true));
}

static int image_positions(struct hf *tower, int patch)
{
    int image = 0;
    hf_need(tower, "image_size", 1, &image);
    int64_t side = patch > 0 ? image / patch : 0;
    return side > 4000 ? HF_MAX_SIZE : (int)(side * side);
}

void hf_vision_qwen2(struct hf *hf)
{
    static const char *const no_matter[] = { "tokens_per_second", "window_size", "in_chans",
                                             "fullatt_block_indexes", "spatial_patch_size" };
    struct hf tower;
    if (!hf_open_tower(hf, "vision_config",
                       "depth 32, hidden_size 3584, intermediate_size 3420, num_heads 16, "
                       "patch_size 14, temporal_patch_size 2, spatial_merge_size 2, "
                       "out_hidden_size 3584",
                       false, &tower))
        return;
    struct vision *v = &hf->model->vision;
    int out = hf->model->hidden;
    *v = (struct vision){ .in_channels = 3, .positions = 1, .listed = true };
    hf_need(&tower, "depth", 1, &v->depth);
    hf_need(&tower, "hidden_size", 1, &v->width);
    hf_need(&tower, "intermediate_size", 1, &v->mlp_width);
    hf_need(&tower, "num_heads", 1, &v->heads);
    hf_need(&tower, "patch_size", 1, &v->patch);
    hf_int(&tower, "in_channels", 1, &v->in_channels);
    hf_int(&tower, "temporal_patch_size", 1, &v->temporal_patch);
    hf_int(&tower, "spatial_merge_size", 1, &v->merge);
    hf_int(&tower, "out_hidden_size", 1, &out);
    int64_t merged = (int64_t)v->width * v->merge * v->merge;
    uint64_t attention = add_sat(linear_params(v->width, 3 * (int64_t)v->width, true),
                                 linear_params(v->width, v->width, true));
    uint64_t mlp = add_sat(mul_sat(2, linear_params(v->width, v->mlp_width, true)),
                           linear_params(v->mlp_width, v->width, true));
    part(&tower, "vision patches", 1, patch_params(v, false));
    part(&tower, "vision blocks", v->depth,
         add_sat(add_sat(attention, mlp), norm_params(2 * (int64_t)v->width, false)));
    part(&tower, "vision merger", 1,
         add_sat(add_sat(linear_params(merged, merged, true), linear_params(merged, out, true)),
                 (uint64_t)v->width));
    hf_activation(&tower, "hidden_act");
    hf_notes(&tower, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_refuse_rest(&tower);
}

/* Behind the blocks a norm and, where the file does not say otherwise, a head that pools; a matrix
 * and a norm join the text. */
void hf_vision_siglip(struct hf *hf)
{
    struct hf tower;
    bool head = true;
    if (!hf_open_tower(hf, "vision_config",
                       "hidden_size 768, intermediate_size 3072, num_hidden_layers 12, "
                       "num_attention_heads 12, image_size 224, patch_size 16, vision_use_head 1",
                       false, &tower))
        return;
    const struct vision *v = read_sizes(&tower);
    int64_t w = v->width;
    hf->model->vision.positions = image_positions(&tower, v->patch);
    hf_bool(&tower, "vision_use_head", &head);
    part(&tower, "vision patches", 1, patch_params(v, true));
    part(&tower, "vision positions", 1, linear_params(v->positions, w, false));
    part(&tower, "vision blocks", v->depth, plain_block(v));
    part(&tower, "vision norm", 1, norm_params(w, true));
    part(&tower, "vision head", head,
         add_sat(add_sat((uint64_t)w, norm_params(w, true)),
                 add_sat(mul_sat(4, linear_params(w, w, true)),
                         add_sat(linear_params(w, v->mlp_width, true),
                                 linear_params(v->mlp_width, w, true)))));
    part(&tower, "vision projector", 1,
         add_sat(linear_params(w, hf->model->hidden, false), (uint64_t)w));
    hf_note(&tower, "layer_norm_eps");
    hf_note(&tower, "hidden_act");
    hf_refuse_rest(&tower);
}

/* Gated MLPs, no biases; merge x merge patches become one, two matrices join the text. */
void hf_vision_pixtral(struct hf *hf)
{
    static const char *const outer[] = { "projector_hidden_act", "vision_feature_layer",
                                         "spatial_merge_size", "multimodal_projector_bias" };
    struct hf tower;
    bool bias = false;
    int merge = 2;
    hf_notes(hf->root, outer, sizeof outer / sizeof outer[0]);
    if (!hf_open_tower(hf, "vision_config",
                       "hidden_size 1024, intermediate_size 4096, num_hidden_layers 24, "
                       "num_attention_heads 16, patch_size 16, image_size 1024",
                       false, &tower))
        return;
    const struct vision *v = read_sizes(&tower);
    hf_bool(hf->root, "multimodal_projector_bias", &bias);
    hf_int(hf->root, "spatial_merge_size", 1, &merge);
    hf->model->vision.merge = merge;
    const struct node *layer = node_get(hf->root->map, "vision_feature_layer");
    if (layer != NULL && layer->kind == NODE_LIST)
        diag_error(hf->errors, layer->at, "'vision_feature_layer' with several layers is not read");
    int64_t w = v->width, merged = w * merge * merge, hidden = hf->model->hidden;
    part(&tower, "vision patches", 1, patch_params(v, false));
    part(&tower, "vision blocks", v->depth,
         add_sat(add_sat(mul_sat(4, square(w)), mul_sat(3, linear_params(w, v->mlp_width, false))),
                 norm_params(2 * w, false)));
    part(&tower, "vision norms", 2, norm_params(w, false));
    part(&tower, "vision merger", 1, linear_params(merged, w, false));
    part(&tower, "vision projector", 1,
         add_sat(linear_params(w, hidden, bias), linear_params(hidden, hidden, bias)));
    hf_notes(&tower, (const char *const[]){ "image_size", "hidden_act", "head_dim" }, 3);
    hf_refuse_rest(&tower);
}

void hf_vision_minimax(struct hf *hf)
{
    struct hf tower;
    int joined = 0;
    if (!hf_open_tower(hf, "vision_config",
                       "hidden_size 1280, intermediate_size 5120, num_hidden_layers 32, "
                       "num_attention_heads 16, patch_size 14, temporal_patch_size 2, "
                       "spatial_merge_size 2",
                       false, &tower))
        return;
    const struct vision *v = read_sizes(&tower);
    hf_int(&tower, "spatial_merge_size", 1, &hf->model->vision.merge);
    hf_need(hf->root, "projector_hidden_size", 1, &joined);
    int64_t w = v->width, hidden = hf->model->hidden, merged = hidden * v->merge * v->merge;
    part(&tower, "vision patches", 1, patch_params(v, false));
    part(&tower, "vision norm", 1, norm_params(w, true));
    part(&tower, "vision blocks", v->depth, plain_block(v));
    part(&tower, "vision projector", 1,
         add_sat(linear_params(w, joined, true), linear_params(joined, hidden, true)));
    part(&tower, "vision merger", 1,
         add_sat(linear_params(merged, joined, true), linear_params(joined, hidden, true)));
    hf_notes(&tower, (const char *const[]){ "image_size", "hidden_act", "layer_norm_eps" }, 3);
    hf_refuse_rest(&tower);
}

/* Blocks scale their outputs; two convolutions of 3 x 3 halve the sides and double the width. */
void hf_vision_step(struct hf *hf)
{
    static const char *const no_matter[] = { "image_size",
                                             "hidden_act",
                                             "layer_norm_eps",
                                             "ls_init_value",
                                             "layer_scale_init_value",
                                             "mlp_ratio",
                                             "use_cls_token",
                                             "use_ln_pre",
                                             "use_ln_post",
                                             "use_abs_posemb",
                                             "use_rope2d",
                                             "intermediate_size" };
    struct hf tower;
    double ratio = 8960.0 / 1536.0;
    bool bias = false;
    if (!hf_open_tower(hf, "vision_config",
                       "width 1536, layers 47, heads 16, image_size 728, patch_size 14, "
                       "max_position_embeddings 2704",
                       false, &tower))
        return;
    struct vision *v = &hf->model->vision;
    *v = (struct vision){ .temporal_patch = 1, .merge = 4, .in_channels = 3, .listed = true };
    hf_need(&tower, "width", 1, &v->width);
    hf_need(&tower, "layers", 1, &v->depth);
    hf_need(&tower, "heads", 1, &v->heads);
    hf_need(&tower, "patch_size", 1, &v->patch);
    hf_int(&tower, "num_channels", 1, &v->in_channels);
    v->positions = image_positions(&tower, v->patch);
    hf_note(&tower, "max_position_embeddings");
    if (hf_real(&tower, "mlp_ratio", 0.01, 100, &ratio) == 0)
        hf_taken(&tower, "mlp_ratio", "8960 / 1536");
    v->mlp_width = (int)(v->width * ratio);
    hf_bool(hf->root, "projector_bias", &bias);
    hf_notes(hf->root, (const char *const[]){ "projector_bias", "understand_projector_stride" }, 2);
    int64_t w = v->width;
    part(&tower, "vision patches", 1, patch_params(v, false));
    part(&tower, "vision positions", 1, linear_params(v->positions, w, false));
    part(&tower, "vision norm", 1, norm_params(w, true));
    part(&tower, "vision blocks", v->depth, add_sat(plain_block(v), norm_params(2 * w, false)));
    part(&tower, "vision downsampling", 1,
         add_sat(linear_params(9 * w, 2 * w, true), linear_params(18 * w, 4 * w, true)));
    part(&tower, "vision projector", 1, linear_params(4 * w, hf->model->hidden, bias));
    hf_notes(&tower, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_refuse_rest(&tower);
}

/* Bounds of inputs and outputs, which checkpoints hold for each matrix. */
static uint64_t bounds(struct hf *tower, bool otherwise, int matrices)
{
    bool clipped = otherwise;
    hf_bool(tower, "use_clipped_linears", &clipped);
    return clipped ? 4 * (uint64_t)matrices : 0;
}

static void read_gemma_images(struct hf *hf)
{
    static const char *const no_matter[] = { "pooling_kernel_size", "default_output_length",
                                             "hidden_activation", "rms_norm_eps" };
    struct hf tower;
    bool standard = false;
    int head_dim = 64, kv_heads = 0;
    if (!hf_open_tower(hf, "vision_config",
                       "hidden_size 768, intermediate_size 3072, num_hidden_layers 16, "
                       "num_attention_heads 12, num_key_value_heads 12, head_dim 64, "
                       "patch_size 16, position_embedding_size 10240",
                       true, &tower))
        return;
    struct vision *v = read_sizes(&tower);
    hf_need(&tower, "num_key_value_heads", 1, &kv_heads);
    hf_need(&tower, "head_dim", 1, &head_dim);
    hf_need(&tower, "position_embedding_size", 1, &v->positions);
    hf_bool(&tower, "standardize", &standard);
    hf_expect_bool(&tower, "attention_bias", false);
    int64_t w = v->width, query = (int64_t)v->heads * head_dim, kv = (int64_t)kv_heads * head_dim;
    uint64_t attention =
        mul_sat(2, add_sat(linear_params(w, query, false), linear_params(w, kv, false)));
    part(&tower, "vision patches", 1, patch_params(v, false));
    part(&tower, "vision positions", 2, linear_params(v->positions, w, false));
    part(&tower, "vision blocks", v->depth,
         add_sat(
             add_sat(attention, mul_sat(3, linear_params(w, v->mlp_width, false))),
             add_sat(norm_params(4 * w + 2 * (int64_t)head_dim, false), bounds(&tower, false, 7))));
    part(&tower, "vision scales", standard ? 2 : 0, (uint64_t)w);
    part(&tower, "vision projector", 1, linear_params(w, hf->model->hidden, false));
    hf_notes(&tower, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_refuse_rest(&tower);
}

static void read_channels(struct hf *tower, int64_t ret[2])
{
    const struct node *list = NULL;
    ret[0] = 128;
    ret[1] = 32;
    if (hf_list(tower, "subsampling_conv_channels", &list) != 1) {
        hf_taken(tower, "subsampling_conv_channels", "128 and 32");
        return;
    }
    const struct node *first = list->child, *second = first != NULL ? first->next : NULL;
    if (list->count != 2 || first->kind != NODE_INT || second->kind != NODE_INT ||
        first->integer < 4 || second->integer < 1 || first->integer > 1 << 16 ||
        second->integer > 1 << 16) {
        diag_error(tower->errors, list->at, "'subsampling_conv_channels' is not two numbers");
        return;
    }
    ret[0] = first->integer;
    ret[1] = second->integer;
}

/* Two MLPs around attention with relative positions and a convolution, each with its norms. */
static void read_gemma_sound(struct hf *hf)
{
    static const char *const no_matter[] = {
        "attention_chunk_size",
        "attention_context_left",
        "attention_context_right",
        "attention_logit_cap",
        "attention_invalid_logits_value",
        "gradient_clipping",
        "residual_weight",
        "rms_norm_eps",
        "hidden_act",
    };
    struct hf tower;
    int depth = 0, a = 0, heads = 0, kernel = 0, out = 0;
    int64_t channels[2];
    if (!hf_open_tower(hf, "audio_config",
                       "hidden_size 1024, num_hidden_layers 12, num_attention_heads 8, "
                       "conv_kernel_size 5, output_proj_dims 1536",
                       true, &tower))
        return;
    hf_need(&tower, "hidden_size", 1, &a);
    hf_need(&tower, "num_hidden_layers", 1, &depth);
    hf_need(&tower, "num_attention_heads", 1, &heads);
    hf_need(&tower, "conv_kernel_size", 1, &kernel);
    hf_need(&tower, "output_proj_dims", 1, &out);
    read_channels(&tower, channels);
    uint64_t matrices = mul_sat(16 + 5 + 3, square(a)); /* MLPs; attention; convolution */
    uint64_t vectors = mul_sat((uint64_t)a, (uint64_t)(4 + 2 + 3 + kernel));
    part(&tower, "sound convolutions", 1,
         add_sat((uint64_t)(9 * channels[0] + channels[0] + 9 * channels[0] * channels[1] +
                            channels[1]),
                 linear_params(channels[0] / 4 * channels[1], a, false)));
    part(&tower, "sound blocks", depth,
         add_sat(add_sat(matrices, vectors),
                 add_sat((uint64_t)(heads > 0 ? a / heads : 0), bounds(&tower, true, 10))));
    part(&tower, "sound projectors", 1,
         add_sat(linear_params(a, out, true), linear_params(out, hf->model->hidden, false)));
    hf_notes(&tower, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_refuse_rest(&tower);
}

void hf_vision_gemma4(struct hf *hf)
{
    read_gemma_images(hf);
    read_gemma_sound(hf);
}
