/* peaks.h - a set of public peaks beside predictions: rows of a file (schema rankfit.peaks/1), each
 * with its question and what was measured, and the errors over all of them. Engine rankfit as it
 * is, and what the measured engine holds by the rules of held.h. Nothing is fitted. Knows neither
 * how questions are answered nor how a report looks. */
#ifndef RANKFIT_PLANNER_VALIDATE_PEAKS_H
#define RANKFIT_PLANNER_VALIDATE_PEAKS_H

#include "base/tree.h"
#include "planner/validate/held.h"

#include <stdbool.h>

enum { PEAKS_MAX = 64, PEAKS_LEFT_OUT_MAX = 32, PEAKS_GROUPS_MAX = 8 };

/* What a figure counts: torch's allocated bytes; those and what waits for a stream; all that the
 * allocator keeps. Predictions are of allocated bytes. */
enum peak_metric { PEAK_ALLOCATED, PEAK_ACTIVE, PEAK_RESERVED, PEAK_METRIC_COUNT };
const char *peak_metric_name(enum peak_metric metric);

struct peak_run {
    const char *name, *source;
    const char *reading; /* what the source leaves open, and how it is taken; NULL: nothing */
    const struct held_engine *engine;
    enum peak_metric metric;
    const struct node *question;
    const struct prediction *prediction;
    bool ran_out;          /* ended without memory: what the device has is no measured peak */
    double measured_bytes; /* or what the device has */
    uint64_t own_bytes; /* of engine rankfit: live in the arena, on the rank where that is most */
    uint64_t engine_bytes; /* by the engine's rules */
    uint64_t device_bytes; /* of engine rankfit, everything on the fullest rank */
    struct saved saved;
};

/* Rows of the source that are not here, and why. */
struct left_out {
    const char *rows, *because;
};

/* Errors over all rows with a peak: prediction over measurement, less 1. */
struct peak_errors {
    double median, least, most, mean_absolute;
};

/* Runs of engines with the same kind of rules whose figures count the same. */
struct peak_group {
    const char *family;
    enum peak_metric metric;
    int count;
    struct peak_errors own, engine;
};

struct peaks {
    int count, left_out_count, group_count;
    int with_peak; /* runs that have one; the others ran out of memory */
    struct peak_run run[PEAKS_MAX];
    struct left_out left_out[PEAKS_LEFT_OUT_MAX];
    struct peak_group group[PEAKS_GROUPS_MAX];
    const char *source, *engine; /* engine: of runs that say none */
    double within;               /* what the engines' errors must stay within; 0: not judged */
    struct peak_errors own, with_rules;
    bool hold;
};

/* Reads the file but for its answers. Texts point into the tree. -1 with every fault. */
int peaks_read(const struct node *root, struct peaks *ret, struct diag_list *reterr);

/* With every run's `prediction` there: bytes and errors. */
int peaks_judge(struct peaks *peaks, struct diag_list *reterr);

double peak_error(double predicted_bytes, double measured_bytes);

#endif
