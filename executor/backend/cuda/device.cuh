/* device.cuh - what kernels share, inline: eight elements at a time, sums over a warp and a block.
 */
#ifndef RANKFIT_EXECUTOR_BACKEND_CUDA_DEVICE_CUH
#define RANKFIT_EXECUTOR_BACKEND_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <stdint.h>
#include <string.h>

constexpr int WARP = 32;
constexpr unsigned EVERY_LANE = 0xffffffffu;

static __device__ __forceinline__ float bf16_to_float(uint16_t value)
{
    return __uint_as_float(static_cast<unsigned>(value) << 16);
}

static __device__ __forceinline__ uint16_t bf16_from_float(float value)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

static __device__ __forceinline__ unsigned pack_two(float low, float high)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    unsigned ret;
    memcpy(&ret, &both, sizeof ret);
    return ret;
}

static __device__ __forceinline__ void unpack(const uint4 &from, float (&to)[8])
{
    const unsigned words[4] = { from.x, from.y, from.z, from.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = __uint_as_float(words[i] << 16);
        to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
}

static __device__ __forceinline__ uint4 pack(const float (&from)[8])
{
    return make_uint4(pack_two(from[0], from[1]), pack_two(from[2], from[3]),
                      pack_two(from[4], from[5]), pack_two(from[6], from[7]));
}

static __device__ __forceinline__ void unpack_four(const uint2 &from, float (&to)[4])
{
    to[0] = __uint_as_float(from.x << 16);
    to[1] = __uint_as_float(from.x & 0xffff0000u);
    to[2] = __uint_as_float(from.y << 16);
    to[3] = __uint_as_float(from.y & 0xffff0000u);
}

static __device__ __forceinline__ uint2 pack_four(const float (&from)[4])
{
    return make_uint2(pack_two(from[0], from[1]), pack_two(from[2], from[3]));
}

static __device__ __forceinline__ uint4 load_vector(const uint16_t *from)
{
    return *reinterpret_cast<const uint4 *>(from);
}

static __device__ __forceinline__ void store_vector(uint16_t *to, const uint4 &value)
{
    *reinterpret_cast<uint4 *>(to) = value;
}

/* The same for what nothing reads soon: it leaves the cache first. */
static __device__ __forceinline__ void store_passing(uint16_t *to, const uint4 &value)
{
    __stcs(reinterpret_cast<uint4 *>(to), value);
}

/* Eight elements, or one, of either type. */
static __device__ __forceinline__ void load_eight(const float *from, float (&to)[8])
{
    float4 low = reinterpret_cast<const float4 *>(from)[0];
    float4 high = reinterpret_cast<const float4 *>(from)[1];
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

static __device__ __forceinline__ void store_eight(float *to, const float (&from)[8])
{
    reinterpret_cast<float4 *>(to)[0] = make_float4(from[0], from[1], from[2], from[3]);
    reinterpret_cast<float4 *>(to)[1] = make_float4(from[4], from[5], from[6], from[7]);
}

static __device__ __forceinline__ void load_eight(const uint16_t *from, float (&to)[8])
{
    unpack(load_vector(from), to);
}

static __device__ __forceinline__ void store_eight(uint16_t *to, const float (&from)[8])
{
    store_vector(to, pack(from));
}

static __device__ __forceinline__ float load_one(const float *from)
{
    return *from;
}

static __device__ __forceinline__ float load_one(const uint16_t *from)
{
    return bf16_to_float(*from);
}

static __device__ __forceinline__ void store_one(float *to, float value)
{
    *to = value;
}

static __device__ __forceinline__ void store_one(uint16_t *to, float value)
{
    *to = bf16_from_float(value);
}

static __device__ __forceinline__ float warp_sum(float value)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(EVERY_LANE, value, step);
    return value;
}

static __device__ __forceinline__ float warp_max(float value)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(EVERY_LANE, value, step));
    return value;
}

static __device__ __forceinline__ double warp_sum(double value)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(EVERY_LANE, value, step);
    return value;
}

/* The sum over a block of whole warps, in every thread. `room` is WARP values of shared memory that
 * no thread still reads from the call before. */
template <typename T> static __device__ __forceinline__ T block_sum(T value, T *room)
{
    value = warp_sum(value);
    if (threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = value;
    __syncthreads();
    T sum = 0;
    for (unsigned i = 0; i < blockDim.x / WARP; i++)
        sum += room[i];
    return sum;
}

/* to[i] += value, in either type of a gradient, summed in fp32. */
static __device__ __forceinline__ void add_typed(void *to, bool is_float, int64_t i, float value)
{
    if (is_float) {
        static_cast<float *>(to)[i] += value;
        return;
    }
    uint16_t *cell = static_cast<uint16_t *>(to) + i;
    *cell = bf16_from_float(bf16_to_float(*cell) + value);
}

#endif
