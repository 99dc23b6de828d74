/* Cross-entropy of logits and its gradient: one block a row, the row read once for its maximum and
 * sum together and once more for the gradient. Whole rows, where cross_entropy_held.cu does not
 * take them, or strips of the vocabulary. */
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

__device__ __forceinline__ void take_eight(soft &s, const float (&x)[8])
{
    float largest = x[0], sum = 0;
#pragma unroll
    for (int i = 1; i < 8; i++)
        largest = fmaxf(largest, x[i]);
    if (largest > s.largest) {
        s.sum *= __expf(s.largest - largest);
        s.largest = largest;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum += __expf(x[i] - s.largest);
    s.sum += sum;
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

/* Rows begin on 16 bytes only where their width is a multiple of 8. Ends with the block in step. */
template <typename T> __device__ soft read_row(int64_t width, const T *row)
{
    soft s = { -FLT_MAX, 0 };
    if (width % 8 == 0) {
#pragma unroll 2
        for (int64_t i = threadIdx.x; i < width / 8; i += THREADS) {
            float value[8];
            load_eight(row + 8 * i, value);
            take_eight(s, value);
        }
    } else {
        for (int64_t i = threadIdx.x; i < width; i += THREADS)
            s = join(s, { load_one(row + i), 1 });
    }
    return block_join(s);
}

/* gradient = exp(row - largest) * factor; may be the row itself. */
template <typename T, typename G>
__device__ void write_row(int64_t width, const T *row, float largest, float factor, G *gradient)
{
    if (width % 8 != 0) {
        for (int64_t i = threadIdx.x; i < width; i += THREADS)
            store_one(gradient + i, __expf(load_one(row + i) - largest) * factor);
        return;
    }
#pragma unroll 2
    for (int64_t i = threadIdx.x; i < width / 8; i += THREADS) {
        float value[8];
        load_eight(row + 8 * i, value);
#pragma unroll
        for (int j = 0; j < 8; j++)
            value[j] = __expf(value[j] - largest) * factor;
        store_eight(gradient + 8 * i, value);
    }
}

template <typename G> __device__ void clear_row(int64_t width, G *gradient)
{
    for (int64_t i = threadIdx.x; i < width; i += THREADS)
        gradient[i] = 0;
}

/* The target's logit is read before anything is written: the gradient may take its place. */
template <typename T, typename G>
__global__ void __launch_bounds__(THREADS)
    cross_entropy(int64_t vocab, const T *logits, const int32_t *targets, float scale, G *d_logits,
                  double *losses, int64_t *bad)
{
    int64_t row = blockIdx.x;
    const T *from = logits + row * vocab;
    G *gradient = d_logits + row * vocab;
    int32_t target = targets[row];
    if (target < 0 || target >= vocab) {
        clear_row(vocab, gradient);
        if (threadIdx.x == 0)
            losses[row] = 0;
        if (threadIdx.x == 0 && target >= 0)
            *bad = row + 1;
        return;
    }
    float wanted = load_one(from + target);
    soft s = read_row(vocab, from);
    write_row(vocab, from, s.largest, scale / s.sum, gradient);
    __syncthreads();
    if (threadIdx.x == 0) {
        double above = static_cast<double>(wanted) - static_cast<double>(s.largest);
        double sum = s.sum;
        losses[row] = log(sum) - above;
        store_one(gradient + target, static_cast<float>((exp(above) / sum - 1.0) * scale));
    }
}

__device__ double log_add(double a, double b)
{
    double larger = fmax(a, b), smaller = fmin(a, b);
    return larger + log1p(exp(smaller - larger));
}

/* The strip's share of a row's loss: lse once the last strip is in, less the target's logit where
 * it lies in the strip. */
__global__ void __launch_bounds__(THREADS)
    strip_loss(int64_t vocab, int64_t first, int64_t width, const float *logits,
               const int32_t *targets, float *lse, double *losses, int64_t *bad)
{
    int64_t row = blockIdx.x;
    int32_t target = targets[row];
    soft s = read_row(width, logits + row * width);
    if (threadIdx.x > 0)
        return;
    double whole = static_cast<double>(s.largest) + log(static_cast<double>(s.sum));
    if (first > 0)
        whole = log_add(static_cast<double>(lse[row]), whole);
    lse[row] = static_cast<float>(whole);
    double loss = 0;
    if (target >= first && target < first + width)
        loss -= static_cast<double>(logits[row * width + target - first]);
    if (target >= 0 && first + width == vocab)
        loss += whole;
    losses[row] = loss;
    if (target >= vocab)
        *bad = row + 1;
}

__global__ void __launch_bounds__(THREADS)
    strip_gradient(int64_t first, int64_t width, const float *logits, const int32_t *targets,
                   const float *lse, float scale, uint16_t *d_logits)
{
    int64_t row = blockIdx.x;
    const float *from = logits + row * width;
    uint16_t *gradient = d_logits + row * width;
    int32_t target = targets[row];
    if (target < 0) {
        clear_row(width, gradient);
        return;
    }
    write_row(width, from, lse[row], scale, gradient);
    __syncthreads();
    if (threadIdx.x == 0 && target >= first && target < first + width) {
        double above = static_cast<double>(from[target - first]) - static_cast<double>(lse[row]);
        store_one(gradient + target - first, static_cast<float>((exp(above) - 1.0) * scale));
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
    cudaError_t status = kernel_cross_entropy_held(stream, rows, vocab, logits, targets, scale,
                                                   d_logits, losses, bad);
    if (status == cudaErrorNotSupported)
        cross_entropy<<<static_cast<unsigned>(rows), THREADS, 0, stream>>>(
            vocab, logits, targets, scale, d_logits, losses, bad);
    else if (status != cudaSuccess)
        return status;
    add_losses<<<1, THREADS, 0, stream>>>(rows, losses, loss_sum);
    return cudaGetLastError();
}

cudaError_t kernel_cross_entropy_in_place(cudaStream_t stream, int64_t rows, int64_t vocab,
                                          void *logits, bool is_float, const int32_t *targets,
                                          float scale, double *losses, double *loss_sum,
                                          int64_t *bad)
{
    unsigned blocks = static_cast<unsigned>(rows);
    float *floats = static_cast<float *>(logits);
    uint16_t *halves = static_cast<uint16_t *>(logits);
    if (rows == 0)
        return cudaSuccess;
    cudaError_t status = kernel_cross_entropy_held_in_place(stream, rows, vocab, logits, is_float,
                                                            targets, scale, losses, bad);
    if (status != cudaSuccess && status != cudaErrorNotSupported)
        return status;
    if (status == cudaSuccess) {
        add_losses<<<1, THREADS, 0, stream>>>(rows, losses, loss_sum);
        return cudaGetLastError();
    }
    if (is_float)
        cross_entropy<float, float>
            <<<blocks, THREADS, 0, stream>>>(vocab, floats, targets, scale, floats, losses, bad);
    else
        cross_entropy<uint16_t, uint16_t>
            <<<blocks, THREADS, 0, stream>>>(vocab, halves, targets, scale, halves, losses, bad);
    add_losses<<<1, THREADS, 0, stream>>>(rows, losses, loss_sum);
    return cudaGetLastError();
}

cudaError_t kernel_strip_loss(cudaStream_t stream, int64_t rows, int64_t vocab, int64_t first,
                              int64_t width, const float *logits, const int32_t *targets,
                              float *lse, double *losses, double *loss_sum, int64_t *bad)
{
    if (rows == 0)
        return cudaSuccess;
    strip_loss<<<static_cast<unsigned>(rows), THREADS, 0, stream>>>(vocab, first, width, logits,
                                                                    targets, lse, losses, bad);
    add_losses<<<1, THREADS, 0, stream>>>(rows, losses, loss_sum);
    return cudaGetLastError();
}

cudaError_t kernel_strip_gradient(cudaStream_t stream, int64_t rows, int64_t first, int64_t width,
                                  const float *logits, const int32_t *targets, const float *lse,
                                  float scale, uint16_t *d_logits)
{
    if (rows == 0)
        return cudaSuccess;
    strip_gradient<<<static_cast<unsigned>(rows), THREADS, 0, stream>>>(
        first, width, logits, targets, lse, scale, d_logits);
    return cudaGetLastError();
}
