/* transformer.h - a micro-batch through the whole model and back: embedding, layers, loss, layers,
 * embedding. Fetches units and recomputes layers as the plan says. */
#ifndef RANKFIT_EXECUTOR_NN_TRANSFORMER_H
#define RANKFIT_EXECUTOR_NN_TRANSFORMER_H

#include "executor/nn/layer.h"

struct transformer {
    struct state *state;
    int layers;
    struct layer_saved *saved; /* of each layer */
    struct buffer hidden;      /* the last layer's output, between forward and loss */
    struct buffer gradient;    /* of the residual stream */
};

int transformer_open(struct transformer *t, struct state *state);
void transformer_close(struct transformer *t);

/* The three parts of a micro-batch, in this order. The batch's ids and targets are taken and given
 * by the caller. */
void transformer_forward(struct transformer *t, struct micro_batch *batch);
void transformer_loss(struct transformer *t, struct micro_batch *batch);
void transformer_backward(struct transformer *t, struct micro_batch *batch);

#endif
