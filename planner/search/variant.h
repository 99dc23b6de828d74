/* variant.h - how many layers of a stage are recomputed: none, the first 1 to L - 1, all; the
 * fastest first. Internal to planner/search. */
#ifndef RANKFIT_PLANNER_SEARCH_VARIANT_H
#define RANKFIT_PLANNER_SEARCH_VARIANT_H

#include "planner/search/space.h"

struct variants {
    int count;
    bool keeps;          /* the first of them recomputes nothing */
    bool all_first;      /* under full recompute: as fixed, or all layers */
    int layers;          /* of the largest stage */
    enum recompute kept; /* what recomputing nothing is called */
    int fixed_layers;    /* what recompute_layers is where no number is wanted */
};

/* Offloaded checkpoints exist under recompute alone. */
void variants_init(const struct space *space, const struct layout *layout, unsigned offload,
                   struct variants *ret);
void variant_set(const struct variants *variants, int index, struct primitives *ret);

#endif
