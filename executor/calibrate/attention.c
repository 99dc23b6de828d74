/* attention.c - causal attention, forward and backward, by head dim and length. */
#include "executor/calibrate/bench.h"

#include "executor/fabric/progress.h"

struct shape {
    int heads, kv_heads, head_dim;
    int64_t tokens;
};

static const struct shape device_shapes[] = {
    { 32, 4, 128, 2048 },  { 32, 4, 128, 4096 },   { 32, 4, 128, 8192 }, { 32, 4, 128, 32768 },
    { 32, 4, 128, 65536 }, { 32, 4, 128, 131072 }, { 16, 2, 256, 4096 }, { 16, 2, 256, 8192 },
    { 16, 2, 256, 32768 }, { 64, 8, 64, 4096 },    { 64, 8, 64, 8192 },  { 64, 8, 64, 32768 },
};
static const struct shape host_shapes[] = {
    { 4, 2, 128, 128 }, { 4, 2, 128, 512 }, { 4, 2, 128, 1024 }, { 4, 2, 16, 128 },
    { 4, 2, 16, 512 },  { 8, 2, 32, 512 },  { 4, 2, 64, 128 },   { 4, 2, 64, 512 },
    { 4, 2, 64, 1024 }, { 4, 2, 256, 128 }, { 4, 2, 256, 512 },
};

static int run_forward(struct bench *b, void *operation)
{
    const struct attention_gradient *g = operation;
    return b->ops->attention(b->backend, STREAM_COMPUTE, &g->forward, b->errors);
}

static int run_backward(struct bench *b, void *operation)
{
    return b->ops->attention_backward(b->backend, STREAM_COMPUTE, operation, b->errors);
}

/* As a layer calls it: values inside the fused projection, gradients likewise. */
static bool prepare(struct bench *b, const struct shape *s, struct attention_gradient *ret)
{
    int64_t q = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    int64_t row = q + 2 * kv, t = s->tokens;
    bf16 *fused = bench_take_bf16(b, t * row), *gradient = bench_take_bf16(b, t * row);
    struct attention a = { .sequences = 1,
                           .heads = s->heads,
                           .kv_heads = s->kv_heads,
                           .head_dim = s->head_dim,
                           .tokens = t,
                           .q = bench_take_bf16(b, t * q),
                           .k = bench_take_bf16(b, t * kv),
                           .v = fused ? fused + q + kv : NULL,
                           .q_stride = q,
                           .k_stride = kv,
                           .v_stride = row,
                           .o = bench_take_bf16(b, t * q),
                           .lse = bench_take_float(b, t * s->heads) };
    uint64_t scratch = b->ops->attention_workspace_bytes(b->backend, &a);
    *ret = (struct attention_gradient){ .forward = a,
                                        .d_o = bench_take_bf16(b, t * q),
                                        .dq = gradient,
                                        .dk = gradient ? gradient + q : NULL,
                                        .dv = gradient ? gradient + q + kv : NULL,
                                        .dq_stride = row,
                                        .dk_stride = row,
                                        .dv_stride = row,
                                        .delta = bench_take_float(b, t * s->heads),
                                        .workspace = bench_take(b, scratch ? scratch : 16) };
    return fused && gradient && a.q && a.k && a.o && a.lse && ret->d_o && ret->delta &&
           ret->workspace;
}

static int measure(struct bench *b, const struct shape *s)
{
    struct attention_gradient g;
    double width = (double)s->heads * s->head_dim, t = (double)s->tokens;
    struct point forward = { .kind = POINT_ATTENTION_FORWARD,
                             .name = "forward",
                             .heads = s->heads,
                             .kv_heads = s->kv_heads,
                             .head_dim = s->head_dim,
                             .tokens = s->tokens,
                             .flops = 2.0 * t * t * width };
    struct point backward = forward;
    backward.kind = POINT_ATTENTION_BACKWARD;
    (void)snprintf(backward.name, sizeof backward.name, "backward");
    backward.flops = 2.5 * forward.flops;
    int ret = 0;
    if (bench_wants(b, backward.flops, 0) && prepare(b, s, &g)) {
        ret = bench_time(b, run_forward, &g, false, &forward);
        if (ret == 0)
            ret = bench_time(b, run_backward, &g, false, &backward);
    }
    bench_clear(b);
    return ret;
}

/* Seconds of a forward and a backward, over a batch of them; -1 with a diagnostic. */
static int run_batch(struct bench *b, struct attention_gradient *g, double *ret)
{
    enum { PAIRS = 4 };
    double begun = bench_clock();
    progress_note(b->calibration->fabric->progress);
    for (int i = 0; i < PAIRS; i++)
        if (run_forward(b, g) != 0 || run_backward(b, g) != 0)
            return -1;
    if (b->ops->sync(b->backend, STREAM_COMPUTE, b->errors) != 0)
        return -1;
    *ret = (bench_clock() - begun) / PAIRS;
    return 0;
}

int bench_sustained(struct bench *b)
{
    static const double length = 2.5, settled = 1.25; /* seconds */
    const struct shape s = { 32, 4, 128, 32768 };
    struct attention_gradient g;
    struct point point = { .kind = POINT_SUSTAINED,
                           .name = "forward and backward",
                           .heads = s.heads,
                           .kv_heads = s.kv_heads,
                           .head_dim = s.head_dim,
                           .tokens = s.tokens };
    double begun = bench_clock(), sum = 0;
    int ret = 0;
    if (b->calibration->host || b->calibration->quick || !prepare(b, &s, &g)) {
        bench_clear(b);
        return 0;
    }
    while (ret == 0 && bench_clock() - begun < length) {
        double seconds = 0, at = bench_clock() - begun;
        ret = run_batch(b, &g, &seconds);
        if (at < settled)
            continue;
        sum += seconds;
        point.repeats++;
    }
    bench_clear(b);
    if (ret != 0 || point.repeats == 0)
        return ret;
    point.seconds = sum / point.repeats;
    return bench_add(b, &point);
}

int bench_attention(struct bench *b, bool usual)
{
    bool host = b->calibration->host;
    const struct shape *shapes = host ? host_shapes : device_shapes;
    size_t count = host ? sizeof host_shapes / sizeof *host_shapes
                        : sizeof device_shapes / sizeof *device_shapes;
    for (size_t i = 0; i < count; i++)
        if ((shapes[i].head_dim == 128) == usual && measure(b, &shapes[i]) != 0)
            return -1;
    return 0;
}
