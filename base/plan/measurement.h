/* measurement.h - what a run measured, rank by rank and item by item (rankfit.measurement/1).
 * Written by the executor, read by `rankfit compare`. */
#ifndef RANKFIT_BASE_PLAN_MEASUREMENT_H
#define RANKFIT_BASE_PLAN_MEASUREMENT_H

#include "base/diag.h"
#include "base/item.h"
#include "base/json.h"
#include "base/pool.h"

#include <stddef.h>
#include <stdint.h>

struct routed_rows {
    int layer, micro_batch;
    uint64_t rows_sent, rows_received;
    /* Of the same pass, under a chunked schedule; count 0: not told. */
    size_t chunk_count;
    uint64_t *chunk_rows_received;
};

enum phase_time {
    PHASE_TIME_FORWARD,
    PHASE_TIME_LOSS,
    PHASE_TIME_BACKWARD,
    PHASE_TIME_REDUCE,
    PHASE_TIME_OPTIMIZER,
    PHASE_TIME_COMMUNICATION,
    PHASE_TIME_COUNT
};
extern const char *const phase_time_names[PHASE_TIME_COUNT];

/* Bytes of the arena and routed rows are those of one step: the one in which the arena's peak was
 * the highest. Under a routing that changes from step to step they would not belong together
 * otherwise. */
struct measured_rank {
    int rank;
    uint64_t arena_live_bytes;       /* high-water of live bytes */
    uint64_t arena_extent_bytes;     /* reserved after packing */
    uint64_t arena_room_bytes;       /* of it, the most that may be live at once when every routed
                                        tensor is as large as it may be; 0: not told */
    uint64_t device_bytes;           /* the device's own figure; 0 on the host */
    uint64_t modelled_bytes;         /* of it, taken by a rehearsal in the place of communicators */
    uint64_t rss_bytes;              /* peak resident set of the process */
    char peak_phase[64];             /* "backward micro-batch 0 layer 5" */
    uint64_t item_bytes[ITEM_COUNT]; /* live at the peak */
    uint64_t item_max_bytes[ITEM_COUNT]; /* own maximum */
    size_t routed_count;
    struct routed_rows *routed; /* one a layer and micro-batch */
    size_t steps;
    double *step_seconds, *loss;
    double phase_seconds[PHASE_TIME_COUNT]; /* of the last step */
};

struct measurement {
    struct pool pool;
    char plan_digest[20];
    char backend[16], device[128], versions[256];
    bool traced;         /* a trace was taken, whose buffers are part of a device's figure */
    int rehearsed_world; /* 0: a run. Else one rank of so many was played: what peers send, how
                            long collectives take, what communicators hold is modelled, and losses
                            are no result */
    int steps;
    size_t rank_count;
    struct measured_rank *ranks;
};

struct json *measurement_to_json(const struct measurement *measurement);
int measurement_load(const char *path, struct measurement *ret, struct diag_list *reterr);
void measurement_done(struct measurement *measurement);

#endif
