/* DeepSeek-V2 to V3.2, Kimi-K2 and K2.5, GLM-5: latent attention, dense layers first, routed and
 * shared experts. V3.2 and GLM-5 attend to the keys that an indexer chooses; in GLM-5.2 some layers
 * use the choice of an earlier one. */
#include "base/model/hf.h"

#include <stddef.h>
#include <string.h>

/* head_dim means nothing here and num_key_value_heads repeats the heads: both are left out. */
void hf_latents(struct hf *hf)
{
    static const struct hf_field fields[] = {
        { "q_lora_rank", offsetof(struct model, mla.q_rank), 0, false },
        { "kv_lora_rank", offsetof(struct model, mla.kv_rank), 1, true },
        { "qk_nope_head_dim", offsetof(struct model, mla.nope_dim), 1, true },
        { "qk_rope_head_dim", offsetof(struct model, mla.rope_dim), 1, true },
        { "v_head_dim", offsetof(struct model, mla.value_dim), 1, true },
    };
    struct model *m = hf->model;
    hf_sizes(hf);
    hf_note(hf, "head_dim");
    hf_attention_bias(hf);
    hf_fields(hf, fields, sizeof fields / sizeof fields[0]);
    m->gqa.rope_adjacent = true;
    hf_bool(hf, "rope_interleave", &m->gqa.rope_adjacent);
    m->gqa.kv_heads = m->gqa.heads;
    m->gqa.head_dim = m->mla.nope_dim + m->mla.rope_dim;
    m->gqa.rotary_fraction = m->gqa.head_dim > 0 ? (double)m->mla.rope_dim / m->gqa.head_dim : 1;
    hf_note(hf, "qk_head_dim");
    if (node_get(hf->map, "qk_nope_head_dim") != NULL &&
        node_get(hf->map, "qk_rope_head_dim") != NULL)
        hf_expect_int(hf, "qk_head_dim", m->gqa.head_dim);
    memset(m->layer_mixer, MIXER_MLA, (size_t)m->layers);
}

void family_deepseek_v2_read(struct hf *hf)
{
    hf_latents(hf);
    hf_experts_deepseek(hf, "softmax");
}

void family_deepseek_read(struct hf *hf)
{
    hf_latents(hf);
    hf_experts_deepseek(hf, "sigmoid");
    hf_int(hf, "num_nextn_predict_layers", 0, &hf->model->mtp_layers);
}

void family_kimi_vl_read(struct hf *hf)
{
    family_deepseek_read(hf);
    hf_vision_moon(hf);
}

static int indexer_kind(const struct node *n)
{
    if (n->kind != NODE_TEXT)
        return -1;
    if (strcmp(n->text, "full") == 0)
        return MIXER_DSA;
    return strcmp(n->text, "shared") == 0 ? MIXER_DSA_SHARED : -1;
}

static int indexer_letter(char letter)
{
    if (letter == 'F')
        return MIXER_DSA;
    return letter == 'S' ? MIXER_DSA_SHARED : -1;
}

static int sparse_attention_kind(const struct node *n)
{
    bool sparse = n->kind == NODE_TEXT && (strcmp(n->text, "deepseek_sparse_attention") == 0 ||
                                           strcmp(n->text, "indexed_attention") == 0);
    return sparse ? MIXER_DSA : -1;
}

/* A layer has an indexer of its own when indexer_types or index_topk_pattern says so; else when
 * max(i - offset + 1, 0) is a multiple of the frequency. */
static void read_indexers(struct hf *hf)
{
    struct model *m = hf->model;
    int frequency = 1, offset = 2;
    hf_layer_list(hf, "layer_types", m->layers, sparse_attention_kind, m->layer_mixer);
    hf_int(hf, "index_topk_freq", 1, &frequency);
    hf_int(hf, "index_skip_topk_offset", 0, &offset);
    for (int i = 0; i < m->layers; i++) {
        int from = i - offset + 1 > 0 ? i - offset + 1 : 0;
        m->layer_mixer[i] = from % frequency == 0 ? MIXER_DSA : MIXER_DSA_SHARED;
    }
    hf_layer_letters(hf, "index_topk_pattern", m->layers, indexer_letter, m->layer_mixer);
    hf_layer_list(hf, "indexer_types", m->layers, indexer_kind, m->layer_mixer);
    hf_note(hf, "index_share_for_mtp_iteration");
}

void family_deepseek_sparse_read(struct hf *hf)
{
    static const struct hf_field fields[] = {
        { "index_n_heads", offsetof(struct model, indexer.heads), 1, true },
        { "index_head_dim", offsetof(struct model, indexer.dim), 1, true },
        { "index_topk", offsetof(struct model, indexer.top_k), 1, true },
    };
    family_deepseek_read(hf);
    hf_fields(hf, fields, sizeof fields / sizeof fields[0]);
    read_indexers(hf);
}
