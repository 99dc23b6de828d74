/* cuda.h - the CUDA backend's own state and the operations its files define, one group a file. Not
 * for use outside this folder and its tests.
 *
 * Every operation is put on the stream it names and returns; only what ends in host memory waits:
 * download, sync, sort_choices and sum_squares. The losses of cross_entropy are summed on the
 * device and reach host memory with the next of those on the same stream. */
#ifndef RANKFIT_EXECUTOR_BACKEND_CUDA_CUDA_H
#define RANKFIT_EXECUTOR_BACKEND_CUDA_CUDA_H

#include "executor/backend/backend.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

/* Lanes that expert products run on side by side; the first is the compute stream itself. */
enum { CUDA_LANES = 4, CUDA_PANELS = CUDA_LANES + 1, CUDA_LOSSES = 8 };

/* The workspace, in this order: a GEMM panel for every lane and for the communication stream;
 * scratch of each stream, valid within one operation; a ledger of each stream, which lasts. */
#define CUDA_PANEL_BYTES (UINT64_C(32) << 20)
#define CUDA_SCRATCH_BYTES (UINT64_C(16) << 20)
#define CUDA_WORKSPACE_BYTES                                                                       \
    (CUDA_PANELS * CUDA_PANEL_BYTES +                                                              \
     STREAM_COUNT * (CUDA_SCRATCH_BYTES + sizeof(struct cuda_ledger)))

/* What a stream leaves on the device for the host to read. */
struct cuda_ledger {
    double losses[CUDA_LOSSES];
    int64_t bad_target; /* row + 1 of a target outside the vocabulary */
    double sum;
    int64_t unused[54]; /* to 512 bytes */
};

/* Where the ledger's losses go on the host. */
struct cuda_losses {
    int count;
    double *to[CUDA_LOSSES];
};

struct gemm_plans;
struct attention_plans;

struct cuda {
    struct backend base; /* first: a struct backend * is a struct cuda * */
    int device, multiprocessors;
    int block_shared_bytes; /* the most shared memory that a block may ask for */
    cudaStream_t streams[STREAM_COUNT];
    cudaStream_t lanes[CUDA_LANES]; /* the first is streams[STREAM_COMPUTE] */
    cudaEvent_t fork, joins[CUDA_LANES];
    char *workspace;
    struct cuda_losses losses[STREAM_COUNT];
    void *pinned; /* CUDA_PINNED_BYTES of page-locked host memory */
    cublasLtHandle_t lt;
    cudnnHandle_t cudnn;
    struct gemm_plans *gemm_plans;
    struct attention_plans *attention_plans;
    uint64_t attention_group_bytes; /* workspace that makes a backward go by groups of heads */
};

enum { CUDA_PINNED_BYTES = 4096, CUDA_ATTENTION_GROUP_BYTES = 512 << 20 };

/* 0, or -1 and a diagnostic with the call and the status. */
int cuda_check(cudaError_t status, const char *call, struct diag_list *reterr);
int cuda_check_lt(cublasStatus_t status, const char *call, struct diag_list *reterr);
int cuda_check_dnn(cudnnStatus_t status, const char *call, struct diag_list *reterr);

/* A diagnostic without a place; returns -1. */
int cuda_refuse(struct diag_list *reterr, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Rows of a multiple of 8 elements at addresses of multiples of 16 bytes: what the kernels read.
 * `pointers` holds `count` addresses; NULL ones pass. */
int cuda_check_rows(const char *operation, int64_t width, const void *const *pointers, int count,
                    struct diag_list *reterr);

/* Parts of the workspace, NULL with a diagnostic when it is not set or too small. */
void *cuda_panel(struct cuda *c, int panel, struct diag_list *reterr);
void *cuda_scratch(struct cuda *c, enum stream s, uint64_t bytes, const char *operation,
                   struct diag_list *reterr);
struct cuda_ledger *cuda_ledger(struct cuda *c, enum stream s, const char *operation,
                                struct diag_list *reterr);

/* How many blocks may leave a row of `width` partial sums each in the scratch. */
int cuda_sum_blocks(const struct cuda *c, int64_t width);

/* Waits for the stream and adds its losses to where they belong. */
int cuda_settle(struct cuda *c, enum stream s, struct diag_list *reterr);
/* Brings `bytes` (at most CUDA_PINNED_BYTES) into c->pinned, complete on return. */
int cuda_read_back(struct cuda *c, enum stream s, const void *from, uint64_t bytes,
                   struct diag_list *reterr);

struct gemm_plans *gemm_plans_open(void);
void gemm_plans_close(struct gemm_plans *plans);
struct attention_plans *attention_plans_open(void);
void attention_plans_close(struct attention_plans *plans);

/* The other lanes wait for what the first holds; the first waits for what the others hold. */
int cuda_fork_lanes(const struct cuda *c, struct diag_list *reterr);
int cuda_join_lanes(const struct cuda *c, struct diag_list *reterr);

/* One product in a panel's workspace on a stream; `experts`: planned for an expert's rows. */
int cuda_multiply(struct cuda *c, cudaStream_t stream, int panel, const struct gemm *g,
                  bool experts, struct diag_list *reterr);

/* Attention by the plain kernels, whatever the shape. */
int cuda_attention_plain(struct cuda *c, enum stream s, const struct attention *a,
                         struct diag_list *reterr);
int cuda_attention_backward_plain(struct cuda *c, enum stream s, const struct attention_gradient *g,
                                  struct diag_list *reterr);
/* Whether the library's own kernels serve the shape. */
bool cuda_attention_planned(const struct attention *a);

/* The backward by blocks, every sum in one order: what deterministic attention runs. Where it does
 * not serve, the plain kernels do, which have one order as well. */
enum { ATTENTION_BLOCK_QUERIES = 2048, ATTENTION_BLOCK_KEYS = 4096 };
uint64_t cuda_attention_blocks_bytes(const struct attention *a);
bool cuda_attention_blocks_serve(const struct attention_gradient *g);
int cuda_attention_backward_blocks(struct cuda *c, enum stream s,
                                   const struct attention_gradient *g, struct diag_list *reterr);

/* The delta rule token by token, whatever the heads. The workspace is that of such heads. */
int cuda_delta_rule_plain(struct cuda *c, enum stream s, const struct delta_rule *d,
                          struct diag_list *reterr);
int cuda_delta_rule_backward_plain(struct cuda *c, enum stream s,
                                   const struct delta_rule_gradient *g, struct diag_list *reterr);

#define CUDA_OP(name, ...)                                                                         \
    int cuda_##name(struct backend *b, enum stream s, __VA_ARGS__, struct diag_list *reterr)

CUDA_OP(zero_aside, void *to, uint64_t bytes);
int cuda_await_aside(struct backend *b, enum stream s, struct diag_list *reterr);

CUDA_OP(gemm, const struct gemm *g);
CUDA_OP(expert_gemm, const struct expert_gemm *g);

CUDA_OP(rmsnorm, int64_t rows, int64_t width, double eps, const bf16 *x, const bf16 *w, bf16 *y);
CUDA_OP(rmsnorm_backward, int64_t rows, int64_t width, double eps, const bf16 *dy, const bf16 *x,
        const bf16 *w, bf16 *dx, bool accumulate_dx, void *dw, enum dtype grad_type);
CUDA_OP(rmsnorm_centred, int64_t rows, int64_t width, double eps, const bf16 *x, const bf16 *w,
        bf16 *y);
CUDA_OP(rmsnorm_centred_backward, int64_t rows, int64_t width, double eps, const bf16 *dy,
        const bf16 *x, const bf16 *w, bf16 *dx, bool accumulate_dx, void *dw, enum dtype grad_type);
CUDA_OP(rope, const struct rope *r);
CUDA_OP(rope_backward, const struct rope_gradient *r);
uint64_t cuda_attention_workspace_bytes(const struct backend *b, const struct attention *a);
CUDA_OP(attention, const struct attention *a);
CUDA_OP(attention_backward, const struct attention_gradient *a);

CUDA_OP(swiglu, int64_t rows, int64_t width, const bf16 *h, const float *row_weight, bf16 *a);
CUDA_OP(swiglu_backward, int64_t rows, int64_t width, const bf16 *da, const float *row_weight,
        bf16 *h, float *d_row_weight);
CUDA_OP(sigmoid, int64_t count, float *values);
CUDA_OP(sigmoid_backward, int64_t count, const float *values, float *d_values);

CUDA_OP(output_gate, const struct output_gate *g);
CUDA_OP(output_gate_backward, const struct output_gate_gradient *g);
CUDA_OP(add_bias, int64_t rows, int64_t width, const bf16 *bias, bf16 *y, int64_t stride);
CUDA_OP(add_bias_backward, int64_t rows, int64_t width, const bf16 *dy, int64_t stride,
        void *d_bias, enum dtype grad_type);

uint64_t cuda_delta_workspace_bytes(const struct backend *b, const struct delta_rule *d,
                                    bool backward);
CUDA_OP(delta_input, const struct delta_input *d);
CUDA_OP(delta_input_backward, const struct delta_input_gradient *d);
CUDA_OP(delta_tails, const struct delta_tails *d);
CUDA_OP(delta_tails_backward, const struct delta_tails *d);
CUDA_OP(delta_combine, const struct delta_combine *d);
CUDA_OP(delta_rule, const struct delta_rule *d);
CUDA_OP(delta_rule_backward, const struct delta_rule_gradient *g);
CUDA_OP(gated_norm, const struct gated_norm *g);
CUDA_OP(gated_norm_backward, const struct gated_norm_gradient *d);

CUDA_OP(router, const struct router *r);
CUDA_OP(router_backward, const struct router *r, const float *d_weights, float *d_logits);
CUDA_OP(sort_choices, int64_t rows, int top_k, int experts, const int32_t *choices, int32_t *slots,
        int64_t *counts);
CUDA_OP(scatter_rows, int64_t rows, int top_k, int64_t width, const bf16 *from,
        const int32_t *slots, bf16 *to, const float *row_values, float *to_values);
CUDA_OP(gather_rows, int64_t rows, int64_t width, const bf16 *from, const int32_t *map, bf16 *to,
        const float *from_values, float *to_values);
CUDA_OP(spread_rows, int64_t rows, int64_t width, const bf16 *from, const int32_t *map, bf16 *to,
        const float *from_values, float *to_values);
CUDA_OP(combine_rows, int64_t rows, int top_k, int64_t width, const bf16 *from,
        const int32_t *slots, const bf16 *base, bf16 *to, const float *from_values,
        float *to_values);

CUDA_OP(add, int64_t count, const void *from, void *to, enum dtype dtype);
CUDA_OP(embed, int64_t rows, int64_t width, const int32_t *ids, const bf16 *table, bf16 *out);
CUDA_OP(embed_backward, int64_t rows, int64_t width, const int32_t *ids, const bf16 *dy,
        void *d_table, enum dtype grad_type);
CUDA_OP(cross_entropy, int64_t rows, int64_t vocab, const float *logits, const int32_t *targets,
        float scale, bf16 *d_logits, double *loss_sum);

CUDA_OP(cross_entropy_in_place, int64_t rows, int64_t vocab, void *logits, enum dtype type,
        const int32_t *targets, float scale, double *loss_sum);
CUDA_OP(strip_loss, const struct vocabulary_strip *v, double *loss_sum);
CUDA_OP(strip_gradient, const struct vocabulary_strip *v, float scale, bf16 *d_logits);
CUDA_OP(copy_rows, int64_t rows, int64_t width, const bf16 *from, int64_t from_stride, bf16 *to,
        int64_t to_stride);
CUDA_OP(rows_to_bf16, int64_t rows, int64_t width, const float *from, int64_t from_stride, bf16 *to,
        int64_t to_stride);

CUDA_OP(sum_squares, int64_t count, const void *values, enum dtype dtype, double *ret_sum);
CUDA_OP(adamw, const struct adamw *a);
CUDA_OP(to_bf16, int64_t count, const float *from, bf16 *to);
CUDA_OP(draw_normal, int64_t count, float *to, uint64_t key, uint64_t first, double deviation);

#endif
