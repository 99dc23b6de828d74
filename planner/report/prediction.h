/* prediction.h - a plan together with everything the planner says about it: every rank's budget,
 * the step time, the verdict. What the reports, `run` and `compare` share. No printing. */
#ifndef RANKFIT_PLANNER_REPORT_PREDICTION_H
#define RANKFIT_PLANNER_REPORT_PREDICTION_H

#include "base/plan/plan.h"
#include "planner/derive/derive.h"
#include "planner/predict/peaks.h"
#include "planner/predict/predictor.h"
#include "planner/predict/range.h"

enum { BINDING_TEXT = 400 };

struct prediction {
    struct plan plan;
    struct model_sizes sizes;
    struct budget_input input;   /* refers to plan and sizes above */
    struct predictor *predictor; /* told to look at the plan's layout */
    struct budget budget;
    struct step_time time;
    struct time_range range;
    uint64_t limit_bytes, memory_bytes;
    enum verdict verdict;
    uint64_t binding_bytes;
    enum moment binding; /* the moment that decided it: the largest of any rank's */
};

/* Fills everything but `plan`, which must be there; -1 when there is no memory. The structure must
 * not be moved afterwards. What a prediction holds is given back by prediction_done, or by the next
 * prediction_compute of it; of zeros it holds nothing. */
int prediction_compute(struct prediction *prediction);
void prediction_done(struct prediction *prediction);

/* The question that a plan answers; refers to the prediction. */
void prediction_question(const struct prediction *prediction, struct question *ret);

/* The group that is worst, and the group of one rank. */
const struct rank_budget *prediction_worst(const struct prediction *prediction);
const struct rank_budget *prediction_rank(const struct prediction *prediction, int rank);

/* What limits, in words: `derived`, unless a moment beside the steady step takes more. */
void prediction_binding(const struct prediction *prediction, const char *derived, char *ret,
                        size_t size);

/* True when some size is beyond 64 bits: nothing that was computed means anything then. */
bool prediction_overflowed(const struct prediction *prediction);

#endif
