/* stages_report.h - measured runs beside predictions, differences itemised, as text and as JSON. */
#ifndef RANKFIT_PLANNER_REPORT_STAGES_REPORT_H
#define RANKFIT_PLANNER_REPORT_STAGES_REPORT_H

#include "base/json.h"
#include "planner/validate/stages.h"

#include <stdio.h>

void report_stages_text(const struct stages *stages, FILE *out);

/* Adds `assumptions`, `runs` and `steps` to the set's object; bytes and TFLOP/s. */
void stages_add_json(const struct stages *stages, struct json *set);

#endif
