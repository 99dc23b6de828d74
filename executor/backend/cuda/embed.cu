/* The gradient of the embedding: rows of one token are summed in their order and added once. The
 * rows are entered into a table by their token first, so that each finds the others of its own;
 * where a token has more rows than a block can sort, its block looks through all. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256, ROWS = THREADS / WARP;

__device__ __forceinline__ void add_vector(const uint4 &from, float (&sums)[8])
{
    float value[8];
    unpack(from, value);
#pragma unroll
    for (int i = 0; i < 8; i++)
        sums[i] += value[i];
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

/* A table of tokens, open addressing. Key -1: nobody; where rows of a token are listed, in the
 * order in which they came. */
struct token_table {
    int32_t size; /* a power of two */
    int32_t *keys, *first, *counts, *filled, *starts, *places, *rows, *cursor;
};

__device__ __forceinline__ int32_t row_of_thread()
{
    return static_cast<int32_t>(blockIdx.x * THREADS + threadIdx.x);
}

/* Where each row's token stands; how many rows the token has, and its first. */
__global__ void __launch_bounds__(THREADS) enter(token_table t, int32_t rows, const int32_t *ids)
{
    int32_t row = row_of_thread();
    if (row >= rows)
        return;
    int32_t id = ids[row], mask = t.size - 1;
    int32_t place = static_cast<int32_t>((static_cast<uint32_t>(id) * 2654435761u) >> 7) & mask;
    for (;;) {
        int32_t there = atomicCAS(&t.keys[place], -1, id);
        if (there == -1 || there == id)
            break;
        place = (place + 1) & mask;
    }
    t.places[row] = place;
    atomicAdd(&t.counts[place], 1);
    atomicMin(&t.first[place], row);
}

/* Room in the list, taken by a token's first row. */
__global__ void __launch_bounds__(THREADS) reserve(token_table t, int32_t rows)
{
    int32_t row = row_of_thread();
    if (row < rows && t.first[t.places[row]] == row)
        t.starts[t.places[row]] = atomicAdd(t.cursor, t.counts[t.places[row]]);
}

__global__ void __launch_bounds__(THREADS) list(token_table t, int32_t rows)
{
    int32_t row = row_of_thread();
    if (row < rows)
        t.rows[t.starts[t.places[row]] + atomicAdd(&t.filled[t.places[row]], 1)] = row;
}

/* The token's listed rows in ascending order; at most THREADS. */
__device__ __forceinline__ void sort_rows(const int32_t *listed, int count, int64_t *found)
{
    __shared__ int32_t rows[THREADS];
    int i = static_cast<int>(threadIdx.x), before = 0;
    if (i < count)
        rows[i] = listed[i];
    __syncthreads();
    for (int j = 0; j < count && i < count; j++)
        before += rows[j] < rows[i];
    if (i < count)
        found[before] = rows[i];
    __syncthreads();
}

__device__ __forceinline__ void add_found(const int64_t *found, int count, int64_t width,
                                          int64_t column, const uint16_t *dy, float (&sums)[8])
{
    for (int i = 0; i < count && column < width; i++)
        add_vector(load_vector(dy + found[i] * width + column), sums);
}

/* All rows from `row` on, looked through in order. */
__device__ __forceinline__ void add_all(int64_t row, int64_t rows, const int32_t *ids,
                                        int64_t width, int64_t column, const uint16_t *dy,
                                        int64_t *found, float (&sums)[8])
{
    int32_t id = ids[row];
    for (int64_t at = row; at < rows; at += LOOKED * THREADS) {
        unsigned flags = equal_ids(ids, at, rows, id);
        if (!__syncthreads_or(static_cast<int>(flags)))
            continue;
        for (int u = 0; u < LOOKED; u++) {
            int count = list_equal(flags >> u & 1u, at + u * THREADS, found);
            add_found(found, count, width, column, dy, sums);
        }
    }
}

/* Eight elements of the table's row += sums. */
template <typename T> __device__ __forceinline__ void add_eight(T *to, const float (&sums)[8])
{
    float there[8];
    load_eight(to, there);
#pragma unroll
    for (int i = 0; i < 8; i++)
        there[i] += sums[i];
    store_eight(to, there);
}

/* The block of a token's first row; the others have nothing to do. */
__global__ void __launch_bounds__(THREADS)
    embed_backward(token_table t, int64_t rows, int64_t width, const int32_t *ids,
                   const uint16_t *dy, void *d_table, bool is_float)
{
    __shared__ int64_t found[THREADS];
    int32_t row = static_cast<int32_t>(blockIdx.x), place = t.places[row], id = ids[row];
    int count = t.counts[place];
    if (t.first[place] != row)
        return;
    if (count > 1 && count <= THREADS)
        sort_rows(t.rows + t.starts[place], count, found);
    for (int64_t start = 0; start < width; start += THREADS * 8) {
        int64_t column = start + threadIdx.x * 8;
        float sums[8] = {};
        if (count == 1 && column < width)
            add_vector(load_vector(dy + row * width + column), sums);
        else if (count <= THREADS)
            add_found(found, count, width, column, dy, sums);
        else
            add_all(row, rows, ids, width, column, dy, found, sums);
        if (column < width && is_float)
            add_eight(static_cast<float *>(d_table) + id * width + column, sums);
        else if (column < width)
            add_eight(static_cast<uint16_t *>(d_table) + id * width + column, sums);
    }
}

int32_t table_size(int64_t rows)
{
    int32_t size = 1;
    while (size < 2 * rows)
        size *= 2;
    return size;
}

/* keys and first need other starts than 0, so they come first. */
token_table table_of(int64_t rows, void *scratch)
{
    token_table t = {};
    t.size = table_size(rows);
    t.keys = static_cast<int32_t *>(scratch);
    t.first = t.keys + t.size;
    t.counts = t.first + t.size;
    t.filled = t.counts + t.size;
    t.cursor = t.filled + t.size;
    t.starts = t.cursor + 1;
    t.places = t.starts + t.size;
    t.rows = t.places + rows;
    return t;
}

} // namespace

uint64_t kernel_embed_backward_bytes(int64_t rows)
{
    return sizeof(int32_t) *
           (5 * static_cast<uint64_t>(table_size(rows)) + 1 + 2 * static_cast<uint64_t>(rows));
}

cudaError_t kernel_embed_backward(cudaStream_t stream, int64_t rows, int64_t width,
                                  const int32_t *ids, const uint16_t *dy, void *d_table,
                                  bool is_float, void *scratch)
{
    if (rows == 0)
        return cudaSuccess;
    token_table t = table_of(rows, scratch);
    size_t table = static_cast<size_t>(t.size) * sizeof(int32_t);
    int32_t count = static_cast<int32_t>(rows);
    unsigned blocks = static_cast<unsigned>((rows + THREADS - 1) / THREADS);
    cudaError_t status = cudaMemsetAsync(t.keys, 0xff, table, stream);
    if (status == cudaSuccess)
        status = cudaMemsetAsync(t.first, 0x7f, table, stream);
    if (status == cudaSuccess)
        status = cudaMemsetAsync(t.counts, 0, 2 * table + sizeof(int32_t), stream);
    if (status != cudaSuccess)
        return status;
    enter<<<blocks, THREADS, 0, stream>>>(t, count, ids);
    reserve<<<blocks, THREADS, 0, stream>>>(t, count);
    list<<<blocks, THREADS, 0, stream>>>(t, count);
    embed_backward<<<static_cast<unsigned>(rows), THREADS, 0, stream>>>(t, rows, width, ids, dy,
                                                                        d_table, is_float);
    return cudaGetLastError();
}
