/* Decays and betas of a delta net: decay = -exp(log_rate) softplus(a + step), beta = sigmoid(b). */
#include "executor/backend/cuda/delta_input.cuh"

namespace
{

constexpr int THREADS = 256;

using args = kernel_delta_input_args;

__device__ __forceinline__ int64_t column_of(const args &a, int64_t first, int head)
{
    int each = a.value_heads / a.key_heads;
    return first + head / each * a.columns.gate_step + head % each;
}

/* As precise as the host's: decays add up over a whole sequence. */
__device__ __forceinline__ float softplus(float x)
{
    return x > 20.0F ? x : log1pf(expf(x));
}

__device__ __forceinline__ float exact_sigmoid(float x)
{
    return 1.0F / (1.0F + expf(-x));
}

/* A row's a and b of a head. */
struct pair {
    float a, b;
};

__device__ __forceinline__ pair read_pair(const args &a, int64_t row, int head)
{
    const uint16_t *p = a.p + row * a.p_stride;
    return { bf16_to_float(p[column_of(a, a.columns.a, head)]) + bf16_to_float(a.step[head]),
             bf16_to_float(p[column_of(a, a.columns.b, head)]) };
}

__global__ void __launch_bounds__(THREADS) gates(const __grid_constant__ args a)
{
    int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    int head = static_cast<int>(i % a.value_heads);
    if (i >= a.runs * a.tokens * a.value_heads)
        return;
    const pair x = read_pair(a, i / a.value_heads, head);
    a.decay[i] = -expf(bf16_to_float(a.log_rate[head])) * softplus(x.a);
    a.beta[i] = exact_sigmoid(x.b);
}

/* Rows of one head in turn by a column of threads; returns its sums of d_log_rate and d_step. */
__device__ __forceinline__ float2 rows_backward(const args &a, int head, int64_t first,
                                                int64_t step)
{
    float rate = expf(bf16_to_float(a.log_rate[head]));
    float2 sums = make_float2(0.0F, 0.0F);
    for (int64_t row = first; row < a.runs * a.tokens; row += step) {
        const pair x = read_pair(a, row, head);
        float dg = a.d_decay[row * a.value_heads + head], beta = exact_sigmoid(x.b);
        float d_a = -dg * rate * exact_sigmoid(x.a);
        uint16_t *to = a.d_p + row * a.p_stride;
        sums.x -= dg * rate * softplus(x.a);
        sums.y += d_a;
        to[column_of(a, a.columns.a, head)] = bf16_from_float(d_a);
        to[column_of(a, a.columns.b, head)] =
            bf16_from_float(a.d_beta[row * a.value_heads + head] * beta * (1.0F - beta));
    }
    return sums;
}

/* blockIdx.y: heads from 256 times it on. A block's sums go to partial[blockIdx.x]. */
__global__ void __launch_bounds__(THREADS) gates_backward(const __grid_constant__ args a)
{
    __shared__ float2 room[THREADS];
    int from = static_cast<int>(blockIdx.y) * THREADS, thread = static_cast<int>(threadIdx.x);
    int heads = a.value_heads - from < THREADS ? a.value_heads - from : THREADS;
    int rows = THREADS / heads, head = thread % heads;
    if (thread < rows * heads)
        room[thread] =
            rows_backward(a, from + head, static_cast<int64_t>(blockIdx.x) * rows + thread / heads,
                          static_cast<int64_t>(gridDim.x) * rows);
    __syncthreads();
    if (thread >= heads)
        return;
    float2 sum = room[thread];
    for (int i = 1; i < rows; i++) {
        sum.x += room[i * heads + thread].x;
        sum.y += room[i * heads + thread].y;
    }
    float *to = a.partial + static_cast<int64_t>(blockIdx.x) * 2 * a.value_heads + from + thread;
    to[0] = sum.x;
    to[a.value_heads] = sum.y;
}

} // namespace

cudaError_t kernel_delta_gates(cudaStream_t stream, const struct kernel_delta_input_args *a)
{
    int64_t count = a->runs * a->tokens * a->value_heads;
    gates<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}

cudaError_t kernel_delta_gates_backward(cudaStream_t stream,
                                        const struct kernel_delta_input_args *a)
{
    dim3 grid(static_cast<unsigned>(a->blocks),
              static_cast<unsigned>((a->value_heads + THREADS - 1) / THREADS));
    gates_backward<<<grid, THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}
