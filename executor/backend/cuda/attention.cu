/* Attention without matrix units, one warp a query (or a key, for its gradients) and head, keys one
 * after another with the online softmax of Milakov and Gimelshein (2018). Slow and plain: for the
 * shapes that the library refuses, and the judge of those it takes. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 128, WARPS = THREADS / WARP;

using args = kernel_attention_args;

/* Element lane + 32 j of a row is value j of a lane. */
template <int VALUES>
__device__ __forceinline__ void load_row(const uint16_t *row, int head_dim, float (&to)[VALUES])
{
#pragma unroll
    for (int j = 0; j < VALUES; j++) {
        int i = j * WARP + static_cast<int>(threadIdx.x % WARP);
        to[j] = i < head_dim ? bf16_to_float(row[i]) : 0;
    }
}

template <int VALUES>
__device__ __forceinline__ void store_row(uint16_t *row, int head_dim, const float (&from)[VALUES])
{
#pragma unroll
    for (int j = 0; j < VALUES; j++) {
        int i = j * WARP + static_cast<int>(threadIdx.x % WARP);
        if (i < head_dim)
            row[i] = bf16_from_float(from[j]);
    }
}

template <int VALUES>
__device__ __forceinline__ void add_row(float *row, int head_dim, const float (&from)[VALUES])
{
#pragma unroll
    for (int j = 0; j < VALUES; j++) {
        int i = j * WARP + static_cast<int>(threadIdx.x % WARP);
        if (i < head_dim)
            row[i] += from[j];
    }
}

template <int VALUES>
__device__ __forceinline__ float dot(const float (&a)[VALUES], const float (&b)[VALUES])
{
    float sum = 0;
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        sum += a[j] * b[j];
    return warp_sum(sum);
}

template <int VALUES>
__device__ __forceinline__ void add_scaled(float (&to)[VALUES], float scale,
                                           const float (&from)[VALUES])
{
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        to[j] += scale * from[j];
}

/* Which query (or key) and head a warp works on; rows of one sequence are neighbours. */
struct place {
    bool present;
    int sequence, head;
    int64_t at; /* within the sequence */
};

__device__ __forceinline__ place place_of(const args &a, int64_t length, int heads)
{
    int64_t warp = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
    place p;
    p.head = static_cast<int>(warp % heads);
    p.at = warp / heads % length;
    int64_t sequence = warp / heads / length;
    p.present = sequence < a.sequences;
    p.sequence = static_cast<int>(sequence);
    return p;
}

/* Keys that a query sees: [first, last). */
__device__ __forceinline__ int64_t first_key(const args &a, int64_t query)
{
    int64_t last = a.first_query + query + 1;
    return a.window > 0 && last > a.window ? last - a.window : 0;
}

__device__ __forceinline__ int64_t last_key(const args &a, int64_t query)
{
    return a.first_query + query + 1;
}

template <int VALUES>
__global__ void __launch_bounds__(THREADS) forward(const __grid_constant__ args a, float scale)
{
    place p = place_of(a, a.queries, a.heads);
    if (!p.present)
        return;
    int64_t row = p.sequence * a.run_stride + p.at, start = p.sequence * a.keys;
    int64_t column = static_cast<int64_t>(p.head) * a.head_dim;
    int64_t kv = static_cast<int64_t>(p.head / (a.heads / a.kv_heads)) * a.head_dim;
    float q[VALUES], sums[VALUES] = {}, largest = -INFINITY, total = 0;
    load_row(a.q + row * a.q_stride + column, a.head_dim, q);
    for (int64_t key = first_key(a, p.at); key < last_key(a, p.at); key++) {
        float k[VALUES], v[VALUES];
        load_row(a.k + (start + key) * a.k_stride + kv, a.head_dim, k);
        load_row(a.v + (start + key) * a.v_stride + kv, a.head_dim, v);
        float score = dot(q, k) * scale, top = fmaxf(largest, score);
        float kept = expf(largest - top), weight = expf(score - top);
        total = total * kept + weight;
        largest = top;
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            sums[j] = sums[j] * kept + weight * v[j];
    }
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        sums[j] /= total;
    store_row(a.o + row * a.o_stride + column, a.head_dim, sums);
    if (threadIdx.x % WARP == 0)
        a.lse[row * a.heads + p.head] = largest + logf(total);
}

/* With p = exp(s - lse) and delta = do o: ds = p (dp - delta) scale, dq = sum ds k. Leaves delta.
 */
template <int VALUES>
__global__ void __launch_bounds__(THREADS)
    backward_queries(const __grid_constant__ args a, float scale)
{
    place p = place_of(a, a.queries, a.heads);
    if (!p.present)
        return;
    int64_t row = p.sequence * a.run_stride + p.at, start = p.sequence * a.keys;
    int64_t column = static_cast<int64_t>(p.head) * a.head_dim;
    int64_t kv = static_cast<int64_t>(p.head / (a.heads / a.kv_heads)) * a.head_dim;
    float q[VALUES], d_o[VALUES], sums[VALUES] = {}, lse = a.lse[row * a.heads + p.head];
    load_row(a.o + row * a.o_stride + column, a.head_dim, q);
    load_row(a.d_o + row * a.o_stride + column, a.head_dim, d_o);
    float delta = dot(q, d_o);
    load_row(a.q + row * a.q_stride + column, a.head_dim, q);
    for (int64_t key = first_key(a, p.at); key < last_key(a, p.at); key++) {
        float k[VALUES], v[VALUES];
        load_row(a.k + (start + key) * a.k_stride + kv, a.head_dim, k);
        load_row(a.v + (start + key) * a.v_stride + kv, a.head_dim, v);
        float weight = expf(dot(q, k) * scale - lse);
        add_scaled(sums, weight * (dot(d_o, v) - delta) * scale, k);
    }
    store_row(a.dq + row * a.dq_stride + p.head * a.dq_head_stride, a.head_dim, sums);
    if (threadIdx.x % WARP == 0)
        a.delta[row * a.heads + p.head] = delta;
}

/* dk = sum ds q, dv = sum p do over the queries that see the key, head after head of the group. */
template <int VALUES>
__global__ void __launch_bounds__(THREADS)
    backward_keys(const __grid_constant__ args a, float scale)
{
    place p = place_of(a, a.keys, a.kv_heads);
    if (!p.present)
        return;
    int64_t key_row = p.sequence * a.keys + p.at, kv = static_cast<int64_t>(p.head) * a.head_dim;
    int group = a.heads / a.kv_heads;
    float k[VALUES], v[VALUES], dk[VALUES] = {}, dv[VALUES] = {};
    load_row(a.k + key_row * a.k_stride + kv, a.head_dim, k);
    load_row(a.v + key_row * a.v_stride + kv, a.head_dim, v);
    int64_t first = p.at - a.first_query, last = a.queries;
    if (a.window > 0 && first + a.window < last)
        last = first + a.window;
    for (int head = p.head * group; head < (p.head + 1) * group; head++)
        for (int64_t query = first > 0 ? first : 0; query < last; query++) {
            int64_t row = p.sequence * a.run_stride + query;
            int64_t column = static_cast<int64_t>(head) * a.head_dim;
            float q[VALUES], d_o[VALUES];
            load_row(a.q + row * a.q_stride + column, a.head_dim, q);
            load_row(a.d_o + row * a.o_stride + column, a.head_dim, d_o);
            float weight = expf(dot(q, k) * scale - a.lse[row * a.heads + head]);
            float d_score = weight * (dot(d_o, v) - a.delta[row * a.heads + head]) * scale;
            add_scaled(dk, d_score, q);
            add_scaled(dv, weight, d_o);
        }
    if (a.dk_sum) {
        add_row(a.dk_sum + key_row * a.sum_stride + kv, a.head_dim, dk);
        add_row(a.dv_sum + key_row * a.sum_stride + kv, a.head_dim, dv);
        return;
    }
    store_row(a.dk + key_row * a.dk_stride + kv, a.head_dim, dk);
    store_row(a.dv + key_row * a.dv_stride + kv, a.head_dim, dv);
}

unsigned blocks_of(int64_t warps)
{
    return static_cast<unsigned>((warps + WARPS - 1) / WARPS);
}

template <int VALUES> cudaError_t launch_forward(cudaStream_t stream, const args &a)
{
    float scale = 1.0F / sqrtf(static_cast<float>(a.head_dim));
    unsigned blocks = blocks_of(a.sequences * a.queries * a.heads);
    forward<VALUES><<<blocks, THREADS, 0, stream>>>(a, scale);
    return cudaGetLastError();
}

template <int VALUES> cudaError_t launch_backward(cudaStream_t stream, const args &a)
{
    float scale = 1.0F / sqrtf(static_cast<float>(a.head_dim));
    unsigned queries = blocks_of(a.sequences * a.queries * a.heads);
    unsigned keys = blocks_of(a.sequences * a.keys * a.kv_heads);
    backward_queries<VALUES><<<queries, THREADS, 0, stream>>>(a, scale);
    backward_keys<VALUES><<<keys, THREADS, 0, stream>>>(a, scale);
    return cudaGetLastError();
}

} // namespace

cudaError_t kernel_attention(cudaStream_t stream, const struct kernel_attention_args *a)
{
    if (a->queries == 0 || a->sequences == 0)
        return cudaSuccess;
    return a->head_dim <= 2 * WARP   ? launch_forward<2>(stream, *a)
           : a->head_dim <= 4 * WARP ? launch_forward<4>(stream, *a)
                                     : launch_forward<8>(stream, *a);
}

cudaError_t kernel_attention_backward(cudaStream_t stream, const struct kernel_attention_args *a)
{
    if (a->queries == 0 || a->sequences == 0)
        return cudaSuccess;
    return a->head_dim <= 2 * WARP   ? launch_backward<2>(stream, *a)
           : a->head_dim <= 4 * WARP ? launch_backward<4>(stream, *a)
                                     : launch_backward<8>(stream, *a);
}
