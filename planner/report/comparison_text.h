/* comparison_text.h - predicted and measured memory side by side, as text. */
#ifndef RANKFIT_PLANNER_REPORT_COMPARISON_TEXT_H
#define RANKFIT_PLANNER_REPORT_COMPARISON_TEXT_H

#include "planner/compare/compare.h"
#include "planner/report/text.h"

void report_comparison_text(const struct comparison *comparison, struct text_style style);

#endif
