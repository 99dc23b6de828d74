/* The inputs of the delta rule, one warp per token and head, any sizes: a causal convolution, SiLU,
 * queries and keys of length 1. Backward a token's gradient is gathered from the tokens that its
 * convolution reaches, each of which is computed anew. Rows at the ends of runs. */
#include "executor/backend/cuda/delta_input.cuh"

namespace
{

constexpr int THREADS = 128, WARPS = THREADS / WARP, VALUES = KERNEL_DELTA_WIDE / WARP;

using args = kernel_delta_input_args;

/* A warp's row of values; element lane + 32 j is value j of a lane. */
using values = float[VALUES];

__device__ __forceinline__ int element(int j)
{
    return j * WARP + static_cast<int>(threadIdx.x % WARP);
}

/* The argument of SiLU. */
__device__ __forceinline__ void convolve(const args &a, const piece &p, int run, int64_t t,
                                         values &pre)
{
    const uint16_t *conv = a.conv[p.kind] + p.first * a.width;
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        pre[j] = 0.0F;
    for (int tap = 0; tap < a.width; tap++) {
        const uint16_t *x = token_of(a, p, run, t - a.width + 1 + tap);
        if (!x)
            continue;
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            if (element(j) < p.width)
                pre[j] +=
                    bf16_to_float(x[element(j)]) * bf16_to_float(conv[element(j) * a.width + tap]);
    }
}

__device__ __forceinline__ float inverse_length(const piece &p, const values &act)
{
    float sum = 0.0F;
    if (p.kind == 2)
        return 1.0F;
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        sum += act[j] * act[j];
    return rsqrtf(warp_sum(sum) + LENGTH_EPSILON);
}

__device__ __forceinline__ void activate(const values &pre, values &act)
{
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        act[j] = pre[j] * sigmoid_of(pre[j]);
}

__device__ __forceinline__ int piece_count(const args &a)
{
    return 2 * a.key_heads + a.value_heads;
}

/* Row and piece of this warp; false beyond the last. */
__device__ __forceinline__ bool find_row(const args &a, int64_t rows, int64_t &row, piece &p)
{
    int64_t warp = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
    row = warp / piece_count(a);
    p = piece_of(a, static_cast<int>(warp % piece_count(a)));
    return row < rows;
}

__global__ void __launch_bounds__(THREADS) input(const __grid_constant__ args a)
{
    int64_t row;
    piece p;
    values pre, act;
    if (!find_row(a, a.runs * a.tokens, row, p))
        return;
    convolve(a, p, static_cast<int>(row / a.tokens), row % a.tokens, pre);
    activate(pre, act);
    float scale = inverse_length(p, act);
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        if (element(j) < p.width)
            a.qkv[row * channels_of(a) + p.channel + element(j)] = bf16_from_float(act[j] * scale);
}

/* The gradient of the argument of SiLU: y = act / |act|, act = silu(pre). */
__device__ __forceinline__ void gradient_of(const args &a, const piece &p, int run, int64_t t,
                                            values &d_pre)
{
    const uint16_t *dy = a.d_qkv + (run * a.tokens + t) * channels_of(a) + p.channel;
    values pre, act;
    float along = 0.0F;
    convolve(a, p, run, t, pre);
    activate(pre, act);
    float inverse = inverse_length(p, act);
#pragma unroll
    for (int j = 0; j < VALUES; j++) {
        d_pre[j] = element(j) < p.width ? bf16_to_float(dy[element(j)]) : 0.0F;
        along += d_pre[j] * act[j];
    }
    along = p.kind == 2 ? 0.0F : warp_sum(along) * inverse * inverse;
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        d_pre[j] = inverse * (d_pre[j] - act[j] * along) * silu_slope(pre[j]);
}

/* Of token t, which lies in the halo below 0. */
__device__ __forceinline__ void token_backward(const args &a, const piece &p, int run, int64_t t)
{
    const uint16_t *conv = a.conv[p.kind] + p.first * a.width;
    values d_pre, d_x = {};
    for (int tap = 0; tap < a.width; tap++) {
        int64_t to = t + a.width - 1 - tap;
        if (to < 0 || to >= a.tokens)
            continue;
        gradient_of(a, p, run, to, d_pre);
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            if (element(j) < p.width)
                d_x[j] += d_pre[j] * bf16_to_float(conv[element(j) * a.width + tap]);
    }
    int64_t before = static_cast<int64_t>(run) * (a.width - 1) + a.width - 1 + t;
#pragma unroll
    for (int j = 0; j < VALUES; j++) {
        if (element(j) >= p.width)
            break;
        if (t >= 0)
            a.d_p[(run * a.tokens + t) * a.p_stride + p.column + element(j)] =
                bf16_from_float(d_x[j]);
        else
            a.d_halo[before * channels_of(a) + p.channel + element(j)] = d_x[j];
    }
}

/* Rows of the halo first, where its gradient is wanted. */
__global__ void __launch_bounds__(THREADS) input_backward(const __grid_constant__ args a)
{
    int halo = a.d_halo ? a.width - 1 : 0;
    int64_t row, length = a.tokens + halo;
    piece p;
    if (find_row(a, a.runs * length, row, p))
        token_backward(a, p, static_cast<int>(row / length), row % length - halo);
}

/* Of the convolution's weights, a warp a piece and range of tokens. */
__global__ void __launch_bounds__(WARP) weights_backward(const __grid_constant__ args a)
{
    __shared__ float sums[KERNEL_DELTA_WIDE * KERNEL_CONV_MAX];
    const piece p = piece_of(a, static_cast<int>(blockIdx.x));
    const ranges n = ranges_of(a, 1);
    int count = p.width * a.width;
    values d_pre;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += WARP)
        sums[i] = 0.0F;
    __syncwarp();
    for (int64_t range = blockIdx.y; range < n.each * a.runs; range += gridDim.y) {
        int run = static_cast<int>(range / n.each);
        int64_t first = range % n.each * n.tokens, end = first + n.tokens;
        for (int64_t t = first; t < end && t < a.tokens; t++) {
            gradient_of(a, p, run, t, d_pre);
            for (int tap = 0; tap < a.width; tap++) {
                const uint16_t *x = token_of(a, p, run, t - a.width + 1 + tap);
#pragma unroll
                for (int j = 0; j < VALUES; j++)
                    if (x && element(j) < p.width)
                        sums[element(j) * a.width + tap] += d_pre[j] * bf16_to_float(x[element(j)]);
            }
        }
    }
    float *to = a.partial + (blockIdx.y * channels_of(a) + p.channel) * a.width;
    __syncwarp();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += WARP)
        to[i] = sums[i];
}

/* Where row `row` of the tails is in p. */
__device__ __forceinline__ int64_t tail_row(const args &a, int64_t row)
{
    int64_t rows = a.width - 1;
    return (row / rows + 1) * a.tokens - rows + row % rows;
}

__global__ void __launch_bounds__(THREADS)
    tails(const __grid_constant__ args a, uint16_t *to, const float *gradient)
{
    int64_t row;
    piece p;
    if (!find_row(a, static_cast<int64_t>(a.runs) * (a.width - 1), row, p))
        return;
    int64_t at = tail_row(a, row) * a.p_stride + p.column;
    int64_t dense = row * channels_of(a) + p.channel;
    for (int i = element(0); i < p.width; i += WARP) {
        if (to)
            to[dense + i] = a.p[at + i];
        else
            add_typed(a.d_p, false, at + i, gradient[dense + i]);
    }
}

unsigned grid_of(const args *a, int64_t rows)
{
    int64_t warps = rows * (2 * a->key_heads + a->value_heads);
    return static_cast<unsigned>((warps + WARPS - 1) / WARPS);
}

} // namespace

cudaError_t kernel_delta_input(cudaStream_t stream, const struct kernel_delta_input_args *a)
{
    input<<<grid_of(a, a->runs * a->tokens), THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}

cudaError_t kernel_delta_input_backward(cudaStream_t stream,
                                        const struct kernel_delta_input_args *a)
{
    int64_t length = a->tokens + (a->d_halo ? a->width - 1 : 0);
    input_backward<<<grid_of(a, a->runs * length), THREADS, 0, stream>>>(*a);
    dim3 grid(static_cast<unsigned>(2 * a->key_heads + a->value_heads),
              static_cast<unsigned>(a->blocks));
    weights_backward<<<grid, WARP, 0, stream>>>(*a);
    return cudaGetLastError();
}

cudaError_t kernel_delta_tails(cudaStream_t stream, const struct kernel_delta_input_args *a,
                               uint16_t *to)
{
    if (a->width > 1)
        tails<<<grid_of(a, static_cast<int64_t>(a->runs) * (a->width - 1)), THREADS, 0, stream>>>(
            *a, to, nullptr);
    return cudaGetLastError();
}

cudaError_t kernel_delta_tails_backward(cudaStream_t stream,
                                        const struct kernel_delta_input_args *a,
                                        const float *d_tails)
{
    if (a->width > 1)
        tails<<<grid_of(a, static_cast<int64_t>(a->runs) * (a->width - 1)), THREADS, 0, stream>>>(
            *a, nullptr, d_tails);
    return cudaGetLastError();
}
