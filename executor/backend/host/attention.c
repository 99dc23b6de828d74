#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/attention_tile.h"
#include "executor/backend/host/bf16.h"
#include "executor/backend/host/exponential.h"
#include "executor/backend/host/host.h"
#include "executor/backend/host/tile.h"

enum { TILE = ATTENTION_TILE, TILE_PANEL = TILE * ATTENTION_HEAD_MAX, TILE_SQUARE = TILE * TILE };

/* The workspace's parts for one head's tile of queries. */
struct tile_state {
    float *q, *k, *v;      /* packed */
    float *scores, *probs; /* [TILE, TILE]; probs packed */
    float *sums;           /* [TILE, width] output before division */
    float largest[TILE], total[TILE];
    int64_t width; /* of values, in whole strips */
};

static void state_open(struct tile_state *t, float *workspace, const struct attention *a)
{
    t->q = workspace;
    t->k = t->q + TILE_PANEL;
    t->v = t->k + TILE_PANEL;
    t->sums = t->v + TILE_PANEL;
    t->scores = t->sums + TILE_PANEL;
    t->probs = t->scores + TILE_SQUARE;
    t->width = tile_padded(attention_value_dim(a), TILE_COLUMNS);
}

/* One row against one tile of keys: scores become exp(score - largest), sums and total are brought
 * to the new largest (the online softmax of Milakov and Gimelshein, 2018). In lanes, to whole
 * strips of keys: the row has room for them. */
HOST_HOT
static void soften_row(float *scores, int64_t keys, float scale, float *largest, float *total,
                       float *sums, int64_t width)
{
    enum { LANES = TILE_COLUMNS };
    int64_t padded = tile_padded(keys, LANES);
    float lanes[LANES], top = *largest, sum = 0;
    for (int64_t j = keys; j < padded; j++)
        scores[j] = -INFINITY;
    for (int i = 0; i < LANES; i++)
        lanes[i] = top;
    for (int64_t j = 0; j < padded; j += LANES)
#pragma GCC unroll 1 /* unrolled it would not become vector code */
        for (int i = 0; i < LANES; i++) {
            float score = scores[j + i] * scale;
            scores[j + i] = score;
            lanes[i] = score > lanes[i] ? score : lanes[i];
        }
    for (int i = 0; i < LANES; i++)
        top = lanes[i] > top ? lanes[i] : top;
    for (int64_t j = 0; j < padded; j++)
        scores[j] = fast_exp(scores[j] - top);
    for (int i = 0; i < LANES; i++)
        lanes[i] = 0;
    for (int64_t j = 0; j < padded; j += LANES)
        for (int i = 0; i < LANES; i++)
            lanes[i] += scores[j + i];
    for (int i = 0; i < LANES; i++)
        sum += lanes[i];
    float keep = fast_exp(*largest - top);
    *total = *total * keep + sum;
    *largest = top;
    for (int64_t i = 0; i < width; i++)
        sums[i] *= keep;
}

static void visit_keys(const struct attention *a, struct tile_state *t, int64_t query, int64_t rows,
                       int64_t key, int64_t keys, const bf16 *k, const bf16 *v)
{
    tile_pack_lines(k + key * a->k_stride, DTYPE_BF16, a->k_stride, keys, a->head_dim, TILE_COLUMNS,
                    t->k);
    tile_pack_columns(v + key * a->v_stride, DTYPE_BF16, a->v_stride, attention_value_dim(a), keys,
                      TILE_COLUMNS, t->v);
    memset(t->scores, 0, TILE_SQUARE * sizeof *t->scores);
    tile_multiply(rows, keys, a->head_dim, t->q, t->k, t->scores, TILE);
    for (int64_t r = 0; r < rows; r++) {
        float *scores = t->scores + r * TILE;
        if (attention_mask(attention_span(a, query + r), key, keys, scores))
            soften_row(scores, keys, attention_scale(a), &t->largest[r], &t->total[r],
                       t->sums + r * t->width, t->width);
        else
            memset(scores, 0, (size_t)keys * sizeof *scores);
    }
    tile_pack_lines(t->scores, DTYPE_FP32, TILE, rows, keys, TILE_ROWS, t->probs);
    tile_multiply(rows, attention_value_dim(a), keys, t->probs, t->v, t->sums, t->width);
}

static void visit_queries(const struct attention *a, struct tile_state *t, int sequence, int head,
                          int64_t query)
{
    int64_t rows = a->tokens - query < TILE ? a->tokens - query : TILE;
    int64_t start = attention_query_row(a, sequence), key_row = sequence * attention_keys(a);
    int64_t kv = head / (a->heads / a->kv_heads), width = attention_value_dim(a);
    const bf16 *q = a->q + (start + query) * a->q_stride + (int64_t)head * a->head_dim;
    tile_pack_lines(q, DTYPE_BF16, a->q_stride, rows, a->head_dim, TILE_ROWS, t->q);
    memset(t->sums, 0, (size_t)(TILE * t->width) * sizeof *t->sums);
    for (int r = 0; r < TILE; r++) {
        t->largest[r] = -INFINITY;
        t->total[r] = 0;
    }
    struct key_span tiles = attention_tiles(a, query, rows);
    for (int64_t key = tiles.first; key < tiles.last; key += TILE)
        visit_keys(a, t, query, rows, key, tiles.last - key < TILE ? tiles.last - key : TILE,
                   a->k + key_row * a->k_stride + kv * a->head_dim,
                   a->v + key_row * a->v_stride + kv * attention_v_head_stride(a));
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = start + query + r;
        bf16 *o = a->o + row * attention_o_stride(a) + head * width;
        for (int64_t i = 0; i < width; i++)
            o[i] = bf16_from_float(t->sums[r * t->width + i] / t->total[r]);
        a->lse[row * attention_lse_stride(a) + head] = t->largest[r] + logf(t->total[r]);
    }
}

int host_attention(struct backend *b, enum stream s, const struct attention *a,
                   struct diag_list *reterr)
{
    (void)s;
    float *workspace = host_workspace(b, 4 * TILE_PANEL + 2 * TILE_SQUARE, "attention", reterr);
    if (!workspace || attention_check(a, reterr))
        return -1;
    struct tile_state state;
    state_open(&state, workspace, a);
    for (int sequence = 0; sequence < a->sequences; sequence++)
        for (int head = 0; head < a->heads; head++)
            for (int64_t query = 0; query < a->tokens; query += TILE)
                visit_queries(a, &state, sequence, head, query);
    return 0;
}
