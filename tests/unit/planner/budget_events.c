#include "budget_events.h"

#include "base/hardware/hardware.h"

#include <assert.h>
#include <string.h>

/* ---- the ledger ---- */

struct tensor_alive {
    enum item item;
    uint64_t bytes;
};

struct step {
    const struct budget_input *in;
    const struct model *m;
    const struct layout *l;
    const struct primitives *p;
    const uint64_t *received;
    struct played *ledger;
    uint64_t T, H, Q, K, G, heads;
    struct tensor_alive checkpoint[MODEL_MAX_LAYERS + 1]; /* [layers]: xf */
    struct tensor_alive dx;
    struct tensor_alive gathered[2 * MODEL_MAX_LAYERS + 1][4];
    bool issued[2 * MODEL_MAX_LAYERS + 1];
    struct tensor_alive full[4], old[8]; /* gradient buffers of this unit, of the unit before */
};

static struct tensor_alive make(struct step *s, enum item item, uint64_t bytes)
{
    struct played *g = s->ledger;
    uint64_t rounded = (bytes + 255) / 256 * 256;
    g->live[item] += rounded;
    g->total += rounded;
    if (g->live[item] > g->max[item])
        g->max[item] = g->live[item];
    if (g->total > g->peak) {
        g->peak = g->total;
        memcpy(g->at_peak, g->live, sizeof g->live);
    }
    return (struct tensor_alive){ item, rounded };
}

static void drop(struct step *s, struct tensor_alive *t)
{
    assert(s->ledger->live[t->item] >= t->bytes);
    s->ledger->live[t->item] -= t->bytes;
    s->ledger->total -= t->bytes;
    t->bytes = 0;
}

/* ---- units ---- */

static uint64_t pad(uint64_t n, int shards)
{
    uint64_t to = 64u * (uint64_t)shards;
    return (n + to - 1) / to * to;
}

static int dense_shards(const struct step *s)
{
    return s->l->fsdp * s->l->cp;
}

static uint64_t layer_dense(const struct step *s, int layer)
{
    const struct model *m = s->m;
    uint64_t h = s->H, norms = 2 * h + (m->gqa.qk_norm ? 2u * (uint64_t)m->gqa.head_dim : 0);
    uint64_t n = norms + h * (s->Q + s->G + 2 * s->K) + s->Q * h;
    if (m->layer_ffn[layer] == FFN_DENSE)
        return pad(n + 3 * h * (uint64_t)m->dense_width, dense_shards(s));
    n += h * (uint64_t)m->moe.experts + 3 * h * (uint64_t)m->moe.shared_width;
    n += m->moe.shared_width && m->moe.shared_gate ? h : 0;
    return pad(n, dense_shards(s));
}

static uint64_t layer_expert(const struct step *s, int layer)
{
    const struct model *m = s->m;
    if (m->layer_ffn[layer] == FFN_DENSE)
        return 0;
    uint64_t local = (uint64_t)(m->moe.experts / s->l->ep);
    return pad(local * 3 * s->H * (uint64_t)m->moe.width, s->l->e_fsdp);
}

static uint64_t embedding_dense(const struct step *s)
{
    return pad((uint64_t)s->m->vocab * s->H, dense_shards(s));
}

static uint64_t head_dense(const struct step *s)
{
    return pad(s->H + (s->m->tied ? 0 : (uint64_t)s->m->vocab * s->H), dense_shards(s));
}

static void keep_state(struct step *s, uint64_t n, int shards)
{
    uint64_t k = (uint64_t)shards, grad = s->p->grad_dtype == DTYPE_BF16 ? 2 : 4;
    bool fsdp = s->p->sharding == SHARDING_FSDP, whole = s->p->sharding == SHARDING_REPLICATED;
    make(s, ITEM_WEIGHTS, 2 * (fsdp ? n / k : n));
    make(s, ITEM_GRADIENTS, grad * (fsdp ? n / k : n));
    make(s, ITEM_MASTER, 4 * (whole ? n : n / k));
    make(s, ITEM_MOMENTS, 8 * (whole ? n : n / k));
}

static void play_state(struct step *s)
{
    keep_state(s, embedding_dense(s), dense_shards(s));
    for (int i = 0; i < s->m->layers; i++) {
        keep_state(s, layer_dense(s, i), dense_shards(s));
        if (layer_expert(s, i))
            keep_state(s, layer_expert(s, i), s->l->e_fsdp);
    }
    keep_state(s, head_dense(s), dense_shards(s));
}

/* Order of use: 0 embedding, 1..L layers, L+1 head, L+2..2L+1 layers backwards. */
static int layer_of_use(const struct step *s, int use)
{
    int layers = s->m->layers;
    return use <= layers ? use - 1 : 2 * layers + 1 - use;
}

static void gather(struct step *s, int use)
{
    int layers = s->m->layers, n = 0;
    bool dense = dense_shards(s) > 1, head = use == layers + 1;
    struct tensor_alive *to = s->gathered[use];
    memset(to, 0, sizeof s->gathered[use]);
    if (use == 0 || (head && s->m->tied))
        if (dense)
            to[n++] = make(s, ITEM_GATHERED_WEIGHTS, 2 * embedding_dense(s));
    if (head && dense)
        to[n++] = make(s, ITEM_GATHERED_WEIGHTS, 2 * head_dense(s));
    if (use == 0 || head)
        return;
    int layer = layer_of_use(s, use);
    if (dense)
        to[n++] = make(s, ITEM_GATHERED_WEIGHTS, 2 * layer_dense(s, layer));
    if (s->l->e_fsdp > 1 && layer_expert(s, layer))
        to[n] = make(s, ITEM_GATHERED_WEIGHTS, 2 * layer_expert(s, layer));
}

static void begin_use(struct step *s, int use)
{
    if (s->p->sharding != SHARDING_FSDP)
        return;
    for (int i = use; i <= use + s->p->prefetch_units && i < 2 * s->m->layers + 2; i++) {
        if (!s->issued[i])
            gather(s, i);
        s->issued[i] = true;
    }
}

static void end_use(struct step *s, int use)
{
    if (s->p->sharding == SHARDING_FSDP)
        for (int i = 0; i < 4; i++)
            drop(s, &s->gathered[use][i]);
}

static uint64_t grad_bytes(const struct step *s)
{
    return s->p->grad_dtype == DTYPE_BF16 ? 2 : 4;
}

static void open_gradients(struct step *s, const uint64_t *parts, const int *shards, int count)
{
    memset(s->full, 0, sizeof s->full);
    for (int i = 0; i < count; i++)
        if (s->p->sharding == SHARDING_FSDP && shards[i] > 1 && parts[i])
            s->full[i] = make(s, ITEM_GATHERED_GRADIENTS, grad_bytes(s) * parts[i]);
}

static void drop_old(struct step *s)
{
    for (int i = 0; i < 8; i++)
        drop(s, &s->old[i]);
}

static void close_gradients(struct step *s, const uint64_t *parts, const int *shards, int count)
{
    bool later = s->p->comm_streams == 2;
    if (later)
        drop_old(s);
    for (int i = 0; i < count; i++) {
        if (s->full[i].bytes == 0)
            continue;
        struct tensor_alive receive =
            make(s, ITEM_GATHERED_GRADIENTS, grad_bytes(s) * parts[i] / (uint64_t)shards[i]);
        if (later) {
            s->old[2 * i] = s->full[i];
            s->old[2 * i + 1] = receive;
        } else {
            drop(s, &receive);
            drop(s, &s->full[i]);
        }
    }
}

/* ---- one layer, forward ---- */

enum mode { PLAIN, SAVE, REPLAY };

struct kept {
    struct tensor_alive qkv, o, lse, x1, probs, choices, weights, slots, xe, we, map, h, hs, gate;
    struct tensor_alive hd;
};

struct layer {
    struct step *s;
    int index;
    enum mode mode;
    struct kept *k;
    uint64_t S, R;
};

static struct tensor_alive working(struct layer *y, uint64_t bytes)
{
    return make(y->s, ITEM_LAYER_WORKING, bytes);
}

static struct tensor_alive keep(struct layer *y, enum item item, uint64_t bytes)
{
    return make(y->s, y->mode == SAVE ? ITEM_LAYER_SAVED : item, bytes);
}

/* Releases a kept tensor only where nothing is kept. */
static void unless_kept(struct layer *y, struct tensor_alive *t)
{
    if (y->mode == PLAIN)
        drop(y->s, t);
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
    k->o = keep(y, ITEM_LAYER_WORKING, 2 * T * s->Q);
    k->lse = keep(y, ITEM_LAYER_WORKING, 4 * T * s->heads);
    drop(s, &qr);
    drop(s, &kr);
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

/* The layer's output: the next checkpoint, or xf; a replay writes a scratch instead. */
static struct tensor_alive make_output(struct layer *y)
{
    struct step *s = y->s;
    uint64_t bytes = 2 * s->T * s->H;
    if (y->mode == REPLAY)
        return working(y, bytes);
    bool last = y->index == s->m->layers - 1;
    s->checkpoint[y->index + 1] = make(s, last ? ITEM_LOSS_WORKING : ITEM_CHECKPOINTS, bytes);
    return (struct tensor_alive){ ITEM_LAYER_WORKING, 0 };
}

static void dense_forward(struct layer *y)
{
    struct step *s = y->s;
    uint64_t F = (uint64_t)s->m->dense_width;
    struct tensor_alive n2 = working(y, 2 * s->T * s->H);
    y->k->hd = keep(y, ITEM_LAYER_WORKING, 2 * s->T * 2 * F);
    drop(s, &n2);
    struct tensor_alive ad = working(y, 2 * s->T * F);
    unless_kept(y, &y->k->hd);
    struct tensor_alive scratch = make_output(y);
    drop(s, &ad);
    drop(s, &scratch);
    unless_kept(y, &y->k->x1);
}

static void shared_forward(struct layer *y, struct tensor_alive *n2)
{
    struct step *s = y->s;
    uint64_t width = (uint64_t)s->m->moe.shared_width;
    y->k->hs = keep(y, ITEM_LAYER_WORKING, 2 * s->T * 2 * width);
    drop(s, n2);
    struct tensor_alive as = working(y, 2 * s->T * width);
    if (s->m->moe.shared_gate)
        y->k->gate = keep(y, ITEM_LAYER_WORKING, 4 * s->T);
    unless_kept(y, &y->k->hs);
    drop(s, &as);
    unless_kept(y, &y->k->gate);
}

static void router_forward(struct layer *y)
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

static void moe_forward(struct layer *y)
{
    struct step *s = y->s;
    struct kept *k = y->k;
    uint64_t f = (uint64_t)s->m->moe.width;
    bool ep = s->l->ep > 1;
    struct tensor_alive n2 = working(y, 2 * s->T * s->H);
    router_forward(y);
    dispatch_forward(y, &n2);
    k->h = keep(y, ITEM_EXPERT_WORKING, 2 * y->R * 2 * f);
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
    struct tensor_alive scratch = make_output(y);
    drop(s, &rows);
    unless_kept(y, &k->choices);
    unless_kept(y, &k->weights);
    unless_kept(y, &k->slots);
    if (s->m->moe.shared_width)
        shared_forward(y, &n2);
    drop(s, &scratch);
    unless_kept(y, &k->x1);
}

static void layer_forward(struct step *s, int index, enum mode mode, struct kept *k)
{
    struct layer y = { s, index, mode, k, s->T * (uint64_t)s->m->moe.top_k, s->received[index] };
    memset(k, 0, sizeof *k);
    attention_forward(&y);
    if (s->m->layer_ffn[index] == FFN_DENSE)
        dense_forward(&y);
    else
        moe_forward(&y);
}

/* ---- one layer, backward ---- */

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

static void shared_backward(struct layer *y, struct tensor_alive *n2, struct tensor_alive *dn2)
{
    struct step *s = y->s;
    uint64_t width = (uint64_t)s->m->moe.shared_width;
    *n2 = working(y, 2 * s->T * s->H);
    struct tensor_alive as = working(y, 2 * s->T * width);
    struct tensor_alive das = working(y, 2 * s->T * width);
    drop(s, &as);
    drop(s, &das);
    *dn2 = working(y, 2 * s->T * s->H);
    drop(s, &y->k->hs);
    drop(s, &y->k->gate);
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
    struct tensor_alive *gone[] = { &rows,     &ret_w,      &dw,         &k->map,
                                    &k->probs, &k->choices, &k->weights, &k->slots };
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        drop(s, gone[i]);
    drop(s, &dlogits);
    drop(s, &n2);
    drop(s, &dn2);
    drop(s, &k->x1);
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
    if (!s->G)
        dqkv = working(y, 2 * T * all);
    struct tensor_alive delta = working(y, 4 * T * s->heads);
    uint64_t scratch = 8 * s->in->seq_tokens * dim;
    if (!s->in->hardware->host)
        scratch = 4 * s->Q * T + (s->Q == s->K ? 0 : 4 * s->Q * s->in->seq_tokens);
    struct tensor_alive workspace = make(s, ITEM_WORKSPACE, scratch);
    struct tensor_alive *gone[] = { &workspace, &k->o, &k->lse, &d_o, &qr, &kr, &delta };
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        drop(s, gone[i]);
    drop(s, &k->qkv);
    struct tensor_alive n1 = working(y, 2 * T * s->H);
    drop(s, &n1);
    struct tensor_alive dn1 = working(y, 2 * T * s->H);
    drop(s, &dqkv);
    drop(s, &dn1);
    drop(s, &s->checkpoint[y->index]);
}

/* ---- the step ---- */

static bool replays(const struct step *s, int layer)
{
    if (s->p->recompute != RECOMPUTE_FULL)
        return false;
    return s->p->recompute_layers < 0 || layer < s->p->recompute_layers;
}

static void play_loss(struct step *s, int use)
{
    uint64_t parts[] = { head_dense(s), embedding_dense(s) };
    int shards[] = { dense_shards(s), dense_shards(s) }, count = s->m->tied ? 2 : 1;
    uint64_t T = s->T, H = s->H, V = (uint64_t)s->m->vocab, t = T < 512 ? T : 512;
    bool fp32 = s->p->logits_dtype == DTYPE_FP32, full = s->p->loss == LOSS_FULL;
    begin_use(s, use);
    open_gradients(s, parts, shards, count);
    struct tensor_alive nf = make(s, ITEM_LOSS_WORKING, 2 * T * H);
    struct tensor_alive dnf = make(s, ITEM_LOSS_WORKING, 2 * T * H), one = { 0 }, two = { 0 };
    if (full)
        one = make(s, ITEM_LOGITS, (fp32 ? 4u : 2u) * T * V);
    else
        one = make(s, ITEM_LOSS_WORKING, 4 * t * V);
    if (!full || fp32)
        two = make(s, ITEM_LOSS_WORKING, 2 * t * V);
    drop(s, &one);
    drop(s, &two);
    s->dx = make(s, ITEM_LAYER_WORKING, 2 * T * H);
    drop(s, &s->checkpoint[s->m->layers]);
    drop(s, &nf);
    drop(s, &dnf);
    end_use(s, use);
    close_gradients(s, parts, shards, count);
}

static void play_backward(struct step *s, int layer, int use, struct kept *k)
{
    uint64_t parts[] = { layer_dense(s, layer), layer_expert(s, layer) };
    int shards[] = { dense_shards(s), s->l->e_fsdp };
    begin_use(s, use);
    open_gradients(s, parts, shards, 2);
    if (replays(s, layer))
        layer_forward(s, layer, REPLAY, k);
    struct layer y = { s, layer, PLAIN, k, s->T * (uint64_t)s->m->moe.top_k, s->received[layer] };
    if (s->m->layer_ffn[layer] == FFN_DENSE)
        dense_backward(&y);
    else
        moe_backward(&y);
    attention_backward(&y);
    end_use(s, use);
    close_gradients(s, parts, shards, 2);
}

static void play_micro_batch(struct step *s)
{
    static struct kept kept[MODEL_MAX_LAYERS];
    int layers = s->m->layers, use = 0;
    uint64_t embedding[] = { embedding_dense(s) };
    int shards[] = { dense_shards(s) };
    memset(s->issued, 0, sizeof s->issued);
    struct tensor_alive ids = make(s, ITEM_INPUTS, 4 * s->T),
                        targets = make(s, ITEM_INPUTS, 4 * s->T);
    begin_use(s, use);
    s->checkpoint[0] = make(s, ITEM_CHECKPOINTS, 2 * s->T * s->H);
    end_use(s, use++);
    for (int i = 0; i < layers; i++) {
        begin_use(s, use);
        layer_forward(s, i, replays(s, i) ? PLAIN : SAVE, &kept[i]);
        end_use(s, use++);
    }
    play_loss(s, use++);
    for (int i = layers - 1; i >= 0; i--)
        play_backward(s, i, use++, &kept[i]);
    open_gradients(s, embedding, shards, 1);
    drop(s, &s->dx);
    close_gradients(s, embedding, shards, 1);
    drop_old(s);
    drop(s, &ids);
    drop(s, &targets);
}

static void reduce_part(struct step *s, uint64_t elements, int shards)
{
    if (s->p->sharding != SHARDING_ZERO1 || shards == 1)
        return;
    struct tensor_alive receive =
        make(s, ITEM_GATHERED_GRADIENTS, grad_bytes(s) * elements / (uint64_t)shards);
    drop(s, &receive);
}

void play_step(const struct budget_input *in, const uint64_t *received, struct played *ret)
{
    static struct step step;
    struct step *s = &step;
    const struct gqa *g = &in->model->gqa;
    memset(s, 0, sizeof *s);
    memset(ret, 0, sizeof *ret);
    *s = (struct step){ .in = in, .m = in->model, .l = &in->choices->layout, .ledger = ret };
    s->p = &in->choices->primitives;
    s->received = received;
    s->T = (uint64_t)s->l->micro_batch * in->seq_tokens;
    s->H = (uint64_t)in->model->hidden;
    s->heads = (uint64_t)g->heads;
    s->Q = (uint64_t)(g->heads * g->head_dim);
    s->K = (uint64_t)(g->kv_heads * g->head_dim);
    s->G = g->output_gate ? s->Q : 0;
    play_state(s);
    make(s, ITEM_WORKSPACE, in->hardware->workspace_bytes);
    for (int i = 0; i < s->l->micro_batches; i++)
        play_micro_batch(s);
    reduce_part(s, embedding_dense(s), dense_shards(s));
    reduce_part(s, head_dense(s), dense_shards(s));
    for (int i = 0; i < s->m->layers; i++) {
        reduce_part(s, layer_dense(s, i), dense_shards(s));
        reduce_part(s, layer_expert(s, i), s->l->e_fsdp);
    }
}
