/* What lies between the products of attention's backward by blocks. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256, WARPS = THREADS / WARP;

using args = kernel_attention_block_args;

/* One block of threads a query. With p = exp(scale s - lse): ds = p (dp - delta) scale; 0 where the
 * key is hidden. Keys behind the last, up to a multiple of 8, are hidden: the rows have room. */
__global__ void __launch_bounds__(THREADS) between(const __grid_constant__ args a)
{
    int64_t row = blockIdx.x, last = a.ahead + row; /* the last key that is seen */
    int64_t first = a.window > 0 ? last - a.window + 1 : 0;
    float lse = a.lse[row * a.heads], delta = a.delta[row * a.heads];
    if (last >= a.keys)
        last = a.keys - 1;
    for (int64_t at = threadIdx.x * 8; at < a.keys; at += THREADS * 8) {
        float p[8] = {}, ds[8] = {};
        int64_t place = row * a.stride + at;
        if (at <= last && at + 7 >= first) {
            float score[8], dp[8];
            load_eight(a.scores + place, score);
            load_eight(a.d_weights + place, dp);
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (at + i >= first && at + i <= last) {
                    p[i] = expf(score[i] * a.scale - lse);
                    ds[i] = p[i] * (dp[i] - delta) * a.scale;
                }
        }
        store_eight(a.weights + place, p);
        store_eight(a.d_scores + place, ds);
    }
}

/* One warp a row and head. */
__global__ void __launch_bounds__(THREADS)
    deltas(int64_t count, int head_dim, const uint16_t *o, const uint16_t *d_o, float *delta)
{
    int64_t at = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
    float sum = 0;
    if (at >= count)
        return;
    for (int i = static_cast<int>(threadIdx.x % WARP); i < head_dim; i += WARP)
        sum += bf16_to_float(o[at * head_dim + i]) * bf16_to_float(d_o[at * head_dim + i]);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        delta[at] = sum;
}

} // namespace

cudaError_t kernel_attention_block(cudaStream_t stream, const struct kernel_attention_block_args *a)
{
    if (a->queries == 0 || a->keys == 0)
        return cudaSuccess;
    between<<<static_cast<unsigned>(a->queries), THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}

cudaError_t kernel_attention_delta(cudaStream_t stream, int64_t rows, int heads, int head_dim,
                                   const uint16_t *o, const uint16_t *d_o, float *delta)
{
    int64_t count = rows * heads;
    if (count == 0)
        return cudaSuccess;
    deltas<<<static_cast<unsigned>((count + WARPS - 1) / WARPS), THREADS, 0, stream>>>(
        count, head_dim, o, d_o, delta);
    return cudaGetLastError();
}
