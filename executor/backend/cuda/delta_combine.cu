/* States of a sequence's runs, one after another: a block has some value columns of a head, in
 * shared memory, and multiplies them by transition after transition. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 256, COLUMNS = 8, ROWS = THREADS / COLUMNS;

using args = kernel_delta_combine_args;

struct tiles {
    float state[KERNEL_DELTA_WIDE][COLUMNS], next[KERNEL_DELTA_WIDE][COLUMNS];
};

/* Element i of row `row` of the transition, or of its transpose. */
__device__ __forceinline__ float transition_at(const args &a, const float *transition, int row,
                                               int i)
{
    return a.backward ? transition[static_cast<int64_t>(i) * a.key_dim + row]
                      : transition[static_cast<int64_t>(row) * a.key_dim + i];
}

/* Where this rank has the state of a run of the sequence; NULL: elsewhere. */
__device__ __forceinline__ float *own_state(const args &a, int sequence, int chunk, int head)
{
    int64_t size = static_cast<int64_t>(a.key_dim) * a.value_dim;
    for (int own = 0; own < a.own; own++)
        if (a.own_chunks[own] == chunk)
            return a.states +
                   ((static_cast<int64_t>(sequence) * a.own + own) * a.heads + head) * size;
    return nullptr;
}

__global__ void __launch_bounds__(THREADS) combine(const __grid_constant__ args a)
{
    __shared__ tiles s;
    int sequence = static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
    int lane = static_cast<int>(threadIdx.x) % COLUMNS, first = threadIdx.x / COLUMNS;
    int column = static_cast<int>(blockIdx.x) * COLUMNS + lane;
    bool there = column < a.value_dim;
    for (int i = first; i < a.key_dim; i += ROWS)
        s.state[i][lane] = 0.0F;
    for (int step = 0; step < a.chunks; step++) {
        int chunk = a.backward ? a.chunks - 1 - step : step;
        int64_t at = (static_cast<int64_t>(sequence) * a.chunks + chunk) * a.heads + head;
        const float *transition = a.transitions + at * a.key_dim * a.key_dim;
        const float *end = a.ends + at * a.key_dim * a.value_dim;
        float *own = own_state(a, sequence, chunk, head);
        __syncthreads();
        for (int row = first; row < a.key_dim && there; row += ROWS) {
            float sum = end[static_cast<int64_t>(row) * a.value_dim + column];
            for (int i = 0; i < a.key_dim; i++)
                sum += transition_at(a, transition, row, i) * s.state[i][lane];
            s.next[row][lane] = sum;
            if (own)
                own[static_cast<int64_t>(row) * a.value_dim + column] = s.state[row][lane];
        }
        __syncthreads();
        for (int row = first; row < a.key_dim && there; row += ROWS)
            s.state[row][lane] = s.next[row][lane];
    }
}

} // namespace

cudaError_t kernel_delta_combine(cudaStream_t stream, const struct kernel_delta_combine_args *a)
{
    dim3 grid(static_cast<unsigned>((a->value_dim + COLUMNS - 1) / COLUMNS),
              static_cast<unsigned>(a->heads), static_cast<unsigned>(a->sequences));
    combine<<<grid, THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}
