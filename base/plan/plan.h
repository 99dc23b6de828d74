/* plan.h - a plan: everything a run needs, by value, so that it works from anywhere. The prediction
 * stored beside it in the file belongs to the planner; the executor never reads it. */
#ifndef RANKFIT_BASE_PLAN_PLAN_H
#define RANKFIT_BASE_PLAN_PLAN_H

#include "base/diag.h"
#include "base/hardware/hardware.h"
#include "base/layout/key.h"
#include "base/layout/lengths.h"
#include "base/model/model.h"
#include "base/routing/routing.h"

struct plan {
    struct model model;
    struct hardware hardware;
    int gpus;
    uint64_t seq_tokens;
    struct lengths lengths; /* of packed pieces; none: all sequences have seq_tokens */
    int64_t global_batch;
    struct routing routing;
    double routing_quantile; /* 0.99 */
    char engine[32];         /* "rankfit" */
    struct choices choices;
    uint64_t headroom_bytes, reserve_bytes;
    uint64_t dispatch_bound_rows; /* rows of one layer and micro-batch that a rank has room for */
    char digest[20];              /* of all of the above, 16 hex digits */
};

/* Fills plan->digest: FNV-1a 64 over the canonical JSON of the inputs and choices. -1: out of
 * memory. */
int plan_seal(struct plan *plan, struct diag_list *reterr);

/* The plan's own keys as the plan file holds them (schema, plan_digest, model, hardware, workload,
 * engine, recommended.layout, recommended.primitives); the planner adds its prediction to the same
 * object. */
struct json *plan_to_json(const struct plan *plan);
/* Two of its parts. */
struct json *plan_workload_json(const struct plan *plan);
struct json *plan_engine_json(const struct plan *plan);

/* Reads a plan file back; unknown schema, missing parts, a digest that does not match, or choices
 * that are illegal for the model are errors with positions. Prediction keys are skipped. */
int plan_load(const char *path, struct plan *ret, struct diag_list *reterr);

#endif
