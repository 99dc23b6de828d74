/* assumptions.h - what a prediction takes for granted, in sentences: routing, items no executor has
 * measured, facts nobody asked for. Internal to planner/report. */
#ifndef RANKFIT_PLANNER_REPORT_ASSUMPTIONS_H
#define RANKFIT_PLANNER_REPORT_ASSUMPTIONS_H

#include "planner/report/prediction.h"

#include <jansson.h>

/* An array of sentences. */
json_t *report_assumptions_json(const struct prediction *prediction);

#endif
