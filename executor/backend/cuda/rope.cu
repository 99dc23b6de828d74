/* Head norms and rotary embedding of the fused projection, forward and backward. A head is held by
 * LANES neighbouring lanes, eight elements each, head_dim / 8 rounded up to a power of two; a pair
 * (i, i + half) then lies in two lanes half / 8 apart, or in one lane where half is 4. GROUPS such
 * groups of lanes share a row and take its heads in turn, so that a thread has the angles of one
 * position in registers; each has AHEAD heads under way. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256, GROUPS = 4, AHEAD = 3, BACK_AHEAD = 2;

/* The rows of a sequence are one run from position 0, or two runs from positions of their own. */
__device__ __forceinline__ int64_t position_of(const kernel_rope_args &r, int64_t row)
{
    bool small = row <= INT32_MAX && r.tokens <= INT32_MAX; /* division is cheaper then */
    int64_t at =
        small ? static_cast<uint32_t>(row) % static_cast<uint32_t>(r.tokens) : row % r.tokens;
    if (r.run_tokens == 0)
        return at;
    return at < r.run_tokens ? r.run_first[0] + at : r.run_first[1] + at - r.run_tokens;
}

/* What a thread works on: `present`, its lane holds elements of a head; `low`, `high`: of the first
 * and the second half of what turns; `other`: the lane that holds the partners; `both`: the lane
 * holds both halves, four elements each. Elements that do not turn have the angle 0. */
template <int LANES> struct place {
    int64_t row;
    int group, columns, other;
    bool present, low, high, both;
    float cosine[8], sine[8];
};

/* Rows of a block. */
template <int LANES> constexpr int rows_of = THREADS / (LANES * GROUPS);

template <int LANES>
__device__ __forceinline__ void find_place(const kernel_rope_args &r, place<LANES> &p)
{
    int half = r.rotary_dim / 2, self = static_cast<int>(threadIdx.x % WARP);
    p.group = static_cast<int>(threadIdx.x) / LANES % GROUPS;
    p.columns = static_cast<int>(threadIdx.x) % LANES * 8;
    p.both = half == 4 && p.columns == 0;
    p.low = p.columns < half && !p.both;
    p.high = !p.low && !p.both && p.columns < r.rotary_dim;
    p.other = p.low ? self + half / 8 : p.high ? self - half / 8 : self;
}

/* The angles of a block's positions, each once, then those of a lane's eight pairs. Reduced to a
 * turn in double, since a float holds no angle of 10^5 radians to 10^-3. `sign` -1 turns back; the
 * second half's sine is told apart here. */
template <int LANES>
__device__ __forceinline__ void fill_angles(const kernel_rope_args &r, int64_t first, float sign,
                                            place<LANES> &p)
{
    constexpr double TURN = 6.283185307179586476925286766559;
    constexpr int SHARE = LANES * GROUPS; /* as many as the halves of a head can be */
    __shared__ float cosine[THREADS], sine[THREADS];
    int half = r.rotary_dim / 2, slot = static_cast<int>(threadIdx.x) / SHARE;
    int pair = static_cast<int>(threadIdx.x) % SHARE;
    int64_t row = first + slot;
    p.row = row;
    p.present = p.columns < r.head_dim && row < r.rows;
    __syncthreads();
    if (pair < half) {
        double angle = static_cast<double>(position_of(r, row)) * r.frequency[pair];
        float reduced = static_cast<float>(angle - TURN * rint(angle / TURN));
        sincosf(reduced, &sine[threadIdx.x], &cosine[threadIdx.x]);
        sine[threadIdx.x] *= r.factor;
        cosine[threadIdx.x] *= r.factor;
    }
    __syncthreads();
    int at = slot * SHARE + (p.low ? p.columns : p.high ? p.columns - half : 0);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        p.cosine[i] = p.low || p.high ? cosine[at + i] : 1.0F;
        p.sine[i] = p.low ? -sign * sine[at + i] : p.high ? sign * sine[at + i] : 0.0F;
        if (p.both) {
            p.cosine[i] = cosine[at + i % 4];
            p.sine[i] = i < 4 ? -sign * sine[at + i] : sign * sine[at + i - 4];
        }
    }
}

/* Turns the head's eight elements of this lane. */
template <int LANES> __device__ __forceinline__ void turn(const place<LANES> &p, float (&x)[8])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float low = x[i], high = x[i + 4];
        float of_low = __shfl_sync(EVERY_LANE, low, p.other);
        float of_high = __shfl_sync(EVERY_LANE, high, p.other);
        x[i] = low * p.cosine[i] + (p.both ? high : of_low) * p.sine[i];
        x[i + 4] = high * p.cosine[i + 4] + (p.both ? low : of_high) * p.sine[i + 4];
    }
}

template <int LANES> __device__ __forceinline__ float group_sum(float value)
{
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(EVERY_LANE, value, step);
    return value;
}

/* The inverse root mean square of a head. */
template <int LANES>
__device__ __forceinline__ float inverse_rms(const kernel_rope_args &r, const float (&x)[8])
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum += x[i] * x[i];
    return rsqrtf(group_sum<LANES>(sum) * r.share + r.eps);
}

/* Queries' heads come first, then keys'. */
template <int LANES>
__device__ __forceinline__ int64_t fused_offset(const kernel_rope_args &r, const place<LANES> &p,
                                                int head)
{
    int64_t column = head < r.heads
                         ? head * r.q_head_stride
                         : r.k_offset + static_cast<int64_t>(head - r.heads) * r.head_dim;
    return p.row * r.qkv_stride + column + p.columns;
}

template <int LANES>
__device__ __forceinline__ uint16_t *output_of(const kernel_rope_args &r, const place<LANES> &p,
                                               int head)
{
    bool is_key = head >= r.heads;
    int64_t at = is_key ? p.row * r.kv_heads + head - r.heads : p.row * r.heads + head;
    return (is_key ? r.k : r.q) + at * r.head_dim + p.columns;
}

template <int LANES>
__device__ __forceinline__ uint4 forward_of(const kernel_rope_args &r, const place<LANES> &p,
                                            int head, const uint4 &from)
{
    const uint16_t *norm = head < r.heads ? r.q_norm : r.k_norm;
    float x[8];
    unpack(from, x);
    float inverse = inverse_rms<LANES>(r, x);
    if (norm && p.present) {
        float weight[8];
        unpack(load_vector(norm + p.columns), weight);
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = x[i] * inverse * (r.centre + weight[i]);
    }
    turn(p, x);
    return pack(x);
}

/* Every lane of a warp takes part in each of AHEAD heads, whether or not they are there. */
template <int LANES>
__global__ void __launch_bounds__(THREADS, 3) rope(const __grid_constant__ kernel_rope_args r)
{
    place<LANES> p;
    int heads = r.heads + r.kv_heads;
    find_place(r, p);
    fill_angles(r, static_cast<int64_t>(blockIdx.x) * rows_of<LANES>, 1.0F, p);
    for (int base = 0; base < heads; base += AHEAD * GROUPS) {
        uint4 held[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int head = base + i * GROUPS + p.group;
            bool here = p.present && head < heads;
            held[i] = here ? load_vector(r.qkv + fused_offset(r, p, head)) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int head = base + i * GROUPS + p.group;
            uint4 turned = forward_of(r, p, head, held[i]);
            if (p.present && head < heads)
                store_vector(output_of(r, p, head), turned);
        }
    }
}

/* Sums of dy n over a thread's heads, of queries and of keys. */
struct norm_sums {
    float q[8], k[8];
};

/* Heads [first, last) of a row, all of queries or all of keys. */
struct heads {
    int first, last;
    const uint16_t *norm; /* NULL: they pass */
};

/* With n = x / rms and g = dy w: dx = (g - n mean(g n)) / rms; dy n goes to sums. */
template <int LANES>
__device__ __forceinline__ void norm_back(const kernel_rope_args &r, const float (&weight)[8],
                                          const uint4 &from, float (&d)[8], float (&sums)[8])
{
    float x[8], mean = 0;
    unpack(from, x);
    float inverse = inverse_rms<LANES>(r, x);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] *= inverse;
        sums[i] += d[i] * x[i];
        d[i] *= weight[i];
        mean += d[i] * x[i];
    }
    mean = group_sum<LANES>(mean);
    mean *= r.share;
#pragma unroll
    for (int i = 0; i < 8; i++)
        d[i] = (d[i] - x[i] * mean) * inverse;
}

/* The norm's weights as they apply. */
template <int LANES>
__device__ __forceinline__ void load_weights(const kernel_rope_args &r, const place<LANES> &p,
                                             const uint16_t *norm, float (&to)[8])
{
    unpack(norm && p.present ? load_vector(norm + p.columns) : make_uint4(0, 0, 0, 0), to);
#pragma unroll
    for (int i = 0; i < 8; i++)
        to[i] += r.centre;
}

/* The heads that a thread shares. */
template <int LANES>
__device__ __forceinline__ void heads_backward(const kernel_rope_args &r, const place<LANES> &p,
                                               const heads &all, float (&sums)[8])
{
    float weight[8];
    load_weights(r, p, all.norm, weight);
    for (int base = all.first; base < all.last; base += BACK_AHEAD * GROUPS) {
        uint4 gradient[BACK_AHEAD], x[BACK_AHEAD];
        uint16_t *to[BACK_AHEAD];
#pragma unroll
        for (int i = 0; i < BACK_AHEAD; i++) {
            int head = base + i * GROUPS + p.group;
            bool here = p.present && head < all.last;
            int64_t at = here ? fused_offset(r, p, head) : 0;
            to[i] = here ? r.dqkv + at : nullptr;
            gradient[i] = here ? load_vector(to[i]) : make_uint4(0, 0, 0, 0);
            x[i] = here && all.norm ? load_vector(r.qkv + at) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < BACK_AHEAD; i++) {
            float d[8];
            unpack(gradient[i], d);
            turn(p, d);
            if (all.norm)
                norm_back<LANES>(r, weight, x[i], d, sums);
            if (to[i])
                store_vector(to[i], pack(d));
        }
    }
}

/* The block's own sums, group after group. */
template <int LANES>
__device__ void leave_sums(const kernel_rope_args &r, const place<LANES> &p, const norm_sums &sums,
                           float *partial)
{
    __shared__ float room[2 * KERNEL_HEAD_MAX];
    for (int i = static_cast<int>(threadIdx.x); i < 2 * r.head_dim; i += THREADS)
        room[i] = 0;
    for (int group = 0; group < THREADS / LANES; group++) {
        __syncthreads();
        if (static_cast<int>(threadIdx.x) / LANES == group && p.columns < r.head_dim) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                room[p.columns + i] += sums.q[i];
                room[r.head_dim + p.columns + i] += sums.k[i];
            }
        }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < 2 * r.head_dim; i += THREADS)
        partial[static_cast<int64_t>(blockIdx.x) * 2 * r.head_dim + i] = room[i];
}

template <int LANES>
__global__ void __launch_bounds__(THREADS, KERNEL_ROPE_EACH)
    rope_backward(const __grid_constant__ kernel_rope_args r, float *partial)
{
    norm_sums sums = {};
    place<LANES> p;
    find_place(r, p);
    for (int64_t first = static_cast<int64_t>(blockIdx.x) * rows_of<LANES>; first < r.rows;
         first += static_cast<int64_t>(gridDim.x) * rows_of<LANES>) {
        fill_angles(r, first, -1.0F, p);
        heads_backward(r, p, { 0, r.heads, r.q_norm }, sums.q);
        heads_backward(r, p, { r.heads, r.heads + r.kv_heads, r.k_norm }, sums.k);
    }
    if (partial)
        leave_sums(r, p, sums, partial);
}

template <int LANES>
cudaError_t launch(cudaStream_t stream, const kernel_rope_args &r, float *partial, int blocks)
{
    constexpr int ROWS = rows_of<LANES>;
    if (blocks > 0)
        rope_backward<LANES><<<static_cast<unsigned>(blocks), THREADS, 0, stream>>>(r, partial);
    else
        rope<LANES><<<static_cast<unsigned>((r.rows + ROWS - 1) / ROWS), THREADS, 0, stream>>>(r);
    return cudaGetLastError();
}

/* As many lanes as head_dim takes; blocks 0: forward. */
cudaError_t launch_any(cudaStream_t stream, const kernel_rope_args &r, float *partial, int blocks)
{
    return r.head_dim <= 8     ? launch<1>(stream, r, partial, blocks)
           : r.head_dim <= 16  ? launch<2>(stream, r, partial, blocks)
           : r.head_dim <= 32  ? launch<4>(stream, r, partial, blocks)
           : r.head_dim <= 64  ? launch<8>(stream, r, partial, blocks)
           : r.head_dim <= 128 ? launch<16>(stream, r, partial, blocks)
                               : launch<32>(stream, r, partial, blocks);
}

} // namespace

cudaError_t kernel_rope(cudaStream_t stream, const struct kernel_rope_args *r)
{
    return r->rows == 0 ? cudaSuccess : launch_any(stream, *r, nullptr, 0);
}

cudaError_t kernel_rope_backward(cudaStream_t stream, const struct kernel_rope_args *r,
                                 float *partial, int blocks)
{
    return r->rows == 0 ? cudaSuccess : launch_any(stream, *r, partial, blocks);
}
