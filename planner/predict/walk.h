/* walk.h - the phases of one step on one stage, in order: what lives in each, where the peak falls,
 * every item's own maximum. A phase is a constant part (state, checkpoints, units) and, in a layer,
 * the points of the layer's pass. Only those layers are visited at which a peak can fall, unless
 * somebody listens to every phase. */
#ifndef RANKFIT_PLANNER_PREDICT_WALK_H
#define RANKFIT_PLANNER_PREDICT_WALK_H

#include "planner/predict/shared.h"

struct walk_result {
    uint64_t item[ITEM_COUNT], max[ITEM_COUNT]; /* live at the peak; each item's own maximum */
    uint64_t peak, host_bytes;
    struct phase phase;
};

struct walk_sink {
    void *context;
    void (*phase)(void *context, const struct phase *phase, uint64_t bytes);
};

/* Rows that a measured rank received in the layers of a stage. chunks: of each chunk, NULL where
 * that is not known. */
struct measured_layers {
    uint64_t fullest; /* of all layers */
    uint64_t rows[MODEL_MAX_LAYERS];
    const uint64_t *chunks[MODEL_MAX_LAYERS];
};

struct walk_request {
    struct predictor *predictor; /* its choices are the layout's */
    int stage;
    enum detail detail; /* with which the stages were listed, where no layers are asked for */
    int group;          /* expert-parallel coordinate whose rows are received; -1: the fullest's */
    int rows;           /* ROWS_POINT or ROWS_HIGH */
    bool peak_only;     /* without the items' own maxima */
    const struct measured_layers *measured; /* NULL: the profile */
    const struct walk_sink *sink;           /* NULL: nobody listens */
};

/* A whole step. */
void walk_stage(const struct walk_request *request, struct walk_result *ret);
/* What packing may add to a peak: a modelled share of what comes and goes. */
uint64_t walk_doubt_bytes(const struct walk_result *result);

/* What layers save for backward, counted by class. */
uint64_t layers_saved(struct predictor *predictor, struct body *body, int rows,
                      const struct saving_layers *layers);

/* A forward alone, of one micro-batch, for log-probabilities: no layer saves, and of layer inputs
 * only the current one's is there. */
void walk_forward_alone(const struct walk_request *request, struct walk_result *ret);

#endif
