/* Cross-entropy of a tile of logits and its gradient: one block a row, the row read once for its
 * maximum and sum together and once more for the gradient. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

#include <cfloat>

namespace
{

constexpr int THREADS = 1024;

/* The sum of exp(x - largest) of what has been seen; starts below every number but -infinity, so
 * that no difference of infinities arises. */
struct soft {
    float largest, sum;
};

__device__ __forceinline__ soft join(soft a, soft b)
{
    float largest = fmaxf(a.largest, b.largest);
    return { largest, a.sum * __expf(a.largest - largest) + b.sum * __expf(b.largest - largest) };
}

__device__ __forceinline__ void take_four(soft &s, const float4 &x)
{
    float largest = fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w));
    if (largest > s.largest) {
        s.sum *= __expf(s.largest - largest);
        s.largest = largest;
    }
    s.sum += __expf(x.x - s.largest) + __expf(x.y - s.largest) + __expf(x.z - s.largest) +
             __expf(x.w - s.largest);
}

__device__ soft block_join(soft s)
{
    __shared__ soft room[WARP];
    for (int step = WARP / 2; step > 0; step /= 2) {
        soft other = { __shfl_xor_sync(EVERY_LANE, s.largest, step),
                       __shfl_xor_sync(EVERY_LANE, s.sum, step) };
        s = join(s, other);
    }
    if (threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = s;
    __syncthreads();
    s = room[0];
    for (int i = 1; i < THREADS / WARP; i++)
        s = join(s, room[i]);
    return s;
}

/* Rows begin on 16 bytes only where vocab is a multiple of 4 (of 8 for the gradient): `wide` says
 * so. */
__device__ soft read_row(int64_t vocab, const float *row, bool wide)
{
    soft s = { -FLT_MAX, 0 };
    if (wide) {
        const float4 *fours = reinterpret_cast<const float4 *>(row);
#pragma unroll 4
        for (int64_t i = threadIdx.x; i < vocab / 4; i += THREADS)
            take_four(s, fours[i]);
    } else {
        for (int64_t i = threadIdx.x; i < vocab; i += THREADS)
            s = join(s, { row[i], 1 });
    }
    return block_join(s);
}

__device__ void write_row(int64_t vocab, const float *row, bool wide, float largest, float factor,
                          uint16_t *gradient)
{
    if (!wide) {
        for (int64_t i = threadIdx.x; i < vocab; i += THREADS)
            gradient[i] = bf16_from_float(__expf(row[i] - largest) * factor);
        return;
    }
    const float4 *fours = reinterpret_cast<const float4 *>(row);
#pragma unroll 2
    for (int64_t i = threadIdx.x; i < vocab / 8; i += THREADS) {
        float4 low = fours[2 * i], high = fours[2 * i + 1];
        float value[8] = { low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w };
#pragma unroll
        for (int j = 0; j < 8; j++)
            value[j] = __expf(value[j] - largest) * factor;
        store_vector(gradient + 8 * i, pack(value));
    }
}

__global__ void __launch_bounds__(THREADS)
    cross_entropy(int64_t vocab, const float *logits, const int32_t *targets, float scale,
                  uint16_t *d_logits, double *losses, int64_t *bad)
{
    int64_t row = blockIdx.x;
    const float *from = logits + row * vocab;
    uint16_t *gradient = d_logits + row * vocab;
    bool wide = vocab % 8 == 0;
    int32_t target = targets[row];
    if (target < 0 || target >= vocab) {
        for (int64_t i = threadIdx.x; i < vocab; i += THREADS)
            gradient[i] = 0;
        if (threadIdx.x == 0)
            losses[row] = 0;
        if (threadIdx.x == 0 && target >= 0)
            *bad = row + 1;
        return;
    }
    soft s = read_row(vocab, from, wide);
    write_row(vocab, from, wide, s.largest, scale / s.sum, gradient);
    __syncthreads();
    if (threadIdx.x == 0) {
        double above = static_cast<double>(from[target]) - static_cast<double>(s.largest);
        double sum = s.sum;
        losses[row] = log(sum) - above;
        gradient[target] = bf16_from_float(static_cast<float>((exp(above) / sum - 1.0) * scale));
    }
}

__global__ void __launch_bounds__(THREADS)
    add_losses(int64_t rows, const double *losses, double *loss_sum)
{
    __shared__ double room[WARP];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < rows; i += THREADS)
        sum += losses[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        *loss_sum += sum;
}

} // namespace

cudaError_t kernel_cross_entropy(cudaStream_t stream, int64_t rows, int64_t vocab,
                                 const float *logits, const int32_t *targets, float scale,
                                 uint16_t *d_logits, double *losses, double *loss_sum, int64_t *bad)
{
    if (rows == 0)
        return cudaSuccess;
    cross_entropy<<<static_cast<unsigned>(rows), THREADS, 0, stream>>>(
        vocab, logits, targets, scale, d_logits, losses, bad);
    add_losses<<<1, THREADS, 0, stream>>>(rows, losses, loss_sum);
    return cudaGetLastError();
}
