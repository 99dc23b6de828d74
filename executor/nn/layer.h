/* layer.h - one Transformer layer, forward, replayed and backward: a mixer, then a feed-forward
 * half. A kind of either is one table of operations and knows its own saved data; a layer knows
 * neither. Composed of backend operations and primitives; the tensors are taken and given as the
 * tables of ARCHITECTURE.md say. */
#ifndef RANKFIT_EXECUTOR_NN_LAYER_H
#define RANKFIT_EXECUTOR_NN_LAYER_H

#include "executor/primitive/linear.h"
#include "executor/primitive/state/state.h"

/* What a layer's backward needs of its forward. */
struct layer_saved {
    struct buffer checkpoint; /* the layer's input */
    struct buffer x1;         /* the mixer's output with the residual */
    void *mixer, *ffn;        /* what the kinds save, in host memory; each kind's own */
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

/* A kind of mixer: x1 = x + mixer(norm(x)). */
struct mixer_ops {
    size_t saved_bytes; /* of layer_saved.mixer, zeroed when a run begins */
    /* Makes saved->x1 of saved->checkpoint. */
    void (*forward)(const struct layer_call *call);
    /* The forward again, as far as backward and feed-forward half need it: x1 is there. */
    void (*replay)(const struct layer_call *call);
    /* gradient: of x1, becomes that of the checkpoint, which is given back. */
    void (*backward)(const struct layer_call *call, struct buffer *gradient);
};

/* A kind of feed-forward half: output = x1 + ffn(normed), normed being the norm of x1. */
struct ffn_ops {
    size_t saved_bytes; /* of layer_saved.ffn */
    /* Host lists of saved data, where it has any; NULL: it has none. */
    int (*open)(void *saved, const struct work *work);
    void (*close)(void *saved);
    /* normed: given back. output: taken as output_owner. */
    void (*forward)(const struct layer_call *call, struct buffer *normed, struct buffer *output,
                    enum owner output_owner);
    void (*replay)(const struct layer_call *call, struct buffer *normed);
    /* gradient: of the output, becomes that of x1, which is given back. */
    void (*backward)(const struct layer_call *call, struct buffer *gradient);
};

extern const struct mixer_ops attention_ops, delta_ops, latent_ops; /* attention.c, delta_net.c,
                                                                      latent.c */
extern const struct ffn_ops dense_ops, experts_ops;                 /* mlp.c, experts.c */

/* Opens and closes what a layer's kinds save. -1 with a diagnostic. */
int layer_saved_open(struct layer_saved *saved, const struct work *work, int layer);
void layer_saved_close(struct layer_saved *saved, const struct model *model, int layer);

/* output: taken as output_owner. */
void layer_forward(const struct layer_call *call, struct buffer *output, enum owner output_owner);
/* The forward again, from the checkpoint to the last tensor that the backward reads. */
void layer_replay(const struct layer_call *call);
/* gradient: of the output, becomes that of the input in place. The checkpoint is given back. */
void layer_backward(const struct layer_call *call, struct buffer *gradient);

/* Rotary embedding of the batch's tokens without its tensors, heads and norms: the angles that the
 * model turns rotary_dim dimensions of a head by. */
struct rope layer_angles(const struct layer_call *call, int rotary_dim);

/* Norm `role` of `input` into a new working tensor; and its backward, added into gradient. */
struct buffer layer_norm(const struct layer_call *call, enum role role, const struct buffer *input);
void layer_norm_backward(const struct layer_call *call, enum role role,
                         const struct buffer *d_normed, const struct buffer *input,
                         struct buffer *gradient);

/* The mixer's ends. In: the input norm of the checkpoint times the matrix `role` [width, hidden],
 * into a tensor of `owner`. Out: x1 = checkpoint + x times the matrix `role` [hidden, width]. */
struct buffer layer_project_in(const struct layer_call *call, enum owner owner, enum role role,
                               int64_t width);
void layer_project_out(const struct layer_call *call, enum owner owner, enum role role,
                       int64_t width, const struct buffer *x);
/* From the gradient of what the first made, given back, to that of the checkpoint, which is given
 * back, added into gradient. Of the second: the gradient of the weights, then that of x, a new
 * working tensor. */
void layer_project_in_backward(const struct layer_call *call, enum role role, int64_t width,
                               struct buffer *d_in, struct buffer *gradient);
void layer_project_out_weight(const struct layer_call *call, enum role role, int64_t width,
                              const struct buffer *gradient, const struct buffer *x);
struct buffer layer_project_out_input(const struct layer_call *call, enum role role, int64_t width,
                                      const struct buffer *gradient);

static inline const struct model *layer_model(const struct layer_call *call)
{
    return &call->state->work->plan->model;
}

/* A working tensor of the batch's tokens. */
static inline struct buffer layer_take(const struct layer_call *call, enum owner owner,
                                       int64_t width, uint64_t element_bytes)
{
    return work_take_tensor(call->state->work, owner, call->batch->tokens, width, element_bytes);
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
