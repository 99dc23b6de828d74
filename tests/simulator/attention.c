/* attention.c - attention over keys of its own: a1 to a6, c1 to c9. */
#include "tests/simulator/rank.h"

struct widths {
    uint64_t Q, K, all, heads;
};

static struct widths widths_of(const struct rank *s)
{
    const struct gqa *g = &s->m->gqa;
    struct widths w = { .heads = split(g->heads, s->tp) };
    w.Q = w.heads * (uint64_t)g->head_dim;
    w.K = split(g->kv_heads, s->tp) * (uint64_t)g->head_dim;
    w.all = w.Q + (g->output_gate ? w.Q : 0) + 2 * w.K;
    return w;
}

/* The keys and values of the context group; kr is in them. */
static struct held gather_keys(struct rank *s, uint64_t K, struct held *kr)
{
    if (!gathers_keys(s))
        return (struct held){ ITEM_KV_GATHER, 0 };
    struct held kvs = make(s, ITEM_KV_GATHER, 2 * s->T * 2 * K);
    struct held kv = make(s, ITEM_KV_GATHER, 2 * s->A * 2 * K);
    drop(s, kr);
    drop(s, &kvs);
    return kv;
}

/* a3, a4 */
static void attend(struct layer *y, const struct widths *w)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct held qr = working(y, 2 * s->T * w->Q), kr = working(y, 2 * s->T * w->K);
    struct held kv = gather_keys(s, w->K, &kr);
    struct context_held context = context_make(y, false);
    k->o = attended(y, 2 * s->T * w->Q);
    k->lse = attended(y, 4 * s->T * w->heads);
    context_drop(y, &context);
    drop(s, &qr);
    drop(s, &kr);
    drop(s, &kv);
    unless_attended(y, &k->lse);
}

void attention_forward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct widths w = widths_of(s);
    uint64_t T = s->T;
    bool gate = s->m->gqa.output_gate;
    struct held n1 = working(y, 2 * s->N * s->H), all = whole_hidden(y);
    k->qkv = keep(y, ITEM_LAYER_WORKING, 2 * T * w.all);
    struct held adapter = input_adapter(y);
    drop(s, &adapter);
    drop(s, &n1);
    drop(s, &all);
    if (attends(y))
        attend(y, &w);
    if (ends_early(y))
        return;
    struct held og = { ITEM_LAYER_WORKING, 0 };
    if (gate)
        og = working(y, 2 * T * w.Q);
    unless_kept(y, &k->qkv);
    if (gate)
        unless_attended(y, &k->o);
    mixer_output(y);
    drop(s, &og);
    unless_attended(y, &k->o);
}

void attention_backward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct widths w = widths_of(s);
    uint64_t T = s->T;
    bool gate = s->m->gqa.output_gate;
    struct held dqkv = { 0 }, dx_all = whole_hidden(y);
    struct held d_adapter = output_backward(y, gate ? 2 * T * w.Q : 0);
    struct held d_o = working(y, 2 * T * w.Q);
    drop(s, &d_adapter);
    drop(s, &dx_all);
    if (gate)
        dqkv = working(y, 2 * T * w.all);
    struct held qr = working(y, 2 * T * w.Q), kr = working(y, 2 * T * w.K);
    struct held kv = gather_keys(s, w.K, &kr), dkv = { ITEM_KV_GATHER, 0 }, dkvs = dkv;
    if (gathers_keys(s))
        dkv = make(s, ITEM_KV_GATHER, 4 * s->A * 2 * w.K);
    if (!gate)
        dqkv = working(y, 2 * T * w.all);
    struct context_held context = context_make(y, true);
    struct held delta = working(y, 4 * T * w.heads);
    struct held scratch = make(s, ITEM_WORKSPACE, attention_scratch(s));
    context_drop(y, &context);
    struct held *gone[] = { &scratch, &k->o, &k->lse, &d_o, &qr, &kr, &kv, &delta };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    if (gathers_keys(s))
        dkvs = make(s, ITEM_KV_GATHER, 4 * T * 2 * w.K);
    drop(s, &dkv);
    drop(s, &dkvs);
    drop(s, &k->qkv);
    struct held *after[] = { &dqkv };
    mixer_input_backward(y, after, 1, true);
}
