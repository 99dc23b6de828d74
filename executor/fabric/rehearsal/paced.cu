/* Paced kernels: every thread moves its part of a piece, and goes on to the next when its share of
 * the time has passed. */
#include "executor/backend/cuda/device.cuh"
#include "executor/fabric/rehearsal/paced.h"

namespace
{

constexpr int THREADS = 512, UNROLLED = 4;
/* A block of NCCL's kernels holds as much of a multiprocessor's shared memory, so that no block of
 * a large matrix product finds room beside it; this one's must not leave more. */
constexpr int HELD_BYTES = 80 << 10;
constexpr uint64_t PIECE = THREADS * UNROLLED;

__device__ __forceinline__ uint64_t nanoseconds()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ __forceinline__ void wait_until(uint64_t end)
{
    while (nanoseconds() < end)
        __nanosleep(256);
}

/* A block's pieces of a whole of `units`, and when each is due. */
struct share {
    uint64_t begun, length, pieces, mine;
    __device__ share(uint64_t units, uint64_t piece, uint64_t time)
        : begun(nanoseconds()), length(time), pieces((units + piece - 1) / piece), mine(0)
    {
        if (blockIdx.x < pieces)
            mine = (pieces - blockIdx.x + gridDim.x - 1) / gridDim.x;
    }
    __device__ uint64_t first(uint64_t number, uint64_t piece) const
    {
        return (blockIdx.x + number * gridDim.x) * piece;
    }
    __device__ void done(uint64_t number) const
    {
        wait_until(begun + length * (number + 1) / mine);
    }
    __device__ void end() const
    {
        wait_until(begun + length);
    }
};

template <typename Unit>
__global__ void __launch_bounds__(THREADS)
    fill(Unit *to, uint64_t units, const Unit *from, uint64_t period, uint64_t time)
{
    const share s(units, PIECE, time);
    for (uint64_t number = 0; number < s.mine; number++) {
        uint64_t first = s.first(number, PIECE), start = first % period;
        Unit values[UNROLLED];
#pragma unroll
        for (int i = 0; i < UNROLLED; i++) {
            uint64_t at = start + threadIdx.x + static_cast<uint64_t>(i) * THREADS;
            if (at >= period)
                at = period >= PIECE ? at - period : at % period;
            values[i] = from[at];
        }
#pragma unroll
        for (int i = 0; i < UNROLLED; i++) {
            uint64_t at = first + threadIdx.x + static_cast<uint64_t>(i) * THREADS;
            if (at < units)
                to[at] = values[i];
        }
        s.done(number);
    }
    s.end();
}

/* Eight elements a thread. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    sum_eights(T *to, const T *from, uint64_t elements, int slices, uint64_t time)
{
    const uint64_t eights = elements / 8;
    const share s(eights, THREADS, time);
    for (uint64_t number = 0; number < s.mine; number++) {
        uint64_t at = (s.first(number, THREADS) + threadIdx.x) * 8;
        float total[8] = { 0 };
        if (at < elements) {
#pragma unroll 4
            for (int slice = 0; slice < slices; slice++) {
                float values[8];
                load_eight(from + slice * elements + at, values);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    total[i] += values[i];
            }
            store_eight(to + at, total);
        }
        s.done(number);
    }
    s.end();
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    sum_singles(T *to, const T *from, uint64_t elements, int slices, uint64_t time)
{
    const share s(elements, THREADS, time);
    for (uint64_t number = 0; number < s.mine; number++) {
        uint64_t at = s.first(number, THREADS) + threadIdx.x;
        float total = 0;
        for (int slice = 0; slice < slices && at < elements; slice++)
            total += load_one(from + slice * elements + at);
        if (at < elements)
            store_one(to + at, total);
        s.done(number);
    }
    s.end();
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    scale_eights(T *values, uint64_t elements, float factor, uint64_t time)
{
    const share s(elements / 8, THREADS, time);
    for (uint64_t number = 0; number < s.mine; number++) {
        uint64_t at = (s.first(number, THREADS) + threadIdx.x) * 8;
        float eight[8];
        if (at < elements) {
            load_eight(values + at, eight);
#pragma unroll
            for (int i = 0; i < 8; i++)
                eight[i] *= factor;
            store_eight(values + at, eight);
        }
        s.done(number);
    }
    s.end();
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    scale_singles(T *values, uint64_t elements, float factor, uint64_t time)
{
    const share s(elements, THREADS, time);
    for (uint64_t number = 0; number < s.mine; number++) {
        uint64_t at = s.first(number, THREADS) + threadIdx.x;
        if (at < elements)
            store_one(values + at, load_one(values + at) * factor);
        s.done(number);
    }
    s.end();
}

__global__ void note(uint64_t *mark)
{
    *mark = nanoseconds();
}

__global__ void wait(const uint64_t *mark, uint64_t time)
{
    wait_until(*mark + time);
}

uint64_t time_of(const pace *p)
{
    return p->seconds > 0 ? static_cast<uint64_t>(p->seconds * 1e9) : 0;
}

bool divides(uint64_t unit, const void *a, const void *b, uint64_t c, uint64_t d)
{
    return ((reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) | c | d) &
            (unit - 1)) == 0;
}

template <typename Kernel, typename... Arguments>
cudaError_t start(Kernel *kernel, const pace *p, Arguments... arguments)
{
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, HELD_BYTES);
    if (status != cudaSuccess)
        return status;
    kernel<<<p->blocks, THREADS, HELD_BYTES, p->stream>>>(arguments..., time_of(p));
    return cudaGetLastError();
}

template <typename Unit>
cudaError_t start_fill(const pace *p, void *to, uint64_t bytes, const void *from,
                       uint64_t from_bytes)
{
    return start(fill<Unit>, p, static_cast<Unit *>(to), bytes / sizeof(Unit),
                 static_cast<const Unit *>(from), from_bytes / sizeof(Unit));
}

template <typename T>
cudaError_t start_sum(const pace *p, void *to, const void *from, uint64_t elements, int slices)
{
    bool eights = divides(16, to, from, elements * sizeof(T), 0) && elements % 8 == 0;
    return start(eights ? sum_eights<T> : sum_singles<T>, p, static_cast<T *>(to),
                 static_cast<const T *>(from), elements, slices);
}

template <typename T>
cudaError_t start_scale(const pace *p, void *values, uint64_t elements, float factor)
{
    bool eights = divides(16, values, values, 0, 0) && elements % 8 == 0;
    return start(eights ? scale_eights<T> : scale_singles<T>, p, static_cast<T *>(values), elements,
                 factor);
}

} // namespace

cudaError_t paced_fill(const pace *p, void *to, uint64_t bytes, const void *from,
                       uint64_t from_bytes)
{
    if (divides(16, to, from, bytes, from_bytes))
        return start_fill<uint4>(p, to, bytes, from, from_bytes);
    if (divides(4, to, from, bytes, from_bytes))
        return start_fill<uint32_t>(p, to, bytes, from, from_bytes);
    return start_fill<uint8_t>(p, to, bytes, from, from_bytes);
}

cudaError_t paced_sum(const pace *p, void *to, const void *from, uint64_t elements, int slices,
                      bool is_float)
{
    return is_float ? start_sum<float>(p, to, from, elements, slices)
                    : start_sum<uint16_t>(p, to, from, elements, slices);
}

cudaError_t paced_scale(const pace *p, void *values, uint64_t elements, float factor, bool is_float)
{
    return is_float ? start_scale<float>(p, values, elements, factor)
                    : start_scale<uint16_t>(p, values, elements, factor);
}

cudaError_t paced_mark(cudaStream_t stream, uint64_t *mark)
{
    note<<<1, 1, 0, stream>>>(mark);
    return cudaGetLastError();
}

cudaError_t paced_wait(const pace *p, const uint64_t *mark)
{
    wait<<<1, 1, 0, p->stream>>>(mark, time_of(p));
    return cudaGetLastError();
}
