/* What runs over flat arrays: casts, sums, squares, AdamW. Eight elements a thread where the
 * addresses allow, one otherwise. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256;

__device__ __forceinline__ int64_t thread_place()
{
    return static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
}

/* Places [0, vectors) are eights, then come single elements. */
struct span {
    int64_t count, vectors;
    __device__ int64_t singles_from() const
    {
        return vectors * 8;
    }
};

template <typename T> __global__ void __launch_bounds__(THREADS) add(span s, const T *from, T *to)
{
    int64_t place = thread_place();
    if (place < s.vectors) {
        float a[8], b[8];
        load_eight(from + place * 8, a);
        load_eight(to + place * 8, b);
#pragma unroll
        for (int i = 0; i < 8; i++)
            b[i] += a[i];
        store_eight(to + place * 8, b);
        return;
    }
    int64_t i = s.singles_from() + place - s.vectors;
    if (i < s.count)
        store_one(to + i, load_one(to + i) + load_one(from + i));
}

__global__ void __launch_bounds__(THREADS) to_bf16(span s, const float *from, uint16_t *to)
{
    int64_t place = thread_place();
    if (place < s.vectors) {
        float a[8];
        load_eight(from + place * 8, a);
        store_eight(to + place * 8, a);
        return;
    }
    int64_t i = s.singles_from() + place - s.vectors;
    if (i < s.count)
        store_one(to + i, from[i]);
}

/* Eight squares are summed in fp32, the eights in double. */
template <typename T>
__global__ void __launch_bounds__(THREADS) squares(span s, const T *values, double *partial)
{
    __shared__ double room[WARP];
    int64_t all = static_cast<int64_t>(gridDim.x) * THREADS;
    double sum = 0;
#pragma unroll 4
    for (int64_t place = thread_place(); place < s.vectors; place += all) {
        float a[8], eight = 0;
        load_eight(values + place * 8, a);
#pragma unroll
        for (int i = 0; i < 8; i++)
            eight += a[i] * a[i];
        sum += static_cast<double>(eight);
    }
    for (int64_t i = s.singles_from() + thread_place(); i < s.count; i += all) {
        double value = static_cast<double>(load_one(values + i));
        sum += value * value;
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS)
    add_partial(int blocks, const double *partial, double *to)
{
    __shared__ double room[WARP];
    double sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < blocks; i += THREADS)
        sum += partial[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        *to = sum;
}

/* The update of Loshchilov and Hutter, "Decoupled weight decay regularization", algorithm 2, in the
 * form of PyTorch's AdamW. */
__device__ __forceinline__ void update(const kernel_adamw_args &a, float root, float gradient,
                                       float &master, float &m, float &v)
{
    float g = gradient * a.scale;
    m = a.beta1 * m + (1.0F - a.beta1) * g;
    v = a.beta2 * v + (1.0F - a.beta2) * (g * g);
    master = master * (1.0F - a.rate * a.decay) -
             a.rate / a.first_left * m / (sqrtf(v) / root + a.epsilon);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    adamw(span s, const __grid_constant__ kernel_adamw_args a, const T *gradient)
{
    int64_t place = thread_place();
    float root = sqrtf(a.second_left);
    if (place < s.vectors) {
        int64_t at = place * 8;
        float g[8], master[8], m[8], v[8];
        load_eight(gradient + at, g);
        load_eight(a.master + at, master);
        load_eight(a.moment1 + at, m);
        load_eight(a.moment2 + at, v);
#pragma unroll
        for (int i = 0; i < 8; i++)
            update(a, root, g[i], master[i], m[i], v[i]);
        store_eight(a.master + at, master);
        store_eight(a.moment1 + at, m);
        store_eight(a.moment2 + at, v);
        store_eight(a.weight + at, master);
        return;
    }
    int64_t i = s.singles_from() + place - s.vectors;
    if (i < s.count) {
        update(a, root, load_one(gradient + i), a.master[i], a.moment1[i], a.moment2[i]);
        store_one(a.weight + i, a.master[i]);
    }
}

bool aligned(const void *pointer)
{
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

span span_of(int64_t count, bool wide)
{
    return { count, wide ? count / 8 : 0 };
}

/* One thread an eight and one a left element. */
unsigned blocks_of(const span &s)
{
    int64_t threads = s.vectors + s.count - s.vectors * 8;
    return static_cast<unsigned>((threads + THREADS - 1) / THREADS);
}

} // namespace

cudaError_t kernel_add(cudaStream_t stream, int64_t count, const void *from, void *to,
                       bool is_float)
{
    if (count == 0)
        return cudaSuccess;
    span s = span_of(count, aligned(from) && aligned(to));
    if (is_float)
        add<<<blocks_of(s), THREADS, 0, stream>>>(s, static_cast<const float *>(from),
                                                  static_cast<float *>(to));
    else
        add<<<blocks_of(s), THREADS, 0, stream>>>(s, static_cast<const uint16_t *>(from),
                                                  static_cast<uint16_t *>(to));
    return cudaGetLastError();
}

cudaError_t kernel_to_bf16(cudaStream_t stream, int64_t count, const float *from, uint16_t *to)
{
    if (count == 0)
        return cudaSuccess;
    span s = span_of(count, aligned(from) && aligned(to));
    to_bf16<<<blocks_of(s), THREADS, 0, stream>>>(s, from, to);
    return cudaGetLastError();
}

cudaError_t kernel_sum_squares(cudaStream_t stream, int64_t count, const void *values,
                               bool is_float, double *partial, double *sum)
{
    span s = span_of(count, aligned(values));
    int64_t wanted = blocks_of(s);
    int blocks = wanted < 1                   ? 1
                 : wanted < KERNEL_SUM_BLOCKS ? static_cast<int>(wanted)
                                              : static_cast<int>(KERNEL_SUM_BLOCKS);
    if (is_float)
        squares<<<blocks, THREADS, 0, stream>>>(s, static_cast<const float *>(values), partial);
    else
        squares<<<blocks, THREADS, 0, stream>>>(s, static_cast<const uint16_t *>(values), partial);
    add_partial<<<1, THREADS, 0, stream>>>(blocks, partial, sum);
    return cudaGetLastError();
}

cudaError_t kernel_adamw(cudaStream_t stream, const struct kernel_adamw_args *a)
{
    if (a->count == 0)
        return cudaSuccess;
    span s = span_of(a->count, aligned(a->gradient) && aligned(a->master) && aligned(a->moment1) &&
                                   aligned(a->moment2) && aligned(a->weight));
    if (a->is_float)
        adamw<<<blocks_of(s), THREADS, 0, stream>>>(s, *a, static_cast<const float *>(a->gradient));
    else
        adamw<<<blocks_of(s), THREADS, 0, stream>>>(s, *a,
                                                    static_cast<const uint16_t *>(a->gradient));
    return cudaGetLastError();
}
