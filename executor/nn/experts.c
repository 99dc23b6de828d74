/* experts.c - the feed-forward half of a MoE layer: routed experts, and the shared expert (m12 to
 * m14, s1 to s4 of ARCHITECTURE.md) where the model has one. */
#include "executor/nn/mlp.h"
#include "executor/primitive/moe/moe.h"

/* What the backward needs of the forward. */
struct experts_saved {
    struct buffer hs, shared_scale; /* shared expert: gate and up; its scalar gate, fp32 [tokens] */
    struct moe_saved moe;
};

static int experts_open(void *saved, const struct work *work)
{
    return moe_saved_open(&((struct experts_saved *)saved)->moe, work);
}

static void experts_close(void *saved)
{
    moe_saved_close(&((struct experts_saved *)saved)->moe);
}

/* The scalar gate: sigmoid of one projection a token, in shared_scale, which holds nothing in a
 * model without one. */
static bool has_gate(const struct layer_call *call)
{
    return layer_model(call)->moe.shared_gate;
}

static void gate_forward(const struct layer_call *call, const struct buffer *normed)
{
    struct experts_saved *s = call->saved->ffn;
    struct linear l = layer_linear(call, layer_model(call)->hidden, 1);

    if (!has_gate(call))
        return;
    l.output_type = DTYPE_FP32;
    s->shared_scale = layer_take(call, kept_owner(call->keep, OWNER_LAYER), 1, sizeof(float));
    linear_forward(call->state->work, &l, normed->data,
                   state_weight(call->state, call->unit, ROLE_SHARED_SCALAR), s->shared_scale.data,
                   false);
    WORK_OP(call->state->work, sigmoid, call->batch->tokens, s->shared_scale.data);
}

static void shared_replay(const struct layer_call *call, struct buffer *normed)
{
    struct experts_saved *s = call->saved->ffn;
    int64_t hidden = layer_model(call)->hidden, width = layer_model(call)->moe.shared_width;

    s->hs = layer_take(call, kept_owner(call->keep, OWNER_LAYER), 2 * width, sizeof(bf16));
    mlp_forward(call, hidden, 2 * width, ROLE_SHARED_GATE, normed, &s->hs, false);
    gate_forward(call, normed);
    work_give(call->state->work, normed);
}

static void shared_forward(const struct layer_call *call, struct buffer *normed,
                           struct buffer *output)
{
    struct work *w = call->state->work;
    struct experts_saved *s = call->saved->ffn;
    int64_t hidden = layer_model(call)->hidden, width = layer_model(call)->moe.shared_width;

    shared_replay(call, normed);
    struct buffer a = layer_take(call, OWNER_LAYER, width, sizeof(bf16));
    mlp_activate(call, width, &s->hs, s->shared_scale.data, &a);
    work_give_unless_kept(w, call->keep, &s->hs);
    work_give_unless_kept(w, call->keep, &s->shared_scale);
    mlp_forward(call, width, hidden, ROLE_SHARED_DOWN, &a, output, true);
    work_give(w, &a);
}

/* d_scale becomes the gradient of the projection; both of its products are added. */
static void gate_backward(const struct layer_call *call, struct buffer *d_scale,
                          const struct buffer *normed, const struct buffer *d_normed)
{
    struct work *w = call->state->work;
    struct experts_saved *s = call->saved->ffn;
    struct linear l = layer_linear(call, layer_model(call)->hidden, 1);

    if (!has_gate(call))
        return;
    l.output_type = DTYPE_FP32;
    WORK_OP(w, sigmoid_backward, call->batch->tokens, s->shared_scale.data, d_scale->data);
    linear_weight(w, &l, d_scale->data, normed->data,
                  state_gradient(call->state, call->unit, ROLE_SHARED_SCALAR));
    linear_input(w, &l, d_scale->data, state_weight(call->state, call->unit, ROLE_SHARED_SCALAR),
                 d_normed->data, true);
    work_give(w, d_scale);
    work_give(w, &s->shared_scale);
}

static void shared_backward(const struct layer_call *call, const struct buffer *gradient,
                            struct buffer *normed, struct buffer *d_normed)
{
    struct work *w = call->state->work;
    struct experts_saved *s = call->saved->ffn;
    int64_t hidden = layer_model(call)->hidden, width = layer_model(call)->moe.shared_width;
    struct buffer d_scale = { 0 };

    *normed = layer_norm(call, ROLE_POST_NORM, &call->saved->x1);
    struct buffer a = layer_take(call, OWNER_LAYER, width, sizeof(bf16));
    mlp_activate(call, width, &s->hs, s->shared_scale.data, &a);
    mlp_weight(call, width, hidden, ROLE_SHARED_DOWN, gradient, &a);
    struct buffer d_a = layer_take(call, OWNER_LAYER, width, sizeof(bf16));
    work_give(w, &a);
    mlp_input(call, width, hidden, ROLE_SHARED_DOWN, gradient, &d_a);
    if (has_gate(call))
        d_scale = layer_take(call, OWNER_LAYER, 1, sizeof(float));
    WORK_OP(w, swiglu_backward, call->batch->tokens, width, d_a.data, s->shared_scale.data,
            s->hs.data, d_scale.data);
    work_give(w, &d_a);
    mlp_weight(call, hidden, 2 * width, ROLE_SHARED_GATE, &s->hs, normed);
    *d_normed = layer_take(call, OWNER_LAYER, hidden, sizeof(bf16));
    mlp_input(call, hidden, 2 * width, ROLE_SHARED_GATE, &s->hs, d_normed);
    work_give(w, &s->hs);
    gate_backward(call, &d_scale, normed, d_normed);
}

static bool has_shared(const struct layer_call *call)
{
    return layer_model(call)->moe.shared_width > 0;
}

static struct moe_call moe_call(const struct layer_call *call)
{
    struct experts_saved *s = call->saved->ffn;
    return (struct moe_call){ call->state, call->batch, call->layer, call->keep, &s->moe };
}

static void experts_forward(const struct layer_call *call, struct buffer *normed,
                            struct buffer *output, enum owner output_owner)
{
    const struct moe_call moe = moe_call(call);

    moe_forward(&moe, normed, has_shared(call), &call->saved->x1, output, output_owner);
    if (has_shared(call))
        shared_forward(call, normed, output);
}

static void experts_replay(const struct layer_call *call, struct buffer *normed)
{
    const struct moe_call moe = moe_call(call);

    moe_replay(&moe, normed, has_shared(call));
    if (has_shared(call))
        shared_replay(call, normed);
}

static void renorm(void *context, struct buffer *ret)
{
    const struct layer_call *call = context;
    *ret = layer_norm(call, ROLE_POST_NORM, &call->saved->x1);
}

static void experts_backward(const struct layer_call *call, struct buffer *gradient)
{
    struct work *w = call->state->work;
    const struct moe_call moe = moe_call(call);
    struct buffer normed = { 0 }, d_normed = { 0 };
    struct layer_call copy = *call;

    if (has_shared(call))
        shared_backward(call, gradient, &normed, &d_normed);
    moe_backward(&moe, gradient, &normed, &d_normed, renorm, &copy);
    layer_norm_backward(call, ROLE_POST_NORM, &d_normed, &call->saved->x1, gradient);
    work_give(w, &d_normed);
    work_give(w, &call->saved->x1);
}

const struct ffn_ops experts_ops = { .saved_bytes = sizeof(struct experts_saved),
                                     .open = experts_open,
                                     .close = experts_close,
                                     .forward = experts_forward,
                                     .replay = experts_replay,
                                     .backward = experts_backward };
