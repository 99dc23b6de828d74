/* shared.h - what many layouts have in common, each with the choices that it depends on as its key.
 * A key holds all primitives but those known not to matter, so that a new one is part of it until
 * it is known. Internal to planner/predict. */
#ifndef RANKFIT_PLANNER_PREDICT_SHARED_H
#define RANKFIT_PLANNER_PREDICT_SHARED_H

#include "planner/predict/memo.h"
#include "planner/predict/parts.h"
#include "planner/predict/predictor.h"
#include "planner/predict/stage_time.h"
#include "planner/predict/stages.h"

enum { ROWS_POINT, ROWS_HIGH, ROW_SETS };

/* One kind of layer in all modes. */
struct kind_bytes {
    struct layer_bytes mode[MODE_COUNT];
};

/* Kinds of layers that a body remembers: the model's classes, the same as mixers alone, and the
 * trained prediction layer. */
enum { KINDS_MAX = 2 * CLASSES_MAX + 1 };

/* Layers of one micro-batch: what does not depend on how state is sharded nor on the pipeline. */
struct body_key {
    int tp, cp, ep, etp, micro_batch, group;
    uint64_t pieces; /* packed into the fullest micro-batch */
    struct primitives primitives;
};
struct body {
    struct body_key key;
    uint64_t rows[ROW_SETS]; /* received: the point estimate; what the upper estimate is made for */
    uint64_t checkpoint, inputs;
    uint8_t known[ROW_SETS][KINDS_MAX];
    uint8_t timed[DTYPE_COUNT]; /* by the dtype of gradients */
    /* Room behind the structure, not zeroed: [ROW_SETS][kinds] and [DTYPE_COUNT][classes + 1]. */
    struct kind_bytes *bytes;
    struct kind_seconds *seconds;
};

/* State: units of each class, of embedding and head, and what the ends of the pipeline add. */
struct units_key {
    int tp, ep, etp, dense_shards, expert_shards, single;
    struct primitives primitives;
};
struct unit_shared {
    struct unit unit;
    uint64_t gathered, receive;
    struct unit_seconds seconds;
    struct unit_gradient gradient;
    uint64_t state[ITEM_COUNT]; /* weights, master, moments, gradients */
};
struct units {
    struct units_key key;
    struct unit_shared layer[CLASSES_MAX], embedding, head, prediction, first_extra, last_extra;
    struct muon_bytes muon[CLASSES_MAX]; /* these two under Muon alone; not zeroed */
    struct muon_unit muon_seconds[CLASSES_MAX];
};

struct links_key {
    int degrees[10];
    struct primitives primitives;
};
struct links {
    struct links_key key;
    uint64_t bytes;
};

struct loss_key {
    int tp, cp, micro_batch, unused;
    struct primitives primitives;
};
struct loss_shared {
    struct loss_key key;
    struct loss_bytes bytes;
    struct pass pass;
    double logprob; /* seconds of the head without gradients */
};

/* The lists of a kind of layer under its conditions. */
struct structure {
    struct step_kind key;
    struct step_layer layer;
};

/* Parts of the layout being predicted that were looked up already; NULL: not yet. */
struct current_parts {
    struct body *body; /* of the fullest ranks */
    const struct units *units;
    const struct links *links;
    const struct loss_shared *loss;
    const struct pipeline *pipeline[DETAIL_COUNT];
};

struct predictor {
    struct budget_input in; /* choices: those being predicted */
    struct hardware hides_nothing; /* that of `in` where its seconds are the slowest */
    struct current_parts current;
    struct machine machine;
    struct layer_classes classes;
    struct memo bodies, units, links, losses, pipelines, structures;
    struct beside passes[MODEL_MAX_LAYERS][WAYS]; /* of the walk at work */
};

/* Kinds of which a body has bytes. */
static inline int body_kinds(const struct predictor *p)
{
    return 2 * p->classes.count + 1;
}
size_t body_size(const struct predictor *p);

/* group: the expert-parallel coordinate whose rows are received; -1: the fullest's. */
struct body *shared_body(struct predictor *p, int group);
/* Which kind of a body: a layer of the model, its mixer alone, a trained MTP layer. */
static inline int kind_of_layer(const struct predictor *p, int layer)
{
    return p->classes.of[layer];
}
static inline int kind_of_mixer(const struct predictor *p, int layer)
{
    return p->classes.count + p->classes.of[layer];
}
static inline int kind_of_prediction(const struct predictor *p)
{
    return 2 * p->classes.count;
}
void body_learn(struct predictor *p, struct body *body, int rows, int kind);
static inline const struct layer_bytes *shared_bytes(struct predictor *p, struct body *body,
                                                     int rows, int kind, enum step_mode mode)
{
    if (!body->known[rows][kind])
        body_learn(p, body, rows, kind);
    return &body->bytes[rows * body_kinds(p) + kind].mode[mode];
}
/* The same, of rows received in one layer and, unless NULL, in each of its chunks. */
void measured_bytes(struct predictor *p, int kind, uint64_t received, const uint64_t *chunks,
                    enum step_mode mode, struct layer_bytes *ret);
/* Seconds of the classes, and behind them of a trained MTP layer. */
const struct kind_seconds *shared_seconds(struct predictor *p, struct body *body);
/* The same, at so many rows received. */
void seconds_at(struct predictor *p, uint64_t received, struct kind_seconds *ret);
const struct step_layer *shared_layer(struct predictor *p, const struct budget_input *in,
                                      enum mixer mixer, enum ffn ffn);
const struct units *shared_units(struct predictor *p);
uint64_t shared_links(struct predictor *p);
const struct loss_shared *shared_loss(struct predictor *p);
const struct pipeline *shared_pipeline(struct predictor *p, enum detail detail);

/* The stage of that index. */
const struct stage *stage_at(struct predictor *p, int index);
/* What Muon needs at the end of the step for a stage's matrices; nothing under another optimizer.
 */
struct muon_bytes stage_muon_bytes(const struct predictor *p, const struct units *units,
                                   const struct stage *stage);
/* The most weights of any unit that a forward of the stage passes. */
uint64_t stage_largest_weights(const struct predictor *p, const struct units *units,
                               const struct stage *stage);

/* Adds to items what is there in every phase of a stage, but for communicators and transfers;
 * returns what the host holds instead. */
uint64_t stage_items(struct predictor *p, const struct stage *stage, const struct units *units,
                     uint64_t *items);
/* The unit of what a stage holds in addition to its layers and ends; of no bytes where there is
 * nothing. */
const struct unit_shared *stage_extra(const struct units *units, const struct stage *stage);

#endif
