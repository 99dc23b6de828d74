#include "base/layout/primitives.h"

const char *const sharding_names[SHARDING_COUNT] = {
    [SHARDING_REPLICATED] = "replicated",
    [SHARDING_ZERO1] = "zero1",
    [SHARDING_ZERO2] = "zero2",
    [SHARDING_FSDP] = "fsdp",
};
const char *const dtype_names[DTYPE_COUNT] = { [DTYPE_BF16] = "bf16", [DTYPE_FP32] = "fp32" };
const char *const recompute_names[RECOMPUTE_COUNT] = {
    [RECOMPUTE_NONE] = "none",
    [RECOMPUTE_SELECTIVE] = "selective",
    [RECOMPUTE_FULL] = "full",
};
const char *const loss_names[LOSS_COUNT] = {
    [LOSS_FULL] = "full",
    [LOSS_LINEAR_CE] = "linear_ce",
    [LOSS_RING_DTP] = "ring_dtp",
};
const char *const moe_names[MOE_COUNT] = {
    [MOE_PLAIN] = "plain",
    [MOE_CHUNKED] = "chunked",
    [MOE_CAPPED] = "capped",
};
const char *const exchange_names[EXCHANGE_COUNT] = {
    [EXCHANGE_SM] = "sm", [EXCHANGE_COPY] = "copy"
};
const char *const context_names[CONTEXT_COUNT] = {
    [CONTEXT_NONE] = "none", [CONTEXT_ALLGATHER_KV] = "allgather_kv", [CONTEXT_ULYSSES] = "ulysses",
    [CONTEXT_RING] = "ring", [CONTEXT_HIERARCHICAL] = "hierarchical",
};
const char *const linear_context_names[LINEAR_CONTEXT_COUNT] = {
    [LINEAR_CONTEXT_NONE] = "none",
    [LINEAR_CONTEXT_HEAD_SPLIT] = "head_split",
    [LINEAR_CONTEXT_STATE_PASS] = "state_pass",
};
const char *const optimizer_names[OPTIMIZER_COUNT] = {
    [OPTIMIZER_ADAMW] = "adamw",
    [OPTIMIZER_MUON] = "muon",
};
const char *const master_names[MASTER_COUNT] = {
    [MASTER_FP32] = "fp32",
    [MASTER_NONE] = "none",
};
const char *const lora_names[LORA_COUNT] = { "attention", "mlp", "experts" };
const char *const rl_names[RL_COUNT] = { "old", "reference", "entropy" };
const char *const reference_weights_names[REFERENCE_COUNT] = {
    [REFERENCE_RESIDENT] = "resident", [REFERENCE_HOST] = "host"
};
const char *const packing_names[PACKING_COUNT] = {
    [PACKING_NONE] = "none", [PACKING_ROW] = "row", [PACKING_PIECE] = "piece"
};
const char *const offload_names[OFFLOAD_COUNT] = { "checkpoints", "optimizer" };

struct primitives primitives_default(void)
{
    return (struct primitives){
        .sharding = SHARDING_FSDP,
        .grad_dtype = DTYPE_FP32,
        .logits_dtype = DTYPE_FP32,
        .recompute = RECOMPUTE_FULL,
        .recompute_layers = RECOMPUTE_ALL_LAYERS,
        .loss = LOSS_LINEAR_CE,
        .moe = MOE_PLAIN,
        .moe_chunks = 1,
        .context = CONTEXT_NONE,
        .linear_context = LINEAR_CONTEXT_NONE,
        .prefetch_units = 1,
        .comm_streams = 1,
        .bucket_params = (uint64_t)100 << 20,
        .slots = 2,
        .vocab_group = 1,
        .loss_tile_tokens = LOSS_TILE_TOKENS,
        .latent_head_block = LATENT_HEAD_BLOCK,
        .optimizer = OPTIMIZER_ADAMW,
        .moments_dtype = DTYPE_FP32,
        .master = MASTER_FP32,
        .lora_targets = LORA_ATTENTION | LORA_MLP | LORA_EXPERTS,
    };
}
