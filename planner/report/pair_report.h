/* pair_report.h - what `rankfit pair` found, as text and as rankfit.pair/1. */
#ifndef RANKFIT_PLANNER_REPORT_PAIR_REPORT_H
#define RANKFIT_PLANNER_REPORT_PAIR_REPORT_H

#include "base/json.h"
#include "planner/compare/difference.h"
#include "planner/report/prediction.h"
#include "planner/report/text.h"

/* One side: its setting ("moe=chunked") and the plan that was run. */
struct pair_side {
    const char *setting;
    const struct plan *plan;
};

struct pair_report {
    const char *kind; /* of primitive */
    struct pair_side primitive, reference;
    const struct difference *difference;
};

void report_pair_text(const struct pair_report *report, struct text_style style);
/* Belongs to the caller; NULL without memory. */
struct json *report_pair_json(const struct pair_report *report);

#endif
