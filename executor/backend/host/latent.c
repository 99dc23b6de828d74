#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/host.h"

#include <math.h>
#include <string.h>

static float inverse_rms(const bf16 *x, int64_t width, double eps)
{
    float sum = 0;
    for (int64_t i = 0; i < width; i++)
        sum += bf16_to_float(x[i]) * bf16_to_float(x[i]);
    return 1.0F / sqrtf(sum / (float)width + (float)eps);
}

int host_column_norm(struct backend *b, enum stream s, const struct column_norm *n,
                     struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < n->rows; r++) {
        const bf16 *x = n->x + r * n->x_stride;
        bf16 *y = n->y + r * n->y_stride;
        float inverse = inverse_rms(x, n->width, n->eps);
        for (int64_t i = 0; i < n->width; i++)
            y[i] = bf16_from_float(bf16_to_float(x[i]) * inverse * bf16_to_float(n->w[i]));
    }
    return 0;
}

/* With n = x / rms and g = dy w: dx = (g - n mean(g n)) / rms, dw += dy n. */
static void column_row_backward(const struct column_norm_gradient *g, int64_t row, float *sums)
{
    const struct column_norm *n = &g->forward;
    const bf16 *x = n->x + row * n->x_stride, *dy = g->dy + row * g->dy_stride;
    bf16 *dx = g->dx + row * g->dx_stride;
    float inverse = inverse_rms(x, n->width, n->eps), mean = 0;

    for (int64_t i = 0; i < n->width; i++)
        mean += bf16_to_float(dy[i]) * bf16_to_float(n->w[i]) * bf16_to_float(x[i]) * inverse;
    mean /= (float)n->width;
    for (int64_t i = 0; i < n->width; i++) {
        float normed = bf16_to_float(x[i]) * inverse, d = bf16_to_float(dy[i]);
        sums[i] += d * normed;
        dx[i] = bf16_from_float((d * bf16_to_float(n->w[i]) - normed * mean) * inverse);
    }
}

int host_column_norm_backward(struct backend *b, enum stream s,
                              const struct column_norm_gradient *g, struct diag_list *reterr)
{
    (void)s;
    int64_t width = g->forward.width;
    float *sums = host_workspace(b, width, "norm of columns", reterr);
    if (!sums)
        return -1;
    memset(sums, 0, (size_t)width * sizeof *sums);
    for (int64_t r = 0; r < g->forward.rows; r++)
        column_row_backward(g, r, sums);
    for (int64_t i = 0; i < width; i++)
        add_typed(g->dw, g->grad_type, i, sums[i]);
    return 0;
}

int host_join_keys(struct backend *b, enum stream s, const struct joined_keys *j,
                   struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    int64_t head_dim = j->own_dim + j->shared_dim;
    for (int64_t r = 0; r < j->rows; r++)
        for (int64_t h = 0; h < j->heads; h++) {
            bf16 *to = j->keys + (r * j->heads + h) * head_dim;
            const bf16 *shared = j->shared + r * j->shared_stride;
            memcpy(to, j->own + r * j->own_stride + h * j->own_head_stride,
                   (size_t)j->own_dim * sizeof *to);
            if (to + j->own_dim != shared)
                memcpy(to + j->own_dim, shared, (size_t)j->shared_dim * sizeof *to);
        }
    return 0;
}

int host_join_keys_backward(struct backend *b, enum stream s, const struct joined_keys_gradient *g,
                            struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    const struct joined_keys *j = &g->forward;
    int64_t head_dim = j->own_dim + j->shared_dim;
    for (int64_t r = 0; r < j->rows; r++) {
        const bf16 *row = g->d_keys + r * j->heads * head_dim;
        for (int64_t h = 0; h < j->heads; h++)
            memcpy(g->d_own + r * j->own_stride + h * j->own_head_stride, row + h * head_dim,
                   (size_t)j->own_dim * sizeof *row);
        for (int64_t i = 0; i < j->shared_dim; i++) {
            float sum = 0;
            for (int64_t h = 0; h < j->heads; h++)
                sum += bf16_to_float(row[h * head_dim + j->own_dim + i]);
            if (g->d_shared_sum)
                g->d_shared_sum[r * j->shared_stride + i] += sum;
            else
                g->d_shared[r * j->shared_stride + i] = bf16_from_float(sum);
        }
    }
    return 0;
}
