#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/loss_row.h"

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/exponential.h"
#include "executor/backend/host/host.h"

/* BLOCK: exponentials summed in single precision before the sum goes on in double. */
enum { LANES = 16, BLOCK = 2048 };

static inline __attribute__((always_inline)) float load(const void *row, enum dtype type, int64_t i)
{
    return type == DTYPE_FP32 ? ((const float *)row)[i] : bf16_to_float(((const bf16 *)row)[i]);
}

static inline __attribute__((always_inline)) float largest_of(const void *row, enum dtype type,
                                                              int64_t count)
{
    float lanes[LANES];
    for (int j = 0; j < LANES; j++)
        lanes[j] = load(row, type, 0);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
#pragma GCC unroll 1 /* unrolled it would not become vector code */
        for (int j = 0; j < LANES; j++) {
            float value = load(row, type, i + j);
            lanes[j] = value > lanes[j] ? value : lanes[j];
        }
    for (; i < count; i++)
        lanes[0] = load(row, type, i) > lanes[0] ? load(row, type, i) : lanes[0];
    for (int j = 1; j < LANES; j++)
        lanes[0] = lanes[j] > lanes[0] ? lanes[j] : lanes[0];
    return lanes[0];
}

HOST_HOT
float loss_row_largest(const void *row, enum dtype type, int64_t count)
{
    return type == DTYPE_FP32 ? largest_of(row, DTYPE_FP32, count)
                              : largest_of(row, DTYPE_BF16, count);
}

static inline __attribute__((always_inline)) double sum_of(const void *row, enum dtype type,
                                                           int64_t count, float largest)
{
    float powers[BLOCK];
    double sum = 0;
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t here = count - at < BLOCK ? count - at : BLOCK;
        for (int64_t i = 0; i < here; i++)
            powers[i] = fast_exp(load(row, type, at + i) - largest);
        float lanes[LANES] = { 0 };
        int64_t i = 0;
        for (; i + LANES <= here; i += LANES)
            for (int j = 0; j < LANES; j++)
                lanes[j] += powers[i + j];
        for (; i < here; i++)
            lanes[i % LANES] += powers[i];
        for (int j = 0; j < LANES; j++)
            sum += (double)lanes[j];
    }
    return sum;
}

HOST_HOT
double loss_row_sum(const void *row, enum dtype type, int64_t count, float largest)
{
    return type == DTYPE_FP32 ? sum_of(row, DTYPE_FP32, count, largest)
                              : sum_of(row, DTYPE_BF16, count, largest);
}

int loss_check_targets(int64_t rows, int64_t vocab, const int32_t *targets,
                       struct diag_list *reterr)
{
    static const struct pos nowhere = { NULL, 0, 0 };
    for (int64_t r = 0; r < rows; r++)
        if (targets[r] >= vocab)
            return diag_error(reterr, nowhere, "target %d of row %lld is outside %lld tokens",
                              targets[r], (long long)r, (long long)vocab);
    return 0;
}
