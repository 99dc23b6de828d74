/* First weights, drawn where they are wanted: as the host draws them, in double precision. */
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256;

__device__ __forceinline__ uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

__device__ __forceinline__ double uniform(uint64_t key, uint64_t counter)
{
    uint64_t bits = mix(key + counter * 0x9e3779b97f4a7c15ull);
    return (static_cast<double>(bits >> 11) + 1) * 0x1p-53;
}

__global__ void __launch_bounds__(THREADS)
    draw(int64_t count, float *to, uint64_t key, uint64_t first, double deviation)
{
    int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count)
        return;
    uint64_t element = first + static_cast<uint64_t>(i);
    double radius = sqrt(-2 * log(uniform(key, 2 * element + 1)));
    to[i] = static_cast<float>(deviation * radius *
                               cos(6.283185307179586 * uniform(key, 2 * element + 2)));
}

} // namespace

extern "C" cudaError_t kernel_draw_normal(cudaStream_t stream, int64_t count, float *to,
                                          uint64_t key, uint64_t first, double deviation)
{
    if (count == 0)
        return cudaSuccess;
    int64_t blocks = (count + THREADS - 1) / THREADS;
    draw<<<static_cast<unsigned>(blocks), THREADS, 0, stream>>>(count, to, key, first, deviation);
    return cudaGetLastError();
}
