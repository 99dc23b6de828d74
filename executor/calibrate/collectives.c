/* collectives.c - what ranks exchange, by size. */
#include "executor/calibrate/bench.h"

#include <stdlib.h>

struct collective {
    struct group *group;
    char *send, *recv;
    uint64_t bytes; /* of the whole tensor */
    int count;
    const int64_t *rows;
};

static int run_gather(struct bench *b, void *operation)
{
    const struct collective *x = operation;
    return b->calibration->fabric->ops->all_gather(x->group, x->send, x->recv,
                                                   x->bytes / (uint64_t)x->count, b->errors);
}

static int run_scatter(struct bench *b, void *operation)
{
    const struct collective *x = operation;
    return b->calibration->fabric->ops->reduce_scatter(
        x->group, x->send, x->recv, x->bytes / 4 / (uint64_t)x->count, DTYPE_FP32, b->errors);
}

static int run_reduce(struct bench *b, void *operation)
{
    const struct collective *x = operation;
    return b->calibration->fabric->ops->all_reduce(x->group, x->recv, x->bytes / 4, DTYPE_FP32,
                                                   b->errors);
}

static int run_exchange(struct bench *b, void *operation)
{
    const struct collective *x = operation;
    return b->calibration->fabric->ops->all_to_all_rows(
        x->group, x->send, x->rows, x->recv, x->rows, x->bytes / (uint64_t)x->count, b->errors);
}

static const struct {
    enum point_kind kind;
    const char *name;
    bench_run *run;
} kinds[] = { { POINT_ALL_GATHER, "all_gather", run_gather },
              { POINT_REDUCE_SCATTER, "reduce_scatter, fp32", run_scatter },
              { POINT_ALL_REDUCE, "all_reduce, fp32", run_reduce },
              { POINT_EXCHANGE, "all_to_all", run_exchange } };

/* Over the wire goes what is not a rank's own: (n - 1) / n of the whole; of sums that every rank
 * gets twice that. */
static int measure(struct bench *b, struct collective *x)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double ways = kinds[i].kind == POINT_ALL_REDUCE ? 2 : 1;
        struct point point = { .kind = kinds[i].kind,
                               .ranks = x->count,
                               .bytes = ways * (double)x->bytes * (x->count - 1) / x->count };
        (void)snprintf(point.name, sizeof point.name, "%s", kinds[i].name);
        if (bench_time(b, kinds[i].run, x, true, &point) != 0)
            return -1;
    }
    return 0;
}

/* Sizes a factor of four apart, of multiples that every number of ranks divides. */
static int measure_sizes(struct bench *b, struct collective *x)
{
    bool host = b->calibration->host;
    uint64_t unit = (uint64_t)x->count * 256;
    uint64_t least = host ? 16 << 10 : 1 << 20, most = host ? 16 << 20 : 1 << 30;
    if (b->calibration->quick)
        most = 16 * least;
    for (uint64_t bytes = least; bytes <= most; bytes *= 4) {
        x->bytes = bytes / unit * unit;
        x->send = bench_take(b, bytes);
        x->recv = bench_take(b, bytes);
        int ret = x->send && x->recv && x->bytes > 0 ? measure(b, x) : 0;
        bench_clear(b);
        if (ret != 0)
            return -1;
    }
    return 0;
}

int bench_collectives(struct bench *b)
{
    struct fabric *f = b->calibration->fabric;
    struct collective x = { .count = f->world };
    int *ranks = calloc((size_t)f->world, sizeof *ranks);
    int64_t *rows = calloc((size_t)f->world, sizeof *rows);
    int ret = ranks && rows ? 0 : diag_error(b->errors, (struct pos){ 0 }, "no memory left");
    for (int i = 0; ranks && rows && i < f->world; i++) {
        ranks[i] = i;
        rows[i] = 1;
    }
    x.rows = rows;
    if (ret == 0 && f->world > 1)
        ret = f->ops->group_open(f, ranks, f->world, &x.group, b->errors);
    if (ret == 0 && f->world > 1)
        ret = measure_sizes(b, &x);
    if (ret == 0 && f->world > 1)
        ret = bench_overlap(b, x.group, NULL, 0);
    if (x.group)
        f->ops->group_close(f, x.group);
    free(ranks);
    free(rows);
    return ret;
}
