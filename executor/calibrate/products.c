/* products.c - dense products: the three of a linear layer, of the widths that models have. */
#include "executor/calibrate/bench.h"

#include "base/text.h"

/* A linear layer of k inputs and n outputs on m rows. */
struct shape {
    int64_t m, n, k;
    bool fp32; /* outputs: routers and heads */
};

static const struct shape device_shapes[] = {
    { 4096, 5120, 2048, false }, { 8192, 5120, 2048, false },   { 32768, 5120, 2048, false },
    { 8192, 2048, 4096, false }, { 32768, 2048, 4096, false },  { 65536, 5120, 2048, false },
    { 8192, 8192, 8192, false }, { 16384, 12288, 4096, false }, { 16384, 4096, 6144, false },
    { 32768, 2048, 768, false }, { 32768, 1536, 2048, false },  { 8192, 128, 2048, true },
    { 32768, 128, 2048, true },  { 512, 151936, 2048, true },   { 512, 151936, 4096, true },
};
static const struct shape host_shapes[] = {
    { 128, 128, 64, false },    { 512, 128, 64, false },   { 512, 256, 256, false },
    { 512, 8, 64, true },       { 512, 1024, 256, false }, { 1024, 1024, 512, false },
    { 256, 2048, 1024, false }, { 512, 256, 64, true },    { 512, 4096, 256, true },
};

static int run_product(struct bench *b, void *operation)
{
    return b->ops->gemm(b->backend, STREAM_COMPUTE, operation, b->errors);
}

/* Each tensor once, but what is added to is read as well. */
static double traffic(const struct gemm *g)
{
    double x = (double)g->m * (double)g->k, w = (double)g->n * (double)g->k,
           y = (double)g->m * (double)g->n;
    double c = (double)dtype_bytes(g->c_type) * (g->accumulate ? 2 : 1);
    switch (g->form) {
    case GEMM_FORWARD:
        return 2 * (x + w) + c * y;
    case GEMM_INPUT:
        return 2 * (y + w) + c * x;
    case GEMM_WEIGHT:
        return 2 * (x + y) + c * w;
    }
    return 0;
}

static int measure(struct bench *b, const struct shape *s, enum gemm_form form, const char *name)
{
    bool forward = form == GEMM_FORWARD, weight = form == GEMM_WEIGHT;
    struct gemm g = bench_linear(form, s->m, s->n, s->k,
                                 weight || (forward && s->fp32) ? DTYPE_FP32 : DTYPE_BF16);
    struct point point = { .kind = POINT_GEMM, .m = s->m, .n = s->n, .k = s->k };
    int64_t c_elements = weight ? s->n * s->k : s->m * g.c_stride;
    (void)text_copy(point.name, sizeof point.name, name);
    point.flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    point.bytes = traffic(&g);
    g.a = bench_take_bf16(b, s->m * g.a_stride);
    g.b = bench_take_bf16(b, weight ? s->m * s->k : s->n * s->k);
    g.c = bench_take(b, (uint64_t)c_elements * dtype_bytes(g.c_type));
    int ret = 0;
    if (g.a && g.b && g.c && bench_wants(b, point.flops, point.bytes))
        ret = bench_time(b, run_product, &g, false, &point);
    bench_clear(b);
    return ret;
}

int bench_products(struct bench *b)
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
