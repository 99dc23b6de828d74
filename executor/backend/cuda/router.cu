/* Scores of experts, a softmax or sigmoids, and the choice of the best, forward and backward: one
 * warp per row, the row in registers. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

#include <cfloat>

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

/* The number by which a choice is made: NaN comes last, so that rows of NaN still choose. */
__device__ __forceinline__ float ordered(float value)
{
    return value == value ? value : -FLT_MAX;
}

/* Expert 32 * i + lane is value i of a lane. The best expert of [first, last) that is not taken. */
template <int VALUES>
__device__ __forceinline__ void best_of(const float (&merits)[VALUES], int first, int last,
                                        unsigned taken, float &value, int &index)
{
    int lane = static_cast<int>(threadIdx.x % WARP);
    value = -INFINITY;
    index = last;
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        int expert = i * WARP + lane;
        float merit = ordered(merits[i]);
        if (expert >= first && expert < last && !(taken >> i & 1) && merit > value) {
            value = merit;
            index = expert;
        }
    }
    warp_largest(value, index);
}

/* Marks an expert as taken in its lane. */
__device__ __forceinline__ void take(int index, unsigned &taken)
{
    if (index % WARP == static_cast<int>(threadIdx.x % WARP))
        taken |= 1u << index / WARP;
}

/* As good as its two best experts together, without a correction as its best. */
template <int VALUES>
__device__ __forceinline__ float group_merit(const kernel_router_args &r,
                                             const float (&merits)[VALUES], int group)
{
    int size = r.experts / r.groups, first = group * size, index;
    unsigned taken = 0;
    float best, second;
    best_of(merits, first, first + size, taken, best, index);
    if (!r.correction || size == 1)
        return best;
    take(index, taken);
    best_of(merits, first, first + size, taken, second, index);
    return best + second;
}

/* Marks the experts of all groups but the group_limit best as taken. Lane l knows groups l and 32 +
 * l. */
template <int VALUES>
__device__ __forceinline__ unsigned closed_groups(const kernel_router_args &r,
                                                  const float (&merits)[VALUES])
{
    int lane = static_cast<int>(threadIdx.x % WARP), size = r.experts / r.groups;
    float mine[2] = { -INFINITY, -INFINITY };
    uint64_t open = 0;
    unsigned taken = 0;
    if (r.groups == 1)
        return 0;
    for (int group = 0; group < r.groups; group++) {
        float merit = ordered(group_merit(r, merits, group));
        if (group % WARP == lane)
            mine[group / WARP] = merit;
    }
    for (int chosen = 0; chosen < r.group_limit; chosen++) {
        bool high = mine[1] > mine[0];
        float value = high ? mine[1] : mine[0];
        int index = high ? WARP + lane : lane;
        warp_largest(value, index);
        open |= uint64_t{ 1 } << index;
        if (index % WARP == lane)
            mine[index / WARP] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        int expert = i * WARP + lane;
        if (expert < r.experts && !(open >> expert / size & 1))
            taken |= 1u << i;
    }
    return taken;
}

/* Logits become scores. */
template <int VALUES>
__device__ __forceinline__ void score(const kernel_router_args &r, float *row,
                                      float (&probs)[VALUES])
{
    int lane = static_cast<int>(threadIdx.x % WARP);
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        int expert = i * WARP + lane;
        probs[i] = expert < r.experts ? row[expert] : -INFINITY;
        largest = fmaxf(largest, probs[i]);
    }
    if (!r.sigmoid)
        largest = warp_max(largest);
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        if (r.sigmoid)
            probs[i] = 1.0F / (1.0F + expf(-probs[i]));
        else
            probs[i] = i * WARP + lane < r.experts ? expf(probs[i] - largest) : 0;
        sum += probs[i];
    }
    sum = r.sigmoid ? 1.0F : warp_sum(sum);
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        int expert = i * WARP + lane;
        probs[i] /= sum;
        if (expert < r.experts)
            row[expert] = probs[i];
    }
}

template <int VALUES>
__global__ void __launch_bounds__(THREADS) router(const __grid_constant__ kernel_router_args r)
{
    int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / WARP;
    int lane = static_cast<int>(threadIdx.x % WARP);
    if (row >= r.rows)
        return;
    int32_t *choices = r.choices + row * r.top_k;
    float probs[VALUES], merits[VALUES];
    score(r, r.probs + row * r.experts, probs);
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        int expert = i * WARP + lane;
        merits[i] = probs[i];
        if (r.correction && expert < r.experts)
            merits[i] += bf16_to_float(r.correction[expert]);
    }
    /* Lane j keeps choice j. */
    unsigned taken = r.given ? 0 : closed_groups(r, merits);
    int mine = r.given && lane < r.top_k ? choices[lane] : 0;
    float weight = 0;
    for (int j = 0; j < r.top_k; j++) {
        int index = r.given ? __shfl_sync(EVERY_LANE, mine, j) : 0;
        if (!r.given) {
            float best;
            best_of(merits, 0, r.experts, taken, best, index);
            take(index, taken);
        }
        bool valid = index >= 0 && index < r.experts;
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
    float total = r.normalize ? warp_sum(weight) : 1.0F;
    if (lane < r.top_k) {
        choices[lane] = mine;
        r.weights[row * r.top_k + lane] = r.scaling * weight / total;
    }
}

/* With w_j = c p_j / S: dp_j = (c dw_j - sum_i dw_i w_i) / S; not normalized, dp_j = c dw_j. Then
 * through the softmax, dl_e = p_e (dp_e - sum_j p_j dp_j), or the sigmoid, p_e (1 - p_e) dp_e. */
template <int VALUES>
__global__ void __launch_bounds__(THREADS)
    router_backward(const __grid_constant__ kernel_router_args r, const float *all_d_weights,
                    float *all_d_logits)
{
    int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / WARP;
    int lane = static_cast<int>(threadIdx.x % WARP);
    if (row >= r.rows)
        return;
    const float *probs = r.probs + row * r.experts;
    float d_probs[VALUES] = {}, prob = 0, d_weight = 0, weight = 0;
    int mine = -1;
    if (lane < r.top_k) {
        mine = r.choices[row * r.top_k + lane];
        prob = mine >= 0 && mine < r.experts ? probs[mine] : 0;
        d_weight = all_d_weights[row * r.top_k + lane];
        weight = r.weights[row * r.top_k + lane];
    }
    float sum = r.normalize ? warp_sum(prob) : 1.0F;
    float shared = r.normalize ? warp_sum(d_weight * weight) : 0.0F;
    float d_prob = lane < r.top_k ? (r.scaling * d_weight - shared) / sum : 0;
    float mean = r.sigmoid ? 0.0F : warp_sum(prob * d_prob);
    for (int j = 0; j < r.top_k; j++) {
        int index = __shfl_sync(EVERY_LANE, mine, j);
        float value = __shfl_sync(EVERY_LANE, d_prob, j);
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            d_probs[i] += index == i * WARP + lane ? value : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        int expert = i * WARP + lane;
        if (expert >= r.experts)
            continue;
        float p = probs[expert];
        all_d_logits[row * r.experts + expert] =
            r.sigmoid ? p * (1.0F - p) * d_probs[i] : p * (d_probs[i] - mean);
    }
}

unsigned blocks_of(int64_t rows)
{
    return static_cast<unsigned>((rows + ROWS - 1) / ROWS);
}

} // namespace

cudaError_t kernel_router(cudaStream_t stream, const struct kernel_router_args *r)
{
    if (r->rows == 0)
        return cudaSuccess;
    if (r->experts <= 4 * WARP)
        router<4><<<blocks_of(r->rows), THREADS, 0, stream>>>(*r);
    else
        router<KERNEL_EXPERTS_MAX / WARP><<<blocks_of(r->rows), THREADS, 0, stream>>>(*r);
    return cudaGetLastError();
}

cudaError_t kernel_router_backward(cudaStream_t stream, const struct kernel_router_args *r,
                                   const float *d_weights, float *d_logits)
{
    if (r->rows == 0)
        return cudaSuccess;
    if (r->experts <= 4 * WARP)
        router_backward<4><<<blocks_of(r->rows), THREADS, 0, stream>>>(*r, d_weights, d_logits);
    else
        router_backward<KERNEL_EXPERTS_MAX / WARP>
            <<<blocks_of(r->rows), THREADS, 0, stream>>>(*r, d_weights, d_logits);
    return cudaGetLastError();
}
