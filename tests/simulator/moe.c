/* moe.c - experts in one piece: m1 to m14, s1 to s4, b1 to b13. */
#include "tests/simulator/rank.h"

bool exchanges(const struct rank *s)
{
    return s->l->ep * s->l->etp > 1;
}

uint64_t expert_width(const struct rank *s)
{
    return split(s->m->moe.width, (uint64_t)s->l->etp);
}

uint64_t latent_bytes(const struct rank *s)
{
    return 2 * s->N * (uint64_t)s->m->moe.latent;
}

void router_forward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    k->probs = keep(y, ITEM_LAYER_WORKING, 4 * s->N * (uint64_t)s->m->moe.experts);
    k->chosen = keep(y, ITEM_LAYER_WORKING, 4 * y->S);
    k->weights = keep(y, ITEM_LAYER_WORKING, 4 * y->S);
    k->slots = keep(y, ITEM_LAYER_WORKING, 4 * y->S);
}

void shared_forward(struct layer *y, struct held *n2)
{
    struct rank *s = y->s;
    uint64_t width = split(s->m->moe.shared_width, s->tp);
    struct held all = whole_hidden(y), gate = { 0 };
    uint64_t r = adapter_rank(s, COMPONENT_SHARED_EXPERT);
    y->k->hs = keep(y, ITEM_LAYER_WORKING, 2 * s->T * gate_up_width(s, width));
    if (s->m->moe.shared_gate)
        y->k->scalar_gate = keep(y, ITEM_LAYER_WORKING, 4 * s->T);
    struct held adapter = working(y, 2 * s->T * gate_up_width(s, r));
    drop(s, &adapter);
    drop(s, n2);
    drop(s, &all);
    if (!reads_inputs(y, COMPONENT_EXPERTS))
        drop(s, &y->k->latent_sum);
    if (y->mode == REPLAY)
        return;
    gate = working(y, 2 * s->T * width); /* as */
    unless_kept(y, &y->k->hs);
    struct held sum = whole_hidden(y);
    adapter = working(y, 2 * s->T * r);
    drop(s, &adapter);
    drop(s, &sum);
    drop(s, &gate);
    unless_kept(y, &y->k->scalar_gate);
}

/* m3 to m5: rows reach the ranks of their experts, in expert order. */
static void dispatch(struct layer *y, struct held *n2, struct held *latent)
{
    struct rank *s = y->s;
    struct kept_rows *k = &y->k->rows;
    uint64_t W = (uint64_t)model_routed_width(s->m);
    bool ep = exchanges(s), shared = s->m->moe.shared_width > 0;
    struct held recv = { ITEM_DISPATCH_RECV, 0 }, recv_w = recv;
    if (ep) {
        struct held send = make(s, ITEM_DISPATCH_SEND, 2 * y->S * W);
        struct held send_w = make(s, ITEM_DISPATCH_SEND, 4 * y->S);
        if (!shared)
            drop(s, n2);
        drop(s, latent);
        recv = make(s, ITEM_DISPATCH_RECV, 2 * y->R * W);
        recv_w = make(s, ITEM_DISPATCH_RECV, 4 * y->R);
        drop(s, &send);
        drop(s, &send_w);
    }
    k->xe = reads_inputs(y, COMPONENT_EXPERTS) ? keep(y, ITEM_EXPERT_WORKING, 2 * y->R * W)
                                               : make(s, ITEM_EXPERT_WORKING, 2 * y->R * W);
    k->we = keep(y, ITEM_EXPERT_WORKING, 4 * y->R);
    k->map = keep(y, ITEM_EXPERT_WORKING, 4 * y->R);
    drop(s, &recv);
    drop(s, &recv_w);
    drop(s, latent);
    if (!shared)
        drop(s, n2);
}

/* What is projected to the output: beside the layer's input where nothing is kept. */
void keep_latent_sum(struct layer *y)
{
    if (!reads_inputs(y, COMPONENT_EXPERTS))
        y->k->latent_sum = working(y, latent_bytes(y->s));
    else if (y->mode == SAVE)
        y->k->latent_sum = make(y->s, ITEM_LAYER_SAVED, latent_bytes(y->s));
}

/* m7 to m11 */
static void finish_experts(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    uint64_t W = (uint64_t)model_routed_width(s->m);
    unless_kept(y, &k->rows.xe);
    struct held a = make(s, ITEM_EXPERT_WORKING, 2 * y->R * expert_width(s));
    unless_kept(y, &k->rows.h);
    unless_kept(y, &k->rows.we);
    struct held rows = make(s, ITEM_EXPERT_WORKING, 2 * y->R * W); /* y */
    struct held adapter =
        make(s, ITEM_EXPERT_WORKING, 2 * y->R * adapter_rank(s, COMPONENT_EXPERTS));
    drop(s, &adapter);
    drop(s, &a);
    if (exchanges(s)) {
        struct held back = make(s, ITEM_DISPATCH_SEND, 2 * y->R * W);
        drop(s, &rows);
        unless_kept(y, &k->rows.map);
        rows = make(s, ITEM_DISPATCH_RECV, 2 * y->S * W); /* ret */
        drop(s, &back);
    }
    unless_kept(y, &k->rows.map);
    keep_latent_sum(y);
    make_output(y);
    if (!reads_inputs(y, COMPONENT_EXPERTS))
        drop(s, &k->latent_sum);
    drop(s, &rows);
    unless_kept(y, &k->chosen);
    unless_kept(y, &k->weights);
    unless_kept(y, &k->slots);
}

void moe_forward(struct layer *y)
{
    struct rank *s = y->s;
    struct held n2 = working(y, 2 * s->N * s->H);
    router_forward(y);
    struct held latent = working(y, latent_bytes(s));
    unless_kept(y, &y->k->probs);
    dispatch(y, &n2, &latent);
    y->k->rows.h = keep(y, ITEM_EXPERT_WORKING, 2 * y->R * gate_up_width(s, expert_width(s)));
    uint64_t r = expert_up_adapters(s);
    struct held adapter = make(s, ITEM_EXPERT_WORKING, 2 * y->R * r);
    drop(s, &adapter);
    if (!reads_inputs(y, COMPONENT_EXPERTS))
        drop(s, &y->k->rows.xe);
    if (y->mode != REPLAY)
        finish_experts(y);
    if (s->m->moe.shared_width > 0)
        shared_forward(y, &n2);
    unless_kept(y, &y->k->x1);
}

static bool shared_reads(const struct layer *y)
{
    return y->s->m->moe.shared_width > 0 && reads_inputs(y, COMPONENT_SHARED_EXPERT);
}

/* After the shared expert's backward; in all of it. */
bool reads_n2_late(const struct layer *y)
{
    bool latent = y->s->m->moe.latent > 0 && reads_inputs(y, COMPONENT_EXPERTS);
    return layer_trains(y, COMPONENT_ROUTER) || latent;
}

bool reads_n2(const struct layer *y)
{
    return reads_n2_late(y) || shared_reads(y);
}

void shared_backward(struct layer *y, bool again, struct held *n2, struct held *dn2)
{
    struct rank *s = y->s;
    uint64_t width = split(s->m->moe.shared_width, s->tp);
    uint64_t r = adapter_rank(s, COMPONENT_SHARED_EXPERT);
    if (again || reads_n2(y))
        *n2 = working(y, 2 * s->N * s->H);
    struct held dx_all = whole_hidden(y), as = { 0 };
    if (reads_inputs(y, COMPONENT_SHARED_EXPERT))
        as = working(y, 2 * s->T * width);
    struct held das = working(y, 2 * s->T * width);
    struct held adapter = working(y, 2 * s->T * r), d_adapter = working(y, 2 * s->T * r);
    drop(s, &adapter);
    drop(s, &d_adapter);
    drop(s, &dx_all);
    drop(s, &as);
    struct held dgate = working(y, y->k->scalar_gate.bytes);
    drop(s, &das);
    struct held all = { 0 };
    if (shared_reads(y))
        all = whole_hidden(y);
    struct held sum = whole_hidden(y);
    *dn2 = working(y, 2 * s->N * s->H);
    adapter = working(y, 2 * s->T * gate_up_width(s, r));
    d_adapter = working(y, adapter.bytes);
    drop(s, &adapter);
    drop(s, &d_adapter);
    if (!again && !reads_n2_late(y))
        drop(s, n2);
    drop(s, &all);
    drop(s, &sum);
    drop(s, &y->k->hs);
    drop(s, &y->k->scalar_gate);
    drop(s, &dgate);
}

/* b4 to b8; dy is released, dxe and dw are left. */
static struct held experts_backward(struct layer *y, struct held *dy, struct held *dw)
{
    struct rank *s = y->s;
    struct kept_rows *k = &y->k->rows;
    uint64_t r = adapter_rank(s, COMPONENT_EXPERTS);
    struct held a = { 0 };
    if (reads_inputs(y, COMPONENT_EXPERTS))
        a = make(s, ITEM_EXPERT_WORKING, 2 * y->R * expert_width(s));
    struct held adapter = make(s, ITEM_EXPERT_WORKING, 2 * y->R * r);
    struct held d_adapter = make(s, ITEM_EXPERT_WORKING, 2 * y->R * r);
    drop(s, &adapter);
    drop(s, &a);
    struct held da = make(s, ITEM_EXPERT_WORKING, 2 * y->R * expert_width(s));
    drop(s, &d_adapter);
    drop(s, dy);
    *dw = make(s, ITEM_EXPERT_WORKING, 4 * y->R);
    drop(s, &da);
    drop(s, &k->we);
    adapter = make(s, ITEM_EXPERT_WORKING, 2 * y->R * expert_up_adapters(s));
    d_adapter = make(s, ITEM_EXPERT_WORKING, adapter.bytes);
    drop(s, &adapter);
    drop(s, &k->xe);
    struct held dxe = make(s, ITEM_EXPERT_WORKING, 2 * y->R * (uint64_t)model_routed_width(s->m));
    drop(s, &d_adapter);
    drop(s, &k->h);
    return dxe;
}

/* b1 to b3 */
static struct held gradients_arrive(struct layer *y)
{
    struct rank *s = y->s;
    uint64_t W = (uint64_t)model_routed_width(s->m);
    struct held drecv = { ITEM_DISPATCH_RECV, 0 };
    struct held d_sum = working(y, latent_bytes(s));
    if (exchanges(s)) {
        struct held dsend = make(s, ITEM_DISPATCH_SEND, 2 * y->S * W);
        drop(s, &y->k->latent_sum);
        drecv = make(s, ITEM_DISPATCH_RECV, 2 * y->R * W);
        drop(s, &dsend);
    }
    drop(s, &y->k->latent_sum);
    struct held dy = make(s, ITEM_EXPERT_WORKING, 2 * y->R * W);
    drop(s, &drecv);
    drop(s, &d_sum);
    return dy;
}

/* b9, b10: rows and ret_w are what the source gets. */
static void gradients_return(struct layer *y, struct held *rows, struct held *dw,
                             struct held *ret_w)
{
    struct rank *s = y->s;
    uint64_t W = (uint64_t)model_routed_width(s->m);
    struct held back = make(s, ITEM_DISPATCH_SEND, 2 * y->R * W);
    struct held back_w = make(s, ITEM_DISPATCH_SEND, 4 * y->R);
    drop(s, rows);
    drop(s, dw);
    *rows = make(s, ITEM_DISPATCH_RECV, 2 * y->S * W);
    *ret_w = make(s, ITEM_DISPATCH_RECV, 4 * y->S);
    drop(s, &back);
    drop(s, &back_w);
    drop(s, &y->k->rows.map);
}

void moe_backward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    bool shared = s->m->moe.shared_width > 0;
    struct held n2 = { 0 }, dn2 = { 0 }, ret_w = { 0 }, dw = { 0 };
    if (shared)
        shared_backward(y, false, &n2, &dn2);
    struct held dy = gradients_arrive(y);
    struct held rows = experts_backward(y, &dy, &dw);
    if (exchanges(s))
        gradients_return(y, &rows, &dw, &ret_w);
    if (!shared) {
        if (reads_n2(y))
            n2 = working(y, 2 * s->N * s->H);
        dn2 = working(y, 2 * s->N * s->H);
    }
    struct held dlogits = working(y, 4 * s->N * (uint64_t)s->m->moe.experts);
    struct held d_latent = working(y, latent_bytes(s));
    struct held dweights = working(y, 4 * y->S);
    struct held *gone[] = { &rows,     &ret_w,     &dw,         &k->rows.map, &dweights,
                            &k->probs, &k->chosen, &k->weights, &k->slots };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    drop(s, &dlogits);
    drop(s, &d_latent);
    drop(s, &n2);
    drop(s, &dn2);
    drop(s, &k->x1);
}
