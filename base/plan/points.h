/* points.h - what of a machine was measured, operation by operation (rankfit.points/1). Written by
 * the executor, read by `rankfit calibrate`, which fits a hardware file to them. */
#ifndef RANKFIT_BASE_PLAN_POINTS_H
#define RANKFIT_BASE_PLAN_POINTS_H

#include "base/diag.h"
#include "base/json.h"
#include "base/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum point_kind {
    POINT_GEMM,
    POINT_EXPERT_GEMM,
    POINT_ATTENTION_FORWARD,
    POINT_ATTENTION_BACKWARD,
    POINT_COPY,
    POINT_ELEMENTWISE,
    POINT_OPTIMIZER,
    POINT_TO_DEVICE,   /* from pinned host memory */
    POINT_FROM_DEVICE, /* to pinned host memory */
    POINT_BOTH_WAYS,   /* the two at once; bytes are those of each */
    POINT_ALL_GATHER,
    POINT_REDUCE_SCATTER,
    POINT_EXCHANGE,
    POINT_COPY_EXCHANGE, /* of equal shares, from memory to memory */
    POINT_LAUNCH,        /* what the host needs to put one operation on its stream */
    POINT_HELD,          /* device memory that `name` holds; no time */
    POINT_SUSTAINED,     /* a forward and a backward of attention amid seconds of them */
    POINT_ALL_REDUCE,
    POINT_OVERLAP,       /* "products" of experts, "exchange" of as many rows, "both" at once */
    POINT_COPY_OVERLAP,  /* the same, the exchange from memory to memory */
    POINT_DELTA_FORWARD, /* the gated delta rule: heads of values, kv_heads of keys, head_dim of
                            both */
    POINT_DELTA_BACKWARD,
    POINT_KIND_COUNT
};
extern const char *const point_kind_names[POINT_KIND_COUNT];

/* Fields that a kind does not speak of are 0. */
struct point {
    enum point_kind kind;
    char name[32];   /* of the operation, or of who holds the bytes */
    int64_t m, n, k; /* products; m: the rows of all experts. passes: rows, width */
    int experts;     /* local ones */
    int heads, kv_heads, head_dim;
    int64_t tokens; /* attention: queries, and keys that the last of them sees */
    int ranks;      /* of a collective */
    double bytes;   /* read plus written; of a collective, over the wire from or to one rank */
    double flops;   /* 2 m n k; attention causal, backward at 2.5 x the forward's; delta rule 8
                     * per element of its states and token, backward twice that */
    double seconds; /* median; on processors the second fastest */
    double spread;  /* of its batches, slowest less fastest over seconds */
    int repeats;
};

struct points {
    struct pool pool;
    char backend[16], device[128], versions[256], date[16]; /* "2026-11-29" */
    int ranks;
    bool quick;            /* one run of the small ones: a test that all works, no measurement */
    uint64_t memory_bytes; /* what the device gives a program; 0: not asked */
    size_t count, room;
    struct point *points;
};

/* Adds a copy; -1 when the system has no memory left. */
int points_add(struct points *points, const struct point *point, struct diag_list *reterr);

struct json *points_to_json(const struct points *points);
/* -1 with every fault found. points_done is due in any case. */
int points_load(const char *path, struct points *ret, struct diag_list *reterr);
void points_done(struct points *points);

/* "forward 32768 x 5120 x 2048": what a point is of, for people. */
char *point_describe(const struct point *point, char *ret, size_t size);

#endif
