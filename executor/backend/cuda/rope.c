#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

#include <math.h>

static int check_rope(const struct rope *r, struct diag_list *reterr)
{
    const void *const pointers[] = { r->qkv, r->q, r->k, r->q_norm, r->k_norm };
    if (r->adjacent)
        return cuda_refuse(reterr, "rope: pairs of adjacent dimensions");
    if (r->head_dim > KERNEL_HEAD_MAX || r->rotary_dim > r->head_dim ||
        (r->rotary_dim % 16 != 0 && r->rotary_dim != 8))
        return cuda_refuse(
            reterr, "rope: rotary %d of head_dim %d (at most %d, rotary 8 or a multiple of 16)",
            r->rotary_dim, r->head_dim, KERNEL_HEAD_MAX);
    if (r->qkv_stride % 8 != 0 || r->k_offset % 8 != 0 || r->q_head_stride % 8 != 0)
        return cuda_refuse(reterr, "rope: rows %lld apart, keys from %lld: not multiples of 8",
                           (long long)r->qkv_stride, (long long)r->k_offset);
    return cuda_check_rows("rope", r->head_dim, pointers, 5, reterr);
}

/* Frequencies theta^(-2i / rotary_dim). */
static struct kernel_rope_args args_of(const struct rope *r)
{
    struct kernel_rope_args args = { .rows = r->rows,
                                     .tokens = r->tokens,
                                     .qkv_stride = r->qkv_stride,
                                     .k_offset = r->k_offset,
                                     .heads = r->heads,
                                     .kv_heads = r->kv_heads,
                                     .head_dim = r->head_dim,
                                     .rotary_dim = r->rotary_dim,
                                     .q_head_stride =
                                         r->q_head_stride ? r->q_head_stride : r->head_dim,
                                     .run_tokens = r->run_tokens,
                                     .run_first = { r->run_first[0], r->run_first[1] },
                                     .eps = (float)r->norm_eps,
                                     .centre = r->norm_zero_centred ? 1.0F : 0.0F,
                                     .factor =
                                         r->rotation_factor > 0 ? (float)r->rotation_factor : 1.0F,
                                     .share = 1.0F / (float)r->head_dim,
                                     .q_norm = r->q_norm,
                                     .k_norm = r->k_norm,
                                     .qkv = r->qkv,
                                     .q = r->q,
                                     .k = r->k };
    for (int i = 0; i < r->rotary_dim / 2; i++)
        args.frequency[i] =
            r->stretched ? r->frequency[i] : pow(r->theta, -2.0 * i / r->rotary_dim);
    return args;
}

int cuda_rope(struct backend *b, enum stream s, const struct rope *r, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    if (check_rope(r, reterr) != 0)
        return -1;
    struct kernel_rope_args args = args_of(r);
    return cuda_check(kernel_rope(c->streams[s], &args), "rope", reterr);
}

int cuda_rope_backward(struct backend *b, enum stream s, const struct rope_gradient *g,
                       struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    const struct rope *r = &g->forward;
    int64_t width = 2 * (int64_t)r->head_dim;
    int most = cuda_sum_blocks(c, width), held = KERNEL_ROPE_EACH * c->multiprocessors;
    int blocks = held < most ? held : most;
    const void *const gradient[] = { g->dqkv };
    if (check_rope(r, reterr) != 0 ||
        cuda_check_rows("rope backward", r->head_dim, gradient, 1, reterr) != 0)
        return -1;
    bool q_norm = r->q_norm && g->dq_norm, k_norm = r->k_norm && g->dk_norm;
    float *partial = cuda_scratch(c, s, (uint64_t)(4 * width * blocks), "rope backward", reterr);
    if (!partial)
        return -1;
    struct kernel_rope_args args = args_of(r);
    args.dqkv = g->dqkv;
    if (cuda_check(
            kernel_rope_backward(c->streams[s], &args, q_norm || k_norm ? partial : NULL, blocks),
            "rope backward", reterr) != 0)
        return -1;
    bool is_float = g->grad_type == DTYPE_FP32;
    if (r->rows > 0 && q_norm &&
        cuda_check(kernel_add_columns(c->streams[s], blocks, r->head_dim, width, partial,
                                      g->dq_norm, is_float),
                   "rope backward, query norm", reterr) != 0)
        return -1;
    if (r->rows == 0 || !k_norm)
        return 0;
    return cuda_check(kernel_add_columns(c->streams[s], blocks, r->head_dim, width,
                                         partial + r->head_dim, g->dk_norm, is_float),
                      "rope backward, key norm", reterr);
}
