/* Softmax over experts and the choice of the largest, forward and backward: one warp a row, the row
 * in registers. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256, ROWS = THREADS / WARP;

/* The largest value of all lanes and its index, the lowest index among equals. */
__device__ __forceinline__ void warp_largest(float &value, int &index)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        float other = __shfl_xor_sync(EVERY_LANE, value, step);
        int other_index = __shfl_xor_sync(EVERY_LANE, index, step);
        if (other > value || (other == value && other_index < index)) {
            value = other;
            index = other_index;
        }
    }
}

/* Expert 32 * i + lane is value i of a lane. A row of NaN still chooses distinct experts. */
template <int VALUES>
__device__ __forceinline__ int choose(const float (&probs)[VALUES], int experts, unsigned &taken)
{
    int lane = static_cast<int>(threadIdx.x % WARP);
    float best = -INFINITY;
    int index = experts;
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        int expert = i * WARP + lane;
        float value = probs[i] >= 0 ? probs[i] : -1.0F;
        if (expert < experts && !(taken >> i & 1) && value > best) {
            best = value;
            index = expert;
        }
    }
    warp_largest(best, index);
    if (index % WARP == lane)
        taken |= 1u << index / WARP;
    return index;
}

template <int VALUES>
__global__ void __launch_bounds__(THREADS)
    router(int64_t rows, int experts, int top_k, bool normalize, bool given, float *all_probs,
           int32_t *all_choices, float *all_weights)
{
    int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / WARP;
    int lane = static_cast<int>(threadIdx.x % WARP);
    if (row >= rows)
        return;
    float *to = all_probs + row * experts;
    int32_t *choices = all_choices + row * top_k;
    float probs[VALUES], largest = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        int expert = i * WARP + lane;
        probs[i] = expert < experts ? to[expert] : -INFINITY;
        largest = fmaxf(largest, probs[i]);
    }
    largest = warp_max(largest);
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        probs[i] = i * WARP + lane < experts ? expf(probs[i] - largest) : 0;
        sum += probs[i];
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        int expert = i * WARP + lane;
        probs[i] /= sum;
        if (expert < experts)
            to[expert] = probs[i];
    }
    /* Lane j keeps choice j. */
    unsigned taken = 0;
    int mine = given && lane < top_k ? choices[lane] : 0;
    float weight = 0;
    for (int j = 0; j < top_k; j++) {
        int index = given ? __shfl_sync(EVERY_LANE, mine, j) : choose(probs, experts, taken);
        bool valid = index >= 0 && index < experts;
        float value = 0;
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            value = valid && index / WARP == i ? probs[i] : value;
        value = __shfl_sync(EVERY_LANE, value, index & (WARP - 1));
        if (lane == j) {
            weight = value;
            mine = index;
        }
    }
    float total = normalize ? warp_sum(weight) : 1.0F;
    if (lane < top_k) {
        choices[lane] = mine;
        all_weights[row * top_k + lane] = weight / total;
    }
}

/* With w_j = p_j / S: dp_j = (dw_j - sum_i dw_i w_i) / S; not normalized, dp_j = dw_j. Then through
 * the softmax: dl_e = p_e (dp_e - sum_j p_j dp_j). */
template <int VALUES>
__global__ void __launch_bounds__(THREADS)
    router_backward(int64_t rows, int experts, int top_k, bool normalize, const float *all_probs,
                    const int32_t *all_choices, const float *all_weights,
                    const float *all_d_weights, float *all_d_logits)
{
    int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / WARP;
    int lane = static_cast<int>(threadIdx.x % WARP);
    if (row >= rows)
        return;
    const float *probs = all_probs + row * experts;
    float d_probs[VALUES] = {}, prob = 0, d_weight = 0, weight = 0;
    int mine = -1;
    if (lane < top_k) {
        mine = all_choices[row * top_k + lane];
        prob = mine >= 0 && mine < experts ? probs[mine] : 0;
        d_weight = all_d_weights[row * top_k + lane];
        weight = all_weights[row * top_k + lane];
    }
    float sum = normalize ? warp_sum(prob) : 1.0F;
    float shared = normalize ? warp_sum(d_weight * weight) : 0.0F;
    float d_prob = lane < top_k ? (d_weight - shared) / sum : 0;
    float mean = warp_sum(prob * d_prob);
    for (int j = 0; j < top_k; j++) {
        int index = __shfl_sync(EVERY_LANE, mine, j);
        float value = __shfl_sync(EVERY_LANE, d_prob, j);
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            d_probs[i] += index == i * WARP + lane ? value : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        int expert = i * WARP + lane;
        if (expert < experts)
            all_d_logits[row * experts + expert] = probs[expert] * (d_probs[i] - mean);
    }
}

unsigned blocks_of(int64_t rows)
{
    return static_cast<unsigned>((rows + ROWS - 1) / ROWS);
}

} // namespace

cudaError_t kernel_router(cudaStream_t stream, int64_t rows, int experts, int top_k, bool normalize,
                          bool given, float *probs, int32_t *choices, float *weights)
{
    if (rows == 0)
        return cudaSuccess;
    unsigned blocks = blocks_of(rows);
    if (experts <= 4 * WARP)
        router<4><<<blocks, THREADS, 0, stream>>>(rows, experts, top_k, normalize, given, probs,
                                                  choices, weights);
    else
        router<KERNEL_EXPERTS_MAX / WARP><<<blocks, THREADS, 0, stream>>>(
            rows, experts, top_k, normalize, given, probs, choices, weights);
    return cudaGetLastError();
}

cudaError_t kernel_router_backward(cudaStream_t stream, int64_t rows, int experts, int top_k,
                                   bool normalize, const float *probs, const int32_t *choices,
                                   const float *weights, const float *d_weights, float *d_logits)
{
    if (rows == 0)
        return cudaSuccess;
    unsigned blocks = blocks_of(rows);
    if (experts <= 4 * WARP)
        router_backward<4><<<blocks, THREADS, 0, stream>>>(rows, experts, top_k, normalize, probs,
                                                           choices, weights, d_weights, d_logits);
    else
        router_backward<KERNEL_EXPERTS_MAX / WARP><<<blocks, THREADS, 0, stream>>>(
            rows, experts, top_k, normalize, probs, choices, weights, d_weights, d_logits);
    return cudaGetLastError();
}
