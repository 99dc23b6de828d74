/* recurrent.c - linear attention: the gated delta net (g1 to g7, k1 to k9), lightning attention
 * (l1 to l6, n1 to n9), Mamba-2 (t1 to t6, u1 to u9). */
#include "tests/simulator/rank.h"

/* Chunks of a recurrence; those of packed pieces end with their piece. */
static uint64_t chunks_of(const struct rank *s, uint64_t tokens)
{
    uint64_t whole = (s->T + tokens - 1) / tokens;
    return s->pieces > 0 ? whole + s->pieces - 1 : whole;
}

/* A delta net's widths; runs here and in the whole group, and how a rank shares sequences. */
struct sizes {
    uint64_t heads, value, p, conv; /* of all heads */
    uint64_t state, square, halo;   /* elements of a run */
    uint64_t runs, all_runs, run;   /* run: tokens of one */
    uint64_t ranks;                 /* that split heads; 1: none do */
    bool passes;
};

static struct sizes delta_of(const struct rank *s)
{
    const struct gdn *g = &s->m->gdn;
    enum linear_context form = s->cp > 1 ? s->p->linear_context : LINEAR_CONTEXT_NONE;
    struct sizes w = { .heads = split(g->value_heads, s->tp), .ranks = 1 };
    uint64_t key = split(g->key_heads, s->tp) * (uint64_t)g->key_dim;
    uint64_t sequences = (uint64_t)s->l->micro_batch;
    w.value = w.heads * (uint64_t)g->value_dim;
    w.conv = 2 * key + w.value;
    w.p = w.conv + w.value + 2 * w.heads;
    w.passes = form == LINEAR_CONTEXT_STATE_PASS;
    if (form == LINEAR_CONTEXT_HEAD_SPLIT)
        w.ranks = s->cp;
    w.state = w.value * (uint64_t)g->key_dim / w.ranks;
    w.square = w.heads * (uint64_t)g->key_dim * (uint64_t)g->key_dim;
    w.halo = ((uint64_t)g->conv_width - 1) * w.conv;
    w.runs = w.passes ? 2 * sequences : sequences;
    w.all_runs = w.passes ? w.runs * s->cp : w.runs;
    w.run = s->A / sequences / (w.passes ? 2 * s->cp : 1);
    return w;
}

static uint64_t segments_of(const struct rank *s, const struct sizes *w)
{
    uint64_t whole = w->runs * ((w->run + 4095) / 4096);
    return s->pieces > 0 ? whole + s->pieces - 1 : whole;
}

/* A GPU works on whole runs, as many as have 4,096 chunks of heads between them; heads of unusual
 * width are walked by blocks that share 256 MiB. */
static uint64_t device_scratch(const struct sizes *w, const struct gdn *g, uint64_t chunks,
                               bool backward)
{
    uint64_t heads = w->heads / w->ranks, together = 1, area = (uint64_t)g->key_dim;
    uint64_t group = (uint64_t)(g->value_heads / g->key_heads);
    area *= (uint64_t)g->value_dim;
    if (g->key_dim == 128 && g->value_dim == 128) {
        while (together < w->runs && (together + 1) * chunks * heads <= 4096)
            together++;
        return together * heads * (2 * 65536 + chunks * (backward ? 82944 : 17408));
    }
    uint64_t block = backward ? 129 * group * 4 * area : 4 * area;
    uint64_t all = w->runs * (backward ? heads / group : heads);
    while (together < all && (together + 1) * block <= 268435456)
        together++;
    return together * block;
}

/* Scratch of one call of the rule. */
static struct held rule_scratch(struct layer *y, const struct sizes *w, bool backward)
{
    const struct gdn *g = &y->s->m->gdn;
    uint64_t dk = (uint64_t)g->key_dim, dv = (uint64_t)g->value_dim, wide = dk > dv ? dk : dv;
    uint64_t chunks = (w->run + 63) / 64, segment = w->run < 4096 ? w->run : 4096, bytes;
    chunks = chunks < 64 ? chunks : 64;
    if (y->s->job->hardware->host) {
        bytes = dk * dv + 64 * (5 * dk + 7 * wide) + 16384;
        if (backward)
            bytes +=
                (chunks + (uint64_t)(g->value_heads / g->key_heads)) * dk * dv + 2 * segment * dk;
        bytes *= 4;
    } else {
        bytes = device_scratch(w, g, chunks, backward);
    }
    return make(y->s, ITEM_WORKSPACE, bytes);
}

/* Of the context group: rows of all tokens in a rank's heads; elements of runs. */
static struct held context_rows(struct layer *y, const struct sizes *w, uint64_t width)
{
    return make(y->s, ITEM_KV_GATHER, 2 * y->s->A * (width / w->ranks));
}

static struct held context_runs(struct layer *y, uint64_t runs, uint64_t elements, uint64_t bytes)
{
    return make(y->s, ITEM_KV_GATHER, bytes * runs * elements);
}

/* Moved once over the group, and once on the rank. */
static struct held moved(struct layer *y, const struct sizes *w, uint64_t width)
{
    struct held sent = context_rows(y, w, width), received = context_rows(y, w, width);
    drop(y->s, &sent);
    struct held ret = context_rows(y, w, width);
    drop(y->s, &received);
    return ret;
}

/* The normed input, gathered where tensor parallelism splits it. */
static void norm_input(struct layer *y, struct held *ret_n1, struct held *ret_all)
{
    *ret_n1 = working(y, 2 * y->s->N * y->s->H);
    *ret_all = whole_hidden(y);
}

/* What enters the rule: projections of some heads, or the halo, are left until they are read. */
struct entered {
    struct held qkv, decay, beta, split, halo;
};

static struct entered enter_rule(struct layer *y, const struct sizes *w)
{
    struct rank *s = y->s;
    struct entered e = { 0 };
    if (w->ranks > 1)
        e.split = moved(y, w, w->conv + 2 * w->heads);
    if (w->passes) {
        struct held own = context_runs(y, w->runs, w->halo, 2);
        struct held all = context_runs(y, w->all_runs, w->halo, 2);
        drop(s, &own);
        e.halo = context_runs(y, w->runs, w->halo, 2);
        drop(s, &all);
    }
    e.qkv = working(y, 2 * s->T * w->conv);
    e.decay = working(y, 4 * s->T * w->heads);
    e.beta = working(y, 4 * s->T * w->heads);
    return e;
}

static void leave_rule(struct rank *s, struct entered *e)
{
    drop(s, &e->qkv);
    drop(s, &e->decay);
    drop(s, &e->beta);
}

/* States before, or gradients behind, each run of the rank; `ends` are given back. */
static struct held pass_states(struct layer *y, const struct sizes *w, struct held *ends)
{
    struct held all = context_runs(y, w->all_runs, w->state, 4);
    drop(y->s, ends);
    struct held squares = context_runs(y, w->all_runs, w->square, 4);
    struct held ret = context_runs(y, w->runs, w->state, 4);
    drop(y->s, &all);
    drop(y->s, &squares);
    return ret;
}

/* g3 to g5 */
static void delta_rule(struct layer *y, const struct sizes *w)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct entered e = enter_rule(y, w);
    struct held before = { 0 }, o = { 0 }, scratch;
    drop(s, &e.split);
    drop(s, &e.halo);
    if (w->passes) {
        k->a = keep(y, ITEM_LAYER_WORKING, 4 * w->runs * w->square);
        struct held ends = context_runs(y, w->runs, w->state, 4);
        scratch = rule_scratch(y, w, false);
        drop(s, &scratch);
        before = pass_states(y, w, &ends);
    }
    if (w->ranks > 1)
        o = context_rows(y, w, w->value);
    if (y->mode == SAVE || y->mode == REPLAY)
        k->triangle = keep(y, ITEM_LAYER_WORKING, 4 * segments_of(s, w) * w->state);
    scratch = rule_scratch(y, w, false);
    drop(s, &scratch);
    drop(s, &before);
    unless_kept(y, &k->a);
    leave_rule(s, &e);
    if (w->ranks > 1) {
        struct held ordered = context_rows(y, w, w->value);
        drop(s, &o);
        struct held home = context_rows(y, w, w->value);
        drop(s, &ordered);
        drop(s, &home);
    }
}

void delta_forward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct sizes w = delta_of(s);
    uint64_t T = s->T;
    struct held n1, all;
    norm_input(y, &n1, &all);
    k->in = keep(y, ITEM_LAYER_WORKING, 2 * T * w.p);
    struct held adapter = input_adapter(y);
    drop(s, &adapter);
    drop(s, &n1);
    drop(s, &all);
    k->o = keep(y, ITEM_LAYER_WORKING, 2 * T * w.value);
    delta_rule(y, &w);
    if (ends_early(y))
        return;
    struct held on = working(y, 2 * T * w.value);
    unless_kept(y, &k->in);
    unless_kept(y, &k->o);
    mixer_output(y);
    drop(s, &on);
}

/* k4 to k6 */
static void delta_rule_backward(struct layer *y, const struct sizes *w, struct held *d_o)
{
    struct rank *s = y->s;
    struct held d_split = { 0 }, behind = { 0 }, d_halo = { 0 }, dp = { 0 }, scratch;
    if (w->ranks > 1) {
        d_split = moved(y, w, w->value);
        drop(s, d_o);
    }
    struct entered e = enter_rule(y, w);
    if (w->passes) {
        struct held before = context_runs(y, w->runs, w->state, 4);
        scratch = rule_scratch(y, w, true);
        drop(s, &scratch);
        behind = pass_states(y, w, &before);
        drop(s, &y->k->a);
    }
    struct held dqkv = working(y, 2 * s->T * w->conv);
    struct held ddecay = working(y, 4 * s->T * w->heads), dbeta = working(y, 4 * s->T * w->heads);
    scratch = rule_scratch(y, w, true);
    drop(s, &scratch);
    drop(s, &behind);
    leave_rule(s, &e);
    drop(s, d_o);
    drop(s, &d_split);
    drop(s, &y->k->triangle);
    if (w->passes)
        d_halo = context_runs(y, w->runs, w->halo, 4);
    if (w->ranks > 1)
        dp = context_rows(y, w, w->conv + 2 * w->heads);
    struct held *gone[] = { &dqkv, &ddecay, &dbeta, &e.halo, &e.split };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    if (w->passes) {
        struct held all = context_runs(y, w->all_runs, w->halo, 4);
        drop(s, &all);
        drop(s, &d_halo);
    }
    if (w->ranks > 1) {
        struct held ordered = context_rows(y, w, w->conv + 2 * w->heads);
        drop(s, &dp);
        struct held home = context_rows(y, w, w->conv + 2 * w->heads);
        drop(s, &ordered);
        drop(s, &home);
    }
}

void delta_backward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct sizes w = delta_of(s);
    uint64_t T = s->T;
    struct held dx_all = whole_hidden(y);
    struct held d_adapter = output_backward(y, 2 * T * w.value); /* on */
    struct held d_o = working(y, 2 * T * w.value);
    drop(s, &d_adapter);
    drop(s, &dx_all);
    struct held dp = working(y, 2 * T * w.p);
    drop(s, &k->o);
    delta_rule_backward(y, &w, &d_o);
    drop(s, &k->in);
    struct held *after[] = { &dp };
    mixer_input_backward(y, after, 1, true);
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
