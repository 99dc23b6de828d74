#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/host.h"

#include <math.h>

enum { LANES = 16 };

/* Sums in LANES partial sums, so that the order is the same however the loop is compiled. */
static inline __attribute__((always_inline)) float fold(const float *lanes)
{
    float sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += lanes[j];
    return sum;
}

static inline __attribute__((always_inline)) float inverse_rms(const bf16 *x, int64_t width,
                                                               double eps)
{
    float lanes[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int j = 0; j < LANES; j++)
            lanes[j] += bf16_to_float(x[i + j]) * bf16_to_float(x[i + j]);
    for (; i < width; i++)
        lanes[i % LANES] += bf16_to_float(x[i]) * bf16_to_float(x[i]);
    return 1.0F / sqrtf(fold(lanes) / (float)width + (float)eps);
}

/* centre: 0, or 1 where the weight is stored as its distance from 1. */
HOST_HOT
static void norm_row(int64_t width, double eps, const bf16 *x, const bf16 *w, float centre, bf16 *y)
{
    float inverse = inverse_rms(x, width, eps);
    for (int64_t i = 0; i < width; i++)
        y[i] = bf16_from_float(bf16_to_float(x[i]) * inverse * (centre + bf16_to_float(w[i])));
}

int host_rmsnorm(struct backend *b, enum stream s, int64_t rows, int64_t width, double eps,
                 const bf16 *x, const bf16 *w, bf16 *y, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < rows; r++)
        norm_row(width, eps, x + r * width, w, 0, y + r * width);
    return 0;
}

int host_rmsnorm_centred(struct backend *b, enum stream s, int64_t rows, int64_t width, double eps,
                         const bf16 *x, const bf16 *w, bf16 *y, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < rows; r++)
        norm_row(width, eps, x + r * width, w, 1, y + r * width);
    return 0;
}

/* With n = x / rms and g = dy w: dx = (g - n mean(g n)) / rms, dw += dy n (summed in sums). */
HOST_HOT
static void norm_row_backward(int64_t width, double eps, const bf16 *dy, const bf16 *x,
                              const bf16 *w, float centre, bf16 *dx, bool accumulate, float *sums)
{
    float inverse = inverse_rms(x, width, eps);
    float lanes[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int j = 0; j < LANES; j++)
            lanes[j] += bf16_to_float(dy[i + j]) * (centre + bf16_to_float(w[i + j])) *
                        bf16_to_float(x[i + j]) * inverse;
    for (; i < width; i++)
        lanes[i % LANES] +=
            bf16_to_float(dy[i]) * (centre + bf16_to_float(w[i])) * bf16_to_float(x[i]) * inverse;
    float mean = fold(lanes) / (float)width;
    for (i = 0; i < width; i++) {
        float normed = bf16_to_float(x[i]) * inverse;
        float from = bf16_to_float(dy[i]);
        float value = (from * (centre + bf16_to_float(w[i])) - normed * mean) * inverse;
        sums[i] += from * normed;
        dx[i] = bf16_from_float(accumulate ? bf16_to_float(dx[i]) + value : value);
    }
}

/* A call of either backward form. */
struct norm_gradient {
    int64_t rows, width;
    double eps;
    const bf16 *dy, *x, *w;
    float centre;
    bf16 *dx;
    bool accumulate_dx;
    void *dw;
    enum dtype grad_type;
};

static int norm_backward(struct backend *b, const struct norm_gradient *g, struct diag_list *reterr)
{
    float *sums = host_workspace(b, g->width, "norm backward", reterr);
    if (!sums)
        return -1;
    memset(sums, 0, (size_t)g->width * sizeof *sums);
    for (int64_t r = 0; r < g->rows; r++) {
        int64_t at = r * g->width;
        norm_row_backward(g->width, g->eps, g->dy + at, g->x + at, g->w, g->centre, g->dx + at,
                          g->accumulate_dx, sums);
    }
    for (int64_t i = 0; i < g->width && g->dw; i++)
        add_typed(g->dw, g->grad_type, i, sums[i]);
    return 0;
}

int host_rmsnorm_backward(struct backend *b, enum stream s, int64_t rows, int64_t width, double eps,
                          const bf16 *dy, const bf16 *x, const bf16 *w, bf16 *dx,
                          bool accumulate_dx, void *dw, enum dtype grad_type,
                          struct diag_list *reterr)
{
    const struct norm_gradient g = {
        rows, width, eps, dy, x, w, 0, dx, accumulate_dx, dw, grad_type
    };
    (void)s;
    return norm_backward(b, &g, reterr);
}

int host_rmsnorm_centred_backward(struct backend *b, enum stream s, int64_t rows, int64_t width,
                                  double eps, const bf16 *dy, const bf16 *x, const bf16 *w,
                                  bf16 *dx, bool accumulate_dx, void *dw, enum dtype grad_type,
                                  struct diag_list *reterr)
{
    const struct norm_gradient g = {
        rows, width, eps, dy, x, w, 1, dx, accumulate_dx, dw, grad_type
    };
    (void)s;
    return norm_backward(b, &g, reterr);
}
