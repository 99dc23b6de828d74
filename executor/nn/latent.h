/* latent.h - parts that both forms of MLA share: keys and values expanded from this rank's tokens
 * (latent.c), or a block of heads at a time from those of a context group (latent_gather.c). */
#ifndef RANKFIT_EXECUTOR_NN_LATENT_H
#define RANKFIT_EXECUTOR_NN_LATENT_H

#include "executor/nn/layer.h"

/* Tensors of the forward that the backward reads. kv: empty where keys and values are gathered. */
struct latent_saved {
    struct buffer ql, latent, q, kv, o, lse;
};

struct latent_widths {
    int heads;
    int64_t hidden, query_latent, latent, rope, nope, value;
    int64_t head;            /* of a query or key */
    int64_t down;            /* compressed keys and values, and the shared part of keys */
    int64_t key, query, out; /* of all heads: keys, queries, values */
    int64_t pair, expanded;  /* own part of a key and a value, of one head and of all */
};

struct latent_widths latent_widths(const struct layer_call *call);

static inline struct latent_saved *latent_saved(const struct layer_call *call)
{
    return call->saved->mixer;
}

/* Columns from `first` of a tensor of bf16. */
static inline bf16 *latent_columns(const struct buffer *tensor, int64_t first)
{
    return element_at(tensor->data, (uint64_t)first, sizeof(bf16));
}

/* The norm of compressed keys and values, into dense rows of `to` where there is one. */
struct column_norm latent_norm(const struct layer_call *call, struct buffer *to);

/* Turns queries, or the part of keys that all heads share; back: turns back. */
void latent_turn_queries(const struct layer_call *call, const void *from, void *to, bool back);
void latent_turn_shared(const struct layer_call *call, const bf16 *from, int64_t from_stride,
                        bf16 *to, int64_t to_stride, bool back);

/* latent_gather.c: whether keys and values are gathered; p4 and p5; q3 to q5. `ret_own`: fp32
 * gradient of this rank's compressed keys and values, normed, and of the turned shared part. */
bool latent_gathers(const struct layer_call *call);
void latent_gather_attend(const struct layer_call *call, enum keep keep);
void latent_gather_backward(const struct layer_call *call, struct buffer *d_o,
                            struct buffer *ret_dq, struct buffer *ret_own);

#endif
