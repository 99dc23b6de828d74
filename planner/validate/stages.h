/* stages.h - a set of measured runs beside predictions: rows of a file (schema rankfit.stages/1),
 * each with its question, what was measured and what the source leaves open; differences itemised
 * by the rules of engine.h; steps between two runs judged against what was measured of them. Knows
 * neither how questions are answered nor how a report looks. */
#ifndef RANKFIT_PLANNER_VALIDATE_STAGES_H
#define RANKFIT_PLANNER_VALIDATE_STAGES_H

#include "base/tree.h"
#include "planner/validate/engine.h"

#include <stdbool.h>

enum { STAGES_MAX = 16, STAGE_STEPS_MAX = 8, STAGE_OPEN_MAX = 12 };

/* One assumption: what was open, what is taken, why. */
struct open_choice {
    const char *name, *value, *because;
};

/* A measured figure, or a range of them. */
struct measured_range {
    double low, high;
};

struct stage_run {
    const char *name, *engine, *source, *note; /* note: NULL */
    const struct node *question;
    const struct prediction *prediction;
    struct measured_range peak_bytes, tflops; /* TFLOP/s of the model, per GPU */
    struct adjusted adjusted;
};

/* A step from one run to another of the file. */
struct stage_step {
    int from, to;
    double measured_bytes, within_bytes;
    double own_bytes, shared_bytes, whole_bytes; /* predicted: engine rankfit, the other engine */
    bool holds;
};

struct stages {
    int run_count, step_count, open_count;
    struct stage_run run[STAGES_MAX];
    struct stage_step step[STAGE_STEPS_MAX];
    struct open_choice open[STAGE_OPEN_MAX];
    struct assumptions assumptions;
    const char *source;
    const char *experts_because;            /* NULL: no experts measured alone */
    const char *reading[DELTA_SHARE_COUNT]; /* who shares a sequence in delta nets, and who not */
    bool hold;                              /* every step does */
};

/* Reads the file but for its answers. Texts point into the tree. -1 with every fault. */
int stages_read(const struct node *root, struct stages *ret, struct diag_list *reterr);

/* With every run's `prediction` there: differences and steps. */
int stages_judge(struct stages *stages, struct diag_list *reterr);

/* How far a prediction is from what was measured: 0 within the range. */
double range_distance(const struct measured_range *range, double value);

#endif
