/* layer_seconds.h - how long the passes of one layer take: its operations one after another on the
 * clocks of host and device, and the collectives that nothing hides. */
#ifndef RANKFIT_PLANNER_PREDICT_LAYER_SECONDS_H
#define RANKFIT_PLANNER_PREDICT_LAYER_SECONDS_H

#include "planner/predict/clock.h"
#include "planner/predict/collective.h"
#include "planner/step/layer.h"

/* Kernels that take `seconds` together; product: launched as a GEMM is. */
struct kernel_seconds {
    double calls, seconds;
    bool product;
};

/* What the operations of a layer are timed by. */
struct layer_rates {
    const struct machine *machine;
    const struct step_sizes *sizes;
    struct kernel_seconds work[WORK_COUNT];
    double link[LINK_COUNT];   /* LINK_RING and its backward: before anything hides them */
    double experts;            /* local ones */
    double gradient_bytes;     /* of one element of a weight's gradient */
    unsigned trained, adapted; /* bit i: enum component i */
    double exchange_overlap;   /* share of the shorter of exchange and experts that chunks hide */
};
void layer_rates_init(const struct budget_input *in, const struct machine *machine,
                      const struct step_sizes *sizes, enum mixer mixer, struct layer_rates *ret);
/* The parts of it: kernels; links around a mixer and around a feed-forward half. */
void layer_kernels(const struct budget_input *in, const struct machine *machine,
                   const struct step_sizes *sizes, enum mixer mixer, struct kernel_seconds *ret);
void layer_links(const struct budget_input *in, const struct step_sizes *sizes, enum mixer mixer,
                 double *ret);
void context_links(const struct budget_input *in, const struct step_sizes *sizes, enum mixer mixer,
                   double *ret);
/* ordered.c: attention's backward under attention_deterministic. */
void ordered_kernels(const struct budget_input *in, const struct machine *machine,
                     const struct step_sizes *sizes, enum mixer mixer, struct kernel_seconds *ret);

/* Adds to *ret. */
void layer_seconds_fold(const struct step_sequence *sequence, const struct layer_rates *rates,
                        struct pass *ret);

/* The share of the shorter of an exchange and the experts' work that the layer's chunks hide. */
double exchange_overlap(const struct budget_input *in);

#endif
