/* Nemotron-H and Nemotron 3: a layer is one of Mamba-2, attention, an MLP or experts, behind one
 * norm. MLPs have no gate (relu squared); the largest models' experts work at a latent width. */
#include "base/model/hf.h"

#include <stddef.h>
#include <string.h>

/* Letters M, E, * and -, or names, in one byte: the mixer, and the half layer behind it. */
struct part {
    const char *name, *other;
    char letter;
    uint8_t mixer, ffn;
};
static const struct part parts[] = {
    { "mamba", "linear_attention", 'M', MIXER_MAMBA, FFN_NONE },
    { "moe", "moe", 'E', MIXER_NONE, FFN_MOE },
    { "attention", "full_attention", '*', MIXER_GQA, FFN_NONE },
    { "mlp", "mlp", '-', MIXER_NONE, FFN_DENSE },
};
enum { PARTS = sizeof parts / sizeof parts[0] };

static int part_letter(char letter)
{
    for (int i = 0; i < PARTS; i++)
        if (parts[i].letter == letter)
            return i;
    return -1;
}

static int part_name(const struct node *n)
{
    for (int i = 0; i < PARTS && n->kind == NODE_TEXT; i++)
        if (strcmp(parts[i].name, n->text) == 0 || strcmp(parts[i].other, n->text) == 0)
            return i;
    return -1;
}

/* num_hidden_layers may be stale or absent: the pattern says how many layers there are. */
static void read_layers(struct hf *hf)
{
    struct model *m = hf->model;
    uint8_t kinds[MODEL_MAX_LAYERS] = { 0 };
    const struct node *list = NULL;
    const char *letters = NULL;
    size_t layers = 0;
    hf_note(hf, "num_hidden_layers");
    bool named = hf_list(hf, "layers_block_type", &list) == 1;
    bool lettered = hf_text(hf, "hybrid_override_pattern", &letters) == 1;
    if (named || lettered)
        layers = named ? list->count : strlen(letters);
    if (layers < 1 || layers > MODEL_MAX_LAYERS) {
        hf_note_all(hf);
        diag_error(hf->errors, hf->map->at, "%zu layers; 1 to %d are read", layers,
                   MODEL_MAX_LAYERS);
        diag_hint(hf->errors, "'hybrid_override_pattern' or 'layers_block_type' names each layer");
        layers = 1;
    }
    m->layers = (int)layers;
    if (named)
        hf_layer_list(hf, "layers_block_type", m->layers, part_name, kinds);
    else if (lettered)
        hf_layer_letters(hf, "hybrid_override_pattern", m->layers, part_letter, kinds);
    hf_decoder(hf);
    for (int i = 0; i < m->layers; i++) {
        m->layer_mixer[i] = parts[kinds[i]].mixer;
        m->layer_ffn[i] = parts[kinds[i]].ffn;
    }
}

static bool has(const uint8_t *kinds, const struct model *m, int kind)
{
    return memchr(kinds, kind, (size_t)m->layers) != NULL;
}

static void read_mamba(struct hf *hf)
{
    static const struct hf_field fields[] = {
        { "mamba_num_heads", offsetof(struct model, mamba.heads), 1, true },
        { "mamba_head_dim", offsetof(struct model, mamba.head_dim), 1, true },
        { "ssm_state_size", offsetof(struct model, mamba.state), 1, true },
        { "n_groups", offsetof(struct model, mamba.groups), 1, true },
        { "conv_kernel", offsetof(struct model, mamba.conv_width), 1, true },
        { "chunk_size", offsetof(struct model, mamba.chunk_tokens), 1, false },
    };
    static const char *const no_matter[] = { "expand",        "time_step_floor", "time_step_limit",
                                             "time_step_max", "time_step_min",   "time_step_rank" };
    hf->model->mamba.chunk_tokens = 128;
    hf_fields(hf, fields, sizeof fields / sizeof fields[0]);
    hf_expect_bool(hf, "use_conv_bias", true);
    hf_expect_text(hf, "mamba_hidden_act", "silu");
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}

/* The shared expert's width is the sum over shared experts already. */
static void read_experts(struct hf *hf)
{
    static const struct hf_field fields[] = {
        { "n_routed_experts", offsetof(struct model, moe.experts), 1, true },
        { "num_experts_per_tok", offsetof(struct model, moe.top_k), 1, true },
        { "moe_intermediate_size", offsetof(struct model, moe.width), 1, true },
        { "moe_shared_expert_intermediate_size", offsetof(struct model, moe.shared_width), 0,
          false },
        { "moe_latent_size", offsetof(struct model, moe.latent), 1, false },
    };
    static const char *const no_matter[] = { "n_group", "topk_group", "routed_scaling_factor",
                                             "n_shared_experts" };
    struct moe *moe = &hf->model->moe;
    hf_fields(hf, fields, sizeof fields / sizeof fields[0]);
    hf_bool(hf, "norm_topk_prob", &moe->normalize_top_k);
    moe->router_bias = moe->sigmoid = true;
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}

static void expect_part(struct hf *hf, const struct node *n, int want)
{
    if (part_name(n) != want)
        diag_error(hf->errors, n->at,
                   "a prediction layer of other parts than attention and moe "
                   "is not read");
}

/* A prediction layer is attention, then experts. */
static void read_mtp(struct hf *hf)
{
    const struct node *list = NULL;
    hf_int(hf, "num_nextn_predict_layers", 0, &hf->model->mtp_layers);
    hf_expect_text(hf, "mtp_hybrid_override_pattern", "*E");
    if (hf_list(hf, "mtp_layers_block_type", &list) != 1)
        return;
    if (list->count != 2) {
        diag_error(hf->errors, list->at,
                   "'mtp_layers_block_type' names %zu parts; attention and "
                   "moe are read",
                   list->count);
        return;
    }
    expect_part(hf, list->child, part_letter('*'));
    expect_part(hf, list->child->next, part_letter('E'));
}

void family_nemotron_read(struct hf *hf)
{
    struct model *m = hf->model;
    int head_dim = 0;
    m->mlp_ungated = true;
    if (hf_int(hf, "attention_head_dim", 1, &head_dim) == 1)
        m->gqa.head_dim = head_dim;
    read_layers(hf);
    if (head_dim > 0)
        m->gqa.head_dim = head_dim;
    if (hf_real(hf, "layer_norm_epsilon", 1e-12, 1.0, &m->norm_eps) == 0)
        hf_real(hf, "norm_eps", 1e-12, 1.0, &m->norm_eps);
    hf_note(hf, "norm_eps");
    hf_expect_text(hf, "mlp_hidden_act", "relu2");
    hf_note(hf, "intermediate_size");
    if (has(m->layer_ffn, m, FFN_DENSE))
        hf_need(hf, "intermediate_size", 1, &m->dense_width);
    if (has(m->layer_mixer, m, MIXER_MAMBA))
        read_mamba(hf);
    if (has(m->layer_ffn, m, FFN_MOE))
        read_experts(hf);
    read_mtp(hf);
}
