/* launch.c - what the host needs to put one operation on a stream. The host backend has none: its
 * calls are the operations. */
#include "executor/calibrate/bench.h"

#include "executor/fabric/progress.h"

enum { ROUNDS = 7, RUNS = 200 };

static const int64_t ROWS = 8, WIDTH = 64;

static int put(struct bench *b, const bf16 *x, const bf16 *w, bf16 *y, bool product)
{
    struct gemm g = bench_linear(GEMM_FORWARD, ROWS, WIDTH, WIDTH, DTYPE_BF16);
    g.a = x;
    g.b = w;
    g.c = y;
    return product
               ? b->ops->gemm(b->backend, STREAM_COMPUTE, &g, b->errors)
               : b->ops->rmsnorm(b->backend, STREAM_COMPUTE, ROWS, WIDTH, 1e-6, x, w, y, b->errors);
}

/* Few enough that the stream takes them all without waiting for the first; the fastest round, since
 * whatever disturbs only adds. */
static int measure(struct bench *b, bool product)
{
    bf16 *x = bench_take_bf16(b, ROWS * WIDTH), *w = bench_take_bf16(b, WIDTH * WIDTH),
         *y = bench_take_bf16(b, ROWS * WIDTH);
    double least = 1;
    for (int round = 0; round < ROUNDS; round++) {
        progress_note(b->calibration->fabric->progress);
        if (b->ops->sync(b->backend, STREAM_COMPUTE, b->errors) != 0)
            return -1;
        double begun = bench_clock();
        for (int i = 0; i < RUNS; i++)
            if (put(b, x, w, y, product) != 0)
                return -1;
        double each = (bench_clock() - begun) / RUNS;
        least = each < least ? each : least;
    }
    struct point point = { .kind = POINT_LAUNCH, .seconds = least, .repeats = ROUNDS * RUNS };
    (void)snprintf(point.name, sizeof point.name, product ? "gemm" : "rmsnorm");
    bench_clear(b);
    return bench_add(b, &point);
}

int bench_launch(struct bench *b)
{
    if (b->calibration->host)
        return 0;
    return measure(b, false) == 0 ? measure(b, true) : -1;
}
