/* json.h - the documents of the contract: rankfit.plan/1 and rankfit.budget/1. Key order is that of
 * the contract; numbers are base units. Returned objects belong to the caller; NULL without memory.
 */
#ifndef RANKFIT_PLANNER_REPORT_JSON_H
#define RANKFIT_PLANNER_REPORT_JSON_H

#include "base/diag.h"
#include "base/json.h"
#include "planner/derive/derive.h"
#include "planner/report/prediction.h"

/* rankfit.plan/1 with candidates and search; `answer` is what derived the plan. */
struct json *report_plan_json(const struct prediction *prediction, const struct answer *answer,
                              const struct diag_list *warnings);

/* The plan file: inputs by value and the recommended layout with its prediction, no candidates. */
struct json *report_plan_file(const struct prediction *prediction, const struct answer *answer);

/* rankfit.budget/1; rank -1: all, phases of the worst. */
struct json *report_budget_json(const struct prediction *prediction, int rank);

/* The counts of a model, with name and sizes (rankfit.explain/1's "model"). */
struct json *report_model_json(const struct model *model);

/* Parts shared with other documents. */
struct json *report_model_of(const struct prediction *prediction);
struct json *report_hardware_of(const struct prediction *prediction);
/* A layout with verdict, peak and step; question: what it was judged for, but for choices. */
struct json *report_candidate_json(const struct candidate *candidate);
struct json *json_phase(const struct phase *phase);
/* What would fit instead: the entries of "nearest". */
struct json *report_nearest_json(const struct answer *answer);

#endif
