/* backend.h - the operations that a training step is made of, as one table a backend fills. The
 * same step runs on every backend: nothing outside backend/ knows where memory lives. Matrices are
 * row-major; weights are stored [out, in]. bf16 is held as uint16_t. Every call is asynchronous on
 * its stream (the host backend completes before returning), and returns 0 or -1 with a diagnostic.
 *
 * During the arena's dry pass pointers are NULL and no operation is called. */
#ifndef RANKFIT_EXECUTOR_BACKEND_BACKEND_H
#define RANKFIT_EXECUTOR_BACKEND_BACKEND_H

#include "base/diag.h"
#include "base/layout/primitives.h"
#include "executor/backend/delta.h"
#include "executor/backend/latent.h"
#include "executor/memory/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum stream { STREAM_COMPUTE, STREAM_COMMUNICATION, STREAM_COUNT };

/* Which of the three products of a linear layer Y = X W^T: X [m,k], W [n,k], Y [m,n]. */
enum gemm_form {
    GEMM_FORWARD, /* c[m,n] = a[m,k] . b[n,k]^T */
    GEMM_INPUT,   /* c[m,k] = a[m,n] . b[n,k]      (gradient of X: a = dY, b = W) */
    GEMM_WEIGHT   /* c[n,k] = a[m,n]^T . b[m,k]    (gradient of W: a = dY, b = X) */
};

struct gemm {
    enum gemm_form form;
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    enum dtype a_type, b_type, c_type;
    int64_t a_stride, b_stride, c_stride; /* elements between rows */
    bool accumulate;                      /* c += ..., summed in fp32 before rounding to c_type */
    /* The most rows of the calls that one matrix is visited by, where they are few: a backend may
     * choose by it how it multiplies, never by m, so that all of them do alike. 0: as is usual. */
    int64_t plan_rows;
};

/* One product per expert over rows [offsets[e], offsets[e+1]) of the routed side; weights (b of
 * FORWARD and INPUT, c of WEIGHT) are `weight_stride` elements apart. m is ignored. offsets: host
 * memory, experts + 1. */
struct expert_gemm {
    struct gemm gemm;
    int experts;
    const int64_t *offsets;
    int64_t weight_stride;
};

/* Softmax attention of `sequences` sequences, causal, window 0 = full. Query rows are heads *
 * head_dim wide; v is read inside the fused projection with its own row stride.
 *
 * Each sequence has `key_tokens` keys (0: as many as queries), its keys following those of the
 * sequence before, and a run of `tokens` queries, the first of which stands at `first_query` in the
 * sequence: query i sees keys up to first_query + i, which must be below key_tokens. The query runs
 * of neighbouring sequences begin `run_stride` rows apart (0: tokens) in q, o, lse and their
 * gradients. A query's results do not depend, to the bit, on the run it is computed in. */
struct attention {
    int sequences, heads, kv_heads, head_dim;
    int64_t tokens;
    int64_t window;
    const bf16 *q, *k, *v;
    int64_t q_stride, k_stride, v_stride;
    bf16 *o;    /* [rows, heads * head_dim] */
    float *lse; /* [rows, heads] */
    int64_t key_tokens, first_query, run_stride;
    /* The backward sums in one order: the same input gives the same bits. */
    bool deterministic;
    /* Where values are narrower than keys, or lie between other columns: their width (0: head_dim)
     * and the elements between their heads (0: the width). o has rows of heads * value width. */
    int value_dim;
    int64_t v_head_stride;
    int64_t o_stride, lse_stride; /* of o, and of lse and delta; 0: dense */
    float score_factor;           /* of the scores, in addition to 1 / sqrt(head_dim); 0: 1 */
};
struct attention_gradient {
    struct attention forward; /* o and lse as the forward left them */
    const bf16 *d_o;          /* [rows, heads * head_dim] */
    bf16 *dq, *dk, *dv;       /* with the strides below */
    int64_t dq_stride, dk_stride, dv_stride;
    float *delta;    /* [rows, heads] scratch */
    void *workspace; /* attention_workspace bytes */
    /* Elements between the heads of dq (0: head_dim); a gated projection has gates between them. */
    int64_t dq_head_stride;
    int64_t dv_head_stride; /* between the heads of dv (0: the values' width) */
    int64_t d_o_stride;     /* 0: dense */
    /* When not NULL, dk and dv are not written: they are added here, rows of keys `sum_stride`
     * elements apart. */
    float *dk_sum, *dv_sum;
    int64_t sum_stride;
};

enum { ROPE_MAX_PAIRS = 256 };

/* Head norms (optional) and rotary embedding of the fused projection: rows of q | k | v, where q
 * may have a gate after each head. The first rotary_dim elements of a head turn, the others pass.
 */
struct rope {
    int64_t rows, tokens; /* position of row r: r % tokens, but see run_tokens */
    int heads, kv_heads, head_dim, rotary_dim;
    double theta, norm_eps;
    const bf16 *q_norm, *k_norm;  /* [head_dim] or NULL */
    const bf16 *qkv;              /* as the GEMM made it */
    int64_t qkv_stride, k_offset; /* k begins at column k_offset of a row */
    bf16 *q, *k;                  /* outputs, dense rows; forward only */
    int64_t q_head_stride;        /* elements between heads of q in qkv; 0: head_dim */
    bool norm_zero_centred;       /* the head norms multiply by 1 + w */
    /* When run_tokens > 0, the `tokens` rows of a sequence are two runs of run_tokens, and row i of
     * run j is at position run_first[j] + i (the halves that zig-zag order gives a rank). */
    int64_t run_tokens, run_first[2];
    bool adjacent;  /* pairs are (2i, 2i + 1), not (i, i + rotary_dim / 2) */
    bool stretched; /* radians per position are those of `frequency`, not of theta */
    double frequency[ROPE_MAX_PAIRS];
    double rotation_factor; /* of cosines and sines; 0: 1 */
};
struct rope_gradient {
    struct rope forward;     /* q, k unused */
    bf16 *dqkv;              /* in place: in, gradients of the rotated heads; out, of qkv */
    void *dq_norm, *dk_norm; /* [head_dim] accumulated in grad_type, or NULL */
    enum dtype grad_type;
};

/* Output gate of attention: og = o * sigmoid(gate). o, og and their gradients are dense rows; gate
 * is read inside the fused projection, where head h of a row begins at column h * head_stride. */
struct output_gate {
    int64_t rows;
    int heads, head_dim;
    const bf16 *o, *gate;
    int64_t row_stride, head_stride; /* of gate and d_gate */
    bf16 *og;                        /* forward only */
};
struct output_gate_gradient {
    struct output_gate forward; /* og unused */
    bf16 *d_o;                  /* in place: in, gradient of og; out, of o */
    bf16 *d_gate;               /* written, with the strides of gate */
};

/* Logits of vocabulary entries [first, first + width) of `vocab`, for a loss that visits the
 * vocabulary in strips from entry 0 upwards. targets count in the whole vocabulary; below 0 the row
 * does not count. */
struct vocabulary_strip {
    int64_t rows, vocab, first, width;
    const float *logits; /* [rows, width] */
    const int32_t *targets;
    float *lse; /* [rows] log of the sum of exp of the logits seen so far */
};

struct router {
    int64_t rows;
    int experts, top_k;
    bool normalize_top_k;
    float *probs;     /* [rows, experts]: logits in, softmax out */
    int32_t *choices; /* [rows, top_k]: out, or in when `given` */
    float *weights;   /* [rows, top_k] */
    bool given;       /* choices come from a profile or a replay */
    /* Scores are sigmoids of the logits; else a softmax over all experts. probs hold the scores. */
    bool sigmoid;
    /* [experts], added to the scores where experts are chosen and nowhere else; NULL: nothing. */
    const bf16 *correction;
    /* With more than one group the experts of the group_limit best groups of adjacent experts can
     * be chosen. A group is as good as its two best corrected scores together, without a correction
     * as its best score. */
    int groups, group_limit;
    float scaling; /* of the weights; 0: 1 */
};

struct adamw {
    int64_t count;
    const void *gradient;
    enum dtype grad_type;
    float *master, *moment1, *moment2;
    bf16 *weight;
    float scale; /* clip factor */
    float rate, beta1, beta2, epsilon, decay;
    int step; /* from 1 */
};

struct backend;

struct backend_ops {
    const char *name;

    /* Memory of the arena, and copies between it and host memory. */
    struct arena_source (*arena_source)(struct backend *b);
    uint64_t (*workspace_bytes)(
        const struct backend *b); /* GEMM panels; taken once as OWNER_WORKSPACE */
    void (*set_workspace)(struct backend *b, void *workspace);
    uint64_t (*attention_workspace_bytes)(const struct backend *b, const struct attention *a);
    int (*zero)(struct backend *b, enum stream s, void *to, uint64_t bytes,
                struct diag_list *reterr);
    int (*copy)(struct backend *b, enum stream s, void *to, const void *from, uint64_t bytes,
                struct diag_list *reterr);
    int (*upload)(struct backend *b, enum stream s, void *to, const void *host, uint64_t bytes,
                  struct diag_list *reterr);
    int (*download)(struct backend *b, enum stream s, void *host, const void *from, uint64_t bytes,
                    struct diag_list *reterr); /* complete on return */
    int (*sync)(struct backend *b, enum stream s, struct diag_list *reterr);
    uint64_t (*device_bytes)(struct backend *b); /* the device's own figure; 0 on the host */

    int (*gemm)(struct backend *b, enum stream s, const struct gemm *g, struct diag_list *reterr);
    int (*expert_gemm)(struct backend *b, enum stream s, const struct expert_gemm *g,
                       struct diag_list *reterr);

    /* y[r] = x[r] / rms(x[r]) * w. Backward: dx += ..., dw += sum over rows (grad_type). */
    int (*rmsnorm)(struct backend *b, enum stream s, int64_t rows, int64_t width, double eps,
                   const bf16 *x, const bf16 *w, bf16 *y, struct diag_list *reterr);
    int (*rmsnorm_backward)(struct backend *b, enum stream s, int64_t rows, int64_t width,
                            double eps, const bf16 *dy, const bf16 *x, const bf16 *w, bf16 *dx,
                            bool accumulate_dx, void *dw, enum dtype grad_type,
                            struct diag_list *reterr);
    int (*rope)(struct backend *b, enum stream s, const struct rope *r, struct diag_list *reterr);
    int (*rope_backward)(struct backend *b, enum stream s, const struct rope_gradient *r,
                         struct diag_list *reterr);
    int (*attention)(struct backend *b, enum stream s, const struct attention *a,
                     struct diag_list *reterr);
    int (*attention_backward)(struct backend *b, enum stream s, const struct attention_gradient *a,
                              struct diag_list *reterr);

    /* a[r,i] = row_weight[r] * silu(h[r,i]) * h[r,width+i]; row_weight NULL: 1. */
    int (*swiglu)(struct backend *b, enum stream s, int64_t rows, int64_t width, const bf16 *h,
                  const float *row_weight, bf16 *a, struct diag_list *reterr);
    /* h becomes dh in place; d_row_weight[r] = sum_i da * silu(g) * u, when not NULL. */
    int (*swiglu_backward)(struct backend *b, enum stream s, int64_t rows, int64_t width,
                           const bf16 *da, const float *row_weight, bf16 *h, float *d_row_weight,
                           struct diag_list *reterr);

    int (*router)(struct backend *b, enum stream s, const struct router *r,
                  struct diag_list *reterr);
    /* d_logits[rows, experts] from d_weights[rows, top_k]; probs, choices, weights as the forward
     * left. */
    int (*router_backward)(struct backend *b, enum stream s, const struct router *r,
                           const float *d_weights, float *d_logits, struct diag_list *reterr);
    /* slots[row, j]: place of choice j of row among rows * top_k sorted by expert, stable in the
     * row; counts[expert] (host memory) gets the loads: the one host read of a layer. */
    int (*sort_choices)(struct backend *b, enum stream s, int64_t rows, int top_k, int experts,
                        const int32_t *choices, int32_t *slots, int64_t *counts,
                        struct diag_list *reterr);
    /* to[slots[r, j]] = from[r] for each j; row_values (fp32) likewise when not NULL:
     * to_values[slots[r, j]] = row_values[r, j]. */
    int (*scatter_rows)(struct backend *b, enum stream s, int64_t rows, int top_k, int64_t width,
                        const bf16 *from, const int32_t *slots, bf16 *to, const float *row_values,
                        float *to_values, struct diag_list *reterr);
    /* to[i] = from[map[i]] (and fp32 values likewise when not NULL): expert order from arrival
     * order. */
    int (*gather_rows)(struct backend *b, enum stream s, int64_t rows, int64_t width,
                       const bf16 *from, const int32_t *map, bf16 *to, const float *from_values,
                       float *to_values, struct diag_list *reterr);
    /* to[map[i]] = from[i], the inverse. */
    int (*spread_rows)(struct backend *b, enum stream s, int64_t rows, int64_t width,
                       const bf16 *from, const int32_t *map, bf16 *to, const float *from_values,
                       float *to_values, struct diag_list *reterr);
    /* to[r] = base[r] (NULL: 0) + sum_j from[slots[r, j]], summed in fp32; values likewise into
     * to_values[r, j] = from_values[slots[r, j]] when not NULL. base may equal to. */
    int (*combine_rows)(struct backend *b, enum stream s, int64_t rows, int top_k, int64_t width,
                        const bf16 *from, const int32_t *slots, const bf16 *base, bf16 *to,
                        const float *from_values, float *to_values, struct diag_list *reterr);

    int (*add)(struct backend *b, enum stream s, int64_t count, const void *from, void *to,
               enum dtype dtype, struct diag_list *reterr); /* to += from */
    int (*embed)(struct backend *b, enum stream s, int64_t rows, int64_t width, const int32_t *ids,
                 const bf16 *table, bf16 *out, struct diag_list *reterr);
    int (*embed_backward)(struct backend *b, enum stream s, int64_t rows, int64_t width,
                          const int32_t *ids, const bf16 *dy, void *d_table, enum dtype grad_type,
                          struct diag_list *reterr);
    /* One tile of logits [rows, vocab] fp32: loss_sum (host double) += sum of -log p(target);
     * d_logits[rows, vocab] bf16 = (softmax - onehot) * scale. target < 0: the row does not count.
     * loss_sum must live, and is complete, until the stream's next sync, download or sum_squares.
     */
    int (*cross_entropy)(struct backend *b, enum stream s, int64_t rows, int64_t vocab,
                         const float *logits, const int32_t *targets, float scale, bf16 *d_logits,
                         double *loss_sum, struct diag_list *reterr);

    /* values = sigmoid(values), fp32 in place; backward: d_values *= values * (1 - values), with
     * values as the forward left them. */
    int (*sigmoid)(struct backend *b, enum stream s, int64_t count, float *values,
                   struct diag_list *reterr);
    int (*sigmoid_backward)(struct backend *b, enum stream s, int64_t count, const float *values,
                            float *d_values, struct diag_list *reterr);

    int (*sum_squares)(struct backend *b, enum stream s, int64_t count, const void *values,
                       enum dtype dtype, double *ret_sum, struct diag_list *reterr);
    int (*adamw)(struct backend *b, enum stream s, const struct adamw *a, struct diag_list *reterr);
    int (*to_bf16)(struct backend *b, enum stream s, int64_t count, const float *from, bf16 *to,
                   struct diag_list *reterr);
    void (*close)(struct backend *b);

    /* Entries from here on are NULL in a backend that lacks them. */

    /* rmsnorm whose weights are stored as w and applied as 1 + w. */
    int (*rmsnorm_centred)(struct backend *b, enum stream s, int64_t rows, int64_t width,
                           double eps, const bf16 *x, const bf16 *w, bf16 *y,
                           struct diag_list *reterr);
    int (*rmsnorm_centred_backward)(struct backend *b, enum stream s, int64_t rows, int64_t width,
                                    double eps, const bf16 *dy, const bf16 *x, const bf16 *w,
                                    bf16 *dx, bool accumulate_dx, void *dw, enum dtype grad_type,
                                    struct diag_list *reterr);

    int (*output_gate)(struct backend *b, enum stream s, const struct output_gate *g,
                       struct diag_list *reterr);
    int (*output_gate_backward)(struct backend *b, enum stream s,
                                const struct output_gate_gradient *g, struct diag_list *reterr);

    /* y[r, i] += bias[i], i < width, rows of y `stride` elements apart. Backward: d_bias[i] += sum
     * over rows of dy[r, i], summed in fp32 in the order of rows before it is added. */
    int (*add_bias)(struct backend *b, enum stream s, int64_t rows, int64_t width, const bf16 *bias,
                    bf16 *y, int64_t stride, struct diag_list *reterr);
    int (*add_bias_backward)(struct backend *b, enum stream s, int64_t rows, int64_t width,
                             const bf16 *dy, int64_t stride, void *d_bias, enum dtype grad_type,
                             struct diag_list *reterr);

    /* As cross_entropy, for logits [rows, vocab] of either type; the gradient takes their place. */
    int (*cross_entropy_in_place)(struct backend *b, enum stream s, int64_t rows, int64_t vocab,
                                  void *logits, enum dtype type, const int32_t *targets,
                                  float scale, double *loss_sum, struct diag_list *reterr);
    /* lse takes in the strip's logits (set by the strip at entry 0, so it needs no preparation);
     * loss_sum (host double) += the strip's part of the sum of -log p(target), which is complete
     * when every strip has been visited once. */
    int (*strip_loss)(struct backend *b, enum stream s, const struct vocabulary_strip *v,
                      double *loss_sum, struct diag_list *reterr);
    /* d_logits[rows, width] = (exp(logits - lse) - onehot) * scale, lse that of all strips. */
    int (*strip_gradient)(struct backend *b, enum stream s, const struct vocabulary_strip *v,
                          float scale, bf16 *d_logits, struct diag_list *reterr);

    /* to[r, i] = from[r, i], i < width, for matrices with their own distances between rows. */
    int (*copy_rows)(struct backend *b, enum stream s, int64_t rows, int64_t width,
                     const bf16 *from, int64_t from_stride, bf16 *to, int64_t to_stride,
                     struct diag_list *reterr);
    /* The same with rounding. */
    int (*rows_to_bf16)(struct backend *b, enum stream s, int64_t rows, int64_t width,
                        const float *from, int64_t from_stride, bf16 *to, int64_t to_stride,
                        struct diag_list *reterr);

    /* to[i] = normal number `first` + i of `key` (executor/primitive/state/random.c), scaled. For
     * states that take a host long to draw. */
    int (*draw_normal)(struct backend *b, enum stream s, int64_t count, float *to, uint64_t key,
                       uint64_t first, double deviation, struct diag_list *reterr);

    /* Attention through compressed keys and values; latent.h has the contract. */
    int (*column_norm)(struct backend *b, enum stream s, const struct column_norm *n,
                       struct diag_list *reterr);
    int (*column_norm_backward)(struct backend *b, enum stream s,
                                const struct column_norm_gradient *g, struct diag_list *reterr);
    int (*part_rope)(struct backend *b, enum stream s, const struct part_rope *r,
                     struct diag_list *reterr);
    int (*join_keys)(struct backend *b, enum stream s, const struct joined_keys *j,
                     struct diag_list *reterr);
    int (*join_keys_backward)(struct backend *b, enum stream s,
                              const struct joined_keys_gradient *g, struct diag_list *reterr);

    /* The gated delta net; delta.h has the contract. */
    uint64_t (*delta_workspace_bytes)(const struct backend *b, const struct delta_rule *d,
                                      bool backward);
    int (*delta_input)(struct backend *b, enum stream s, const struct delta_input *d,
                       struct diag_list *reterr);
    int (*delta_input_backward)(struct backend *b, enum stream s,
                                const struct delta_input_gradient *d, struct diag_list *reterr);
    int (*delta_tails)(struct backend *b, enum stream s, const struct delta_tails *d,
                       struct diag_list *reterr);
    int (*delta_tails_backward)(struct backend *b, enum stream s, const struct delta_tails *d,
                                struct diag_list *reterr);
    int (*delta_combine)(struct backend *b, enum stream s, const struct delta_combine *d,
                         struct diag_list *reterr);
    int (*delta_rule)(struct backend *b, enum stream s, const struct delta_rule *d,
                      struct diag_list *reterr);
    int (*delta_rule_backward)(struct backend *b, enum stream s,
                               const struct delta_rule_gradient *d, struct diag_list *reterr);
    int (*gated_norm)(struct backend *b, enum stream s, const struct gated_norm *g,
                      struct diag_list *reterr);
    int (*gated_norm_backward)(struct backend *b, enum stream s,
                               const struct gated_norm_gradient *g, struct diag_list *reterr);

    /* zero, which may be done beside what the stream is given next: it is there for what comes
     * behind await_aside. Both or neither. */
    int (*zero_aside)(struct backend *b, enum stream s, void *to, uint64_t bytes,
                      struct diag_list *reterr);
    int (*await_aside)(struct backend *b, enum stream s, struct diag_list *reterr);
};

struct backend {
    const struct backend_ops *ops;
};

/* Opens the host backend (OpenBLAS, one thread). */
struct backend *backend_host_open(struct diag_list *reterr);

/* Opens the CUDA backend on GPU `device`, from 0; NULL with a diagnostic when there is none. In
 * programs that link the library executor_cuda only. */
struct backend *backend_cuda_open(int device, struct diag_list *reterr);

#endif
