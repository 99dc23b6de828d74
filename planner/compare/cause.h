/* cause.h - the likely reason why a prediction was off: routing, packing, library, or the model of
 * the step itself. A sentence for a person, drawn from the figures only. */
#ifndef RANKFIT_PLANNER_COMPARE_CAUSE_H
#define RANKFIT_PLANNER_COMPARE_CAUSE_H

#include "planner/compare/compare.h"

/* "" where everything is within tolerance and the routing was as planned. */
void comparison_cause(const struct comparison *comparison, char *ret, size_t size);

#endif
