#include "budget_events_step.h"

/* What is under way: the dispatch of a chunk, and its return. */
struct flight {
    struct tensor_alive send, send_w, recv, recv_w, back, back_w, ret, ret_w;
    struct tensor_alive dsend, drecv;
};

struct chunked {
    struct layer *y;
    struct step *s;
    int n, delay;
    bool ep, again; /* again: a backward that brings each chunk's rows once more */
    struct flight flight[MAX_CHUNKS + 1];
    struct tensor_alive a[MAX_CHUNKS], dy[MAX_CHUNKS], n2;
    bool combined;
};

static void chunked_init(struct chunked *c, struct layer *y)
{
    memset(c, 0, sizeof *c);
    c->y = y;
    c->s = y->s;
    c->n = y->s->p->moe_chunks;
    c->delay = y->s->p->wgrad_delay < 0 ? c->n : y->s->p->wgrad_delay;
    c->ep = y->s->l->ep > 1;
}

/* Tokens of chunk i: runs of ceil(T / n), the last what is left. */
static uint64_t tokens(const struct chunked *c, int i)
{
    uint64_t T = c->s->T, n = (uint64_t)c->n, run = (T + n - 1) / n, at = run * (uint64_t)i;
    return at >= T ? 0 : at + run > T ? T - at : run;
}

static uint64_t sent(const struct chunked *c, int i)
{
    return tokens(c, i) * (uint64_t)c->s->m->moe.top_k;
}

/* As told by a measurement, which here holds one entry a layer; else an even share. */
static uint64_t received(const struct chunked *c, int i)
{
    const struct measured_rank *m = c->s->in->measured;
    uint64_t T = c->s->T;
    if (m && m->routed[c->y->index].chunk_count > 0)
        return m->routed[c->y->index].chunk_rows_received[i];
    return (c->y->R * tokens(c, i) + T - 1) / T;
}

static struct tensor_alive rows(struct chunked *c, enum item item, uint64_t count, uint64_t width)
{
    return make(c->s, item, count * width);
}

static void land(struct chunked *c, struct tensor_alive *one, struct tensor_alive *two)
{
    drop(c->s, one);
    drop(c->s, two);
}

/* ---- forward ---- */

static void start_dispatch(struct chunked *c, int i)
{
    struct flight *f = &c->flight[i];
    if (!c->ep || i >= c->n)
        return;
    f->send = rows(c, ITEM_DISPATCH_SEND, sent(c, i), 2 * c->s->H);
    f->send_w = rows(c, ITEM_DISPATCH_SEND, sent(c, i), 4);
    f->recv = rows(c, ITEM_DISPATCH_RECV, received(c, i), 2 * c->s->H);
    f->recv_w = rows(c, ITEM_DISPATCH_RECV, received(c, i), 4);
}

/* Adds a chunk's rows to the output, which the first one makes. */
static void combine(struct chunked *c, struct tensor_alive *from)
{
    if (!c->combined)
        make_output(c->y);
    c->combined = true;
    drop(c->s, from);
}

/* m7, m8: the rows that the experts give. */
static struct tensor_alive experts_forward(struct chunked *c, int i, struct kept_rows *k)
{
    uint64_t R = received(c, i), f = (uint64_t)c->s->m->moe.width;
    unless_kept(c->y, &k->xe);
    struct tensor_alive a = rows(c, ITEM_EXPERT_WORKING, R, 2 * f);
    unless_kept(c->y, &k->h);
    unless_kept(c->y, &k->we);
    struct tensor_alive y = rows(c, ITEM_EXPERT_WORKING, R, 2 * c->s->H);
    drop(c->s, &a);
    return y;
}

/* m5, with the dispatch ended. */
static void arrive(struct chunked *c, int i)
{
    struct kept_rows *k = &c->y->k->chunk[i];
    struct flight *f = &c->flight[i];
    uint64_t R = received(c, i), H = c->s->H;
    land(c, &f->send, &f->send_w);
    k->xe = keep(c->y, ITEM_EXPERT_WORKING, R * 2 * H);
    k->we = keep(c->y, ITEM_EXPERT_WORKING, R * 4);
    k->map = keep(c->y, ITEM_EXPERT_WORKING, R * 4);
    land(c, &f->recv, &f->recv_w);
}

static void gate_up(struct chunked *c, int i)
{
    uint64_t width = (uint64_t)c->s->m->moe.width;
    c->y->k->chunk[i].h = keep(c->y, ITEM_EXPERT_WORKING, received(c, i) * 4 * width);
}

/* The last permutation has read n2: with an exchange when it sets out. */
static void read_normed(struct chunked *c, int i)
{
    if (i == c->n - 1 && !c->s->m->moe.shared_width)
        drop(c->s, &c->n2);
}

static void forward_chunk(struct chunked *c, int i)
{
    struct step *s = c->s;
    struct kept_rows *k = &c->y->k->chunk[i];
    struct flight *f = &c->flight[i], *last = i > 0 ? &c->flight[i - 1] : NULL;
    uint64_t R = received(c, i), H = s->H;
    arrive(c, i);
    if (!c->ep)
        read_normed(c, i);
    start_dispatch(c, i + 1);
    if (c->ep)
        read_normed(c, i + 1);
    gate_up(c, i);
    struct tensor_alive y = experts_forward(c, i, k);
    if (!c->ep) {
        unless_kept(c->y, &k->map);
        combine(c, &y);
        return;
    }
    f->back = rows(c, ITEM_DISPATCH_SEND, R, 2 * H);
    drop(s, &y);
    unless_kept(c->y, &k->map);
    if (last) {
        drop(s, &last->back);
        combine(c, &last->ret);
    }
    f->ret = rows(c, ITEM_DISPATCH_RECV, sent(c, i), 2 * H);
}

static void forward_chunks(struct chunked *c)
{
    start_dispatch(c, 0);
    for (int i = 0; i < c->n; i++)
        forward_chunk(c, i);
    if (c->ep) {
        drop(c->s, &c->flight[c->n - 1].back);
        combine(c, &c->flight[c->n - 1].ret);
    }
}

void chunked_forward(struct layer *y)
{
    struct chunked c;
    struct step *s = y->s;
    chunked_init(&c, y);
    c.n2 = working(y, 2 * s->T * s->H);
    router_forward(y);
    if (y->mode == REPLAY) {
        if (!s->m->moe.shared_width)
            drop(s, &c.n2);
    } else {
        forward_chunks(&c);
    }
    unless_kept(y, &y->k->choices);
    unless_kept(y, &y->k->weights);
    unless_kept(y, &y->k->slots);
    if (s->m->moe.shared_width)
        shared_forward(y, &c.n2);
    unless_kept(y, &y->k->x1);
}

/* ---- backward ---- */

static void start_backward(struct chunked *c, int i)
{
    if (!c->ep || i >= c->n)
        return;
    if (c->again)
        start_dispatch(c, i);
    c->flight[i].dsend = rows(c, ITEM_DISPATCH_SEND, sent(c, i), 2 * c->s->H);
    c->flight[i].drecv = rows(c, ITEM_DISPATCH_RECV, received(c, i), 2 * c->s->H);
}

/* Weight gradients that were to wait for the input gradient of chunk i. */
static void late_weights(struct chunked *c, int i)
{
    for (int j = 0; j <= i; j++) {
        int until = j + c->delay < c->n ? j + c->delay : c->n - 1;
        if (until != i)
            continue;
        drop(c->s, &c->a[j]);
        drop(c->s, &c->dy[j]);
        drop(c->s, &c->y->k->chunk[j].xe);
        drop(c->s, &c->y->k->chunk[j].h);
    }
}

/* b4 to b8. */
static struct tensor_alive experts_backward(struct chunked *c, int i, struct tensor_alive *dw)
{
    struct step *s = c->s;
    struct kept_rows *k = &c->y->k->chunk[i];
    uint64_t R = received(c, i), f = (uint64_t)s->m->moe.width;
    c->a[i] = rows(c, ITEM_EXPERT_WORKING, R, 2 * f);
    if (c->delay == 0)
        drop(s, &c->a[i]);
    struct tensor_alive da = rows(c, ITEM_EXPERT_WORKING, R, 2 * f);
    if (c->delay == 0)
        drop(s, &c->dy[i]);
    *dw = rows(c, ITEM_EXPERT_WORKING, R, 4);
    drop(s, &da);
    drop(s, &k->we);
    if (c->delay == 0)
        drop(s, &k->xe);
    struct tensor_alive dxe = rows(c, ITEM_EXPERT_WORKING, R, 2 * s->H);
    late_weights(c, i);
    return dxe;
}

static void land_return(struct chunked *c, int i)
{
    struct flight *f = &c->flight[i];
    land(c, &f->back, &f->back_w);
    drop(c->s, &c->y->k->chunk[i].map);
    struct tensor_alive dweights = working(c->y, 4 * sent(c, i));
    drop(c->s, &dweights);
    land(c, &f->ret, &f->ret_w);
}

static void backward_chunk(struct chunked *c, int i)
{
    struct step *s = c->s;
    struct flight *f = &c->flight[i];
    struct tensor_alive dw;
    uint64_t R = received(c, i);
    if (c->again)
        arrive(c, i);
    drop(s, &f->dsend);
    c->dy[i] = rows(c, ITEM_EXPERT_WORKING, R, 2 * s->H);
    drop(s, &f->drecv);
    start_backward(c, i + 1);
    if (c->again)
        gate_up(c, i);
    struct tensor_alive dxe = experts_backward(c, i, &dw);
    if (!c->ep) {
        struct tensor_alive dweights = working(c->y, 4 * sent(c, i));
        drop(s, &dweights);
        land(c, &dxe, &dw);
        drop(s, &c->y->k->chunk[i].map);
        return;
    }
    f->back = rows(c, ITEM_DISPATCH_SEND, R, 2 * s->H);
    f->back_w = rows(c, ITEM_DISPATCH_SEND, R, 4);
    land(c, &dxe, &dw);
    if (i > 0)
        land_return(c, i - 1);
    f->ret = rows(c, ITEM_DISPATCH_RECV, sent(c, i), 2 * s->H);
    f->ret_w = rows(c, ITEM_DISPATCH_RECV, sent(c, i), 4);
}

void chunked_backward(struct layer *y, bool again)
{
    struct chunked c;
    struct step *s = y->s;
    struct kept *k = y->k;
    struct tensor_alive n2 = { 0 }, dn2 = { 0 };
    chunked_init(&c, y);
    c.again = again;
    if (s->m->moe.shared_width)
        shared_backward(y, &n2, &dn2);
    else {
        n2 = working(y, 2 * s->T * s->H);
        dn2 = working(y, 2 * s->T * s->H);
    }
    struct tensor_alive dlogits = working(y, 4 * s->T * (uint64_t)s->m->moe.experts);
    start_backward(&c, 0);
    for (int i = 0; i < c.n; i++)
        backward_chunk(&c, i);
    if (c.ep)
        land_return(&c, c.n - 1);
    struct tensor_alive *gone[] = { &k->probs, &k->choices, &k->weights, &k->slots,
                                    &dlogits,  &n2,         &dn2,        &k->x1 };
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        drop(s, gone[i]);
}
