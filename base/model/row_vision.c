/* The rows of vision towers. Qwen's: patches, blocks, a merger into the text model's width and, in
 * some, further mergers that feed deeper layers. Towers with an adapter (Llama 4): a class token,
 * norms around the blocks, an MLP over shuffled pixels and a projection. */
#include "base/model/row_table.h"

#define VISION(name, flags, ...)                                                                   \
    {                                                                                              \
        name, COMPONENT_VISION, flags, -1, DIM_VISION_WIDTH,                                       \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
static const struct tensor_row in_rows[] = {
    VISION("patch_embed.proj.weight", ROW_MATMUL, DIM_VISION_WIDTH, DIM_VISION_CHANNELS,
           DIM_VISION_TEMPORAL, DIM_VISION_PATCH, DIM_VISION_PATCH),
    VISION("patch_embed.proj.bias", 0, DIM_VISION_WIDTH),
    VISION("pos_embed.weight", 0, DIM_VISION_POSITIONS, DIM_VISION_WIDTH),
    { "final_norm.weight", COMPONENT_VISION, 0, -1, DIM_VISION_FINAL_NORM, { DIM_VISION_WIDTH } },
    { "final_norm.bias", COMPONENT_VISION, 0, -1, DIM_VISION_FINAL_NORM, { DIM_VISION_WIDTH } },
};
static const struct tensor_row block_rows[] = {
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
static const struct tensor_row out_rows[] = {
    VISION("merger.norm.weight", 0, DIM_VISION_WIDTH),
    VISION("merger.norm.bias", 0, DIM_VISION_WIDTH),
    VISION("merger.linear_fc1.weight", ROW_MATMUL, DIM_VISION_MERGED, DIM_VISION_MERGED),
    VISION("merger.linear_fc1.bias", 0, DIM_VISION_MERGED),
    VISION("merger.linear_fc2.weight", ROW_MATMUL, DIM_HIDDEN, DIM_VISION_MERGED),
    VISION("merger.linear_fc2.bias", 0, DIM_HIDDEN),
};
/* Deeper mergers norm after the patches have been joined. */
static const struct tensor_row deepstack_rows[] = {
    VISION("norm.weight", 0, DIM_VISION_MERGED),
    VISION("norm.bias", 0, DIM_VISION_MERGED),
    VISION("linear_fc1.weight", ROW_MATMUL, DIM_VISION_MERGED, DIM_VISION_MERGED),
    VISION("linear_fc1.bias", 0, DIM_VISION_MERGED),
    VISION("linear_fc2.weight", ROW_MATMUL, DIM_HIDDEN, DIM_VISION_MERGED),
    VISION("linear_fc2.bias", 0, DIM_HIDDEN),
};

static const struct tensor_row adapted_in_rows[] = {
    VISION("vision_model.patch_embedding.linear.weight", ROW_MATMUL, DIM_VISION_WIDTH,
           DIM_VISION_FLAT),
    VISION("vision_model.class_embedding", 0, DIM_VISION_WIDTH),
    VISION("vision_model.positional_embedding_vlm", 0, DIM_VISION_POSITIONS, DIM_VISION_WIDTH),
    VISION("vision_model.layernorm_pre.weight", 0, DIM_VISION_WIDTH),
    VISION("vision_model.layernorm_pre.bias", 0, DIM_VISION_WIDTH),
};
static const struct tensor_row adapted_block_rows[] = {
    VISION("input_layernorm.weight", 0, DIM_VISION_WIDTH),
    VISION("input_layernorm.bias", 0, DIM_VISION_WIDTH),
    VISION("post_attention_layernorm.weight", 0, DIM_VISION_WIDTH),
    VISION("post_attention_layernorm.bias", 0, DIM_VISION_WIDTH),
    VISION("self_attn.q_proj.weight", ROW_MATMUL, DIM_VISION_WIDTH, DIM_VISION_WIDTH),
    VISION("self_attn.q_proj.bias", 0, DIM_VISION_WIDTH),
    VISION("self_attn.k_proj.weight", ROW_MATMUL, DIM_VISION_WIDTH, DIM_VISION_WIDTH),
    VISION("self_attn.k_proj.bias", 0, DIM_VISION_WIDTH),
    VISION("self_attn.v_proj.weight", ROW_MATMUL, DIM_VISION_WIDTH, DIM_VISION_WIDTH),
    VISION("self_attn.v_proj.bias", 0, DIM_VISION_WIDTH),
    VISION("self_attn.o_proj.weight", ROW_MATMUL, DIM_VISION_WIDTH, DIM_VISION_WIDTH),
    VISION("self_attn.o_proj.bias", 0, DIM_VISION_WIDTH),
    VISION("mlp.fc1.weight", ROW_MATMUL, DIM_VISION_MLP, DIM_VISION_WIDTH),
    VISION("mlp.fc1.bias", 0, DIM_VISION_MLP),
    VISION("mlp.fc2.weight", ROW_MATMUL, DIM_VISION_WIDTH, DIM_VISION_MLP),
    VISION("mlp.fc2.bias", 0, DIM_VISION_WIDTH),
};
static const struct tensor_row adapted_out_rows[] = {
    VISION("vision_model.layernorm_post.weight", 0, DIM_VISION_WIDTH),
    VISION("vision_model.layernorm_post.bias", 0, DIM_VISION_WIDTH),
    VISION("vision_model.vision_adapter.mlp.fc1.weight", ROW_MATMUL, DIM_VISION_ADAPTER_IN,
           DIM_VISION_MLP),
    VISION("vision_model.vision_adapter.mlp.fc2.weight", ROW_MATMUL, DIM_VISION_ADAPTER_OUT,
           DIM_VISION_ADAPTER_OUT),
};
static const struct tensor_row projector_rows[] = {
    VISION("linear_1.weight", ROW_MATMUL, DIM_HIDDEN, DIM_VISION_ADAPTER_OUT),
};

const struct row_list vision_row_lists[ROWS_COUNT] = {
    [ROWS_VISION_IN] = ROW_LIST(in_rows),
    [ROWS_VISION_BLOCK] = ROW_LIST(block_rows),
    [ROWS_VISION_OUT] = ROW_LIST(out_rows),
    [ROWS_VISION_DEEPSTACK] = ROW_LIST(deepstack_rows),
    [ROWS_VISION_ADAPTED_IN] = ROW_LIST(adapted_in_rows),
    [ROWS_VISION_ADAPTED_BLOCK] = ROW_LIST(adapted_block_rows),
    [ROWS_VISION_ADAPTED_OUT] = ROW_LIST(adapted_out_rows),
    [ROWS_VISION_PROJECTOR] = ROW_LIST(projector_rows),
};
