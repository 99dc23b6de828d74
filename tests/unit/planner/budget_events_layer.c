#include "budget_events_step.h"

struct tensor_alive working(struct layer *y, uint64_t bytes)
{
    return make(y->s, ITEM_LAYER_WORKING, bytes);
}

struct tensor_alive keep(struct layer *y, enum item item, uint64_t bytes)
{
    return make(y->s, y->mode == SAVE ? ITEM_LAYER_SAVED : item, bytes);
}

/* Releases a kept tensor only where nothing is kept. */
void unless_kept(struct layer *y, struct tensor_alive *t)
{
    if (y->mode == PLAIN)
        drop(y->s, t);
}

/* The keys and values of the context group; kr is in them. Nothing with one rank. */
static struct tensor_alive gather_keys(struct step *s, struct tensor_alive *kr)
{
    uint64_t group = (uint64_t)s->l->cp;
    if (group == 1)
        return (struct tensor_alive){ ITEM_KV_GATHER, 0 };
    struct tensor_alive kvs = make(s, ITEM_KV_GATHER, 2 * s->T * 2 * s->K);
    struct tensor_alive kv = make(s, ITEM_KV_GATHER, 2 * s->T * group * 2 * s->K);
    drop(s, kr);
    drop(s, &kvs);
    return kv;
}

static void attention_forward(struct layer *y)
{
    struct step *s = y->s;
    struct kept *k = y->k;
    uint64_t T = s->T;
    struct tensor_alive n1 = working(y, 2 * T * s->H);
    k->qkv = keep(y, ITEM_LAYER_WORKING, 2 * T * (s->Q + s->G + 2 * s->K));
    drop(s, &n1);
    struct tensor_alive qr = working(y, 2 * T * s->Q), kr = working(y, 2 * T * s->K);
    struct tensor_alive kv = gather_keys(s, &kr);
    k->o = keep(y, ITEM_LAYER_WORKING, 2 * T * s->Q);
    k->lse = keep(y, ITEM_LAYER_WORKING, 4 * T * s->heads);
    drop(s, &qr);
    drop(s, &kr);
    drop(s, &kv);
    unless_kept(y, &k->lse);
    if (!s->G)
        unless_kept(y, &k->qkv);
    struct tensor_alive og = { ITEM_LAYER_WORKING, 0 };
    if (s->G) {
        og = working(y, 2 * T * s->Q);
        unless_kept(y, &k->qkv);
        unless_kept(y, &k->o);
    }
    k->x1 = keep(y, ITEM_LAYER_WORKING, 2 * T * s->H);
    drop(s, &og);
    if (!s->G)
        unless_kept(y, &k->o);
}

/* The layer's output: the next checkpoint, or xf. */
void make_output(struct layer *y)
{
    struct step *s = y->s;
    bool last = y->index == s->m->layers - 1;
    s->checkpoint[y->index + 1] =
        make(s, last ? ITEM_LOSS_WORKING : ITEM_CHECKPOINTS, 2 * s->T * s->H);
}

static void dense_forward(struct layer *y)
{
    struct step *s = y->s;
    uint64_t F = (uint64_t)s->m->dense_width;
    struct tensor_alive n2 = working(y, 2 * s->T * s->H);
    y->k->hd = keep(y, ITEM_LAYER_WORKING, 2 * s->T * 2 * F);
    drop(s, &n2);
    if (y->mode == REPLAY)
        return;
    struct tensor_alive ad = working(y, 2 * s->T * F);
    unless_kept(y, &y->k->hd);
    make_output(y);
    drop(s, &ad);
    unless_kept(y, &y->k->x1);
}

void shared_forward(struct layer *y, struct tensor_alive *n2)
{
    struct step *s = y->s;
    uint64_t width = (uint64_t)s->m->moe.shared_width;
    y->k->hs = keep(y, ITEM_LAYER_WORKING, 2 * s->T * 2 * width);
    if (s->m->moe.shared_gate)
        y->k->gate = keep(y, ITEM_LAYER_WORKING, 4 * s->T);
    drop(s, n2);
    if (y->mode == REPLAY)
        return;
    struct tensor_alive as = working(y, 2 * s->T * width);
    unless_kept(y, &y->k->hs);
    drop(s, &as);
    unless_kept(y, &y->k->gate);
}

void router_forward(struct layer *y)
{
    struct step *s = y->s;
    struct kept *k = y->k;
    uint64_t top = (uint64_t)s->m->moe.top_k;
    k->probs = keep(y, ITEM_LAYER_WORKING, 4 * s->T * (uint64_t)s->m->moe.experts);
    k->choices = keep(y, ITEM_LAYER_WORKING, 4 * s->T * top);
    k->weights = keep(y, ITEM_LAYER_WORKING, 4 * s->T * top);
    k->slots = keep(y, ITEM_LAYER_WORKING, 4 * s->T * top);
    unless_kept(y, &k->probs);
}

/* m3 to m5: rows reach the ranks of their experts, in expert order. */
static void dispatch_forward(struct layer *y, struct tensor_alive *n2)
{
    struct step *s = y->s;
    struct kept *k = y->k;
    bool ep = s->l->ep > 1, shared = s->m->moe.shared_width > 0;
    struct tensor_alive recv = { ITEM_DISPATCH_RECV, 0 }, recv_w = recv;
    if (ep) {
        struct tensor_alive send = make(s, ITEM_DISPATCH_SEND, 2 * y->S * s->H);
        struct tensor_alive send_w = make(s, ITEM_DISPATCH_SEND, 4 * y->S);
        if (!shared)
            drop(s, n2);
        recv = make(s, ITEM_DISPATCH_RECV, 2 * y->R * s->H);
        recv_w = make(s, ITEM_DISPATCH_RECV, 4 * y->R);
        drop(s, &send);
        drop(s, &send_w);
    }
    k->xe = keep(y, ITEM_EXPERT_WORKING, 2 * y->R * s->H);
    k->we = keep(y, ITEM_EXPERT_WORKING, 4 * y->R);
    k->map = keep(y, ITEM_EXPERT_WORKING, 4 * y->R);
    drop(s, &recv);
    drop(s, &recv_w);
    if (!ep && !shared)
        drop(s, n2);
}

/* m7 to m11 */
static void finish_experts(struct layer *y)
{
    struct step *s = y->s;
    struct kept *k = y->k;
    bool ep = s->l->ep > 1;
    uint64_t f = (uint64_t)s->m->moe.width;
    unless_kept(y, &k->xe);
    struct tensor_alive a = make(s, ITEM_EXPERT_WORKING, 2 * y->R * f);
    unless_kept(y, &k->h);
    unless_kept(y, &k->we);
    struct tensor_alive rows = make(s, ITEM_EXPERT_WORKING, 2 * y->R * s->H); /* y */
    drop(s, &a);
    if (ep) {
        struct tensor_alive back = make(s, ITEM_DISPATCH_SEND, 2 * y->R * s->H);
        drop(s, &rows);
        unless_kept(y, &k->map);
        rows = make(s, ITEM_DISPATCH_RECV, 2 * y->S * s->H); /* ret */
        drop(s, &back);
    }
    unless_kept(y, &k->map);
    make_output(y);
    drop(s, &rows);
    unless_kept(y, &k->choices);
    unless_kept(y, &k->weights);
    unless_kept(y, &k->slots);
}

static void moe_forward(struct layer *y)
{
    struct step *s = y->s;
    struct tensor_alive n2 = working(y, 2 * s->T * s->H);
    router_forward(y);
    dispatch_forward(y, &n2);
    y->k->h = keep(y, ITEM_EXPERT_WORKING, 2 * y->R * 2 * (uint64_t)s->m->moe.width);
    if (y->mode != REPLAY)
        finish_experts(y);
    if (s->m->moe.shared_width)
        shared_forward(y, &n2);
    unless_kept(y, &y->k->x1);
}

void layer_forward(struct step *s, int index, enum mode mode, struct kept *k)
{
    struct layer y = { s, index, mode, k, s->T * (uint64_t)s->m->moe.top_k, s->received[index] };
    memset(k, 0, sizeof *k);
    attention_forward(&y);
    if (s->m->layer_ffn[index] == FFN_DENSE)
        dense_forward(&y);
    else if (s->p->moe == MOE_CHUNKED)
        chunked_forward(&y);
    else
        moe_forward(&y);
}

static void dense_backward(struct layer *y)
{
    struct step *s = y->s;
    uint64_t F = (uint64_t)s->m->dense_width, H = s->H;
    struct tensor_alive ad = working(y, 2 * s->T * F);
    struct tensor_alive dad = working(y, 2 * s->T * F);
    drop(s, &ad);
    drop(s, &dad); /* dhd over hd */
    struct tensor_alive n2 = working(y, 2 * s->T * H);
    drop(s, &n2);
    struct tensor_alive dn2 = working(y, 2 * s->T * H);
    drop(s, &y->k->hd);
    drop(s, &dn2);
    drop(s, &y->k->x1);
}

void shared_backward(struct layer *y, struct tensor_alive *n2, struct tensor_alive *dn2)
{
    struct step *s = y->s;
    uint64_t width = (uint64_t)s->m->moe.shared_width;
    *n2 = working(y, 2 * s->T * s->H);
    struct tensor_alive as = working(y, 2 * s->T * width);
    struct tensor_alive das = working(y, 2 * s->T * width);
    drop(s, &as);
    struct tensor_alive dgate = working(y, y->k->gate.bytes);
    drop(s, &das);
    *dn2 = working(y, 2 * s->T * s->H);
    drop(s, &y->k->hs);
    drop(s, &y->k->gate);
    drop(s, &dgate);
}

/* b4 to b8; dy is released, dxe and dw are left. */
static struct tensor_alive experts_backward(struct layer *y, struct tensor_alive *dy,
                                            struct tensor_alive *dw)
{
    struct step *s = y->s;
    uint64_t f = (uint64_t)s->m->moe.width;
    struct tensor_alive a = make(s, ITEM_EXPERT_WORKING, 2 * y->R * f);
    drop(s, &a);
    struct tensor_alive da = make(s, ITEM_EXPERT_WORKING, 2 * y->R * f);
    drop(s, dy);
    *dw = make(s, ITEM_EXPERT_WORKING, 4 * y->R);
    drop(s, &da);
    drop(s, &y->k->we);
    drop(s, &y->k->xe);
    struct tensor_alive dxe = make(s, ITEM_EXPERT_WORKING, 2 * y->R * s->H);
    drop(s, &y->k->h);
    return dxe;
}

static void moe_backward(struct layer *y)
{
    struct step *s = y->s;
    struct kept *k = y->k;
    bool ep = s->l->ep > 1, shared = s->m->moe.shared_width > 0;
    struct tensor_alive n2 = { 0 }, dn2 = { 0 }, ret_w = { 0 }, drecv = { 0 }, dw;
    if (shared)
        shared_backward(y, &n2, &dn2);
    if (ep) {
        struct tensor_alive dsend = make(s, ITEM_DISPATCH_SEND, 2 * y->S * s->H);
        drecv = make(s, ITEM_DISPATCH_RECV, 2 * y->R * s->H);
        drop(s, &dsend);
    }
    struct tensor_alive dy = make(s, ITEM_EXPERT_WORKING, 2 * y->R * s->H);
    drop(s, &drecv);
    struct tensor_alive rows = experts_backward(y, &dy, &dw);
    if (ep) {
        struct tensor_alive back = make(s, ITEM_DISPATCH_SEND, 2 * y->R * s->H);
        struct tensor_alive back_w = make(s, ITEM_DISPATCH_SEND, 4 * y->R);
        drop(s, &rows);
        drop(s, &dw);
        rows = make(s, ITEM_DISPATCH_RECV, 2 * y->S * s->H);
        ret_w = make(s, ITEM_DISPATCH_RECV, 4 * y->S);
        drop(s, &back);
        drop(s, &back_w);
        drop(s, &k->map);
    }
    if (!shared) {
        n2 = working(y, 2 * s->T * s->H);
        dn2 = working(y, 2 * s->T * s->H);
    }
    struct tensor_alive dlogits = working(y, 4 * s->T * (uint64_t)s->m->moe.experts);
    struct tensor_alive dweights = working(y, 4 * y->S);
    struct tensor_alive *gone[] = { &rows,     &ret_w,      &dw,         &k->map,  &dweights,
                                    &k->probs, &k->choices, &k->weights, &k->slots };
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        drop(s, gone[i]);
    drop(s, &dlogits);
    drop(s, &n2);
    drop(s, &dn2);
    drop(s, &k->x1);
}

/* A block of at most 2,048 queries of one head against at most 4,096 keys, rows of whole eights:
 * two fp32 and two bf16 matrices, fp32 dQ; dK and dV of a sequence's keys where nothing sums them.
 */
static uint64_t block_scratch(const struct step *s)
{
    uint64_t seq = s->in->seq_tokens, cp = (uint64_t)s->l->cp, d = (uint64_t)s->m->gqa.head_dim;
    uint64_t n = cp > 1 ? seq / cp / 2 : seq, m = (seq + 7) & ~UINT64_C(7);
    n = n > 2048 ? 2048 : n;
    m = m > 4096 ? 4096 : m;
    return n * m * (4 + 4 + 2 + 2) + n * d * 4 + (cp > 1 ? 0 : 2 * seq * d * 4);
}

/* Of one group of key heads: as many groups as leave half a GiB each, or one a head. */
static uint64_t library_scratch(const struct step *s)
{
    if (s->p->attention_deterministic)
        return block_scratch(s);
    uint64_t T = s->T, A = T * (uint64_t)s->l->cp, kv = s->K / (uint64_t)s->m->gqa.head_dim;
    uint64_t whole = 4 * s->Q * T + (s->Q == s->K ? 0 : 4 * s->Q * A);
    if (s->l->cp > 1) /* half the queries, all keys once more */
        whole += 4 * s->K * A - 2 * s->Q * T;
    for (uint64_t groups = 1; groups < kv; groups++)
        if (kv % groups == 0 && whole / groups <= UINT64_C(536870912))
            return 256 + whole / groups;
    return 256 + whole / kv;
}

static void attention_backward(struct layer *y)
{
    struct step *s = y->s;
    struct kept *k = y->k;
    uint64_t T = s->T, all = s->Q + s->G + 2 * s->K, dim = (uint64_t)s->m->gqa.head_dim;
    struct tensor_alive dqkv = { 0 };
    if (s->G) {
        struct tensor_alive og = working(y, 2 * T * s->Q);
        drop(s, &og);
    }
    struct tensor_alive d_o = working(y, 2 * T * s->Q);
    if (s->G)
        dqkv = working(y, 2 * T * all);
    struct tensor_alive qr = working(y, 2 * T * s->Q), kr = working(y, 2 * T * s->K);
    struct tensor_alive kv = gather_keys(s, &kr), dkv = { ITEM_KV_GATHER, 0 }, dkvs = dkv;
    if (s->l->cp > 1)
        dkv = make(s, ITEM_KV_GATHER, 4 * T * (uint64_t)s->l->cp * 2 * s->K);
    if (!s->G)
        dqkv = working(y, 2 * T * all);
    struct tensor_alive delta = working(y, 4 * T * s->heads);
    uint64_t scratch = s->in->hardware->host ? 8 * s->in->seq_tokens * dim : library_scratch(s);
    struct tensor_alive workspace = make(s, ITEM_WORKSPACE, scratch);
    struct tensor_alive *gone[] = { &workspace, &k->o, &k->lse, &d_o, &qr, &kr, &kv, &delta };
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        drop(s, gone[i]);
    if (s->l->cp > 1)
        dkvs = make(s, ITEM_KV_GATHER, 4 * T * 2 * s->K);
    drop(s, &dkv);
    drop(s, &dkvs);
    drop(s, &k->qkv);
    struct tensor_alive n1 = working(y, 2 * T * s->H);
    drop(s, &n1);
    struct tensor_alive dn1 = working(y, 2 * T * s->H);
    drop(s, &dqkv);
    drop(s, &dn1);
    drop(s, &s->checkpoint[y->index]);
}

void layer_backward(struct step *s, int index, bool again, struct kept *k)
{
    struct layer y = { s, index, PLAIN, k, s->T * (uint64_t)s->m->moe.top_k, s->received[index] };
    if (s->m->layer_ffn[index] == FFN_DENSE)
        dense_backward(&y);
    else if (s->p->moe == MOE_CHUNKED)
        chunked_backward(&y, again);
    else
        moe_backward(&y);
    attention_backward(&y);
}
