/* delta_input.cuh - where the convolved channels of a delta net are: a piece is one head's queries,
 * keys or values, dense in qkv and halos, somewhere in rows of the projection. */
#ifndef RANKFIT_EXECUTOR_BACKEND_CUDA_DELTA_INPUT_CUH
#define RANKFIT_EXECUTOR_BACKEND_CUDA_DELTA_INPUT_CUH

#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

constexpr float LENGTH_EPSILON = 1e-6F;

struct piece {
    int64_t channel, column; /* its first channel, and where that is in a row of the projection */
    int width, kind;         /* kind: 0 queries, 1 keys, 2 values */
    int64_t first;           /* among the channels of its kind */
};

static __device__ __forceinline__ int64_t channels_of(const kernel_delta_input_args &a)
{
    return 2 * static_cast<int64_t>(a.key_heads) * a.key_dim +
           static_cast<int64_t>(a.value_heads) * a.value_dim;
}

static __device__ __forceinline__ piece piece_of(const kernel_delta_input_args &a, int i)
{
    int value = i - 2 * a.key_heads, each = a.value_heads / a.key_heads, head = i % a.key_heads;
    piece p;
    p.kind = value < 0 ? i / a.key_heads : 2;
    p.width = value < 0 ? a.key_dim : a.value_dim;
    p.first = static_cast<int64_t>(value < 0 ? head : value) * p.width;
    p.channel = p.first + static_cast<int64_t>(p.kind) * a.key_heads * a.key_dim;
    p.column = value < 0 ? (p.kind == 0 ? a.columns.q : a.columns.k) + head * a.columns.key_step
                         : a.columns.v + value / each * a.columns.value_step +
                               static_cast<int64_t>(value % each) * a.value_dim;
    return p;
}

/* The piece's elements of token t of a run, before the run those of the halo; NULL: zeros. */
static __device__ __forceinline__ const uint16_t *token_of(const kernel_delta_input_args &a,
                                                           const piece &p, int run, int64_t t)
{
    if (t >= 0)
        return a.p + (run * a.tokens + t) * a.p_stride + p.column;
    if (!a.halo)
        return nullptr;
    return a.halo + (static_cast<int64_t>(run) * (a.width - 1) + a.width - 1 + t) * channels_of(a) +
           p.channel;
}

static __device__ __forceinline__ float sigmoid_of(float x)
{
    return 1.0F / (1.0F + __expf(-x));
}

/* silu'(x) */
static __device__ __forceinline__ float silu_slope(float x)
{
    float sigma = sigmoid_of(x);
    return sigma * (1.0F + x * (1.0F - sigma));
}

/* The blocks' share of a backward: ranges of adjacent tokens of a run, the same number of
 * ranges in every run, that blocks take in turn. */
struct ranges {
    int64_t each; /* ranges of a run */
    int64_t tokens;
};

static __device__ __forceinline__ ranges ranges_of(const kernel_delta_input_args &a, int least)
{
    int64_t each = a.blocks / a.runs, most = (a.tokens + least - 1) / least;
    each = each < 1 ? 1 : each > most ? most : each;
    return { each, (a.tokens + each - 1) / each };
}

#endif
