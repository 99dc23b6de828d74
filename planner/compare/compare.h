/* compare.h - predicted against measured, rank by rank and item by item. Items compare their own
 * maxima, arena and device the peak; budgets are judged at the routed rows that were measured, with
 * the plan's own prediction beside them. No files, no printing. */
#ifndef RANKFIT_PLANNER_COMPARE_COMPARE_H
#define RANKFIT_PLANNER_COMPARE_COMPARE_H

#include "base/diag.h"
#include "base/json.h"
#include "base/plan/measurement.h"
#include "planner/report/prediction.h"

#include <stdbool.h>

/* Largest |error| of each kind of figure; fractions. */
struct tolerances {
    double arena, device, item;
    double item_share; /* an item is judged from this share of the rank's peak on */
    double time;       /* < 0: printed, not judged */
};
/* host 2 %, cuda 3 %, items 5 % from 1 % of the peak; time not judged. */
struct tolerances tolerances_default(void);

/* error = (predicted - measured) / measured; NAN where nothing was measured but something was
 * predicted. */
struct figure {
    uint64_t predicted_bytes; /* at the measured routed rows */
    uint64_t planned_bytes;   /* the plan's own, at the routing it assumed */
    uint64_t measured_bytes;
    double error;
    bool judged, within;
};

struct compared_rank {
    int rank;
    struct figure arena, device;          /* device only where the backend has its own figure */
    uint64_t upper_bytes;                 /* the plan's own upper bound of the judged one */
    bool passed;                          /* ... was passed by the measured peak */
    uint64_t extent_bytes;                /* measured: reserved after packing */
    uint64_t room_bytes;                  /* of it, what may be live at once; 0: not told */
    uint64_t modelled_bytes;              /* of device: a rehearsal's stand-in for communicators */
    uint64_t planned_rows, measured_rows; /* routed rows of the fullest layer */
    struct figure items[ITEM_COUNT];
};

/* What was furthest off among the judged figures. item: an item, or one of these. */
enum { WORST_ARENA = ITEM_COUNT, WORST_DEVICE, WORST_TIME };

struct comparison {
    struct tolerances tolerances;
    bool on_device;      /* cuda: the device figure is judged, else the arena */
    bool traced;         /* the measured figures hold the trace's buffers and time */
    int rehearsed_world; /* 0: a run; else one rank of so many was rehearsed */
    size_t rank_count;
    struct compared_rank *ranks;
    double predicted_seconds, measured_seconds, time_error; /* median of the steps but the first */
    int worst_rank, worst_item;
    double worst_error;
    bool within;
    bool passed;     /* a rank's peak passed the upper bound that the plan printed */
    char cause[320]; /* of the worst, where it is out of tolerance or the routing differed */
};

/* -1: the measurement is not of this plan (digest, world). Release with comparison_done. */
int comparison_compute(const struct prediction *prediction, const struct measurement *measurement,
                       const struct tolerances *tolerances, struct comparison *ret,
                       struct diag_list *reterr);
void comparison_done(struct comparison *comparison);

/* "dispatch_recv", "arena", "device", "step time" */
const char *comparison_item_name(int item);

/* rankfit.comparison/1 */
struct json *comparison_to_json(const struct comparison *comparison);

#endif
