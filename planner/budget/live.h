/* live.h - what is alive on a stage from one moment of a step to the next. Internal to
 * planner/budget. */
#ifndef RANKFIT_PLANNER_BUDGET_LIVE_H
#define RANKFIT_PLANNER_BUDGET_LIVE_H

#include "planner/budget/parts.h"

/* One layer kind for the rows in force, evaluated when first asked for. */
struct live_kind {
    unsigned done; /* bit a mode */
    struct residency mode[RESIDENCY_MODES];
};

struct live {
    const struct timeline_request *r;
    const struct timeline_sink *sink;
    struct timeline_result *ret;
    struct in_flight flight;
    struct residency_shape shape;
    uint64_t received;          /* rows of every layer, unless measured */
    uint64_t rows;              /* received rows that `shape` and `kinds` stand for */
    const uint64_t *chunk_rows; /* likewise, of each chunk */
    struct live_kind kinds[MIXER_COUNT][FFN_COUNT];
    struct live_kind predicted; /* where parts of the trunk are frozen */
    struct residency_half halves[RESIDENCY_HALVES];
    uint64_t window[MAX_USES]; /* gathered bytes alive while a use of a unit is current */
    int uses, use;
    uint64_t now[ITEM_COUNT];    /* alive throughout the phase */
    uint64_t more[ITEM_COUNT];   /* the item alone: how much more beside another pass of the run */
    uint64_t steady;             /* sum of the items that do not change from layer to layer */
    uint64_t saved_before;       /* bytes saved by the layers of the run before the current one */
    uint64_t pending;            /* two streams: gradient buffers of the unit before */
    uint64_t host_state;         /* optimizer state on the host */
    bool passes_alone;           /* a forward without a backward: nothing is kept */
    int order, peak_order;       /* of the current pass in the step, and of that with the peak */
    const struct beside *beside; /* what is beside the current pass */
    struct beside passes[MODEL_MAX_LAYERS][WAYS]; /* the fullest of each run */
};

/* What is there all the time; sink: told of phases, or NULL. */
void live_open(struct live *w, const struct timeline_request *request,
               const struct timeline_sink *sink);
/* Nothing seen yet, with so many rows received. */
void live_begin(struct live *w, uint64_t received, struct timeline_result *ret);

/* An item's own maximum is so many at least. */
void live_raise(struct live *w, enum item item, uint64_t bytes);
/* To be called when an item changed that is not moving from layer to layer. */
void live_settle(struct live *w);
/* A phase whose only tensors are those in `now`. */
void live_observe(struct live *w, const struct phase *phase);
/* A phase inside a layer: the table's fullest step on top of `now`. `output`: the item that the
 * layer's output belongs to; ITEM_COUNT: it is counted already. */
void live_observe_layer(struct live *w, const struct phase *phase, const struct residency *table,
                        enum item output);

/* Tables of the stage's layer, and of a trained prediction layer, for the rows in force. */
const struct residency *live_layer(struct live *w, int layer, enum residency_mode mode);
const struct residency *live_predicted(struct live *w, enum residency_mode mode);

/* The window of the next use in order; past the end nothing is gathered. */
void live_next_use(struct live *w);
/* The layer's place in the run of layers that is passed at once. */
int live_place_in_run(const struct live *w, int layer);
/* Whose the output of the stage's layer is; ITEM_COUNT: it is in a transfer. */
enum item live_output_item(const struct stage *s, int layer);

#endif
