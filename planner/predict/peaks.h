/* peaks.h - the moments beside the steady step: the first step, saving, resuming,
 * log-probabilities. In the bytes of a budget: what is live, with what a device reserves beyond it.
 * No files, no printing. */
#ifndef RANKFIT_PLANNER_PREDICT_PEAKS_H
#define RANKFIT_PLANNER_PREDICT_PEAKS_H

#include "planner/predict/budget.h"

enum moment {
    MOMENT_FIRST_STEP,
    MOMENT_STEADY,
    MOMENT_SAVE,
    MOMENT_RESUME,
    MOMENT_LOGPROB,
    MOMENT_COUNT
};
extern const char *const moment_names[MOMENT_COUNT];

struct rank_peaks {
    uint64_t
        bytes[MOMENT_COUNT]; /* on the rank's device; on `host` in its memory; 0: there is none */
    uint64_t host_bytes[MOMENT_COUNT]; /* beside devices: buffers in the node's memory */
    enum moment binding;               /* the largest of those that every run meets */
};

/* Of rank `rank`, whose budget is `budget`. */
void budget_peaks(struct predictor *predictor, const struct rank_budget *budget, int rank,
                  struct rank_peaks *ret);

/* How the figure comes about, in words with its numbers; "" where there is nothing to say. */
void peaks_formula(struct predictor *predictor, const struct rank_budget *budget, int rank,
                   enum moment moment, char *ret, size_t size);

/* Host memory that saving takes at a rank: bytes. */
uint64_t save_buffer_bytes(struct predictor *predictor, int rank);

#endif
