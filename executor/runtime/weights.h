/* weights.h - the model's weights from and to safetensors under their Hugging Face names, whatever
 * the layout. Knows which tensors a checkpoint must hold; where values lie is the state's matter.
 * A tensor of all experts of a layer has the experts as its first axis; a checkpoint that has one
 * for each expert and matrix instead is read as well. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_WEIGHTS_H
#define RANKFIT_EXECUTOR_RUNTIME_WEIGHTS_H

#include "base/safetensors/safetensors.h"
#include "executor/runtime/trainer.h"

/* Opens a file, index or directory and compares it with the model: every tensor that is missing,
 * superfluous, of another shape, or neither BF16 nor F32 is an error, all at once. Prediction
 * layers and vision towers, which are not run here, may be there; so may the copy of a tied head.
 * *ret is NULL on failure. */
int weights_open(const char *path, const struct model *model, struct safetensors **ret,
                 struct diag_list *reterr);

/* After trainer_open: master weights are the file's values, weights their bf16, moments zero. */
int weights_load(struct trainer *trainer, const struct safetensors *checkpoint);

/* Writes the bf16 weights of all ranks; called by all, written at rank 0, whole or not at all. */
int weights_save(struct trainer *trainer, const char *path);

#endif
