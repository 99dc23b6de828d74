/* context.c - what context parallelism holds beside a mixer's own tensors, and the scratch of
 * attention's backward. Gathered keys have tensors of their own in attention.c and latent.c. */
#include "tests/simulator/rank.h"

/* Widths of one rank of tp that are exchanged or passed on. */
struct widths {
    uint64_t heads, kv, query, key, value, out; /* heads of keys; widths of one token */
    uint64_t block, made; /* passed on by a ring, a token; made of a block of latents */
    bool sparse;
};

bool gathers_keys(const struct rank *s)
{
    return s->cp > 1 && s->p->context == CONTEXT_ALLGATHER_KV;
}

static struct widths widths_of(const struct rank *s, enum mixer mixer)
{
    const struct gqa *g = &s->m->gqa;
    const struct mla *a = &s->m->mla;
    uint64_t dim = (uint64_t)g->head_dim, latent = (uint64_t)a->kv_rank;
    struct widths w = { .heads = split(g->heads, s->tp), .kv = split(g->kv_heads, s->tp) };
    w.query = w.out = w.heads * dim;
    w.key = w.value = w.kv * dim;
    w.block = 2 * w.key;
    if (!mixer_is_latent(mixer))
        return w;
    w.block = latent + (uint64_t)a->rope_dim;
    w.value = w.out = w.heads * (uint64_t)a->value_dim;
    if (mixer == MIXER_MLA) {
        w.made = head_block(s) * (uint64_t)(2 * a->nope_dim + a->rope_dim + a->value_dim);
        return w;
    }
    w.sparse = true;
    w.kv = 1;
    w.query = w.heads * w.block;
    w.key = w.block;
    w.value = latent;
    w.out = w.heads * latent;
    return w;
}

static void hold(struct layer *y, struct context_held *c, uint64_t bytes)
{
    c->held[c->count++] = make(y->s, ITEM_KV_GATHER, bytes);
}

/* Heads of all tokens of `ranks` ranks: q, k, v come, o goes, backward their gradients the other
 * way. Fewer key heads than ranks are repeated. Of sparse attention the choices of all tokens too.
 */
static void ulysses(struct layer *y, const struct widths *w, uint64_t ranks, bool backward,
                    struct context_held *c)
{
    uint64_t repeat = w->kv >= ranks ? 1 : ranks / w->kv, T = y->s->T;
    if (ranks == 1)
        return;
    if (w->sparse)
        hold(y, c, 4 * T * ranks * (uint64_t)y->s->m->indexer.top_k);
    for (int i = 0; i < (backward ? 2 : 1); i++) {
        hold(y, c, 2 * T * w->query);
        hold(y, c, 2 * T * w->key * repeat);
        hold(y, c, 2 * T * w->value * repeat);
        hold(y, c, 2 * T * w->out);
    }
}

/* A block at work and one arriving; what passes is merged in fp32. Backward: the blocks' gradients
 * in fp32 with them, and dQ in fp32. */
static void ring(struct layer *y, const struct widths *w, bool backward, struct context_held *c)
{
    uint64_t T = y->s->T;
    for (int i = 0; i < 2; i++) {
        hold(y, c, 2 * T * w->block);
        if (backward)
            hold(y, c, 4 * T * w->block);
    }
    hold(y, c, 2 * T * w->made);
    if (backward) {
        hold(y, c, 2 * T * w->made);
        hold(y, c, 4 * T * w->query);
    } else {
        hold(y, c, 4 * T * w->out);
        hold(y, c, 4 * T * w->heads);
    }
}

/* Heads are exchanged in groups of the most ranks that divide cp and the key heads, a ring runs
 * over the groups, if there are several. */
static void hierarchical(struct layer *y, const struct widths *w, bool backward,
                         struct context_held *c)
{
    uint64_t inner = y->s->cp;
    while (y->s->cp % inner != 0 || w->kv % inner != 0)
        inner--;
    ulysses(y, w, inner, backward, c);
    if (inner < y->s->cp)
        ring(y, w, backward, c);
}

static void softmax_context(struct layer *y, enum mixer mixer, bool backward,
                            struct context_held *c)
{
    struct widths w = widths_of(y->s, mixer);
    if (y->s->p->context == CONTEXT_ULYSSES)
        ulysses(y, &w, y->s->cp, backward, c);
    if (y->s->p->context == CONTEXT_RING)
        ring(y, &w, backward, c);
    if (y->s->p->context == CONTEXT_HIERARCHICAL)
        hierarchical(y, &w, backward, c);
}

/* Of a recurrence: what enters it in bf16, its fp32 numbers and bf16 numbers a head, what leaves
 * it; elements of its state and of what carries it on, and what a convolution looks back on. */
struct recurrence {
    uint64_t in, heads_fp32, heads_bf16, out, state, transition, halo;
};

static struct recurrence recurrence_of(const struct rank *s, enum mixer mixer)
{
    const struct gdn *g = &s->m->gdn;
    const struct mamba *m = &s->m->mamba;
    struct recurrence r = { 0 };
    if (mixer == MIXER_GDN) {
        uint64_t heads = split(g->value_heads, s->tp), dim = (uint64_t)g->key_dim;
        r.out = heads * (uint64_t)g->value_dim;
        r.in = 2 * split(g->key_heads, s->tp) * dim + r.out;
        r.heads_bf16 = 2 * heads;
        r.state = r.out * dim;
        r.transition = heads * dim * dim;
        r.halo = r.in * (uint64_t)g->conv_width;
    } else if (mixer == MIXER_LIGHTNING) {
        uint64_t heads = split(s->m->lightning.heads, s->tp);
        r.out = heads * (uint64_t)s->m->lightning.head_dim;
        r.in = 3 * r.out;
        r.state = r.out * (uint64_t)s->m->lightning.head_dim;
        r.transition = heads;
    } else {
        r.heads_fp32 = r.transition = split(m->heads, s->tp);
        r.out = r.transition * (uint64_t)m->head_dim;
        r.in = r.out + 2 * split(m->groups, s->tp) * (uint64_t)m->state;
        r.state = r.out * (uint64_t)m->state;
        r.halo = r.in * (uint64_t)m->conv_width;
    }
    return r;
}

/* The same once more in the layout of heads. */
static void head_split(struct layer *y, const struct recurrence *r, struct context_held *c)
{
    uint64_t T = y->s->T;
    hold(y, c, 2 * T * r->in);
    hold(y, c, 2 * T * r->heads_bf16);
    hold(y, c, 4 * T * r->heads_fp32);
    hold(y, c, 2 * T * r->out);
}

/* The state that comes and the one that goes on, with what carries them; the last tokens of the
 * rank before; hidden states in the order of the sequence, and back. */
static void state_pass(struct layer *y, const struct recurrence *r, struct context_held *c)
{
    uint64_t batch = (uint64_t)y->s->l->micro_batch;
    for (int i = 0; i < 2; i++) {
        hold(y, c, 4 * batch * r->state);
        hold(y, c, 4 * batch * r->transition);
        hold(y, c, 2 * y->s->N * y->s->H);
    }
    hold(y, c, 2 * batch * r->halo);
}

struct context_held context_make(struct layer *y, bool backward)
{
    enum mixer mixer = y->mixer;
    struct context_held c = { .count = 0 };
    if (y->s->cp == 1)
        return c;
    if (mixer_is_softmax(mixer)) {
        softmax_context(y, mixer, backward, &c);
        return c;
    }
    struct recurrence r = recurrence_of(y->s, mixer);
    for (int i = 0; i < (backward ? 2 : 1); i++) /* gradients likewise */
        (y->s->p->linear_context == LINEAR_CONTEXT_HEAD_SPLIT ? head_split : state_pass)(y, &r, &c);
    return c;
}

void context_drop(struct layer *y, struct context_held *c)
{
    for (int i = 0; i < c->count; i++)
        drop(y->s, &c->held[i]);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Blocks of at most 2,048 queries against 4,096 keys, in whole eights: two fp32 and two bf16
 * matrices, fp32 dQ; dK and dV of one key head of a sequence where nothing sums them. */
static uint64_t block_scratch(const struct rank *s)
{
    uint64_t seq = s->longest, d = (uint64_t)s->m->gqa.head_dim;
    uint64_t keys = s->p->context == CONTEXT_RING ? seq / s->cp : seq;
    uint64_t queries = s->p->context == CONTEXT_ULYSSES ? seq : seq / s->cp;
    uint64_t n = least(gathers_keys(s) ? queries / 2 : queries, 2048);
    uint64_t m = (least(keys, 4096) + 7) / 8 * 8;
    return n * m * 12 + n * d * 4 + (gathers_keys(s) ? 0 : 2 * keys * d * 4);
}

/* A library's, of one group of key heads: as many groups as leave half a GiB each, or one a head.
 */
static uint64_t library_scratch(const struct rank *s)
{
    struct widths w = widths_of(s, MIXER_GQA);
    uint64_t keys = s->A, query = w.query;
    if (s->p->context == CONTEXT_RING)
        keys /= s->cp;
    if (s->p->context == CONTEXT_ULYSSES)
        query /= s->cp;
    uint64_t all = (gathers_keys(s) ? 2 : 4) * w.query * s->T;
    all += gathers_keys(s) ? 4 * w.key * keys : 0;
    all += w.heads == w.kv ? 0 : 4 * query * keys;
    for (uint64_t groups = 1; groups < w.kv; groups++)
        if (w.kv % groups == 0 && all / groups <= UINT64_C(536870912))
            return 256 + all / groups;
    return 256 + all / w.kv;
}

uint64_t attention_scratch(const struct rank *s)
{
    if (s->job->hardware->host)
        return 8 * s->longest * (uint64_t)s->m->gqa.head_dim;
    return s->p->attention_deterministic ? block_scratch(s) : library_scratch(s);
}

uint64_t latent_scratch(const struct rank *s)
{
    uint64_t dim = (uint64_t)s->m->gqa.head_dim, block = head_block(s);
    uint64_t keys = s->A;
    if (s->job->hardware->host)
        return 8 * s->longest * dim;
    if (!gathers_keys(s))
        return 256 + 4 * split(s->m->gqa.heads, s->tp) * dim * s->T;
    return 256 + 2 * block * dim * s->T + 2 * block * (dim + (uint64_t)s->m->mla.value_dim) * keys;
}
