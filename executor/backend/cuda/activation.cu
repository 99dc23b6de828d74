/* Weighted SwiGLU and sigmoid, forward and backward. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256, ROWS = THREADS / WARP, BATCH = 3;

__device__ __forceinline__ float sigmoid_of(float x)
{
    return __fdividef(1.0F, 1.0F + __expf(-x));
}

/* One warp a row, BATCH vectors of gate and up in flight in each lane. */
__global__ void __launch_bounds__(THREADS)
    swiglu(int64_t rows, int64_t width, const uint16_t *h, const float *row_weight, uint16_t *a)
{
    int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / WARP;
    if (row >= rows)
        return;
    const uint16_t *gates = h + row * 2 * width, *ups = gates + width;
    float weight = row_weight ? row_weight[row] : 1.0F;
    for (int64_t start = threadIdx.x % WARP * 8; start < width; start += BATCH * WARP * 8) {
        uint4 gate[BATCH], up[BATCH];
#pragma unroll
        for (int v = 0; v < BATCH; v++) {
            int64_t at = start + v * WARP * 8;
            if (at < width) {
                gate[v] = load_vector(gates + at);
                up[v] = load_vector(ups + at);
            }
        }
#pragma unroll
        for (int v = 0; v < BATCH; v++) {
            int64_t at = start + v * WARP * 8;
            if (at >= width)
                break;
            float g[8], u[8];
            unpack(gate[v], g);
            unpack(up[v], u);
#pragma unroll
            for (int i = 0; i < 8; i++)
                g[i] = weight * (g[i] * sigmoid_of(g[i]) * u[i]);
            store_vector(a + row * width + at, pack(g));
        }
    }
}

/* silu(g) = g sigma(g), silu'(g) = sigma (1 + g (1 - sigma)); gate and up become their gradients.
 * Returns the sum of da silu(g) u over the eight. */
__device__ __forceinline__ float differentiate(float weight, const uint4 &from, uint4 &gate,
                                               uint4 &up)
{
    float g[8], u[8], d[8], sum = 0;
    unpack(gate, g);
    unpack(up, u);
    unpack(from, d);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float sigma = sigmoid_of(g[i]), silu = g[i] * sigma;
        sum += d[i] * (silu * u[i]);
        g[i] = weight * d[i] * u[i] * (sigma * (1.0F + g[i] * (1.0F - sigma)));
        u[i] = weight * d[i] * silu;
    }
    gate = pack(g);
    up = pack(u);
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    swiglu_backward(int64_t rows, int64_t width, const uint16_t *da, const float *row_weight,
                    uint16_t *h, float *d_row_weight)
{
    int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / WARP;
    if (row >= rows)
        return;
    uint16_t *gates = h + row * 2 * width, *ups = gates + width;
    float weight = row_weight ? row_weight[row] : 1.0F, sum = 0;
    for (int64_t start = threadIdx.x % WARP * 8; start < width; start += BATCH * WARP * 8) {
        uint4 gate[BATCH], up[BATCH], from[BATCH];
#pragma unroll
        for (int v = 0; v < BATCH; v++) {
            int64_t at = start + v * WARP * 8;
            if (at < width) {
                gate[v] = load_vector(gates + at);
                up[v] = load_vector(ups + at);
                from[v] = load_vector(da + row * width + at);
            }
        }
#pragma unroll
        for (int v = 0; v < BATCH; v++) {
            int64_t at = start + v * WARP * 8;
            if (at >= width)
                break;
            sum += differentiate(weight, from[v], gate[v], up[v]);
            store_vector(gates + at, gate[v]);
            store_vector(ups + at, up[v]);
        }
    }
    sum = warp_sum(sum);
    if (d_row_weight && threadIdx.x % WARP == 0)
        d_row_weight[row] = sum;
}

__global__ void sigmoid(int64_t count, float *values)
{
    int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count)
        values[i] = 1.0F / (1.0F + expf(-values[i]));
}

__global__ void sigmoid_backward(int64_t count, const float *values, float *d_values)
{
    int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count)
        d_values[i] *= values[i] * (1.0F - values[i]);
}

unsigned blocks_of(int64_t count, int64_t each)
{
    return static_cast<unsigned>((count + each - 1) / each);
}

} // namespace

cudaError_t kernel_swiglu(cudaStream_t stream, int64_t rows, int64_t width, const uint16_t *h,
                          const float *row_weight, uint16_t *a)
{
    if (rows == 0)
        return cudaSuccess;
    swiglu<<<blocks_of(rows, ROWS), THREADS, 0, stream>>>(rows, width, h, row_weight, a);
    return cudaGetLastError();
}

cudaError_t kernel_swiglu_backward(cudaStream_t stream, int64_t rows, int64_t width,
                                   const uint16_t *da, const float *row_weight, uint16_t *h,
                                   float *d_row_weight)
{
    if (rows == 0)
        return cudaSuccess;
    swiglu_backward<<<blocks_of(rows, ROWS), THREADS, 0, stream>>>(rows, width, da, row_weight, h,
                                                                   d_row_weight);
    return cudaGetLastError();
}

cudaError_t kernel_sigmoid(cudaStream_t stream, int64_t count, float *values)
{
    if (count == 0)
        return cudaSuccess;
    sigmoid<<<blocks_of(count, THREADS), THREADS, 0, stream>>>(count, values);
    return cudaGetLastError();
}

cudaError_t kernel_sigmoid_backward(cudaStream_t stream, int64_t count, const float *values,
                                    float *d_values)
{
    if (count == 0)
        return cudaSuccess;
    sigmoid_backward<<<blocks_of(count, THREADS), THREADS, 0, stream>>>(count, values, d_values);
    return cudaGetLastError();
}
