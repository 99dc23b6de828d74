/* A stable counting sort of routed choices by expert. Chunks of CHUNK choices are counted, the
 * counts summed expert by expert over the chunks, and each chunk then places its own choices in
 * their order. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int CHUNK = 512, THREADS = 256;

/* starts[expert, chunk]: how many choices of the chunk are the expert's. Row `experts` counts what
 * is no expert. One warp a chunk. */
__global__ void count_chunks(int64_t count, int64_t chunks, int experts, const int32_t *choices,
                             int32_t *starts)
{
    __shared__ int32_t counts[KERNEL_EXPERTS_MAX + 1];
    int lane = static_cast<int>(threadIdx.x);
    for (int e = lane; e <= experts; e += WARP)
        counts[e] = 0;
    __syncwarp();
    int64_t first = static_cast<int64_t>(blockIdx.x) * CHUNK;
    for (int at = lane; at < CHUNK && first + at < count; at += WARP) {
        int32_t expert = choices[first + at];
        atomicAdd(&counts[expert >= 0 && expert < experts ? expert : experts], 1);
    }
    __syncwarp();
    for (int e = lane; e <= experts; e += WARP)
        starts[e * chunks + blockIdx.x] = counts[e];
}

/* One block an expert: its counts become what the chunks before hold, its load their sum. */
__global__ void __launch_bounds__(THREADS)
    sum_chunks(int64_t chunks, int32_t *starts, int32_t *loads)
{
    __shared__ int32_t sums[THREADS];
    int32_t *row = starts + blockIdx.x * chunks;
    int64_t each = (chunks + THREADS - 1) / THREADS, first = threadIdx.x * each;
    int64_t last = first + each < chunks ? first + each : chunks;
    int32_t sum = 0;
    for (int64_t i = first; i < last; i++)
        sum += row[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned step = 1; step < THREADS; step *= 2) {
        int32_t before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    if (threadIdx.x == THREADS - 1)
        loads[blockIdx.x] = sums[threadIdx.x];
    int32_t running = sums[threadIdx.x] - sum;
    for (int64_t i = first; i < last; i++) {
        int32_t here = row[i];
        row[i] = running;
        running += here;
    }
}

/* One warp a chunk: thirty-two choices at a time, equals ranked by lane. */
__global__ void place_chunks(int64_t count, int64_t chunks, int experts, const int32_t *choices,
                             const int32_t *starts, const int32_t *loads, int32_t *slots)
{
    __shared__ int32_t places[KERNEL_EXPERTS_MAX + 1];
    int lane = static_cast<int>(threadIdx.x);
    int32_t before = 0;
    for (int base = 0; base < experts; base += WARP) {
        int e = base + lane;
        int32_t load = e < experts ? loads[e] : 0, sum = load;
        for (int step = 1; step < WARP; step *= 2) {
            int32_t other = __shfl_up_sync(EVERY_LANE, sum, step);
            sum += lane >= step ? other : 0;
        }
        if (e < experts)
            places[e] = before + sum - load + starts[e * chunks + blockIdx.x];
        before += __shfl_sync(EVERY_LANE, sum, WARP - 1);
    }
    __syncwarp();
    int64_t first = static_cast<int64_t>(blockIdx.x) * CHUNK;
    for (int base = 0; base < CHUNK; base += WARP) {
        int64_t at = first + base + lane;
        int32_t expert = at < count ? choices[at] : -1;
        bool valid = expert >= 0 && expert < experts;
        expert = valid ? expert : experts;
        unsigned equals = __match_any_sync(EVERY_LANE, expert);
        int rank = __popc(equals & ((1u << lane) - 1u));
        int32_t place = valid ? places[expert] : 0;
        if (at < count)
            slots[at] = valid ? place + rank : 0;
        __syncwarp();
        if (valid && rank == 0)
            places[expert] = place + __popc(equals);
        __syncwarp();
    }
}

} // namespace

int64_t kernel_sort_chunks(int64_t count)
{
    return (count + CHUNK - 1) / CHUNK;
}

cudaError_t kernel_sort_choices(cudaStream_t stream, int64_t count, int experts,
                                const int32_t *choices, int32_t *slots, int32_t *starts,
                                int32_t *loads)
{
    int64_t chunks = kernel_sort_chunks(count);
    if (chunks > 0)
        count_chunks<<<static_cast<unsigned>(chunks), WARP, 0, stream>>>(count, chunks, experts,
                                                                         choices, starts);
    sum_chunks<<<static_cast<unsigned>(experts + 1), THREADS, 0, stream>>>(chunks, starts, loads);
    if (chunks > 0)
        place_chunks<<<static_cast<unsigned>(chunks), WARP, 0, stream>>>(
            count, chunks, experts, choices, starts, loads, slots);
    return cudaGetLastError();
}
