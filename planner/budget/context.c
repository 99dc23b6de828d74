/* context.c - what context parallelism holds beside a layer's own tensors, and the workspace of
 * attention's backward. All widths are those after tensor parallelism. */
#include "planner/budget/parts.h"

#include "base/checked.h"

enum { LIBRARY_BYTES = 256 }; /* what cuDNN's backward asks for beside its tensors */

struct view {
    uint64_t cp, tokens;     /* ranks, local tokens */
    uint64_t heads, kv, dim; /* query and key heads of this rank of tp */
    uint64_t query, key;     /* Q, K */
};

static struct view view_of(const struct budget_input *in)
{
    const struct layout *l = &in->choices->layout;
    const struct gqa *g = &in->model->gqa;
    struct view v = { .cp = (uint64_t)l->cp, .tokens = local_tokens(in) };
    v.heads = div_up((uint64_t)g->heads, (uint64_t)l->tp);
    v.kv = div_up((uint64_t)g->kv_heads, (uint64_t)l->tp);
    v.dim = (uint64_t)g->head_dim;
    v.query = v.heads * v.dim;
    v.key = v.kv * v.dim;
    return v;
}

/* Heads split over `ranks` ranks: q, k, v and o a second time, whole sequence x heads / ranks; key
 * heads repeated where they are fewer than the ranks. Backward: their gradients likewise. */
static void ulysses(const struct view *v, uint64_t ranks, struct context_bytes *ret)
{
    uint64_t kv = v->kv > ranks ? v->kv : ranks;
    uint64_t qkv = mul3_sat(2, v->tokens, add_sat(v->query, 2 * kv * v->dim));
    uint64_t o = mul3_sat(2, v->tokens, v->query);
    ret->forward = add_sat(qkv, o);
    ret->backward = add_sat(mul_sat(2, qkv), mul_sat(2, o));
}

/* Blocks of K and V circulate: one at work, one arriving; outputs are merged in fp32. Backward: the
 * blocks' gradients circulate in fp32, and dQ adds up in fp32. */
static void ring(const struct view *v, struct context_bytes *ret)
{
    uint64_t block = mul3_sat(4, v->key, v->tokens);
    ret->forward = add_sat(mul_sat(2, block), mul3_sat(4, v->tokens, v->query + v->heads));
    ret->backward =
        add_sat(add_sat(mul_sat(2, block), mul_sat(4, block)), mul3_sat(4, v->tokens, v->query));
}

/* Ulysses over as many ranks as there are key heads, a ring over the rest. */
static void hierarchical(const struct view *v, struct context_bytes *ret)
{
    uint64_t inner = v->kv < v->cp ? v->kv : v->cp;
    while (inner > 1 && v->cp % inner)
        inner--;
    struct context_bytes a, b;
    ulysses(v, inner, &a);
    ring(v, &b);
    ret->forward = add_sat(a.forward, b.forward);
    ret->backward = add_sat(a.backward, b.backward);
}

/* Host: fp32 dK and dV of one key head. cuDNN: fp32 dQ, for GQA dK and dV of every sequence at the
 * width of the query heads, and a few bytes of its own. With gathered keys the queries of one half
 * of a zig-zag pair at a time, and the gradients of all keys at their own width before they are
 * added to the sums. */
static uint64_t attention_workspace(const struct budget_input *in, const struct view *v)
{
    enum context context = in->choices->primitives.context;
    if (in->hardware->host)
        return mul3_sat(8, in->seq_tokens, v->dim);
    uint64_t keys = mul_sat((uint64_t)in->choices->layout.micro_batch, in->seq_tokens);
    uint64_t query = v->query;
    if (context == CONTEXT_RING)
        keys = div_up(keys, v->cp);
    if (context == CONTEXT_ULYSSES)
        query = div_up(query, v->cp);
    bool halves = context == CONTEXT_ALLGATHER_KV && v->cp > 1;
    uint64_t dq = add_sat(mul3_sat(halves ? 2 : 4, v->query, v->tokens), LIBRARY_BYTES);
    if (halves)
        dq = add_sat(dq, mul3_sat(4, v->key, keys));
    return v->heads == v->kv ? dq : add_sat(dq, mul3_sat(4, query, keys));
}

static void softmax_context(const struct budget_input *in, struct context_bytes *ret)
{
    struct view v = view_of(in);
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

/* head_split: q, k, v, the two scalars and o a second time in head layout. state_pass: the states
 * (fp32) and transitions that ranks hand on, the convolution's halo, and hidden states reordered
 * from zig-zag to sequence order and back. */
static void linear_context(const struct budget_input *in, struct context_bytes *ret)
{
    const struct layout *l = &in->choices->layout;
    const struct gdn *g = &in->model->gdn;
    if (l->cp == 1)
        return;
    uint64_t tp = (uint64_t)l->tp, tokens = local_tokens(in), heads = (uint64_t)g->value_heads / tp;
    uint64_t value = heads * (uint64_t)g->value_dim, key_dim = (uint64_t)g->key_dim;
    uint64_t conv = 2 * ((uint64_t)g->key_heads / tp) * key_dim + value;
    if (in->choices->primitives.linear_context == LINEAR_CONTEXT_HEAD_SPLIT) {
        uint64_t in_bytes = mul_sat(tokens, 2 * conv + 4 * heads);
        ret->forward = add_sat(in_bytes, mul3_sat(2, tokens, value));
        ret->backward = mul_sat(2, ret->forward);
    } else if (in->choices->primitives.linear_context == LINEAR_CONTEXT_STATE_PASS) {
        uint64_t states = mul_sat(8 * (uint64_t)l->micro_batch, value * key_dim);
        uint64_t transitions = mul_sat(8 * (uint64_t)l->micro_batch, heads * key_dim * key_dim);
        uint64_t halo = mul3_sat(2 * (uint64_t)l->micro_batch, (uint64_t)g->conv_width, conv);
        uint64_t reorder = mul3_sat(4, norm_tokens(in), (uint64_t)in->model->hidden);
        ret->forward = add_sat(add_sat(states, transitions), add_sat(halo, reorder));
        ret->backward = mul_sat(2, ret->forward);
    }
}

void context_bytes(const struct budget_input *in, enum mixer mixer, struct context_bytes *ret)
{
    *ret = (struct context_bytes){ 0 };
    if (mixer == MIXER_GQA)
        softmax_context(in, ret);
    else
        linear_context(in, ret);
}
