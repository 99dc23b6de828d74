/* Qwen3-Next and Qwen3.5, dense and with experts: gated delta net in most layers, gated softmax
 * attention in every fourth, zero-centred norms, a multi-token-prediction layer; Qwen3.5 has a
 * vision tower too. */
#include "base/model/hf.h"

#include <stddef.h>
#include <string.h>

static int mixer_kind(const struct node *n)
{
    if (n->kind != NODE_TEXT)
        return -1;
    if (strcmp(n->text, "full_attention") == 0)
        return MIXER_GQA;
    return strcmp(n->text, "linear_attention") == 0 ? MIXER_GDN : -1;
}

/* layer_types wins; without it every full_attention_interval-th layer is softmax attention. */
static void read_mixers(struct hf *hf)
{
    struct model *m = hf->model;
    int interval = 4;
    hf_int(hf, "full_attention_interval", 1, &interval);
    for (int i = 0; i < m->layers; i++)
        m->layer_mixer[i] = (i + 1) % interval == 0 ? MIXER_GQA : MIXER_GDN;
    hf_layer_list(hf, "layer_types", m->layers, mixer_kind, m->layer_mixer);
}

static void read_delta_net(struct hf *hf)
{
    static const struct hf_field fields[] = {
        { "linear_num_key_heads", offsetof(struct model, gdn.key_heads), 1, true },
        { "linear_num_value_heads", offsetof(struct model, gdn.value_heads), 1, true },
        { "linear_key_head_dim", offsetof(struct model, gdn.key_dim), 1, true },
        { "linear_value_head_dim", offsetof(struct model, gdn.value_dim), 1, true },
        { "linear_conv_kernel_dim", offsetof(struct model, gdn.conv_width), 1, true },
    };
    enum { COUNT = sizeof fields / sizeof fields[0] };
    if (memchr(hf->model->layer_mixer, MIXER_GDN, (size_t)hf->model->layers) != NULL)
        hf_fields(hf, fields, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        hf_note(hf, fields[i].key);
}

/* The activation of the delta net's output gate, which changes no tensor. */
static void read_gate_type(struct hf *hf)
{
    const char *type = "silu";
    (void)hf_text(hf, "output_gate_type", &type);
    if (strcmp(type, "silu") != 0 && strcmp(type, "swish") != 0)
        hf_unrun(hf, "output gates of another activation than silu");
}

static void read_hybrid(struct hf *hf)
{
    struct model *m = hf->model;
    m->gqa.rotary_fraction = 0.25;
    hf_decoder(hf);
    m->norm_zero_centred = true;
    m->gqa.qk_norm = true;
    m->gqa.output_gate = true;
    hf_attention_bias(hf);
    hf_bool(hf, "attn_output_gate", &m->gqa.output_gate);
    read_mixers(hf);
    read_delta_net(hf);
    hf_int(hf, "mtp_num_hidden_layers", 0, &m->mtp_layers);
    read_gate_type(hf);
}

static void read_shared(struct hf *hf)
{
    struct moe *moe = &hf->model->moe;
    hf_need(hf, "shared_expert_intermediate_size", 0, &moe->shared_width);
    moe->shared_gate = moe->shared_width > 0;
    moe->normalize_top_k = true;
}

void family_qwen3_5_read(struct hf *hf)
{
    read_hybrid(hf);
    hf_need(hf, "intermediate_size", 1, &hf->model->dense_width);
    hf_vision_qwen(hf, 0);
}

void family_qwen3_5_moe_read(struct hf *hf)
{
    read_hybrid(hf);
    hf_experts_qwen(hf);
    read_shared(hf);
    hf_note(hf, "intermediate_size"); /* of the dense sibling; no layer here uses it */
    memset(hf->model->layer_ffn, FFN_MOE, (size_t)hf->model->layers);
    hf_vision_qwen(hf, 0);
}

/* The published checkpoints hold one prediction layer although their files have no key for it. */
void family_qwen3_next_read(struct hf *hf)
{
    hf->model->mtp_layers = 1;
    read_hybrid(hf);
    hf_experts_qwen(hf);
    read_shared(hf);
    hf_sparse_layers_qwen(hf);
}
