/* kernels.h - one C launcher a kernel: plain device pointers in, the launch's status out. bf16 is
 * uint16_t; gradients that come in two types say so by `is_float`. Every launcher takes any number
 * of rows (0: nothing is launched) and rows of a multiple of 8 elements whose addresses are
 * multiples of 16 bytes, unless it says otherwise. Sums that several blocks share go through
 * `scratch` in a fixed order, so that the same input gives the same bits. */
#ifndef RANKFIT_EXECUTOR_BACKEND_CUDA_KERNELS_H
#define RANKFIT_EXECUTOR_BACKEND_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

/* Widest rows of the norms, widest head, most experts; most blocks that leave partial sums. */
enum {
    KERNEL_NORM_WIDTH_MAX = 16384,
    KERNEL_HEAD_MAX = 256,
    KERNEL_ROPE_EACH = 3, /* blocks that a multiprocessor holds in the rotation's backward */
    KERNEL_EXPERTS_MAX = 512,
    KERNEL_TOP_K_MAX = 32,
    KERNEL_SUM_BLOCKS = 1024
};

#ifdef __cplusplus
extern "C" {
#endif

/* The weights apply as centre + w. */
cudaError_t kernel_rmsnorm(cudaStream_t stream, int64_t rows, int64_t width, float eps,
                           float centre, const uint16_t *x, const uint16_t *w, uint16_t *y);
/* partial: [blocks, width] floats, blocks >= 1. dw NULL: only dx. */
cudaError_t kernel_rmsnorm_backward(cudaStream_t stream, int64_t rows, int64_t width, float eps,
                                    float centre, const uint16_t *dy, const uint16_t *x,
                                    const uint16_t *w, uint16_t *dx, bool accumulate_dx, void *dw,
                                    bool is_float, float *partial, int blocks);
/* to[i] += sum over blocks of partial[block, i], i < width, rows of `stride` floats. */
cudaError_t kernel_add_columns(cudaStream_t stream, int blocks, int64_t width, int64_t stride,
                               const float *partial, void *to, bool is_float);

/* Head norms and rotation, see struct rope. frequency[i]: radians a position of pair i. */
struct kernel_rope_args {
    int64_t rows, tokens, qkv_stride, k_offset;
    int heads, kv_heads, head_dim, rotary_dim;
    int64_t q_head_stride;            /* elements between heads of q in qkv */
    int64_t run_tokens, run_first[2]; /* run_tokens 0: position is row % tokens */
    float eps, centre;                /* the norms multiply by centre + w */
    float share;                      /* 1 / head_dim */
    float factor;                     /* of cosines and sines */
    const uint16_t *q_norm, *k_norm;
    const uint16_t *qkv;
    uint16_t *q, *k, *dqkv; /* forward: q and k; backward: dqkv, in place */
    double frequency[KERNEL_HEAD_MAX / 2];
};
cudaError_t kernel_rope(cudaStream_t stream, const struct kernel_rope_args *r);
/* partial: [blocks, 2 * head_dim], the norms' own gradients of q, then of k. */
cudaError_t kernel_rope_backward(cudaStream_t stream, const struct kernel_rope_args *r,
                                 float *partial, int blocks);

/* The columns of key head 0 in a row of a delta net's projection, and the distances of the next
 * key head's: struct delta_columns. */
struct kernel_delta_columns {
    int64_t q, k, v, z, b, a, key_step, value_step, gate_step;
};
/* The inputs of the delta rule, and their gradients: struct delta_input. Any sizes and addresses
 * up to KERNEL_DELTA_WIDE and KERNEL_CONV_MAX, but see kernel_delta_input_packed. */
enum { KERNEL_DELTA_WIDE = 512, KERNEL_CONV_MAX = 8, KERNEL_CONV = 4 };
struct kernel_delta_input_args {
    struct kernel_delta_columns columns;
    int64_t tokens, p_stride;
    int runs, width, key_heads, value_heads, key_dim, value_dim;
    const uint16_t *p, *halo, *conv[3], *log_rate, *step;
    uint16_t *qkv;
    float *decay, *beta;
    const uint16_t *d_qkv;
    const float *d_decay, *d_beta;
    uint16_t *d_p;
    float *d_halo;
    float *partial; /* sums of a block, [blocks, ..] */
    int blocks;
};
/* qkv; with a convolution of KERNEL_CONV, heads of 32, 64 or 128, and rows and columns of p at
 * multiples of 4 elements: each value is read once. */
cudaError_t kernel_delta_input(cudaStream_t stream, const struct kernel_delta_input_args *a);
cudaError_t kernel_delta_input_packed(cudaStream_t stream, const struct kernel_delta_input_args *a);
/* The columns of q, k and v of d_p, d_halo; partial: [blocks, channels * width] of d_conv. */
cudaError_t kernel_delta_input_backward(cudaStream_t stream,
                                        const struct kernel_delta_input_args *a);
cudaError_t kernel_delta_input_backward_packed(cudaStream_t stream,
                                               const struct kernel_delta_input_args *a);
/* decay and beta; the columns of b and a of d_p, partial: [blocks, 2 value_heads] of d_log_rate and
 * d_step. */
cudaError_t kernel_delta_gates(cudaStream_t stream, const struct kernel_delta_input_args *a);
cudaError_t kernel_delta_gates_backward(cudaStream_t stream,
                                        const struct kernel_delta_input_args *a);
/* Last rows of runs, struct delta_tails: tails = p, or d_p += d_tails. */
cudaError_t kernel_delta_tails(cudaStream_t stream, const struct kernel_delta_input_args *a,
                               uint16_t *tails);
cudaError_t kernel_delta_tails_backward(cudaStream_t stream,
                                        const struct kernel_delta_input_args *a,
                                        const float *d_tails);

/* struct gated_norm. partial: [blocks, value_dim]. */
struct kernel_gated_norm_args {
    int64_t rows, p_stride, z, value_step;
    int key_heads, value_heads, value_dim;
    float eps;
    const uint16_t *o, *p, *weight;
    uint16_t *on, *d_o, *d_p;
    float *partial;
    int blocks;
};
cudaError_t kernel_gated_norm(cudaStream_t stream, const struct kernel_gated_norm_args *a);
cudaError_t kernel_gated_norm_backward(cudaStream_t stream, const struct kernel_gated_norm_args *a);

/* struct delta_combine, any sizes up to KERNEL_DELTA_WIDE. */
struct kernel_delta_combine_args {
    int sequences, chunks, own, own_chunks[2], heads, key_dim, value_dim;
    const float *ends, *transitions;
    float *states;
    bool backward;
};
cudaError_t kernel_delta_combine(cudaStream_t stream, const struct kernel_delta_combine_args *a);

/* The gated delta rule over one segment of a group of runs, for heads of 128 x 128: chunks of 64
 * tokens, those beyond the run's end filled with zeros. Every [.., chunks, heads] tensor is of the
 * segment; states are [value_heads, 128 (key), 128] in fp32, those of adjacent runs `.._stride`
 * elements apart. */
enum {
    KERNEL_DELTA_CHUNK = 64,
    KERNEL_DELTA_DIM = 128,
    KERNEL_DELTA_SEGMENT = 4096, /* tokens between the states that are kept */
    /* Bytes of a chunk's inverse, scores and gates, and of the states around it. */
    KERNEL_DELTA_CELL = 2 * 2 * 64 * 64 + 4 * 4 * 64,
    KERNEL_DELTA_AROUND = 2 * 2 * 128 * 128
};
struct kernel_delta_args {
    int64_t tokens, first; /* of a run; of them, where the segment begins */
    int chunks, run, runs; /* of the segment; the first run, and how many */
    int key_heads, value_heads;
    int warps; /* of a block of the chain, each for 16 columns of a state: 1, 2 or 4 */
    const uint16_t *qkv;
    const float *decay, *beta;
    /* Made by kernel_delta_squares: (I + B)^-1 and P, bf16 [64, 64] a chunk and head; exp(c),
     * E / exp(c), beta and c, fp32 [4, 64]. */
    uint16_t *inverse, *scores;
    float *gates;
    /* Forward: states before the segment (NULL: zeros), a copy of them (NULL: none), and states
     * behind it. Backward: gradients of states behind it (NULL: zeros) and before it. */
    const float *from;
    float *kept, *to;
    int64_t from_stride, kept_stride, to_stride;
    /* Forward without outputs: the results of the unit states where there are no values
     * (NULL: the unit states), next to each other. to NULL: not wanted. */
    const float *transition_from;
    float *transition_to;
    uint16_t *before;    /* states before chunks, bf16 [.., 128 (value), 128 (key)]; or NULL */
    uint16_t *behind;    /* gradients of the states behind them */
    uint16_t *o;         /* NULL: none; [rows, value_heads * 128] */
    const uint16_t *d_o; /* as o */
    uint16_t *d_qkv;     /* NULL: gradients of states alone */
    float *d_decay, *d_beta;
};
/* Bytes of shared memory that a block of the hungriest of them takes. */
int kernel_delta_shared_bytes(void);
cudaError_t kernel_delta_squares(cudaStream_t stream, const struct kernel_delta_args *a);
/* to, kept, transition_to, and one of before and o. */
cudaError_t kernel_delta_forward(cudaStream_t stream, const struct kernel_delta_args *a);
/* to; with d_qkv behind, and the values' part of d_qkv. */
cudaError_t kernel_delta_states_backward(cudaStream_t stream, const struct kernel_delta_args *a);
/* From before, behind and the values' part of d_qkv: the rest of d_qkv, d_decay, d_beta. */
cudaError_t kernel_delta_gradient(cudaStream_t stream, const struct kernel_delta_args *a);

/* The rule token by token in fp32 without matrix units, for other heads up to KERNEL_DELTA_WIDE and
 * as the judge of those: struct delta_rule. `count` of all (run, value head) pairs, from `first`
 * on, backward of all (run, key head) pairs; a block each. */
struct kernel_delta_plain_args {
    int64_t tokens; /* of a run */
    int first, count;
    int key_heads, value_heads, key_dim, value_dim;
    const uint16_t *qkv;
    const float *decay, *beta;
    const float *initial;
    float *states, *final, *transition;
    uint16_t *o;
    const uint16_t *d_o;
    uint16_t *d_qkv;
    float *d_decay, *d_beta;
    const float *d_final;
    float *d_initial;
    float *workspace; /* kernel_delta_plain_bytes for each of `count` */
};
/* heads: value heads of a key head. */
int64_t kernel_delta_plain_bytes(int heads, int key_dim, int value_dim, bool backward);
cudaError_t kernel_delta_plain(cudaStream_t stream, const struct kernel_delta_plain_args *a);
cudaError_t kernel_delta_plain_backward(cudaStream_t stream,
                                        const struct kernel_delta_plain_args *a);

cudaError_t kernel_swiglu(cudaStream_t stream, int64_t rows, int64_t width, const uint16_t *h,
                          const float *row_weight, uint16_t *a);
cudaError_t kernel_swiglu_backward(cudaStream_t stream, int64_t rows, int64_t width,
                                   const uint16_t *da, const float *row_weight, uint16_t *h,
                                   float *d_row_weight);

/* See struct router; groups at least 1, scaling the factor itself. Experts up to
 * KERNEL_EXPERTS_MAX, top_k up to KERNEL_TOP_K_MAX, groups up to 64; no alignment asked. A given
 * choice outside the experts weighs 0. */
struct kernel_router_args {
    int64_t rows;
    int experts, top_k;
    bool normalize, given, sigmoid;
    int groups, group_limit;
    float scaling;
    const uint16_t *correction; /* NULL: none */
    float *probs;
    int32_t *choices;
    float *weights;
};
cudaError_t kernel_router(cudaStream_t stream, const struct kernel_router_args *r);
cudaError_t kernel_router_backward(cudaStream_t stream, const struct kernel_router_args *r,
                                   const float *d_weights, float *d_logits);
/* starts: scratch of (experts + 1) * kernel_sort_chunks(count) ints; loads: device int32 [experts +
 * 1], the last one counts choices outside the experts (their slot is 0). */
int64_t kernel_sort_chunks(int64_t count);
cudaError_t kernel_sort_choices(cudaStream_t stream, int64_t count, int experts,
                                const int32_t *choices, int32_t *slots, int32_t *starts,
                                int32_t *loads);

/* to[map[r, j]] = from[r], j < times; values likewise where not NULL. */
cudaError_t kernel_scatter_rows(cudaStream_t stream, int64_t rows, int times, int64_t width,
                                const uint16_t *from, const int32_t *map, uint16_t *to,
                                const float *values, float *to_values);
/* to[r] = from[map[r]]; values likewise. */
cudaError_t kernel_gather_rows(cudaStream_t stream, int64_t rows, int64_t width,
                               const uint16_t *from, const int32_t *map, uint16_t *to,
                               const float *values, float *to_values);
/* to[r] = base[r] + sum over j of from[map[r, j]]; values to_values[r, j] = values[map[r, j]]. */
cudaError_t kernel_combine_rows(cudaStream_t stream, int64_t rows, int times, int64_t width,
                                const uint16_t *from, const int32_t *map, const uint16_t *base,
                                uint16_t *to, const float *values, float *to_values);
/* d_table[ids[r]] += dy[r], rows of one token summed in fp32 in their order and added once. ids are
 * not negative, rows at most 2^29; scratch: kernel_embed_backward_bytes. */
uint64_t kernel_embed_backward_bytes(int64_t rows);
cudaError_t kernel_embed_backward(cudaStream_t stream, int64_t rows, int64_t width,
                                  const int32_t *ids, const uint16_t *dy, void *d_table,
                                  bool is_float, void *scratch);

/* Any vocab. losses: double [rows] scratch; *loss_sum (device) += their sum. *bad (device) becomes
 * the row + 1 of a target at or beyond vocab. */
cudaError_t kernel_cross_entropy(cudaStream_t stream, int64_t rows, int64_t vocab,
                                 const float *logits, const int32_t *targets, float scale,
                                 uint16_t *d_logits, double *losses, double *loss_sum,
                                 int64_t *bad);

/* The gradient in the logits' place, of either type. */
cudaError_t kernel_cross_entropy_in_place(cudaStream_t stream, int64_t rows, int64_t vocab,
                                          void *logits, bool is_float, const int32_t *targets,
                                          float scale, double *losses, double *loss_sum,
                                          int64_t *bad);
/* The same but the sum, with logits read once: cudaErrorNotSupported and nothing done where a
 * cluster of blocks cannot hold a row, or the device has none. */
cudaError_t kernel_cross_entropy_held(cudaStream_t stream, int64_t rows, int64_t vocab,
                                      const float *logits, const int32_t *targets, float scale,
                                      uint16_t *d_logits, double *losses, int64_t *bad);
cudaError_t kernel_cross_entropy_held_in_place(cudaStream_t stream, int64_t rows, int64_t vocab,
                                               void *logits, bool is_float, const int32_t *targets,
                                               float scale, double *losses, int64_t *bad);
/* Strips, see struct vocabulary_strip. */
cudaError_t kernel_strip_loss(cudaStream_t stream, int64_t rows, int64_t vocab, int64_t first,
                              int64_t width, const float *logits, const int32_t *targets,
                              float *lse, double *losses, double *loss_sum, int64_t *bad);
cudaError_t kernel_strip_gradient(cudaStream_t stream, int64_t rows, int64_t first, int64_t width,
                                  const float *logits, const int32_t *targets, const float *lse,
                                  float scale, uint16_t *d_logits);

/* Rows of `width` elements with their own distances. */
cudaError_t kernel_rows_to_bf16(cudaStream_t stream, int64_t rows, int64_t width, const float *from,
                                int64_t from_stride, uint16_t *to, int64_t to_stride);
/* to += from */
cudaError_t kernel_add_rows(cudaStream_t stream, int64_t rows, int64_t width, const uint16_t *from,
                            int64_t from_stride, float *to, int64_t to_stride);
cudaError_t kernel_add_bias(cudaStream_t stream, int64_t rows, int64_t width, const uint16_t *bias,
                            uint16_t *y, int64_t stride);
/* partial: [blocks, width]. */
cudaError_t kernel_add_bias_backward(cudaStream_t stream, int64_t rows, int64_t width,
                                     const uint16_t *dy, int64_t stride, void *d_bias,
                                     bool is_float, float *partial, int blocks);

/* See struct output_gate; d_o and d_gate in the backward only. */
struct kernel_gate_args {
    int64_t rows;
    int heads, head_dim;
    int64_t row_stride, head_stride;
    const uint16_t *o, *gate;
    uint16_t *og, *d_o, *d_gate;
};
cudaError_t kernel_output_gate(cudaStream_t stream, const struct kernel_gate_args *g);
cudaError_t kernel_output_gate_backward(cudaStream_t stream, const struct kernel_gate_args *g);

/* Any count and alignment from here on. partial: double [KERNEL_SUM_BLOCKS]; *sum is set. */
cudaError_t kernel_sum_squares(cudaStream_t stream, int64_t count, const void *values,
                               bool is_float, double *partial, double *sum);
cudaError_t kernel_add(cudaStream_t stream, int64_t count, const void *from, void *to,
                       bool is_float);
cudaError_t kernel_to_bf16(cudaStream_t stream, int64_t count, const float *from, uint16_t *to);
cudaError_t kernel_sigmoid(cudaStream_t stream, int64_t count, float *values);
cudaError_t kernel_sigmoid_backward(cudaStream_t stream, int64_t count, const float *values,
                                    float *d_values);

/* One AdamW update; corrections 1 - beta^step come ready. */
struct kernel_adamw_args {
    int64_t count;
    const void *gradient;
    bool is_float;
    float *master, *moment1, *moment2;
    uint16_t *weight;
    float scale, rate, beta1, beta2, epsilon, decay;
    float first_left, second_left;
};
cudaError_t kernel_adamw(cudaStream_t stream, const struct kernel_adamw_args *a);

/* Attention without matrix units, for shapes that the library refuses and as the judge of those it
 * takes: any head_dim up to KERNEL_HEAD_MAX, window 0 = full, query i of a sequence's `queries`
 * sees keys up to first_query + i of its `keys`. Query runs begin run_stride rows apart. Strides in
 * elements between rows. */
struct kernel_attention_args {
    int sequences, heads, kv_heads, head_dim;
    int64_t queries, keys, window, first_query, run_stride;
    int64_t q_stride, k_stride, v_stride, o_stride;
    const uint16_t *q, *k, *v;
    uint16_t *o;
    float *lse; /* [queries of all sequences, heads] */
    const uint16_t *d_o;
    uint16_t *dq, *dk, *dv;
    int64_t dq_stride, dk_stride, dv_stride, dq_head_stride;
    float *dk_sum, *dv_sum; /* when not NULL: added to, instead of dk and dv written */
    int64_t sum_stride;
    float *delta; /* as lse */
};
cudaError_t kernel_attention(cudaStream_t stream, const struct kernel_attention_args *a);
cudaError_t kernel_attention_backward(cudaStream_t stream, const struct kernel_attention_args *a);

/* Between the products of attention's backward by blocks: query i of the block sees its keys up to
 * `ahead` + i, `window` of them (0: all). Rows of the four matrices are `stride` elements apart, a
 * multiple of 8; lse and delta `heads`. */
struct kernel_attention_block_args {
    int64_t queries, keys, stride, ahead, window;
    int heads;
    float scale;
    const float *scores, *d_weights, *lse, *delta;
    uint16_t *weights, *d_scores;
};
cudaError_t kernel_attention_block(cudaStream_t stream,
                                   const struct kernel_attention_block_args *a);
/* delta[row, head] = d_o . o of dense rows of heads. */
cudaError_t kernel_attention_delta(cudaStream_t stream, int64_t rows, int heads, int head_dim,
                                   const uint16_t *o, const uint16_t *d_o, float *delta);

/* to[i]: element first + i of the normal numbers of a key, as state/random.c defines them; the
 * host's and the device's logarithm and cosine may differ in the last bit of a double. */
cudaError_t kernel_draw_normal(cudaStream_t stream, int64_t count, float *to, uint64_t key,
                               uint64_t first, double deviation);

#ifdef __cplusplus
}
#endif

#endif
