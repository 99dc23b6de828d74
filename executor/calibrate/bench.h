/* bench.h - how one operation is timed: memory of random data, warm-up, batches long enough for the
 * clock, the median. Internal to executor/calibrate. */
#ifndef RANKFIT_EXECUTOR_CALIBRATE_BENCH_H
#define RANKFIT_EXECUTOR_CALIBRATE_BENCH_H

#include "executor/calibrate/calibrate.h"

struct bench {
    const struct calibration *calibration;
    struct backend *backend;
    const struct backend_ops *ops;
    struct points *points;
    struct diag_list *errors;
    char *block; /* of the device */
    uint64_t block_bytes, usable_bytes, used, piece_bytes;
    char *workspace; /* the backend's, which stays */
    char *blocker;   /* NULL on the host; see bench_time */
    double blocker_seconds;
};

/* Reserves the device's memory and fills it. bench_close is due in any case. */
int bench_open(struct bench *b, const struct calibration *calibration, struct points *points,
               struct diag_list *reterr);
void bench_close(struct bench *b);

/* Random bf16 or fp32 numbers of sizes 2^-8 to 1; valid until bench_clear. NULL where the block is
 * too small, which is no error: what does not fit is not measured. */
void *bench_take(struct bench *b, uint64_t bytes);
void bench_clear(struct bench *b);
/* Host values into memory of the device. */
void *bench_upload(struct bench *b, const void *host, uint64_t bytes);

/* A product of a linear layer of m rows, k inputs and n outputs, all tensors dense and bf16 but c,
 * still without its operands; the gradient of weights is added to what is there. */
struct gemm bench_linear(enum gemm_form form, int64_t m, int64_t n, int64_t k, enum dtype c_type);

/* Puts one operation on the compute stream. */
typedef int bench_run(struct bench *b, void *operation);

/* Times the operation and adds the point with its seconds and repeats. `together`: all ranks run it
 * the same number of times, at the same time. What a host puts on a stream more slowly than the
 * device works it off is put there behind copies that keep the device busy meanwhile, so that it is
 * the device that is timed: in a step the host runs ahead. */
int bench_time(struct bench *b, bench_run *run, void *operation, bool together,
               const struct point *point);
/* Adds a point as it is. */
int bench_add(struct bench *b, const struct point *point);
/* Whether a test that all works has time for so many operations and bytes. */
bool bench_wants(const struct bench *b, double flops, double bytes);

/* One file a kind of measurement; each leaves the block clear. */
int bench_products(struct bench *b);
int bench_experts(struct bench *b);
/* Of head dim 128 or of all others: once the usual ones are done, the libraries have loaded what a
 * step needs. */
int bench_attention(struct bench *b, bool usual);
/* The usual one at length, as a step has it, when power or heat have lowered the clocks. */
int bench_sustained(struct bench *b);
/* Of models that have it: measured after all others. */
int bench_delta(struct bench *b);
int bench_elementwise(struct bench *b);
int bench_optimizer(struct bench *b);
int bench_host_link(struct bench *b);
int bench_launch(struct bench *b);
/* What the device holds beside the block: context, libraries, and, called before any other
 * collective, communicators. */
int bench_communicators(struct bench *b);
int bench_libraries(struct bench *b);
int bench_collectives(struct bench *b);
int bench_copies(struct bench *b);

/* An exchange of the group beside products of experts; from memory to memory in `window` of so many
 * bytes, where that is not NULL. For the files that have the group. */
int bench_overlap(struct bench *b, struct group *group, char *window, uint64_t bytes);

/* Whether any rank says so; every rank asks. */
int bench_any(struct bench *b, bool mine, bool *ret);

/* Seconds of a clock that only moves forward. */
double bench_clock(void);

static inline bf16 *bench_take_bf16(struct bench *b, int64_t elements)
{
    return (bf16 *)bench_take(b, 2 * (uint64_t)elements);
}
static inline float *bench_take_float(struct bench *b, int64_t elements)
{
    return (float *)bench_take(b, 4 * (uint64_t)elements);
}

#endif
