/* layer.h - a layer of two halves under given conditions, pass by pass: which operations run, which
 * tensors are saved, and from where to where each tensor lives. Sizes are not known here, so one
 * result serves every layout of the same structure. */
#ifndef RANKFIT_PLANNER_STEP_LAYER_H
#define RANKFIT_PLANNER_STEP_LAYER_H

#include "planner/step/step.h"

enum step_mode {
    MODE_FORWARD,        /* of a layer that is recomputed: saves what is kept all the same */
    MODE_RECOMPUTE,      /* the forward again, as far as backward needs it */
    MODE_BACKWARD,       /* after a recompute */
    MODE_FORWARD_SAVED,  /* of a layer that is not recomputed */
    MODE_BACKWARD_SAVED, /* after it */
    MODE_COUNT
};

/* What decides a layer's structure. when: enum step_condition. */
struct step_kind {
    const struct step_list *mixer, *ffn;
    enum step_schedule schedule;
    int delay; /* chunks that weight gradients wait */
    uint32_t when;
    unsigned trained, adapted; /* bit i: enum component i */
};

/* A point of a pass: a zone, a point in it, and in the chunks' zone which chunk, counted from the
 * tensor's own, or from the first or the last one where the tensor is not a chunk's. */
struct step_place {
    uint8_t zone, point;
    int8_t chunk;
    bool late; /* `delay` chunks later, at most with the last */
};

/* From where to where, both included. */
struct step_life {
    const struct step_tensor *tensor; /* NULL: what an adapter works with */
    uint8_t rows, width, bytes;       /* an adapter's width: how many matrices */
    uint8_t item;                     /* enum item */
    bool each_chunk;                  /* one for each chunk */
    bool kept;                        /* saved for backward */
    bool output;                      /* the layer's output */
    struct step_place made, last;
};

enum { STEP_LIVES = 128, STEP_SEQUENCE = 128 };

struct step_pass {
    int count;
    int points[ZONE_COUNT]; /* of one chunk in the chunks' zone */
    struct step_life lives[STEP_LIVES];
};

/* Operations of a pass in their plain order, each for all rows. */
struct step_sequence {
    int count;
    struct {
        const struct step_op *op, *of; /* of: the GEMM that op is a gradient of, or NULL */
    } ops[STEP_SEQUENCE];
};

struct step_layer {
    struct step_pass pass[MODE_COUNT];
    /* nested: what the backward of a layer makes again in every schedule, saved or not. */
    struct step_sequence forward, recompute, backward, nested;
};

void step_layer_init(const struct step_kind *kind, struct step_layer *ret);

#endif
