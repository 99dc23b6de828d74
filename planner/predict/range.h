/* range.h - how far the same layout's step may be from its predicted time, and why: what better
 * software hides is taken off, what worse software or uneven routing adds is added. */
#ifndef RANKFIT_PLANNER_TIME_RANGE_H
#define RANKFIT_PLANNER_TIME_RANGE_H

#include "planner/predict/step_time.h"

enum { RANGE_CAUSES = 9 };

struct range_cause {
    const char *what;
    double seconds; /* what it adds to the step; below 0: takes off */
};

struct time_range {
    double fastest, slowest; /* seconds; the sums of the step and of the causes of one sign */
    int count;
    struct range_cause causes[RANGE_CAUSES];
};

/* -1 when there is no memory. Causes that change nothing are left out. Those that slow down add up in their order: each is the
 * step with it and all before less the step with those before. */
int step_time_range(struct predictor *predictor, const struct step_time *time,
                    struct time_range *ret);

#endif
