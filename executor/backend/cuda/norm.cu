/* RMS norm, forward and backward: one block a row, the row held in registers. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS_MAX = 256, THREADS_WIDE = 512;

/* A thread's share of a row: VECTORS times 8 elements, blockDim.x * 8 apart. */
template <int VECTORS>
__device__ __forceinline__ void load_row(const uint16_t *row, int64_t width, uint4 (&to)[VECTORS])
{
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        int64_t at = (static_cast<int64_t>(v) * blockDim.x + threadIdx.x) * 8;
        to[v] = at < width ? load_vector(row + at) : make_uint4(0, 0, 0, 0);
    }
}

template <int VECTORS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    norm(int64_t rows, int64_t width, float eps, float centre, const uint16_t *x, const uint16_t *w,
         uint16_t *y)
{
    __shared__ float room[2][WARP];
    uint4 weight[VECTORS];
    load_row(w, width, weight);
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        uint4 raw[VECTORS];
        load_row(x + row * width, width, raw);
        float sum = 0;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            float value[8];
            unpack(raw[v], value);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum += value[i] * value[i];
        }
        float inverse = 1.0F / sqrtf(block_sum(sum, room[turn]) / static_cast<float>(width) + eps);
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            float value[8], scale[8];
            int64_t at = (static_cast<int64_t>(v) * blockDim.x + threadIdx.x) * 8;
            unpack(raw[v], value);
            unpack(weight[v], scale);
#pragma unroll
            for (int i = 0; i < 8; i++)
                value[i] = value[i] * inverse * (centre + scale[i]);
            if (at < width)
                store_vector(y + row * width + at, pack(value));
        }
    }
}

/* Both sums of a row at once: x x and dy w x. */
__device__ __forceinline__ float2 block_sums(float2 value, float2 *room)
{
    value.x = warp_sum(value.x);
    value.y = warp_sum(value.y);
    if (threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = value;
    __syncthreads();
    float2 sum = make_float2(0, 0);
    for (unsigned i = 0; i < blockDim.x / WARP; i++) {
        sum.x += room[i].x;
        sum.y += room[i].y;
    }
    return sum;
}

/* With n = x / rms and g = dy w: dx = (g - n mean(g n)) / rms; the block's own sum of dy n goes to
 * partial[blockIdx.x]. */
template <int VECTORS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    norm_backward(int64_t rows, int64_t width, float eps, float centre, const uint16_t *dy,
                  const uint16_t *x, const uint16_t *w, uint16_t *dx, bool accumulate,
                  float *partial)
{
    __shared__ float2 room[2][WARP];
    constexpr bool kept = VECTORS < 4; /* else too many registers: read again, from cache */
    uint4 weight[VECTORS];
    float sums[VECTORS][8] = {};
    load_row(w, width, weight);
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        uint4 raw[VECTORS], from[VECTORS];
        if (!kept)
            load_row(w, width, weight);
        load_row(x + row * width, width, raw);
        load_row(dy + row * width, width, from);
        float2 sum = make_float2(0, 0);
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            float value[8], gradient[8], scale[8];
            unpack(raw[v], value);
            unpack(from[v], gradient);
            unpack(weight[v], scale);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sum.x += value[i] * value[i];
                sum.y += gradient[i] * (centre + scale[i]) * value[i];
            }
        }
        sum = block_sums(sum, room[turn]);
        float inverse = 1.0F / sqrtf(sum.x / static_cast<float>(width) + eps);
        if (!kept)
            load_row(w, width, weight);
        float mean = sum.y * inverse / static_cast<float>(width);
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            float value[8], gradient[8], scale[8], before[8] = {};
            int64_t at = (static_cast<int64_t>(v) * blockDim.x + threadIdx.x) * 8;
            unpack(raw[v], value);
            unpack(from[v], gradient);
            unpack(weight[v], scale);
            if (accumulate && at < width)
                unpack(load_vector(dx + row * width + at), before);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float normed = value[i] * inverse;
                sums[v][i] += gradient[i] * normed;
                value[i] =
                    before[i] + (gradient[i] * (centre + scale[i]) - normed * mean) * inverse;
            }
            if (at < width)
                store_vector(dx + row * width + at, pack(value));
        }
    }
    if (!partial)
        return;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        int64_t at = (static_cast<int64_t>(v) * blockDim.x + threadIdx.x) * 8;
        float4 *to = reinterpret_cast<float4 *>(partial + blockIdx.x * width + at);
        if (at < width) {
            to[0] = make_float4(sums[v][0], sums[v][1], sums[v][2], sums[v][3]);
            to[1] = make_float4(sums[v][4], sums[v][5], sums[v][6], sums[v][7]);
        }
    }
}

constexpr int COLUMNS = 32, SLICES = 16;

/* A column's partial sums, added slice by slice and then over the slices. */
__global__ void add_columns(int blocks, int64_t width, int64_t stride, const float *partial,
                            void *to, bool is_float)
{
    __shared__ float slices[SLICES][COLUMNS];
    int64_t column = static_cast<int64_t>(blockIdx.x) * COLUMNS + threadIdx.x;
    float sum = 0;
    for (int b = static_cast<int>(threadIdx.y); b < blocks && column < width; b += SLICES)
        sum += partial[b * stride + column];
    slices[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= width)
        return;
    for (int i = 1; i < SLICES; i++)
        sum += slices[i][threadIdx.x];
    add_typed(to, is_float, column, sum);
}

int threads_of(int64_t width)
{
    int64_t vectors = width / 8;
    int64_t threads = (vectors + WARP - 1) / WARP * WARP;
    int most = width <= 2 * THREADS_MAX * 8 ? THREADS_MAX : THREADS_WIDE;
    return static_cast<int>(threads < most ? threads : most);
}

} // namespace

cudaError_t kernel_rmsnorm(cudaStream_t stream, int64_t rows, int64_t width, float eps,
                           float centre, const uint16_t *x, const uint16_t *w, uint16_t *y)
{
    if (rows == 0)
        return cudaSuccess;
    int threads = threads_of(width);
    unsigned blocks = static_cast<unsigned>(rows < 1 << 16 ? rows : 1 << 16);
    if (width <= THREADS_MAX * 8)
        norm<1, THREADS_MAX><<<blocks, threads, 0, stream>>>(rows, width, eps, centre, x, w, y);
    else if (width <= 2 * THREADS_MAX * 8)
        norm<2, THREADS_MAX><<<blocks, threads, 0, stream>>>(rows, width, eps, centre, x, w, y);
    else
        norm<4, THREADS_WIDE><<<blocks, threads, 0, stream>>>(rows, width, eps, centre, x, w, y);
    return cudaGetLastError();
}

cudaError_t kernel_rmsnorm_backward(cudaStream_t stream, int64_t rows, int64_t width, float eps,
                                    float centre, const uint16_t *dy, const uint16_t *x,
                                    const uint16_t *w, uint16_t *dx, bool accumulate_dx, void *dw,
                                    bool is_float, float *partial, int blocks)
{
    if (rows == 0)
        return cudaSuccess;
    int threads = threads_of(width);
    int used = rows < blocks ? static_cast<int>(rows) : blocks;
    float *sums = dw ? partial : nullptr;
    if (width <= THREADS_MAX * 8)
        norm_backward<1, THREADS_MAX><<<used, threads, 0, stream>>>(rows, width, eps, centre, dy, x,
                                                                    w, dx, accumulate_dx, sums);
    else if (width <= 2 * THREADS_MAX * 8)
        norm_backward<2, THREADS_MAX><<<used, threads, 0, stream>>>(rows, width, eps, centre, dy, x,
                                                                    w, dx, accumulate_dx, sums);
    else
        norm_backward<4, THREADS_WIDE><<<used, threads, 0, stream>>>(rows, width, eps, centre, dy,
                                                                     x, w, dx, accumulate_dx, sums);
    cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess || !dw)
        return status;
    return kernel_add_columns(stream, used, width, width, partial, dw, is_float);
}

cudaError_t kernel_add_columns(cudaStream_t stream, int blocks, int64_t width, int64_t stride,
                               const float *partial, void *to, bool is_float)
{
    unsigned grid = static_cast<unsigned>((width + COLUMNS - 1) / COLUMNS);
    add_columns<<<grid, dim3(COLUMNS, SLICES), 0, stream>>>(blocks, width, stride, partial, to,
                                                            is_float);
    return cudaGetLastError();
}
