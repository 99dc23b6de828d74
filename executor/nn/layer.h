/* layer.h - one Transformer layer, forward, replayed and backward: attention, then experts or a
 * dense MLP. Composed of backend operations and primitives; the tensors are taken and given as the
 * tables of ARCHITECTURE.md say. */
#ifndef RANKFIT_EXECUTOR_NN_LAYER_H
#define RANKFIT_EXECUTOR_NN_LAYER_H

#include "executor/primitive/moe/moe.h"
#include "executor/primitive/state/state.h"

/* What a layer's backward needs of its forward. */
struct layer_saved {
    struct buffer checkpoint; /* the layer's input */
    struct buffer qkv, o, lse, x1;
    struct buffer hd;               /* dense MLP: gate and up */
    struct buffer hs, shared_scale; /* shared expert: gate and up; its scalar gate, fp32 [tokens] */
    struct moe_saved moe;
};

/* One pass over one layer. */
struct layer_call {
    struct state *state;
    struct micro_batch *batch;
    int layer, unit;
    enum keep keep;
    struct layer_saved *saved;
};

struct layer_call layer_call(struct state *state, struct micro_batch *batch, int layer,
                             enum keep keep, struct layer_saved *saved);

/* output: taken as output_owner. */
void layer_forward(const struct layer_call *call, struct buffer *output, enum owner output_owner);
/* The forward again, from the checkpoint to the last tensor that the backward reads. */
void layer_replay(const struct layer_call *call);
/* gradient: of the output, becomes that of the input in place. The checkpoint is given back. */
void layer_backward(const struct layer_call *call, struct buffer *gradient);

/* attention.c: x1 = x + attention(norm(x)) into saved->x1; backward as above. */
void attention_forward(const struct layer_call *call);
void attention_backward(const struct layer_call *call, struct buffer *gradient);

/* mlp.c: the dense MLP, and the shared expert added to what the routed experts made; replayed as
 * far as the backward needs. */
void dense_replay(const struct layer_call *call, struct buffer *normed);
void shared_replay(const struct layer_call *call, struct buffer *normed);
void dense_forward(const struct layer_call *call, struct buffer *normed, struct buffer *output,
                   enum owner output_owner);
void dense_backward(const struct layer_call *call, struct buffer *gradient);
void shared_forward(const struct layer_call *call, struct buffer *normed, struct buffer *output);
void shared_backward(const struct layer_call *call, const struct buffer *gradient,
                     struct buffer *normed, struct buffer *d_normed);

/* Norm `role` of `input` into a new working tensor; and its backward, added into gradient. */
struct buffer layer_norm(const struct layer_call *call, enum role role, const struct buffer *input);
void layer_norm_backward(const struct layer_call *call, enum role role,
                         const struct buffer *d_normed, const struct buffer *input,
                         struct buffer *gradient);

static inline const struct model *layer_model(const struct layer_call *call)
{
    return &call->state->work->plan->model;
}

/* A linear layer over the batch's tokens. */
static inline struct linear layer_linear(const struct layer_call *call, int64_t in, int64_t out)
{
    return (struct linear){ .rows = call->batch->tokens,
                            .in = in,
                            .out = out,
                            .gradient_type =
                                call->state->work->plan->choices.primitives.grad_dtype };
}

#endif
