/* budget.h - what every rank holds, item by item, and when its peak falls. Closed form: the lists of
 * planner/step folded over the phases of one step; cost independent of sequence length and
 * data-parallel width. No files, no printing, no search. */
#ifndef RANKFIT_PLANNER_PREDICT_BUDGET_H
#define RANKFIT_PLANNER_PREDICT_BUDGET_H

#include "base/item.h"
#include "base/layout/rows.h"
#include "base/model/tensor.h"
#include "base/plan/measurement.h"
#include "base/routing/routing.h"

#include <stddef.h>

enum phase_kind {
    PHASE_START,
    PHASE_FORWARD,
    PHASE_LOSS,
    PHASE_BACKWARD,
    PHASE_REDUCE,
    PHASE_OPTIMIZER,
    PHASE_COUNT
};
extern const char *const phase_kind_names[PHASE_COUNT];

/* layer -1: none; the embedding's own phases have layer -1 as well. */
struct phase {
    enum phase_kind kind;
    int stage, micro_batch, layer;
};

enum basis { BASIS_ARITHMETIC, BASIS_MEASURED, BASIS_ASSUMED };
extern const char *const basis_names[];

/* One tensor of a layer; of experts one copy of it. */
struct layer_tensor {
    uint8_t component; /* enum component */
    int8_t tp_axis;
    bool expert, matmul, matrix; /* expert: of MESH_EXPERT */
    uint64_t rows, cols, copies; /* rows: of the first axis */
};
enum { LAYER_TENSORS_MAX = 32 };
struct layer_tensors {
    int count;
    struct layer_tensor items[LAYER_TENSORS_MAX];
};

/* Sizes that depend on the model alone, taken from the tensor table once and shared by every layout
 * tried. */
struct model_sizes {
    uint64_t embedding_params, head_params; /* head with the final norm; tied: the norm only */
    uint64_t layer_dense_params[MODEL_MAX_LAYERS];     /* tensors of MESH_DENSE in one layer */
    uint64_t layer_dense_replicated[MODEL_MAX_LAYERS]; /* of these, not divided by tp */
    uint64_t layer_expert_params[MODEL_MAX_LAYERS];    /* all experts of one layer */
    uint64_t layer_expert_whole[MODEL_MAX_LAYERS];     /* of these, not divided by etp */
    uint64_t mtp_dense_replicated, mtp_expert_whole;
    uint64_t mtp_dense_params, mtp_expert_params, vision_params, /* 0 when not trained */
        frozen_params; /* held without gradients and optimizer state */
    struct model_counts counts;
    struct layer_tensors tensors[MIXER_COUNT][FFN_COUNT]; /* of the kinds that there are */
    uint16_t indexers_before[MODEL_MAX_LAYERS + 1]; /* layers below with an indexer of their own */
    uint16_t experts_before[MODEL_MAX_LAYERS + 1];  /* ... with experts */
};
void model_sizes_init(struct model_sizes *ret, const struct model *model);

struct engine_methods; /* methods.h */

struct budget_input {
    const struct model *model;
    const struct model_sizes *sizes;
    const struct hardware *hardware;
    const struct choices *choices;
    int gpus;
    uint64_t seq_tokens;
    struct routing routing;
    double routing_quantile;
    const struct lengths *lengths; /* of packed pieces; NULL: all sequences have seq_tokens */
    const struct measured_rank
        *measured; /* judge at these routed rows instead; NULL: the profile */
    bool slowest;  /* seconds at the upper end of their range: see predictor_open_slowest */
    const struct engine_methods *engine; /* NULL: engine rankfit */
};

struct rank_budget {
    int rank; /* lowest of the group */
    int stage;
    int ep_coordinate;
    uint64_t routed_rows, routed_rows_upper; /* a layer and micro-batch, of the fullest layer */
    uint64_t item_bytes[ITEM_COUNT];         /* live at peak_phase */
    uint64_t item_max_bytes[ITEM_COUNT];     /* own maximum over the step */
    uint64_t category_bytes[CATEGORY_COUNT]; /* live at peak_phase; they sum to peak_bytes */
    uint64_t arena_bytes;                    /* live arena items at peak_phase */
    uint64_t peak_bytes, peak_upper_bytes, host_bytes;
    struct phase peak_phase;
};

/* One group of ranks whose budgets are equal: same stage, same routed rows. */
enum { BUDGET_MAX_GROUPS = 256 };
struct budget {
    int count;
    struct rank_budget groups[BUDGET_MAX_GROUPS];
    int worst;                    /* index of the largest peak_upper_bytes */
    uint64_t dispatch_bound_rows; /* what the executor's routed tensors get room for */
};

/* Of the layout that the predictor was told to look at. */
struct predictor;

/* The whole answer. Never fails; a size beyond 64 bits shows as UINT64_MAX. */
void budget_compute(struct predictor *predictor, struct budget *ret);

/* The fullest group only: fills *ret as one group would be. */
void budget_worst(struct predictor *predictor, struct rank_budget *ret);

/* Which group a rank belongs to, and all ranks of a group as "0-7,16-23". */
int budget_group_of(const struct budget_input *in, const struct budget *budget, int rank);
void budget_group_ranks(const struct budget_input *in, const struct budget *budget, int group,
                        char *ret, size_t size);

/* Live bytes of one group at every phase of the step (first and last micro-batch; all layers). */
struct phase_bytes {
    struct phase phase;
    uint64_t bytes;
};
size_t budget_phases(struct predictor *predictor, int stage, struct phase_bytes *ret, size_t room);

/* The item's formula with its numbers put in, and where it comes from. */
void budget_formula(struct predictor *predictor, const struct rank_budget *rank, enum item item,
                    char *ret, size_t size);
enum basis budget_basis(const struct budget_input *in, enum item item);

/* "backward of layer 39, micro-batch 0" */
void phase_format(const struct phase *phase, char *ret, size_t size);

#endif
