/* workload.h - what a step works on, where it is more than micro_batch sequences of one length:
 * rows and their padding, passes of reinforcement learning, memory promised to others. */
#ifndef RANKFIT_PLANNER_REPORT_WORKLOAD_H
#define RANKFIT_PLANNER_REPORT_WORKLOAD_H

#include "base/json.h"
#include "planner/report/prediction.h"

#include <stdio.h>

/* Nothing where there is nothing to say. */
void report_workload_text(const struct prediction *prediction, FILE *out);

/* Adds "rows": {...}; nothing where a micro-batch is micro_batch sequences. */
void report_add_rows(struct json *object, const struct prediction *prediction);

#endif
