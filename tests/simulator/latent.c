/* latent.c - attention through latents: over expanded keys and values (p1 to p6, q1 to q9), and
 * over the keys that an indexer chose (x1 to x9, y1 to y12). */
#include "tests/simulator/rank.h"

struct widths {
    uint64_t heads, Q, K, QL, L, LR, expanded, value, block_expanded, block_key, absorbed, out;
    uint64_t iq, ik, iw, choices; /* of the layer's own indexer */
};

uint64_t head_block(const struct rank *s)
{
    uint64_t heads = split(s->m->gqa.heads, s->tp), block = (uint64_t)s->p->latent_head_block;
    return block > 0 && block < heads ? block : heads;
}

static struct widths widths_of(const struct layer *y)
{
    const struct rank *s = y->s;
    const struct mla *a = &s->m->mla;
    const struct indexer *x = &s->m->indexer;
    struct widths w = { .heads = split(s->m->gqa.heads, s->tp) };
    uint64_t pair = (uint64_t)a->nope_dim + (uint64_t)a->value_dim;
    uint64_t dim = (uint64_t)s->m->gqa.head_dim;
    w.Q = w.K = w.heads * dim;
    w.QL = (uint64_t)a->q_rank;
    w.L = (uint64_t)a->kv_rank;
    w.LR = w.L + (uint64_t)a->rope_dim;
    w.expanded = w.heads * pair;
    w.value = w.heads * (uint64_t)a->value_dim;
    w.block_expanded = head_block(s) * pair;
    w.block_key = head_block(s) * dim;
    w.absorbed = w.heads * w.LR;
    w.out = w.heads * w.L;
    if (y->mixer == MIXER_DSA) {
        w.iq = (uint64_t)x->heads * (uint64_t)x->dim;
        w.ik = (uint64_t)x->dim;
        w.iw = (uint64_t)x->heads;
        w.choices = (uint64_t)x->top_k;
    }
    return w;
}

static struct held gathered(struct layer *y, uint64_t bytes)
{
    return make(y->s, ITEM_KV_GATHER, gathers_keys(y->s) ? bytes : 0);
}

/* An indexer scores the keys of all tokens, whatever attention does. */
static struct held all_keys(struct layer *y, uint64_t bytes)
{
    return make(y->s, ITEM_KV_GATHER, y->s->cp > 1 ? bytes : 0);
}

static struct held in_place(struct layer *y, uint64_t bytes)
{
    return working(y, gathers_keys(y->s) ? 0 : bytes);
}

/* Adapters of the projection of queries, and of keys and values of so many tokens. */
static struct held up_adapters(struct layer *y, uint64_t key_tokens)
{
    uint64_t r = adapter_rank(y->s, COMPONENT_ATTENTION);
    return working(y, make_size(2 * y->s->T * r) + make_size(2 * key_tokens * r));
}

/* p2, p3 */
static void expand(struct layer *y, const struct widths *w)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    uint64_t T = s->T;
    struct held n1 = working(y, 2 * s->N * s->H);
    k->query_latent = keep(y, ITEM_LAYER_WORKING, 2 * T * w->QL);
    k->latent = keep(y, ITEM_LAYER_WORKING, 2 * T * w->LR);
    struct held adapter = input_adapter(y);
    drop(s, &adapter);
    drop(s, &n1);
    struct held qn = working(y, 2 * T * w->QL), ln = in_place(y, 2 * T * w->L);
    k->q = keep(y, ITEM_LAYER_WORKING, 2 * T * w->Q);
    if (!gathers_keys(s))
        k->kv = keep(y, ITEM_LAYER_WORKING, 2 * T * w->expanded);
    adapter = up_adapters(y, gathers_keys(s) ? 0 : s->T);
    drop(s, &adapter);
    drop(s, &qn);
    drop(s, &ln);
    unless_kept(y, &k->query_latent);
}

/* p4, p5 */
static void attend(struct layer *y, const struct widths *w)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    uint64_t T = s->T;
    struct held qr = working(y, 2 * T * w->Q), kr = in_place(y, 2 * T * w->K);
    struct held mine = gathered(y, 2 * T * w->LR);
    unless_kept(y, &k->q);
    unless_kept(y, &k->latent);
    struct held all = gathered(y, 2 * s->A * w->LR);
    drop(s, &mine);
    struct held kv_block = gathered(y, 2 * s->A * w->block_expanded);
    struct held k_block = gathered(y, 2 * s->A * w->block_key);
    struct held adapter =
        working(y, gathers_keys(s) ? 2 * s->A * adapter_rank(s, COMPONENT_ATTENTION) : 0);
    struct context_held context = context_make(y, false);
    k->o = attended(y, 2 * T * w->value);
    k->lse = attended(y, 4 * T * w->heads);
    context_drop(y, &context);
    struct held *gone[] = { &qr, &kr, &all, &kv_block, &k_block, &adapter };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    unless_kept(y, &k->kv);
    unless_attended(y, &k->lse);
}

void latent_forward(struct layer *y)
{
    struct widths w = widths_of(y);
    expand(y, &w);
    if (attends(y))
        attend(y, &w);
    if (ends_early(y))
        return;
    mixer_output(y);
    unless_attended(y, &y->k->o);
}

/* What q5 makes for q6. */
struct gradients {
    struct held dq, dkr, dkv, d_all; /* d_all: in latents of all tokens, where they were gathered */
};

/* q4, q5 */
static struct gradients attend_backward(struct layer *y, const struct widths *w, struct held *qr,
                                        struct held *kr, struct held *mine, struct held *d_o)
{
    struct rank *s = y->s;
    struct gradients g;
    uint64_t rows = 2 * s->A;
    struct held all = gathered(y, rows * w->LR);
    drop(s, mine);
    struct held kv = gathered(y, rows * w->block_expanded), key = gathered(y, rows * w->block_key);
    struct held adapter =
        working(y, gathers_keys(s) ? 2 * s->A * adapter_rank(s, COMPONENT_ATTENTION) : 0);
    struct held dkv = gathered(y, rows * w->block_expanded);
    struct held dkey = gathered(y, rows * w->block_key);
    struct context_held context = context_make(y, true);
    struct held delta = working(y, 4 * s->T * w->heads);
    struct held scratch = make(s, ITEM_WORKSPACE, latent_scratch(s));
    g.d_all = gathered(y, 4 * s->A * w->LR);
    g.dq = working(y, 2 * s->T * w->Q);
    g.dkr = in_place(y, 2 * s->T * w->K);
    g.dkv = in_place(y, 2 * s->T * w->expanded);
    context_drop(y, &context);
    struct held *gone[] = { &scratch, &all, &kv, &dkv,      &key,     &dkey,      &delta,
                            qr,       kr,   d_o, &y->k->kv, &y->k->o, &y->k->lse, &adapter };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    return g;
}

void latent_backward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct widths w = widths_of(y);
    uint64_t T = s->T;
    struct held dx_all = whole_hidden(y), d_adapter = output_backward(y, 0);
    struct held d_o = working(y, 2 * T * w.value);
    drop(s, &d_adapter);
    drop(s, &dx_all);
    struct held qr = working(y, 2 * T * w.Q), kr = in_place(y, 2 * T * w.K);
    struct held mine = gathered(y, 2 * T * w.LR);
    drop(s, &k->q);
    struct gradients g = attend_backward(y, &w, &qr, &kr, &mine, &d_o);
    struct held d_mine = gathered(y, 4 * T * w.LR);
    drop(s, &g.d_all);
    bool reads = reads_inputs(y, COMPONENT_ATTENTION);
    struct held qn = working(y, reads ? 2 * T * w.QL : 0);
    struct held ln = working(y, reads ? 2 * T * w.L : 0);
    struct held dql = working(y, 2 * T * w.QL), dl = working(y, 2 * T * w.LR);
    struct held adapter = up_adapters(y, gathers_keys(s) ? s->A : s->T);
    d_adapter = up_adapters(y, gathers_keys(s) ? s->A : s->T);
    drop(s, &adapter);
    drop(s, &d_adapter);
    struct held *gone[] = {
        &k->query_latent, &k->latent, &d_mine, &g.dq, &g.dkr, &g.dkv, &qn, &ln
    };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    struct held *after[] = { &dql, &dl };
    mixer_input_backward(y, after, 2, false);
}

/* x2, x3 */
static void project(struct layer *y, const struct widths *w)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    uint64_t T = s->T;
    struct held n1 = working(y, 2 * s->N * s->H);
    k->query_latent = keep(y, ITEM_LAYER_WORKING, 2 * T * w->QL);
    k->latent = keep(y, ITEM_LAYER_WORKING, 2 * T * w->LR);
    k->index_key = keep(y, ITEM_LAYER_WORKING, 2 * T * w->ik);
    k->index_weights = keep(y, ITEM_LAYER_WORKING, 4 * T * w->iw);
    struct held adapter = input_adapter(y);
    drop(s, &adapter);
    drop(s, &n1);
    struct held qn = working(y, 2 * T * w->QL);
    k->q = keep(y, ITEM_LAYER_WORKING, 2 * T * w->Q);
    k->index_query = keep(y, ITEM_LAYER_WORKING, 2 * T * w->iq);
    y->k->in = in_place(y, attends(y) ? 2 * T * w->LR : 0); /* latents, normed and turned */
    y->k->b = gathered(y, attends(y) ? 2 * T * w->LR : 0);
    adapter = up_adapters(y, s->T);
    drop(s, &adapter);
    drop(s, &qn);
    unless_kept(y, &k->query_latent);
    unless_kept(y, &k->latent);
}

/* x4, x5; returns the latents of all tokens. */
static struct held choose(struct layer *y, const struct widths *w)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    uint64_t tile = s->T < 512 ? s->T : 512;
    struct held all = gathered(y, attends(y) ? 2 * s->A * w->LR : 0);
    struct held keys = all_keys(y, y->mode != REPLAY ? 2 * s->A * w->ik : 0);
    drop(s, &k->b);
    struct held scores = { ITEM_LAYER_WORKING, 0 };
    if (y->mode != REPLAY && w->choices > 0)
        scores = working(y, 4 * tile * s->longest);
    if (y->mode == SAVE)
        k->choices = make(s, ITEM_LAYER_SAVED, 4 * s->T * w->choices);
    drop(s, &scores);
    drop(s, &keys);
    unless_kept(y, &k->index_key);
    unless_kept(y, &k->index_weights);
    unless_kept(y, &k->index_query);
    return all;
}

/* x6, x7; `all`: the latents of all tokens. */
static void attend_chosen(struct layer *y, const struct widths *w, struct held *all)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct held absorbed = working(y, 2 * s->T * w->absorbed);
    unless_kept(y, &k->q);
    struct context_held context = context_make(y, false);
    k->o = attended(y, 2 * s->T * w->out); /* in latent space */
    k->lse = attended(y, 4 * s->T * w->heads);
    context_drop(y, &context);
    drop(s, &k->in);
    drop(s, all);
    drop(s, &absorbed);
    unless_attended(y, &k->lse);
}

void sparse_forward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct widths w = widths_of(y);
    uint64_t T = s->T;
    project(y, &w);
    struct held all = choose(y, &w);
    if (attends(y))
        attend_chosen(y, &w, &all);
    if (ends_early(y))
        return;
    struct held o = working(y, 2 * T * w.value);
    unless_attended(y, &k->o);
    mixer_output(y);
    drop(s, &o);
}

/* y8: the indexer learns from its scores at the chosen keys. */
static void index_backward(struct layer *y, const struct widths *w, struct held *keys,
                           struct held *ret_dk, struct held *ret_dw, struct held *ret_dq)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    uint64_t T = s->T;
    struct held scores = working(y, 4 * T * w->choices), d_scores = working(y, 4 * T * w->choices);
    struct held d_all = all_keys(y, 4 * s->A * w->ik);
    *ret_dk = working(y, 4 * T * w->ik);
    *ret_dw = working(y, 4 * T * w->iw);
    *ret_dq = working(y, 2 * T * w->iq);
    struct held *gone[] = { &scores,       &d_scores,         &d_all,      keys,
                            &k->index_key, &k->index_weights, &k->choices, &k->index_query };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
}

/* y4 to y7; returns dq. */
static struct held chosen_backward(struct layer *y, const struct widths *w, struct held *d_out,
                                   struct held *ret_keys, struct held *ret_dl)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    uint64_t T = s->T;
    struct held absorbed = working(y, 2 * T * w->absorbed), latents = in_place(y, 2 * T * w->LR);
    struct held mine = gathered(y, 2 * T * w->LR), all = gathered(y, 2 * s->A * w->LR);
    *ret_keys = all_keys(y, 2 * s->A * w->ik);
    drop(s, &mine);
    struct context_held context = context_make(y, true);
    struct held delta = working(y, 4 * T * w->heads), da = working(y, 2 * T * w->absorbed);
    struct held d_mine = in_place(y, 4 * T * w->LR), d_all = gathered(y, 4 * s->A * w->LR);
    context_drop(y, &context);
    struct held *gone[] = { &k->o, &k->lse, d_out, &absorbed, &latents, &all, &delta };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    *ret_dl = gathers_keys(s) ? gathered(y, 4 * T * w->LR) : d_mine;
    struct held dq = working(y, 2 * T * w->Q);
    drop(s, &d_all);
    drop(s, &da);
    drop(s, &k->q);
    return dq;
}

void sparse_backward(struct layer *y)
{
    struct rank *s = y->s;
    struct kept *k = y->k;
    struct widths w = widths_of(y);
    uint64_t T = s->T;
    struct held dx_all = whole_hidden(y), keys, d_latents, dik, diw, diq;
    struct held d_adapter = output_backward(y, 2 * T * w.value); /* o */
    struct held d_o = working(y, 2 * T * w.value);
    drop(s, &d_adapter);
    drop(s, &dx_all);
    struct held d_out = working(y, 2 * T * w.out);
    drop(s, &d_o);
    struct held dq = chosen_backward(y, &w, &d_out, &keys, &d_latents);
    index_backward(y, &w, &keys, &dik, &diw, &diq);
    struct held qn = working(y, mixer_reads(y) ? 2 * T * w.QL : 0);
    struct held dql = working(y, 2 * T * w.QL), dl = working(y, 2 * T * w.LR);
    struct held adapter = up_adapters(y, s->T);
    d_adapter = up_adapters(y, s->T);
    drop(s, &adapter);
    drop(s, &d_adapter);
    struct held *gone[] = { &k->query_latent, &k->latent, &d_latents, &dq, &diq, &qn };
    drop_all(s, gone, sizeof gone / sizeof gone[0]);
    struct held *after[] = { &dik, &diw, &dql, &dl };
    mixer_input_backward(y, after, 4, false);
}
