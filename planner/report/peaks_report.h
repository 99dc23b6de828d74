/* peaks_report.h - public peaks beside predictions, with the errors over all, as text and JSON. */
#ifndef RANKFIT_PLANNER_REPORT_PEAKS_REPORT_H
#define RANKFIT_PLANNER_REPORT_PEAKS_REPORT_H

#include "base/json.h"
#include "planner/validate/peaks.h"

#include <stdio.h>

void report_peaks_text(const struct peaks *peaks, FILE *out);

/* Adds `runs`, `errors` and `left_out` to the set's object; bytes, and errors as fractions. */
void peaks_add_json(const struct peaks *peaks, struct json *set);

#endif
