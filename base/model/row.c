#include "base/model/row.h"

#include "base/checked.h"

/* Order in a layer: what is multiplied as one matrix (q, k, v; gate, up) is adjacent. */
static const struct tensor_row embedding_rows[] = {
    { "embed_tokens.weight", COMPONENT_EMBEDDING, 0, 0, DIM_ONE, { DIM_VOCAB, DIM_HIDDEN } },
};
static const struct tensor_row input_norm_rows[] = {
    { "input_layernorm.weight", COMPONENT_NORMS, 0, -1, DIM_ONE, { DIM_HIDDEN } },
};
static const struct tensor_row post_norm_rows[] = {
    { "post_attention_layernorm.weight", COMPONENT_NORMS, 0, -1, DIM_ONE, { DIM_HIDDEN } },
};
static const struct tensor_row final_norm_rows[] = {
    { "norm.weight", COMPONENT_NORMS, 0, -1, DIM_ONE, { DIM_HIDDEN } },
};
static const struct tensor_row head_rows[] = {
    { "lm_head.weight", COMPONENT_HEAD, ROW_MATMUL, 0, DIM_UNTIED, { DIM_VOCAB, DIM_HIDDEN } },
};

#define ATTENTION(name, flags, axis, when, ...)                                                    \
    {                                                                                              \
        "self_attn." name, COMPONENT_ATTENTION, flags, axis, when,                                 \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
static const struct tensor_row gqa_rows[] = {
    ATTENTION("q_proj.weight", ROW_MATMUL, 0, DIM_ONE, DIM_QUERY_GATED, DIM_HIDDEN),
    ATTENTION("k_proj.weight", ROW_MATMUL, 0, DIM_ONE, DIM_KV, DIM_HIDDEN),
    ATTENTION("v_proj.weight", ROW_MATMUL, 0, DIM_ONE, DIM_KV, DIM_HIDDEN),
    ATTENTION("q_proj.bias", 0, 0, DIM_QKV_BIAS, DIM_QUERY_GATED),
    ATTENTION("k_proj.bias", 0, 0, DIM_QKV_BIAS, DIM_KV),
    ATTENTION("v_proj.bias", 0, 0, DIM_QKV_BIAS, DIM_KV),
    ATTENTION("q_norm.weight", 0, -1, DIM_QK_NORM, DIM_HEAD),
    ATTENTION("k_norm.weight", 0, -1, DIM_QK_NORM, DIM_HEAD),
    ATTENTION("o_proj.weight", ROW_MATMUL, 1, DIM_ONE, DIM_HIDDEN, DIM_QUERY),
};

#define DELTA(name, flags, axis, ...)                                                              \
    {                                                                                              \
        "linear_attn." name, COMPONENT_LINEAR_ATTENTION, flags, axis, DIM_ONE,                     \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
static const struct tensor_row gdn_rows[] = {
    DELTA("dt_bias", 0, 0, DIM_GDN_VALUE_HEADS),
    DELTA("A_log", 0, 0, DIM_GDN_VALUE_HEADS),
    DELTA("conv1d.weight", 0, 0, DIM_GDN_CHANNELS, DIM_ONE, DIM_GDN_CONV),
    DELTA("norm.weight", 0, -1, DIM_GDN_VALUE_DIM),
    DELTA("in_proj_qkv.weight", ROW_MATMUL, 0, DIM_GDN_CHANNELS, DIM_HIDDEN),
    DELTA("in_proj_z.weight", ROW_MATMUL, 0, DIM_GDN_VALUE, DIM_HIDDEN),
    DELTA("in_proj_b.weight", ROW_MATMUL, 0, DIM_GDN_VALUE_HEADS, DIM_HIDDEN),
    DELTA("in_proj_a.weight", ROW_MATMUL, 0, DIM_GDN_VALUE_HEADS, DIM_HIDDEN),
    DELTA("out_proj.weight", ROW_MATMUL, 1, DIM_HIDDEN, DIM_GDN_VALUE),
};

#define DENSE(name, axis, ...)                                                                     \
    {                                                                                              \
        "mlp." name, COMPONENT_DENSE_MLP, ROW_MATMUL, axis, DIM_ONE,                               \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
static const struct tensor_row dense_rows[] = {
    DENSE("gate_proj.weight", 0, DIM_DENSE, DIM_HIDDEN),
    DENSE("up_proj.weight", 0, DIM_DENSE, DIM_HIDDEN),
    DENSE("down_proj.weight", 1, DIM_HIDDEN, DIM_DENSE),
};

#define SHARED(name, axis, when, ...)                                                              \
    {                                                                                              \
        "mlp." name, COMPONENT_SHARED_EXPERT, ROW_MATMUL, axis, when,                              \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define EXPERT(name, axis, when, ...)                                                              \
    {                                                                                              \
        "mlp.experts." name, COMPONENT_EXPERTS, ROW_MATMUL | ROW_EXPERT, axis, when,               \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
static const struct tensor_row moe_rows[] = {
    { "mlp.gate.weight", COMPONENT_ROUTER, ROW_MATMUL, -1, DIM_ONE, { DIM_EXPERTS, DIM_HIDDEN } },
    SHARED("shared_expert.gate_proj.weight", 0, DIM_SHARED, DIM_SHARED, DIM_HIDDEN),
    SHARED("shared_expert.up_proj.weight", 0, DIM_SHARED, DIM_SHARED, DIM_HIDDEN),
    SHARED("shared_expert.down_proj.weight", 1, DIM_SHARED, DIM_HIDDEN, DIM_SHARED),
    SHARED("shared_expert_gate.weight", -1, DIM_SHARED_GATE, DIM_ONE, DIM_HIDDEN),
    EXPERT("{e}.gate_proj.weight", 0, DIM_SEPARATE, DIM_EXPERT, DIM_HIDDEN),
    EXPERT("{e}.up_proj.weight", 0, DIM_SEPARATE, DIM_EXPERT, DIM_HIDDEN),
    EXPERT("{e}.down_proj.weight", 1, DIM_SEPARATE, DIM_HIDDEN, DIM_EXPERT),
    EXPERT("gate_up_proj", 0, DIM_STACKED, DIM_EXPERT_PAIR, DIM_HIDDEN),
    EXPERT("down_proj", 1, DIM_STACKED, DIM_HIDDEN, DIM_EXPERT),
};

/* The layer itself stands between the two halves: fc joins the hidden state and the next token's
 * embedding, each normed, before it. */
static const struct tensor_row mtp_in_rows[] = {
    { "fc.weight", COMPONENT_MTP, ROW_MATMUL, -1, DIM_MTP, { DIM_HIDDEN, DIM_HIDDEN_PAIR } },
};
static const struct tensor_row mtp_out_rows[] = {
    { "norm.weight", COMPONENT_MTP, 0, -1, DIM_MTP, { DIM_HIDDEN } },
    { "pre_fc_norm_embedding.weight", COMPONENT_MTP, 0, -1, DIM_MTP, { DIM_HIDDEN } },
    { "pre_fc_norm_hidden.weight", COMPONENT_MTP, 0, -1, DIM_MTP, { DIM_HIDDEN } },
};

#define VISION(name, flags, ...)                                                                   \
    {                                                                                              \
        name, COMPONENT_VISION, flags, -1, DIM_VISION_WIDTH,                                       \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
static const struct tensor_row vision_in_rows[] = {
    VISION("patch_embed.proj.weight", ROW_MATMUL, DIM_VISION_WIDTH, DIM_VISION_CHANNELS,
           DIM_VISION_TEMPORAL, DIM_VISION_PATCH, DIM_VISION_PATCH),
    VISION("patch_embed.proj.bias", 0, DIM_VISION_WIDTH),
    VISION("pos_embed.weight", 0, DIM_VISION_POSITIONS, DIM_VISION_WIDTH),
};
static const struct tensor_row vision_block_rows[] = {
    VISION("norm1.weight", 0, DIM_VISION_WIDTH),
    VISION("norm1.bias", 0, DIM_VISION_WIDTH),
    VISION("norm2.weight", 0, DIM_VISION_WIDTH),
    VISION("norm2.bias", 0, DIM_VISION_WIDTH),
    VISION("attn.qkv.weight", ROW_MATMUL, DIM_VISION_QKV, DIM_VISION_WIDTH),
    VISION("attn.qkv.bias", 0, DIM_VISION_QKV),
    VISION("attn.proj.weight", ROW_MATMUL, DIM_VISION_WIDTH, DIM_VISION_WIDTH),
    VISION("attn.proj.bias", 0, DIM_VISION_WIDTH),
    VISION("mlp.linear_fc1.weight", ROW_MATMUL, DIM_VISION_MLP, DIM_VISION_WIDTH),
    VISION("mlp.linear_fc1.bias", 0, DIM_VISION_MLP),
    VISION("mlp.linear_fc2.weight", ROW_MATMUL, DIM_VISION_WIDTH, DIM_VISION_MLP),
    VISION("mlp.linear_fc2.bias", 0, DIM_VISION_WIDTH),
};
static const struct tensor_row vision_out_rows[] = {
    VISION("merger.norm.weight", 0, DIM_VISION_WIDTH),
    VISION("merger.norm.bias", 0, DIM_VISION_WIDTH),
    VISION("merger.linear_fc1.weight", ROW_MATMUL, DIM_VISION_MERGED, DIM_VISION_MERGED),
    VISION("merger.linear_fc1.bias", 0, DIM_VISION_MERGED),
    VISION("merger.linear_fc2.weight", ROW_MATMUL, DIM_HIDDEN, DIM_VISION_MERGED),
    VISION("merger.linear_fc2.bias", 0, DIM_HIDDEN),
};

#define LIST(rows)                                                                                 \
    {                                                                                              \
        rows, sizeof(rows) / sizeof((rows)[0])                                                     \
    }
static const struct row_list row_lists[ROWS_COUNT] = {
    [ROWS_EMBEDDING] = LIST(embedding_rows),
    [ROWS_INPUT_NORM] = LIST(input_norm_rows),
    [ROWS_GQA] = LIST(gqa_rows),
    [ROWS_GDN] = LIST(gdn_rows),
    [ROWS_POST_NORM] = LIST(post_norm_rows),
    [ROWS_DENSE] = LIST(dense_rows),
    [ROWS_MOE] = LIST(moe_rows),
    [ROWS_FINAL_NORM] = LIST(final_norm_rows),
    [ROWS_HEAD] = LIST(head_rows),
    [ROWS_MTP_IN] = LIST(mtp_in_rows),
    [ROWS_MTP_OUT] = LIST(mtp_out_rows),
    [ROWS_VISION_IN] = LIST(vision_in_rows),
    [ROWS_VISION_BLOCK] = LIST(vision_block_rows),
    [ROWS_VISION_OUT] = LIST(vision_out_rows),
};

struct row_list rows_of(enum row_group group)
{
    return row_lists[group];
}

enum row_group rows_of_mixer(enum mixer mixer)
{
    return mixer == MIXER_GDN ? ROWS_GDN : ROWS_GQA;
}

enum row_group rows_of_ffn(enum ffn ffn)
{
    return ffn == FFN_MOE ? ROWS_MOE : ROWS_DENSE;
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
    size[DIM_HEAD] = (uint64_t)m->gqa.head_dim;
    size[DIM_QUERY] = product(m->gqa.heads, m->gqa.head_dim);
    size[DIM_QUERY_GATED] = mul_sat(size[DIM_QUERY], m->gqa.output_gate ? 2 : 1);
    size[DIM_KV] = product(m->gqa.kv_heads, m->gqa.head_dim);
    size[DIM_QK_NORM] = m->gqa.qk_norm;
    size[DIM_QKV_BIAS] = m->gqa.qkv_bias;
    size[DIM_GDN_VALUE] = product(m->gdn.value_heads, m->gdn.value_dim);
    size[DIM_GDN_CHANNELS] =
        add_sat(mul_sat(2, product(m->gdn.key_heads, m->gdn.key_dim)), size[DIM_GDN_VALUE]);
    size[DIM_GDN_VALUE_HEADS] = (uint64_t)m->gdn.value_heads;
    size[DIM_GDN_VALUE_DIM] = (uint64_t)m->gdn.value_dim;
    size[DIM_GDN_CONV] = (uint64_t)m->gdn.conv_width;
    size[DIM_DENSE] = (uint64_t)m->dense_width;
    size[DIM_MTP] = (uint64_t)m->mtp_layers;
}

static void dims_of_experts(const struct model *m, uint64_t *size)
{
    const struct model_family *family = model_family_find(m->architecture);
    size[DIM_STACKED] = family != NULL && family->stacked_experts;
    size[DIM_SEPARATE] = !size[DIM_STACKED];
    size[DIM_EXPERTS] = (uint64_t)m->moe.experts;
    size[DIM_EXPERT] = (uint64_t)m->moe.width;
    size[DIM_EXPERT_PAIR] = product(2, m->moe.width);
    size[DIM_SHARED] = (uint64_t)m->moe.shared_width;
    size[DIM_SHARED_GATE] = m->moe.shared_gate;
}

static void dims_of_vision(const struct vision *v, uint64_t *size)
{
    size[DIM_VISION_WIDTH] = v->depth > 0 ? (uint64_t)v->width : 0;
    size[DIM_VISION_QKV] = product(3, v->width);
    size[DIM_VISION_MLP] = (uint64_t)v->mlp_width;
    size[DIM_VISION_MERGED] = mul3_sat((uint64_t)v->width, (uint64_t)v->merge, (uint64_t)v->merge);
    size[DIM_VISION_POSITIONS] = (uint64_t)v->positions;
    size[DIM_VISION_CHANNELS] = (uint64_t)v->in_channels;
    size[DIM_VISION_TEMPORAL] = (uint64_t)v->temporal_patch;
    size[DIM_VISION_PATCH] = (uint64_t)v->patch;
}

void dims_of(const struct model *model, struct dims *ret)
{
    *ret = (struct dims){ { 0 } };
    dims_of_text(model, ret->size);
    dims_of_experts(model, ret->size);
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
