#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/host.h"

#include <math.h>

HOST_HOT
static void add_float(int64_t count, const float *from, float *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

HOST_HOT
static void add_bf16(int64_t count, const bf16 *from, bf16 *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = bf16_from_float(bf16_to_float(to[i]) + bf16_to_float(from[i]));
}

int host_add(struct backend *b, enum stream s, int64_t count, const void *from, void *to,
             enum dtype dtype, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    if (dtype == DTYPE_FP32)
        add_float(count, from, to);
    else
        add_bf16(count, from, to);
    return 0;
}

static inline __attribute__((always_inline)) float load(const void *values, enum dtype dtype,
                                                        int64_t i)
{
    return dtype == DTYPE_FP32 ? ((const float *)values)[i]
                               : bf16_to_float(((const bf16 *)values)[i]);
}

HOST_HOT
static double squares(int64_t count, const void *values, enum dtype dtype)
{
    enum { LANES = 8 };
    double lanes[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int j = 0; j < LANES; j++) {
            double value = (double)load(values, dtype, i + j);
            lanes[j] += value * value;
        }
    for (; i < count; i++)
        lanes[0] += (double)load(values, dtype, i) * (double)load(values, dtype, i);
    double sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += lanes[j];
    return sum;
}

int host_sum_squares(struct backend *b, enum stream s, int64_t count, const void *values,
                     enum dtype dtype, double *ret_sum, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    *ret_sum = squares(count, values, dtype);
    return 0;
}

/* The update of Loshchilov and Hutter, "Decoupled weight decay regularization", algorithm 2, in the
 * form of PyTorch's AdamW: first_left and second_left are 1 - beta^step. */
HOST_HOT
static void update(const struct adamw *a, float first_left, float second_left)
{
    float kept = 1.0F - a->rate * a->decay;
    float rate = a->rate / first_left;
    float root = sqrtf(second_left);
    for (int64_t i = 0; i < a->count; i++) {
        float g = load(a->gradient, a->grad_type, i) * a->scale;
        float m = a->beta1 * a->moment1[i] + (1.0F - a->beta1) * g;
        float v = a->beta2 * a->moment2[i] + (1.0F - a->beta2) * (g * g);
        float master = a->master[i] * kept - rate * m / (sqrtf(v) / root + a->epsilon);
        a->moment1[i] = m;
        a->moment2[i] = v;
        a->master[i] = master;
        a->weight[i] = bf16_from_float(master);
    }
}

int host_adamw(struct backend *b, enum stream s, const struct adamw *a, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    update(a, (float)(1.0 - pow((double)a->beta1, a->step)),
           (float)(1.0 - pow((double)a->beta2, a->step)));
    return 0;
}

HOST_HOT
static void round_all(int64_t count, const float *from, bf16 *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = bf16_from_float(from[i]);
}

int host_to_bf16(struct backend *b, enum stream s, int64_t count, const float *from, bf16 *to,
                 struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    round_all(count, from, to);
    return 0;
}
