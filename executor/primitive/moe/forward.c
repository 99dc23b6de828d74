/* forward.c - steps m2 to m11 of ARCHITECTURE.md: each chunk's dispatch, experts, combine, with the
 * dispatch of the chunk after and the return of the chunk before under way meanwhile. A replay does
 * the same up to m6. */
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
    struct router r = moe_router(call, shape.tokens);
    r.given = moe_give_choices(call);
    r.probs = s->probs.data;
    r.choices = s->choices.data;
    r.weights = s->weights.data;
    WORK_OP(w, router, &r);
    work_give_unless_kept(w, call->keep, &s->probs);
    moe_plan_exchange(call);
}

/* A forward at work. */
struct forward {
    const struct moe_call *call;
    struct buffer *normed;
    bool normed_later;
    const struct buffer *residual;
    struct buffer *output; /* NULL: a replay */
    enum owner output_owner;
    struct moe_exchange dispatch, returned; /* under way: of the next chunk, of the one before */
};

static bool is_last(const struct forward *f, const struct moe_chunk *c)
{
    return c == &f->call->saved->chunks[f->call->saved->count - 1];
}

static void normed_read(const struct forward *f, const struct moe_chunk *c)
{
    if (is_last(f, c) && !f->normed_later)
        work_give(f->call->state->work, f->normed);
}

/* m3, and m4 started. In chunks the norm goes with the exchange it was read for. */
static void start_dispatch(struct forward *f, int index)
{
    const struct moe_saved *s = f->call->saved;
    if (index >= s->count)
        return;
    const struct moe_chunk *c = &s->chunks[index];
    struct moe_exchange *x = &f->dispatch;

    moe_rows_open(f->call, c, f->normed, x);
    if (s->count == 1)
        normed_read(f, c);
    moe_exchange_start(f->call, x);
    if (s->count > 1)
        normed_read(f, c);
}

/* m5 with ep 1: sorted by expert is expert order; the map says nothing new and stays unread. */
static void order_here(const struct forward *f, struct moe_chunk *c)
{
    moe_rows_here(f->call, c, f->normed);
    normed_read(f, c);
}

/* m4 ended, m5; the next chunk's rows set out. */
static void receive(struct forward *f, int index)
{
    struct moe_exchange arrived = f->dispatch;

    moe_rows_arrive(f->call, &f->call->saved->chunks[index], &arrived);
    start_dispatch(f, index + 1);
}

/* m7, m8 */
static struct buffer activate_and_down(const struct forward *f, struct moe_chunk *c)
{
    const struct moe_call *call = f->call;
    struct work *w = call->state->work;
    const struct moe_shape shape = moe_shape(call);
    const struct expert_linear down = moe_down(call, c);

    struct buffer a = moe_take_rows(call, c, OWNER_EXPERT, shape.width, sizeof(bf16));
    WORK_OP(w, swiglu, c->received, shape.width, c->h.data, c->we.data, a.data);
    work_give_unless_kept(w, call->keep, &c->h);
    work_give_unless_kept(w, call->keep, &c->we);
    struct buffer y = moe_take_rows(call, c, OWNER_EXPERT, shape.hidden, sizeof(bf16));
    expert_forward(w, &down, a.data, state_weight(call->state, shape.unit, ROLE_EXPERT_DOWN),
                   y.data);
    work_give(w, &a);
    return y;
}

/* m11 of one chunk; the first one makes the output. */
static void combine(const struct forward *f, const struct moe_chunk *c, const struct buffer *rows)
{
    struct work *w = f->call->state->work;
    const struct moe_saved *s = f->call->saved;
    const struct moe_shape shape = moe_shape(f->call);
    uint64_t first = (uint64_t)c->first, at = first * (uint64_t)shape.hidden;

    if (c == s->chunks)
        *f->output = work_take_tensor(w, f->output_owner, shape.tokens, shape.hidden, sizeof(bf16));
    WORK_OP(w, combine_rows, c->tokens, shape.top_k, shape.hidden, rows->data,
            element_at(s->slots.data, first * (uint64_t)shape.top_k, sizeof(int32_t)),
            element_at(f->residual->data, at, sizeof(bf16)),
            element_at(f->output->data, at, sizeof(bf16)), NULL, NULL);
}

/* m10 ended: the rows that are back are combined. */
static void land(struct forward *f)
{
    moe_exchange_wait(f->call, &f->returned);
    combine(f, f->returned.chunk, &f->returned.to);
    moe_exchange_close(f->call, &f->returned);
}

/* m9, and m10 started when the chunk before is back. */
static void send_back(struct forward *f, struct moe_chunk *c, struct buffer *y)
{
    struct work *w = f->call->state->work;
    struct moe_exchange x = { .chunk = c, .back = true };

    moe_exchange_open(f->call, &x);
    WORK_OP(w, spread_rows, c->received, moe_shape(f->call).hidden, y->data, c->map.data,
            x.from.data, NULL, NULL);
    work_give(w, y);
    work_give_unless_kept(w, f->call->keep, &c->map);
    if (c != f->call->saved->chunks)
        land(f);
    moe_exchange_start(f->call, &x);
    f->returned = x;
}

static void chunk_forward(struct forward *f, int index)
{
    struct work *w = f->call->state->work;
    struct moe_chunk *c = &f->call->saved->chunks[index];
    bool exchanges = moe_shape(f->call).exchanges;

    if (exchanges)
        receive(f, index);
    else
        order_here(f, c);
    moe_rows_gate_up(f->call, c);
    if (!f->output)
        return;
    struct buffer y = activate_and_down(f, c);
    if (exchanges) {
        send_back(f, c, &y);
        return;
    }
    work_give_unless_kept(w, f->call->keep, &c->map);
    combine(f, c, &y);
    work_give(w, &y);
}

static void through_chunks(struct forward *f)
{
    bool exchanges = moe_shape(f->call).exchanges;

    route(f->call, f->normed);
    if (exchanges)
        start_dispatch(f, 0);
    for (int i = 0; i < f->call->saved->count; i++)
        chunk_forward(f, i);
    if (exchanges && f->output)
        land(f);
}

void moe_replay(const struct moe_call *call, struct buffer *normed, bool normed_later)
{
    struct forward f = { .call = call, .normed = normed, .normed_later = normed_later };

    if (!moe_replays_chunks(call)) {
        through_chunks(&f);
        return;
    }
    route(call, normed);
    if (!normed_later)
        work_give(call->state->work, normed);
}

void moe_forward(const struct moe_call *call, struct buffer *normed, bool normed_later,
                 const struct buffer *residual, struct buffer *output, enum owner output_owner)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    struct forward f = { .call = call,
                         .normed = normed,
                         .normed_later = normed_later,
                         .residual = residual,
                         .output = output,
                         .output_owner = output_owner };

    through_chunks(&f);
    work_give_unless_kept(w, call->keep, &s->choices);
    work_give_unless_kept(w, call->keep, &s->weights);
    work_give_unless_kept(w, call->keep, &s->slots);
}
