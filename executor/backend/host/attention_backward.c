#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/attention_tile.h"
#include "executor/backend/host/bf16.h"
#include "executor/backend/host/exponential.h"
#include "executor/backend/host/host.h"
#include "executor/backend/host/tile.h"

enum {
    TILE = ATTENTION_TILE,
    TILE_PANEL = TILE * ATTENTION_HEAD_MAX,
    TILE_SQUARE = TILE * TILE,
    PANELS = 9
};

/* The workspace's parts. Packed panels carry the strip they are packed in; *_inner ones have rows
 * as the inner index. */
struct tile_state {
    float *q, *d_o;             /* packed by 6 over queries */
    float *q_inner, *d_o_inner; /* packed by 16 over the head */
    float *k, *v;               /* packed by 16 over keys */
    float *k_inner;             /* packed by 16 over the head */
    float *dq, *panel;          /* [TILE, width] results */
    float *probs, *d_scores;    /* [TILE, TILE] */
    float *packed;              /* one of them, packed by 6 */
    int64_t width;
};

/* A place of the work: one head of one sequence against its key-value head's sums. */
struct place {
    const struct attention_gradient *g;
    int64_t start, key_row; /* first rows of the sequence's queries and keys */
    int head, kv_head;
    float *dk, *dv; /* [keys, head_dim] */
};

static void state_open(struct tile_state *t, float *workspace, const struct attention *a)
{
    float **panels[PANELS] = { &t->q, &t->d_o,     &t->q_inner, &t->d_o_inner, &t->k,
                               &t->v, &t->k_inner, &t->dq,      &t->panel };
    for (int i = 0; i < PANELS; i++, workspace += TILE_PANEL)
        *panels[i] = workspace;
    t->probs = workspace;
    t->d_scores = t->probs + TILE_SQUARE;
    t->packed = t->d_scores + TILE_SQUARE;
    t->width = tile_padded(a->head_dim, TILE_COLUMNS);
}

uint64_t host_attention_workspace_bytes(const struct backend *b, const struct attention *a)
{
    (void)b;
    return 8 * (uint64_t)attention_keys(a) * (uint64_t)a->head_dim;
}

/* p = exp(score - lse), ds = p (dp - delta) scale; in place of score and dp. */
HOST_HOT
static void differentiate_row(float *scores, float *d_probs, int64_t keys, float scale, float lse,
                              float delta)
{
    for (int64_t j = 0; j < keys; j++) {
        scores[j] = fast_exp(scores[j] * scale - lse);
        d_probs[j] = scores[j] * (d_probs[j] - delta) * scale;
    }
}

static void differentiate(const struct place *p, struct tile_state *t, int64_t query, int64_t rows,
                          int64_t key, int64_t keys)
{
    const struct attention *a = &p->g->forward;
    memset(t->probs, 0, TILE_SQUARE * sizeof *t->probs);
    memset(t->d_scores, 0, TILE_SQUARE * sizeof *t->d_scores);
    tile_multiply(rows, keys, a->head_dim, t->q, t->k, t->probs, TILE);
    tile_multiply(rows, keys, attention_value_dim(a), t->d_o, t->v, t->d_scores, TILE);
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = (p->start + query + r) * attention_lse_stride(a) + p->head;
        (void)attention_mask(attention_span(a, query + r), key, keys, t->probs + r * TILE);
        differentiate_row(t->probs + r * TILE, t->d_scores + r * TILE, keys, attention_scale(a),
                          a->lse[row], p->g->delta[row]);
    }
}

/* to[keys, head] += from^T[rows, keys] . inner[rows, head] */
static void add_key_sums(struct tile_state *t, const float *from, int64_t rows, int64_t keys,
                         int64_t head_dim, const float *inner, float *to)
{
    tile_pack_columns(from, DTYPE_FP32, TILE, keys, rows, TILE_ROWS, t->packed);
    memset(t->panel, 0, (size_t)(TILE * t->width) * sizeof *t->panel);
    tile_multiply(keys, head_dim, rows, t->packed, inner, t->panel, t->width);
    for (int64_t j = 0; j < keys; j++)
        for (int64_t i = 0; i < head_dim; i++)
            to[j * head_dim + i] += t->panel[j * t->width + i];
}

static void visit_keys(const struct place *p, struct tile_state *t, int64_t query, int64_t rows,
                       int64_t key, int64_t keys)
{
    const struct attention *a = &p->g->forward;
    int64_t d = a->head_dim, dv = attention_value_dim(a);
    const bf16 *k = a->k + (p->key_row + key) * a->k_stride + p->kv_head * d;
    const bf16 *v =
        a->v + (p->key_row + key) * a->v_stride + p->kv_head * attention_v_head_stride(a);
    tile_pack_lines(k, DTYPE_BF16, a->k_stride, keys, d, TILE_COLUMNS, t->k);
    tile_pack_lines(v, DTYPE_BF16, a->v_stride, keys, dv, TILE_COLUMNS, t->v);
    tile_pack_columns(k, DTYPE_BF16, a->k_stride, d, keys, TILE_COLUMNS, t->k_inner);
    differentiate(p, t, query, rows, key, keys);
    tile_pack_lines(t->d_scores, DTYPE_FP32, TILE, rows, keys, TILE_ROWS, t->packed);
    tile_multiply(rows, d, keys, t->packed, t->k_inner, t->dq, t->width);
    add_key_sums(t, t->d_scores, rows, keys, d, t->q_inner, p->dk + key * d);
    add_key_sums(t, t->probs, rows, keys, dv, t->d_o_inner, p->dv + key * dv);
}

static int64_t d_o_stride(const struct attention_gradient *g)
{
    return g->d_o_stride > 0 ? g->d_o_stride : g->forward.heads * attention_value_dim(&g->forward);
}

/* delta = sum of do o over the head, for the rows of a tile. */
static void fill_delta(const struct place *p, int64_t query, int64_t rows)
{
    const struct attention *a = &p->g->forward;
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = p->start + query + r, width = attention_value_dim(a);
        const bf16 *o = a->o + row * attention_o_stride(a) + p->head * width;
        const bf16 *d_o = p->g->d_o + row * d_o_stride(p->g) + p->head * width;
        float sum = 0;
        for (int64_t i = 0; i < width; i++)
            sum += bf16_to_float(d_o[i]) * bf16_to_float(o[i]);
        p->g->delta[row * attention_lse_stride(a) + p->head] = sum;
    }
}

static void narrow_rows(const float *from, int64_t from_stride, int64_t rows, int64_t width,
                        bf16 *to, int64_t to_stride)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++)
            to[r * to_stride + i] = bf16_from_float(from[r * from_stride + i]);
}

static void add_rows(const float *from, int64_t rows, int64_t width, float *to, int64_t to_stride)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++)
            to[r * to_stride + i] += from[r * width + i];
}

static void visit_queries(const struct place *p, struct tile_state *t, int64_t query)
{
    const struct attention *a = &p->g->forward;
    int64_t rows = a->tokens - query < TILE ? a->tokens - query : TILE;
    int64_t d = a->head_dim, row = p->start + query, column = p->head * d;
    int64_t o_stride = d_o_stride(p->g), dv = attention_value_dim(a);
    const bf16 *q = a->q + row * a->q_stride + column;
    const bf16 *d_o = p->g->d_o + row * o_stride + p->head * dv;
    tile_pack_lines(q, DTYPE_BF16, a->q_stride, rows, d, TILE_ROWS, t->q);
    tile_pack_lines(d_o, DTYPE_BF16, o_stride, rows, dv, TILE_ROWS, t->d_o);
    tile_pack_columns(q, DTYPE_BF16, a->q_stride, d, rows, TILE_COLUMNS, t->q_inner);
    tile_pack_columns(d_o, DTYPE_BF16, o_stride, dv, rows, TILE_COLUMNS, t->d_o_inner);
    memset(t->dq, 0, (size_t)(TILE * t->width) * sizeof *t->dq);
    fill_delta(p, query, rows);
    struct key_span tiles = attention_tiles(a, query, rows);
    for (int64_t key = tiles.first; key < tiles.last; key += TILE)
        visit_keys(p, t, query, rows, key, tiles.last - key < TILE ? tiles.last - key : TILE);
    int64_t head_stride = p->g->dq_head_stride > 0 ? p->g->dq_head_stride : d;
    narrow_rows(t->dq, t->width, rows, d, p->g->dq + row * p->g->dq_stride + p->head * head_stride,
                p->g->dq_stride);
}

/* All query heads of one key-value head, in order, into its sums. */
static void visit_kv_head(struct place *p, struct tile_state *t)
{
    const struct attention_gradient *g = p->g;
    const struct attention *a = &g->forward;
    int64_t d = a->head_dim, keys = attention_keys(a), column = p->kv_head * d;
    int64_t dv = attention_value_dim(a);
    int64_t dv_column = p->kv_head * (g->dv_head_stride > 0 ? g->dv_head_stride : dv);
    int group = a->heads / a->kv_heads;
    memset(p->dk, 0, (size_t)(2 * keys * d) * sizeof *p->dk);
    for (p->head = p->kv_head * group; p->head < (p->kv_head + 1) * group; p->head++)
        for (int64_t query = 0; query < a->tokens; query += TILE)
            visit_queries(p, t, query);
    if (g->dk_sum)
        add_rows(p->dk, keys, d, g->dk_sum + p->key_row * g->sum_stride + column, g->sum_stride);
    else
        narrow_rows(p->dk, d, keys, d, g->dk + p->key_row * g->dk_stride + column, g->dk_stride);
    if (g->dv_sum)
        add_rows(p->dv, keys, dv, g->dv_sum + p->key_row * g->sum_stride + dv_column,
                 g->sum_stride);
    else
        narrow_rows(p->dv, dv, keys, dv, g->dv + p->key_row * g->dv_stride + dv_column,
                    g->dv_stride);
}

int host_attention_backward(struct backend *b, enum stream s, const struct attention_gradient *g,
                            struct diag_list *reterr)
{
    (void)s;
    const struct attention *a = &g->forward;
    float *workspace =
        host_workspace(b, PANELS * TILE_PANEL + 3 * TILE_SQUARE, "attention backward", reterr);
    if (!workspace || attention_check(a, reterr))
        return -1;
    struct tile_state state;
    state_open(&state, workspace, a);
    float *sums = g->workspace;
    for (int sequence = 0; sequence < a->sequences; sequence++)
        for (int kv_head = 0; kv_head < a->kv_heads; kv_head++) {
            struct place place = { .g = g,
                                   .start = attention_query_row(a, sequence),
                                   .key_row = sequence * attention_keys(a),
                                   .kv_head = kv_head,
                                   .dk = sums,
                                   .dv = sums + attention_keys(a) * a->head_dim };
            visit_kv_head(&place, &state);
        }
    return 0;
}
