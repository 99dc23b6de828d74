/* search_report.h - what `rankfit search`, `sweep` and `grid` say, as text and as rankfit.search/1,
 * rankfit.sweep/1 and rankfit.grid/1. */
#ifndef RANKFIT_PLANNER_REPORT_SEARCH_REPORT_H
#define RANKFIT_PLANNER_REPORT_SEARCH_REPORT_H

#include "base/json.h"
#include "planner/report/prediction.h"
#include "planner/report/text.h"
#include "planner/search/search.h"

struct search_report {
    const struct prediction *prediction; /* of the best, where there is one */
    const struct search_result *result;
    enum objective objective;
    double tokens;                   /* of the training; 0: not said */
    const struct candidate *derived; /* NULL: other GPUs were looked at */
    const struct answer *fewer;      /* why the next fewer GPUs are too few; NULL: not asked */
    double derived_over_best;        /* shortest step over the derived; < 0: unknown */
    int gpus_with_host;              /* fewer GPUs that do where state is in host memory; 0: none */
};
void report_search_text(const struct search_report *report, struct text_style style);
struct json *report_search_json(const struct search_report *report);

/* One pair of a sweep. */
struct sweep_cell {
    int gpus;
    uint64_t seq_tokens, limit_bytes;
    bool legal;
    char fault[400]; /* why it is not legal */
    struct candidate candidate;
};
struct sweep {
    const struct prediction *prediction; /* facts */
    int count;
    const struct sweep_cell *cells;
};
void report_sweep_text(const struct sweep *sweep, struct text_style style);
struct json *report_sweep_json(const struct sweep *sweep);

/* One combination of degrees: the best without and with recompute. */
struct grid_cell {
    int tp, cp, pp, ep;
    bool legal, keeps, recomputes; /* what fits */
    struct candidate kept, recomputed;
};
struct grid {
    const struct prediction *prediction; /* facts, gpus and sequence */
    int count;
    const struct grid_cell *cells; /* tp, cp outer; pp, ep inner */
};
void report_grid_text(const struct grid *grid, struct text_style style);
struct json *report_grid_json(const struct grid *grid);

#endif
