/* RMS norm, forward and backward, rows held in registers. Forward, a warp a row where a lane can
 * hold its share, else a block; backward, blocks that walk over rows and have the next one under
 * way. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS_MAX = 256, THREADS_WIDE = 512, WARPS = THREADS_MAX / WARP;

/* Where vector v of a row begins for one of `threads` that share it. */
__device__ __forceinline__ int64_t column_of(int v, unsigned thread, unsigned threads)
{
    return (static_cast<int64_t>(v) * threads + thread) * 8;
}

template <int VECTORS>
__device__ __forceinline__ void load_row(const uint16_t *row, int64_t width, unsigned thread,
                                         unsigned threads, uint4 (&to)[VECTORS])
{
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        int64_t at = column_of(v, thread, threads);
        to[v] = at < width ? load_vector(row + at) : make_uint4(0, 0, 0, 0);
    }
}

template <int VECTORS> __device__ __forceinline__ float squares(const uint4 (&row)[VECTORS])
{
    float sum = 0;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        float value[8];
        unpack(row[v], value);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum += value[i] * value[i];
    }
    return sum;
}

__device__ __forceinline__ uint4 scaled(const uint4 &row, const uint4 &weight, float inverse,
                                        float centre)
{
    float value[8], scale[8];
    unpack(row, value);
    unpack(weight, scale);
#pragma unroll
    for (int i = 0; i < 8; i++)
        value[i] = value[i] * inverse * (centre + scale[i]);
    return pack(value);
}

/* One warp a row. */
template <int VECTORS>
__global__ void __launch_bounds__(THREADS_MAX)
    norm_by_warps(int64_t rows, int64_t width, float eps, float centre, const uint16_t *x,
                  const uint16_t *w, uint16_t *y)
{
    int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
    unsigned lane = threadIdx.x % WARP;
    uint4 raw[VECTORS];
    if (row >= rows)
        return;
    load_row(x + row * width, width, lane, WARP, raw);
    float inverse = 1.0F / sqrtf(warp_sum(squares(raw)) / static_cast<float>(width) + eps);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        int64_t at = column_of(v, lane, WARP);
        if (at < width)
            store_vector(y + row * width + at,
                         scaled(raw[v], load_vector(w + at), inverse, centre));
    }
}

template <int VECTORS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    norm(int64_t rows, int64_t width, float eps, float centre, const uint16_t *x, const uint16_t *w,
         uint16_t *y)
{
    __shared__ float room[2][WARP];
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        uint4 raw[VECTORS];
        load_row(x + row * width, width, threadIdx.x, blockDim.x, raw);
        float sum = block_sum(squares(raw), room[turn]);
        float inverse = 1.0F / sqrtf(sum / static_cast<float>(width) + eps);
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            int64_t at = column_of(v, threadIdx.x, blockDim.x);
            if (at < width)
                store_vector(y + row * width + at,
                             scaled(raw[v], load_vector(w + at), inverse, centre));
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

/* Of a norm's backward, what does not change from row to row. */
struct norm_back {
    int64_t rows, width;
    float eps, centre;
    const uint16_t *dy, *x, *w;
    uint16_t *dx;
    bool accumulate;
    float *partial;
};

/* A thread's share of one row: x, dy, and dx as it is before. */
template <int VECTORS> struct share {
    uint4 x[VECTORS], dy[VECTORS], before[VECTORS];
};

template <int VECTORS>
__device__ __forceinline__ void load_share(const norm_back &n, int64_t row, share<VECTORS> &to)
{
    if (row >= n.rows)
        return;
    load_row(n.x + row * n.width, n.width, threadIdx.x, blockDim.x, to.x);
    load_row(n.dy + row * n.width, n.width, threadIdx.x, blockDim.x, to.dy);
    if (n.accumulate)
        load_row(n.dx + row * n.width, n.width, threadIdx.x, blockDim.x, to.before);
}

/* Read again for every row, from cache: registers are for what comes from memory. */
__device__ __forceinline__ uint4 weight_at(const norm_back &n, int64_t column)
{
    return column < n.width ? load_vector(n.w + column) : make_uint4(0, 0, 0, 0);
}

template <int VECTORS>
__device__ __forceinline__ float2 sums_of(const norm_back &n, const share<VECTORS> &row)
{
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        float value[8], gradient[8], scale[8];
        unpack(row.x[v], value);
        unpack(row.dy[v], gradient);
        unpack(weight_at(n, column_of(v, threadIdx.x, blockDim.x)), scale);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum.x += value[i] * value[i];
            sum.y += gradient[i] * (n.centre + scale[i]) * value[i];
        }
    }
    return sum;
}

/* With n = x / rms and g = dy w: dx = (g - n mean(g n)) / rms; dy n goes to sums. */
__device__ __forceinline__ uint4 differentiate(const norm_back &n, const uint4 &x, const uint4 &dy,
                                               const uint4 &weight, const uint4 &before, float2 sum,
                                               float (&sums)[8])
{
    float value[8], gradient[8], scale[8], kept[8] = {};
    float inverse = 1.0F / sqrtf(sum.x / static_cast<float>(n.width) + n.eps);
    float mean = sum.y * inverse / static_cast<float>(n.width);
    unpack(x, value);
    unpack(dy, gradient);
    unpack(weight, scale);
    if (n.accumulate)
        unpack(before, kept);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float normed = value[i] * inverse;
        sums[i] += gradient[i] * normed;
        value[i] = kept[i] + (gradient[i] * (n.centre + scale[i]) - normed * mean) * inverse;
    }
    return pack(value);
}

template <int VECTORS>
__device__ __forceinline__ void leave_sums(const norm_back &n, const float (&sums)[VECTORS][8])
{
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        int64_t at = column_of(v, threadIdx.x, blockDim.x);
        if (at < n.width)
            store_eight(n.partial + blockIdx.x * n.width + at, sums[v]);
    }
}

/* The block's own sum of dy n goes to partial[blockIdx.x]. Where a share is small the next row's is
 * loaded while this one's sums are made. */
template <int VECTORS, int THREADS>
__global__ void __launch_bounds__(THREADS, VECTORS == 1 ? 4 : 1)
    norm_backward(const __grid_constant__ norm_back n)
{
    __shared__ float2 room[2][WARP];
    constexpr bool ahead = VECTORS < 4;
    share<VECTORS> row = {}, next = {};
    float sums[VECTORS][8] = {};
    int turn = 0;
    if (ahead)
        load_share(n, blockIdx.x, next);
    for (int64_t at = blockIdx.x; at < n.rows; at += gridDim.x, turn ^= 1) {
        if (!ahead)
            load_share(n, at, next);
        row = next;
        if (ahead)
            load_share(n, at + gridDim.x, next);
        float2 sum = block_sums(sums_of(n, row), room[turn]);
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            int64_t column = column_of(v, threadIdx.x, blockDim.x);
            uint4 dx = differentiate(n, row.x[v], row.dy[v], weight_at(n, column), row.before[v],
                                     sum, sums[v]);
            if (column < n.width)
                store_vector(n.dx + at * n.width + column, dx);
        }
    }
    if (n.partial)
        leave_sums(n, sums);
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
    unsigned by_warps = static_cast<unsigned>((rows + WARPS - 1) / WARPS);
    if (width <= 4 * WARP * 8)
        norm_by_warps<4><<<by_warps, THREADS_MAX, 0, stream>>>(rows, width, eps, centre, x, w, y);
    else if (width <= 8 * WARP * 8)
        norm_by_warps<8><<<by_warps, THREADS_MAX, 0, stream>>>(rows, width, eps, centre, x, w, y);
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
    const norm_back n = { rows, width, eps, centre,        dy,
                          x,    w,     dx,  accumulate_dx, dw ? partial : nullptr };
    if (width <= THREADS_MAX * 8)
        norm_backward<1, THREADS_MAX><<<used, threads, 0, stream>>>(n);
    else if (width <= 2 * THREADS_MAX * 8)
        norm_backward<2, THREADS_MAX><<<used, threads, 0, stream>>>(n);
    else
        norm_backward<4, THREADS_WIDE><<<used, threads, 0, stream>>>(n);
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
