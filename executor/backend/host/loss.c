#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/exponential.h"
#include "executor/backend/host/host.h"
#include "executor/backend/host/loss_row.h"

#include <math.h>

/* What a row's gradient needs: exp(logit - largest) * factor, and the target's own. */
struct softmax {
    float largest, factor, target_gradient;
};

/* loss is that of the target, log(sum) - (target's logit - largest). */
static struct softmax soften(const void *row, enum dtype type, int64_t vocab, double target_logit,
                             float scale, double *loss_sum)
{
    float largest = loss_row_largest(row, type, vocab);
    double sum = loss_row_sum(row, type, vocab, largest);
    double above = target_logit - (double)largest;
    *loss_sum += log(sum) - above;
    return (struct softmax){ largest, (float)((double)scale / sum),
                             (float)((exp(above) / sum - 1.0) * (double)scale) };
}

HOST_HOT
static void row_gradient(const float *row, int64_t vocab, struct softmax s, bf16 *d_logits)
{
    for (int64_t i = 0; i < vocab; i++)
        d_logits[i] = bf16_from_float(fast_exp(row[i] - s.largest) * s.factor);
}

HOST_HOT
static void replace_floats(float *row, int64_t vocab, struct softmax s)
{
    for (int64_t i = 0; i < vocab; i++)
        row[i] = fast_exp(row[i] - s.largest) * s.factor;
}

HOST_HOT
static void replace_bf16(bf16 *row, int64_t vocab, struct softmax s)
{
    for (int64_t i = 0; i < vocab; i++)
        row[i] = bf16_from_float(fast_exp(bf16_to_float(row[i]) - s.largest) * s.factor);
}

int host_cross_entropy(struct backend *b, enum stream s, int64_t rows, int64_t vocab,
                       const float *logits, const int32_t *targets, float scale, bf16 *d_logits,
                       double *loss_sum, struct diag_list *reterr)
{
    (void)b, (void)s;
    if (loss_check_targets(rows, vocab, targets, reterr) != 0)
        return -1;
    for (int64_t r = 0; r < rows; r++) {
        const float *row = logits + r * vocab;
        bf16 *gradient = d_logits + r * vocab;
        if (targets[r] < 0) {
            memset(gradient, 0, (size_t)vocab * sizeof *gradient);
            continue;
        }
        struct softmax softmax =
            soften(row, DTYPE_FP32, vocab, (double)row[targets[r]], scale, loss_sum);
        row_gradient(row, vocab, softmax, gradient);
        gradient[targets[r]] = bf16_from_float(softmax.target_gradient);
    }
    return 0;
}

static void replace_row_floats(float *row, int64_t vocab, int32_t target, float scale,
                               double *loss_sum)
{
    struct softmax softmax = soften(row, DTYPE_FP32, vocab, (double)row[target], scale, loss_sum);
    replace_floats(row, vocab, softmax);
    row[target] = softmax.target_gradient;
}

static void replace_row_bf16(bf16 *row, int64_t vocab, int32_t target, float scale,
                             double *loss_sum)
{
    struct softmax softmax =
        soften(row, DTYPE_BF16, vocab, (double)bf16_to_float(row[target]), scale, loss_sum);
    replace_bf16(row, vocab, softmax);
    row[target] = bf16_from_float(softmax.target_gradient);
}

int host_cross_entropy_in_place(struct backend *b, enum stream s, int64_t rows, int64_t vocab,
                                void *logits, enum dtype type, const int32_t *targets, float scale,
                                double *loss_sum, struct diag_list *reterr)
{
    int64_t row_bytes = vocab * (int64_t)dtype_bytes(type);
    (void)b, (void)s;
    if (loss_check_targets(rows, vocab, targets, reterr) != 0)
        return -1;
    for (int64_t r = 0; r < rows; r++) {
        void *row = (char *)logits + r * row_bytes;
        if (targets[r] < 0)
            memset(row, 0, (size_t)row_bytes);
        else if (type == DTYPE_FP32)
            replace_row_floats(row, vocab, targets[r], scale, loss_sum);
        else
            replace_row_bf16(row, vocab, targets[r], scale, loss_sum);
    }
    return 0;
}
