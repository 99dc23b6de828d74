/* Rows with their own distances: rounding, biases, the output gate. One warp a row. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256, ROWS = THREADS / WARP, STEP = WARP * 8;

__device__ __forceinline__ int64_t row_of_warp()
{
    return static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / WARP;
}

__device__ __forceinline__ int64_t first_column()
{
    return threadIdx.x % WARP * 8;
}

__global__ void __launch_bounds__(THREADS)
    rows_to_bf16(int64_t rows, int64_t width, const float *from, int64_t from_stride, uint16_t *to,
                 int64_t to_stride)
{
    int64_t row = row_of_warp();
    if (row >= rows)
        return;
#pragma unroll 4
    for (int64_t at = first_column(); at < width; at += STEP) {
        float value[8];
        load_eight(from + row * from_stride + at, value);
        store_eight(to + row * to_stride + at, value);
    }
}

__global__ void __launch_bounds__(THREADS)
    add_rows(int64_t rows, int64_t width, const uint16_t *from, int64_t from_stride, float *to,
             int64_t to_stride)
{
    int64_t row = row_of_warp();
    if (row >= rows)
        return;
#pragma unroll 4
    for (int64_t at = first_column(); at < width; at += STEP) {
        float value[8], sum[8];
        load_eight(from + row * from_stride + at, value);
        load_eight(to + row * to_stride + at, sum);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum[i] += value[i];
        store_eight(to + row * to_stride + at, sum);
    }
}

__global__ void __launch_bounds__(THREADS)
    add_bias(int64_t rows, int64_t width, const uint16_t *bias, uint16_t *y, int64_t stride)
{
    int64_t row = row_of_warp();
    if (row >= rows)
        return;
    for (int64_t at = first_column(); at < width; at += STEP) {
        float value[8], add[8];
        load_eight(y + row * stride + at, value);
        load_eight(bias + at, add);
#pragma unroll
        for (int i = 0; i < 8; i++)
            value[i] += add[i];
        store_eight(y + row * stride + at, value);
    }
}

/* The sum of a block's rows goes to partial[blockIdx.y]; each warp takes every ROWS-th of them. */
__global__ void __launch_bounds__(THREADS)
    add_bias_backward(int64_t rows, int64_t width, const uint16_t *dy, int64_t stride,
                      float *partial)
{
    __shared__ float slices[ROWS][STEP];
    int warp = static_cast<int>(threadIdx.x) / WARP;
    int64_t column = static_cast<int64_t>(blockIdx.x) * STEP + first_column();
    float sums[8] = {};
    for (int64_t row = static_cast<int64_t>(blockIdx.y) * ROWS + warp; row < rows && column < width;
         row += static_cast<int64_t>(gridDim.y) * ROWS) {
        float value[8];
        load_eight(dy + row * stride + column, value);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sums[i] += value[i];
    }
    store_eight(&slices[warp][first_column()], sums);
    __syncthreads();
    if (warp > 0 || column >= width)
        return;
    for (int w = 1; w < ROWS; w++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            sums[i] += slices[w][first_column() + i];
    store_eight(partial + blockIdx.y * width + column, sums);
}

__device__ __forceinline__ float sigmoid_of(float x)
{
    return __fdividef(1.0F, 1.0F + __expf(-x));
}

using gate_args = kernel_gate_args;

__device__ __forceinline__ int64_t gate_offset(const gate_args &g, int64_t row, int64_t column)
{
    int at = static_cast<int>(column), head = at / g.head_dim;
    return row * g.row_stride + head * g.head_stride + at % g.head_dim;
}

__global__ void __launch_bounds__(THREADS) output_gate(const gate_args g)
{
    int64_t row = row_of_warp(), width = static_cast<int64_t>(g.heads) * g.head_dim;
    if (row >= g.rows)
        return;
    for (int64_t at = first_column(); at < width; at += STEP) {
        float o[8], gate[8];
        load_eight(g.o + row * width + at, o);
        load_eight(g.gate + gate_offset(g, row, at), gate);
#pragma unroll
        for (int i = 0; i < 8; i++)
            o[i] *= sigmoid_of(gate[i]);
        store_eight(g.og + row * width + at, o);
    }
}

/* With sigma = sigmoid(gate): do = dog sigma, dgate = dog o sigma (1 - sigma). */
__global__ void __launch_bounds__(THREADS) output_gate_backward(const gate_args g)
{
    int64_t row = row_of_warp(), width = static_cast<int64_t>(g.heads) * g.head_dim;
    if (row >= g.rows)
        return;
    for (int64_t at = first_column(); at < width; at += STEP) {
        float o[8], gate[8], d[8];
        int64_t offset = gate_offset(g, row, at);
        load_eight(g.o + row * width + at, o);
        load_eight(g.gate + offset, gate);
        load_eight(g.d_o + row * width + at, d);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float sigma = sigmoid_of(gate[i]);
            d[i] *= sigma;
            gate[i] = d[i] * o[i] * (1.0F - sigma);
        }
        store_eight(g.d_gate + offset, gate);
        store_eight(g.d_o + row * width + at, d);
    }
}

unsigned blocks_of(int64_t rows)
{
    return static_cast<unsigned>((rows + ROWS - 1) / ROWS);
}

} // namespace

cudaError_t kernel_rows_to_bf16(cudaStream_t stream, int64_t rows, int64_t width, const float *from,
                                int64_t from_stride, uint16_t *to, int64_t to_stride)
{
    if (rows == 0)
        return cudaSuccess;
    rows_to_bf16<<<blocks_of(rows), THREADS, 0, stream>>>(rows, width, from, from_stride, to,
                                                          to_stride);
    return cudaGetLastError();
}

cudaError_t kernel_add_rows(cudaStream_t stream, int64_t rows, int64_t width, const uint16_t *from,
                            int64_t from_stride, float *to, int64_t to_stride)
{
    if (rows == 0)
        return cudaSuccess;
    add_rows<<<blocks_of(rows), THREADS, 0, stream>>>(rows, width, from, from_stride, to,
                                                      to_stride);
    return cudaGetLastError();
}

cudaError_t kernel_add_bias(cudaStream_t stream, int64_t rows, int64_t width, const uint16_t *bias,
                            uint16_t *y, int64_t stride)
{
    if (rows == 0)
        return cudaSuccess;
    add_bias<<<blocks_of(rows), THREADS, 0, stream>>>(rows, width, bias, y, stride);
    return cudaGetLastError();
}

cudaError_t kernel_add_bias_backward(cudaStream_t stream, int64_t rows, int64_t width,
                                     const uint16_t *dy, int64_t stride, void *d_bias,
                                     bool is_float, float *partial, int blocks)
{
    if (rows == 0)
        return cudaSuccess;
    dim3 grid(static_cast<unsigned>((width + STEP - 1) / STEP), static_cast<unsigned>(blocks));
    add_bias_backward<<<grid, THREADS, 0, stream>>>(rows, width, dy, stride, partial);
    cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess)
        return status;
    return kernel_add_columns(stream, blocks, width, width, partial, d_bias, is_float);
}

cudaError_t kernel_output_gate(cudaStream_t stream, const struct kernel_gate_args *g)
{
    if (g->rows == 0)
        return cudaSuccess;
    output_gate<<<blocks_of(g->rows), THREADS, 0, stream>>>(*g);
    return cudaGetLastError();
}

cudaError_t kernel_output_gate_backward(cudaStream_t stream, const struct kernel_gate_args *g)
{
    if (g->rows == 0)
        return cudaSuccess;
    output_gate_backward<<<blocks_of(g->rows), THREADS, 0, stream>>>(*g);
    return cudaGetLastError();
}
