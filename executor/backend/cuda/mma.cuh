/* mma.cuh - products of 16 x 8 x 16 in bf16 with fp32 sums on the tensor cores, and the ways of
 * tiles between shared memory and registers. A lane holds of an accumulator's tile the rows lane /
 * 4 (c[0], c[1]) and lane / 4 + 8 (c[2], c[3]), columns 2 (lane % 4) and the next. Two adjacent
 * accumulators, rounded and packed, are the A operand of a product over their columns. */
#ifndef RANKFIT_EXECUTOR_BACKEND_CUDA_MMA_CUH
#define RANKFIT_EXECUTOR_BACKEND_CUDA_MMA_CUH

#include "executor/backend/cuda/device.cuh"

struct fragment {
    uint32_t r[4];
};

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

static __device__ __forceinline__ void load_matrices(fragment &f, const uint16_t *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void load_transposed(fragment &f, const uint16_t *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void multiply(float (&c)[4], const fragment &a, uint32_t b0,
                                                uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
}

/* Sixteen bytes into shared memory; zeros where not `there`. */
static __device__ __forceinline__ void copy_async(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All but the last PENDING groups have arrived. */
template <int PENDING> static __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
/* Operands for a product over 16 inner elements from `inner` on; `pitch` elements between rows, a
 * multiple of 8 whose eighth is odd, so that eight rows fall into different banks.
 * A, 16 rows from `row` on, of a matrix stored [row][inner], or stored [inner][row]. */
static __device__ __forceinline__ void load_a(fragment &f, const uint16_t *m, int pitch, int row,
                                              int inner)
{
    int lane = static_cast<int>(threadIdx.x % WARP), i = lane / 8, r = lane % 8;
    load_matrices(f, m + (row + i % 2 * 8 + r) * pitch + inner + i / 2 * 8);
}

static __device__ __forceinline__ void load_a_turned(fragment &f, const uint16_t *m, int pitch,
                                                     int row, int inner)
{
    int lane = static_cast<int>(threadIdx.x % WARP), i = lane / 8, r = lane % 8;
    load_transposed(f, m + (inner + i / 2 * 8 + r) * pitch + row + i % 2 * 8);
}

/* B for the two tiles of columns from `column` on (r[0], r[1] and r[2], r[3]), of a matrix stored
 * [column][inner], or stored [inner][column]. */
static __device__ __forceinline__ void load_b(fragment &f, const uint16_t *m, int pitch, int column,
                                              int inner)
{
    int lane = static_cast<int>(threadIdx.x % WARP), i = lane / 8, r = lane % 8;
    load_matrices(f, m + (column + i / 2 * 8 + r) * pitch + inner + i % 2 * 8);
}

static __device__ __forceinline__ void load_b_turned(fragment &f, const uint16_t *m, int pitch,
                                                     int column, int inner)
{
    int lane = static_cast<int>(threadIdx.x % WARP), i = lane / 8, r = lane % 8;
    load_transposed(f, m + (inner + i % 2 * 8 + r) * pitch + column + i / 2 * 8);
}

static __device__ __forceinline__ void multiply_pair(float (&c)[2][4], const fragment &a,
                                                     const fragment &b)
{
    multiply(c[0], a, b.r[0], b.r[1]);
    multiply(c[1], a, b.r[2], b.r[3]);
}

/* Two adjacent tiles as an A operand. */
static __device__ __forceinline__ void pack_tiles(fragment &f, const float (&c)[2][4])
{
    f.r[0] = pack_two(c[0][0], c[0][1]);
    f.r[1] = pack_two(c[0][2], c[0][3]);
    f.r[2] = pack_two(c[1][0], c[1][1]);
    f.r[3] = pack_two(c[1][2], c[1][3]);
}

static __device__ __forceinline__ float low_half(uint32_t both)
{
    return __uint_as_float(both << 16);
}

static __device__ __forceinline__ float high_half(uint32_t both)
{
    return __uint_as_float(both & 0xffff0000u);
}

#endif
