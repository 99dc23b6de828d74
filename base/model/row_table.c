/* The rows of the text model. Order in a layer: what is multiplied as one matrix (q, k, v; gate,
 * up) is adjacent. */
#include "base/model/row_table.h"

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
    ATTENTION("q_norm.weight", 0, 0, DIM_QK_NORM_WIDE, DIM_QUERY),
    ATTENTION("k_norm.weight", 0, 0, DIM_QK_NORM_WIDE, DIM_KV),
    ATTENTION("sinks", 0, 0, DIM_SINKS, DIM_HEADS),
    ATTENTION("o_proj.weight", ROW_MATMUL, 1, DIM_ONE, DIM_HIDDEN, DIM_QUERY),
    ATTENTION("o_proj.bias", 0, -1, DIM_OUTPUT_BIAS, DIM_HIDDEN),
};

/* The down projections and their norms are whole on every rank of tensor parallelism. */
static const struct tensor_row mla_rows[] = {
    ATTENTION("q_a_proj.weight", ROW_MATMUL, -1, DIM_MLA_QUERY_LATENT, DIM_MLA_QUERY_LATENT,
              DIM_HIDDEN),
    ATTENTION("q_a_proj.bias", 0, -1, DIM_MLA_LATENT_BIAS, DIM_MLA_QUERY_LATENT),
    ATTENTION("q_a_layernorm.weight", 0, -1, DIM_MLA_QUERY_LATENT, DIM_MLA_QUERY_LATENT),
    ATTENTION("q_b_proj.weight", ROW_MATMUL, 0, DIM_MLA_QUERY_LATENT, DIM_QUERY,
              DIM_MLA_QUERY_LATENT),
    ATTENTION("q_proj.weight", ROW_MATMUL, 0, DIM_MLA_DIRECT, DIM_QUERY, DIM_HIDDEN),
    ATTENTION("kv_a_proj_with_mqa.weight", ROW_MATMUL, -1, DIM_ONE, DIM_MLA_DOWN, DIM_HIDDEN),
    ATTENTION("kv_a_proj_with_mqa.bias", 0, -1, DIM_QKV_BIAS, DIM_MLA_DOWN),
    ATTENTION("kv_a_layernorm.weight", 0, -1, DIM_ONE, DIM_MLA_LATENT),
    ATTENTION("kv_b_proj.weight", ROW_MATMUL, 0, DIM_ONE, DIM_MLA_EXPAND, DIM_MLA_LATENT),
    ATTENTION("o_proj.weight", ROW_MATMUL, 1, DIM_ONE, DIM_HIDDEN, DIM_MLA_VALUE),
    ATTENTION("o_proj.bias", 0, -1, DIM_OUTPUT_BIAS, DIM_HIDDEN),
};

/* Whole on every rank: its scores choose keys for all heads. */
#define INDEXER(name, flags, ...)                                                                  \
    {                                                                                              \
        "self_attn.indexer." name, COMPONENT_INDEXER, flags, -1, DIM_ONE,                          \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
static const struct tensor_row indexer_rows[] = {
    INDEXER("wq_b.weight", ROW_MATMUL, DIM_INDEX_QUERY, DIM_INDEX_INPUT),
    INDEXER("wk.weight", ROW_MATMUL, DIM_INDEX_KEY, DIM_HIDDEN),
    INDEXER("k_norm.weight", 0, DIM_INDEX_KEY),
    INDEXER("k_norm.bias", 0, DIM_INDEX_KEY),
    INDEXER("weights_proj.weight", ROW_MATMUL, DIM_INDEX_HEADS, DIM_HIDDEN),
};

#define LINEAR(name, flags, axis, when, ...)                                                       \
    {                                                                                              \
        name, COMPONENT_LINEAR_ATTENTION, flags, axis, when,                                       \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define DELTA(name, flags, axis, when, ...)                                                        \
    LINEAR("linear_attn." name, flags, axis, when, __VA_ARGS__)
static const struct tensor_row gdn_rows[] = {
    DELTA("dt_bias", 0, 0, DIM_ONE, DIM_GDN_VALUE_HEADS),
    DELTA("A_log", 0, 0, DIM_ONE, DIM_GDN_VALUE_HEADS),
    DELTA("conv1d.weight", 0, 0, DIM_ONE, DIM_GDN_CHANNELS, DIM_ONE, DIM_GDN_CONV),
    DELTA("norm.weight", 0, -1, DIM_ONE, DIM_GDN_VALUE_DIM),
    DELTA("in_proj_qkv.weight", ROW_MATMUL, 0, DIM_GDN_APART, DIM_GDN_CHANNELS, DIM_HIDDEN),
    DELTA("in_proj_z.weight", ROW_MATMUL, 0, DIM_GDN_APART, DIM_GDN_VALUE, DIM_HIDDEN),
    DELTA("in_proj_b.weight", ROW_MATMUL, 0, DIM_GDN_APART, DIM_GDN_VALUE_HEADS, DIM_HIDDEN),
    DELTA("in_proj_a.weight", ROW_MATMUL, 0, DIM_GDN_APART, DIM_GDN_VALUE_HEADS, DIM_HIDDEN),
    DELTA("in_proj_qkvz.weight", ROW_MATMUL, 0, DIM_GDN_JOINT, DIM_GDN_QKVZ, DIM_HIDDEN),
    DELTA("in_proj_ba.weight", ROW_MATMUL, 0, DIM_GDN_JOINT, DIM_GDN_PAIR, DIM_HIDDEN),
    DELTA("out_proj.weight", ROW_MATMUL, 1, DIM_ONE, DIM_HIDDEN, DIM_GDN_VALUE),
};

static const struct tensor_row lightning_rows[] = {
    LINEAR("self_attn.qkv_proj.weight", ROW_MATMUL, 0, DIM_ONE, DIM_LIGHTNING_QKV, DIM_HIDDEN),
    LINEAR("self_attn.output_gate.weight", ROW_MATMUL, 0, DIM_ONE, DIM_LIGHTNING, DIM_HIDDEN),
    LINEAR("self_attn.norm.weight", 0, 0, DIM_ONE, DIM_LIGHTNING),
    LINEAR("self_attn.out_proj.weight", ROW_MATMUL, 1, DIM_ONE, DIM_HIDDEN, DIM_LIGHTNING),
};

static const struct tensor_row mamba_rows[] = {
    LINEAR("mixer.in_proj.weight", ROW_MATMUL, 0, DIM_ONE, DIM_MAMBA_IN, DIM_HIDDEN),
    LINEAR("mixer.conv1d.weight", 0, 0, DIM_ONE, DIM_MAMBA_CHANNELS, DIM_ONE, DIM_MAMBA_CONV),
    LINEAR("mixer.conv1d.bias", 0, 0, DIM_ONE, DIM_MAMBA_CHANNELS),
    LINEAR("mixer.dt_bias", 0, 0, DIM_ONE, DIM_MAMBA_HEADS),
    LINEAR("mixer.A_log", 0, 0, DIM_ONE, DIM_MAMBA_HEADS),
    LINEAR("mixer.D", 0, 0, DIM_ONE, DIM_MAMBA_HEADS),
    LINEAR("mixer.norm.weight", 0, 0, DIM_ONE, DIM_MAMBA_INNER),
    LINEAR("mixer.out_proj.weight", ROW_MATMUL, 1, DIM_ONE, DIM_HIDDEN, DIM_MAMBA_INNER),
};

#define DENSE(name, flags, axis, when, ...)                                                        \
    {                                                                                              \
        "mlp." name, COMPONENT_DENSE_MLP, flags, axis, when,                                       \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
static const struct tensor_row dense_rows[] = {
    DENSE("gate_proj.weight", ROW_MATMUL, 0, DIM_GATED, DIM_DENSE, DIM_HIDDEN),
    DENSE("up_proj.weight", ROW_MATMUL, 0, DIM_ONE, DIM_DENSE, DIM_HIDDEN),
    DENSE("gate_proj.bias", 0, 0, DIM_MLP_BIAS, DIM_DENSE),
    DENSE("up_proj.bias", 0, 0, DIM_MLP_BIAS, DIM_DENSE),
    DENSE("down_proj.weight", ROW_MATMUL, 1, DIM_ONE, DIM_HIDDEN, DIM_DENSE),
    DENSE("down_proj.bias", 0, -1, DIM_MLP_BIAS, DIM_HIDDEN),
};

#define SHARED(name, axis, when, ...)                                                              \
    {                                                                                              \
        "mlp." name, COMPONENT_SHARED_EXPERT, ROW_MATMUL, axis, when,                              \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define EXPERT(name, flags, axis, when, ...)                                                       \
    {                                                                                              \
        "mlp.experts." name, COMPONENT_EXPERTS, flags | ROW_EXPERT, axis, when,                    \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
static const struct tensor_row moe_rows[] = {
    { "mlp.gate.weight", COMPONENT_ROUTER, ROW_MATMUL, -1, DIM_ONE, { DIM_EXPERTS, DIM_HIDDEN } },
    { "mlp.gate.e_score_correction_bias",
      COMPONENT_ROUTER,
      0,
      -1,
      DIM_ROUTER_BIAS,
      { DIM_EXPERTS } },
    SHARED("shared_expert.gate_proj.weight", 0, DIM_SHARED_GATED, DIM_SHARED, DIM_HIDDEN),
    SHARED("shared_expert.up_proj.weight", 0, DIM_SHARED, DIM_SHARED, DIM_HIDDEN),
    SHARED("shared_expert.down_proj.weight", 1, DIM_SHARED, DIM_HIDDEN, DIM_SHARED),
    SHARED("shared_expert_gate.weight", -1, DIM_SHARED_SCALAR, DIM_ONE, DIM_HIDDEN),
    { "mlp.fc1_latent_proj.weight",
      COMPONENT_EXPERTS,
      ROW_MATMUL,
      -1,
      DIM_LATENT,
      { DIM_LATENT, DIM_HIDDEN } },
    { "mlp.fc2_latent_proj.weight",
      COMPONENT_EXPERTS,
      ROW_MATMUL,
      -1,
      DIM_LATENT,
      { DIM_HIDDEN, DIM_LATENT } },
    EXPERT("{e}.gate_proj.weight", ROW_MATMUL, 0, DIM_SEPARATE_GATE, DIM_EXPERT, DIM_ROUTED),
    EXPERT("{e}.up_proj.weight", ROW_MATMUL, 0, DIM_SEPARATE, DIM_EXPERT, DIM_ROUTED),
    EXPERT("{e}.down_proj.weight", ROW_MATMUL, 1, DIM_SEPARATE, DIM_ROUTED, DIM_EXPERT),
    EXPERT("gate_up_proj", ROW_MATMUL, 0, DIM_STACKED, DIM_EXPERT_PAIR, DIM_ROUTED),
    EXPERT("down_proj", ROW_MATMUL, 1, DIM_STACKED, DIM_ROUTED, DIM_EXPERT),
    EXPERT("gate_up_proj", ROW_MATMUL, 1, DIM_STACKED_IN_OUT, DIM_ROUTED, DIM_EXPERT_PAIR),
    EXPERT("down_proj", ROW_MATMUL, 0, DIM_STACKED_IN_OUT, DIM_EXPERT, DIM_ROUTED),
    EXPERT("gate_up_proj_bias", 0, 0, DIM_EXPERT_BIAS, DIM_EXPERT_PAIR),
    EXPERT("down_proj_bias", 0, -1, DIM_EXPERT_BIAS, DIM_ROUTED),
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

const struct row_list text_row_lists[ROWS_COUNT] = {
    [ROWS_EMBEDDING] = ROW_LIST(embedding_rows),
    [ROWS_INPUT_NORM] = ROW_LIST(input_norm_rows),
    [ROWS_GQA] = ROW_LIST(gqa_rows),
    [ROWS_GDN] = ROW_LIST(gdn_rows),
    [ROWS_MLA] = ROW_LIST(mla_rows),
    [ROWS_INDEXER] = ROW_LIST(indexer_rows),
    [ROWS_LIGHTNING] = ROW_LIST(lightning_rows),
    [ROWS_MAMBA] = ROW_LIST(mamba_rows),
    [ROWS_POST_NORM] = ROW_LIST(post_norm_rows),
    [ROWS_DENSE] = ROW_LIST(dense_rows),
    [ROWS_MOE] = ROW_LIST(moe_rows),
    [ROWS_FINAL_NORM] = ROW_LIST(final_norm_rows),
    [ROWS_HEAD] = ROW_LIST(head_rows),
    [ROWS_MTP_IN] = ROW_LIST(mtp_in_rows),
    [ROWS_MTP_OUT] = ROW_LIST(mtp_out_rows),
};
