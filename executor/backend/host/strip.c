#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/exponential.h"
#include "executor/backend/host/host.h"
#include "executor/backend/host/loss_row.h"

#include <math.h>

/* log(exp(a) + exp(b)), for any a and b whose difference a double holds. */
static double log_add(double a, double b)
{
    double larger = a > b ? a : b, smaller = a > b ? b : a;
    return larger + log1p(exp(smaller - larger));
}

/* Column of the row's target in the strip, or -1. */
static int64_t target_column(const struct vocabulary_strip *v, int64_t row)
{
    int64_t column = (int64_t)v->targets[row] - v->first;
    return column >= 0 && column < v->width ? column : -1;
}

int host_strip_loss(struct backend *b, enum stream s, const struct vocabulary_strip *v,
                    double *loss_sum, struct diag_list *reterr)
{
    (void)b, (void)s;
    if (loss_check_targets(v->rows, v->vocab, v->targets, reterr) != 0)
        return -1;
    for (int64_t r = 0; r < v->rows; r++) {
        const float *row = v->logits + r * v->width;
        float largest = loss_row_largest(row, DTYPE_FP32, v->width);
        double lse = (double)largest + log(loss_row_sum(row, DTYPE_FP32, v->width, largest));
        if (v->first > 0)
            lse = log_add((double)v->lse[r], lse);
        v->lse[r] = (float)lse;
        if (v->targets[r] < 0)
            continue;
        int64_t column = target_column(v, r);
        if (column >= 0)
            *loss_sum -= (double)row[column];
        if (v->first + v->width == v->vocab)
            *loss_sum += lse;
    }
    return 0;
}

HOST_HOT
static void strip_row(const float *row, int64_t width, float lse, float scale, bf16 *d_logits)
{
    for (int64_t i = 0; i < width; i++)
        d_logits[i] = bf16_from_float(fast_exp(row[i] - lse) * scale);
}

int host_strip_gradient(struct backend *b, enum stream s, const struct vocabulary_strip *v,
                        float scale, bf16 *d_logits, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < v->rows; r++) {
        const float *row = v->logits + r * v->width;
        bf16 *gradient = d_logits + r * v->width;
        if (v->targets[r] < 0) {
            memset(gradient, 0, (size_t)v->width * sizeof *gradient);
            continue;
        }
        strip_row(row, v->width, v->lse[r], scale, gradient);
        int64_t column = target_column(v, r);
        if (column >= 0)
            gradient[column] = bf16_from_float(
                (float)((exp((double)row[column] - (double)v->lse[r]) - 1.0) * (double)scale));
    }
    return 0;
}
