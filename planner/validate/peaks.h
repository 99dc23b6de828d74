/* peaks.h - a set of public peaks beside predictions: rows of a file (schema rankfit.peaks/1), each
 * with its question and what was measured, and the errors over all of them. Engine rankfit as it
 * is, and with what Megatron holds beside it by the rules of saved.h. Nothing is fitted. Knows
 * neither how questions are answered nor how a report looks. */
#ifndef RANKFIT_PLANNER_VALIDATE_PEAKS_H
#define RANKFIT_PLANNER_VALIDATE_PEAKS_H

#include "base/tree.h"
#include "planner/validate/saved.h"

#include <stdbool.h>

enum { PEAKS_MAX = 64, PEAKS_LEFT_OUT_MAX = 32 };

struct peak_run {
    const char *name, *source;
    const struct node *question;
    const struct prediction *prediction;
    double measured_bytes;
    uint64_t own_bytes; /* of engine rankfit: live in the arena, on the rank where that is most */
    uint64_t engine_bytes; /* with what is saved beside */
    uint64_t device_bytes; /* of engine rankfit, everything on the fullest rank */
    struct saved saved;
};

/* Rows of the source that are not here, and why. */
struct left_out {
    const char *rows, *because;
};

/* Errors over all rows: prediction over measurement, less 1. */
struct peak_errors {
    double median, least, most, mean_absolute;
};

struct peaks {
    int count, left_out_count;
    struct peak_run run[PEAKS_MAX];
    struct left_out left_out[PEAKS_LEFT_OUT_MAX];
    const char *source, *engine;
    double within; /* what the engine's errors must stay within; 0: not judged */
    struct peak_errors own, with_saved;
    bool hold;
};

/* Reads the file but for its answers. Texts point into the tree. -1 with every fault. */
int peaks_read(const struct node *root, struct peaks *ret, struct diag_list *reterr);

/* With every run's `prediction` there: bytes and errors. */
int peaks_judge(struct peaks *peaks, struct diag_list *reterr);

double peak_error(double predicted_bytes, double measured_bytes);

#endif
