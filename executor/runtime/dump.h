/* dump.h - every gradient tensor of a step, summed over ranks and not yet clipped, and the normed
 * final hidden state of every token, whole at rank 0 under their Hugging Face names. For comparing
 * layouts and frameworks. Gathered through plain host memory, so that the arena's record stays as
 * it is without a dump. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_DUMP_H
#define RANKFIT_EXECUTOR_RUNTIME_DUMP_H

#include "executor/runtime/trainer.h"

struct dump_tensor {
    char name[128];
    int axes;
    uint64_t shape[4];
    uint64_t elements;
    float *values;
};

/* A zeroed dump is valid and empty. */
struct dump {
    size_t count, room;
    struct dump_tensor *tensors;
};

/* The name of the hidden states' tensor, [tokens of the step, hidden]. */
extern const char dump_hidden_name[];

/* Called by all ranks when gradients are summed (trainer->on_gradients); filled at rank 0. */
int dump_gradients(struct trainer *trainer, struct dump *ret);
/* After the step, with trainer_keep_hidden before it. */
int dump_hidden(struct trainer *trainer, struct dump *ret);
const struct dump_tensor *dump_find(const struct dump *dump, const char *name);
void dump_done(struct dump *dump);

/* Writes a safetensors file (fp32), whole or not at all. */
int dump_write(const struct dump *dump, const char *path, struct diag_list *reterr);

#endif
