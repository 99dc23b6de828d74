/* difference.h - two runs of the same work held against each other: loss, final hidden states,
 * gradient norm and every gradient tensor of the first step, peak and time. Reads dumps and
 * measurements; knows nothing of why the runs should agree. */
#ifndef RANKFIT_PLANNER_COMPARE_DIFFERENCE_H
#define RANKFIT_PLANNER_COMPARE_DIFFERENCE_H

#include "base/plan/measurement.h"
#include "base/pool.h"

#include <stdbool.h>

/* How well two runs should agree. */
enum agreement {
    AGREE_EXACT,   /* the same arithmetic: to the bit */
    AGREE_ORDERED, /* gradients are summed in another order, in fp32; hidden states to the bit */
    AGREE_ROUNDED, /* bf16 is rounded elsewhere */
    AGREE_COUNT
};
struct agreement_info {
    const char *name, *meaning;
    double loss;     /* largest relative error of the loss */
    double hidden;   /* RMS of the difference over the RMS of the tensor */
    double gradient; /* likewise, of every gradient tensor; relative, of their norm */
};
extern const struct agreement_info agreement_infos[AGREE_COUNT];

/* What one run left. */
struct difference_input {
    const char *dump; /* path: gradients and final hidden states of the first step, safetensors */
    const struct measurement *measurement;
};

struct difference_side {
    double loss; /* of the first step */
    double gradient_norm;
    double seconds;      /* the fastest step of the slowest rank */
    uint64_t peak_bytes; /* live bytes of the fullest rank */
};

struct tensor_difference {
    const char *name;
    double rms; /* of the reference */
    double error;
};

struct difference {
    struct pool pool;
    enum agreement agreement;
    struct difference_side primitive, reference;
    double loss_error, norm_error, hidden_error;
    size_t count;
    struct tensor_difference *tensors; /* gradients, by name */
    const struct tensor_difference *worst;
    bool within;
};

/* -1: a file cannot be read, or the runs have different tensors. difference_done is due in any
 * case. */
int difference_compute(const struct difference_input *primitive,
                       const struct difference_input *reference, enum agreement agreement,
                       struct difference *ret, struct diag_list *reterr);
void difference_done(struct difference *difference);

#endif
