/* Attention's backward with every sum in one order: query heads one after another, blocks of
 * queries against blocks of keys, five products and one elementwise kernel a pair of blocks. Blocks
 * of keys begin at multiples of ATTENTION_BLOCK_KEYS of the sequence, so that what a query gets
 * does not depend on the run it is in. The three products that sum fill a part of the device each:
 * they run side by side on lanes, beside the next pair's scores, each sum on one lane and so in the
 * order of the pairs. */
#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

#include <math.h>

/* One head of one sequence: what a pair of blocks reads and where its sums go. */
struct head {
    const bf16 *q, *k, *v, *d_o;
    const float *lse, *delta;
    bf16 *dq;
    float *dk, *dv; /* sums of the sequence's keys */
    int64_t sum_stride;
};

/* The workspace's parts, and the longest block of each kind. */
struct room {
    int64_t queries, keys, stride; /* stride: keys, up to a multiple of 8 */
    float *scores, *d_weights;     /* [queries, stride] */
    bf16 *weights, *d_scores;      /* [queries, stride] */
    float *dq;                     /* [queries, head_dim] */
    float *dk, *dv;                /* [keys of a sequence, head_dim]; where there are no sums */
};

struct blocks {
    struct cuda *c;
    enum stream s;
    const struct attention_gradient *g;
    struct room room;
    struct diag_list *errors;
};

static int64_t key_rows(const struct attention *a)
{
    return a->key_tokens ? a->key_tokens : a->tokens;
}

static struct room room_of(const struct attention *a, char *workspace)
{
    struct room r = { .queries =
                          a->tokens < ATTENTION_BLOCK_QUERIES ? a->tokens : ATTENTION_BLOCK_QUERIES,
                      .keys =
                          key_rows(a) < ATTENTION_BLOCK_KEYS ? key_rows(a) : ATTENTION_BLOCK_KEYS };
    r.stride = (r.keys + 7) / 8 * 8;
    if (!workspace)
        return r;
    r.scores = (float *)(void *)workspace;
    r.d_weights = r.scores + r.queries * r.stride;
    r.weights = (bf16 *)(void *)(r.d_weights + r.queries * r.stride);
    r.d_scores = r.weights + r.queries * r.stride;
    r.dq = (float *)(void *)(r.d_scores + r.queries * r.stride);
    r.dk = r.dq + r.queries * a->head_dim;
    r.dv = r.dk + key_rows(a) * a->head_dim;
    return r;
}

uint64_t cuda_attention_blocks_bytes(const struct attention *a)
{
    const struct room r = room_of(a, NULL);
    int64_t own = key_rows(a) > a->tokens ? 0 : 8 * key_rows(a) * a->head_dim;
    return (uint64_t)(12 * r.queries * r.stride + 4 * r.queries * a->head_dim + own);
}

enum lane { LANE_SCORES, LANE_VALUES, LANE_KEYS, LANE_QUERIES };

/* Only the stream of computation has lanes. */
static bool has_lanes(const struct blocks *b)
{
    return b->s == STREAM_COMPUTE;
}

static int fork(const struct blocks *b)
{
    return has_lanes(b) ? cuda_fork_lanes(b->c, b->errors) : 0;
}

static int join(const struct blocks *b)
{
    return has_lanes(b) ? cuda_join_lanes(b->c, b->errors) : 0;
}

/* One product; sums over queries are planned as an expert's, which blocks never share. */
static int product(const struct blocks *b, enum lane lane, struct gemm g)
{
    g.a_type = g.b_type = DTYPE_BF16;
    g.c_type = DTYPE_FP32;
    return cuda_multiply(b->c, has_lanes(b) ? b->c->lanes[lane] : b->c->streams[b->s],
                         has_lanes(b) ? (int)lane : CUDA_LANES, &g, g.form == GEMM_WEIGHT,
                         b->errors);
}

/* c = rows . keys^T, for scores and for the gradient of the weights. */
static int against_keys(const struct blocks *b, int64_t queries, int64_t keys, const bf16 *rows,
                        int64_t row_stride, const bf16 *of_keys, int64_t key_stride, float *to)
{
    return product(b, LANE_SCORES,
                   (struct gemm){ .form = GEMM_FORWARD,
                                  .m = queries,
                                  .n = keys,
                                  .k = b->g->forward.head_dim,
                                  .a = rows,
                                  .b = of_keys,
                                  .c = to,
                                  .a_stride = row_stride,
                                  .b_stride = key_stride,
                                  .c_stride = b->room.stride });
}

/* sums of keys += weights^T . rows */
static int add_to_keys(const struct blocks *b, enum lane lane, int64_t queries, int64_t keys,
                       const bf16 *weights, const bf16 *rows, int64_t row_stride, float *sums,
                       int64_t sum_stride)
{
    return product(b, lane,
                   (struct gemm){ .form = GEMM_WEIGHT,
                                  .m = queries,
                                  .n = keys,
                                  .k = b->g->forward.head_dim,
                                  .a = weights,
                                  .b = rows,
                                  .c = sums,
                                  .a_stride = b->room.stride,
                                  .b_stride = row_stride,
                                  .c_stride = sum_stride,
                                  .accumulate = true });
}

static int add_to_queries(const struct blocks *b, int64_t queries, int64_t keys, const bf16 *k,
                          bool accumulate)
{
    return product(b, LANE_QUERIES,
                   (struct gemm){ .form = GEMM_INPUT,
                                  .m = queries,
                                  .n = keys,
                                  .k = b->g->forward.head_dim,
                                  .a = b->room.d_scores,
                                  .b = k,
                                  .c = b->room.dq,
                                  .a_stride = b->room.stride,
                                  .b_stride = b->g->forward.k_stride,
                                  .c_stride = b->g->forward.head_dim,
                                  .accumulate = accumulate });
}

/* Queries from `query` of the run against keys from `key` of the sequence. */
static int pair_of_blocks(const struct blocks *b, const struct head *h, int64_t query,
                          int64_t queries, int64_t key, bool first)
{
    const struct attention *a = &b->g->forward;
    const struct room *r = &b->room;
    int64_t o_stride = (int64_t)a->heads * a->head_dim, left = key_rows(a) - key;
    int64_t keys = left < r->keys ? left : r->keys;
    const bf16 *q = h->q + query * a->q_stride, *d_o = h->d_o + query * o_stride;
    const bf16 *k = h->k + key * a->k_stride, *v = h->v + key * a->v_stride;
    const struct kernel_attention_block_args block = { .queries = queries,
                                                       .keys = keys,
                                                       .stride = r->stride,
                                                       .ahead = a->first_query + query - key,
                                                       .window = a->window,
                                                       .heads = a->heads,
                                                       .scale = 1.0F / sqrtf((float)a->head_dim),
                                                       .scores = r->scores,
                                                       .d_weights = r->d_weights,
                                                       .lse = h->lse + query * a->heads,
                                                       .delta = h->delta + query * a->heads,
                                                       .weights = r->weights,
                                                       .d_scores = r->d_scores };

    if (against_keys(b, queries, keys, q, a->q_stride, k, a->k_stride, r->scores) != 0 ||
        against_keys(b, queries, keys, d_o, o_stride, v, a->v_stride, r->d_weights) != 0 ||
        (!first && join(b) != 0) ||
        cuda_check(kernel_attention_block(b->c->streams[b->s], &block), "attention backward",
                   b->errors) != 0 ||
        fork(b) != 0)
        return -1;
    if (add_to_keys(b, LANE_VALUES, queries, keys, r->weights, d_o, o_stride,
                    h->dv + key * h->sum_stride, h->sum_stride) != 0 ||
        add_to_keys(b, LANE_KEYS, queries, keys, r->d_scores, q, a->q_stride,
                    h->dk + key * h->sum_stride, h->sum_stride) != 0)
        return -1;
    return add_to_queries(b, queries, keys, k, !first);
}

/* Blocks of keys that none of the queries sees are left out. */
static int block_of_queries(const struct blocks *b, const struct head *h, int64_t query)
{
    const struct attention *a = &b->g->forward;
    const struct room *r = &b->room;
    int64_t queries = a->tokens - query < r->queries ? a->tokens - query : r->queries;
    int64_t at = a->first_query + query, seen = at + queries;
    int64_t hidden = a->window > 0 && at + 1 > a->window ? at + 1 - a->window : 0;
    int64_t start = hidden / r->keys * r->keys;

    for (int64_t key = start; key < seen; key += r->keys)
        if (pair_of_blocks(b, h, query, queries, key, key == start) != 0)
            return -1;
    if (join(b) != 0)
        return -1;
    return cuda_check(kernel_rows_to_bf16(b->c->streams[b->s], queries, a->head_dim, r->dq,
                                          a->head_dim, h->dq + query * b->g->dq_stride,
                                          b->g->dq_stride),
                      "attention backward", b->errors);
}

static struct head head_of(const struct blocks *b, int sequence, int kv, int head)
{
    const struct attention_gradient *g = b->g;
    const struct attention *a = &g->forward;
    int64_t d = a->head_dim, key = sequence * key_rows(a), o_stride = a->heads * d;
    int64_t row = sequence * (a->run_stride ? a->run_stride : a->tokens);
    struct head h = { .q = a->q + row * a->q_stride + head * d,
                      .k = a->k + key * a->k_stride + kv * d,
                      .v = a->v + key * a->v_stride + kv * d,
                      .d_o = g->d_o + row * o_stride + head * d,
                      .lse = a->lse + row * a->heads + head,
                      .delta = g->delta + row * a->heads + head,
                      .dq = g->dq + row * g->dq_stride +
                            head * (g->dq_head_stride ? g->dq_head_stride : d),
                      .dk = b->room.dk,
                      .dv = b->room.dv,
                      .sum_stride = d };
    if (g->dk_sum) {
        h.dk = g->dk_sum + key * g->sum_stride + kv * d;
        h.dv = g->dv_sum + key * g->sum_stride + kv * d;
        h.sum_stride = g->sum_stride;
    }
    return h;
}

/* Of one key head, rounded once. */
static int write_keys(const struct blocks *b, int sequence, int kv)
{
    const struct attention_gradient *g = b->g;
    int64_t d = g->forward.head_dim, keys = key_rows(&g->forward), row = sequence * keys;
    cudaStream_t stream = b->c->streams[b->s];
    cudaError_t status = kernel_rows_to_bf16(stream, keys, d, b->room.dk, d,
                                             g->dk + row * g->dk_stride + kv * d, g->dk_stride);
    if (status == cudaSuccess)
        status = kernel_rows_to_bf16(stream, keys, d, b->room.dv, d,
                                     g->dv + row * g->dv_stride + kv * d, g->dv_stride);
    return cuda_check(status, "attention backward", b->errors);
}

/* Key head `kv` of a sequence, with the query heads that share it in their order. */
static int key_head(const struct blocks *b, int sequence, int kv)
{
    const struct attention *a = &b->g->forward;
    int group = a->heads / a->kv_heads;
    size_t bytes = 8 * (size_t)(key_rows(a) * a->head_dim);

    if (!b->g->dk_sum && cuda_check(cudaMemsetAsync(b->room.dk, 0, bytes, b->c->streams[b->s]),
                                    "cudaMemsetAsync", b->errors) != 0)
        return -1;
    for (int head = kv * group; head < (kv + 1) * group; head++) {
        const struct head h = head_of(b, sequence, kv, head);
        for (int64_t query = 0; query < a->tokens; query += b->room.queries)
            if (block_of_queries(b, &h, query) != 0)
                return -1;
    }
    return b->g->dk_sum ? 0 : write_keys(b, sequence, kv);
}

bool cuda_attention_blocks_serve(const struct attention_gradient *g)
{
    const struct attention *a = &g->forward;
    const int64_t strides[] = { g->dq_stride, g->dq_head_stride, g->dk_sum ? 0 : g->dk_stride,
                                g->dk_sum ? 0 : g->dv_stride, g->dk_sum ? g->sum_stride : 0 };
    for (int i = 0; i < 5; i++)
        if (strides[i] % 8 != 0)
            return false;
    return cuda_attention_planned(a) && (g->dk_sum || key_rows(a) <= a->tokens);
}

int cuda_attention_backward_blocks(struct cuda *c, enum stream s,
                                   const struct attention_gradient *g, struct diag_list *reterr)
{
    const struct attention *a = &g->forward;
    const struct blocks b = { c, s, g, room_of(a, g->workspace), reterr };
    int64_t run_stride = a->run_stride ? a->run_stride : a->tokens;

    if (a->tokens == 0)
        return 0;
    for (int sequence = 0; sequence < a->sequences; sequence++) {
        int64_t row = sequence * run_stride, width = (int64_t)a->heads * a->head_dim;
        if (cuda_check(kernel_attention_delta(c->streams[s], a->tokens, a->heads, a->head_dim,
                                              a->o + row * width, g->d_o + row * width,
                                              g->delta + row * a->heads),
                       "attention backward", reterr) != 0)
            return -1;
        for (int kv = 0; kv < a->kv_heads; kv++)
            if (key_head(&b, sequence, kv) != 0)
                return -1;
    }
    return 0;
}
