/* mlp.c - the gated MLP of a dense layer (d1 to d4) and the shared expert of a MoE layer (m12 to
 * m14, s1 to s4). */
#include "executor/nn/layer.h"

static struct buffer take(const struct layer_call *call, enum owner owner, int64_t width,
                          uint64_t element_bytes)
{
    return work_take_tensor(call->state->work, owner, call->batch->tokens, width, element_bytes);
}

static void forward(const struct layer_call *call, int64_t in, int64_t out, enum role role,
                    const struct buffer *x, const struct buffer *y, bool accumulate)
{
    const struct linear l = layer_linear(call, in, out);
    linear_forward(call->state->work, &l, x->data, state_weight(call->state, call->unit, role),
                   y->data, accumulate);
}

static void backward_weight(const struct layer_call *call, int64_t in, int64_t out, enum role role,
                            const struct buffer *dy, const struct buffer *x)
{
    const struct linear l = layer_linear(call, in, out);
    linear_weight(call->state->work, &l, dy->data, x->data,
                  state_gradient(call->state, call->unit, role));
}

static void backward_input(const struct layer_call *call, int64_t in, int64_t out, enum role role,
                           const struct buffer *dy, const struct buffer *dx)
{
    const struct linear l = layer_linear(call, in, out);
    linear_input(call->state->work, &l, dy->data, state_weight(call->state, call->unit, role),
                 dx->data, false);
}

/* scale: of each token's activation; NULL is one. */
static void activate(const struct layer_call *call, int64_t width, const struct buffer *h,
                     const float *scale, const struct buffer *a)
{
    WORK_OP(call->state->work, swiglu, call->batch->tokens, width, h->data, scale, a->data);
}

void dense_replay(const struct layer_call *call, struct buffer *normed)
{
    struct layer_saved *s = call->saved;
    int64_t hidden = layer_model(call)->hidden, width = layer_model(call)->dense_width;

    s->hd = take(call, kept_owner(call->keep, OWNER_LAYER), 2 * width, sizeof(bf16));
    forward(call, hidden, 2 * width, ROLE_GATE, normed, &s->hd, false);
    work_give(call->state->work, normed);
}

void dense_forward(const struct layer_call *call, struct buffer *normed, struct buffer *output,
                   enum owner output_owner)
{
    struct work *w = call->state->work;
    struct layer_saved *s = call->saved;
    int64_t hidden = layer_model(call)->hidden, width = layer_model(call)->dense_width;

    dense_replay(call, normed);
    struct buffer a = take(call, OWNER_LAYER, width, sizeof(bf16));
    activate(call, width, &s->hd, NULL, &a);
    work_give_unless_kept(w, call->keep, &s->hd);
    *output = take(call, output_owner, hidden, sizeof(bf16));
    WORK_OP(w, copy, output->data, s->x1.data, output->bytes);
    forward(call, width, hidden, ROLE_DOWN, &a, output, true);
    work_give(w, &a);
}

void dense_backward(const struct layer_call *call, struct buffer *gradient)
{
    struct work *w = call->state->work;
    struct layer_saved *s = call->saved;
    int64_t hidden = layer_model(call)->hidden, width = layer_model(call)->dense_width;

    struct buffer a = take(call, OWNER_LAYER, width, sizeof(bf16));
    activate(call, width, &s->hd, NULL, &a);
    backward_weight(call, width, hidden, ROLE_DOWN, gradient, &a);
    struct buffer d_a = take(call, OWNER_LAYER, width, sizeof(bf16));
    work_give(w, &a);
    backward_input(call, width, hidden, ROLE_DOWN, gradient, &d_a);
    WORK_OP(w, swiglu_backward, call->batch->tokens, width, d_a.data, NULL, s->hd.data, NULL);
    work_give(w, &d_a);
    struct buffer normed = layer_norm(call, ROLE_POST_NORM, &s->x1);
    backward_weight(call, hidden, 2 * width, ROLE_GATE, &s->hd, &normed);
    work_give(w, &normed);
    struct buffer d_normed = take(call, OWNER_LAYER, hidden, sizeof(bf16));
    backward_input(call, hidden, 2 * width, ROLE_GATE, &s->hd, &d_normed);
    work_give(w, &s->hd);
    layer_norm_backward(call, ROLE_POST_NORM, &d_normed, &s->x1, gradient);
    work_give(w, &d_normed);
    work_give(w, &s->x1);
}

/* The scalar gate: sigmoid of one projection a token, in shared_scale, which holds nothing in a
 * model without one. */
static bool has_gate(const struct layer_call *call)
{
    return layer_model(call)->moe.shared_gate;
}

static void gate_forward(const struct layer_call *call, const struct buffer *normed)
{
    struct layer_saved *s = call->saved;
    struct linear l = layer_linear(call, layer_model(call)->hidden, 1);

    if (!has_gate(call))
        return;
    l.output_type = DTYPE_FP32;
    s->shared_scale = take(call, kept_owner(call->keep, OWNER_LAYER), 1, sizeof(float));
    linear_forward(call->state->work, &l, normed->data,
                   state_weight(call->state, call->unit, ROLE_SHARED_SCALAR), s->shared_scale.data,
                   false);
    WORK_OP(call->state->work, sigmoid, call->batch->tokens, s->shared_scale.data);
}

void shared_replay(const struct layer_call *call, struct buffer *normed)
{
    struct layer_saved *s = call->saved;
    int64_t hidden = layer_model(call)->hidden, width = layer_model(call)->moe.shared_width;

    s->hs = take(call, kept_owner(call->keep, OWNER_LAYER), 2 * width, sizeof(bf16));
    forward(call, hidden, 2 * width, ROLE_SHARED_GATE, normed, &s->hs, false);
    gate_forward(call, normed);
    work_give(call->state->work, normed);
}

void shared_forward(const struct layer_call *call, struct buffer *normed, struct buffer *output)
{
    struct work *w = call->state->work;
    struct layer_saved *s = call->saved;
    int64_t hidden = layer_model(call)->hidden, width = layer_model(call)->moe.shared_width;

    shared_replay(call, normed);
    struct buffer a = take(call, OWNER_LAYER, width, sizeof(bf16));
    activate(call, width, &s->hs, s->shared_scale.data, &a);
    work_give_unless_kept(w, call->keep, &s->hs);
    work_give_unless_kept(w, call->keep, &s->shared_scale);
    forward(call, width, hidden, ROLE_SHARED_DOWN, &a, output, true);
    work_give(w, &a);
}

/* d_scale becomes the gradient of the projection; both of its products are added. */
static void gate_backward(const struct layer_call *call, struct buffer *d_scale,
                          const struct buffer *normed, const struct buffer *d_normed)
{
    struct work *w = call->state->work;
    struct layer_saved *s = call->saved;
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

void shared_backward(const struct layer_call *call, const struct buffer *gradient,
                     struct buffer *normed, struct buffer *d_normed)
{
    struct work *w = call->state->work;
    struct layer_saved *s = call->saved;
    int64_t hidden = layer_model(call)->hidden, width = layer_model(call)->moe.shared_width;
    struct buffer d_scale = { 0 };

    *normed = layer_norm(call, ROLE_POST_NORM, &s->x1);
    struct buffer a = take(call, OWNER_LAYER, width, sizeof(bf16));
    activate(call, width, &s->hs, s->shared_scale.data, &a);
    backward_weight(call, width, hidden, ROLE_SHARED_DOWN, gradient, &a);
    struct buffer d_a = take(call, OWNER_LAYER, width, sizeof(bf16));
    work_give(w, &a);
    backward_input(call, width, hidden, ROLE_SHARED_DOWN, gradient, &d_a);
    if (has_gate(call))
        d_scale = take(call, OWNER_LAYER, 1, sizeof(float));
    WORK_OP(w, swiglu_backward, call->batch->tokens, width, d_a.data, s->shared_scale.data,
            s->hs.data, d_scale.data);
    work_give(w, &d_a);
    backward_weight(call, hidden, 2 * width, ROLE_SHARED_GATE, &s->hs, normed);
    *d_normed = take(call, OWNER_LAYER, hidden, sizeof(bf16));
    backward_input(call, hidden, 2 * width, ROLE_SHARED_GATE, &s->hs, d_normed);
    work_give(w, &s->hs);
    gate_backward(call, &d_scale, normed, d_normed);
}
