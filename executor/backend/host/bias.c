#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/host.h"

HOST_HOT
static void add_row(int64_t width, const bf16 *bias, bf16 *y)
{
    for (int64_t i = 0; i < width; i++)
        y[i] = bf16_from_float(bf16_to_float(y[i]) + bf16_to_float(bias[i]));
}

int host_add_bias(struct backend *b, enum stream s, int64_t rows, int64_t width, const bf16 *bias,
                  bf16 *y, int64_t stride, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < rows; r++)
        add_row(width, bias, y + r * stride);
    return 0;
}

HOST_HOT
static void sum_row(int64_t width, const bf16 *dy, float *sums)
{
    for (int64_t i = 0; i < width; i++)
        sums[i] += bf16_to_float(dy[i]);
}

int host_add_bias_backward(struct backend *b, enum stream s, int64_t rows, int64_t width,
                           const bf16 *dy, int64_t stride, void *d_bias, enum dtype grad_type,
                           struct diag_list *reterr)
{
    (void)s;
    float *sums = host_workspace(b, width, "bias backward", reterr);
    if (!sums)
        return -1;
    memset(sums, 0, (size_t)width * sizeof *sums);
    for (int64_t r = 0; r < rows; r++)
        sum_row(width, dy + r * stride, sums);
    for (int64_t i = 0; i < width; i++)
        add_typed(d_bias, grad_type, i, sums[i]);
    return 0;
}
