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
    int *instance;     /* by storage: its object, or -1 */
    int *gradient;     /* by tensor: the object of its gradient, or -1 */
    bool *named;       /* by storage: its name is in scope */
    struct object *objects;
    int object_count, object_room, free_object;
    uint64_t allocated_after_forward_bytes;
    bool failed; /* the planner has no memory */
};

/* 0, or -1: the planner has no memory. `tape` and `allocator` outlive the player. */
int autograd_init(struct autograd *autograd, const struct tape *tape, struct allocator *allocator,
                  bool checkpointed);
void autograd_done(struct autograd *autograd);

/* Forward and backward of one micro-batch; the gradients of parameters stay, summed. The last
 * operation's output is the loss. */
int autograd_pass(struct autograd *autograd);

/* Gives the gradients of all parameters back. */
void autograd_zero(struct autograd *autograd);

#endif
