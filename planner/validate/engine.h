/* engine.h - what an engine of modules under automatic differentiation holds where engine rankfit
 * does otherwise: differences, each with its mechanism and a formula on facts of the model and the
 * layout. What a figure leaves open comes in as an assumption. No constant is fitted. */
#ifndef RANKFIT_PLANNER_VALIDATE_ENGINE_H
#define RANKFIT_PLANNER_VALIDATE_ENGINE_H

#include "planner/report/prediction.h"
#include "planner/validate/layer.h"

enum figure_unit { FIGURE_GB, FIGURE_GIB, FIGURE_UNIT_COUNT };
enum figure_metric { FIGURE_ALLOCATED, FIGURE_DEVICE, FIGURE_METRIC_COUNT };
enum figure_rank { FIGURE_FIRST, FIGURE_FULLEST, FIGURE_RANK_COUNT };
enum shard_weights { SHARDS_FP32, SHARDS_BF16_BESIDE, SHARD_WEIGHTS_COUNT };
enum units_kept { KEPT_SEVERAL_STAGES, KEPT_NEVER, UNITS_KEPT_COUNT };
enum root_unit { ROOT_KEPT, ROOT_GIVEN_BACK, ROOT_UNIT_COUNT };

/* What published figures and engines leave open. */
struct assumptions {
    enum figure_unit unit;
    enum figure_metric metric; /* torch's allocator alone, or all that the device holds */
    enum figure_rank rank;
    enum shard_weights shards; /* FSDP2: fp32 shards are weights and master in one */
    enum units_kept units;     /* FSDP2: gathered units stay where there are several stages */
    enum root_unit root;       /* FSDP2: embedding, head and last norm stay gathered */
    enum dtype unit_gradients; /* FSDP2: of a unit before its reduction */
    /* A layer's experts measured alone, forward and backward, with their weights and bf16
     * gradients, on the same expert group. tokens 0: there is no such measurement. */
    struct {
        double tokens, plain_bytes, chunked_bytes;
    } experts;
};

struct adjustment {
    const char *name, *mechanism;
    char formula[200];
    int64_t bytes;
};
enum { ADJUSTMENTS_MAX = 8 };

/* Engine rankfit's peak and what leads from there to the other engine's, in order. */
struct adjusted {
    uint64_t peak_bytes; /* of engine rankfit, fullest rank, everything on the device */
    int count;
    struct adjustment step[ADJUSTMENTS_MAX];
    uint64_t shared_bytes;         /* the sum: delta nets share the sequence */
    uint64_t whole_bytes;          /* every rank works at the whole sequence in delta nets */
    int64_t experts_bytes;         /* what experts measured alone hold beyond their part of these */
    double seconds, whole_seconds; /* of a step by engine rankfit; with whole sequences in them */
};

/* The plan's sharding says which engine: zero1 Megatron's distributed optimizer, fsdp FSDP2. The
 * plan must recompute every layer, and its peak must fall in the backward of a layer. */
int engine_adjust(const struct prediction *prediction, const struct assumptions *assumptions,
                  struct pos at, struct adjusted *ret, struct diag_list *reterr);

#endif
