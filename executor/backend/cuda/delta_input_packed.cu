/* The inputs of the delta rule, with a convolution of four tokens and heads of 32, 64 or 128, as
 * models have them: a thread has four channels of a head and walks over adjacent tokens of a
 * run, so that each value is read once; the lanes of a head add up lengths between them. Backward
 * it walks three tokens further than it writes, for their share in its last ones. */
#include "executor/backend/cuda/delta_input.cuh"

namespace
{

constexpr int THREADS = 128, EACH = 4, TAPS = KERNEL_CONV, BEFORE = TAPS - 1;
constexpr int AHEAD = 4;     /* tokens whose loads are under way together */
constexpr int STRIP = 64;    /* tokens of a thread forward */
constexpr int SHORTEST = 16; /* and the fewest of one backward */

using args = kernel_delta_input_args;
using four = float[EACH];

/* A thread's channels. */
struct lanes {
    piece p;
    bool there;
    int offset, group; /* first channel within the piece; lanes that share it */
    float conv[TAPS][EACH];
};

__device__ __forceinline__ void find_lanes(const args &a, lanes &l)
{
    int64_t at = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * EACH;
    int64_t keys = 2 * static_cast<int64_t>(a.key_heads) * a.key_dim;
    l.there = at < channels_of(a);
    at = l.there ? at : 0;
    l.p = piece_of(a, static_cast<int>(at < keys ? at / a.key_dim
                                                 : 2 * a.key_heads + (at - keys) / a.value_dim));
    l.offset = static_cast<int>(at - l.p.channel);
    l.group = l.p.width / EACH;
    const uint16_t *conv = a.conv[l.p.kind] + (l.p.first + l.offset) * TAPS;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
            l.conv[tap][i] = bf16_to_float(conv[i * TAPS + tap]);
}

/* Over the lanes of a head; every lane of the warp comes here. */
__device__ __forceinline__ float head_sum(const lanes &l, float value)
{
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        float other = __shfl_xor_sync(EVERY_LANE, value, step);
        value += step < l.group ? other : 0.0F;
    }
    return value;
}

__device__ __forceinline__ uint2 load_four(const uint16_t *from)
{
    return *reinterpret_cast<const uint2 *>(from);
}

/* Token t of the projection; zeros where there is none. */
__device__ __forceinline__ uint2 load_token(const args &a, const lanes &l, int run, int64_t t)
{
    const uint16_t *from = t < a.tokens ? token_of(a, l.p, run, t) : nullptr;
    return from ? load_four(from + l.offset) : make_uint2(0, 0);
}

/* x[0] to x[BEFORE - 1]: the tokens before t. */
__device__ __forceinline__ void open_window(const args &a, const lanes &l, int run, int64_t t,
                                            float (&x)[TAPS][EACH])
{
#pragma unroll
    for (int i = 0; i < BEFORE; i++)
        unpack_four(load_token(a, l, run, t - BEFORE + i), x[i]);
}

__device__ __forceinline__ void move_window(float (&x)[TAPS][EACH])
{
#pragma unroll
    for (int i = 0; i < BEFORE; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            x[i][j] = x[i + 1][j];
}

__device__ __forceinline__ void convolve(const lanes &l, const float (&x)[TAPS][EACH], four &pre)
{
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        pre[i] = 0.0F;
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
            pre[i] += x[tap][i] * l.conv[tap][i];
    }
}

/* act = silu(pre); 1 / its length over the head, or 1. */
__device__ __forceinline__ float activate(const lanes &l, const four &pre, four &act)
{
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        act[i] = pre[i] * sigmoid_of(pre[i]);
        sum += act[i] * act[i];
    }
    sum = head_sum(l, sum);
    return l.p.kind == 2 ? 1.0F : rsqrtf(sum + LENGTH_EPSILON);
}

__global__ void __launch_bounds__(THREADS) input(const __grid_constant__ args a)
{
    int run = static_cast<int>(blockIdx.z);
    int64_t first = static_cast<int64_t>(blockIdx.y) * STRIP;
    int64_t end = first + STRIP < a.tokens ? first + STRIP : a.tokens;
    lanes l;
    float x[TAPS][EACH];
    find_lanes(a, l);
    open_window(a, l, run, first, x);
    for (int64_t t = first; t < end; t += AHEAD) {
        uint2 raw[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            raw[u] = load_token(a, l, run, t + u);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            four pre, act;
            unpack_four(raw[u], x[BEFORE]);
            convolve(l, x, pre);
            float scale = activate(l, pre, act);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                act[i] *= scale;
            if (l.there && t + u < end)
                *reinterpret_cast<uint2 *>(a.qkv + (run * a.tokens + t + u) * channels_of(a) +
                                           l.p.channel + l.offset) = pack_four(act);
            move_window(x);
        }
    }
}

/* Sums of a backward under way. */
struct sums {
    float x[TAPS][EACH];      /* tokens t - 3 to t */
    float d_x[TAPS][EACH];    /* their gradients so far */
    float d_conv[TAPS][EACH]; /* of tokens that are this thread's */
};

/* The gradient of the argument of SiLU at token t; d_y: of the output. */
__device__ __forceinline__ void through_norm(const lanes &l, const sums &s, const uint2 &raw,
                                             four &d_pre)
{
    four pre, act;
    float along = 0.0F;
    convolve(l, s.x, pre);
    float inverse = activate(l, pre, act);
    unpack_four(raw, d_pre);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        along += d_pre[i] * act[i];
    along = head_sum(l, along) * inverse * inverse;
    along = l.p.kind == 2 ? 0.0F : along;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        d_pre[i] = inverse * (d_pre[i] - act[i] * along) * silu_slope(pre[i]);
}

/* Token t has got all that is due to it. */
__device__ __forceinline__ void leave(const args &a, const lanes &l, int run, int64_t t,
                                      const four &d_x)
{
    if (!l.there)
        return;
    if (t >= 0)
        *reinterpret_cast<uint2 *>(a.d_p + (run * a.tokens + t) * a.p_stride + l.p.column +
                                   l.offset) = pack_four(d_x);
    else if (a.d_halo)
        *reinterpret_cast<float4 *>(
            a.d_halo + (static_cast<int64_t>(run) * BEFORE + BEFORE + t) * channels_of(a) +
            l.p.channel + l.offset) = make_float4(d_x[0], d_x[1], d_x[2], d_x[3]);
}

/* Tokens first to end - 1 of a run, the halo's with the first. */
__device__ __forceinline__ void walk_back(const args &a, const lanes &l, int run, int64_t first,
                                          int64_t end, sums &s)
{
    int64_t from = first == 0 ? -BEFORE : first;
    const uint16_t *d_qkv = a.d_qkv + run * a.tokens * channels_of(a) + l.p.channel + l.offset;
    open_window(a, l, run, first, s.x);
#pragma unroll
    for (int i = 0; i < TAPS * EACH; i++)
        s.d_x[i / EACH][i % EACH] = 0.0F;
    for (int64_t t = first; t < end + BEFORE; t += AHEAD) {
        uint2 raw[AHEAD], d_y[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            bool there = t + u < a.tokens && t + u < end + BEFORE;
            raw[u] = load_token(a, l, run, t + u);
            d_y[u] = there ? load_four(d_qkv + (t + u) * channels_of(a)) : make_uint2(0, 0);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            four d_pre;
            unpack_four(raw[u], s.x[BEFORE]);
            through_norm(l, s, d_y[u], d_pre);
#pragma unroll
            for (int i = 0; i < TAPS * EACH; i++) {
                s.d_x[i / EACH][i % EACH] += d_pre[i % EACH] * l.conv[i / EACH][i % EACH];
                s.d_conv[i / EACH][i % EACH] +=
                    t + u < end ? d_pre[i % EACH] * s.x[i / EACH][i % EACH] : 0.0F;
            }
            if (t + u - BEFORE >= from && t + u - BEFORE < end)
                leave(a, l, run, t + u - BEFORE, s.d_x[0]);
            move_window(s.x);
            move_window(s.d_x);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                s.d_x[BEFORE][i] = 0.0F;
        }
    }
}

__global__ void __launch_bounds__(THREADS, 3) input_backward(const __grid_constant__ args a)
{
    const ranges n = ranges_of(a, SHORTEST);
    lanes l;
    sums s;
    find_lanes(a, l);
#pragma unroll
    for (int i = 0; i < TAPS * EACH; i++)
        s.d_conv[i / EACH][i % EACH] = 0.0F;
    for (int64_t range = blockIdx.y; range < n.each * a.runs; range += gridDim.y) {
        int64_t first = range % n.each * n.tokens, end = first + n.tokens;
        if (first < a.tokens)
            walk_back(a, l, static_cast<int>(range / n.each), first,
                      end < a.tokens ? end : a.tokens, s);
    }
    float *to = a.partial + (blockIdx.y * channels_of(a) + l.p.channel + l.offset) * TAPS;
#pragma unroll
    for (int i = 0; i < EACH * TAPS; i++)
        if (l.there)
            to[i] = s.d_conv[i % TAPS][i / TAPS];
}

unsigned columns_of(const args *a)
{
    int64_t channels = 2 * static_cast<int64_t>(a->key_heads) * a->key_dim +
                       static_cast<int64_t>(a->value_heads) * a->value_dim;
    return static_cast<unsigned>((channels / EACH + THREADS - 1) / THREADS);
}

} // namespace

cudaError_t kernel_delta_input_packed(cudaStream_t stream, const struct kernel_delta_input_args *a)
{
    dim3 grid(columns_of(a), static_cast<unsigned>((a->tokens + STRIP - 1) / STRIP),
              static_cast<unsigned>(a->runs));
    input<<<grid, THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}

cudaError_t kernel_delta_input_backward_packed(cudaStream_t stream,
                                               const struct kernel_delta_input_args *a)
{
    dim3 grid(columns_of(a), static_cast<unsigned>(a->blocks));
    input_backward<<<grid, THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}
