/* loss.h - from the last layer's output to the loss and back.
 *
 * Contract
 *   What it does: final norm, head, cross entropy over the vocabulary; forward and backward in one
 *   pass, since the loss is the end of the step.
 *   What it preserves: the loss is the sum over tokens of -log p(target), whatever the tiling; its
 *   gradient is scaled by 1 / tokens of the step, so that ranks and micro-batches add up to the
 * mean. Memory bound: linear_ce: 6 bytes a token and hidden element (final hidden, normed, its
 *   gradient) and 6 bytes a logit of one tile of min(tokens, 512) rows; whole logits never exist.
 *   How it is tested: loss and gradients against a second implementation in double precision, and
 *   one rank against several (tests/unit/executor). */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_LOSS_LOSS_H
#define RANKFIT_EXECUTOR_PRIMITIVE_LOSS_LOSS_H

#include "executor/primitive/state/state.h"

/* hidden: the last layer's output, given back. ret_gradient: gradient of it, bf16
 * [tokens, hidden], taken as OWNER_LAYER. The head's unit must be in use, with gradients begun. */
void loss_linear_ce(struct state *state, struct micro_batch *batch, struct buffer *hidden,
                    struct buffer *ret_gradient);

#endif
