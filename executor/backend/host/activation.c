#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/exponential.h"
#include "executor/backend/host/host.h"

HOST_HOT
static void swiglu_row(int64_t width, const bf16 *h, float weight, bf16 *a)
{
    for (int64_t i = 0; i < width; i++) {
        float g = bf16_to_float(h[i]), u = bf16_to_float(h[width + i]);
        a[i] = bf16_from_float(weight * (g * fast_sigmoid(g) * u));
    }
}

int host_swiglu(struct backend *b, enum stream s, int64_t rows, int64_t width, const bf16 *h,
                const float *row_weight, bf16 *a, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < rows; r++)
        swiglu_row(width, h + r * 2 * width, row_weight ? row_weight[r] : 1.0F, a + r * width);
    return 0;
}

/* silu(g) = g sigma(g), silu'(g) = sigma (1 + g (1 - sigma)). Returns sum da silu(g) u. */
HOST_HOT
static float swiglu_row_backward(int64_t width, const bf16 *da, float weight, bf16 *h)
{
    enum { LANES = 8 };
    float lanes[LANES] = { 0 };
    for (int64_t at = 0; at < width; at += LANES) {
        int64_t count = width - at < LANES ? width - at : LANES;
        for (int64_t j = 0; j < count; j++) {
            int64_t i = at + j;
            float g = bf16_to_float(h[i]), u = bf16_to_float(h[width + i]);
            float d = bf16_to_float(da[i]);
            float sigma = fast_sigmoid(g);
            lanes[j] += d * (g * sigma * u);
            h[i] = bf16_from_float(weight * d * u * (sigma * (1.0F + g * (1.0F - sigma))));
            h[width + i] = bf16_from_float(weight * d * (g * sigma));
        }
    }
    float sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += lanes[j];
    return sum;
}

int host_swiglu_backward(struct backend *b, enum stream s, int64_t rows, int64_t width,
                         const bf16 *da, const float *row_weight, bf16 *h, float *d_row_weight,
                         struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < rows; r++) {
        float sum = swiglu_row_backward(width, da + r * width, row_weight ? row_weight[r] : 1.0F,
                                        h + r * 2 * width);
        if (d_row_weight)
            d_row_weight[r] = sum;
    }
    return 0;
}
