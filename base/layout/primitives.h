/* primitives.h - how the step is carried out beside the degrees of the layout: sharding, recompute,
 * loss, MoE schedule, dtypes. Values only; what each means for memory or time is its user's matter.
 */
#ifndef RANKFIT_BASE_LAYOUT_PRIMITIVES_H
#define RANKFIT_BASE_LAYOUT_PRIMITIVES_H

#include <stdbool.h>
#include <stdint.h>

enum sharding {
    SHARDING_REPLICATED,
    SHARDING_ZERO1,
    SHARDING_ZERO2,
    SHARDING_FSDP,
    SHARDING_COUNT
};
enum dtype { DTYPE_BF16, DTYPE_FP32, DTYPE_COUNT };
enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTE_COUNT };
enum loss { LOSS_FULL, LOSS_LINEAR_CE, LOSS_RING_DTP, LOSS_COUNT };
enum moe_schedule { MOE_PLAIN, MOE_CHUNKED, MOE_CAPPED, MOE_COUNT };
enum exchange { EXCHANGE_SM, EXCHANGE_COPY, EXCHANGE_COUNT };
enum context {
    CONTEXT_NONE,
    CONTEXT_ALLGATHER_KV,
    CONTEXT_ULYSSES,
    CONTEXT_RING,
    CONTEXT_HIERARCHICAL,
    CONTEXT_COUNT
};
enum linear_context {
    LINEAR_CONTEXT_NONE,
    LINEAR_CONTEXT_HEAD_SPLIT,
    LINEAR_CONTEXT_STATE_PASS,
    LINEAR_CONTEXT_COUNT
};
enum optimizer { OPTIMIZER_ADAMW, OPTIMIZER_MUON, OPTIMIZER_COUNT };
enum master { MASTER_FP32, MASTER_NONE, MASTER_COUNT };
enum { LORA_ATTENTION = 1 << 0, LORA_MLP = 1 << 1, LORA_EXPERTS = 1 << 2, LORA_COUNT = 3 };
/* What reinforcement learning adds to a step: log-probabilities by the policy as it was, and by the
 * reference model; entropy over the whole vocabulary in those passes and in the loss. */
enum { RL_OLD = 1 << 0, RL_REFERENCE = 1 << 1, RL_ENTROPY = 1 << 2, RL_COUNT = 3 };
enum reference_weights { REFERENCE_RESIDENT, REFERENCE_HOST, REFERENCE_COUNT };
/* How pieces of several lengths are padded in a row: each to 2 x cp and the row to tp, or each to
 * cp x lcm(2, tp). */
enum packing { PACKING_NONE, PACKING_ROW, PACKING_PIECE, PACKING_COUNT };
enum { OFFLOAD_CHECKPOINTS = 1 << 0, OFFLOAD_OPTIMIZER = 1 << 1, OFFLOAD_COUNT = 2 };

enum {
    WGRAD_DELAY_ALL = -1,
    RECOMPUTE_ALL_LAYERS = -1,
    LOSS_TILE_TOKENS = 512,
    LATENT_HEAD_BLOCK = 8,
    /* Of a gated delta net: the widest head, and the longest convolution in tokens, that a backend
     * runs. */
    DELTA_HEAD_MAX = 512,
    DELTA_CONV_MAX = 8
};

struct primitives {
    enum sharding sharding;
    enum dtype grad_dtype, logits_dtype;
    enum recompute recompute;
    int recompute_layers; /* first N layers of each stage; RECOMPUTE_ALL_LAYERS */
    enum loss loss;
    enum moe_schedule moe;
    int moe_chunks; /* 1 under plain */
    uint64_t moe_cap_tokens;
    int wgrad_delay;        /* chunks, or WGRAD_DELAY_ALL */
    enum exchange exchange; /* what moves routed rows between ranks: SMs or copy engines */
    enum context context;
    enum linear_context linear_context;
    int prefetch_units;          /* units gathered ahead of use: 0 or more */
    int comm_streams;            /* 1: gathers and reduce-scatters share a stream; 2: they do not */
    unsigned offload;            /* OFFLOAD_... bits */
    uint64_t sco_host_bytes;     /* host memory for offloaded checkpoints, a rank */
    uint64_t bucket_params;      /* parameters of one bucket of the offloaded optimizer */
    int slots;                   /* buckets on the device at a time */
    int vocab_group;             /* ranks sharing the vocabulary under ring_dtp; 1: none */
    int vocab_strip;             /* vocabulary entries of a strip under linear_ce; 0: no strips */
    int loss_tile_tokens;        /* tokens of a tile of logits or of their gradient */
    int latent_head_block;       /* heads expanded from gathered latents at a time; 0: all */
    int attention_deterministic; /* 1: attention's backward sums in one order */
    uint64_t tokens_per_gpu; /* of a micro-batch: a row of this x cp tokens; 0: micro_batch x seq */
    unsigned rl;             /* RL_... bits */
    enum reference_weights reference_weights;
    enum packing packing;
    enum optimizer optimizer; /* of the trunk's matrices; all else is AdamW's */
    enum dtype moments_dtype;
    enum master master;    /* MASTER_NONE: the update is rounded into the bf16 weights */
    int lora_rank;         /* 0: no adapters; else they alone are trained */
    unsigned lora_targets; /* LORA_... bits: which matrices have adapters */
    unsigned frozen;       /* bit i: the weights of enum component i are not trained */
    int keep_attention; /* 1: recomputed layers keep what attention made and do not attend again */
};

extern const char *const sharding_names[SHARDING_COUNT];
extern const char *const dtype_names[DTYPE_COUNT];
extern const char *const recompute_names[RECOMPUTE_COUNT];
extern const char *const loss_names[LOSS_COUNT];
extern const char *const moe_names[MOE_COUNT];
extern const char *const exchange_names[EXCHANGE_COUNT];
extern const char *const context_names[CONTEXT_COUNT];
extern const char *const linear_context_names[LINEAR_CONTEXT_COUNT];
extern const char *const optimizer_names[OPTIMIZER_COUNT];
extern const char *const master_names[MASTER_COUNT];
extern const char *const lora_names[LORA_COUNT]; /* bit i is called lora_names[i] */
extern const char *const rl_names[RL_COUNT];     /* bit i is called rl_names[i] */
extern const char *const reference_weights_names[REFERENCE_COUNT];
extern const char *const packing_names[PACKING_COUNT];
extern const char *const offload_names[OFFLOAD_COUNT]; /* bit i is called offload_names[i] */

/* The defaults of ARCHITECTURE.md: fsdp, fp32 gradients and logits, full recompute, linear CE,
 * plain MoE, one unit prefetched, one communication stream. */
struct primitives primitives_default(void);

static inline uint64_t dtype_bytes(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? 2 : 4;
}

#endif
