#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/exponential.h"
#include "executor/backend/host/host.h"

#include <math.h>

/* Buffers of it stand on the stack. */
enum { HEAD_MAX = DELTA_HEAD_MAX };

/* Where a value head's gates z are in a row of the projection. */
static int64_t z_column(const struct gated_norm *g, int head)
{
    int each = g->heads.value_heads / g->heads.key_heads;
    return g->columns.z + head / each * g->columns.value_step +
           (int64_t)(head % each) * g->heads.value_dim;
}

static float inverse_rms(const bf16 *x, int width, double eps)
{
    float sum = 0;
    for (int i = 0; i < width; i++)
        sum += bf16_to_float(x[i]) * bf16_to_float(x[i]);
    return 1 / sqrtf(sum / (float)width + (float)eps);
}

int host_gated_norm(struct backend *b, enum stream s, const struct gated_norm *g,
                    struct diag_list *reterr)
{
    int heads = g->heads.value_heads, width = g->heads.value_dim;
    (void)b, (void)s, (void)reterr;
    for (int64_t row = 0; row < g->rows; row++)
        for (int head = 0; head < heads; head++) {
            int64_t at = (row * heads + head) * width;
            const bf16 *o = g->o + at, *z = g->p + row * g->p_stride + z_column(g, head);
            float inverse = inverse_rms(o, width, g->eps);
            for (int i = 0; i < width; i++) {
                float gate = bf16_to_float(z[i]);
                g->on[at + i] =
                    bf16_from_float(bf16_to_float(o[i]) * inverse * bf16_to_float(g->weight[i]) *
                                    gate * fast_sigmoid(gate));
            }
        }
    return 0;
}

/* n = o / rms, y = n w silu(z): dz = dy n w silu'(z), dn = dy w silu(z), dw = dy n silu(z). */
static void gated_head_backward(const struct gated_norm_gradient *d, int64_t row, int head,
                                float *d_weight)
{
    const struct gated_norm *g = &d->forward;
    int width = g->heads.value_dim;
    int64_t at = (row * g->heads.value_heads + head) * width, column = z_column(g, head);
    const bf16 *o = g->o + at, *z = g->p + row * g->p_stride + column;
    bf16 *d_o = d->d_o + at, *d_z = d->d_p + row * g->p_stride + column;
    float inverse = inverse_rms(o, width, g->eps), mean = 0, d_n[HEAD_MAX];

    for (int i = 0; i < width; i++) {
        float x = bf16_to_float(z[i]), sigma = fast_sigmoid(x), w = bf16_to_float(g->weight[i]);
        float n = bf16_to_float(o[i]) * inverse, dy = bf16_to_float(d_o[i]);
        d_z[i] = bf16_from_float(dy * n * w * sigma * (1 + x * (1 - sigma)));
        d_weight[i] += dy * n * x * sigma;
        d_n[i] = dy * w * x * sigma;
        mean += d_n[i] * n;
    }
    mean /= (float)width;
    for (int i = 0; i < width; i++)
        d_o[i] = bf16_from_float((d_n[i] - bf16_to_float(o[i]) * inverse * mean) * inverse);
}

int host_gated_norm_backward(struct backend *b, enum stream s, const struct gated_norm_gradient *d,
                             struct diag_list *reterr)
{
    const struct gated_norm *g = &d->forward;
    float d_weight[HEAD_MAX] = { 0 };
    (void)b, (void)s;
    if (g->heads.value_dim > HEAD_MAX)
        return diag_error(reterr, (struct pos){ 0 }, "gated norm: heads of %d, at most %d",
                          g->heads.value_dim, HEAD_MAX);
    for (int64_t row = 0; row < g->rows; row++)
        for (int head = 0; head < g->heads.value_heads; head++)
            gated_head_backward(d, row, head, d_weight);
    for (int i = 0; i < g->heads.value_dim; i++)
        add_typed(d->d_weight, d->grad_type, i, d_weight[i]);
    return 0;
}
