/* latent_gather.c - MLA where the ranks of a context group share the sequences: compressed keys and
 * values travel, and keys and values of whole sequences are expanded for a block of heads at a
 * time, in both passes. Columns of `all`: compressed keys and values, normed, then the turned part
 * of keys that heads share. */
#include "executor/nn/latent.h"
#include "executor/primitive/context/context.h"

/* A block of heads, and its keys and values of all tokens of the group. */
struct block {
    const struct layer_call *call;
    struct latent_widths n;
    int64_t all_tokens;
    int size;         /* heads of a block; the last one may have fewer */
    int first, heads; /* of this block */
    const struct buffer *q, *all;
    struct buffer kv, k; /* expanded pairs; joined keys */
};

bool latent_gathers(const struct layer_call *call)
{
    return call->batch->order.cp > 1;
}

static struct buffer take_all(const struct block *b, int64_t width, uint64_t bytes)
{
    return work_take_tensor(b->call->state->work, OWNER_KV, b->all_tokens, width, bytes);
}

static struct block block_open(const struct layer_call *call, const struct buffer *q,
                               const struct buffer *all)
{
    const struct primitives *p = &call->state->work->plan->choices.primitives;
    struct block ret = { .call = call,
                         .n = latent_widths(call),
                         .all_tokens = call->batch->tokens * call->batch->order.cp,
                         .q = q,
                         .all = all };
    ret.size = p->latent_head_block;
    if (ret.size < 1 || ret.size > ret.n.heads)
        ret.size = ret.n.heads;
    ret.kv = take_all(&ret, ret.size * ret.n.pair, sizeof(bf16));
    ret.k = take_all(&ret, ret.size * ret.n.head, sizeof(bf16));
    return ret;
}

static void block_close(struct block *b)
{
    work_give(b->call->state->work, &b->kv);
    work_give(b->call->state->work, &b->k);
}

/* The block's rows of the matrix that expands. */
static struct gemm expansion(const struct block *b, enum gemm_form form)
{
    return (struct gemm){ .form = form,
                          .m = b->all_tokens,
                          .n = b->heads * b->n.pair,
                          .k = b->n.latent,
                          .a_type = DTYPE_BF16,
                          .b_type = DTYPE_BF16,
                          .c_type = DTYPE_BF16 };
}

static const bf16 *expansion_weight(const struct block *b)
{
    return element_at(state_weight(b->call->state, b->call->unit, ROLE_KV_UP),
                      (uint64_t)(b->first * b->n.pair * b->n.latent), sizeof(bf16));
}

static struct joined_keys keys_of(const struct block *b)
{
    return (struct joined_keys){ .rows = b->all_tokens,
                                 .heads = b->heads,
                                 .own_dim = (int)b->n.nope,
                                 .shared_dim = (int)b->n.rope,
                                 .own = b->kv.data,
                                 .shared = latent_columns(b->all, b->n.latent),
                                 .own_stride = b->heads * b->n.pair,
                                 .own_head_stride = b->n.pair,
                                 .shared_stride = b->n.down,
                                 .keys = b->k.data };
}

/* Keys and values of the heads from `first`. */
static void expand(struct block *b, int first)
{
    struct work *w = b->call->state->work;

    b->first = first;
    b->heads = b->n.heads - first < b->size ? b->n.heads - first : b->size;
    struct gemm gemm = expansion(b, GEMM_FORWARD);
    gemm.a = b->all->data;
    gemm.b = expansion_weight(b);
    gemm.c = b->kv.data;
    gemm.a_stride = b->n.down;
    gemm.b_stride = b->n.latent;
    gemm.c_stride = b->heads * b->n.pair;
    WORK_OP(w, gemm, &gemm);
    const struct joined_keys keys = keys_of(b);
    WORK_OP(w, join_keys, &keys);
}

/* The block's heads of the queries of one run against the keys of their whole sequences. */
static struct attention attention_of(const struct block *b, int run)
{
    const struct zigzag *order = &b->call->batch->order;
    const struct latent_saved *s = latent_saved(b->call);
    const struct primitives *p = &b->call->state->work->plan->choices.primitives;
    int64_t row = run * zigzag_run_tokens(order);
    return (struct attention){
        .sequences = (int)(b->call->batch->tokens / zigzag_tokens(order)),
        .heads = b->heads,
        .kv_heads = b->heads,
        .head_dim = (int)b->n.head,
        .tokens = zigzag_run_tokens(order),
        .q = latent_columns(b->q, row * b->n.query + b->first * b->n.head),
        .k = b->k.data,
        .v = latent_columns(&b->kv, b->n.nope),
        .q_stride = b->n.query,
        .k_stride = b->heads * b->n.head,
        .v_stride = b->heads * b->n.pair,
        .o = latent_columns(&s->o, row * b->n.out + b->first * b->n.value),
        .lse = element_at(s->lse.data, (uint64_t)(row * b->n.heads + b->first), sizeof(float)),
        .key_tokens = order->seq_tokens,
        .first_query = zigzag_run_first(order, run),
        .run_stride = zigzag_tokens(order),
        .deterministic = p->attention_deterministic != 0,
        .value_dim = (int)b->n.value,
        .v_head_stride = b->n.pair,
        .o_stride = b->n.out,
        .lse_stride = b->n.heads,
        .score_factor = (float)layer_model(b->call)->gqa.rope.score_factor
    };
}

/* Turned queries, and `all`. */
static void collect(const struct layer_call *call, struct buffer *ret_q, struct buffer *ret_own)
{
    const struct latent_widths n = latent_widths(call);
    const struct latent_saved *s = latent_saved(call);

    *ret_q = layer_take(call, OWNER_LAYER, n.query, sizeof(bf16));
    *ret_own = layer_take(call, OWNER_KV, n.down, sizeof(bf16));
    latent_turn_queries(call, s->q.data, ret_q->data, false);
    struct column_norm norm = latent_norm(call, ret_own);
    norm.y_stride = n.down;
    WORK_OP(call->state->work, column_norm, &norm);
    latent_turn_shared(call, latent_columns(&s->latent, n.latent), n.down,
                       latent_columns(ret_own, n.latent), n.down, false);
}

static struct buffer gather(const struct layer_call *call, struct buffer *own)
{
    struct work *w = call->state->work;
    const struct latent_widths n = latent_widths(call);
    struct buffer ret = work_take_tensor(w, OWNER_KV, call->batch->tokens * call->batch->order.cp,
                                         n.down, sizeof(bf16));
    context_gather_rows(w, call->batch, own->data, n.down, sizeof(bf16), ret.data);
    work_give(w, own);
    return ret;
}

void latent_gather_attend(const struct layer_call *call, enum keep keep)
{
    struct work *w = call->state->work;
    struct latent_saved *s = latent_saved(call);
    const struct latent_widths n = latent_widths(call);
    enum owner owner = kept_owner(keep, OWNER_LAYER);
    struct buffer q, own;

    collect(call, &q, &own);
    work_give_unless_kept(w, call->keep, &s->q);
    work_give_unless_kept(w, call->keep, &s->latent);
    struct buffer all = gather(call, &own);
    struct block b = block_open(call, &q, &all);
    s->o = layer_take(call, owner, n.out, sizeof(bf16));
    s->lse = layer_take(call, owner, n.heads, sizeof(float));
    for (int first = 0; first < n.heads; first += b.size) {
        expand(&b, first);
        for (int run = 0; run < zigzag_runs(&call->batch->order); run++) {
            const struct attention attention = attention_of(&b, run);
            WORK_OP(w, attention, &attention);
        }
    }
    block_close(&b);
    work_give(w, &all);
    work_give(w, &q);
    work_give_unless_kept(w, keep, &s->lse);
}

/* A backward at work. */
struct backward {
    struct block block;
    const struct buffer *d_o, *dq, *delta, *workspace, *d_all;
    struct buffer dkv, dk; /* of the block, of one run's queries */
};

/* The gradients of a block's keys and values through the join and the expansion, added to those of
 * `all` and to the matrix's. */
static void through_expansion(const struct backward *g)
{
    const struct block *b = &g->block;
    struct work *w = b->call->state->work;
    const struct joined_keys_gradient keys = {
        .forward = keys_of(b),
        .d_keys = g->dk.data,
        .d_own = g->dkv.data,
        .d_shared_sum = element_at(g->d_all->data, (uint64_t)b->n.latent, sizeof(float))
    };
    WORK_OP(w, join_keys_backward, &keys);
    struct gemm gemm = expansion(b, GEMM_INPUT);
    gemm.a = g->dkv.data;
    gemm.b = expansion_weight(b);
    gemm.c = g->d_all->data;
    gemm.c_type = DTYPE_FP32;
    gemm.a_stride = b->heads * b->n.pair;
    gemm.b_stride = b->n.latent;
    gemm.c_stride = b->n.down;
    gemm.accumulate = true;
    WORK_OP(w, gemm, &gemm);
    enum dtype type = w->plan->choices.primitives.grad_dtype;
    gemm = expansion(b, GEMM_WEIGHT);
    gemm.a = g->dkv.data;
    gemm.b = b->all->data;
    gemm.c = element_at(state_gradient(b->call->state, b->call->unit, ROLE_KV_UP),
                        (uint64_t)(b->first * b->n.pair * b->n.latent),
                        type == DTYPE_FP32 ? sizeof(float) : sizeof(bf16));
    gemm.c_type = type;
    gemm.a_stride = b->heads * b->n.pair;
    gemm.b_stride = b->n.down;
    gemm.c_stride = b->n.latent;
    gemm.accumulate = true;
    WORK_OP(w, gemm, &gemm);
}

static void run_backward(const struct backward *g, int run)
{
    const struct block *b = &g->block;
    struct work *w = b->call->state->work;
    int64_t row = run * zigzag_run_tokens(&b->call->batch->order);
    const struct attention_gradient gradient = {
        .forward = attention_of(b, run),
        .d_o = latent_columns(g->d_o, row * b->n.out + b->first * b->n.value),
        .dq = latent_columns(g->dq, row * b->n.query + b->first * b->n.head),
        .dk = g->dk.data,
        .dv = latent_columns(&g->dkv, b->n.nope),
        .dq_stride = b->n.query,
        .dk_stride = b->heads * b->n.head,
        .dv_stride = b->heads * b->n.pair,
        .dv_head_stride = b->n.pair,
        .d_o_stride = b->n.out,
        .delta = element_at(g->delta->data, (uint64_t)(row * b->n.heads + b->first), sizeof(float)),
        .workspace = g->workspace->data
    };
    WORK_OP(w, attention_backward, &gradient);
    through_expansion(g);
}

/* The room that attention asks for: of one block, whatever run. */
static struct buffer take_workspace(const struct block *b)
{
    struct work *w = b->call->state->work;
    struct block whole = *b;
    whole.heads = b->size;
    const struct attention shape = attention_of(&whole, 0);
    return work_take(w, OWNER_WORKSPACE,
                     w->backend->ops->attention_workspace_bytes(w->backend, &shape));
}

void latent_gather_backward(const struct layer_call *call, struct buffer *d_o,
                            struct buffer *ret_dq, struct buffer *ret_own)
{
    struct work *w = call->state->work;
    struct latent_saved *s = latent_saved(call);
    const struct latent_widths n = latent_widths(call);
    struct buffer q, own;

    collect(call, &q, &own);
    work_give(w, &s->q);
    struct buffer all = gather(call, &own);
    struct backward g = { .block = block_open(call, &q, &all), .d_o = d_o, .dq = ret_dq };
    *ret_dq = layer_take(call, OWNER_LAYER, n.query, sizeof(bf16));
    struct buffer delta = layer_take(call, OWNER_LAYER, n.heads, sizeof(float));
    struct buffer workspace = take_workspace(&g.block);
    g.dkv = take_all(&g.block, g.block.size * n.pair, sizeof(bf16));
    g.dk = take_all(&g.block, g.block.size * n.head, sizeof(bf16));
    struct buffer d_all = take_all(&g.block, n.down, sizeof(float));
    WORK_OP(w, zero, d_all.data, d_all.bytes);
    g.delta = &delta, g.workspace = &workspace, g.d_all = &d_all;
    for (int first = 0; first < n.heads; first += g.block.size) {
        expand(&g.block, first);
        for (int run = 0; run < zigzag_runs(&call->batch->order); run++)
            run_backward(&g, run);
    }
    struct buffer *const done[] = {
        &g.dkv, &g.dk, &workspace, &delta, &all, &q, &s->o, &s->lse, d_o
    };
    for (size_t i = 0; i < sizeof done / sizeof *done; i++)
        work_give(w, done[i]);
    block_close(&g.block);
    *ret_own = layer_take(call, OWNER_KV, n.down, sizeof(float));
    context_reduce_rows(w, call->batch, d_all.data, n.down, ret_own->data);
    work_give(w, &d_all);
}
