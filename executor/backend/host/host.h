/* host.h - the host backend's own state and the operations its files define, one group a file. Not
 * for use outside this folder and its tests. */
#ifndef RANKFIT_EXECUTOR_BACKEND_HOST_HOST_H
#define RANKFIT_EXECUTOR_BACKEND_HOST_HOST_H

#include "executor/backend/backend.h"

/* The one workspace every operation may use from its start to its end: GEMM panels, attention
 * tiles, sums over rows. Fixed, so that it is the same for every model. */
enum { HOST_WORKSPACE_BYTES = 1 << 20, HOST_WORKSPACE_FLOATS = HOST_WORKSPACE_BYTES / 4 };

struct host {
    struct backend base; /* first: a struct backend * is a struct host * */
    void *workspace;
};

/* The hot loops are compiled once more for processors with AVX2 and FMA; the loader picks. (The
 * name of a processor would be matched alone, and not those that can do the same.) */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define HOST_HOT __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define HOST_HOT
#endif

/* The workspace, or NULL with a diagnostic when it is not set or smaller than `floats`. */
float *host_workspace(struct backend *b, int64_t floats, const char *operation,
                      struct diag_list *reterr);

#define HOST_OP(name, ...)                                                                         \
    int host_##name(struct backend *b, enum stream s, __VA_ARGS__, struct diag_list *reterr)

HOST_OP(gemm, const struct gemm *g);
HOST_OP(expert_gemm, const struct expert_gemm *g);

HOST_OP(rmsnorm, int64_t rows, int64_t width, double eps, const bf16 *x, const bf16 *w, bf16 *y);
HOST_OP(rmsnorm_backward, int64_t rows, int64_t width, double eps, const bf16 *dy, const bf16 *x,
        const bf16 *w, bf16 *dx, bool accumulate_dx, void *dw, enum dtype grad_type);
HOST_OP(rmsnorm_centred, int64_t rows, int64_t width, double eps, const bf16 *x, const bf16 *w,
        bf16 *y);
HOST_OP(rmsnorm_centred_backward, int64_t rows, int64_t width, double eps, const bf16 *dy,
        const bf16 *x, const bf16 *w, bf16 *dx, bool accumulate_dx, void *dw, enum dtype grad_type);
HOST_OP(rope, const struct rope *r);
HOST_OP(column_norm, const struct column_norm *n);
HOST_OP(column_norm_backward, const struct column_norm_gradient *g);
HOST_OP(part_rope, const struct part_rope *r);
HOST_OP(join_keys, const struct joined_keys *j);
HOST_OP(join_keys_backward, const struct joined_keys_gradient *g);
HOST_OP(rope_backward, const struct rope_gradient *r);
uint64_t host_attention_workspace_bytes(const struct backend *b, const struct attention *a);
HOST_OP(attention, const struct attention *a);
HOST_OP(attention_backward, const struct attention_gradient *a);

HOST_OP(output_gate, const struct output_gate *g);
HOST_OP(output_gate_backward, const struct output_gate_gradient *g);
HOST_OP(add_bias, int64_t rows, int64_t width, const bf16 *bias, bf16 *y, int64_t stride);
HOST_OP(add_bias_backward, int64_t rows, int64_t width, const bf16 *dy, int64_t stride,
        void *d_bias, enum dtype grad_type);

uint64_t host_delta_workspace_bytes(const struct backend *b, const struct delta_rule *d,
                                    bool backward);
HOST_OP(delta_input, const struct delta_input *d);
HOST_OP(delta_input_backward, const struct delta_input_gradient *d);
HOST_OP(delta_tails, const struct delta_tails *d);
HOST_OP(delta_tails_backward, const struct delta_tails *d);
HOST_OP(delta_combine, const struct delta_combine *d);
HOST_OP(delta_rule, const struct delta_rule *d);
HOST_OP(delta_rule_backward, const struct delta_rule_gradient *d);
HOST_OP(gated_norm, const struct gated_norm *g);
HOST_OP(gated_norm_backward, const struct gated_norm_gradient *d);

HOST_OP(swiglu, int64_t rows, int64_t width, const bf16 *h, const float *row_weight, bf16 *a);
HOST_OP(swiglu_backward, int64_t rows, int64_t width, const bf16 *da, const float *row_weight,
        bf16 *h, float *d_row_weight);

HOST_OP(router, const struct router *r);
HOST_OP(router_backward, const struct router *r, const float *d_weights, float *d_logits);
HOST_OP(sort_choices, int64_t rows, int top_k, int experts, const int32_t *choices, int32_t *slots,
        int64_t *counts);
HOST_OP(scatter_rows, int64_t rows, int top_k, int64_t width, const bf16 *from,
        const int32_t *slots, bf16 *to, const float *row_values, float *to_values);
HOST_OP(gather_rows, int64_t rows, int64_t width, const bf16 *from, const int32_t *map, bf16 *to,
        const float *from_values, float *to_values);
HOST_OP(spread_rows, int64_t rows, int64_t width, const bf16 *from, const int32_t *map, bf16 *to,
        const float *from_values, float *to_values);
HOST_OP(combine_rows, int64_t rows, int top_k, int64_t width, const bf16 *from,
        const int32_t *slots, const bf16 *base, bf16 *to, const float *from_values,
        float *to_values);

HOST_OP(copy_rows, int64_t rows, int64_t width, const bf16 *from, int64_t from_stride, bf16 *to,
        int64_t to_stride);
HOST_OP(rows_to_bf16, int64_t rows, int64_t width, const float *from, int64_t from_stride, bf16 *to,
        int64_t to_stride);

HOST_OP(add, int64_t count, const void *from, void *to, enum dtype dtype);
HOST_OP(embed, int64_t rows, int64_t width, const int32_t *ids, const bf16 *table, bf16 *out);
HOST_OP(embed_backward, int64_t rows, int64_t width, const int32_t *ids, const bf16 *dy,
        void *d_table, enum dtype grad_type);
HOST_OP(cross_entropy, int64_t rows, int64_t vocab, const float *logits, const int32_t *targets,
        float scale, bf16 *d_logits, double *loss_sum);

HOST_OP(cross_entropy_in_place, int64_t rows, int64_t vocab, void *logits, enum dtype type,
        const int32_t *targets, float scale, double *loss_sum);
HOST_OP(strip_loss, const struct vocabulary_strip *v, double *loss_sum);
HOST_OP(strip_gradient, const struct vocabulary_strip *v, float scale, bf16 *d_logits);

HOST_OP(sigmoid, int64_t count, float *values);
HOST_OP(sigmoid_backward, int64_t count, const float *values, float *d_values);

HOST_OP(sum_squares, int64_t count, const void *values, enum dtype dtype, double *ret_sum);
HOST_OP(adamw, const struct adamw *a);
HOST_OP(to_bf16, int64_t count, const float *from, bf16 *to);

#endif
