/* experts.c - products of experts, by how many rows each of them gets. */
#include "executor/calibrate/bench.h"

#include "base/text.h"

enum { MOST_EXPERTS = 128 };

/* `rows` an expert on average; every other one gets a quarter more, the others a quarter less. */
struct shape {
    int experts;
    int64_t rows, n, k;
};

static const struct shape device_shapes[] = {
    { 128, 64, 1536, 2048 },   { 128, 256, 1536, 2048 }, { 128, 1024, 1536, 2048 },
    { 128, 2048, 1536, 2048 }, { 128, 64, 2048, 768 },   { 128, 256, 2048, 768 },
    { 128, 1024, 2048, 768 },  { 128, 2048, 2048, 768 }, { 64, 512, 1536, 2048 },
    { 64, 4096, 1536, 2048 },  { 64, 512, 2048, 768 },   { 64, 4096, 2048, 768 },
    { 16, 512, 5760, 2880 },   { 16, 4096, 5760, 2880 }, { 16, 4096, 2880, 2880 },
};
static const struct shape host_shapes[] = {
    { 8, 16, 128, 64 },   { 8, 64, 128, 64 },   { 8, 256, 128, 64 },   { 8, 64, 64, 64 },
    { 16, 16, 512, 256 }, { 16, 64, 512, 256 }, { 16, 128, 512, 256 }, { 16, 64, 256, 256 },
};

static int run_experts(struct bench *b, void *operation)
{
    return b->ops->expert_gemm(b->backend, STREAM_COMPUTE, operation, b->errors);
}

static void spread(const struct shape *s, int64_t *offsets)
{
    offsets[0] = 0;
    for (int e = 0; e < s->experts; e++)
        offsets[e + 1] = offsets[e] + (e % 2 ? s->rows + s->rows / 4 : s->rows - s->rows / 4);
}

static int measure(struct bench *b, const struct shape *s, enum gemm_form form, const char *name)
{
    int64_t offsets[MOST_EXPERTS + 1];
    bool weight = form == GEMM_WEIGHT;
    spread(s, offsets);
    int64_t rows = offsets[s->experts], each = s->n * s->k, all = each * s->experts;
    struct gemm g = bench_linear(form, 0, s->n, s->k, weight ? DTYPE_FP32 : DTYPE_BF16);
    struct point point = {
        .kind = POINT_EXPERT_GEMM, .m = rows, .n = s->n, .k = s->k, .experts = s->experts
    };
    (void)text_copy(point.name, sizeof point.name, name);
    point.flops = 2.0 * (double)rows * (double)each;
    point.bytes = 2.0 * (double)rows * (double)(s->n + s->k) + (weight ? 8.0 : 2.0) * (double)all;
    g.a = bench_take_bf16(b, rows * g.a_stride);
    g.b = bench_take_bf16(b, weight ? rows * s->k : all);
    g.c = weight ? (void *)bench_take_float(b, all) : bench_take_bf16(b, rows * g.c_stride);
    struct expert_gemm one = { g, s->experts, offsets, each };
    int ret = 0;
    if (g.a && g.b && g.c && bench_wants(b, point.flops, point.bytes))
        ret = bench_time(b, run_experts, &one, false, &point);
    bench_clear(b);
    return ret;
}

int bench_experts(struct bench *b)
{
    bool host = b->calibration->host;
    const struct shape *shapes = host ? host_shapes : device_shapes;
    size_t count = host ? sizeof host_shapes / sizeof *host_shapes
                        : sizeof device_shapes / sizeof *device_shapes;
    for (size_t i = 0; i < count; i++)
        if (measure(b, &shapes[i], GEMM_FORWARD, "forward") != 0 ||
            measure(b, &shapes[i], GEMM_INPUT, "input") != 0 ||
            measure(b, &shapes[i], GEMM_WEIGHT, "weight") != 0)
            return -1;
    return 0;
}
