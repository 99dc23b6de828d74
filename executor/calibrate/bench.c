#include "executor/calibrate/bench.h"

#include "base/text.h"
#include "executor/fabric/progress.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct pos nowhere = { NULL, 0, 0 };

/* Batches of one operation run this long. The median of them; on processors, which others use too,
 * the second fastest: what disturbs only adds. */
static const double DEVICE_BATCH_SECONDS = 4e-3, HOST_BATCH_SECONDS = 20e-3;
enum { DEVICE_ROUNDS = 5, HOST_ROUNDS = 7, MOST_RUNS = 256 };

static const uint64_t DEVICE_BLOCK = UINT64_C(8) << 30, HOST_BLOCK = UINT64_C(1) << 30,
                      PIECE = UINT64_C(16) << 20, QUICK_PIECE = UINT64_C(1) << 20;

/* What a test that all works still runs. */
static const double QUICK_FLOPS = 1e8, QUICK_BYTES = 4e6;

double bench_clock(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool bench_wants(const struct bench *b, double flops, double bytes)
{
    return !b->calibration->quick || (flops <= QUICK_FLOPS && bytes <= QUICK_BYTES);
}

/* Sign and fraction at random, exponents of 2^-1 to 2^-8: read as bf16 and, pairwise, as fp32. */
static void fill_piece(uint16_t *piece, uint64_t count)
{
    uint64_t state = 1;
    for (uint64_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t bits = state >> 33;
        piece[i] = (uint16_t)((bits & 0x807f) | (119 + (bits >> 20) % 8) << 7);
    }
}

/* The block's first piece, which bench_take copies over what it gives. */
static int make_piece(struct bench *b)
{
    uint16_t *piece = malloc(b->piece_bytes);
    if (!piece)
        return diag_error(b->errors, nowhere, "no memory left");
    fill_piece(piece, b->piece_bytes / 2);
    int ret =
        b->ops->upload(b->backend, STREAM_COMPUTE, b->block, piece, b->piece_bytes, b->errors);
    if (ret == 0)
        ret = b->ops->sync(b->backend, STREAM_COMPUTE, b->errors);
    free(piece);
    return ret;
}

/* The largest block there is, halving what is asked for. */
static int reserve(struct bench *b)
{
    struct arena_source source = b->ops->arena_source(b->backend);
    uint64_t least = 4 * b->piece_bytes;
    b->block_bytes = b->calibration->host ? HOST_BLOCK : DEVICE_BLOCK;
    while (b->block_bytes >= least) {
        b->block = source.reserve(source.context, b->block_bytes);
        if (b->block)
            return 0;
        b->block_bytes /= 2;
    }
    return diag_error(b->errors, nowhere,
                      "rank %d: not %llu MiB of memory are free to measure with",
                      b->calibration->fabric->rank, (unsigned long long)(least >> 20));
}

int bench_open(struct bench *b, const struct calibration *calibration, struct points *points,
               struct diag_list *reterr)
{
    *b = (struct bench){ .calibration = calibration,
                         .backend = calibration->backend,
                         .ops = calibration->backend->ops,
                         .points = points,
                         .errors = reterr,
                         .piece_bytes = calibration->quick ? QUICK_PIECE : PIECE };
    struct arena_source source = b->ops->arena_source(b->backend);
    uint64_t workspace = b->ops->workspace_bytes(b->backend);
    b->workspace = source.reserve(source.context, workspace);
    if (!b->workspace)
        return diag_error(reterr, nowhere, "rank %d: no memory is free to measure with",
                          calibration->fabric->rank);
    b->ops->set_workspace(b->backend, b->workspace);
    if (reserve(b) != 0 || make_piece(b) != 0)
        return -1;
    bench_clear(b);
    return 0;
}

void bench_close(struct bench *b)
{
    struct arena_source source = b->ops->arena_source(b->backend);
    struct diag_list ignored = { 0 };
    (void)b->ops->sync(b->backend, STREAM_COMPUTE, &ignored);
    if (b->block)
        source.release(source.context, b->block, b->block_bytes);
    if (b->workspace)
        source.release(source.context, b->workspace, b->ops->workspace_bytes(b->backend));
    b->ops->set_workspace(b->backend, NULL);
}

void bench_clear(struct bench *b)
{
    b->used = b->piece_bytes;
}

static void *take(struct bench *b, uint64_t bytes)
{
    uint64_t rounded = (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    if (rounded > b->block_bytes - b->used)
        return NULL;
    char *ret = b->block + b->used;
    b->used += rounded;
    return ret;
}

void *bench_take(struct bench *b, uint64_t bytes)
{
    char *ret = take(b, bytes);
    for (uint64_t at = 0; ret && at < bytes; at += b->piece_bytes) {
        uint64_t left = bytes - at < b->piece_bytes ? bytes - at : b->piece_bytes;
        if (b->ops->copy(b->backend, STREAM_COMPUTE, ret + at, b->block, left, b->errors) != 0)
            return NULL;
    }
    return ret;
}

void *bench_upload(struct bench *b, const void *host, uint64_t bytes)
{
    char *ret = take(b, bytes);
    if (ret && b->ops->upload(b->backend, STREAM_COMPUTE, ret, host, bytes, b->errors) != 0)
        return NULL;
    return ret;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int meet(struct bench *b)
{
    struct fabric *f = b->calibration->fabric;
    progress_wait(f->progress, "barrier");
    int ret = f->ops->barrier(f->all, b->errors);
    progress_waited(f->progress);
    return ret;
}

/* What rank 0 found, at every rank. */
static int agree(struct bench *b, double *value)
{
    struct fabric *f = b->calibration->fabric;
    if (f->rank != 0)
        *value = 0;
    progress_wait(f->progress, "sum_doubles");
    int ret = f->ops->sum_doubles(f->all, value, 1, b->errors);
    progress_waited(f->progress);
    return ret;
}

int bench_any(struct bench *b, bool mine, bool *ret)
{
    struct fabric *f = b->calibration->fabric;
    double sum = mine;
    progress_wait(f->progress, "sum_doubles");
    int failed = f->ops->sum_doubles(f->all, &sum, 1, b->errors);
    progress_waited(f->progress);
    *ret = sum > 0;
    return failed;
}

static int batch(struct bench *b, bench_run *run, void *operation, bool together, int runs,
                 double *ret_seconds)
{
    progress_note(b->calibration->fabric->progress);
    if (b->ops->sync(b->backend, STREAM_COMPUTE, b->errors) != 0 || (together && meet(b) != 0))
        return -1;
    double begun = bench_clock();
    for (int i = 0; i < runs; i++)
        if (run(b, operation) != 0)
            return -1;
    if (b->ops->sync(b->backend, STREAM_COMPUTE, b->errors) != 0)
        return -1;
    *ret_seconds = (bench_clock() - begun) / runs;
    return 0;
}

/* How many of an operation of `seconds` make a batch; the same at all ranks where they meet. */
static int runs_of(struct bench *b, double seconds, bool together, int *ret)
{
    double wanted = b->calibration->host ? HOST_BATCH_SECONDS : DEVICE_BATCH_SECONDS;
    double runs = b->calibration->quick ? 1 : wanted / seconds;
    if (together && agree(b, &runs) != 0)
        return -1;
    *ret = runs < 1 ? 1 : runs > MOST_RUNS ? MOST_RUNS : (int)runs;
    return 0;
}

int bench_time(struct bench *b, bench_run *run, void *operation, bool together,
               const struct point *point)
{
    double seconds[HOST_ROUNDS], first;
    bool host = b->calibration->host, quick = b->calibration->quick;
    int rounds = quick ? 1 : host ? HOST_ROUNDS : DEVICE_ROUNDS, runs = 1;
    struct point timed = *point;
    if (batch(b, run, operation, together, 1, &first) != 0 ||
        batch(b, run, operation, together, 1, &first) != 0 ||
        runs_of(b, first, together, &runs) != 0)
        return -1;
    for (int i = 0; i < rounds; i++)
        if (batch(b, run, operation, together, runs, &seconds[i]) != 0)
            return -1;
    qsort(seconds, (size_t)rounds, sizeof *seconds, by_value);
    timed.seconds = seconds[quick ? 0 : host ? 1 : rounds / 2];
    timed.repeats = rounds * runs;
    return bench_add(b, &timed);
}

int bench_add(struct bench *b, const struct point *point)
{
    return points_add(b->points, point, b->errors);
}
