/* step_time.h - how long a step takes: a roofline with the efficiencies of the hardware file, item
 * by item. Same inputs as a budget; no files, no search. */
#ifndef RANKFIT_PLANNER_PREDICT_STEP_TIME_H
#define RANKFIT_PLANNER_PREDICT_STEP_TIME_H

#include "planner/predict/budget.h"

enum time_item {
    TIME_MATMUL,  /* dense GEMMs, forward, replay and backward */
    TIME_EXPERTS, /* expert GEMMs at the fullest rank */
    TIME_ATTENTION,
    TIME_LINEAR_ATTENTION,
    TIME_ELEMENTWISE, /* norms, activations, permutations, router */
    TIME_LOSS,
    TIME_EXPOSED_GATHER,   /* FSDP gathers and reduce-scatters that do not hide */
    TIME_EXPOSED_EXCHANGE, /* dispatch and combine that do not hide */
    TIME_EXPOSED_CONTEXT,  /* KV gathers, head splits, state passing, reorder */
    TIME_EXPOSED_TENSOR,   /* tensor-parallel collectives */
    TIME_EXPOSED_OFFLOAD,  /* checkpoints to and from host memory that do not hide */
    TIME_PIPELINE,         /* stage-to-stage transfers */
    TIME_BUBBLE,
    TIME_REDUCE, /* gradient reduction at the end of the step */
    TIME_OPTIMIZER,
    TIME_LOGPROBS, /* forward passes of reinforcement learning */
    TIME_HOST,     /* launches that outlast the kernels they start */
    TIME_ITEM_COUNT
};
extern const char *const time_item_names[TIME_ITEM_COUNT];

struct step_time {
    double item_seconds[TIME_ITEM_COUNT]; /* sum to seconds */
    double seconds;
    double tokens_per_second_per_gpu;
    double model_flops_per_second_per_gpu, hardware_flops_per_second_per_gpu;
    double mfu, hfu;        /* of the dense bf16 peak */
    double bubble_fraction; /* share of the step: (P - 1) / (m + P - 1) */
    double exposed_communication_seconds;
    double gather_seconds_per_unit, compute_seconds_per_unit; /* does the gather hide? */
    uint64_t min_tokens_to_hide_gather;                       /* local tokens of a micro-batch */
};

void step_time_compute(struct predictor *predictor, struct step_time *ret);
void step_time_formula(const struct budget_input *in, const struct step_time *time,
                       enum time_item item, char *ret, size_t size);
/* Whether an executor of this version has run it (measured efficiencies) or it is assumed. */
enum basis step_time_basis(const struct budget_input *in, enum time_item item);

#endif
