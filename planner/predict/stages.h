/* stages.h - the stages of a pipeline, their layers counted by class, and those layers of each at
 * which a peak can fall. Layers that look alike together with their neighbours differ in nothing
 * but what was saved before them, which grows from layer to layer: only the last of them can be the
 * fullest, forward and backward. */
#ifndef RANKFIT_PLANNER_PREDICT_STAGES_H
#define RANKFIT_PLANNER_PREDICT_STAGES_H

#include "planner/predict/budget.h"

enum { CLASSES_MAX = 16 };

/* Layers that no budget and no time can tell apart share a class. */
struct layer_classes {
    int count;
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

/* A layer at which a peak can fall. */
struct spot {
    int layer;                   /* from the stage's first */
    struct saving_layers before; /* of its run */
};

struct stage {
    int index, first, layers, run, recomputed; /* run: layers passed at once */
    bool has_embedding, has_head;
    uint16_t classes[CLASSES_MAX]; /* layers of each class */
    uint16_t kept[CLASSES_MAX];    /* of these, not recomputed */
    int count;
    struct saving_layers *in_run; /* of each run */
    struct spot *spots;
};

/* Which stages and layers are listed. Of stages alike but in their place the first holds the most
 * micro-batches, and all take the same time: worst alone lists it for them. */
enum detail { DETAIL_WORST, DETAIL_STAGES, DETAIL_LAYERS, DETAIL_COUNT };

struct pipeline_key {
    int pp, vpp, around, recompute_layers;
    int all_stages, all_layers; /* listed, whether or not they can be the worst */
    int stage_layers[LAYOUT_MAX_STAGES];
};
struct pipeline {
    struct pipeline_key key;
    int count;
    struct stage stages[LAYOUT_MAX_STAGES];
    /* spots, then runs: of no more than a model has layers, since stages share none */
    struct spot room[];
};
size_t pipeline_size(int layers);

/* around: units looked ahead of the current one. recompute_layers: first N of each stage, 0: none,
 * RECOMPUTE_ALL_LAYERS: all. Where checkpoints leave the device what is there does not grow, and
 * all layers are listed. */
void pipeline_key_init(const struct choices *choices, enum detail detail, struct pipeline_key *ret);
void pipeline_init(const struct layer_classes *classes, struct pipeline *ret);

#endif
