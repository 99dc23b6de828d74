#include "base/model/row.h"

#include "base/checked.h"
#include "base/model/row_table.h"

struct row_list rows_of(enum row_group group)
{
    return text_row_lists[group].count > 0 ? text_row_lists[group] : vision_row_lists[group];
}

static const enum row_group mixer_groups[MIXER_COUNT] = {
    [MIXER_GQA] = ROWS_GQA,
    [MIXER_GDN] = ROWS_GDN,
    [MIXER_LOCAL] = ROWS_GQA,
    [MIXER_MLA] = ROWS_MLA,
    [MIXER_DSA] = ROWS_MLA,
    [MIXER_DSA_SHARED] = ROWS_MLA,
    [MIXER_LIGHTNING] = ROWS_LIGHTNING,
    [MIXER_MAMBA] = ROWS_MAMBA,
};

int rows_of_layer(enum mixer mixer, enum ffn ffn, enum row_group ret[LAYER_GROUPS])
{
    int count = 0;
    if (mixer != MIXER_NONE)
        ret[count++] = ROWS_INPUT_NORM;
    if (mixer != MIXER_NONE && mixer != MIXER_OTHER)
        ret[count++] = mixer_groups[mixer];
    if (mixer == MIXER_DSA)
        ret[count++] = ROWS_INDEXER;
    if (ffn != FFN_NONE)
        ret[count++] = ROWS_POST_NORM;
    if (ffn == FFN_DENSE || ffn == FFN_MOE)
        ret[count++] = ffn == FFN_MOE ? ROWS_MOE : ROWS_DENSE;
    return count;
}

int rows_of_vision(const struct vision *vision, struct vision_part ret[VISION_PARTS])
{
    int count = 0;
    if (vision->depth == 0 || vision->listed)
        return 0;
    if (vision->adapter_in > 0) {
        ret[count++] = (struct vision_part){ ROWS_VISION_ADAPTED_IN, 1, NULL };
        ret[count++] = (struct vision_part){ ROWS_VISION_ADAPTED_BLOCK, vision->depth,
                                             "vision_model.model.layers" };
        ret[count++] = (struct vision_part){ ROWS_VISION_ADAPTED_OUT, 1, NULL };
        ret[count++] = (struct vision_part){ ROWS_VISION_PROJECTOR, 1, NULL };
        return count;
    }
    ret[count++] = (struct vision_part){ ROWS_VISION_IN, 1, NULL };
    ret[count++] = (struct vision_part){ ROWS_VISION_BLOCK, vision->depth, "blocks" };
    ret[count++] = (struct vision_part){ ROWS_VISION_OUT, 1, NULL };
    if (vision->deepstack > 0)
        ret[count++] = (struct vision_part){ ROWS_VISION_DEEPSTACK, vision->deepstack,
                                             "deepstack_merger_list" };
    return count;
}

static uint64_t product(int a, int b)
{
    return mul_sat((uint64_t)a, (uint64_t)b);
}

static void dims_of_text(const struct model *m, uint64_t *size)
{
    size[DIM_ONE] = 1;
    size[DIM_HIDDEN] = (uint64_t)m->hidden;
    size[DIM_HIDDEN_PAIR] = product(2, m->hidden);
    size[DIM_VOCAB] = (uint64_t)m->vocab;
    size[DIM_UNTIED] = !m->tied;
    size[DIM_DENSE] = (uint64_t)m->dense_width;
    size[DIM_GATED] = !m->mlp_ungated;
    size[DIM_MLP_BIAS] = m->mlp_bias;
    size[DIM_MTP] = (uint64_t)m->mtp_layers;
}

static void dims_of_softmax(const struct model *m, uint64_t *size)
{
    const struct gqa *gqa = &m->gqa;
    const struct mla *mla = &m->mla;
    size[DIM_HEADS] = (uint64_t)gqa->heads;
    size[DIM_HEAD] = (uint64_t)gqa->head_dim;
    size[DIM_QUERY] = product(gqa->heads, gqa->head_dim);
    size[DIM_QUERY_GATED] = mul_sat(size[DIM_QUERY], gqa->output_gate ? 2 : 1);
    size[DIM_KV] = product(gqa->kv_heads, gqa->head_dim);
    size[DIM_QK_NORM] = gqa->qk_norm;
    size[DIM_QK_NORM_WIDE] = gqa->qk_norm_wide;
    size[DIM_QKV_BIAS] = gqa->qkv_bias;
    size[DIM_OUTPUT_BIAS] = gqa->output_bias;
    size[DIM_SINKS] = gqa->sinks;
    size[DIM_MLA_QUERY_LATENT] = (uint64_t)mla->q_rank;
    size[DIM_MLA_DIRECT] = mla->q_rank == 0;
    size[DIM_MLA_LATENT_BIAS] = gqa->qkv_bias && mla->q_rank > 0;
    size[DIM_MLA_LATENT] = (uint64_t)mla->kv_rank;
    size[DIM_MLA_DOWN] = add_sat((uint64_t)mla->kv_rank, (uint64_t)mla->rope_dim);
    size[DIM_MLA_VALUE] = product(gqa->heads, mla->value_dim);
    size[DIM_MLA_EXPAND] = add_sat(product(gqa->heads, mla->nope_dim), size[DIM_MLA_VALUE]);
    size[DIM_INDEX_HEADS] = (uint64_t)m->indexer.heads;
    size[DIM_INDEX_KEY] = (uint64_t)m->indexer.dim;
    size[DIM_INDEX_QUERY] = product(m->indexer.heads, m->indexer.dim);
    size[DIM_INDEX_INPUT] = (uint64_t)(mla->q_rank > 0 ? mla->q_rank : m->hidden);
}

static void dims_of_linear(const struct model *m, bool joint, uint64_t *size)
{
    const struct mamba *mamba = &m->mamba;
    size[DIM_GDN_VALUE] = product(m->gdn.value_heads, m->gdn.value_dim);
    size[DIM_GDN_CHANNELS] =
        add_sat(mul_sat(2, product(m->gdn.key_heads, m->gdn.key_dim)), size[DIM_GDN_VALUE]);
    size[DIM_GDN_QKVZ] = add_sat(size[DIM_GDN_CHANNELS], size[DIM_GDN_VALUE]);
    size[DIM_GDN_VALUE_HEADS] = (uint64_t)m->gdn.value_heads;
    size[DIM_GDN_PAIR] = product(2, m->gdn.value_heads);
    size[DIM_GDN_VALUE_DIM] = (uint64_t)m->gdn.value_dim;
    size[DIM_GDN_CONV] = (uint64_t)m->gdn.conv_width;
    size[DIM_GDN_JOINT] = joint;
    size[DIM_GDN_APART] = !joint;
    size[DIM_LIGHTNING] = product(m->lightning.heads, m->lightning.head_dim);
    size[DIM_LIGHTNING_QKV] = mul_sat(3, size[DIM_LIGHTNING]);
    size[DIM_MAMBA_INNER] = product(mamba->heads, mamba->head_dim);
    size[DIM_MAMBA_CHANNELS] =
        add_sat(size[DIM_MAMBA_INNER], mul_sat(2, product(mamba->groups, mamba->state)));
    size[DIM_MAMBA_HEADS] = (uint64_t)mamba->heads;
    size[DIM_MAMBA_IN] =
        add_sat(add_sat(size[DIM_MAMBA_CHANNELS], size[DIM_MAMBA_INNER]), size[DIM_MAMBA_HEADS]);
    size[DIM_MAMBA_CONV] = (uint64_t)mamba->conv_width;
}

static void dims_of_experts(const struct model *m, bool stacked, bool in_out, uint64_t *size)
{
    const struct moe *moe = &m->moe;
    size[DIM_STACKED] = stacked && !in_out;
    size[DIM_STACKED_IN_OUT] = stacked && in_out;
    size[DIM_SEPARATE] = !stacked;
    size[DIM_SEPARATE_GATE] = !stacked && !m->mlp_ungated;
    size[DIM_EXPERTS] = (uint64_t)moe->experts;
    size[DIM_EXPERT] = (uint64_t)moe->width;
    size[DIM_EXPERT_PAIR] = product(m->mlp_ungated ? 1 : 2, moe->width);
    size[DIM_LATENT] = (uint64_t)moe->latent;
    size[DIM_ROUTED] = (uint64_t)model_routed_width(m);
    size[DIM_ROUTER_BIAS] = moe->router_bias;
    size[DIM_EXPERT_BIAS] = moe->expert_bias;
    size[DIM_SHARED] = (uint64_t)moe->shared_width;
    size[DIM_SHARED_GATED] = m->mlp_ungated ? 0 : (uint64_t)moe->shared_width;
    size[DIM_SHARED_SCALAR] = moe->shared_gate;
}

static void dims_of_vision(const struct vision *v, uint64_t *size)
{
    bool there = v->depth > 0;
    size[DIM_VISION_WIDTH] = there ? (uint64_t)v->width : 0;
    size[DIM_VISION_QKV] = product(3, v->width);
    size[DIM_VISION_MLP] = (uint64_t)v->mlp_width;
    size[DIM_VISION_MERGED] = mul3_sat((uint64_t)v->width, (uint64_t)v->merge, (uint64_t)v->merge);
    size[DIM_VISION_POSITIONS] = (uint64_t)v->positions;
    size[DIM_VISION_CHANNELS] = (uint64_t)v->in_channels;
    size[DIM_VISION_TEMPORAL] = (uint64_t)v->temporal_patch;
    size[DIM_VISION_PATCH] = (uint64_t)v->patch;
    size[DIM_VISION_FLAT] =
        mul3_sat((uint64_t)v->in_channels, (uint64_t)v->patch, (uint64_t)v->patch);
    size[DIM_VISION_FINAL_NORM] = there && v->final_norm;
    size[DIM_VISION_ADAPTER_IN] = (uint64_t)v->adapter_in;
    size[DIM_VISION_ADAPTER_OUT] = (uint64_t)v->adapter_out;
}

void dims_of(const struct model *model, struct dims *ret)
{
    const struct model_family *family = model_family_find(model->architecture);
    const struct name_style *names = family != NULL ? family->names : NULL;
    *ret = (struct dims){ { 0 } };
    dims_of_text(model, ret->size);
    dims_of_softmax(model, ret->size);
    dims_of_linear(model, names != NULL && names->delta_joint, ret->size);
    dims_of_experts(model, family != NULL && family->stacked_experts,
                    names != NULL && names->experts_in_out, ret->size);
    dims_of_vision(&model->vision, ret->size);
}

uint64_t row_params(const struct tensor_row *row, const struct dims *dims)
{
    uint64_t params = (row->flags & ROW_EXPERT) != 0 ? dims->size[DIM_EXPERTS] : 1;
    if (dims->size[row->when] == 0)
        return 0;
    for (int i = 0; i < TENSOR_MAX_AXES && row->shape[i] != DIM_NONE; i++)
        params = mul_sat(params, dims->size[row->shape[i]]);
    return params;
}
