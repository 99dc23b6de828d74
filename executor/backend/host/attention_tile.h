/* attention_tile.h - what attention forward and backward share: tiles of 96 queries by 96 keys, and
 * which keys a query sees. Tiles of keys begin at multiples of 96 from the sequence's start, so
 * that a query's result does not depend on the tile it is computed in. */
#ifndef RANKFIT_EXECUTOR_BACKEND_HOST_ATTENTION_TILE_H
#define RANKFIT_EXECUTOR_BACKEND_HOST_ATTENTION_TILE_H

#include "executor/backend/backend.h"

#include <math.h>

/* 96: a multiple of both strips of tile.h. The widest head follows from the workspace. */
enum { ATTENTION_TILE = 96, ATTENTION_HEAD_MAX = 256 };

/* Keys [first, last) within a sequence. */
struct key_span {
    int64_t first, last;
};

static inline int64_t attention_keys(const struct attention *a)
{
    return a->key_tokens > 0 ? a->key_tokens : a->tokens;
}

/* The first row of a sequence's queries. */
static inline int64_t attention_query_row(const struct attention *a, int sequence)
{
    return sequence * (a->run_stride > 0 ? a->run_stride : a->tokens);
}

/* Causal: up to itself. A window of w sees itself and the w - 1 before it. query: within the run.
 */
static inline struct key_span attention_span(const struct attention *a, int64_t query)
{
    struct key_span span = { 0, a->first_query + query + 1 };
    if (a->window > 0 && span.last > a->window)
        span.first = span.last - a->window;
    return span;
}

/* Where the tiles of keys begin and end for queries [query, query + rows). */
static inline struct key_span attention_tiles(const struct attention *a, int64_t query,
                                              int64_t rows)
{
    int64_t first = attention_span(a, query).first;
    return (struct key_span){ first - first % ATTENTION_TILE, a->first_query + query + rows };
}

/* Sets what the query does not see of the keys [key, key + keys) to -infinity, whose exponential is
 * 0. False when it sees none. */
static inline bool attention_mask(struct key_span span, int64_t key, int64_t keys, float *scores)
{
    int64_t first = span.first > key ? span.first - key : 0;
    int64_t last = span.last < key + keys ? span.last - key : keys;
    for (int64_t j = 0; j < first && j < keys; j++)
        scores[j] = -INFINITY;
    for (int64_t j = last > 0 ? last : 0; j < keys; j++)
        scores[j] = -INFINITY;
    return first < last;
}

static inline float attention_scale(const struct attention *a)
{
    return (a->score_factor > 0 ? a->score_factor : 1.0F) / sqrtf((float)a->head_dim);
}

/* Width of a head's values and outputs. */
static inline int64_t attention_value_dim(const struct attention *a)
{
    return a->value_dim > 0 ? a->value_dim : a->head_dim;
}

static inline int64_t attention_v_head_stride(const struct attention *a)
{
    return a->v_head_stride > 0 ? a->v_head_stride : attention_value_dim(a);
}

static inline int64_t attention_o_stride(const struct attention *a)
{
    return a->o_stride > 0 ? a->o_stride : a->heads * attention_value_dim(a);
}

static inline int64_t attention_lse_stride(const struct attention *a)
{
    return a->lse_stride > 0 ? a->lse_stride : a->heads;
}

static inline int attention_check(const struct attention *a, struct diag_list *reterr)
{
    static const struct pos nowhere = { NULL, 0, 0 };
    if (a->head_dim > ATTENTION_HEAD_MAX)
        return diag_error(reterr, nowhere, "attention: head_dim %d, at most %d on this backend",
                          a->head_dim, ATTENTION_HEAD_MAX);
    if (a->value_dim > a->head_dim)
        return diag_error(reterr, nowhere, "attention: values of %d, wider than keys of %d",
                          a->value_dim, a->head_dim);
    if (a->kv_heads < 1 || a->heads % a->kv_heads != 0)
        return diag_error(reterr, nowhere, "attention: %d heads over %d key-value heads", a->heads,
                          a->kv_heads);
    if (a->first_query < 0 || a->first_query + a->tokens > attention_keys(a))
        return diag_error(reterr, nowhere, "attention: queries %lld to %lld of %lld keys",
                          (long long)a->first_query, (long long)(a->first_query + a->tokens - 1),
                          (long long)attention_keys(a));
    return 0;
}

#endif
