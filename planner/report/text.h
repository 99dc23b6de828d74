/* text.h - what a person reads: the plan and the budget as text. Sizes in GB (1e9) unless a header
 * says otherwise. Writes to the stream it is given, decides nothing. */
#ifndef RANKFIT_PLANNER_REPORT_TEXT_H
#define RANKFIT_PLANNER_REPORT_TEXT_H

#include "planner/derive/derive.h"
#include "planner/report/prediction.h"

#include <stdbool.h>
#include <stdio.h>

struct text_style {
    FILE *out;
    bool colour; /* only on a terminal and without NO_COLOR */
};

/* plan_text.c. why: every reason at length, every kind of rank, the causes of the range. */
void report_plan_text(const struct prediction *prediction, const struct answer *answer, bool why,
                      struct text_style style);

/* rank -1: every group of equal ranks. -1: out of memory, and phases are missing. */
int report_budget_text(const struct prediction *prediction, int rank, struct text_style style);

/* Shared heads of the reports: who, on what, how long a sequence; then verdict and layout. */
void report_head_text(const struct prediction *prediction, FILE *out);
void report_verdict_text(const struct prediction *prediction, struct text_style style);

/* "tp 1  pp 1  ep 8  cp 4  dp 8" and "fsdp, full recompute, linear CE, 2 expert chunks". */
void format_degrees(const struct layout *layout, const char *gap, char *ret, size_t size);
void format_primitives(const struct model *model, const struct primitives *primitives, char *ret,
                       size_t size);
/* "35.95 B", "12.55 M" */
void format_params(uint64_t params, char *ret, size_t size);

#endif
