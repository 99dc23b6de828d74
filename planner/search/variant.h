/* variant.h - how many layers of a stage are recomputed: none, the first 1 to L - 1, all; the
 * fastest first. Where they keep attention none is left out: it is what it is without. Internal to
 * planner/search. */
#ifndef RANKFIT_PLANNER_SEARCH_VARIANT_H
#define RANKFIT_PLANNER_SEARCH_VARIANT_H

#include "planner/search/space.h"

struct variants {
    int count;
    bool keeps;            /* the first of them recomputes nothing */
    bool all_first;        /* under full recompute: as fixed, or all layers */
    int layers;            /* of the largest stage */
    enum recompute kept;   /* what recomputing nothing is called */
    int fixed_layers;      /* what recompute_layers is where no number is wanted */
    int keep_attention[2]; /* where nothing is recomputed, and where something is */
};

/* Offloaded checkpoints exist under recompute alone. settings: offload and keep_attention count. */
void variants_init(const struct space *space, const struct layout *layout,
                   const struct settings *settings, struct variants *ret);
void variant_set(const struct variants *variants, int index, struct primitives *ret);

#endif
