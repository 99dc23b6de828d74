/* backward.c - steps b1 to b12 of ARCHITECTURE.md, chunk by chunk, with the dispatch of the chunk
 * after and the return of the chunk before under way meanwhile. In a chunked layer that is computed
 * again, m3 to m6 of a chunk come just before its backward. */
#include "executor/primitive/moe/moe.h"

/* A backward at work. */
struct backward {
    const struct moe_call *call;
    const struct buffer *d_output;
    struct buffer *normed, *d_normed;
    struct buffer d_logits;
    bool had_gradient; /* d_normed holds the shared expert's already */
    void (*renorm)(void *context, struct buffer *ret);
    void *context;
    int delay;                              /* chunks that weight gradients wait */
    struct moe_exchange dispatch, returned; /* under way: of the next chunk, of the one before */
    struct moe_exchange again; /* of the next chunk, when rows are brought here again */
};

/* What the gradients of all tokens go into. In chunks it is there before the first. */
static void take_gradients(struct backward *b)
{
    struct work *w = b->call->state->work;
    const struct moe_shape shape = moe_shape(b->call);

    if (b->normed->take == 0)
        b->renorm(b->context, b->normed);
    if (!b->had_gradient)
        *b->d_normed = work_take_tensor(w, OWNER_LAYER, shape.tokens, shape.hidden, sizeof(bf16));
    b->d_logits = work_take_tensor(w, OWNER_LAYER, shape.tokens, shape.experts, sizeof(float));
}

static void scatter(const struct backward *b, const struct moe_chunk *c, const struct buffer *rows)
{
    struct work *w = b->call->state->work;
    const struct moe_shape shape = moe_shape(b->call);
    uint64_t first = (uint64_t)c->first;

    WORK_OP(w, scatter_rows, c->tokens, shape.top_k, shape.hidden,
            element_at(b->d_output->data, first * (uint64_t)shape.hidden, sizeof(bf16)),
            element_at(b->call->saved->slots.data, first * (uint64_t)shape.top_k, sizeof(int32_t)),
            rows->data, NULL, NULL);
}

/* b1, and b2 started; before them, of rows that come again, m3, and m4 started. */
static void start_dispatch(struct backward *b, int index)
{
    if (index >= b->call->saved->count)
        return;
    const struct moe_chunk *c = &b->call->saved->chunks[index];
    if (moe_replays_chunks(b->call)) {
        moe_rows_open(b->call, c, b->normed, &b->again);
        moe_exchange_start(b->call, &b->again);
    }
    b->dispatch = (struct moe_exchange){ .chunk = c };
    moe_exchange_open(b->call, &b->dispatch);
    scatter(b, c, &b->dispatch.from);
    moe_exchange_start(b->call, &b->dispatch);
}

/* m5 of a chunk that is computed again. */
static void order_again(struct backward *b, struct moe_chunk *c)
{
    struct moe_exchange arrived = b->again;

    if (!moe_replays_chunks(b->call))
        return;
    if (moe_shape(b->call).exchanges)
        moe_rows_arrive(b->call, c, &arrived);
    else
        moe_rows_here(b->call, c, b->normed);
}

/* b2 ended, b3: the output's gradient, a row for each routed token, in expert order; the next
 * chunk's rows set out. */
static void receive(struct backward *b, int index)
{
    struct work *w = b->call->state->work;
    struct moe_chunk *c = &b->call->saved->chunks[index];
    int64_t hidden = moe_shape(b->call).hidden;
    struct moe_exchange arrived = b->dispatch;

    if (!moe_shape(b->call).exchanges) {
        c->dy = moe_take_rows(b->call, c, OWNER_EXPERT, hidden, sizeof(bf16));
        scatter(b, c, &c->dy);
        return;
    }
    moe_exchange_wait(b->call, &arrived);
    c->dy = moe_take_rows(b->call, c, OWNER_EXPERT, hidden, sizeof(bf16));
    WORK_OP(w, gather_rows, c->received, hidden, arrived.to.data, c->map.data, c->dy.data, NULL,
            NULL);
    moe_exchange_close(b->call, &arrived);
    start_dispatch(b, index + 1);
}

/* The weight gradient of b4. */
static void down_weight(const struct backward *b, struct moe_chunk *c)
{
    const struct expert_linear down = moe_down(b->call, c);
    expert_weight(b->call->state->work, &down, c->dy.data, c->a.data,
                  state_gradient(b->call->state, moe_shape(b->call).unit, ROLE_EXPERT_DOWN));
    work_give(b->call->state->work, &c->a);
}

/* b7, when h has become its gradient. */
static void gate_up_weight(const struct backward *b, struct moe_chunk *c)
{
    const struct expert_linear gate_up = moe_gate_up(b->call, c);
    expert_weight(b->call->state->work, &gate_up, c->h.data, c->xe.data,
                  state_gradient(b->call->state, moe_shape(b->call).unit, ROLE_EXPERT_GATE));
    work_give(b->call->state->work, &c->xe);
}

/* b4 to b6: through the down matrix and the activation. */
static struct buffer through_down(const struct backward *b, struct moe_chunk *c)
{
    const struct moe_call *call = b->call;
    struct work *w = call->state->work;
    const struct moe_shape shape = moe_shape(call);
    const struct expert_linear down = moe_down(call, c);

    c->a = moe_take_rows(call, c, OWNER_EXPERT, shape.width, sizeof(bf16));
    WORK_OP(w, swiglu, c->received, shape.width, c->h.data, c->we.data, c->a.data);
    if (b->delay == 0)
        down_weight(b, c);
    struct buffer da = moe_take_rows(call, c, OWNER_EXPERT, shape.width, sizeof(bf16));
    expert_input(w, &down, c->dy.data, state_weight(call->state, shape.unit, ROLE_EXPERT_DOWN),
                 da.data);
    if (b->delay == 0)
        work_give(w, &c->dy);
    struct buffer dw = moe_take_rows(call, c, OWNER_EXPERT, 1, sizeof(float));
    WORK_OP(w, swiglu_backward, c->received, shape.width, da.data, c->we.data, c->h.data, dw.data);
    work_give(w, &da);
    work_give(w, &c->we);
    return dw;
}

/* b7, b8 */
static struct buffer through_gate_up(const struct backward *b, struct moe_chunk *c)
{
    const struct moe_call *call = b->call;
    struct work *w = call->state->work;
    const struct moe_shape shape = moe_shape(call);
    const struct expert_linear gate_up = moe_gate_up(call, c);

    if (b->delay == 0)
        gate_up_weight(b, c);
    struct buffer dxe = moe_take_rows(call, c, OWNER_EXPERT, shape.hidden, sizeof(bf16));
    expert_input(w, &gate_up, c->h.data, state_weight(call->state, shape.unit, ROLE_EXPERT_GATE),
                 dxe.data);
    if (b->delay == 0)
        work_give(w, &c->h);
    return dxe;
}

/* Weight gradients that waited for the input gradients of chunk `index`. */
static void late_weights(const struct backward *b, int index)
{
    struct work *w = b->call->state->work;
    const struct moe_saved *s = b->call->saved;
    int from = index - b->delay, to = index == s->count - 1 ? index : from;

    for (int i = from > 0 ? from : 0; b->delay > 0 && i <= to; i++) {
        struct moe_chunk *c = &s->chunks[i];
        down_weight(b, c);
        work_give(w, &c->dy);
        gate_up_weight(b, c);
        work_give(w, &c->h);
    }
}

/* b11 of one chunk: the rows' gradients added into d_normed; those of the weights through the
 * scores. */
static void un_permute(struct backward *b, const struct moe_chunk *c, const struct buffer *rows,
                       const struct buffer *values)
{
    struct work *w = b->call->state->work;
    const struct moe_saved *s = b->call->saved;
    const struct moe_shape shape = moe_shape(b->call);
    uint64_t first = (uint64_t)c->first, choice = first * (uint64_t)shape.top_k;
    uint64_t expert = first * (uint64_t)shape.experts;
    struct router r = moe_router(b->call, c->tokens);

    if (s->count == 1)
        take_gradients(b);
    void *d_normed = element_at(b->d_normed->data, first * (uint64_t)shape.hidden, sizeof(bf16));
    struct buffer d_weights =
        work_take_tensor(w, OWNER_LAYER, c->tokens, shape.top_k, sizeof(float));
    r.probs = element_at(s->probs.data, expert, sizeof(float));
    r.choices = element_at(s->choices.data, choice, sizeof(int32_t));
    r.weights = element_at(s->weights.data, choice, sizeof(float));
    WORK_OP(w, combine_rows, c->tokens, shape.top_k, shape.hidden, rows->data,
            element_at(s->slots.data, choice, sizeof(int32_t)), b->had_gradient ? d_normed : NULL,
            d_normed, values->data, d_weights.data);
    WORK_OP(w, router_backward, &r, d_weights.data,
            element_at(b->d_logits.data, expert, sizeof(float)));
    work_give(w, &d_weights);
}

/* b10 ended */
static void land(struct backward *b)
{
    struct moe_chunk *c = &b->call->saved->chunks[b->returned.chunk - b->call->saved->chunks];

    moe_exchange_wait(b->call, &b->returned);
    work_give(b->call->state->work, &c->map);
    un_permute(b, c, &b->returned.to, &b->returned.to_values);
    moe_exchange_close(b->call, &b->returned);
}

/* b9: rows and the gradients of their weights as their tokens sent them; b10 started when the chunk
 * before is back. */
static void send_back(struct backward *b, struct moe_chunk *c, struct buffer *rows,
                      struct buffer *values)
{
    struct work *w = b->call->state->work;
    struct moe_exchange x = { .chunk = c, .back = true, .values = true };

    moe_exchange_open(b->call, &x);
    WORK_OP(w, spread_rows, c->received, moe_shape(b->call).hidden, rows->data, c->map.data,
            x.from.data, values->data, x.from_values.data);
    work_give(w, rows);
    work_give(w, values);
    if (c != b->call->saved->chunks)
        land(b);
    moe_exchange_start(b->call, &x);
    b->returned = x;
}

static void chunk_backward(struct backward *b, int index)
{
    struct work *w = b->call->state->work;
    struct moe_chunk *c = &b->call->saved->chunks[index];

    order_again(b, c);
    receive(b, index);
    if (moe_replays_chunks(b->call))
        moe_rows_gate_up(b->call, c);
    struct buffer values = through_down(b, c);
    struct buffer rows = through_gate_up(b, c);
    late_weights(b, index);
    if (moe_shape(b->call).exchanges) {
        send_back(b, c, &rows, &values);
        return;
    }
    un_permute(b, c, &rows, &values);
    work_give(w, &rows);
    work_give(w, &values);
    work_give(w, &c->map);
}

/* b12 */
static void through_router(struct backward *b)
{
    const struct moe_call *call = b->call;
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    const struct linear l = { .rows = shape.tokens,
                              .in = shape.hidden,
                              .out = shape.experts,
                              .output_type = DTYPE_FP32,
                              .gradient_type = w->plan->choices.primitives.grad_dtype };

    work_give(w, &s->probs);
    work_give(w, &s->choices);
    work_give(w, &s->weights);
    work_give(w, &s->slots);
    linear_weight(w, &l, b->d_logits.data, b->normed->data,
                  state_gradient(call->state, shape.unit, ROLE_ROUTER));
    linear_input(w, &l, b->d_logits.data, state_weight(call->state, shape.unit, ROLE_ROUTER),
                 b->d_normed->data, true);
    work_give(w, &b->d_logits);
    work_give(w, b->normed);
}

void moe_backward(const struct moe_call *call, const struct buffer *d_output, struct buffer *normed,
                  struct buffer *d_normed, void (*renorm)(void *context, struct buffer *ret),
                  void *context)
{
    const struct moe_saved *s = call->saved;
    int delay = call->state->work->plan->choices.primitives.wgrad_delay;
    struct backward b = { .call = call,
                          .d_output = d_output,
                          .normed = normed,
                          .d_normed = d_normed,
                          .had_gradient = d_normed->take != 0,
                          .renorm = renorm,
                          .context = context,
                          .delay = delay == WGRAD_DELAY_ALL ? s->count : delay };

    if (s->count > 1)
        take_gradients(&b);
    if (moe_shape(call).exchanges)
        start_dispatch(&b, 0);
    for (int i = 0; i < s->count; i++)
        chunk_backward(&b, i);
    if (moe_shape(call).exchanges)
        land(&b);
    through_router(&b);
}
