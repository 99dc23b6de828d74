/* context.h - softmax attention over sequences that are shared out among the ranks of a cp group.
 *
 * Contract
 *   What it does: gives every rank's queries the keys and values of their whole sequences, and
 *   brings the gradients of those keys and values back to the ranks that hold them. `none`: cp is
 *   1, the rank has them all. `allgather_kv`: rotated keys and values travel packed side by side
 *   and are gathered into sequence order; attention runs once a run of the zig-zag order.
 *   What it preserves: a query's result is that of one rank with the whole sequence, bit for bit.
 *   Gradients of keys and values are summed in fp32, over the calls and then over the group in
 *   member order, and rounded once. The caller's tensors are as without cp: rows of the fused
 *   projection, outputs and their gradients, of this rank's tokens in zig-zag order.
 *   Memory bound: with T local tokens, A = T cp, K the width of keys: beside the caller's tensors
 *   4 T K + 4 A K bytes in the gather, 4 A K in the forward's attention, 12 A K in the backward's,
 *   8 (A + T) K in the sum; all of it `kv_gather`. And the backend's attention workspace.
 *   How it is tested: one rank against cp 2 and 4, alone and with ep and fsdp, several sequences
 *   and micro-batches: loss, hidden states, every gradient (tests/unit/executor). */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_CONTEXT_CONTEXT_H
#define RANKFIT_EXECUTOR_PRIMITIVE_CONTEXT_CONTEXT_H

#include "executor/primitive/work.h"

/* Keys and values that the queries of a rank see, for the time of one attention. */
struct context_keys {
    struct buffer own;      /* rotated keys of this rank's tokens, [tokens, width] */
    struct buffer gathered; /* keys beside values of whole sequences, [A, 2 width] */
    struct buffer sums;     /* their gradients, fp32 [A, 2 width] */
    int64_t width, k_stride, v_stride;
    const bf16 *k, *v;
};

/* a4 and c5, first step. own: takes the caller's buffer over. v: in the fused projection, rows
 * v_stride elements apart. */
void context_collect(struct work *w, const struct micro_batch *batch, struct buffer *own,
                     const bf16 *v, int64_t v_stride, struct context_keys *ret);

/* Attention of this rank's queries: heads, widths, q, o, lse of `shape` as for whole sequences of
 * this rank's tokens; keys and runs are filled in here. */
void context_attend(struct work *w, const struct micro_batch *batch,
                    const struct context_keys *keys, const struct attention *shape);
/* Likewise backward. dk and dv are written where none travelled, and are left in keys->sums where
 * they did; the workspace is taken and given here. */
void context_attend_backward(struct work *w, const struct micro_batch *batch,
                             struct context_keys *keys, const struct attention_gradient *shape);

/* Gives the keys back, not their sums. */
void context_give(struct work *w, struct context_keys *keys);

/* c5, last step: sums go home, rounded into d_kv, rows of keys beside values `stride` elements
 * apart; given back. Nothing where none travelled. */
void context_return(struct work *w, const struct micro_batch *batch, struct context_keys *keys,
                    bf16 *d_kv, int64_t stride);

/* allgather_kv.c */
/* Rows of `width` elements of this rank's tokens into `all`: those of whole sequences, in sequence
 * order. And fp32 rows of whole sequences, summed over the group, to the ranks of their tokens. */
void context_gather_rows(struct work *w, const struct micro_batch *batch, const void *own,
                         int64_t width, uint64_t element_bytes, void *all);
void context_reduce_rows(struct work *w, const struct micro_batch *batch, const void *all,
                         int64_t width, void *own);
void allgather_kv_collect(struct work *w, const struct micro_batch *batch,
                          struct context_keys *keys);
void allgather_kv_return(struct work *w, const struct micro_batch *batch, struct context_keys *keys,
                         bf16 *d_kv, int64_t stride);

#endif
