/* delta.cuh - tiles of the delta rule's kernels: where a chunk's rows are, and how they come into
 * shared memory. */
#ifndef RANKFIT_EXECUTOR_BACKEND_CUDA_DELTA_CUH
#define RANKFIT_EXECUTOR_BACKEND_CUDA_DELTA_CUH

#include "executor/backend/cuda/kernels.h"
#include "executor/backend/cuda/mma.cuh"

constexpr int CHUNK = KERNEL_DELTA_CHUNK, DIM = KERNEL_DELTA_DIM, SQUARE = CHUNK * CHUNK;
constexpr int GATES = 4 * CHUNK; /* exp(c), E / exp(c), beta, c */
/* Elements between rows in shared memory, for load_matrices. */
constexpr int WIDE = DIM + 8, NARROW = CHUNK + 8;

static __device__ __forceinline__ int64_t delta_channels_of(const kernel_delta_args &a)
{
    return static_cast<int64_t>(2 * a.key_heads + a.value_heads) * DIM;
}

/* A chunk of a head among those of the segment. */
static __device__ __forceinline__ int64_t delta_cell(const kernel_delta_args &a, int run, int chunk,
                                                     int head)
{
    return (static_cast<int64_t>(run) * a.chunks + chunk) * a.value_heads + head;
}

/* The first row of a chunk; run: within the group. */
static __device__ __forceinline__ int64_t delta_row(const kernel_delta_args &a, int run, int chunk)
{
    return (a.run + run) * a.tokens + a.first + static_cast<int64_t>(chunk) * CHUNK;
}

/* Tokens that a chunk has. */
static __device__ __forceinline__ int delta_count(const kernel_delta_args &a, int chunk)
{
    int64_t left = a.tokens - a.first - static_cast<int64_t>(chunk) * CHUNK;
    return left < CHUNK ? static_cast<int>(left) : CHUNK;
}

/* ROWS rows of COLUMNS elements into `to`, by THREADS threads of which this is one; rows from
 * `count` on become zeros. */
template <int ROWS, int COLUMNS, int THREADS>
static __device__ __forceinline__ void copy_tile(int thread, uint16_t *to, int pitch,
                                                 const uint16_t *from, int64_t stride, int count)
{
    constexpr int EACH = COLUMNS / 8, STEP = THREADS / EACH;
    static_assert(THREADS % EACH == 0, "a thread's rows have one column");
    int first = thread / EACH, column = thread % EACH * 8;
    const uint16_t *at = from + first * stride + column;
    to += first * pitch + column;
#pragma unroll
    for (int row = first; row < ROWS; row += STEP, at += STEP * stride, to += STEP * pitch)
        copy_async(to, row < count ? at : from, row < count);
}

/* A chunk's gates, exp(c), E / exp(c), beta and c. */
static __device__ __forceinline__ void copy_gates(int thread, float *to, const kernel_delta_args &a,
                                                  int64_t cell)
{
    if (thread < GATES / 4)
        copy_async(to + thread * 4, a.gates + cell * GATES + thread * 4, true);
}

#endif
