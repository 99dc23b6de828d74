/* hf_vision.c - vision_config of the root: towers of Qwen, of Kimi (MoonViT) and of Llama 4. Absent
 * keys take the class defaults, which are the released towers' values. */
#include "base/model/hf.h"

#include <stddef.h>
#include <string.h>

#define AT(member) offsetof(struct model, vision.member)

bool hf_open_tower(struct hf *hf, const char *key, const char *defaults, bool optional,
                   struct hf *ret)
{
    const struct node *map = NULL;
    const struct model_family *family = model_family_find(hf->model->architecture);
    hf_note(hf->root, key);
    if (family == NULL || family->text_key == NULL)
        return false;
    int got = node_map(hf->root->map, key, &map, hf->errors);
    if (got == 0 && !optional)
        diag_warning(hf->errors, hf->root->map->at,
                     "'%s' is not there, so the tower is not counted", key);
    if (got != 1)
        return false;
    hf_init(ret, map, hf->root, hf->model, hf->errors);
    ret->place = strcmp(key, "vision_config") == 0 ? "vision_config." : "audio_config.";
    ret->defaults = defaults;
    return true;
}

/* The tower ends at the text model's width. */
static void check_end(struct hf *tower, const char *key)
{
    int out = tower->model->hidden;
    if (hf_int(tower, key, 1, &out) == 1 && out != tower->model->hidden &&
        node_get(tower->map, key) == NULL) {
        diag_error(tower->errors, tower->map->at, "required key '%s%s' is missing", tower->place,
                   key);
        diag_hint(tower->errors, "its class's default, %d, is not the text model's hidden_size %d",
                  out, tower->model->hidden);
        return;
    }
    if (out != tower->model->hidden && tower->model->hidden != 0)
        diag_error(tower->errors, hf_place(tower, key),
                   "'%s%s': the vision tower ends at width %d, the text model's hidden_size is %d",
                   tower->place, key, out, tower->model->hidden);
}

void hf_vision_qwen(struct hf *hf, int deepstack)
{
    static const struct hf_field fields[] = {
        { "depth", AT(depth), 1, false },
        { "hidden_size", AT(width), 1, false },
        { "intermediate_size", AT(mlp_width), 1, false },
        { "num_heads", AT(heads), 1, false },
        { "patch_size", AT(patch), 1, false },
        { "temporal_patch_size", AT(temporal_patch), 1, false },
        { "spatial_merge_size", AT(merge), 1, false },
        { "in_channels", AT(in_channels), 1, false },
        { "num_position_embeddings", AT(positions), 1, false },
    };
    struct hf tower;
    const struct node *deep = NULL;
    if (!hf_open_tower(hf, "vision_config",
                       "depth 27, hidden_size 1152, intermediate_size 4304, num_heads 16, "
                       "patch_size 16, temporal_patch_size 2, spatial_merge_size 2, "
                       "in_channels 3, num_position_embeddings 2304, out_hidden_size 3584",
                       false, &tower))
        return;
    hf->model->vision = (struct vision){ 0 };
    hf_fields(&tower, fields, sizeof fields / sizeof fields[0]);
    check_end(&tower, "out_hidden_size");
    hf_list(&tower, "deepstack_visual_indexes", &deep);
    hf->model->vision.deepstack = deep != NULL ? (int)deep->count : deepstack;
    if (deep == NULL && deepstack > 0)
        hf_taken(&tower, "deepstack_visual_indexes", "8, 16 and 24");
    hf_expect_text(&tower, "hidden_act", "gelu_pytorch_tanh");
    hf_refuse_rest(&tower);
}

/* MoonViT-3D: like Qwen's, with a norm behind the blocks; patches of one frame, learned positions
 * in a plane and computed ones in time. */
void hf_vision_moon(struct hf *hf)
{
    static const struct hf_field fields[] = {
        { "vt_num_hidden_layers", AT(depth), 1, false },
        { "vt_hidden_size", AT(width), 1, false },
        { "vt_intermediate_size", AT(mlp_width), 1, false },
        { "vt_num_attention_heads", AT(heads), 1, false },
        { "patch_size", AT(patch), 1, false },
    };
    static const char *const no_matter[] = { "init_pos_emb_time", "pos_emb_time", "merge_type",
                                             "projector_ln_eps", "video_attn_type" };
    struct hf tower;
    struct vision *v = &hf->model->vision;
    int height = 64, width = 64;
    hf_note(hf->root, "projection_layer_norm_eps");
    hf_note(hf->root, "projection_hidden_size");
    if (!hf_open_tower(hf, "vision_config",
                       "vt_num_hidden_layers 27, vt_hidden_size 1152, vt_intermediate_size 4304, "
                       "vt_num_attention_heads 16, patch_size 14, init_pos_emb_height 64, "
                       "init_pos_emb_width 64",
                       false, &tower))
        return;
    *v = (struct vision){ .temporal_patch = 1, .merge = 2, .in_channels = 3, .final_norm = true };
    hf_fields(&tower, fields, sizeof fields / sizeof fields[0]);
    hf_int(&tower, "init_pos_emb_height", 1, &height);
    hf_int(&tower, "init_pos_emb_width", 1, &width);
    v->positions = height > HF_MAX_SIZE / width ? HF_MAX_SIZE : height * width;
    hf_note(&tower, "hidden_act");
    hf_expect_int(&tower, "mm_hidden_size", v->width);
    hf_expect_int(hf->root, "projection_hidden_size", v->width);
    hf_expect_text(&tower, "mm_projector_type", "patchmerger");
    hf_expect_text(&tower, "pos_emb_type", "divided_fixed");
    hf_expect_text(&tower, "projector_hidden_act", "gelu");
    check_end(&tower, "text_hidden_size");
    const struct node *merge = NULL;
    if (hf_list(&tower, "merge_kernel_size", &merge) == 1 &&
        (merge->count != 2 || merge->child->kind != NODE_INT || merge->child->integer != 2 ||
         merge->child->next->kind != NODE_INT || merge->child->next->integer != 2))
        diag_error(hf->errors, merge->at, "'merge_kernel_size' other than [2, 2] is not read");
    hf_notes(&tower, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_refuse_rest(&tower);
}

/* Pixels are shuffled by half a side: four patches side by side. */
void hf_vision_llama4(struct hf *hf)
{
    static const struct hf_field fields[] = {
        { "num_hidden_layers", AT(depth), 1, false },
        { "hidden_size", AT(width), 1, false },
        { "intermediate_size", AT(mlp_width), 1, false },
        { "num_attention_heads", AT(heads), 1, false },
        { "patch_size", AT(patch), 1, false },
        { "num_channels", AT(in_channels), 1, false },
        { "projector_input_dim", AT(adapter_in), 1, false },
        { "projector_output_dim", AT(adapter_out), 1, false },
    };
    static const char *const no_matter[] = { "norm_eps", "vision_feature_layer",
                                             "vision_feature_select_strategy",
                                             "projector_dropout" };
    struct hf tower;
    struct vision *v = &hf->model->vision;
    double ratio = 0.5;
    int image = 448;
    if (!hf_open_tower(hf, "vision_config",
                       "num_hidden_layers 34, hidden_size 768, intermediate_size 5632, "
                       "num_attention_heads 16, patch_size 14, image_size 448, "
                       "projector_input_dim 4096, projector_output_dim 4096, "
                       "vision_output_dim 7680",
                       false, &tower))
        return;
    *v = (struct vision){ .temporal_patch = 1, .merge = 2, .in_channels = 3 };
    hf_fields(&tower, fields, sizeof fields / sizeof fields[0]);
    hf_int(&tower, "image_size", 1, &image);
    int64_t side = v->patch > 0 ? image / v->patch : 0;
    v->positions = side > 4000 ? HF_MAX_SIZE : (int)(side * side + 1);
    hf_real(&tower, "pixel_shuffle_ratio", 0.0, 1.0, &ratio);
    if (ratio != 0.5)
        diag_error(hf->errors, hf_place(&tower, "pixel_shuffle_ratio"),
                   "'pixel_shuffle_ratio' other than 0.5 is not read");
    hf_expect_int(&tower, "vision_output_dim", v->adapter_out);
    hf_expect_text(&tower, "hidden_act", "gelu");
    hf_expect_bool(&tower, "multi_modal_projector_bias", false);
    hf_notes(&tower, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_refuse_rest(&tower);
}
