#include "tests/unit/cuda/cases.h"

#include <stdlib.h>
#include <string.h>

static void forward(struct pair *p, int64_t rows, int64_t width)
{
    pair_case(p, "rmsnorm", "%lld x %lld", (long long)rows, (long long)width);
    struct array x = pair_random(p, KIND_BF16, rows * width, 2);
    struct array w = pair_random(p, KIND_BF16, width, 1);
    struct array y = pair_poison(p, KIND_BF16, rows * width);
    PAIR_RUN(p, rmsnorm, rows, width, 1e-6, x.at[side], w.at[side], y.at[side]);
    pair_compare(p, "y", &y, ROUNDED);
}

static void backward(struct pair *p, int64_t rows, int64_t width, bool accumulate,
                     enum dtype grad_type)
{
    pair_case(p, "rmsnorm_backward", "%lld x %lld%s, %s", (long long)rows, (long long)width,
              accumulate ? ", added" : "", dtype_names[grad_type]);
    enum kind kind = grad_type == DTYPE_FP32 ? KIND_FP32 : KIND_BF16;
    struct array x = pair_random(p, KIND_BF16, rows * width, 2);
    struct array w = pair_random(p, KIND_BF16, width, 1);
    struct array dy = pair_random(p, KIND_BF16, rows * width, 1);
    struct array dx = accumulate ? pair_random(p, KIND_BF16, rows * width, 1)
                                 : pair_poison(p, KIND_BF16, rows * width);
    struct array dw = pair_random(p, kind, width, 1);
    PAIR_RUN(p, rmsnorm_backward, rows, width, 1e-6, dy.at[side], x.at[side], w.at[side],
             dx.at[side], accumulate, dw.at[side], grad_type);
    pair_compare(p, "dx", &dx, ROUNDED);
    pair_compare(p, "dw", &dw, kind == KIND_FP32 ? SUMMED : ROUNDED);
}

static void centred(struct pair *p, int64_t rows, int64_t width)
{
    pair_case(p, "rmsnorm_centred", "%lld x %lld", (long long)rows, (long long)width);
    struct array x = pair_random(p, KIND_BF16, rows * width, 2);
    struct array w = pair_random(p, KIND_BF16, width, 0.2);
    struct array y = pair_poison(p, KIND_BF16, rows * width);
    struct array dy = pair_random(p, KIND_BF16, rows * width, 1);
    struct array dx = pair_poison(p, KIND_BF16, rows * width);
    struct array dw = pair_random(p, KIND_FP32, width, 1);
    PAIR_RUN(p, rmsnorm_centred, rows, width, 1e-6, x.at[side], w.at[side], y.at[side]);
    pair_compare(p, "y", &y, ROUNDED);
    PAIR_RUN(p, rmsnorm_centred_backward, rows, width, 1e-6, dy.at[side], x.at[side], w.at[side],
             dx.at[side], false, dw.at[side], DTYPE_FP32);
    pair_compare(p, "dx", &dx, ROUNDED);
    pair_compare(p, "dw", &dw, SUMMED);
}

/* The same input twice gives the same bits: the sums of blocks have a fixed order. */
static void repeat(struct pair *p, int64_t rows, int64_t width)
{
    pair_case(p, "rmsnorm_backward", "%lld x %lld, twice", (long long)rows, (long long)width);
    struct array x = pair_random(p, KIND_BF16, rows * width, 2);
    struct array w = pair_random(p, KIND_BF16, width, 1);
    struct array dx = pair_poison(p, KIND_BF16, rows * width);
    struct backend *b = p->backends[DEVICE];
    void *sums[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++) {
        struct array dw = pair_random(p, KIND_FP32, width, 0);
        (void)pair_ran(p, "run",
                       b->ops->rmsnorm_backward(b, STREAM_COMPUTE, rows, width, 1e-6, x.at[DEVICE],
                                                x.at[DEVICE], w.at[DEVICE], dx.at[DEVICE], false,
                                                dw.at[DEVICE], DTYPE_FP32, &p->diags));
        sums[i] = pair_download(p, &dw);
    }
    bool same = sums[0] && sums[1] && memcmp(sums[0], sums[1], (size_t)width * 4) == 0;
    pair_figure(p, "same bits", same, 1, 0);
    free(sums[0]);
    free(sums[1]);
}

void cases_norm(struct pair *p)
{
    static const int64_t shapes[][2] = { { 1, 8 },     { 3, 64 },    { 300, 2048 }, { 1000, 2056 },
                                         { 37, 4096 }, { 19, 7168 }, { 5, 16384 } };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        forward(p, shapes[i][0], shapes[i][1]);
        backward(p, shapes[i][0], shapes[i][1], false, DTYPE_FP32);
        backward(p, shapes[i][0], shapes[i][1], true, DTYPE_BF16);
    }
    centred(p, 100, 2048);
    repeat(p, 5000, 2048);
}
