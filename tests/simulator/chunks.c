/* chunks.c - experts in chunks of tokens. Chunked: dispatch and return of one chunk travel beside
 * the work of another. Capped: one chunk after another, of which nothing is kept. */
#include "tests/simulator/rank.h"

#include <string.h>

/* What is under way of a chunk. */
struct flight {
    struct held send, send_w, recv, recv_w, back, back_w, ret, ret_w, dsend, drecv;
};

struct chunks {
    struct layer *y;
    struct rank *s;
    int n, delay;
    bool ep, capped, again; /* again: a backward that brings each chunk's rows once more */
    enum mode mode;         /* of the rows */
    uint64_t W;
    struct flight flight[SIM_MAX_CHUNKS + 1];
    struct held a[SIM_MAX_CHUNKS], dy[SIM_MAX_CHUNKS], n2, latent;
    struct held n2_again; /* of a backward: read by dispatches alone */
    bool combined;
};

static void chunks_init(struct chunks *c, struct layer *y)
{
    const struct primitives *p = y->s->p;
    memset(c, 0, sizeof *c);
    c->y = y;
    c->s = y->s;
    c->capped = p->moe == MOE_CAPPED;
    c->n = p->moe_chunks;
    if (c->capped) {
        uint64_t cap = p->moe_cap_tokens < c->s->N ? p->moe_cap_tokens : c->s->N;
        c->n = (int)((c->s->N + cap - 1) / cap);
    }
    c->delay = c->capped ? 0 : p->wgrad_delay < 0 ? c->n : p->wgrad_delay;
    if (!layer_trains(y, COMPONENT_EXPERTS))
        c->delay = 0;
    c->ep = exchanges(y->s);
    c->mode = c->capped || y->mode == KEEP_ATTENTION ? PLAIN : y->mode;
    c->again = c->capped || y->mode == REPLAY;
    c->W = (uint64_t)model_routed_width(y->s->m);
}

/* Tokens of chunk i: runs of ceil(N / n), or every n-th; the last has what is left. */
static uint64_t tokens(const struct chunks *c, int i)
{
    uint64_t N = c->s->N, n = (uint64_t)c->n, run = (N + n - 1) / n, at = run * (uint64_t)i;
    return at >= N ? 0 : at + run > N ? N - at : run;
}

static uint64_t sent(const struct chunks *c, int i)
{
    return tokens(c, i) * (uint64_t)c->s->m->moe.top_k;
}

static uint64_t received(const struct chunks *c, int i)
{
    const uint64_t *const *told = c->s->job->chunks;
    if (told && !c->y->predicted && told[c->y->index])
        return told[c->y->index][i];
    return (c->y->R * tokens(c, i) + c->s->N - 1) / c->s->N;
}

static struct held rows(struct chunks *c, enum item item, uint64_t count, uint64_t width)
{
    return make(c->s, item, count * width);
}

static struct held keep_rows(struct chunks *c, uint64_t count, uint64_t width)
{
    return rows(c, c->mode == SAVE ? ITEM_LAYER_SAVED : ITEM_EXPERT_WORKING, count, width);
}

static void unless_rows_kept(struct chunks *c, struct held *t)
{
    if (c->mode == PLAIN)
        drop(c->s, t);
}

static void land(struct chunks *c, struct held *one, struct held *two)
{
    drop(c->s, one);
    drop(c->s, two);
}

/* The last permutation has read the normed input, or its projection. */
static void read_normed(struct chunks *c, int i)
{
    if (i != c->n - 1)
        return;
    drop(c->s, &c->latent);
    drop(c->s, &c->n2_again);
    if (c->s->m->moe.shared_width == 0)
        drop(c->s, &c->n2);
}

static void start_dispatch(struct chunks *c, int i)
{
    struct flight *f = &c->flight[i];
    if (!c->ep || i >= c->n)
        return;
    f->send = rows(c, ITEM_DISPATCH_SEND, sent(c, i), 2 * c->W);
    f->send_w = rows(c, ITEM_DISPATCH_SEND, sent(c, i), 4);
    f->recv = rows(c, ITEM_DISPATCH_RECV, received(c, i), 2 * c->W);
    f->recv_w = rows(c, ITEM_DISPATCH_RECV, received(c, i), 4);
}

/* m3, m4: one after the other. */
static void dispatch_alone(struct chunks *c, int i)
{
    struct flight *f = &c->flight[i];
    if (!c->ep)
        return;
    f->send = rows(c, ITEM_DISPATCH_SEND, sent(c, i), 2 * c->W);
    f->send_w = rows(c, ITEM_DISPATCH_SEND, sent(c, i), 4);
    read_normed(c, i);
    f->recv = rows(c, ITEM_DISPATCH_RECV, received(c, i), 2 * c->W);
    f->recv_w = rows(c, ITEM_DISPATCH_RECV, received(c, i), 4);
}

/* m5, with the dispatch ended. */
static void arrive(struct chunks *c, int i)
{
    struct kept_rows *k = &c->y->k->chunk[i];
    struct flight *f = &c->flight[i];
    uint64_t R = received(c, i);
    land(c, &f->send, &f->send_w);
    k->xe = reads_inputs(c->y, COMPONENT_EXPERTS) ? keep_rows(c, R, 2 * c->W)
                                                  : rows(c, ITEM_EXPERT_WORKING, R, 2 * c->W);
    k->we = keep_rows(c, R, 4);
    k->map = keep_rows(c, R, 4);
    land(c, &f->recv, &f->recv_w);
}

static void gate_up(struct chunks *c, int i)
{
    uint64_t width = gate_up_width(c->s, expert_width(c->s));
    uint64_t r = expert_up_adapters(c->s);
    c->y->k->chunk[i].h = keep_rows(c, received(c, i), 2 * width);
    struct held adapter = rows(c, ITEM_EXPERT_WORKING, received(c, i), 2 * r);
    drop(c->s, &adapter);
    if (!reads_inputs(c->y, COMPONENT_EXPERTS))
        drop(c->s, &c->y->k->chunk[i].xe);
}

/* Adds a chunk's rows to the output, or to the sum that the output is made of. */
static void combine(struct chunks *c, struct held *from)
{
    bool latent = c->s->m->moe.latent > 0;
    if (!c->combined && latent)
        keep_latent_sum(c->y);
    else if (!c->combined)
        make_output(c->y);
    c->combined = true;
    drop(c->s, from);
}

/* m7, m8: the rows that the experts give. */
static struct held experts_forward(struct chunks *c, int i)
{
    struct kept_rows *k = &c->y->k->chunk[i];
    uint64_t R = received(c, i);
    unless_rows_kept(c, &k->xe);
    struct held a = rows(c, ITEM_EXPERT_WORKING, R, 2 * expert_width(c->s));
    unless_rows_kept(c, &k->h);
    unless_rows_kept(c, &k->we);
    struct held y = rows(c, ITEM_EXPERT_WORKING, R, 2 * c->W);
    struct held adapter =
        rows(c, ITEM_EXPERT_WORKING, R, 2 * adapter_rank(c->s, COMPONENT_EXPERTS));
    drop(c->s, &adapter);
    drop(c->s, &a);
    return y;
}

static void forward_chunk(struct chunks *c, int i)
{
    struct rank *s = c->s;
    struct kept_rows *k = &c->y->k->chunk[i];
    struct flight *f = &c->flight[i], *last = i > 0 ? &c->flight[i - 1] : NULL;
    if (c->capped)
        dispatch_alone(c, i);
    arrive(c, i);
    if (!c->ep)
        read_normed(c, i);
    if (!c->capped) {
        start_dispatch(c, i + 1);
        if (c->ep)
            read_normed(c, i + 1);
    }
    gate_up(c, i);
    struct held y = experts_forward(c, i);
    if (!c->ep) {
        unless_rows_kept(c, &k->map);
        combine(c, &y);
        return;
    }
    f->back = rows(c, ITEM_DISPATCH_SEND, received(c, i), 2 * c->W);
    drop(s, &y);
    unless_rows_kept(c, &k->map);
    if (last && !c->capped) {
        drop(s, &last->back);
        combine(c, &last->ret);
    }
    f->ret = rows(c, ITEM_DISPATCH_RECV, sent(c, i), 2 * c->W);
    if (c->capped) {
        drop(s, &f->back);
        combine(c, &f->ret);
    }
}

static void forward_chunks(struct chunks *c)
{
    if (!c->capped)
        start_dispatch(c, 0);
    for (int i = 0; i < c->n; i++)
        forward_chunk(c, i);
    if (c->ep && !c->capped) {
        drop(c->s, &c->flight[c->n - 1].back);
        combine(c, &c->flight[c->n - 1].ret);
    }
    if (c->s->m->moe.latent > 0)
        make_output(c->y);
}

void chunked_forward(struct layer *y)
{
    struct chunks c;
    struct rank *s = y->s;
    chunks_init(&c, y);
    c.n2 = working(y, 2 * s->N * s->H);
    router_forward(y);
    if (y->mode != REPLAY)
        c.latent = working(y, latent_bytes(s));
    unless_kept(y, &y->k->probs);
    if (y->mode == REPLAY) {
        if (s->m->moe.shared_width == 0)
            drop(s, &c.n2);
    } else {
        forward_chunks(&c);
    }
    unless_kept(y, &y->k->chosen);
    unless_kept(y, &y->k->weights);
    unless_kept(y, &y->k->slots);
    if (s->m->moe.shared_width > 0)
        shared_forward(y, &c.n2);
    if (!reads_inputs(y, COMPONENT_EXPERTS))
        drop(s, &y->k->latent_sum);
    unless_kept(y, &y->k->x1);
}

static void start_backward(struct chunks *c, int i)
{
    if (!c->ep || i >= c->n)
        return;
    if (c->again && !c->capped)
        start_dispatch(c, i);
    c->flight[i].dsend = rows(c, ITEM_DISPATCH_SEND, sent(c, i), 2 * c->W);
    c->flight[i].drecv = rows(c, ITEM_DISPATCH_RECV, received(c, i), 2 * c->W);
    if (c->again && !c->capped)
        read_normed(c, i);
}

/* Weight gradients that were to wait for the input gradient of chunk i. */
static void late_weights(struct chunks *c, int i)
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
static struct held experts_backward(struct chunks *c, int i, struct held *dw)
{
    struct rank *s = c->s;
    struct kept_rows *k = &c->y->k->chunk[i];
    uint64_t R = received(c, i), f = expert_width(s), r = adapter_rank(s, COMPONENT_EXPERTS);
    if (reads_inputs(c->y, COMPONENT_EXPERTS))
        c->a[i] = rows(c, ITEM_EXPERT_WORKING, R, 2 * f);
    struct held adapter = rows(c, ITEM_EXPERT_WORKING, R, 2 * r);
    struct held d_adapter = rows(c, ITEM_EXPERT_WORKING, R, 2 * r);
    drop(s, &adapter);
    if (c->delay == 0)
        drop(s, &c->a[i]);
    struct held da = rows(c, ITEM_EXPERT_WORKING, R, 2 * f);
    drop(s, &d_adapter);
    if (c->delay == 0)
        drop(s, &c->dy[i]);
    *dw = rows(c, ITEM_EXPERT_WORKING, R, 4);
    drop(s, &da);
    drop(s, &k->we);
    adapter = rows(c, ITEM_EXPERT_WORKING, R, 2 * expert_up_adapters(s));
    d_adapter = rows(c, ITEM_EXPERT_WORKING, R, 2 * expert_up_adapters(s));
    drop(s, &adapter);
    if (c->delay == 0)
        drop(s, &k->xe);
    struct held dxe = rows(c, ITEM_EXPERT_WORKING, R, 2 * c->W);
    drop(s, &d_adapter);
    late_weights(c, i);
    return dxe;
}

static void land_return(struct chunks *c, int i)
{
    struct flight *f = &c->flight[i];
    land(c, &f->back, &f->back_w);
    drop(c->s, &c->y->k->chunk[i].map);
    struct held dweights = working(c->y, 4 * sent(c, i));
    drop(c->s, &dweights);
    land(c, &f->ret, &f->ret_w);
}

/* Rows that are brought again for a chunk's backward. */
static void bring_again(struct chunks *c, int i)
{
    if (!c->again)
        return;
    if (c->capped)
        dispatch_alone(c, i);
    arrive(c, i);
    if (!c->ep)
        read_normed(c, i);
    if (c->capped)
        gate_up(c, i);
}

static void backward_chunk(struct chunks *c, int i, struct held *d_sum)
{
    struct rank *s = c->s;
    struct flight *f = &c->flight[i];
    struct held dw;
    uint64_t R = received(c, i);
    bring_again(c, i);
    if (c->capped)
        start_backward(c, i);
    drop(s, &f->dsend);
    c->dy[i] = rows(c, ITEM_EXPERT_WORKING, R, 2 * c->W);
    drop(s, &f->drecv);
    if (i == c->n - 1)
        drop(s, d_sum);
    if (!c->capped) {
        start_backward(c, i + 1);
        if (c->again)
            gate_up(c, i);
    }
    struct held dxe = experts_backward(c, i, &dw);
    if (!c->ep) {
        struct held dweights = working(c->y, 4 * sent(c, i));
        drop(s, &dweights);
        land(c, &dxe, &dw);
        drop(s, &c->y->k->chunk[i].map);
        return;
    }
    f->back = rows(c, ITEM_DISPATCH_SEND, R, 2 * c->W);
    f->back_w = rows(c, ITEM_DISPATCH_SEND, R, 4);
    land(c, &dxe, &dw);
    if (i > 0 && !c->capped)
        land_return(c, i - 1);
    f->ret = rows(c, ITEM_DISPATCH_RECV, sent(c, i), 2 * c->W);
    f->ret_w = rows(c, ITEM_DISPATCH_RECV, sent(c, i), 4);
    if (c->capped)
        land_return(c, i);
}

/* From here on the rows are those of the backward: kept ones are there, others come again. */
static void backward_chunks(struct chunks *c)
{
    struct layer *y = c->y;
    struct held d_sum = working(y, latent_bytes(c->s));
    struct held d_latent = working(y, latent_bytes(c->s));
    if (c->again)
        c->latent = working(y, latent_bytes(c->s));
    drop(c->s, &y->k->latent_sum);
    c->mode = REPLAY;
    if (!c->capped)
        start_backward(c, 0);
    for (int i = 0; i < c->n; i++)
        backward_chunk(c, i, &d_sum);
    if (c->ep && !c->capped)
        land_return(c, c->n - 1);
    drop(c->s, &d_latent);
}

void chunked_backward(struct layer *y)
{
    struct chunks c;
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct held n2 = { 0 }, dn2 = { 0 };
    chunks_init(&c, y);
    if (s->m->moe.shared_width > 0) {
        shared_backward(y, c.again, &n2, &dn2);
    } else {
        if (c.again || reads_n2(y))
            n2 = working(y, 2 * s->N * s->H);
        dn2 = working(y, 2 * s->N * s->H);
    }
    if (!reads_n2_late(y)) {
        c.n2_again = n2;
        n2.bytes = 0;
    }
    struct held dlogits = working(y, 4 * s->N * (uint64_t)s->m->moe.experts);
    backward_chunks(&c);
    struct held *gone[] = { &k->probs, &k->chosen, &k->weights, &k->slots,
                            &dlogits,  &n2,        &dn2,        &k->x1 };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
}
