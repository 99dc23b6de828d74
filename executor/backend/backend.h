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
#include "executor/memory/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef uint16_t bf16; /* the one typedef: a scalar that the language lacks */

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

/* Softmax attention of `sequences` sequences of `tokens` each, causal, window 0 = full. Query rows
 * are heads * head_dim wide; v is read inside the fused projection with its own row stride. */
struct attention {
    int sequences, heads, kv_heads, head_dim;
    int64_t tokens;
    int64_t window;
    const bf16 *q, *k, *v;
    int64_t q_stride, k_stride, v_stride;
    bf16 *o;    /* [rows, heads * head_dim] */
    float *lse; /* [rows, heads] */
};
struct attention_gradient {
    struct attention forward; /* o and lse as the forward left them */
    const bf16 *d_o;          /* [rows, heads * head_dim] */
    bf16 *dq, *dk, *dv;       /* with the strides below */
    int64_t dq_stride, dk_stride, dv_stride;
    float *delta;    /* [rows, heads] scratch */
    void *workspace; /* attention_workspace bytes */
};

/* Head norms (optional) and rotary embedding of the fused projection: rows of q | (gate) | k | v.
 */
struct rope {
    int64_t rows, tokens; /* position of row r: r % tokens */
    int heads, kv_heads, head_dim, rotary_dim;
    double theta, norm_eps;
    const bf16 *q_norm, *k_norm;  /* [head_dim] or NULL */
    const bf16 *qkv;              /* as the GEMM made it */
    int64_t qkv_stride, k_offset; /* k begins at column k_offset of a row */
    bf16 *q, *k;                  /* outputs, dense rows; forward only */
};
struct rope_gradient {
    struct rope forward;     /* q, k unused */
    bf16 *dqkv;              /* in place: in, gradients of the rotated heads; out, of qkv */
    void *dq_norm, *dk_norm; /* [head_dim] accumulated in grad_type, or NULL */
    enum dtype grad_type;
};

struct router {
    int64_t rows;
    int experts, top_k;
    bool normalize_top_k;
    float *probs;     /* [rows, experts]: logits in, softmax out */
    int32_t *choices; /* [rows, top_k]: out, or in when `given` */
    float *weights;   /* [rows, top_k] */
    bool given;       /* choices come from a profile or a replay */
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
};

struct backend {
    const struct backend_ops *ops;
};

/* Opens the host backend (OpenBLAS, one thread). */
struct backend *backend_host_open(struct diag_list *reterr);

#endif
