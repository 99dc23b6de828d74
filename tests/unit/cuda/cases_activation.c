#include "tests/unit/cuda/cases.h"

static void swiglu(struct pair *p, int64_t rows, int64_t width, bool weighted)
{
    pair_case(p, "swiglu", "%lld x %lld%s", (long long)rows, (long long)width,
              weighted ? ", weighted" : "");
    struct array h = pair_random(p, KIND_BF16, rows * 2 * width, 2);
    struct array weight = pair_random(p, KIND_FP32, rows, 1);
    struct array a = pair_poison(p, KIND_BF16, rows * width);
    PAIR_RUN(p, swiglu, rows, width, h.at[side], weighted ? weight.at[side] : NULL, a.at[side]);
    pair_compare(p, "a", &a, ROUNDED);
}

static void swiglu_backward(struct pair *p, int64_t rows, int64_t width, bool weighted)
{
    pair_case(p, "swiglu_backward", "%lld x %lld%s", (long long)rows, (long long)width,
              weighted ? ", weighted" : "");
    struct array h = pair_random(p, KIND_BF16, rows * 2 * width, 2);
    struct array da = pair_random(p, KIND_BF16, rows * width, 1);
    struct array weight = pair_random(p, KIND_FP32, rows, 1);
    struct array d_weight = pair_poison(p, KIND_FP32, rows);
    PAIR_RUN(p, swiglu_backward, rows, width, da.at[side], weighted ? weight.at[side] : NULL,
             h.at[side], weighted ? d_weight.at[side] : NULL);
    pair_compare(p, "dh", &h, ROUNDED);
    if (weighted)
        pair_compare(p, "d_weight", &d_weight, SUMMED);
}

static void sigmoid(struct pair *p, int64_t count)
{
    struct backend *host = p->backends[HOST];
    pair_case(p, "sigmoid", "%lld", (long long)count);
    struct array values = pair_random(p, KIND_FP32, count, 3);
    struct array d_values = pair_random(p, KIND_FP32, count, 1);
    if (!host->ops->sigmoid)
        return;
    PAIR_RUN(p, sigmoid, count, values.at[side]);
    pair_compare(p, "values", &values, 1e-6);
    PAIR_RUN(p, sigmoid_backward, count, values.at[side], d_values.at[side]);
    pair_compare(p, "d_values", &d_values, 1e-6);
}

void cases_activation(struct pair *p)
{
    static const int64_t shapes[][2] = { { 1, 8 }, { 100, 768 }, { 33, 1000 }, { 20, 6144 } };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        swiglu(p, shapes[i][0], shapes[i][1], i % 2 == 1);
        swiglu_backward(p, shapes[i][0], shapes[i][1], i % 2 == 1);
    }
    sigmoid(p, 1001);
}
