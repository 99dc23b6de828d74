/* autograd.h - plays a tape as PyTorch's engine does: storages live by reference counts (names in
 * scope, tensors saved for backward, gradients under way), the backward goes through the operations
 * in reverse, checkpointed segments are recomputed before their backward. Every storage comes from
 * a caching allocator, so that allocated and reserved bytes follow from the order alone. Sources:
 * torch/csrc/autograd/engine.cpp, input_buffer.cpp, functions/accumulate_grad.h,
 * torch/utils/checkpoint.py (release 2.11). Knows nothing of models. */
#ifndef RANKFIT_PLANNER_ENGINE_AUTOGRAD_H
#define RANKFIT_PLANNER_ENGINE_AUTOGRAD_H

#include "planner/engine/allocator.h"
#include "planner/engine/tape.h"

/* A storage while it lives. */
struct object {
    int block, references;
};

struct autograd {
    const struct tape *tape;
    struct allocator *allocator;
    bool checkpointed; /* segments save their inputs alone and are recomputed */
    bool reentrant;    /* the whole segment is, not up to its last saved tensor alone */
    int *instance;     /* by storage: its object, or -1 */
    int *gradient;     /* by tensor: the object of its gradient, or -1 */
    bool *named;       /* by storage: its name is in scope */
    struct object *objects;
    int object_count, object_room, free_object;
    bool in_backward;
    int peak_mark;         /* of the step at which the allocator's peak last rose */
    bool peak_in_backward; /* ... and in which half */
    bool peaked;           /* it rose while this player worked */
    bool failed;           /* the planner has no memory */
};

/* 0, or -1: the planner has no memory. `tape` and `allocator` outlive the player. */
int autograd_init(struct autograd *autograd, const struct tape *tape, struct allocator *allocator,
                  bool checkpointed);
void autograd_done(struct autograd *autograd);

/* The halves of one micro-batch; those under way at a time have a player each. The backward begins
 * at the output of the last operation; gradients of parameters stay, summed. -1: the planner has
 * no memory. */
int autograd_forward(struct autograd *autograd);
int autograd_backward(struct autograd *autograd);

/* Gives the gradients of all parameters back. */
void autograd_zero(struct autograd *autograd);

#endif
