/* delta_chain.cuh - the parts that both directions of the delta rule's chain share. A block has
 * some value columns of a head's state for all chunks of a segment: WARPS warps of sixteen columns
 * each, which hold them transposed in registers, S^T [16 values, 128 keys] in eight pairs of tiles
 * (values of a chunk too, x^T [16 values, 64 tokens] in four pairs), and COPIERS warps that bring
 * the tiles of chunks to come. All wait for each other at each chunk. */
#ifndef RANKFIT_EXECUTOR_BACKEND_CUDA_DELTA_CHAIN_CUH
#define RANKFIT_EXECUTOR_BACKEND_CUDA_DELTA_CHAIN_CUH

#include "executor/backend/cuda/delta.cuh"

namespace
{

constexpr int COPIERS = 4, COPYING = COPIERS * WARP, STAGES = 3;
constexpr float SCALE = 0.08838834764831845F; /* 1 / sqrt(128) */

template <int WARPS> struct block {
    static constexpr int columns = 16 * WARPS, pitch = columns + 8;
    static constexpr int threads = (WARPS + COPIERS) * WARP;
};

/* A block's value head and its key head, its run, its first value column, and whether its values
 * are zeros: blocks behind those of the values have the columns of the transition. */
struct block_place {
    int head, key_head, run, first;
    bool zeros;
};

template <int WARPS> __device__ __forceinline__ block_place find_block(const kernel_delta_args &a)
{
    int first = static_cast<int>(blockIdx.x) * block<WARPS>::columns;
    block_place at;
    at.head = static_cast<int>(blockIdx.y);
    at.key_head = at.head / (a.value_heads / a.key_heads);
    at.run = static_cast<int>(blockIdx.z);
    at.zeros = first >= DIM;
    at.first = at.zeros ? first - DIM : first;
    return at;
}

template <int PAIRS> __device__ __forceinline__ void clear(float (&x)[PAIRS][2][4])
{
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[i][j / 4][j % 4] = 0.0F;
}

template <int PAIRS>
__device__ __forceinline__ void scale_state(float (&x)[PAIRS][2][4], float factor)
{
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[i][j / 4][j % 4] *= factor;
}

template <int PAIRS>
__device__ __forceinline__ void round_tiles(fragment (&to)[PAIRS], const float (&x)[PAIRS][2][4])
{
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
        pack_tiles(to[i], x[i]);
}

/* to[8 tiles of 8 tokens] = S^T m^T for rows m [token][key]. */
__device__ __forceinline__ void through_state(const fragment (&state)[8], const uint16_t *m,
                                              float (&to)[4][2][4])
{
    clear(to);
#pragma unroll
    for (int inner = 0; inner < 8; inner++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            fragment b;
            load_b(b, m, WIDE, i * 16, inner * 16);
            multiply_pair(to[i], state[inner], b);
        }
}

/* to += x m^T, m [token][token] lower triangular: tile i of 16 tokens sees those up to itself. */
__device__ __forceinline__ void through_triangle(const fragment (&x)[4], const uint16_t *m,
                                                 float (&to)[4][2][4])
{
#pragma unroll
    for (int inner = 0; inner < 4; inner++)
#pragma unroll
        for (int i = inner; i < 4; i++) {
            fragment b;
            load_b(b, m, NARROW, i * 16, inner * 16);
            multiply_pair(to[i], x[inner], b);
        }
}

/* The gate of the two tokens of a lane's accumulator: tile of 8 tokens, first or second. */
__device__ __forceinline__ float2 gate_of(const float *gates, int tile)
{
    int lane = static_cast<int>(threadIdx.x % WARP);
    return *reinterpret_cast<const float2 *>(gates + tile * 8 + lane % 4 * 2);
}

__device__ __forceinline__ void scale_tokens(const float *gates, float factor, float (&x)[4][2][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float2 g = gate_of(gates, 2 * i + j);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                x[i][j][2 * half] *= factor * g.x;
                x[i][j][2 * half + 1] *= factor * g.y;
            }
        }
}

/* Rows of x^T by way of tile [token][column], whose columns of this warp nothing reads any more,
 * and from there out, a token's sixteen columns at a time. */
__device__ __forceinline__ void store_rows(uint16_t *tile, int pitch, int column,
                                           const float (&x)[4][2][4], uint16_t *to, int64_t stride,
                                           int count)
{
    int lane = static_cast<int>(threadIdx.x % WARP);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                tile[(i * 16 + j * 8 + lane % 4 * 2 + e % 2) * pitch + column + lane / 4 +
                     e / 2 * 8] = bf16_from_float(x[i][j][e]);
    __syncwarp();
#pragma unroll
    for (int i = lane; i < CHUNK * 2; i += WARP) {
        int token = i / 2, at = column + i % 2 * 8;
        if (token < count)
            store_vector(to + token * stride + at, load_vector(tile + token * pitch + at));
    }
}

/* A warp's S^T, rounded, [value][key], by way of sixteen rows of shared memory of its own. */
__device__ __forceinline__ void store_state(uint16_t *rows, const fragment (&state)[8],
                                            uint16_t *to)
{
    int lane = static_cast<int>(threadIdx.x % WARP);
    __syncwarp();
#pragma unroll
    for (int inner = 0; inner < 8; inner++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            *reinterpret_cast<uint32_t *>(rows + (lane / 4 + e % 2 * 8) * WIDE + inner * 16 +
                                          e / 2 * 8 + lane % 4 * 2) = state[inner].r[e];
    __syncwarp();
#pragma unroll
    for (int i = lane; i < 16 * (DIM / 8); i += WARP)
        store_vector(to + i / (DIM / 8) * DIM + i % (DIM / 8) * 8,
                     load_vector(rows + i / (DIM / 8) * WIDE + i % (DIM / 8) * 8));
}

/* S^T += x^T k for x^T [16, tokens]. */
__device__ __forceinline__ void into_state(const fragment (&x)[4], const uint16_t *k,
                                           float (&state)[8][2][4])
{
#pragma unroll
    for (int inner = 0; inner < 4; inner++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            fragment b;
            load_b_turned(b, k, WIDE, i * 16, inner * 16);
            multiply_pair(state[i], x[inner], b);
        }
}

/* This lane's elements of a state that memory has as [key][column] in fp32, with their place in it;
 * column: the warp's first. */
template <typename VISIT>
__device__ __forceinline__ void each_element(float (&state)[8][2][4], int column, VISIT visit)
{
    int lane = static_cast<int>(threadIdx.x % WARP);
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                visit(state[i][j][e], (i * 16 + j * 8 + lane % 4 * 2 + e % 2) * DIM + column +
                                          lane / 4 + e / 2 * 8);
}

/* From NULL: zeros, or the unit states. */
__device__ __forceinline__ void load_state(const float *from, bool unit, int column,
                                           float (&state)[8][2][4])
{
    each_element(state, column, [=](float &x, int at) {
        x = from ? from[at] : unit && at / DIM == at % DIM ? 1.0F : 0.0F;
    });
}

__device__ __forceinline__ void save_state(float *to, int column, float (&state)[8][2][4])
{
    each_element(state, column, [=](float &x, int at) { to[at] = x; });
}

/* A run's and head's state in a tensor of them. */
template <typename T>
__device__ __forceinline__ T *state_at(T *states, int64_t stride, const block_place &at)
{
    return states ? states + at.run * stride + static_cast<int64_t>(at.head) * DIM * DIM : nullptr;
}

} // namespace

#endif
