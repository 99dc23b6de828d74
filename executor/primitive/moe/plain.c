/* plain.c - dispatch, experts, combine, one after another. Steps m2 to m11 of ARCHITECTURE.md. */
#include "executor/primitive/moe/moe.h"

/* m2 */
static void route(const struct moe_call *call, const struct buffer *normed)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    const struct linear l = {
        .rows = shape.tokens, .in = shape.hidden, .out = shape.experts, .output_type = DTYPE_FP32
    };
    enum owner owner = kept_owner(call->keep, OWNER_LAYER);

    s->probs = work_take_tensor(w, owner, shape.tokens, shape.experts, sizeof(float));
    s->choices = work_take_tensor(w, owner, shape.tokens, shape.top_k, sizeof(int32_t));
    s->weights = work_take_tensor(w, owner, shape.tokens, shape.top_k, sizeof(float));
    s->slots = work_take_tensor(w, owner, shape.tokens, shape.top_k, sizeof(int32_t));
    linear_forward(w, &l, normed->data, state_weight(call->state, shape.unit, ROLE_ROUTER),
                   s->probs.data, false);
    const struct router r = { .rows = shape.tokens,
                              .experts = shape.experts,
                              .top_k = shape.top_k,
                              .normalize_top_k = w->plan->model.moe.normalize_top_k,
                              .given = moe_give_choices(call),
                              .probs = s->probs.data,
                              .choices = s->choices.data,
                              .weights = s->weights.data };
    WORK_OP(w, router, &r);
    WORK_OP(w, sort_choices, shape.tokens, shape.top_k, shape.experts, s->choices.data,
            s->slots.data, s->counts);
    work_give_unless_kept(w, call->keep, &s->probs);
    moe_plan_exchange(call);
}

static void take_expert_rows(const struct moe_call *call)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    enum owner owner = kept_owner(call->keep, OWNER_EXPERT);

    s->xe = work_take_rows(w, owner, s->received, w->plan->model.hidden, sizeof(bf16));
    s->we = work_take_rows(w, owner, s->received, 1, sizeof(float));
    s->map = work_take_rows(w, owner, s->received, 1, sizeof(int32_t));
}

/* m5 with ep 1: sorted by expert is expert order; the map says nothing new and stays unread. */
static void order_here(const struct moe_call *call, struct buffer *normed, bool normed_later)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);

    take_expert_rows(call);
    WORK_OP(w, scatter_rows, shape.tokens, shape.top_k, shape.hidden, normed->data, s->slots.data,
            s->xe.data, s->weights.data, s->we.data);
    if (!normed_later)
        work_give(w, normed);
}

/* m3 to m5 */
static void dispatch(const struct moe_call *call, struct buffer *normed, bool normed_later)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    struct buffer send = work_take_tensor(w, OWNER_SEND, shape.sent, shape.hidden, sizeof(bf16));
    struct buffer send_w = work_take_tensor(w, OWNER_SEND, shape.sent, 1, sizeof(float));

    WORK_OP(w, scatter_rows, shape.tokens, shape.top_k, shape.hidden, normed->data, s->slots.data,
            send.data, s->weights.data, send_w.data);
    if (!normed_later)
        work_give(w, normed);
    struct buffer recv = work_take_rows(w, OWNER_RECV, s->received, shape.hidden, sizeof(bf16));
    struct buffer recv_w = work_take_rows(w, OWNER_RECV, s->received, 1, sizeof(float));
    moe_send(call, false, &send, &recv, (uint64_t)shape.hidden * sizeof(bf16));
    moe_send(call, false, &send_w, &recv_w, sizeof(float));
    work_give(w, &send);
    work_give(w, &send_w);
    take_expert_rows(call);
    moe_upload_map(call);
    WORK_OP(w, gather_rows, s->received, shape.hidden, recv.data, s->map.data, s->xe.data,
            recv_w.data, s->we.data);
    work_give(w, &recv);
    work_give(w, &recv_w);
}

/* m6 to m8 */
static struct buffer run_experts(const struct moe_call *call)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    const struct expert_linear gate_up = moe_gate_up(call), down = moe_down(call);

    s->h = work_take_rows(w, kept_owner(call->keep, OWNER_EXPERT), s->received, 2 * shape.width,
                          sizeof(bf16));
    expert_forward(w, &gate_up, s->xe.data, state_weight(call->state, shape.unit, ROLE_EXPERT_GATE),
                   s->h.data);
    work_give_unless_kept(w, call->keep, &s->xe);
    struct buffer a = work_take_rows(w, OWNER_EXPERT, s->received, shape.width, sizeof(bf16));
    WORK_OP(w, swiglu, s->received, shape.width, s->h.data, s->we.data, a.data);
    work_give_unless_kept(w, call->keep, &s->h);
    work_give_unless_kept(w, call->keep, &s->we);
    struct buffer y = work_take_rows(w, OWNER_EXPERT, s->received, shape.hidden, sizeof(bf16));
    expert_forward(w, &down, a.data, state_weight(call->state, shape.unit, ROLE_EXPERT_DOWN),
                   y.data);
    work_give(w, &a);
    return y;
}

/* m9, m10: the rows as their tokens sent them. */
static struct buffer bring_back(const struct moe_call *call, struct buffer *y)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    struct buffer back = work_take_rows(w, OWNER_SEND, s->received, shape.hidden, sizeof(bf16));

    WORK_OP(w, spread_rows, s->received, shape.hidden, y->data, s->map.data, back.data, NULL, NULL);
    work_give(w, y);
    work_give_unless_kept(w, call->keep, &s->map);
    struct buffer ret = work_take_tensor(w, OWNER_RECV, shape.sent, shape.hidden, sizeof(bf16));
    moe_send(call, true, &back, &ret, (uint64_t)shape.hidden * sizeof(bf16));
    work_give(w, &back);
    return ret;
}

void moe_forward(const struct moe_call *call, struct buffer *normed, bool normed_later,
                 const struct buffer *residual, struct buffer *output, enum owner output_owner)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;

    route(call, normed);
    const struct moe_shape shape = moe_shape(call);
    if (shape.exchanges)
        dispatch(call, normed, normed_later);
    else
        order_here(call, normed, normed_later);
    struct buffer rows = run_experts(call);
    if (shape.exchanges)
        rows = bring_back(call, &rows);
    else
        work_give_unless_kept(w, call->keep, &s->map);
    *output = work_take_tensor(w, output_owner, shape.tokens, shape.hidden, sizeof(bf16));
    WORK_OP(w, combine_rows, shape.tokens, shape.top_k, shape.hidden, rows.data, s->slots.data,
            residual->data, output->data, NULL, NULL);
    work_give(w, &rows);
    work_give_unless_kept(w, call->keep, &s->choices);
    work_give_unless_kept(w, call->keep, &s->weights);
    work_give_unless_kept(w, call->keep, &s->slots);
}
