/* mlp.c - the gated MLP of a dense layer: steps d1 to d4 of ARCHITECTURE.md. */
#include "executor/nn/mlp.h"

/* What the backward needs of the forward. */
struct dense_saved {
    struct buffer hd; /* gate and up */
};

static void dense_replay(const struct layer_call *call, struct buffer *normed)
{
    struct dense_saved *s = call->saved->ffn;
    int64_t hidden = layer_model(call)->hidden, width = layer_model(call)->dense_width;

    s->hd = layer_take(call, kept_owner(call->keep, OWNER_LAYER), 2 * width, sizeof(bf16));
    mlp_forward(call, hidden, 2 * width, ROLE_GATE, normed, &s->hd, false);
    work_give(call->state->work, normed);
}

static void dense_forward(const struct layer_call *call, struct buffer *normed,
                          struct buffer *output, enum owner output_owner)
{
    struct work *w = call->state->work;
    struct dense_saved *s = call->saved->ffn;
    int64_t hidden = layer_model(call)->hidden, width = layer_model(call)->dense_width;

    dense_replay(call, normed);
    struct buffer a = layer_take(call, OWNER_LAYER, width, sizeof(bf16));
    mlp_activate(call, width, &s->hd, NULL, &a);
    work_give_unless_kept(w, call->keep, &s->hd);
    *output = layer_take(call, output_owner, hidden, sizeof(bf16));
    WORK_OP(w, copy, output->data, call->saved->x1.data, output->bytes);
    mlp_forward(call, width, hidden, ROLE_DOWN, &a, output, true);
    work_give(w, &a);
}

static void dense_backward(const struct layer_call *call, struct buffer *gradient)
{
    struct work *w = call->state->work;
    struct dense_saved *s = call->saved->ffn;
    int64_t hidden = layer_model(call)->hidden, width = layer_model(call)->dense_width;

    struct buffer a = layer_take(call, OWNER_LAYER, width, sizeof(bf16));
    mlp_activate(call, width, &s->hd, NULL, &a);
    mlp_weight(call, width, hidden, ROLE_DOWN, gradient, &a);
    struct buffer d_a = layer_take(call, OWNER_LAYER, width, sizeof(bf16));
    work_give(w, &a);
    mlp_input(call, width, hidden, ROLE_DOWN, gradient, &d_a);
    WORK_OP(w, swiglu_backward, call->batch->tokens, width, d_a.data, NULL, s->hd.data, NULL);
    work_give(w, &d_a);
    struct buffer normed = layer_norm(call, ROLE_POST_NORM, &call->saved->x1);
    mlp_weight(call, hidden, 2 * width, ROLE_GATE, &s->hd, &normed);
    work_give(w, &normed);
    struct buffer d_normed = layer_take(call, OWNER_LAYER, hidden, sizeof(bf16));
    mlp_input(call, hidden, 2 * width, ROLE_GATE, &s->hd, &d_normed);
    work_give(w, &s->hd);
    layer_norm_backward(call, ROLE_POST_NORM, &d_normed, &call->saved->x1, gradient);
    work_give(w, &d_normed);
    work_give(w, &call->saved->x1);
}

const struct ffn_ops dense_ops = { .saved_bytes = sizeof(struct dense_saved),
                                   .forward = dense_forward,
                                   .replay = dense_replay,
                                   .backward = dense_backward };
