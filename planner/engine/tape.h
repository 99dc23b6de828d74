/* tape.h - the operations of one pass as an eager engine with automatic differentiation executes
 * them, in order: the storages that each makes, the tensors saved for backward, the ends of names.
 * Sizes are bytes of one rank. Knows nothing of models, recompute or allocators. */
#ifndef RANKFIT_PLANNER_ENGINE_TAPE_H
#define RANKFIT_PLANNER_ENGINE_TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TAPE_INPUTS = 4, TAPE_SAVED = 6, TAPE_SCRATCH = 3, TAPE_ALSO = 2 };

/* How the gradient of an input comes about in the backward of an operation. */
enum gradient {
    GRADIENT_NONE,   /* the input needs none */
    GRADIENT_PASSED, /* it is the output's gradient, or a view of it */
    GRADIENT_MADE,   /* a new tensor of the input's size */
    GRADIENT_REDUCED /* a tensor of the output's size is made and summed to the input's size */
};

/* A tensor: its own size, and the storage that it lies in (views share one). */
struct tape_tensor {
    int storage;
    uint64_t bytes;
    bool differs;   /* needs a gradient */
    bool parameter; /* a leaf whose gradient stays until the step ends */
};

struct tape_storage {
    uint64_t bytes;
    bool resident; /* made before the pass and kept beyond it: parameters, inputs */
};

/* Seconds follow from `flops` of matrix units and `traffic` bytes of device memory, forward and
 * backward, in `calls` and `backward_calls` kernels. */
struct tape_work {
    double flops, traffic_bytes, backward_flops, backward_traffic_bytes;
    int calls, backward_calls;
};

enum tape_step_kind { TAPE_RUN, TAPE_RELEASE, TAPE_SEGMENT_BEGIN, TAPE_SEGMENT_END };

/* One line of the tape. RUN: an operation; one that splits has its outputs, `output` and those of
 * `also`, in the storage of its input. RELEASE: the name of `output` goes out of scope.
 * SEGMENT_BEGIN, SEGMENT_END: the region that activation checkpointing recomputes. */
struct tape_step {
    uint8_t kind; /* enum tape_step_kind */
    const char *name;
    bool splits;
    int output, also[TAPE_ALSO];
    int input[TAPE_INPUTS];
    uint8_t gradient[TAPE_INPUTS]; /* enum gradient */
    int mark;                      /* of the tape when the step was appended */
    int saved[TAPE_SAVED], saved_count;
    uint64_t scratch[TAPE_SCRATCH], backward_scratch[TAPE_SCRATCH];
    struct tape_work work;
};

struct tape {
    struct tape_tensor *tensors;
    struct tape_storage *storages;
    struct tape_step *steps;
    int tensor_count, storage_count, step_count;
    int tensor_room, storage_room, step_room;
    int mark;    /* set by the builder: which layer grows; -1: none */
    bool failed; /* no memory: the tape is incomplete */
};

void tape_done(struct tape *tape);

/* A tensor that is there before the pass; a parameter that is trained needs a gradient. */
int tape_resident(struct tape *tape, uint64_t bytes, bool trained);

/* Appends a split of `of` into three views of `bytes` each; their gradients are joined in a new
 * tensor of the size of `of`. */
void tape_split(struct tape *tape, int of, const uint64_t bytes[TAPE_ALSO + 1],
                int ret[TAPE_ALSO + 1]);

/* Appends an operation with a new output of `bytes`; the caller fills the rest through the pointer,
 * which is valid until the next call. Inputs beyond those given are -1. NULL: no memory. */
struct tape_step *tape_run(struct tape *tape, const char *name, uint64_t bytes, int a, int b);

/* The output of the last operation. */
int tape_last(const struct tape *tape);

/* Adds a tensor to those that the last operation saves for its backward. */
void tape_save(struct tape *tape, int tensor);

void tape_release(struct tape *tape, int tensor);
void tape_segment(struct tape *tape, bool begins);

#endif
