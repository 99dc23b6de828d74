#include "tests/unit/cuda/cases.h"

static void add(struct pair *p, int64_t count, enum dtype type)
{
    enum kind kind = type == DTYPE_FP32 ? KIND_FP32 : KIND_BF16;
    pair_case(p, "add, sum_squares, to_bf16", "%lld, %s", (long long)count, dtype_names[type]);
    struct array from = pair_random(p, kind, count, 1);
    struct array to = pair_random(p, kind, count, 1);
    double sums[SIDES] = { 0, 0 };
    PAIR_RUN(p, add, count, from.at[side], to.at[side], type);
    pair_compare(p, "sum", &to, type == DTYPE_FP32 ? 0 : ROUNDED);
    PAIR_RUN(p, sum_squares, count, to.at[side], type, &sums[side]);
    pair_figure(p, "squares", sums[DEVICE], sums[HOST], 1e-6);
    if (type != DTYPE_FP32)
        return;
    struct array rounded = pair_poison(p, KIND_BF16, count);
    PAIR_RUN(p, to_bf16, count, to.at[side], rounded.at[side]);
    pair_compare(p, "rounded", &rounded, 0);
}

static void adamw(struct pair *p, int64_t count, enum dtype type)
{
    pair_case(p, "adamw", "%lld, three steps, %s", (long long)count, dtype_names[type]);
    struct array gradient = pair_random(p, type == DTYPE_FP32 ? KIND_FP32 : KIND_BF16, count, 0.01);
    struct array master = pair_random(p, KIND_FP32, count, 1);
    struct array first = pair_random(p, KIND_FP32, count, 0);
    struct array second = pair_random(p, KIND_FP32, count, 0);
    struct array weight = pair_poison(p, KIND_BF16, count);
    struct adamw sides[SIDES];
    for (int i = 0; i < SIDES; i++)
        sides[i] = (struct adamw){
            count, gradient.at[i], type, master.at[i], first.at[i], second.at[i], weight.at[i],
            0.5F,  1e-3F,          0.9F, 0.95F,        1e-8F,       0.1F,         1
        };
    for (int step = 1; step <= 3; step++) {
        sides[HOST].step = sides[DEVICE].step = step;
        PAIR_RUN(p, adamw, &sides[side]);
    }
    pair_compare(p, "master", &master, 1e-6);
    pair_compare(p, "moment1", &first, 1e-6);
    pair_compare(p, "moment2", &second, 1e-6);
    pair_compare(p, "weight", &weight, ROUNDED);
}

/* Copies keep every bit; zeroing reaches the end and no further. */
static void move(struct pair *p)
{
    struct backend *device = p->backends[DEVICE];
    pair_case(p, "copy, zero", "1000");
    struct array from = pair_random(p, KIND_FP32, 1000, 1);
    struct array to = pair_poison(p, KIND_FP32, 1000);
    PAIR_RUN(p, copy, to.at[side], from.at[side], 4000);
    pair_compare(p, "copied", &to, 0);
    PAIR_RUN(p, zero, to.at[side], 2000);
    pair_compare(p, "zeroed", &to, 0);
    pair_figure(p, "device_bytes", device->ops->device_bytes(device) > 0, 1, 0);
}

void cases_optimizer(struct pair *p)
{
    static const int64_t counts[] = { 1, 7, 4096, 100003 };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        add(p, counts[i], DTYPE_FP32);
        add(p, counts[i], DTYPE_BF16);
        adamw(p, counts[i], i % 2 ? DTYPE_FP32 : DTYPE_BF16);
    }
    move(p);
}
