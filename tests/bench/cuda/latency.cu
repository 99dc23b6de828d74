/* A chain of products of the tensor cores each of which needs the one before: the least time of a
 * recurrence over chunks. */
#include "executor/backend/cuda/mma.cuh"
#include "tests/bench/cuda/latency.h"

namespace
{

__global__ void chain(int count, float *to)
{
    fragment a = { { 0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u } };
    float c[4] = {};
    for (int i = 0; i < count; i++)
        multiply(c, a, 0x3c003c00u, 0x3c003c00u);
    to[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
}

} // namespace

cudaError_t latency_chain(cudaStream_t stream, int count, float *to)
{
    chain<<<1, WARP, 0, stream>>>(count, to);
    return cudaGetLastError();
}
