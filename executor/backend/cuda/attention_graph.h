/* attention_graph.h - softmax attention as a cuDNN operation graph, forward and backward.
 * cuDNN 9.14 to 9.20 have causal bounds only when the mask is spelled out in pointwise operations,
 * so it is: product, scale, comparison of indices, selection, softmax from its parts, product. */
#ifndef RANKFIT_EXECUTOR_BACKEND_CUDA_ATTENTION_GRAPH_H
#define RANKFIT_EXECUTOR_BACKEND_CUDA_ATTENTION_GRAPH_H

#include "executor/backend/cuda/graph.h"

/* Query i of `queries` sees keys up to i + keys - queries, and with a window only the last
 * `window` of them. Sequences begin query_rows and key_rows rows apart. Strides in elements between
 * rows; lse is [row, head], `lse_stride` heads a row. */
struct attention_shape {
    int64_t sequences, heads, kv_heads, head_dim, queries, keys, window, query_rows, key_rows;
    int64_t q_stride, k_stride, v_stride, o_stride, lse_stride;
    int64_t dq_stride, dk_stride, dv_stride, dq_head_stride; /* 0 in the forward */
};

/* Ids of the tensors when run. */
enum attention_tensor {
    ATTENTION_Q = 1,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_O,
    ATTENTION_LSE,
    ATTENTION_SCALE,   /* float on the host */
    ATTENTION_HIDDEN,  /* float on the host: what an unseen score becomes */
    ATTENTION_QUERIES, /* int32 on the host, where queries differ from keys */
    ATTENTION_KEYS,    /* likewise */
    ATTENTION_WINDOW,  /* float on the host, with a window: window + queries - keys */
    ATTENTION_D_O,
    ATTENTION_DQ,
    ATTENTION_DK,
    ATTENTION_DV,
    ATTENTION_DELTA,   /* fp32 [sequences, heads, queries] */
    ATTENTION_DQ_SUMS, /* fp32 [sequences, heads, queries, head_dim] */
    ATTENTION_ONE      /* float on the host */
};

/* Adds the operations to an open graph; the caller plans it. */
void attention_graph_forward(struct graph *g, const struct attention_shape *a);
void attention_graph_backward(struct graph *g, const struct attention_shape *a);

#endif
