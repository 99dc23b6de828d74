/* optimizer.c - AdamW over flat state, with gradients of either type. */
#include "executor/calibrate/bench.h"

#include <string.h>

static int run_adamw(struct bench *b, void *operation)
{
    return b->ops->adamw(b->backend, STREAM_COMPUTE, operation, b->errors);
}

/* Master and moments read and written, 24 bytes; the gradient read; the weight written, 2. */
static int measure(struct bench *b, int64_t count, enum dtype type)
{
    struct adamw a = { .count = count,
                       .gradient = bench_take(b, (uint64_t)count * dtype_bytes(type)),
                       .grad_type = type,
                       .master = bench_take_float(b, count),
                       .moment1 = bench_take_float(b, count),
                       .moment2 = bench_take_float(b, count),
                       .weight = bench_take_bf16(b, count),
                       .scale = 1,
                       .rate = 1e-6F,
                       .beta1 = 0.9F,
                       .beta2 = 0.95F,
                       .epsilon = 1e-8F,
                       .decay = 0.1F,
                       .step = 5 };
    struct point point = { .kind = POINT_OPTIMIZER };
    int ret = 0;
    (void)snprintf(point.name, sizeof point.name, "adamw, %s",
                   type == DTYPE_FP32 ? "fp32" : "bf16");
    point.bytes = (26.0 + (double)dtype_bytes(type)) * (double)count;
    if (a.gradient && a.master && a.moment1 && a.moment2 && a.weight &&
        bench_wants(b, 0, point.bytes) &&
        b->ops->zero(b->backend, STREAM_COMPUTE, a.moment1, 4 * (uint64_t)count, b->errors) == 0 &&
        b->ops->zero(b->backend, STREAM_COMPUTE, a.moment2, 4 * (uint64_t)count, b->errors) == 0)
        ret = bench_time(b, run_adamw, &a, false, &point);
    bench_clear(b);
    return ret;
}

int bench_optimizer(struct bench *b)
{
    static const int64_t device_counts[] = { 1 << 22, 1 << 26, 1 << 28 },
                         host_counts[] = { 1 << 16, 1 << 20, 1 << 22 };
    const int64_t *counts = b->calibration->host ? host_counts : device_counts;
    for (int i = 0; i < 3; i++)
        if (measure(b, counts[i], DTYPE_FP32) != 0 || measure(b, counts[i], DTYPE_BF16) != 0)
            return -1;
    return 0;
}
