/* Head norms and rotary embedding of the fused projection, forward and backward. A head is held by
 * LANES neighbouring lanes, eight elements each, head_dim / 8 rounded up to a power of two; a pair
 * (i, i + half) then lies in two lanes half / 8 apart. GROUPS such groups of lanes share a row and
 * take its heads in turn, so that a thread has the angles of one position in registers; each has
 * AHEAD heads under way. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256, GROUPS = 4, AHEAD = 3, BACK_AHEAD = 2;

/* The rows of a sequence are one run from position 0, or two runs from positions of their own. */
__device__ __forceinline__ int64_t position_of(const kernel_rope_args &r, int64_t row)
{
    int64_t at = row % r.tokens;
    if (r.run_tokens == 0)
        return at;
    return at < r.run_tokens ? r.run_first[0] + at : r.run_first[1] + at - r.run_tokens;
}

/* What a thread works on: `present`, its lane holds elements of a head; `low`, `high`: of the first
 * and the second half of what turns; `other`: the lane that holds the partners. */
template <int LANES> struct place {
    int64_t row;
    int group, columns, other;
    bool present, low, high;
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
    p.low = p.columns < half;
    p.high = !p.low && p.columns < r.rotary_dim;
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
    }
    __syncthreads();
    int at = slot * SHARE + (p.low ? p.columns : p.high ? p.columns - half : 0);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        p.cosine[i] = cosine[at + i];
        p.sine[i] = (p.low ? -sign : sign) * sine[at + i];
    }
}

/* Turns the head's eight elements of this lane. */
template <int LANES> __device__ __forceinline__ void turn(const place<LANES> &p, float (&x)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float partner = __shfl_sync(EVERY_LANE, x[i], p.other);
        float turned = x[i] * p.cosine[i] + partner * p.sine[i];
        x[i] = p.low || p.high ? turned : x[i];
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
    return 1.0F / sqrtf(group_sum<LANES>(sum) / static_cast<float>(r.head_dim) + r.eps);
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

/* With n = x / rms and g = dy w: dx = (g - n mean(g n)) / rms; dy n goes to sums. A head without a
 * norm passes. */
template <int LANES>
__device__ __forceinline__ void norm_back(const kernel_rope_args &r, const place<LANES> &p,
                                          bool is_key, const uint4 &from, float (&d)[8],
                                          norm_sums &sums)
{
    const uint16_t *norm = is_key ? r.k_norm : r.q_norm;
    float x[8], weight[8] = {}, mean = 0;
    unpack(from, x);
    if (norm && p.present)
        unpack(load_vector(norm + p.columns), weight);
    float inverse = inverse_rms<LANES>(r, x);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] *= inverse;
        sums.q[i] += is_key ? 0.0F : d[i] * x[i];
        sums.k[i] += is_key ? d[i] * x[i] : 0.0F;
        mean += d[i] * (r.centre + weight[i]) * x[i];
    }
    mean = group_sum<LANES>(mean) / static_cast<float>(r.head_dim);
#pragma unroll
    for (int i = 0; i < 8; i++)
        d[i] = norm ? (d[i] * (r.centre + weight[i]) - x[i] * mean) * inverse : d[i];
}

template <int LANES>
__device__ __forceinline__ uint4 backward_of(const kernel_rope_args &r, const place<LANES> &p,
                                             int head, const uint4 &gradient, const uint4 &x,
                                             norm_sums &sums)
{
    float d[8];
    unpack(gradient, d);
    turn(p, d);
    if (r.q_norm || r.k_norm)
        norm_back(r, p, head >= r.heads, x, d, sums);
    return pack(d);
}

/* All heads of the row that a thread shares. */
template <int LANES>
__device__ __forceinline__ void row_backward(const kernel_rope_args &r, const place<LANES> &p,
                                             norm_sums &sums)
{
    int heads = r.heads + r.kv_heads;
    bool normed = r.q_norm || r.k_norm;
    for (int base = 0; base < heads; base += BACK_AHEAD * GROUPS) {
        uint4 gradient[BACK_AHEAD], x[BACK_AHEAD];
#pragma unroll
        for (int i = 0; i < BACK_AHEAD; i++) {
            int head = base + i * GROUPS + p.group;
            bool here = p.present && head < heads;
            int64_t at = here ? fused_offset(r, p, head) : 0;
            gradient[i] = here ? load_vector(r.dqkv + at) : make_uint4(0, 0, 0, 0);
            x[i] = here && normed ? load_vector(r.qkv + at) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < BACK_AHEAD; i++) {
            int head = base + i * GROUPS + p.group;
            uint4 back = backward_of(r, p, head, gradient[i], x[i], sums);
            if (p.present && head < heads)
                store_vector(r.dqkv + fused_offset(r, p, head), back);
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
__global__ void __launch_bounds__(THREADS, 3)
    rope_backward(const __grid_constant__ kernel_rope_args r, float *partial)
{
    norm_sums sums = {};
    place<LANES> p;
    find_place(r, p);
    for (int64_t first = static_cast<int64_t>(blockIdx.x) * rows_of<LANES>; first < r.rows;
         first += static_cast<int64_t>(gridDim.x) * rows_of<LANES>) {
        fill_angles(r, first, -1.0F, p);
        row_backward(r, p, sums);
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
