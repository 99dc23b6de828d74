/* rank_json.h - the parts of a report that speak of ranks and of time: ranks with their items,
 * phases, step time. Internal to planner/report. */
#ifndef RANKFIT_PLANNER_REPORT_RANK_JSON_H
#define RANKFIT_PLANNER_REPORT_RANK_JSON_H

#include "base/json.h"
#include "planner/report/prediction.h"

enum { REPORT_MAX_PHASES = 8192, FORMULA_MAX = 512 };

/* One entry for each group of equal ranks; rank >= 0: that rank alone. */
struct json *report_ranks_json(const struct prediction *prediction, int rank);
struct json *report_phases_json(const struct prediction *prediction,
                                const struct rank_budget *rank);
/* Seconds, throughput and use of the GPUs; then the same with one entry for each item of time, its
 * formula, and the range. */
struct json *report_speed_json(const struct step_time *time);
struct json *report_step_json(const struct prediction *prediction);

#endif
