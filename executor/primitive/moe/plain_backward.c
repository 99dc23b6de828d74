/* plain_backward.c - steps b1 to b12 of ARCHITECTURE.md. */
#include "executor/primitive/moe/moe.h"

/* b1 to b3: the output's gradient, a row for each routed token, in expert order. */
static struct buffer dispatch(const struct moe_call *call, const struct buffer *d_output)
{
    struct work *w = call->state->work;
    const struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    struct buffer send = { 0 }, recv = { 0 };

    if (!shape.exchanges) {
        struct buffer dy = work_take_rows(w, OWNER_EXPERT, s->received, shape.hidden, sizeof(bf16));
        WORK_OP(w, scatter_rows, shape.tokens, shape.top_k, shape.hidden, d_output->data,
                s->slots.data, dy.data, NULL, NULL);
        return dy;
    }
    send = work_take_tensor(w, OWNER_SEND, shape.sent, shape.hidden, sizeof(bf16));
    WORK_OP(w, scatter_rows, shape.tokens, shape.top_k, shape.hidden, d_output->data, s->slots.data,
            send.data, NULL, NULL);
    recv = work_take_rows(w, OWNER_RECV, s->received, shape.hidden, sizeof(bf16));
    moe_send(call, false, &send, &recv, (uint64_t)shape.hidden * sizeof(bf16));
    work_give(w, &send);
    struct buffer dy = work_take_rows(w, OWNER_EXPERT, s->received, shape.hidden, sizeof(bf16));
    WORK_OP(w, gather_rows, s->received, shape.hidden, recv.data, s->map.data, dy.data, NULL, NULL);
    work_give(w, &recv);
    return dy;
}

/* b4 to b6: through the down matrix and the activation; h becomes its gradient. */
static struct buffer through_down(const struct moe_call *call, struct buffer *dy)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    const struct expert_linear down = moe_down(call);

    struct buffer a = work_take_rows(w, OWNER_EXPERT, s->received, shape.width, sizeof(bf16));
    WORK_OP(w, swiglu, s->received, shape.width, s->h.data, s->we.data, a.data);
    expert_weight(w, &down, dy->data, a.data,
                  state_gradient(call->state, shape.unit, ROLE_EXPERT_DOWN));
    work_give(w, &a);
    struct buffer da = work_take_rows(w, OWNER_EXPERT, s->received, shape.width, sizeof(bf16));
    expert_input(w, &down, dy->data, state_weight(call->state, shape.unit, ROLE_EXPERT_DOWN),
                 da.data);
    work_give(w, dy);
    struct buffer dw = work_take_rows(w, OWNER_EXPERT, s->received, 1, sizeof(float));
    WORK_OP(w, swiglu_backward, s->received, shape.width, da.data, s->we.data, s->h.data, dw.data);
    work_give(w, &da);
    work_give(w, &s->we);
    return dw;
}

/* b7, b8 */
static struct buffer through_gate_up(const struct moe_call *call)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    const struct expert_linear gate_up = moe_gate_up(call);

    expert_weight(w, &gate_up, s->h.data, s->xe.data,
                  state_gradient(call->state, shape.unit, ROLE_EXPERT_GATE));
    work_give(w, &s->xe);
    struct buffer dxe = work_take_rows(w, OWNER_EXPERT, s->received, shape.hidden, sizeof(bf16));
    expert_input(w, &gate_up, s->h.data, state_weight(call->state, shape.unit, ROLE_EXPERT_GATE),
                 dxe.data);
    work_give(w, &s->h);
    return dxe;
}

/* b9, b10: rows and the gradients of their weights as their tokens sent them. */
static void bring_back(const struct moe_call *call, struct buffer *rows, struct buffer *values)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    struct buffer back = work_take_rows(w, OWNER_SEND, s->received, shape.hidden, sizeof(bf16));
    struct buffer back_w = work_take_rows(w, OWNER_SEND, s->received, 1, sizeof(float));

    WORK_OP(w, spread_rows, s->received, shape.hidden, rows->data, s->map.data, back.data,
            values->data, back_w.data);
    work_give(w, rows);
    work_give(w, values);
    *rows = work_take_tensor(w, OWNER_RECV, shape.sent, shape.hidden, sizeof(bf16));
    *values = work_take_tensor(w, OWNER_RECV, shape.sent, 1, sizeof(float));
    moe_send(call, true, &back, rows, (uint64_t)shape.hidden * sizeof(bf16));
    moe_send(call, true, &back_w, values, sizeof(float));
    work_give(w, &back);
    work_give(w, &back_w);
    work_give(w, &s->map);
}

/* b11: the rows' gradients added into d_normed; those of the weights through the softmax. */
static struct buffer un_permute(const struct moe_call *call, struct buffer *rows,
                                struct buffer *values, bool had_gradient, struct buffer *d_normed)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    const struct router r = { .rows = shape.tokens,
                              .experts = shape.experts,
                              .top_k = shape.top_k,
                              .normalize_top_k = w->plan->model.moe.normalize_top_k,
                              .probs = s->probs.data,
                              .choices = s->choices.data,
                              .weights = s->weights.data };
    struct buffer d_logits =
        work_take_tensor(w, OWNER_LAYER, shape.tokens, shape.experts, sizeof(float));
    struct buffer d_weights =
        work_take_tensor(w, OWNER_LAYER, shape.tokens, shape.top_k, sizeof(float));

    WORK_OP(w, combine_rows, shape.tokens, shape.top_k, shape.hidden, rows->data, s->slots.data,
            had_gradient ? d_normed->data : NULL, d_normed->data, values->data, d_weights.data);
    work_give(w, rows);
    work_give(w, values);
    WORK_OP(w, router_backward, &r, d_weights.data, d_logits.data);
    work_give(w, &d_weights);
    work_give(w, &s->probs);
    work_give(w, &s->choices);
    work_give(w, &s->weights);
    work_give(w, &s->slots);
    return d_logits;
}

/* b12 */
static void through_router(const struct moe_call *call, struct buffer *d_logits,
                           struct buffer *normed, struct buffer *d_normed)
{
    struct work *w = call->state->work;
    const struct moe_shape shape = moe_shape(call);
    const struct linear l = { .rows = shape.tokens,
                              .in = shape.hidden,
                              .out = shape.experts,
                              .output_type = DTYPE_FP32,
                              .gradient_type = w->plan->choices.primitives.grad_dtype };

    linear_weight(w, &l, d_logits->data, normed->data,
                  state_gradient(call->state, shape.unit, ROLE_ROUTER));
    linear_input(w, &l, d_logits->data, state_weight(call->state, shape.unit, ROLE_ROUTER),
                 d_normed->data, true);
    work_give(w, d_logits);
    work_give(w, normed);
}

void moe_backward(const struct moe_call *call, const struct buffer *d_output, struct buffer *normed,
                  struct buffer *d_normed, void (*renorm)(void *context, struct buffer *ret),
                  void *context)
{
    struct work *w = call->state->work;
    const struct moe_shape shape = moe_shape(call);
    bool had_gradient = d_normed->take != 0;

    struct buffer dy = dispatch(call, d_output);
    struct buffer values = through_down(call, &dy);
    struct buffer rows = through_gate_up(call);
    if (shape.exchanges)
        bring_back(call, &rows, &values);
    if (normed->take == 0)
        renorm(context, normed);
    if (!had_gradient)
        *d_normed = work_take_tensor(w, OWNER_LAYER, shape.tokens, shape.hidden, sizeof(bf16));
    struct buffer d_logits = un_permute(call, &rows, &values, had_gradient, d_normed);
    if (!shape.exchanges)
        work_give(w, &call->saved->map);
    through_router(call, &d_logits, normed, d_normed);
}
