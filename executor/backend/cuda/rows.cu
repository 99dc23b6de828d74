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
                    store_vector(target + v * STRIDE, held[v]);
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

/* Ids looked at by a thread before its block meets, THREADS apart. */
constexpr int LOOKED = 8;

/* Bit u: the id at first + u * THREADS + thread, if below last, is `id`. */
__device__ __forceinline__ unsigned equal_ids(const int32_t *ids, int64_t first, int64_t last,
                                              int32_t id)
{
    unsigned flags = 0;
#pragma unroll
    for (int u = 0; u < LOOKED; u++) {
        int64_t at = first + u * THREADS + threadIdx.x;
        flags |= at < last && ids[at] == id ? 1u << u : 0u;
    }
    return flags;
}

/* Lists, in order, first + thread of the threads whose `equal` holds; returns how many. */
__device__ int list_equal(bool equal, int64_t first, int64_t *found)
{
    __shared__ int counts[ROWS];
    int warp = static_cast<int>(threadIdx.x) / WARP, lane = static_cast<int>(threadIdx.x) % WARP;
    unsigned mask = __ballot_sync(EVERY_LANE, equal);
    __syncthreads();
    if (lane == 0)
        counts[warp] = __popc(mask);
    __syncthreads();
    int before = 0, total = 0;
    for (int w = 0; w < ROWS; w++) {
        before += w < warp ? counts[w] : 0;
        total += counts[w];
    }
    if (equal)
        found[before + __popc(mask & ((1u << lane) - 1u))] = first + threadIdx.x;
    __syncthreads();
    return total;
}

/* The block of a token's first row finds the token's other rows in order and sums them; blocks of
 * later rows have nothing to do. */
__global__ void __launch_bounds__(THREADS)
    embed_backward(int64_t rows, int64_t width, const int32_t *ids, const uint16_t *dy,
                   void *d_table, bool is_float)
{
    __shared__ int64_t found[THREADS];
    constexpr int64_t step = LOOKED * THREADS;
    int64_t row = blockIdx.x;
    int32_t id = ids[row];
    for (int64_t at = 0; at < row; at += step)
        if (__syncthreads_or(static_cast<int>(equal_ids(ids, at, row, id))))
            return;
    for (int64_t start = 0; start < width; start += THREADS * 8) {
        int64_t column = start + threadIdx.x * 8;
        float sums[8] = {};
        for (int64_t at = row; at < rows; at += step) {
            unsigned flags = equal_ids(ids, at, rows, id);
            if (!__syncthreads_or(static_cast<int>(flags)))
                continue;
            for (int u = 0; u < LOOKED; u++) {
                int count = list_equal(flags >> u & 1u, at + u * THREADS, found);
                for (int i = 0; i < count && column < width; i++)
                    add_vector(load_vector(dy + found[i] * width + column), sums);
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (column < width)
                add_typed(d_table, is_float, id * width + column + i, sums[i]);
    }
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

cudaError_t kernel_embed_backward(cudaStream_t stream, int64_t rows, int64_t width,
                                  const int32_t *ids, const uint16_t *dy, void *d_table,
                                  bool is_float)
{
    if (rows == 0)
        return cudaSuccess;
    embed_backward<<<static_cast<unsigned>(rows), THREADS, 0, stream>>>(rows, width, ids, dy,
                                                                        d_table, is_float);
    return cudaGetLastError();
}
