/* Moving and summing whole rows by index: one warp a row, BATCH vectors of 16 bytes in flight in
 * each lane. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256, ROWS = THREADS / WARP, BATCH = 8, STRIDE = WARP * 8;

__device__ __forceinline__ int64_t row_of_warp()
{
    return static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / WARP;
}

__global__ void __launch_bounds__(THREADS)
    scatter_rows(int64_t rows, int times, int64_t width, const uint16_t *from, const int32_t *map,
                 uint16_t *to, const float *values, float *to_values)
{
    int64_t row = row_of_warp();
    int lane = static_cast<int>(threadIdx.x % WARP);
    if (row >= rows)
        return;
    const int32_t *slots = map + row * times;
    for (int64_t start = lane * 8; start < width; start += BATCH * STRIDE) {
        uint4 held[BATCH];
#pragma unroll
        for (int v = 0; v < BATCH; v++)
            if (start + v * STRIDE < width)
                held[v] = load_vector(from + row * width + start + v * STRIDE);
        for (int j = 0; j < times; j++) {
            uint16_t *target = to + slots[j] * width + start;
#pragma unroll
            for (int v = 0; v < BATCH; v++)
                if (start + v * STRIDE < width)
                    store_passing(target + v * STRIDE, held[v]);
        }
    }
    for (int j = lane; values && j < times; j += WARP)
        to_values[slots[j]] = values[row * times + j];
}

__global__ void __launch_bounds__(THREADS)
    gather_rows(int64_t rows, int64_t width, const uint16_t *from, const int32_t *map, uint16_t *to,
                const float *values, float *to_values)
{
    int64_t row = row_of_warp();
    int lane = static_cast<int>(threadIdx.x % WARP);
    if (row >= rows)
        return;
    int64_t source = map[row];
    for (int64_t start = lane * 8; start < width; start += BATCH * STRIDE) {
        uint4 held[BATCH];
#pragma unroll
        for (int v = 0; v < BATCH; v++)
            if (start + v * STRIDE < width)
                held[v] = load_vector(from + source * width + start + v * STRIDE);
#pragma unroll
        for (int v = 0; v < BATCH; v++)
            if (start + v * STRIDE < width)
                store_vector(to + row * width + start + v * STRIDE, held[v]);
    }
    if (values && lane == 0)
        to_values[row] = values[source];
}

constexpr int SUM_BATCH = 4;

__device__ __forceinline__ void add_vector(const uint4 &from, float (&sums)[8])
{
    float value[8];
    unpack(from, value);
#pragma unroll
    for (int i = 0; i < 8; i++)
        sums[i] += value[i];
}

__global__ void __launch_bounds__(THREADS)
    combine_rows(int64_t rows, int times, int64_t width, const uint16_t *from, const int32_t *map,
                 const uint16_t *base, uint16_t *to, const float *values, float *to_values)
{
    int64_t row = row_of_warp();
    int lane = static_cast<int>(threadIdx.x % WARP);
    if (row >= rows)
        return;
    const int32_t *slots = map + row * times;
    for (int64_t start = lane * 8; start < width; start += SUM_BATCH * STRIDE) {
        float sums[SUM_BATCH][8] = {};
#pragma unroll
        for (int v = 0; v < SUM_BATCH; v++)
            if (base && start + v * STRIDE < width)
                unpack(load_vector(base + row * width + start + v * STRIDE), sums[v]);
#pragma unroll 2
        for (int j = 0; j < times; j++) {
            const uint16_t *source = from + slots[j] * width + start;
            uint4 held[SUM_BATCH];
#pragma unroll
            for (int v = 0; v < SUM_BATCH; v++)
                held[v] = start + v * STRIDE < width ? load_vector(source + v * STRIDE)
                                                     : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int v = 0; v < SUM_BATCH; v++)
                add_vector(held[v], sums[v]);
        }
#pragma unroll
        for (int v = 0; v < SUM_BATCH; v++)
            if (start + v * STRIDE < width)
                store_vector(to + row * width + start + v * STRIDE, pack(sums[v]));
    }
    for (int j = lane; values && j < times; j += WARP)
        to_values[row * times + j] = values[slots[j]];
}

unsigned blocks_of(int64_t rows)
{
    return static_cast<unsigned>((rows + ROWS - 1) / ROWS);
}

} // namespace

cudaError_t kernel_scatter_rows(cudaStream_t stream, int64_t rows, int times, int64_t width,
                                const uint16_t *from, const int32_t *map, uint16_t *to,
                                const float *values, float *to_values)
{
    if (rows == 0)
        return cudaSuccess;
    scatter_rows<<<blocks_of(rows), THREADS, 0, stream>>>(rows, times, width, from, map, to, values,
                                                          to_values);
    return cudaGetLastError();
}

cudaError_t kernel_gather_rows(cudaStream_t stream, int64_t rows, int64_t width,
                               const uint16_t *from, const int32_t *map, uint16_t *to,
                               const float *values, float *to_values)
{
    if (rows == 0)
        return cudaSuccess;
    gather_rows<<<blocks_of(rows), THREADS, 0, stream>>>(rows, width, from, map, to, values,
                                                         to_values);
    return cudaGetLastError();
}

cudaError_t kernel_combine_rows(cudaStream_t stream, int64_t rows, int times, int64_t width,
                                const uint16_t *from, const int32_t *map, const uint16_t *base,
                                uint16_t *to, const float *values, float *to_values)
{
    if (rows == 0)
        return cudaSuccess;
    combine_rows<<<blocks_of(rows), THREADS, 0, stream>>>(rows, times, width, from, map, base, to,
                                                          values, to_values);
    return cudaGetLastError();
}
