/* spots.h - the layers of a stage at which a peak can fall. Layers that look alike together with
 * their neighbours differ in nothing but what was kept before them, which grows from layer to
 * layer: only the last of them can be the fullest, forward and backward. Internal to
 * planner/estimate. */
#ifndef RANKFIT_PLANNER_ESTIMATE_SPOTS_H
#define RANKFIT_PLANNER_ESTIMATE_SPOTS_H

#include "planner/budget/budget.h"

enum { CLASSES_MAX = 16, STAGES_MAX = 40, RUNS_MAX = 48 };

/* Layers that no budget and no time can tell apart share a class. */
struct layer_classes {
    int count; /* CLASSES_MAX + 1: too many */
    int layers;
    uint8_t of[MODEL_MAX_LAYERS];
    int layer[CLASSES_MAX]; /* the first of the class */
};
void layer_classes_init(const struct model *model, const struct model_sizes *sizes,
                        struct layer_classes *ret);

/* How many layers of each class are not recomputed, and how many are. */
struct saving_layers {
    uint16_t kept[CLASSES_MAX], again[CLASSES_MAX];
};

struct spot {
    int layer;                   /* from the stage's first */
    struct saving_layers before; /* of its run */
};

struct stage_spots {
    int index, first, layers, run, recomputed; /* run: layers passed at once */
    bool has_embedding, has_head;
    uint16_t classes[CLASSES_MAX]; /* layers of each class */
    uint16_t kept[CLASSES_MAX];    /* of these, not recomputed */
    int count;
    struct saving_layers *in_run; /* of each run */
    struct spot *spots;
};

/* The stages of a pipeline that can be the worst: of stages alike but in their place, the first
 * holds the most micro-batches, and all take the same time. */
struct spots_key {
    int pp, vpp, around, recompute_layers, every, unused;
    int stage_layers[LAYOUT_MAX_STAGES];
};
struct pipeline_spots {
    struct spots_key key;
    int count; /* 0: more than fit here */
    struct stage_spots stages[STAGES_MAX];
    /* spots, then runs: of no more than a model has layers, since stages share none */
    struct spot room[];
};
size_t pipeline_spots_size(int layers);

/* around: units looked ahead of the current one. recompute_layers: first N of each stage, 0: none,
 * RECOMPUTE_ALL_LAYERS: all. every: all layers are spots (where what is kept does not grow). */
void spots_key_init(const struct choices *choices, bool every, struct spots_key *ret);
void pipeline_spots_init(const struct layer_classes *classes, struct pipeline_spots *ret);

#endif
