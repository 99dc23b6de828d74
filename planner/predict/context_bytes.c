/* context.c - what context parallelism holds beside a layer's own tensors, and the workspace of
 * attention's backward. All widths are those after tensor parallelism. */
#include "planner/predict/parts.h"

#include "base/checked.h"

enum { LIBRARY_BYTES = 256 }; /* what cuDNN's backward asks for beside its tensors */

struct view {
    uint64_t cp, tokens;     /* ranks, local tokens */
    uint64_t heads, kv, dim; /* query and key heads of this rank of tp */
    uint64_t query, key;     /* Q, K */
    uint64_t value, out;     /* widths of values and of attention's output */
    uint64_t block;          /* what a ring passes on, a token: keys and values, or latents */
    uint64_t made;           /* keys and values made from a block of latents, a token */
    uint64_t choices;        /* keys that a token chose */
};

static struct view view_of(const struct budget_input *in)
{
    const struct layout *l = &in->choices->layout;
    const struct gqa *g = &in->model->gqa;
    struct view v = { .cp = (uint64_t)l->cp, .tokens = local_tokens(in) };
    v.heads = div_up((uint64_t)g->heads, (uint64_t)l->tp);
    v.kv = div_up((uint64_t)g->kv_heads, (uint64_t)l->tp);
    v.dim = (uint64_t)g->head_dim;
    v.query = v.out = v.heads * v.dim;
    v.key = v.value = v.kv * v.dim;
    v.block = 2 * v.key;
    return v;
}

/* Through latents: expanded heads are exchanged, latents circulate and are expanded a block of
 * heads at a time. The sparse form exchanges absorbed queries and gathers its one key head. */
static struct view latent_view(const struct budget_input *in, enum mixer mixer)
{
    const struct mla *mla = &in->model->mla;
    struct view v = view_of(in);
    uint64_t latent = (uint64_t)mla->kv_rank, key = latent + (uint64_t)mla->rope_dim;
    v.value = v.out = v.heads * (uint64_t)mla->value_dim;
    v.block = key;
    if (mixer == MIXER_MLA) {
        v.made =
            latent_head_block(in) * (uint64_t)(2 * mla->nope_dim + mla->rope_dim + mla->value_dim);
        return v;
    }
    v.kv = 1;
    v.query = v.heads * key;
    v.out = v.heads * latent;
    v.dim = v.key = key;
    v.value = latent;
    v.choices = (uint64_t)in->model->indexer.top_k;
    return v;
}

/* One tensor of [T, width]. */
static uint64_t tensor(const struct view *v, uint64_t width, uint64_t bytes)
{
    return arena_bytes(mul_sat(v->tokens, width), bytes);
}

/* Heads split over `ranks` ranks: q, k, v and o a second time, whole sequence x heads / ranks; key
 * heads repeated where they are fewer than the ranks. Backward: their gradients likewise. Of sparse
 * attention the keys that every token of the ranks chose. */
static void ulysses(const struct view *v, uint64_t ranks, struct context_bytes *ret)
{
    uint64_t chosen = arena_bytes(mul3_sat(v->tokens, ranks, v->choices), 4);
    uint64_t repeat = v->kv < ranks ? div_up(ranks, v->kv) : 1;
    uint64_t keys = tensor(v, v->key * repeat, 2), values = tensor(v, v->value * repeat, 2);
    if (ranks == 1)
        return;
    uint64_t all =
        add_sat(add_sat(tensor(v, v->query, 2), tensor(v, v->out, 2)), add_sat(keys, values));
    ret->forward = add_sat(all, chosen);
    ret->backward = add_sat(mul_sat(2, all), chosen);
}

/* Blocks of K and V circulate: one at work, one arriving; outputs are merged in fp32. Backward: the
 * blocks' gradients circulate in fp32, and dQ adds up in fp32. */
static void ring(const struct view *v, struct context_bytes *ret)
{
    uint64_t block = tensor(v, v->block, 2), made = tensor(v, v->made, 2);
    uint64_t sums = add_sat(tensor(v, v->out, 4), tensor(v, v->heads, 4));
    uint64_t pair = add_sat(block, tensor(v, v->block, 4));
    ret->forward = add_sat(add_sat(mul_sat(2, block), sums), made);
    ret->backward = add_sat(add_sat(mul_sat(2, pair), tensor(v, v->query, 4)), mul_sat(2, made));
}

/* Ulysses over the most ranks that divide the context group and the key heads, a ring over the
 * groups of them where there are several. */
static void hierarchical(const struct view *v, struct context_bytes *ret)
{
    uint64_t inner = v->kv < v->cp ? v->kv : v->cp;
    while (v->cp % inner || v->kv % inner)
        inner--;
    struct context_bytes a = { 0 }, b = { 0 };
    ulysses(v, inner, &a);
    if (inner < v->cp)
        ring(v, &b);
    ret->forward = add_sat(a.forward, b.forward);
    ret->backward = add_sat(a.backward, b.backward);
}

/* One group's part, when key heads are taken in the fewest groups that leave at most this much. */
static uint64_t group_share(uint64_t bytes, uint64_t kv)
{
    const uint64_t most = UINT64_C(512) << 20;
    uint64_t groups = 1;
    while (groups < kv && (kv % groups || bytes > mul_sat(groups, most)))
        groups++;
    return bytes / groups;
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

/* By blocks of one head's queries and keys: scores and their gradients in fp32, both again in bf16,
 * fp32 dQ of the block; fp32 dK and dV of one key head of one sequence, unless they have sums. */
static uint64_t deterministic_workspace(const struct budget_input *in, const struct view *v)
{
    enum context context = in->choices->primitives.context;
    bool gathered = context == CONTEXT_ALLGATHER_KV && v->cp > 1;
    uint64_t longest = longest_sequence(in), part = div_up(longest, v->cp);
    uint64_t keys = context == CONTEXT_RING ? part : longest;
    uint64_t queries = context == CONTEXT_ULYSSES ? longest : part;
    uint64_t rows = at_most(gathered ? queries / 2 : queries, 2048);
    uint64_t columns = mul_sat(8, div_up(at_most(keys, 4096), 8));
    uint64_t block = add_sat(mul3_sat(12, rows, columns), mul3_sat(4, rows, v->dim));
    return gathered ? block : add_sat(block, mul3_sat(8, keys, v->dim));
}

/* Host: fp32 dK and dV of one key head. cuDNN, a group of key heads at a time: fp32 dQ, for GQA dK
 * and dV of every sequence at the width of the query heads, and a few bytes of its own. With
 * gathered keys the queries of one half of a zig-zag pair at a time, and the gradients of all keys
 * at their own width before they are added to the sums. */
static uint64_t attention_workspace(const struct budget_input *in, const struct view *v)
{
    enum context context = in->choices->primitives.context;
    if (in->hardware->host)
        return mul3_sat(8, longest_sequence(in), v->dim);
    if (in->choices->primitives.attention_deterministic)
        return deterministic_workspace(in, v);
    uint64_t keys = all_tokens(in);
    uint64_t query = v->query;
    if (context == CONTEXT_RING)
        keys = div_up(keys, v->cp);
    if (context == CONTEXT_ULYSSES)
        query = div_up(query, v->cp);
    bool halves = context == CONTEXT_ALLGATHER_KV && v->cp > 1;
    uint64_t all = mul3_sat(halves ? 2 : 4, v->query, v->tokens);
    if (halves)
        all = add_sat(all, mul3_sat(4, v->key, keys));
    if (v->heads != v->kv)
        all = add_sat(all, mul3_sat(4, query, keys));
    return add_sat(group_share(all, v->kv), LIBRARY_BYTES);
}

/* The same for heads with keys of their own. Over gathered latents a block of heads at a time, keys
 * and values at their widths. */
static uint64_t latent_workspace(const struct budget_input *in, const struct view *v)
{
    enum context context = in->choices->primitives.context;
    uint64_t keys = all_tokens(in);
    uint64_t block = latent_head_block(in);
    if (in->hardware->host)
        return mul3_sat(8, longest_sequence(in), v->dim);
    if (context != CONTEXT_ALLGATHER_KV || v->cp == 1)
        return add_sat(mul3_sat(4, v->query, v->tokens), LIBRARY_BYTES);
    uint64_t dq = mul3_sat(2, block * v->dim, v->tokens);
    uint64_t pair = v->dim + (uint64_t)in->model->mla.value_dim;
    return add_sat(add_sat(dq, LIBRARY_BYTES), mul3_sat(2, block * pair, keys));
}

/* The sparse form has fp32 sums of its own in the liveness tables and no library's workspace. */
static void softmax_context(const struct budget_input *in, enum mixer mixer,
                            struct context_bytes *ret)
{
    struct view v = mixer_is_latent(mixer) ? latent_view(in, mixer) : view_of(in);
    if (mixer == MIXER_MLA)
        ret->workspace = latent_workspace(in, &v);
    else if (!mixer_is_latent(mixer))
        ret->workspace = attention_workspace(in, &v);
    if (v.cp == 1)
        return;
    switch (in->choices->primitives.context) {
    case CONTEXT_ULYSSES:
        ulysses(&v, v.cp, ret);
        break;
    case CONTEXT_RING:
        ring(&v, ret);
        break;
    case CONTEXT_HIERARCHICAL:
        hierarchical(&v, ret);
        break;
    case CONTEXT_ALLGATHER_KV: /* rows of attention's own tables */
    case CONTEXT_NONE:
    case CONTEXT_COUNT:
        break;
    }
}

/* Linear attention, after tensor parallelism: what enters the recurrence and leaves it, a token;
 * the state; what one rank hands on of it beside; what a convolution sees of the tokens before. */
struct recurrence {
    uint64_t in, out;           /* elements of a token, bf16 */
    uint64_t heads, head_bytes; /* numbers of a token that enter once a head */
    uint64_t state, transition; /* elements, fp32 */
    uint64_t halo;              /* elements, bf16 */
};

/* Decay is one number a head. */
static struct recurrence lightning_recurrence(const struct lightning *g, uint64_t tp)
{
    uint64_t heads = (uint64_t)g->heads / tp, width = heads * (uint64_t)g->head_dim;
    return (struct recurrence){ 3 * width, width, 0, 0, width * (uint64_t)g->head_dim, heads, 0 };
}

static struct recurrence mamba_recurrence(const struct mamba *m, uint64_t tp)
{
    uint64_t heads = (uint64_t)m->heads / tp, inner = heads * (uint64_t)m->head_dim;
    uint64_t channels = inner + 2 * ((uint64_t)m->groups / tp) * (uint64_t)m->state;
    return (struct recurrence){ channels,
                                inner,
                                heads,
                                4,
                                inner * (uint64_t)m->state,
                                heads,
                                mul_sat((uint64_t)m->conv_width, channels) };
}

static struct recurrence recurrence_of(const struct model *m, enum mixer mixer, uint64_t tp)
{
    if (mixer == MIXER_LIGHTNING)
        return lightning_recurrence(&m->lightning, tp);
    return mamba_recurrence(&m->mamba, tp);
}

/* head_split: what enters and leaves the recurrence a second time in head layout. state_pass: the
 * states (fp32) and transitions that ranks hand on, the convolution's halo, and hidden states
 * reordered from zig-zag to sequence order and back. */
static void linear_context(const struct budget_input *in, enum mixer mixer,
                           struct context_bytes *ret)
{
    const struct layout *l = &in->choices->layout;
    if (l->cp == 1)
        return;
    struct recurrence r = recurrence_of(in->model, mixer, (uint64_t)l->tp);
    uint64_t batch = (uint64_t)l->micro_batch;
    if (in->choices->primitives.linear_context == LINEAR_CONTEXT_HEAD_SPLIT) {
        uint64_t t = local_tokens(in), heads = arena_bytes(mul_sat(t, r.heads), r.head_bytes);
        uint64_t tokens =
            add_sat(arena_bytes(mul_sat(t, r.in), 2), arena_bytes(mul_sat(t, r.out), 2));
        ret->forward = add_sat(tokens, heads);
    } else if (in->choices->primitives.linear_context == LINEAR_CONTEXT_STATE_PASS) {
        uint64_t states = arena_bytes(mul_sat(batch, r.state), 4);
        uint64_t moved = arena_bytes(mul_sat(batch, r.transition), 4);
        uint64_t halo = arena_bytes(mul_sat(batch, r.halo), 2);
        uint64_t ordered = arena_bytes(mul_sat(norm_tokens(in), (uint64_t)in->model->hidden), 2);
        ret->forward = add_sat(mul_sat(2, add_sat(add_sat(states, moved), ordered)), halo);
    }
    ret->backward = mul_sat(2, ret->forward);
}

void context_bytes(const struct budget_input *in, enum mixer mixer, struct context_bytes *ret)
{
    *ret = (struct context_bytes){ 0 };
    if (mixer_is_softmax(mixer))
        softmax_context(in, mixer, ret);
    else if (mixer_is_linear(mixer) && mixer != MIXER_GDN) /* whose list has rows of its own */
        linear_context(in, mixer, ret);
}
