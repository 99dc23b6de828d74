#include "executor/backend/cuda/attention_graph.h"

#define BF16 CUDNN_DATA_BFLOAT16
#define FP32 CUDNN_DATA_FLOAT

/* Rows of heads, `stride` elements apart, as [sequence, head, row, element]. */
static struct graph_shape query_heads(const struct attention_shape *a, int64_t stride,
                                      int64_t head_stride)
{
    return (struct graph_shape){ { a->sequences, a->heads, a->queries, a->head_dim },
                                 { a->query_rows * stride, head_stride, stride, 1 } };
}

static struct graph_shape key_heads(const struct attention_shape *a, int64_t stride)
{
    return (struct graph_shape){ { a->sequences, a->kv_heads, a->keys, a->head_dim },
                                 { a->key_rows * stride, a->head_dim, stride, 1 } };
}

static struct graph_shape output_heads(const struct attention_shape *a)
{
    return query_heads(a, a->o_stride, a->head_dim);
}

/* The same with rows and elements exchanged. */
static struct graph_shape turned(struct graph_shape s)
{
    return (struct graph_shape){ { s.dims[0], s.dims[1], s.dims[3], s.dims[2] },
                                 { s.strides[0], s.strides[1], s.strides[3], s.strides[2] } };
}

static struct graph_shape scores_of(const struct attention_shape *a)
{
    return graph_packed(a->sequences, a->heads, a->queries, a->keys);
}

static struct graph_shape sums_of(const struct attention_shape *a)
{
    return graph_packed(a->sequences, a->heads, a->queries, 1);
}

static cudnnBackendDescriptor_t lse_of(struct graph *g, const struct attention_shape *a)
{
    const struct graph_shape shape = { { a->sequences, a->heads, a->queries, 1 },
                                       { a->query_rows * a->lse_stride, 1, a->lse_stride, 1 } };
    return graph_tensor(g, ATTENTION_LSE, FP32, shape);
}

/* A new inner tensor that is mode(x, b). */
static cudnnBackendDescriptor_t made(struct graph *g, cudnnPointwiseMode_t mode,
                                     struct graph_shape shape, cudnnBackendDescriptor_t x,
                                     cudnnBackendDescriptor_t b)
{
    cudnnBackendDescriptor_t y = graph_inner(g, FP32, shape);
    graph_pointwise(g, mode, FP32, x, b, NULL, y);
    return y;
}

static cudnnBackendDescriptor_t shifted(struct graph *g, const struct attention_shape *a,
                                        cudnnPointwiseMode_t mode, cudnnDataType_t type,
                                        cudnnBackendDescriptor_t index, enum attention_tensor by)
{
    cudnnBackendDescriptor_t y = graph_inner(g, type, scores_of(a));
    graph_pointwise(g, mode, type, index, graph_value(g, by, type), NULL, y);
    return y;
}

/* scores where left `mode` right, the hidden value elsewhere. */
static cudnnBackendDescriptor_t selected(struct graph *g, const struct attention_shape *a,
                                         cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t left,
                                         cudnnBackendDescriptor_t right,
                                         cudnnBackendDescriptor_t hidden,
                                         cudnnBackendDescriptor_t scores)
{
    cudnnBackendDescriptor_t seen = graph_inner(g, CUDNN_DATA_BOOLEAN, scores_of(a));
    graph_pointwise(g, mode, CUDNN_DATA_BOOLEAN, left, right, NULL, seen);
    cudnnBackendDescriptor_t y = graph_inner(g, FP32, scores_of(a));
    graph_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, FP32, scores, hidden, seen, y);
    return y;
}

/* The row's and the column's own index. */
static void indices(struct graph *g, const struct attention_shape *a,
                    cudnnBackendDescriptor_t scores, cudnnBackendDescriptor_t *ret_row,
                    cudnnBackendDescriptor_t *ret_column)
{
    *ret_row = graph_inner(g, CUDNN_DATA_INT32, scores_of(a));
    *ret_column = graph_inner(g, CUDNN_DATA_INT32, scores_of(a));
    graph_index(g, 2, scores, *ret_row);
    graph_index(g, 3, scores, *ret_column);
}

/* Keys after the query are hidden, and those before the window. */
static cudnnBackendDescriptor_t masked(struct graph *g, const struct attention_shape *a,
                                       cudnnBackendDescriptor_t scores)
{
    cudnnBackendDescriptor_t row, column, hidden = graph_value(g, ATTENTION_HIDDEN, FP32);
    indices(g, a, scores, &row, &column);
    if (a->queries != a->keys) {
        row = shifted(g, a, CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, row, ATTENTION_KEYS);
        row = shifted(g, a, CUDNN_POINTWISE_SUB, CUDNN_DATA_INT32, row, ATTENTION_QUERIES);
    }
    cudnnBackendDescriptor_t seen =
        selected(g, a, CUDNN_POINTWISE_CMP_GE, row, column, hidden, scores);
    if (a->window == 0)
        return seen;
    indices(g, a, seen, &row, &column);
    column = shifted(g, a, CUDNN_POINTWISE_ADD, FP32, column, ATTENTION_WINDOW);
    return selected(g, a, CUDNN_POINTWISE_CMP_GT, column, row, hidden, seen);
}

/* The scaled scores of queries against keys [sequence, head, element, row]. */
static cudnnBackendDescriptor_t scaled_scores(struct graph *g, const struct attention_shape *a,
                                              cudnnBackendDescriptor_t q,
                                              cudnnBackendDescriptor_t k,
                                              cudnnBackendDescriptor_t scale)
{
    cudnnBackendDescriptor_t scores = graph_inner(g, FP32, scores_of(a));
    graph_matmul(g, q, k, scores);
    return made(g, CUDNN_POINTWISE_MUL, scores_of(a), scores, scale);
}

void attention_graph_forward(struct graph *g, const struct attention_shape *a)
{
    struct graph_shape sums = sums_of(a), scores = scores_of(a);
    cudnnBackendDescriptor_t q =
        graph_tensor(g, ATTENTION_Q, BF16, query_heads(a, a->q_stride, a->head_dim));
    cudnnBackendDescriptor_t k =
        graph_tensor(g, ATTENTION_K, BF16, turned(key_heads(a, a->k_stride)));
    cudnnBackendDescriptor_t s =
        masked(g, a, scaled_scores(g, a, q, k, graph_value(g, ATTENTION_SCALE, FP32)));

    cudnnBackendDescriptor_t largest = graph_inner(g, FP32, sums);
    graph_reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, largest);
    s = made(g, CUDNN_POINTWISE_SUB, scores, s, largest);
    s = made(g, CUDNN_POINTWISE_EXP, scores, s, NULL);
    cudnnBackendDescriptor_t sum = graph_inner(g, FP32, sums);
    graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, s, sum);
    cudnnBackendDescriptor_t log_sum = made(g, CUDNN_POINTWISE_LOG, sums, sum, NULL);
    graph_pointwise(g, CUDNN_POINTWISE_ADD, FP32, largest, log_sum, NULL, lse_of(g, a));
    cudnnBackendDescriptor_t probs = graph_inner(g, BF16, scores);
    graph_pointwise(g, CUDNN_POINTWISE_DIV, FP32, s, sum, NULL, probs);

    cudnnBackendDescriptor_t v = graph_tensor(g, ATTENTION_V, BF16, key_heads(a, a->v_stride));
    struct graph_shape o = output_heads(a);
    graph_matmul(g, probs, v, graph_tensor(g, ATTENTION_O, BF16, o));
}

/* Gradient of keys or values: from^T rows, summed over the query heads that share them. */
static void key_gradient(struct graph *g, const struct attention_shape *a,
                         cudnnBackendDescriptor_t from, cudnnBackendDescriptor_t rows,
                         enum attention_tensor id, int64_t stride)
{
    cudnnBackendDescriptor_t from_t = graph_inner(g, BF16, turned(scores_of(a)));
    graph_reshape(g, from, from_t);
    cudnnBackendDescriptor_t to = graph_tensor(g, id, BF16, key_heads(a, stride));
    if (a->heads == a->kv_heads) {
        graph_matmul(g, from_t, rows, to);
        return;
    }
    cudnnBackendDescriptor_t each =
        graph_inner(g, BF16, graph_packed(a->sequences, a->heads, a->keys, a->head_dim));
    graph_matmul(g, from_t, rows, each);
    graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, each, to);
}

/* delta = the sum of do o over a head. */
static cudnnBackendDescriptor_t delta_of(struct graph *g, const struct attention_shape *a,
                                         cudnnBackendDescriptor_t d_o)
{
    struct graph_shape rows = output_heads(a);
    cudnnBackendDescriptor_t o = graph_tensor(g, ATTENTION_O, BF16, rows);
    struct graph_shape packed = graph_packed(a->sequences, a->heads, a->queries, a->head_dim);
    cudnnBackendDescriptor_t product = made(g, CUDNN_POINTWISE_MUL, packed, d_o, o);
    cudnnBackendDescriptor_t sum = graph_inner(g, FP32, sums_of(a));
    graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    cudnnBackendDescriptor_t delta = graph_tensor(g, ATTENTION_DELTA, FP32, sums_of(a));
    graph_pointwise(g, CUDNN_POINTWISE_MUL, FP32, sum, graph_value(g, ATTENTION_ONE, FP32), NULL,
                    delta);
    return delta;
}

/* dq = ds k, summed in fp32 by blocks of keys, then rounded. */
static void query_gradient(struct graph *g, const struct attention_shape *a,
                           cudnnBackendDescriptor_t d_scores, cudnnBackendDescriptor_t k)
{
    struct graph_shape rows = key_heads(a, a->k_stride);
    cudnnBackendDescriptor_t k_rows = graph_inner(g, FP32, rows);
    graph_reshape(g, k, k_rows);
    cudnnBackendDescriptor_t sums = graph_tensor(
        g, ATTENTION_DQ_SUMS, FP32, graph_packed(a->sequences, a->heads, a->queries, a->head_dim));
    graph_matmul(g, d_scores, k_rows, sums);
    cudnnBackendDescriptor_t dq =
        graph_tensor(g, ATTENTION_DQ, BF16, query_heads(a, a->dq_stride, a->dq_head_stride));
    graph_pointwise(g, CUDNN_POINTWISE_IDENTITY, FP32, sums, NULL, NULL, dq);
}

/* With p = exp(s - lse): dv = p^T do, ds = p (do v^T - delta) scale, dk = ds^T q, dq = ds k. */
void attention_graph_backward(struct graph *g, const struct attention_shape *a)
{
    struct graph_shape scores = scores_of(a);
    cudnnBackendDescriptor_t q =
        graph_tensor(g, ATTENTION_Q, BF16, query_heads(a, a->q_stride, a->head_dim));
    cudnnBackendDescriptor_t k =
        graph_tensor(g, ATTENTION_K, BF16, turned(key_heads(a, a->k_stride)));
    cudnnBackendDescriptor_t v =
        graph_tensor(g, ATTENTION_V, BF16, turned(key_heads(a, a->v_stride)));
    cudnnBackendDescriptor_t d_o = graph_tensor(g, ATTENTION_D_O, BF16, output_heads(a));
    cudnnBackendDescriptor_t scale = graph_value(g, ATTENTION_SCALE, FP32);
    cudnnBackendDescriptor_t delta = delta_of(g, a, d_o);

    cudnnBackendDescriptor_t s = scaled_scores(g, a, q, k, scale);
    s = masked(g, a, made(g, CUDNN_POINTWISE_SUB, scores, s, lse_of(g, a)));
    cudnnBackendDescriptor_t probs = made(g, CUDNN_POINTWISE_EXP, scores, s, NULL);
    key_gradient(g, a, probs, d_o, ATTENTION_DV, a->dv_stride);

    cudnnBackendDescriptor_t d_probs = graph_inner(g, FP32, scores);
    graph_matmul(g, d_o, v, d_probs);
    d_probs = made(g, CUDNN_POINTWISE_SUB, scores, d_probs, delta);
    d_probs = made(g, CUDNN_POINTWISE_MUL, scores, d_probs, probs);
    cudnnBackendDescriptor_t d_scores = made(g, CUDNN_POINTWISE_MUL, scores, d_probs, scale);
    key_gradient(g, a, d_scores, q, ATTENTION_DK, a->dk_stride);
    query_gradient(g, a, d_scores, k);
}
