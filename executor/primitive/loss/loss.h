/* loss.h - from the last layer's output to the loss and back.
 *
 * Contract
 *   What it does: final norm, head, cross entropy over the vocabulary; forward and backward in one
 *   pass, since the loss is the end of the step. Three forms, chosen by the plan's keys:
 *     full        logits [tokens, vocab] of logits_dtype exist once; their gradient takes their
 *                 place.
 *     linear_ce   tiles of min(tokens, loss_tile_tokens) tokens, each with its logits (fp32) and
 *                 their gradient (bf16); whole logits never exist.
 *     linear_ce in strips (vocab_strip > 0)
 *                 tiles as above, each of which visits the vocabulary twice in strips: for the
 *                 log-sum-exp, then for the gradient. One product more, and memory that does not
 *                 grow with the vocabulary.
 *   What it preserves: the loss is the sum over tokens of -log p(target), whatever the form; the
 *   log of the sum of exponentials is fp32 or wider, and so are the sums of both products of the
 *   gradient. The gradient is scaled by 1 / tokens of the step, so that ranks and micro-batches add
 *   up to the mean. A token's loss and gradient do not depend on the tile it falls into, on the
 *   host not on how large tiles are either. bf16 logits round each logit and its gradient to 8
 *   bits; nothing else differs.
 *   Memory bound, T tokens, H hidden, V vocabulary, t = min(T, loss_tile_tokens), w =
 *   vocab_strip: 6 T H bytes (final hidden, normed, its gradient), and
 *     full        T V x bytes of logits_dtype as logits, with fp32 2 t V for a gradient tile;
 *     linear_ce   6 t V;
 *     in strips   6 t w + 4 t H + 4 T.
 *   How it is tested: loss and gradients of each form against the same in double precision, at a
 *   vocabulary of 248,320 too; memory to the byte; one rank against several (tests/unit/executor).
 */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_LOSS_LOSS_H
#define RANKFIT_EXECUTOR_PRIMITIVE_LOSS_LOSS_H

#include "executor/primitive/state/state.h"

/* hidden: the last layer's output, given back. ret_gradient: gradient of it, bf16
 * [tokens, hidden], taken as OWNER_LAYER. The head's unit must be in use, with gradients begun. */
void loss_run(struct state *state, struct micro_batch *batch, struct buffer *hidden,
              struct buffer *ret_gradient);

#endif
