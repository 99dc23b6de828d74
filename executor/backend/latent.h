/* latent.h - operations of attention whose keys and values come from MLA's compressed keys and
 * values: norms of columns, rotation of a part of each head, keys joined of a part of each head's
 * own and a part that all heads share.
 *
 * Strides are elements between rows. */
#ifndef RANKFIT_EXECUTOR_BACKEND_LATENT_H
#define RANKFIT_EXECUTOR_BACKEND_LATENT_H

#include "base/layout/primitives.h"
#include "executor/memory/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* y[r] = x[r] / rms(x[r]) * w over the first `width` columns of rows that may be longer. */
struct column_norm {
    int64_t rows, width;
    double eps;
    const bf16 *x, *w;
    bf16 *y; /* forward only */
    int64_t x_stride, y_stride;
};
/* dx is written, and may be dy. */
struct column_norm_gradient {
    struct column_norm forward;
    const bf16 *dy;
    bf16 *dx;
    int64_t dy_stride, dx_stride;
    void *dw; /* [width] accumulated in grad_type */
    enum dtype grad_type;
};

/* The last rotary_dim of head_dim elements of each head turn by the angles of `angles`, a struct
 * rope of which rows, tokens, run_tokens, run_first, rotary_dim, theta, adjacent, stretched,
 * frequency and rotation_factor are read; the others pass. `to` may be `from`. */
struct rope;
struct part_rope {
    const struct rope *angles;
    int heads, head_dim;
    const bf16 *from;
    bf16 *to;
    int64_t from_stride, to_stride;
    bool back; /* turns back, which is also the gradient */
};

/* Keys [rows, heads * (own_dim + shared_dim)] of each head's own part, the first own_dim elements
 * of the heads of `own`, which are own_head_stride apart, and the part that all heads share. `keys`
 * has dense rows; `shared` may lie in it where head 0 has its shared part. */
struct joined_keys {
    int64_t rows;
    int heads, own_dim, shared_dim;
    const bf16 *own, *shared;
    int64_t own_stride, own_head_stride, shared_stride;
    bf16 *keys;
};
/* d_own is written in the places of own; d_shared = sum over heads, in fp32, then rounded. */
struct joined_keys_gradient {
    struct joined_keys forward; /* own, shared and keys unused */
    const bf16 *d_keys;
    bf16 *d_own, *d_shared;
    float *d_shared_sum; /* not NULL: d_shared is added here instead, unrounded */
};

#endif
