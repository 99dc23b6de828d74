/* validation_report.h - published figures beside rankfit's, as a table and as JSON. */
#ifndef RANKFIT_PLANNER_REPORT_VALIDATION_REPORT_H
#define RANKFIT_PLANNER_REPORT_VALIDATION_REPORT_H

#include "base/json.h"
#include "planner/rules/figure.h"

#include <stdio.h>

void report_figures_text(const struct figures *figures, FILE *out);

/* The array `figures` of a set: values in the unit of each figure. */
struct json *figures_to_json(const struct figures *figures);

#endif
