/* Kimi-Linear and Ling's hybrids: Kimi delta attention, which decays every channel of a state by
 * itself, in most layers, and MLA in the others; DeepSeek's experts. */
#include "base/model/hf.h"

#include "base/checked.h"

#include <string.h>

struct delta {
    int heads, dim, conv_width;
    bool whole_gates; /* forget gate and output gate are matrices, not products of two thin ones */
};

/* Queries, keys and values with a convolution, decay, write strength, output gate and norm. */
static uint64_t delta_params(const struct model *m, const struct delta *d)
{
    int64_t width = (int64_t)d->heads * d->dim;
    uint64_t projections = mul_sat(4, linear_params(m->hidden, width, false));
    uint64_t gate = d->whole_gates ? linear_params(m->hidden, width, false)
                                   : add_sat(linear_params(m->hidden, d->dim, false),
                                             linear_params(d->dim, width, false));
    uint64_t rest = add_sat(linear_params(m->hidden, d->heads, false),
                            mul3_sat(3, (uint64_t)width, (uint64_t)d->conv_width));
    uint64_t vectors = (uint64_t)width + (uint64_t)d->heads + (uint64_t)d->dim;
    return add_sat(add_sat(projections, mul_sat(2, gate)), add_sat(rest, vectors));
}

static int delta_kind(const struct node *n)
{
    if (n->kind != NODE_TEXT)
        return -1;
    if (strcmp(n->text, "linear_attention") == 0)
        return MIXER_OTHER;
    return strcmp(n->text, "full_attention") == 0 ? MIXER_MLA : -1;
}

static void count_delta(struct hf *hf, const struct delta *d)
{
    struct model *m = hf->model;
    hf_part(hf, COMPONENT_LINEAR_ATTENTION, "Kimi delta attention",
            hf_count(m->layer_mixer, m, MIXER_OTHER), delta_params(m, d));
    if (hf_has(m->layer_mixer, m, MIXER_OTHER))
        hf_unplanned(hf, "Kimi delta attention");
}

/* Layers counted from 1. */
static void take_layers(struct hf *map, const char *key, const struct node *list, enum mixer mixer)
{
    struct model *m = map->model;
    for (const struct node *n = list->child; n != NULL; n = n->next) {
        if (n->kind == NODE_INT && n->integer >= 1 && n->integer <= m->layers)
            m->layer_mixer[n->integer - 1] = (uint8_t)mixer;
        else
            diag_error(map->errors, n->at, "'%s' holds '%s', not a layer of 1..%d", key,
                       n->text != NULL ? n->text : node_kind_name(n->kind), m->layers);
    }
}

/* In a map of its own, or as transformers writes it. The two lists count only together. */
static void read_kimi_delta(struct hf *hf, struct delta *d)
{
    static const char *const flat[] = { "linear_attn_config", "linear_head_dim", "linear_num_heads",
                                        "linear_conv_kernel_dim" };
    const struct node *map = NULL, *delta = NULL, *full = NULL;
    struct hf inner;
    hf_notes(hf, flat, sizeof flat / sizeof flat[0]);
    if (node_map(hf->map, "linear_attn_config", &map, hf->errors) != 1) {
        hf_int(hf, "linear_head_dim", 1, &d->dim);
        hf_int(hf, "linear_num_heads", 1, &d->heads);
        hf_int(hf, "linear_conv_kernel_dim", 1, &d->conv_width);
        return;
    }
    hf_init(&inner, map, hf->root, hf->model, hf->errors);
    inner.place = "linear_attn_config.";
    inner.defaults = "head_dim 128, num_heads 32, short_conv_kernel_size 4";
    hf_int(&inner, "head_dim", 1, &d->dim);
    hf_int(&inner, "num_heads", 1, &d->heads);
    hf_int(&inner, "short_conv_kernel_size", 1, &d->conv_width);
    if (hf_list(&inner, "kda_layers", &delta) == 1 &&
        hf_list(&inner, "full_attn_layers", &full) == 1) {
        take_layers(&inner, "kda_layers", delta, MIXER_OTHER);
        take_layers(&inner, "full_attn_layers", full, MIXER_MLA);
    }
    hf_note(&inner, "full_attn_layers");
    hf_refuse_rest(&inner);
}

void family_kimi_linear_read(struct hf *hf)
{
    static const char *const no_matter[] = { "num_expert_group", "use_grouped_topk",
                                             "mla_use_nope" };
    struct model *m = hf->model;
    struct delta d = { 32, 128, 4, false };
    hf_latents(hf);
    for (int i = 0; i < m->layers; i++)
        m->layer_mixer[i] = i > 0 && i % 4 == 0 ? MIXER_MLA : MIXER_OTHER;
    read_kimi_delta(hf, &d);
    hf_layer_list(hf, "layer_types", m->layers, delta_kind, m->layer_mixer);
    count_delta(hf, &d);
    hf_expect_text(hf, "moe_router_activation_func", "sigmoid");
    hf_experts_deepseek(hf, "sigmoid");
    hf_int(hf, "num_nextn_predict_layers", 0, &m->mtp_layers);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}

/* MLA has a gate per head. Transformers writes head_dim as the rope's width and
 * the delta's under a key of its own. */
void family_bailing_hybrid_read(struct hf *hf)
{
    static const char *const no_matter[] = { "num_expert_group", "kda_safe_gate", "kda_lower_bound",
                                             "mtp_loss_scaling_factor" };
    struct model *m = hf->model;
    struct delta d = { 0, 128, 4, true };
    int group = 6;
    hf_latents(hf);
    d.heads = m->gqa.heads;
    hf_int(hf, "linear_num_heads", 1, &d.heads);
    hf_int(hf, "short_conv_kernel_size", 1, &d.conv_width);
    hf_int(hf, "linear_conv_kernel_dim", 1, &d.conv_width);
    if (hf_int(hf, "linear_head_dim", 1, &d.dim) == 0)
        hf_int(hf, "head_dim", 1, &d.dim);
    hf_int(hf, "layer_group_size", 1, &group);
    for (int i = 0; i < m->layers; i++)
        m->layer_mixer[i] = (i + 1) % group == 0 ? MIXER_MLA : MIXER_OTHER;
    hf_layer_list(hf, "layer_types", m->layers, delta_kind, m->layer_mixer);
    count_delta(hf, &d);
    hf_part(hf, COMPONENT_ATTENTION, "gates of heads", hf_count(m->layer_mixer, m, MIXER_MLA),
            linear_params(m->hidden, m->gqa.heads, false));
    hf_unplanned(hf, "gates of heads");
    hf_experts_deepseek(hf, "sigmoid");
    hf_warn_prediction(hf);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}
