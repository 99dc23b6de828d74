/* recurrent.c - linear attention: the gated delta net (g1 to g7, k1 to k10), lightning attention
 * (l1 to l6, n1 to n9), Mamba-2 (t1 to t6, u1 to u9). */
#include "tests/simulator/rank.h"

/* Chunks of a recurrence; those of packed pieces end with their piece. */
static uint64_t chunks_of(const struct rank *s, uint64_t tokens)
{
    uint64_t whole = (s->T + tokens - 1) / tokens;
    return s->pieces > 0 ? whole + s->pieces - 1 : whole;
}

struct sizes {
    uint64_t heads, key, value, in, conv, states; /* of a delta net */
};

static struct sizes delta_of(const struct rank *s)
{
    const struct gdn *g = &s->m->gdn;
    struct sizes w = { .heads = split(g->value_heads, s->tp) };
    uint64_t key = split(g->key_heads, s->tp) * (uint64_t)g->key_dim;
    w.value = w.heads * (uint64_t)g->value_dim;
    w.key = w.heads * (uint64_t)g->key_dim;
    w.in = 2 * key + 2 * w.value;
    w.conv = 2 * key + w.value;
    w.states = chunks_of(s, 64) * w.value * (uint64_t)g->key_dim;
    return w;
}

/* The normed input, gathered where tensor parallelism splits it. */
static void norm_input(struct layer *y, struct held *ret_n1, struct held *ret_all)
{
    *ret_n1 = working(y, 2 * y->s->N * y->s->H);
    *ret_all = whole_hidden(y);
}

void delta_forward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct sizes w = delta_of(s);
    uint64_t T = s->T;
    struct held n1, all;
    norm_input(y, &n1, &all);
    k->in = keep(y, ITEM_LAYER_WORKING, 2 * T * w.in);
    k->b = keep(y, ITEM_LAYER_WORKING, 2 * T * w.heads);
    k->a = keep(y, ITEM_LAYER_WORKING, 2 * T * w.heads);
    struct held adapter = input_adapter(y);
    drop(s, &adapter);
    drop(s, &n1);
    drop(s, &all);
    struct held qkv = working(y, 2 * T * w.conv), decay = working(y, 4 * T * w.heads);
    struct held beta = working(y, 4 * T * w.heads);
    unless_kept(y, &k->b);
    unless_kept(y, &k->a);
    struct context_held context = context_make(y, false);
    struct held wt = working(y, 2 * T * w.key), u = working(y, 2 * T * w.value);
    struct held states = working(y, 2 * w.states);
    k->triangle = keep(y, ITEM_LAYER_WORKING, 2 * T * 64 * w.heads);
    k->o = keep(y, ITEM_LAYER_WORKING, 2 * T * w.value);
    context_drop(y, &context);
    struct held *gone[] = { &qkv, &decay, &beta, &wt, &u, &states };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    unless_kept(y, &k->triangle);
    if (ends_early(y))
        return;
    struct held on = working(y, 2 * T * w.value);
    unless_kept(y, &k->in);
    unless_kept(y, &k->o);
    mixer_output(y);
    drop(s, &on);
}

/* k5, k6 */
static void delta_states_backward(struct layer *y, const struct sizes *w, struct held *d_o,
                                  struct held *ret_dqkv, struct held *ret_ddecay,
                                  struct held *ret_dbeta)
{
    struct rank *s = y->s;
    uint64_t T = s->T;
    struct held wt = working(y, 2 * T * w->key), v = working(y, 2 * T * w->value);
    struct held states = working(y, 2 * w->states);
    struct context_held context = context_make(y, true);
    struct held dstates = working(y, 2 * w->states);
    *ret_dqkv = working(y, 2 * T * w->conv);
    *ret_ddecay = working(y, 4 * T * w->heads);
    *ret_dbeta = working(y, 4 * T * w->heads);
    context_drop(y, &context);
    struct held *gone[] = { &y->k->triangle, d_o, &wt, &v, &states, &dstates };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
}

void delta_backward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct sizes w = delta_of(s);
    uint64_t T = s->T;
    struct held dx_all = whole_hidden(y), dqkv, ddecay, dbeta;
    struct held d_adapter = output_backward(y, 2 * T * w.value); /* on */
    struct held d_o = working(y, 2 * T * w.value);
    drop(s, &d_adapter);
    drop(s, &dx_all);
    struct held d_in = working(y, 2 * T * w.in);
    drop(s, &k->o);
    struct held qkv = working(y, 2 * T * w.conv), decay = working(y, 4 * T * w.heads);
    struct held beta = working(y, 4 * T * w.heads);
    delta_states_backward(y, &w, &d_o, &dqkv, &ddecay, &dbeta);
    struct held db = working(y, 2 * T * w.heads), da = working(y, 2 * T * w.heads);
    struct held *gone[] = { &k->in, &k->b, &k->a, &qkv, &decay, &beta, &dqkv, &ddecay, &dbeta };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    struct held *after[] = { &d_in, &db, &da };
    mixer_input_backward(y, after, 3, true);
}

/* fp32 states of every run of 256 tokens. */
static uint64_t lightning_states(const struct rank *s, uint64_t width)
{
    return 4 * chunks_of(s, 256) * width * (uint64_t)s->m->lightning.head_dim;
}

static uint64_t lightning_width(const struct rank *s)
{
    return split(s->m->lightning.heads, s->tp) * (uint64_t)s->m->lightning.head_dim;
}

void lightning_forward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    uint64_t T = s->T, W = lightning_width(s);
    struct held n1, all;
    norm_input(y, &n1, &all);
    k->in = keep(y, ITEM_LAYER_WORKING, 2 * T * 3 * W);
    k->gate = keep(y, ITEM_LAYER_WORKING, 2 * T * W);
    struct held adapter = input_adapter(y);
    drop(s, &adapter);
    drop(s, &n1);
    drop(s, &all);
    struct held active = working(y, 2 * T * 3 * W);
    unless_kept(y, &k->in);
    struct held states = working(y, lightning_states(s, W));
    struct context_held context = context_make(y, false);
    k->o = keep(y, ITEM_LAYER_WORKING, 2 * T * W);
    context_drop(y, &context);
    drop(s, &states);
    drop(s, &active);
    if (ends_early(y))
        return;
    struct held gated = working(y, 2 * T * W);
    unless_kept(y, &k->gate);
    unless_kept(y, &k->o);
    mixer_output(y);
    drop(s, &gated);
}

void lightning_backward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    uint64_t T = s->T, W = lightning_width(s);
    struct held dx_all = whole_hidden(y), d_adapter = output_backward(y, 2 * T * W);
    struct held d_o = working(y, 2 * T * W);
    drop(s, &d_adapter);
    drop(s, &dx_all);
    struct held dgate = working(y, 2 * T * W);
    drop(s, &k->gate);
    drop(s, &k->o);
    struct held active = working(y, 2 * T * 3 * W);
    struct held states = working(y, lightning_states(s, W));
    struct held dstates = working(y, lightning_states(s, W));
    struct context_held context = context_make(y, true);
    struct held dqkv = working(y, 2 * T * 3 * W);
    context_drop(y, &context);
    struct held *gone[] = { &states, &dstates, &active, &d_o, &k->in };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    struct held *after[] = { &dqkv, &dgate };
    mixer_input_backward(y, after, 2, true);
}

struct mamba_widths {
    uint64_t in, channels, inner, heads, products, states;
};

static struct mamba_widths mamba_of(const struct rank *s)
{
    const struct mamba *m = &s->m->mamba;
    uint64_t groups = split(m->groups, s->tp), chunk = (uint64_t)m->chunk_tokens;
    struct mamba_widths w = { .heads = split(m->heads, s->tp) };
    w.inner = w.heads * (uint64_t)m->head_dim;
    w.channels = w.inner + 2 * groups * (uint64_t)m->state;
    w.in = w.inner + w.channels + w.heads;
    w.products = groups * chunk;
    w.states = 4 * ((s->T + chunk - 1) / chunk) * w.inner * (uint64_t)m->state;
    return w;
}

void mamba_forward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct mamba_widths w = mamba_of(s);
    uint64_t T = s->T;
    struct held n1, all;
    norm_input(y, &n1, &all);
    k->in = keep(y, ITEM_LAYER_WORKING, 2 * T * w.in);
    struct held adapter = input_adapter(y);
    drop(s, &adapter);
    drop(s, &n1);
    drop(s, &all);
    struct held channels = working(y, 2 * T * w.channels), dt = working(y, 4 * T * w.heads);
    struct held decay = working(y, 4 * T * w.heads), products = working(y, 4 * T * w.products);
    struct held states = working(y, w.states);
    struct context_held context = context_make(y, false);
    k->o = keep(y, ITEM_LAYER_WORKING, 2 * T * w.inner);
    context_drop(y, &context);
    struct held *gone[] = { &channels, &dt, &decay, &products, &states };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    if (ends_early(y))
        return;
    struct held gated = working(y, 2 * T * w.inner);
    unless_kept(y, &k->in);
    unless_kept(y, &k->o);
    mixer_output(y);
    drop(s, &gated);
}

/* u5: d channels and ddt are left. */
static void scan_backward(struct layer *y, const struct mamba_widths *w, struct held *decay,
                          struct held *dy, struct held *ret_dchannels, struct held *ret_ddt)
{
    struct rank *s = y->s;
    uint64_t T = s->T;
    struct held one = working(y, 4 * T * w->products), two = working(y, 4 * T * w->products);
    struct held states = working(y, w->states), dstates = working(y, w->states);
    struct context_held context = context_make(y, true);
    *ret_dchannels = working(y, 2 * T * w->channels);
    *ret_ddt = working(y, 4 * T * w->heads);
    context_drop(y, &context);
    struct held *gone[] = { &one, &two, &states, &dstates, decay, dy };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
}

void mamba_backward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct mamba_widths w = mamba_of(s);
    uint64_t T = s->T;
    struct held dx_all = whole_hidden(y), dchannels, ddt;
    struct held d_adapter = output_backward(y, 2 * T * w.inner); /* gated y */
    struct held dy = working(y, 2 * T * w.inner);
    drop(s, &d_adapter);
    drop(s, &dx_all);
    struct held d_in = working(y, 2 * T * w.in);
    drop(s, &k->o);
    struct held channels = working(y, 2 * T * w.channels), dt = working(y, 4 * T * w.heads);
    struct held decay = working(y, 4 * T * w.heads);
    scan_backward(y, &w, &decay, &dy, &dchannels, &ddt);
    struct held *gone[] = { &k->in, &channels, &dt, &dchannels, &ddt };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    struct held *after[] = { &d_in };
    mixer_input_backward(y, after, 1, true);
}
