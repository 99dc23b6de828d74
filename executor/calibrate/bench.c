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

static const uint64_t DEVICE_BLOCK = UINT64_C(12) << 30, HOST_BLOCK = UINT64_C(1) << 30,
                      PIECE = UINT64_C(16) << 20, QUICK_PIECE = UINT64_C(1) << 20;

/* One copy that keeps the device busy, half of the blocker onto the other half; and how many of
 * them at most go before a batch. */
static const uint64_t BLOCKER = UINT64_C(256) << 20;
enum { MOST_BLOCKERS = 400, BLOCKER_SAMPLE = 32 };

/* What a test that all works still runs. */
static const double HOST_QUICK_FLOPS = 1e8, HOST_QUICK_BYTES = 4e6, DEVICE_QUICK_FLOPS = 2e12,
                    DEVICE_QUICK_BYTES = 4e9;

double bench_clock(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool bench_wants(const struct bench *b, double flops, double bytes)
{
    bool host = b->calibration->host;
    return !b->calibration->quick || (flops <= (host ? HOST_QUICK_FLOPS : DEVICE_QUICK_FLOPS) &&
                                      bytes <= (host ? HOST_QUICK_BYTES : DEVICE_QUICK_BYTES));
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
        b->usable_bytes = b->block_bytes;
        if (b->block)
            return 0;
        b->block_bytes /= 2;
    }
    return diag_error(b->errors, nowhere,
                      "rank %d: not %llu MiB of memory are free to measure with",
                      b->calibration->fabric->rank, (unsigned long long)(least >> 20));
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
    if (rounded > b->usable_bytes - b->used)
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
static int of_first(struct bench *b, double *value)
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

/* One batch: how often, behind how many blocking copies, and what it took. */
struct batch {
    int runs, blockers;
    bool together;
    double seconds, asked; /* of one run: until it was done; until it was on the stream */
};

static int block(struct bench *b, int copies)
{
    for (int i = 0; i < copies; i++)
        if (b->ops->copy(b->backend, STREAM_COMPUTE, b->blocker + BLOCKER / 2, b->blocker,
                         BLOCKER / 2, b->errors) != 0)
            return -1;
    return 0;
}

static int time_batch(struct bench *b, bench_run *run, void *operation, struct batch *batch)
{
    struct fabric *f = b->calibration->fabric;
    progress_note(f->progress);
    if (b->ops->sync(b->backend, STREAM_COMPUTE, b->errors) != 0 ||
        (batch->together && meet(b) != 0))
        return -1;
    double begun = bench_clock();
    if (block(b, batch->blockers) != 0)
        return -1;
    double free = bench_clock();
    for (int i = 0; i < batch->runs; i++)
        if (run(b, operation) != 0)
            return -1;
    double asked = bench_clock();
    if (b->ops->sync(b->backend, STREAM_COMPUTE, b->errors) != 0)
        return -1;
    double took = bench_clock() - begun - batch->blockers * b->blocker_seconds;
    batch->seconds = took > 0 ? took / batch->runs : (asked - free) / batch->runs;
    batch->asked = (asked - free) / batch->runs;
    if (f->ops->busy_seconds) /* what the fabric notes of each transfer is not needed here */
        (void)f->ops->busy_seconds(f);
    return 0;
}

/* What one blocking copy takes, from many. */
static int measure_blocker(struct bench *b)
{
    double least = 1;
    for (int round = 0; round < DEVICE_ROUNDS && b->blocker; round++) {
        double begun = bench_clock();
        if (block(b, BLOCKER_SAMPLE) != 0 ||
            b->ops->sync(b->backend, STREAM_COMPUTE, b->errors) != 0)
            return -1;
        double each = (bench_clock() - begun) / BLOCKER_SAMPLE;
        least = each < least ? each : least;
    }
    b->blocker_seconds = least;
    return 0;
}

/* Enough of them that the host is ahead when the device comes to the batch. */
static int blockers_for(const struct bench *b, const struct batch *sample, int runs)
{
    double needed = 1.3 * sample->asked * runs + 20e-6;
    if (!b->blocker || sample->together || sample->asked < 0.3 * sample->seconds)
        return 0;
    double count = needed / b->blocker_seconds + 1;
    return count > MOST_BLOCKERS ? MOST_BLOCKERS : (int)count;
}

/* From the end of the block, where it is large. */
static int open_blocker(struct bench *b)
{
    if (b->calibration->host || b->block_bytes < 8 * BLOCKER)
        return 0;
    b->usable_bytes = b->block_bytes - BLOCKER;
    b->blocker = b->block + b->usable_bytes;
    return measure_blocker(b);
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
    return open_blocker(b);
}

/* How many of an operation of `seconds` make a batch; the same at all ranks where they meet. */
static int runs_of(struct bench *b, double seconds, bool together, int *ret)
{
    double wanted = b->calibration->host ? HOST_BATCH_SECONDS : DEVICE_BATCH_SECONDS;
    double runs = b->calibration->quick ? 1 : wanted / seconds;
    if (together && of_first(b, &runs) != 0)
        return -1;
    *ret = runs < 1 ? 1 : runs > MOST_RUNS ? MOST_RUNS : (int)runs;
    return 0;
}

int bench_time(struct bench *b, bench_run *run, void *operation, bool together,
               const struct point *point)
{
    double seconds[HOST_ROUNDS];
    bool host = b->calibration->host, quick = b->calibration->quick;
    int rounds = quick ? 1 : host ? HOST_ROUNDS : DEVICE_ROUNDS, runs = 1;
    struct point timed = *point;
    struct batch batch = { .runs = 1, .together = together };
    for (int warming = 0; warming < 2; warming++)
        if (time_batch(b, run, operation, &batch) != 0)
            return -1;
    if (runs_of(b, batch.seconds, together, &runs) != 0)
        return -1;
    batch.blockers = blockers_for(b, &batch, runs);
    batch.runs = runs;
    for (int i = 0; i < rounds; i++) {
        if (time_batch(b, run, operation, &batch) != 0)
            return -1;
        seconds[i] = batch.seconds;
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, by_value);
    timed.seconds = seconds[quick ? 0 : host ? 1 : rounds / 2];
    timed.spread = (seconds[rounds - 1] - seconds[0]) / timed.seconds;
    timed.repeats = rounds * runs;
    return bench_add(b, &timed);
}

struct gemm bench_linear(enum gemm_form form, int64_t m, int64_t n, int64_t k, enum dtype c_type)
{
    bool forward = form == GEMM_FORWARD;
    return (struct gemm){ .form = form,
                          .m = m,
                          .n = n,
                          .k = k,
                          .c_type = c_type,
                          .a_stride = forward ? k : n,
                          .b_stride = k,
                          .c_stride = forward ? n : k,
                          .accumulate = form == GEMM_WEIGHT };
}

int bench_add(struct bench *b, const struct point *point)
{
    return points_add(b->points, point, b->errors);
}
