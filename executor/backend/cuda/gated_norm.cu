/* The gated norm of a delta net's output, one warp per token and value head: with n = o / rms(o),
 * y = n w silu(z), the norm over the head; z in rows of the projection. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256, WARPS = THREADS / WARP;

using args = kernel_gated_norm_args;

/* A lane's elements of a head: side by side where PACKED (four), else every 32nd. */
template <bool PACKED> struct share {
    static constexpr int count = PACKED ? 4 : KERNEL_DELTA_WIDE / WARP;

    static __device__ __forceinline__ int element(int j)
    {
        int lane = static_cast<int>(threadIdx.x % WARP);
        return PACKED ? lane * 4 + j : lane + WARP * j;
    }

    static __device__ __forceinline__ void load(const uint16_t *from, int width, float (&to)[count])
    {
        if constexpr (PACKED) {
            unpack_four(*reinterpret_cast<const uint2 *>(from + element(0)), to);
        } else {
#pragma unroll
            for (int j = 0; j < count; j++)
                to[j] = element(j) < width ? bf16_to_float(from[element(j)]) : 0.0F;
        }
    }

    static __device__ __forceinline__ void store(uint16_t *to, int width,
                                                 const float (&from)[count])
    {
        if constexpr (PACKED) {
            *reinterpret_cast<uint2 *>(to + element(0)) = pack_four(from);
        } else {
#pragma unroll
            for (int j = 0; j < count; j++)
                if (element(j) < width)
                    to[element(j)] = bf16_from_float(from[j]);
        }
    }
};

/* Weights stand at any address. */
template <bool PACKED>
__device__ __forceinline__ void load_weights(const args &a, float (&to)[share<PACKED>::count])
{
#pragma unroll
    for (int j = 0; j < share<PACKED>::count; j++) {
        int i = share<PACKED>::element(j);
        to[j] = i < a.value_dim ? bf16_to_float(a.weight[i]) : 0.0F;
    }
}

/* Where a head's gates are in the projection. */
__device__ __forceinline__ int64_t gate_at(const args &a, int64_t item)
{
    int head = static_cast<int>(item % a.value_heads), each = a.value_heads / a.key_heads;
    return item / a.value_heads * a.p_stride + a.z + head / each * a.value_step +
           static_cast<int64_t>(head % each) * a.value_dim;
}

__device__ __forceinline__ float sigmoid_of(float x)
{
    return __fdividef(1.0F, 1.0F + __expf(-x));
}

template <int COUNT>
__device__ __forceinline__ float inverse_rms(const args &a, const float (&o)[COUNT])
{
    float sum = 0.0F;
#pragma unroll
    for (int j = 0; j < COUNT; j++)
        sum += o[j] * o[j];
    return rsqrtf(warp_sum(sum) / static_cast<float>(a.value_dim) + a.eps);
}

template <bool PACKED>
__global__ void __launch_bounds__(THREADS) forward(const __grid_constant__ args a)
{
    using mine = share<PACKED>;
    int64_t item = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
    float o[mine::count], z[mine::count], w[mine::count];
    if (item >= a.rows * a.value_heads)
        return;
    mine::load(a.o + item * a.value_dim, a.value_dim, o);
    mine::load(a.p + gate_at(a, item), a.value_dim, z);
    load_weights<PACKED>(a, w);
    float inverse = inverse_rms(a, o);
#pragma unroll
    for (int j = 0; j < mine::count; j++)
        o[j] = o[j] * inverse * w[j] * z[j] * sigmoid_of(z[j]);
    mine::store(a.on + item * a.value_dim, a.value_dim, o);
}

/* dz = dy n w silu'(z), dw += dy n silu(z); with dn = dy w silu(z), do = (dn - n mean(dn n)) / rms.
 */
template <bool PACKED>
__device__ __forceinline__ void item_backward(const args &a, int64_t item,
                                              const float (&w)[share<PACKED>::count],
                                              float (&d_w)[share<PACKED>::count])
{
    using mine = share<PACKED>;
    float o[mine::count], z[mine::count], dy[mine::count], mean = 0.0F;
    mine::load(a.o + item * a.value_dim, a.value_dim, o);
    mine::load(a.p + gate_at(a, item), a.value_dim, z);
    mine::load(a.d_o + item * a.value_dim, a.value_dim, dy);
    float inverse = inverse_rms(a, o);
#pragma unroll
    for (int j = 0; j < mine::count; j++) {
        float sigma = sigmoid_of(z[j]), silu = z[j] * sigma, n = o[j] * inverse;
        d_w[j] += dy[j] * n * silu;
        z[j] = dy[j] * n * w[j] * sigma * (1.0F + z[j] * (1.0F - sigma));
        dy[j] *= w[j] * silu;
        mean += dy[j] * n;
    }
    mean = warp_sum(mean) / static_cast<float>(a.value_dim);
#pragma unroll
    for (int j = 0; j < mine::count; j++)
        dy[j] = (dy[j] - o[j] * inverse * mean) * inverse;
    mine::store(a.d_p + gate_at(a, item), a.value_dim, z);
    mine::store(a.d_o + item * a.value_dim, a.value_dim, dy);
}

template <bool PACKED>
__global__ void __launch_bounds__(THREADS) backward(const __grid_constant__ args a)
{
    using mine = share<PACKED>;
    __shared__ float room[WARPS][PACKED ? 4 * WARP : KERNEL_DELTA_WIDE];
    int warp = static_cast<int>(threadIdx.x) / WARP;
    float w[mine::count], d_w[mine::count] = {};
    load_weights<PACKED>(a, w);
    for (int64_t item = static_cast<int64_t>(blockIdx.x) * WARPS + warp;
         item < a.rows * a.value_heads; item += static_cast<int64_t>(gridDim.x) * WARPS)
        item_backward<PACKED>(a, item, w, d_w);
#pragma unroll
    for (int j = 0; j < mine::count; j++)
        room[warp][mine::element(j)] = d_w[j];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < a.value_dim; i += THREADS) {
        float sum = room[0][i];
        for (int k = 1; k < WARPS; k++)
            sum += room[k][i];
        a.partial[static_cast<int64_t>(blockIdx.x) * a.value_dim + i] = sum;
    }
}

/* Heads of 128 at multiples of four elements. */
bool packed(const args *a)
{
    return a->value_dim == 4 * WARP && (a->p_stride | a->z | a->value_step) % 4 == 0;
}

} // namespace

cudaError_t kernel_gated_norm(cudaStream_t stream, const struct kernel_gated_norm_args *a)
{
    unsigned blocks = static_cast<unsigned>((a->rows * a->value_heads + WARPS - 1) / WARPS);
    if (packed(a))
        forward<true><<<blocks, THREADS, 0, stream>>>(*a);
    else
        forward<false><<<blocks, THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}

cudaError_t kernel_gated_norm_backward(cudaStream_t stream, const struct kernel_gated_norm_args *a)
{
    unsigned blocks = static_cast<unsigned>(a->blocks);
    if (packed(a))
        backward<true><<<blocks, THREADS, 0, stream>>>(*a);
    else
        backward<false><<<blocks, THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}
