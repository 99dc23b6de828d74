/* run_text.h - what a run did, as text: who, on what, loss and time of its steps. The memory
 * follows as a comparison. */
#ifndef RANKFIT_PLANNER_REPORT_RUN_TEXT_H
#define RANKFIT_PLANNER_REPORT_RUN_TEXT_H

#include "base/plan/measurement.h"
#include "planner/report/text.h"

void report_run_text(const struct prediction *prediction, const struct measurement *measurement,
                     struct text_style style);

#endif
