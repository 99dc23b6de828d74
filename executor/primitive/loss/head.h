/* head.h - what the forms of the loss share: the head's matrix, the normed hidden states and the
 * gradient that a form fills. Within loss/ only. */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_LOSS_HEAD_H
#define RANKFIT_EXECUTOR_PRIMITIVE_LOSS_HEAD_H

#include "executor/primitive/linear.h"
#include "executor/primitive/loss/loss.h"

struct head {
    struct state *state;
    struct micro_batch *batch;
    int64_t hidden, vocab;
    int unit; /* of the output matrix */
    enum role role;
    struct buffer normed, d_normed;
};

/* Tokens [first, first + rows) against vocabulary entries [entry, entry + width). */
struct head_block {
    int64_t first, rows, entry, width;
};

/* Calls `run` for tiles of at most loss_tile_tokens tokens, one after another. */
void head_tiles(struct head *head, void *context,
                void (*run)(struct head *head, const struct head_block *tile, void *context));
/* Rows of a tile: that many tokens, or all there are. */
int64_t head_tile_rows(const struct head *head);

/* logits [rows, width] of `type` = normed x head. */
void head_logits(const struct head *head, const struct head_block *block, enum dtype type,
                 void *logits);
/* d_logits bf16 [rows, width]: into `to`, gradient of normed [rows, hidden] of `type`, added to
 * when `accumulate`; and added to the gradient of the head. */
void head_backward(const struct head *head, const struct head_block *block, const bf16 *d_logits,
                   enum dtype type, void *to, bool accumulate);

/* Rows from token `first` on of normed's gradient, and their targets. */
void *head_gradient_rows(const struct head *head, int64_t first);
const int32_t *head_targets(const struct head *head, int64_t first);

/* The forms: loss_sum and d_normed. */
void loss_full(struct head *head);
void loss_linear_ce(struct head *head);
void loss_strips(struct head *head);

#endif
