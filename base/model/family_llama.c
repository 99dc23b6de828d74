/* Llama, Mistral, Mixtral, Llama 4: softmax attention in every layer; dense MLPs, or experts as
 * wide as intermediate_size. */
#include "base/model/hf.h"

#include <string.h>

void family_llama_read(struct hf *hf)
{
    static const char *const no_matter[] = { "is_llama_config", "transformers.js_config" };
    hf_dense_decoder(hf);
    hf_attention_bias(hf);
    hf_bool(hf, "mlp_bias", &hf->model->mlp_bias);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}

void family_mistral_read(struct hf *hf)
{
    hf_dense_decoder(hf);
    hf_window(hf);
}

void family_mixtral_read(struct hf *hf)
{
    hf_decoder(hf);
    hf_experts_local(hf);
    hf_window(hf);
}

static int rope_kind(const struct node *n)
{
    if (n->kind != NODE_INT || n->integer < 0 || n->integer > 1)
        return -1;
    return n->integer == 1 ? MIXER_LOCAL : MIXER_GQA;
}

static int type_kind(const struct node *n)
{
    if (n->kind != NODE_TEXT)
        return -1;
    if (strcmp(n->text, "chunked_attention") == 0)
        return MIXER_LOCAL;
    return strcmp(n->text, "full_attention") == 0 ? MIXER_GQA : -1;
}

/* Layers with rope see their chunk of the sequence, every fourth has no rope and sees all. */
static void llama4_mixers(struct hf *hf)
{
    struct model *m = hf->model;
    int interval = 4;
    m->gqa.local_tokens = 8192;
    m->gqa.local_chunked = true;
    hf_int(hf, "attention_chunk_size", 1, &m->gqa.local_tokens);
    hf_int(hf, "no_rope_layer_interval", 1, &interval);
    for (int i = 0; i < m->layers; i++)
        m->layer_mixer[i] = (i + 1) % interval == 0 ? MIXER_GQA : MIXER_LOCAL;
    const struct node *rope = node_get(hf->map, "no_rope_layers");
    hf_note(hf, "no_rope_layers");
    if (rope != NULL && rope->kind == NODE_LIST && rope->count > 0)
        hf_layer_list(hf, "no_rope_layers", m->layers, rope_kind, m->layer_mixer);
    hf_layer_list(hf, "layer_types", m->layers, type_kind, m->layer_mixer);
}

/* moe_layers names them, none if it is empty; else every interleave_moe_layer_step-th. */
static void llama4_sparse_layers(struct hf *hf)
{
    struct model *m = hf->model;
    const struct node *list = NULL;
    int step = 1;
    hf_int(hf, "interleave_moe_layer_step", 1, &step);
    memset(m->layer_ffn, FFN_DENSE, (size_t)m->layers);
    if (hf_list(hf, "moe_layers", &list) != 1) {
        for (int i = step - 1; i < m->layers; i += step)
            m->layer_ffn[i] = FFN_MOE;
        return;
    }
    for (const struct node *n = list->child; n != NULL; n = n->next) {
        if (n->kind == NODE_INT && n->integer >= 0 && n->integer < m->layers)
            m->layer_ffn[n->integer] = FFN_MOE;
        else
            diag_error(hf->errors, n->at, "'moe_layers' holds '%s', not a layer of 0..%d",
                       n->text != NULL ? n->text : node_kind_name(n->kind), m->layers - 1);
    }
}

/* One shared expert, as wide as a routed one. The norm of queries and keys has no weights. */
void family_llama4_read(struct hf *hf)
{
    static const char *const no_matter[] = { "use_qk_norm", "for_llm_compressor" };
    struct model *m = hf->model;
    hf_decoder(hf);
    hf_attention_bias(hf);
    hf_experts_local(hf);
    m->moe.normalize_top_k = false;
    m->moe.sigmoid = true;
    m->moe.shared_width = m->moe.width;
    llama4_mixers(hf);
    llama4_sparse_layers(hf);
    hf_note(hf, "intermediate_size_mlp");
    if (memchr(m->layer_ffn, FFN_DENSE, (size_t)m->layers) != NULL)
        hf_need(hf, "intermediate_size_mlp", 1, &m->dense_width);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
    hf_vision_llama4(hf);
}
