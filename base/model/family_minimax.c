/* MiniMax: M1 and Text-01 mix lightning attention with softmax attention in every eighth layer; M2
 * has softmax attention alone, with norms over all query and all key heads. Experts as wide as
 * intermediate_size. */
#include "base/model/hf.h"

#include <string.h>

static int mixer_number(const struct node *n)
{
    if (n->kind != NODE_INT || n->integer < 0 || n->integer > 1)
        return -1;
    return n->integer == 1 ? MIXER_GQA : MIXER_LIGHTNING;
}

static int mixer_text(const struct node *n)
{
    if (n->kind != NODE_TEXT)
        return -1;
    if (strcmp(n->text, "full_attention") == 0)
        return MIXER_GQA;
    return strcmp(n->text, "linear_attention") == 0 ? MIXER_LIGHTNING : -1;
}

/* rotary_dim counts dimensions of a head. */
static void read_rotary(struct hf *hf)
{
    struct gqa *gqa = &hf->model->gqa;
    int rotary = 0;
    if (hf_int(hf, "rotary_dim", 0, &rotary) == 1 && gqa->head_dim > 0 && rotary <= gqa->head_dim)
        gqa->rotary_fraction = (double)rotary / gqa->head_dim;
}

/* How much of the residual goes on beside what a layer adds: numbers, no tensors. */
static void note_scales(struct hf *hf)
{
    static const char *const scales[] = {
        "layernorm_full_attention_alpha",
        "layernorm_full_attention_beta",
        "layernorm_linear_attention_alpha",
        "layernorm_linear_attention_beta",
        "layernorm_mlp_alpha",
        "layernorm_mlp_beta",
        "full_attn_alpha_factor",
        "full_attn_beta_factor",
        "linear_attn_alpha_factor",
        "linear_attn_beta_factor",
        "mlp_alpha_factor",
        "mlp_beta_factor",
        "postnorm",
    };
    hf_notes(hf, scales, sizeof scales / sizeof scales[0]);
}

void family_minimax_m1_read(struct hf *hf)
{
    static const char *const no_matter[] = { "shared_moe_mode", "block_size", "sliding_window" };
    struct model *m = hf->model;
    hf_decoder(hf);
    hf_experts_local(hf);
    read_rotary(hf);
    int numbers = hf_layer_list(hf, "attn_type_list", m->layers, mixer_number, m->layer_mixer);
    int texts = hf_layer_list(hf, "layer_types", m->layers, mixer_text, m->layer_mixer);
    if (numbers == 0 && texts == 0) {
        diag_error(hf->errors, hf->map->at, "required key 'attn_type_list' is missing");
        diag_hint(hf->errors, "or 'layer_types': which layers have lightning attention");
    }
    m->lightning.heads = m->gqa.heads;
    m->lightning.head_dim = m->gqa.head_dim;
    hf_int(hf, "shared_intermediate_size", 0, &m->moe.shared_width);
    note_scales(hf);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}

/* The files announce prediction modules; the published checkpoints hold none. */
void family_minimax_m2_read(struct hf *hf)
{
    static const char *const no_matter[] = { "use_mtp", "mtp_transformer_layers",
                                             "num_mtp_modules" };
    struct model *m = hf->model;
    hf_decoder(hf);
    hf_experts_local(hf);
    read_rotary(hf);
    hf_layer_list(hf, "attn_type_list", m->layers, mixer_number, m->layer_mixer);
    if (memchr(m->layer_mixer, MIXER_LIGHTNING, (size_t)m->layers) != NULL)
        diag_error(hf->errors, hf_place(hf, "attn_type_list"),
                   "'attn_type_list' with linear attention is not read by this architecture");
    hf_bool(hf, "use_qk_norm", &m->gqa.qk_norm_wide);
    hf_expect_text(hf, "qk_norm_type", "per_layer");
    hf_bool(hf, "use_routing_bias", &m->moe.router_bias);
    hf_expect_text(hf, "scoring_func", "sigmoid");
    m->moe.sigmoid = true;
    hf_int(hf, "shared_intermediate_size", 0, &m->moe.shared_width);
    note_scales(hf);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}
