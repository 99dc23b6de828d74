/* overlap.c - an exchange beside products of experts: each alone, and both at once on the two
 * streams, as chunks have them. */
#include "executor/calibrate/bench.h"

#include "base/text.h"

enum { ALL_EXPERTS = 128, LEAST_EXPERTS = 4, SIZES = 3 };

/* Rows of a chunk that a rank sends, receives and multiplies; one expert's two matrices. */
struct shape {
    int64_t rows[SIZES], hidden, width;
};
static const struct shape device_shape = { { 16384, 65536, 262144 }, 2048, 768 },
                          host_shape = { { 256, 1024, 4096 }, 128, 128 };

struct overlap {
    struct group *group;
    char *send, *recv;
    int64_t shares[ALL_EXPERTS], offsets[ALL_EXPERTS + 1];
    uint64_t row_bytes;
    struct expert_gemm gate_up, down;
    bool multiplies, exchanges;
};

static int run_overlap(struct bench *b, void *operation)
{
    const struct overlap *x = operation;
    const struct fabric_ops *f = b->calibration->fabric->ops;
    struct transfer *under_way = NULL;
    if (x->exchanges && f->all_to_all_rows_start(x->group, x->send, x->shares, x->recv, x->shares,
                                                 x->row_bytes, &under_way, b->errors) != 0)
        return -1;
    int ret = 0;
    if (x->multiplies &&
        (b->ops->expert_gemm(b->backend, STREAM_COMPUTE, &x->gate_up, b->errors) != 0 ||
         b->ops->expert_gemm(b->backend, STREAM_COMPUTE, &x->down, b->errors) != 0))
        ret = -1;
    if (under_way && f->transfer_wait(x->group, under_way, b->errors) != 0)
        ret = -1;
    return ret;
}

static struct gemm forward(const void *a, const void *weights, void *c, int64_t n, int64_t k)
{
    struct gemm ret = bench_linear(GEMM_FORWARD, 0, n, k, DTYPE_BF16);
    ret.a = a;
    ret.b = weights;
    ret.c = c;
    return ret;
}

/* False where the block is too small. */
static bool take_products(struct bench *b, struct overlap *x, int64_t rows, const struct shape *s,
                          int experts)
{
    int64_t gate_up = 2 * s->width * s->hidden, down = s->hidden * s->width;
    bf16 *in = bench_take_bf16(b, rows * s->hidden), *h = bench_take_bf16(b, rows * 2 * s->width),
         *a = bench_take_bf16(b, rows * s->width), *out = bench_take_bf16(b, rows * s->hidden),
         *w1 = bench_take_bf16(b, gate_up * experts), *w2 = bench_take_bf16(b, down * experts);
    for (int e = 0; e <= experts; e++)
        x->offsets[e] = rows * e / experts;
    x->gate_up = (struct expert_gemm){ forward(in, w1, h, 2 * s->width, s->hidden), experts,
                                       x->offsets, gate_up };
    x->down =
        (struct expert_gemm){ forward(a, w2, out, s->hidden, s->width), experts, x->offsets, down };
    return in && h && a && out && w1 && w2;
}

static int time_all(struct bench *b, struct overlap *x, const struct point *point)
{
    static const struct {
        const char *name;
        bool multiplies, exchanges;
    } ways[] = { { "products", true, false }, { "exchange", false, true }, { "both", true, true } };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct point timed = *point;
        (void)text_copy(timed.name, sizeof timed.name, ways[i].name);
        x->multiplies = ways[i].multiplies;
        x->exchanges = ways[i].exchanges;
        if (bench_time(b, run_overlap, x, true, &timed) != 0)
            return -1;
    }
    return 0;
}

static int measure(struct bench *b, struct overlap *x, int64_t rows, char *window, uint64_t bytes)
{
    const struct shape *s = b->calibration->host ? &host_shape : &device_shape;
    int world = b->calibration->fabric->world;
    int experts = ALL_EXPERTS / world > LEAST_EXPERTS ? ALL_EXPERTS / world : LEAST_EXPERTS;
    uint64_t whole = (uint64_t)rows * x->row_bytes;
    double flops = 6.0 * (double)(rows * s->hidden * s->width);
    if (!bench_wants(b, flops, (double)whole) || (window && bytes < 2 * whole))
        return 0;
    for (int i = 0; i < world; i++)
        x->shares[i] = rows / world;
    x->send = window ? window : bench_take(b, whole);
    x->recv = window ? window + whole : bench_take(b, whole);
    const struct point point = { .kind = window ? POINT_COPY_OVERLAP : POINT_OVERLAP,
                                 .m = rows,
                                 .n = 2 * s->width,
                                 .k = s->hidden,
                                 .experts = experts,
                                 .ranks = world };
    int ret = 0;
    if (take_products(b, x, rows, s, experts) && x->send && x->recv)
        ret = time_all(b, x, &point);
    bench_clear(b);
    return ret;
}

int bench_overlap(struct bench *b, struct group *group, char *window, uint64_t bytes)
{
    const struct shape *s = b->calibration->host ? &host_shape : &device_shape;
    struct overlap x = { .group = group, .row_bytes = 2 * (uint64_t)s->hidden };
    if (b->calibration->fabric->world > ALL_EXPERTS)
        return 0;
    for (int i = 0; i < SIZES; i++)
        if (measure(b, &x, s->rows[i], window, bytes) != 0)
            return -1;
    return 0;
}
