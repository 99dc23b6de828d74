/* shared.h - what many layouts have in common, each with the choices that it depends on as its key.
 * A key holds all primitives but those known not to matter, so that a new one is part of it until
 * it is known. Internal to the planner's estimator. */
#ifndef RANKFIT_PLANNER_ESTIMATE_SHARED_H
#define RANKFIT_PLANNER_ESTIMATE_SHARED_H

#include "planner/budget/parts.h"
#include "planner/estimate/estimator.h"
#include "planner/estimate/memo.h"
#include "planner/estimate/spots.h"
#include "planner/time/stage.h"

enum { ROWS_POINT, ROWS_HIGH, ROW_SETS };

/* The fullest step of one layer kind in one mode. */
struct kind_peak {
    uint64_t peak, workspace;      /* of all owners; of this one, at that step */
    uint64_t bare, bare_workspace; /* the same without the output */
    uint64_t kept;
};

/* Layers of one micro-batch: what does not depend on how state is sharded nor on the pipeline. */
struct body_key {
    int tp, cp, ep, etp, micro_batch, unused;
    uint64_t pieces; /* packed into the fullest micro-batch */
    struct primitives primitives;
};
struct body {
    struct body_key key;
    uint64_t rows[ROW_SETS]; /* received: the point estimate; what the upper estimate is made for */
    uint64_t checkpoint, inputs;
    uint8_t done[ROW_SETS][MIXER_COUNT][FFN_COUNT]; /* bit a mode */
    uint8_t predicted_done[ROW_SETS];               /* likewise, where parts are frozen */
    uint8_t timed[DTYPE_COUNT];                     /* by the dtype of gradients */
    struct residency_half halves[ROW_SETS][RESIDENCY_HALVES];
    /* Filled where `done` and `timed` say so; a new entry is not zeroed from here on. */
    struct kind_peak kinds[ROW_SETS][MIXER_COUNT][FFN_COUNT][RESIDENCY_MODES];
    struct kind_peak predicted[ROW_SETS][RESIDENCY_MODES];
    struct kind_seconds seconds[DTYPE_COUNT][MIXER_COUNT][FFN_COUNT];
    struct kind_seconds predicted_seconds[DTYPE_COUNT];
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

struct estimator {
    struct budget_input in; /* choices: those being estimated */
    struct machine machine;
    struct layer_classes classes;
    struct memo bodies, units, links, losses, spots;
};

struct body *shared_body(struct estimator *e);
const struct kind_peak *shared_kind(struct estimator *e, struct body *body, int rows, int layer,
                                    enum residency_mode mode);
/* Of that layer as if it were its mixer alone. */
const struct kind_peak *shared_mixer(struct estimator *e, struct body *body, int rows, int layer,
                                     enum residency_mode mode);
/* Of a trained prediction layer. */
const struct kind_peak *shared_predicted(struct estimator *e, struct body *body, int rows,
                                         enum residency_mode mode);
struct units *shared_units(struct estimator *e);
uint64_t shared_links(struct estimator *e);
const struct loss_shared *shared_loss(struct estimator *e);
const struct pipeline_spots *shared_spots(struct estimator *e);

/* peak.c - the fullest phase of one stage. */
struct stage_parts {
    struct estimator *e;
    struct body *body;
    struct units *units;
    const struct stage_spots *stage;
    const struct loss_bytes *loss; /* NULL without a head */
    struct in_flight flight;
    uint64_t links;
    uint64_t fixed;    /* state, communicators, runtime: there in every phase */
    uint64_t pipeline; /* transfers between stages */
};
struct stage_peak {
    uint64_t bytes;
    uint64_t moving; /* of these, dynamic and logits */
};
/* Inputs and what layers saved while the last run of layers is at work, of all in flight: forward
 * and backward without what the last layer saves; in the loss. */
struct stage_held {
    uint64_t forward, backward, loss;
};
void stage_held_find(const struct stage_parts *parts, int rows, struct stage_held *ret);
void stage_peak_find(const struct stage_parts *parts, int rows, struct stage_peak *ret);

/* seconds.c - what step_time.c has of the model's layers, from what is shared. */
void shared_terms(struct estimator *e, struct body *body, const struct units *units,
                  const struct loss_shared *loss, struct step_terms *ret);
double stage_layer_seconds(struct estimator *e, struct body *body, const struct stage_spots *stage,
                           bool replays, double exchange);
void stage_sums_of(const struct estimator *e, const struct units *units,
                   const struct stage_spots *stage, struct stage_sums *ret);

#endif
