#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/exponential.h"
#include "executor/backend/host/host.h"

#include <math.h>

enum { LANES = 16 };

HOST_HOT
static float row_largest(const float *row, int64_t vocab)
{
    float lanes[LANES];
    for (int j = 0; j < LANES; j++)
        lanes[j] = row[0];
    int64_t i = 0;
    for (; i + LANES <= vocab; i += LANES)
        for (int j = 0; j < LANES; j++)
            lanes[j] = row[i + j] > lanes[j] ? row[i + j] : lanes[j];
    for (; i < vocab; i++)
        lanes[0] = row[i] > lanes[0] ? row[i] : lanes[0];
    for (int j = 1; j < LANES; j++)
        lanes[0] = lanes[j] > lanes[0] ? lanes[j] : lanes[0];
    return lanes[0];
}

HOST_HOT
static double row_sum(const float *row, int64_t vocab, float largest)
{
    float lanes[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= vocab; i += LANES)
        for (int j = 0; j < LANES; j++)
            lanes[j] += fast_exp(row[i + j] - largest);
    for (; i < vocab; i++)
        lanes[i % LANES] += fast_exp(row[i] - largest);
    double sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += (double)lanes[j];
    return sum;
}

HOST_HOT
static void row_gradient(const float *row, int64_t vocab, float largest, float factor,
                         bf16 *d_logits)
{
    for (int64_t i = 0; i < vocab; i++)
        d_logits[i] = bf16_from_float(fast_exp(row[i] - largest) * factor);
}

int host_cross_entropy(struct backend *b, enum stream s, int64_t rows, int64_t vocab,
                       const float *logits, const int32_t *targets, float scale, bf16 *d_logits,
                       double *loss_sum, struct diag_list *reterr)
{
    static const struct pos nowhere = { NULL, 0, 0 };
    (void)b, (void)s;
    for (int64_t r = 0; r < rows; r++) {
        const float *row = logits + r * vocab;
        bf16 *gradient = d_logits + r * vocab;
        int32_t target = targets[r];
        if (target < 0) {
            memset(gradient, 0, (size_t)vocab * sizeof *gradient);
            continue;
        }
        if (target >= vocab)
            return diag_error(reterr, nowhere, "target %d of row %lld is outside %lld tokens",
                              target, (long long)r, (long long)vocab);
        float largest = row_largest(row, vocab);
        double sum = row_sum(row, vocab, largest);
        double above = (double)row[target] - (double)largest;
        *loss_sum += log(sum) - above;
        row_gradient(row, vocab, largest, (float)((double)scale / sum), gradient);
        gradient[target] = bf16_from_float((float)((exp(above) / sum - 1.0) * (double)scale));
    }
    return 0;
}
