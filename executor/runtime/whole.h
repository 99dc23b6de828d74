/* whole.h - a sharded part of the state as rank 0 sees it whole: the slices of all ranks, gathered
 * through plain host memory, so that the arena's record stays as it is without it. For dumps and
 * for saved weights. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_WHOLE_H
#define RANKFIT_EXECUTOR_RUNTIME_WHOLE_H

#include "executor/primitive/state/state.h"

/* What each rank holds, at rank 0: texts[rank]. Called by all ranks; NULL only without memory. */
char **whole_texts(struct work *w, const void *host, uint64_t bytes);
void whole_texts_free(struct work *w, char **texts);

/* The padded parts of all ep ranks, one after another, at rank 0; NULL elsewhere and on failure.
 * Called by all ranks with their slice (part->slice elements of device memory); freed by the
 * caller. */
void *whole_gather(struct work *w, const struct state_part *part, enum mesh mesh, const void *slice,
                   uint64_t element_bytes);

/* One tensor, or one expert's copy of it, in such a whole. */
struct whole_copy {
    const struct state_tensor *tensor;
    int index; /* of the expert in the model; 0 for others */
    const char *name;
    const void *values;
};

/* Calls visit for every tensor of a unit's part, copy by copy. What is not zero ends the walk and
 * is returned. whole may be NULL: names and places only. */
int whole_each(struct work *w, const struct state_unit *unit, enum mesh mesh, const void *whole,
               uint64_t element_bytes, int (*visit)(void *context, const struct whole_copy *copy),
               void *context);

#endif
