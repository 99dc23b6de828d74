/* assumptions.h - what a prediction takes for granted, in sentences: routing, items no executor has
 * measured, facts nobody asked for. Internal to planner/report. */
#ifndef RANKFIT_PLANNER_REPORT_ASSUMPTIONS_H
#define RANKFIT_PLANNER_REPORT_ASSUMPTIONS_H

#include "base/json.h"
#include "planner/report/prediction.h"

/* An array of sentences. */
struct json *report_assumptions_json(const struct prediction *prediction);

#endif
