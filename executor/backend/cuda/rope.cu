/* Head norms and rotary embedding of the fused projection, forward and backward. A head is held by
 * head_dim / 8 neighbouring lanes, eight elements each, the group rounded up to a power of two; a
 * pair (i, i + half) then lies in two lanes half / 8 apart. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256, ROWS = 4, HALF_MAX = KERNEL_HEAD_MAX / 2;

struct place {
    int lane;     /* within the head */
    int columns;  /* first of the eight */
    bool present; /* the lane holds elements */
};

/* The rows of a sequence are one run from position 0, or two runs from positions of their own. */
__device__ __forceinline__ int64_t position_of(const kernel_rope_args &r, int64_t row)
{
    int64_t at = row % r.tokens;
    if (r.run_tokens == 0)
        return at;
    return at < r.run_tokens ? r.run_first[0] + at : r.run_first[1] + at - r.run_tokens;
}

/* Angles of ROWS positions. Reduced to a turn in double, since a float holds no angle of 10^5
 * radians to 10^-3. */
__device__ void fill_angles(const kernel_rope_args &r, int64_t first, float (*cosine)[HALF_MAX],
                            float (*sine)[HALF_MAX])
{
    constexpr double TURN = 6.283185307179586476925286766559;
    int half = r.rotary_dim / 2;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < ROWS * half; i += THREADS) {
        double angle =
            static_cast<double>(position_of(r, first + i / half)) * r.frequency[i % half];
        float reduced = static_cast<float>(angle - TURN * rint(angle / TURN));
        sincosf(reduced, &sine[i / half][i % half], &cosine[i / half][i % half]);
    }
    __syncthreads();
}

/* Turns the head's eight elements of this lane; sign -1 turns back. */
__device__ __forceinline__ void turn(const kernel_rope_args &r, const place &p, float sign,
                                     const float *cosine, const float *sine, float (&x)[8])
{
    int half = r.rotary_dim / 2, step = half / 8;
    bool low = p.columns < half, high = !low && p.columns < r.rotary_dim;
    int self = static_cast<int>(threadIdx.x % WARP);
    int other = low ? self + step : high ? self - step : self;
    int at = low ? p.columns : high ? p.columns - half : 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float partner = __shfl_sync(EVERY_LANE, x[i], other);
        float s = sign * sine[at + i];
        float turned = x[i] * cosine[at + i] + (low ? -partner * s : partner * s);
        x[i] = low || high ? turned : x[i];
    }
}

__device__ __forceinline__ float group_sum(float value, int lanes)
{
    for (int step = lanes / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(EVERY_LANE, value, step);
    return value;
}

/* The inverse root mean square of a head. */
__device__ __forceinline__ float inverse_rms(const kernel_rope_args &r, const float (&x)[8],
                                             int lanes)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum += x[i] * x[i];
    return 1.0F / sqrtf(group_sum(sum, lanes) / static_cast<float>(r.head_dim) + r.eps);
}

/* Everything a thread does is one item: a head of a row. Whole warps take part in each. */
struct item {
    bool present, is_key;
    int64_t row;
    int head, slot; /* slot: which of the ROWS */
};

__device__ __forceinline__ item item_at(const kernel_rope_args &r, int64_t first, int index,
                                        int lanes)
{
    int heads = r.heads + r.kv_heads, group = index / lanes;
    item it;
    it.slot = group / heads;
    it.row = first + it.slot;
    it.present = it.slot < ROWS && it.row < r.rows;
    it.head = group % heads;
    it.is_key = it.head >= r.heads;
    if (it.is_key)
        it.head -= r.heads;
    it.slot = it.slot < ROWS ? it.slot : 0;
    return it;
}

__device__ __forceinline__ int64_t fused_offset(const kernel_rope_args &r, const item &it)
{
    return it.row * r.qkv_stride + (it.is_key
                                        ? r.k_offset + static_cast<int64_t>(it.head) * r.head_dim
                                        : it.head * r.q_head_stride);
}

__global__ void __launch_bounds__(THREADS)
    rope(const __grid_constant__ kernel_rope_args r, int lanes)
{
    __shared__ float cosine[ROWS][HALF_MAX], sine[ROWS][HALF_MAX];
    int64_t first = static_cast<int64_t>(blockIdx.x) * ROWS;
    place p;
    p.lane = static_cast<int>(threadIdx.x) % lanes;
    p.columns = p.lane * 8;
    p.present = p.columns < r.head_dim;
    fill_angles(r, first, cosine, sine);
    int items = ROWS * (r.heads + r.kv_heads) * lanes;
    for (int base = 0; base < items; base += THREADS) {
        item it = item_at(r, first, base + static_cast<int>(threadIdx.x), lanes);
        const uint16_t *norm = it.is_key ? r.k_norm : r.q_norm;
        bool here = it.present && p.present;
        float x[8] = {};
        if (here)
            unpack(load_vector(r.qkv + fused_offset(r, it) + p.columns), x);
        float inverse = inverse_rms(r, x, lanes);
        if (norm && here) {
            float weight[8];
            unpack(load_vector(norm + p.columns), weight);
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[i] = x[i] * inverse * (r.centre + weight[i]);
        }
        turn(r, p, 1.0F, cosine[it.slot], sine[it.slot], x);
        int heads = it.is_key ? r.kv_heads : r.heads;
        if (here)
            store_vector((it.is_key ? r.k : r.q) + (it.row * heads + it.head) * r.head_dim +
                             p.columns,
                         pack(x));
    }
}

/* With n = x / rms and g = dy w: dx = (g - n mean(g n)) / rms; dy n goes to sums. */
__device__ __forceinline__ void norm_back(const kernel_rope_args &r, const item &it, const place &p,
                                          const uint16_t *norm, int lanes, float (&d)[8],
                                          float (&sums)[2][8])
{
    bool here = it.present && p.present;
    float x[8] = {}, weight[8] = {}, mean = 0;
    if (here) {
        unpack(load_vector(r.qkv + fused_offset(r, it) + p.columns), x);
        unpack(load_vector(norm + p.columns), weight);
    }
    float inverse = inverse_rms(r, x, lanes);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] *= inverse;
        sums[0][i] += it.is_key ? 0.0F : d[i] * x[i];
        sums[1][i] += it.is_key ? d[i] * x[i] : 0.0F;
        d[i] *= r.centre + weight[i];
        mean += d[i] * x[i];
    }
    mean = group_sum(mean, lanes) / static_cast<float>(r.head_dim);
#pragma unroll
    for (int i = 0; i < 8; i++)
        d[i] = (d[i] - x[i] * mean) * inverse;
}

/* The block's own sums, group after group. */
__device__ void leave_sums(const kernel_rope_args &r, const place &p, int lanes,
                           const float (&sums)[2][8], float *partial)
{
    __shared__ float room[2 * KERNEL_HEAD_MAX];
    for (int i = static_cast<int>(threadIdx.x); i < 2 * r.head_dim; i += THREADS)
        room[i] = 0;
    for (int group = 0; group < THREADS / lanes; group++) {
        __syncthreads();
        if (static_cast<int>(threadIdx.x) / lanes == group && p.present) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                room[p.columns + i] += sums[0][i];
                room[r.head_dim + p.columns + i] += sums[1][i];
            }
        }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < 2 * r.head_dim; i += THREADS)
        partial[static_cast<int64_t>(blockIdx.x) * 2 * r.head_dim + i] = room[i];
}

__global__ void __launch_bounds__(THREADS)
    rope_backward(const __grid_constant__ kernel_rope_args r, int lanes, float *partial)
{
    __shared__ float cosine[ROWS][HALF_MAX], sine[ROWS][HALF_MAX];
    float sums[2][8] = {};
    place p;
    p.lane = static_cast<int>(threadIdx.x) % lanes;
    p.columns = p.lane * 8;
    p.present = p.columns < r.head_dim;
    int items = ROWS * (r.heads + r.kv_heads) * lanes;
    for (int64_t first = static_cast<int64_t>(blockIdx.x) * ROWS; first < r.rows;
         first += static_cast<int64_t>(gridDim.x) * ROWS) {
        fill_angles(r, first, cosine, sine);
        for (int base = 0; base < items; base += THREADS) {
            item it = item_at(r, first, base + static_cast<int>(threadIdx.x), lanes);
            const uint16_t *norm = it.is_key ? r.k_norm : r.q_norm;
            bool here = it.present && p.present;
            uint16_t *gradient = r.dqkv + fused_offset(r, it) + p.columns;
            float d[8] = {};
            if (here)
                unpack(load_vector(gradient), d);
            turn(r, p, -1.0F, cosine[it.slot], sine[it.slot], d);
            if (r.q_norm || r.k_norm) {
                float normed[8];
#pragma unroll
                for (int i = 0; i < 8; i++)
                    normed[i] = d[i];
                norm_back(r, it, p,
                          norm       ? norm
                          : r.q_norm ? r.q_norm
                                     : r.k_norm,
                          lanes, normed, sums);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    d[i] = norm ? normed[i] : d[i];
            }
            if (here)
                store_vector(gradient, pack(d));
        }
    }
    if (partial)
        leave_sums(r, p, lanes, sums, partial);
}

/* Lanes a head takes: head_dim / 8, rounded up to a power of two so that no head straddles warps.
 */
int lanes_of(const kernel_rope_args &r)
{
    int lanes = 1;
    while (lanes * 8 < r.head_dim)
        lanes *= 2;
    return lanes;
}

} // namespace

cudaError_t kernel_rope(cudaStream_t stream, const struct kernel_rope_args *r)
{
    if (r->rows == 0)
        return cudaSuccess;
    unsigned blocks = static_cast<unsigned>((r->rows + ROWS - 1) / ROWS);
    rope<<<blocks, THREADS, 0, stream>>>(*r, lanes_of(*r));
    return cudaGetLastError();
}

cudaError_t kernel_rope_backward(cudaStream_t stream, const struct kernel_rope_args *r,
                                 float *partial, int blocks)
{
    if (r->rows == 0)
        return cudaSuccess;
    rope_backward<<<static_cast<unsigned>(blocks), THREADS, 0, stream>>>(*r, lanes_of(*r), partial);
    return cudaGetLastError();
}
