/* mlp.h - the products of a gated MLP over the batch's tokens, which the dense MLP and the shared
 * expert have in common. Within nn/ only. */
#ifndef RANKFIT_EXECUTOR_NN_MLP_H
#define RANKFIT_EXECUTOR_NN_MLP_H

#include "executor/nn/layer.h"

static inline void mlp_forward(const struct layer_call *call, int64_t in, int64_t out,
                               enum role role, const struct buffer *x, const struct buffer *y,
                               bool accumulate)
{
    const struct linear l = layer_linear(call, in, out);
    linear_forward(call->state->work, &l, x->data, state_weight(call->state, call->unit, role),
                   y->data, accumulate);
}

static inline void mlp_weight(const struct layer_call *call, int64_t in, int64_t out,
                              enum role role, const struct buffer *dy, const struct buffer *x)
{
    const struct linear l = layer_linear(call, in, out);
    linear_weight(call->state->work, &l, dy->data, x->data,
                  state_gradient(call->state, call->unit, role));
}

static inline void mlp_input(const struct layer_call *call, int64_t in, int64_t out, enum role role,
                             const struct buffer *dy, const struct buffer *dx)
{
    const struct linear l = layer_linear(call, in, out);
    linear_input(call->state->work, &l, dy->data, state_weight(call->state, call->unit, role),
                 dx->data, false);
}

/* scale: of each token's activation; NULL is one. */
static inline void mlp_activate(const struct layer_call *call, int64_t width,
                                const struct buffer *h, const float *scale, const struct buffer *a)
{
    WORK_OP(call->state->work, swiglu, call->batch->tokens, width, h->data, scale, a->data);
}

#endif
