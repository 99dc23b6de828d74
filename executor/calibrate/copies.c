/* copies.c - exchanges of equal shares on the copy engines, where the fabric has such groups. */
#include "executor/calibrate/bench.h"

#include <stdlib.h>

struct copy_exchange {
    struct group *group;
    char *send, *recv;
    const int64_t *rows;
    uint64_t share; /* bytes for each member */
};

static int run_exchange(struct bench *b, void *operation)
{
    const struct copy_exchange *x = operation;
    return b->calibration->fabric->ops->all_to_all_rows(x->group, x->send, x->rows, x->recv,
                                                        x->rows, x->share, b->errors);
}

static int measure_sizes(struct bench *b, struct copy_exchange *x, uint64_t most)
{
    int count = b->calibration->fabric->world;
    for (uint64_t bytes = UINT64_C(1) << 20; bytes <= most; bytes *= 4) {
        struct point point = { .kind = POINT_COPY_EXCHANGE,
                               .name = "all_to_all, copies",
                               .ranks = count,
                               .bytes = (double)bytes * (count - 1) / count };
        x->share = bytes / (uint64_t)count / 256 * 256;
        if (bench_time(b, run_exchange, x, true, &point) != 0)
            return -1;
    }
    return 0;
}

static int measure(struct bench *b, const int *ranks, const int64_t *rows)
{
    struct fabric *f = b->calibration->fabric;
    const uint64_t most = UINT64_C(1) << 30;
    struct copy_exchange x = { .rows = rows };
    bool refused = false;
    struct diag_list why = { 0 }; /* a machine without copy engines between GPUs is no failure */
    int ret = f->ops->group_open_copies(f, ranks, f->world, &x.group, &why);
    if (bench_any(b, ret != 0, &refused) != 0)
        return -1;
    struct arena_source source = f->ops->window_source(f);
    char *block = refused ? NULL : source.reserve(source.context, 2 * most);
    ret = 0;
    if (block) {
        x.send = block;
        x.recv = block + most;
        ret = measure_sizes(b, &x, most);
        if (ret == 0)
            ret = bench_overlap(b, x.group, block, 2 * most);
        if (b->ops->sync(b->backend, STREAM_COMPUTE, b->errors) != 0)
            ret = -1;
        source.release(source.context, block, 2 * most);
    }
    if (x.group)
        f->ops->group_close(f, x.group);
    return ret;
}

int bench_copies(struct bench *b)
{
    struct fabric *f = b->calibration->fabric;
    if (f->world < 2 || !f->ops->group_open_copies || !f->ops->window_source)
        return 0;
    int *ranks = calloc((size_t)f->world, sizeof *ranks);
    int64_t *rows = calloc((size_t)f->world, sizeof *rows);
    int ret = ranks && rows ? 0 : diag_error(b->errors, (struct pos){ 0 }, "no memory left");
    for (int i = 0; ranks && rows && i < f->world; i++) {
        ranks[i] = i;
        rows[i] = 1;
    }
    if (ret == 0)
        ret = measure(b, ranks, rows);
    free(ranks);
    free(rows);
    return ret;
}
