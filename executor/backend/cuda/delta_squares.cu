/* Products of keys and queries alone of a chunk of the delta rule: with c_t the sum of decays up to
 * token t and D_ts = exp(c_t - c_s), P = (q k^T) D for s <= t and the inverse of I + B,
 * B = beta (k k^T) D for s < t. One block a chunk and key head; four warps, sixteen rows each. The
 * inverse is made in fp32: of the four blocks on the diagonal by substitution, below them block by
 * block, T_ij = -T_ii (sum over j <= m < i of B_im T_mj). */
#include "executor/backend/cuda/delta.cuh"

namespace
{

constexpr int THREADS = 128, BLOCK = 16, LINE = CHUNK + 4;

struct tiles {
    uint16_t q[CHUNK * WIDE], k[CHUNK * WIDE];
    float b[CHUNK * LINE], t[CHUNK * LINE];
    float gates[GATES];
};

/* c by a scan of the first two warps, and the gates that follow from it. */
__device__ __forceinline__ void fill_gates(const kernel_delta_args &a, int run, int chunk, int head,
                                           int count, tiles &s)
{
    int t = static_cast<int>(threadIdx.x), lane = t % WARP;
    int64_t gate = (delta_row(a, run, chunk) + t) * a.value_heads + head;
    bool there = t < count;
    if (t < CHUNK) {
        float c = there ? a.decay[gate] : 0.0F;
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            float below = __shfl_up_sync(EVERY_LANE, c, step);
            c += lane >= step ? below : 0.0F;
        }
        s.gates[3 * CHUNK + t] = c;
        s.gates[2 * CHUNK + t] = there ? a.beta[gate] : 0.0F;
    }
    __syncthreads();
    float first = s.gates[3 * CHUNK + WARP - 1], last = first + s.gates[4 * CHUNK - 1];
    float c = t < CHUNK ? s.gates[3 * CHUNK + t] + (t >= WARP ? first : 0.0F) : 0.0F;
    __syncthreads();
    if (t < CHUNK) {
        s.gates[t] = __expf(c);
        s.gates[CHUNK + t] = __expf(last - c);
        s.gates[3 * CHUNK + t] = c;
    }
    __syncthreads();
    float *to = a.gates + delta_cell(a, run, chunk, head) * GATES;
    for (int i = t; i < GATES; i += THREADS)
        to[i] = s.gates[i];
}

/* q k^T and k k^T of this warp's rows. */
__device__ __forceinline__ void multiply_rows(const tiles &s, float (&qk)[8][4], float (&kk)[8][4])
{
    int row = static_cast<int>(threadIdx.x) / WARP * BLOCK;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            qk[i][j] = kk[i][j] = 0.0F;
#pragma unroll
    for (int inner = 0; inner < DIM; inner += 16) {
        fragment q, k, b;
        load_a(q, s.q, WIDE, row, inner);
        load_a(k, s.k, WIDE, row, inner);
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            load_b(b, s.k, WIDE, i * 8, inner);
            multiply(qk[i], q, b.r[0], b.r[1]);
            multiply(qk[i + 1], q, b.r[2], b.r[3]);
            multiply(kk[i], k, b.r[0], b.r[1]);
            multiply(kk[i + 1], k, b.r[2], b.r[3]);
        }
    }
}

/* P to its place, B into shared memory. */
__device__ __forceinline__ void decay_rows(const float (&qk)[8][4], const float (&kk)[8][4],
                                           uint16_t *scores, tiles &s)
{
    int lane = static_cast<int>(threadIdx.x % WARP);
    int first = static_cast<int>(threadIdx.x) / WARP * BLOCK + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int t = first + 8 * half;
        float c = s.gates[3 * CHUNK + t], beta = s.gates[2 * CHUNK + t];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int at = i * 8 + lane % 4 * 2;
            float p[2];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float d = at + j <= t ? __expf(c - s.gates[3 * CHUNK + at + j]) : 0.0F;
                p[j] = qk[i][2 * half + j] * d;
                s.b[t * LINE + at + j] = at + j < t ? beta * kk[i][2 * half + j] * d : 0.0F;
            }
            *reinterpret_cast<uint32_t *>(scores + t * CHUNK + at) = pack_two(p[0], p[1]);
        }
    }
}

/* The inverse of a block on the diagonal: a lane has a column. */
__device__ __forceinline__ void invert_block(tiles &s)
{
    int at = static_cast<int>(threadIdx.x) / WARP * BLOCK;
    int column = static_cast<int>(threadIdx.x % WARP) % BLOCK;
    float x[BLOCK];
#pragma unroll
    for (int i = 0; i < BLOCK; i++) {
        float sum = i == column ? 1.0F : 0.0F;
#pragma unroll
        for (int m = 0; m < i; m++)
            sum -= s.b[(at + i) * LINE + at + m] * x[m];
        x[i] = sum;
    }
    if (threadIdx.x % WARP < BLOCK)
#pragma unroll
        for (int i = 0; i < BLOCK; i++)
            s.t[(at + i) * LINE + at + column] = x[i];
}

/* sums[r] += row (half * 8 + r) of the block at a times the lane's column of the block at b. */
__device__ __forceinline__ void multiply_block(const float *a, const float *b, float (&sums)[8])
{
    int column = static_cast<int>(threadIdx.x % WARP) % BLOCK;
    int half = static_cast<int>(threadIdx.x % WARP) / BLOCK * 8;
#pragma unroll
    for (int inner = 0; inner < BLOCK; inner += 4) {
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[j] = b[(inner + j) * LINE + column];
#pragma unroll
        for (int r = 0; r < 8; r++) {
            float4 row = *reinterpret_cast<const float4 *>(a + (half + r) * LINE + inner);
            sums[r] += row.x * x[0] + row.y * x[1] + row.z * x[2] + row.w * x[3];
        }
    }
}

/* Block i, j of the inverse, by one warp; the block above the diagonal at j, i is scratch. */
__device__ __forceinline__ void fill_block(tiles &s, int i, int j)
{
    int column = static_cast<int>(threadIdx.x % WARP) % BLOCK;
    int half = static_cast<int>(threadIdx.x % WARP) / BLOCK * 8;
    float sums[8] = { 0 }, last[8] = { 0 };
    float *scratch = s.t + j * BLOCK * LINE + i * BLOCK;
    for (int m = j; m < i; m++)
        multiply_block(s.b + i * BLOCK * LINE + m * BLOCK, s.t + m * BLOCK * LINE + j * BLOCK,
                       sums);
#pragma unroll
    for (int r = 0; r < 8; r++)
        scratch[(half + r) * LINE + column] = sums[r];
    __syncwarp();
    multiply_block(s.t + i * BLOCK * LINE + i * BLOCK, scratch, last);
#pragma unroll
    for (int r = 0; r < 8; r++)
        s.t[(i * BLOCK + half + r) * LINE + j * BLOCK + column] = -last[r];
}

__device__ __forceinline__ void invert(tiles &s, uint16_t *inverse)
{
    int warp = static_cast<int>(threadIdx.x) / WARP;
    invert_block(s);
#pragma unroll
    for (int below = 1; below < CHUNK / BLOCK; below++) {
        __syncthreads();
        if (warp + below < CHUNK / BLOCK)
            fill_block(s, warp + below, warp);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < SQUARE / 8; i += THREADS) {
        int t = i / 8, at = i % 8 * 8;
        float x[8];
#pragma unroll
        for (int j = 0; j < 8; j++) /* whole blocks above the diagonal hold scratch */
            x[j] = at + j <= t ? s.t[t * LINE + at + j] : 0.0F;
        store_vector(inverse + t * CHUNK + at, pack(x));
    }
}

__global__ void __launch_bounds__(THREADS, 2) squares(const __grid_constant__ kernel_delta_args a)
{
    extern __shared__ uint4 room[];
    tiles &s = *reinterpret_cast<tiles *>(room);
    int chunk = static_cast<int>(blockIdx.x), key_head = static_cast<int>(blockIdx.y);
    int run = static_cast<int>(blockIdx.z), each = a.value_heads / a.key_heads;
    int count = delta_count(a, chunk), thread = static_cast<int>(threadIdx.x);
    const uint16_t *from = a.qkv + delta_row(a, run, chunk) * delta_channels_of(a) + key_head * DIM;
    float qk[8][4], kk[8][4];

    copy_tile<CHUNK, DIM, THREADS>(thread, s.q, WIDE, from, delta_channels_of(a), count);
    copy_tile<CHUNK, DIM, THREADS>(thread, s.k, WIDE, from + a.key_heads * DIM,
                                   delta_channels_of(a), count);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    multiply_rows(s, qk, kk);
    for (int i = 0; i < each; i++) {
        int64_t cell = delta_cell(a, run, chunk, key_head * each + i);
        __syncthreads();
        fill_gates(a, run, chunk, key_head * each + i, count, s);
        decay_rows(qk, kk, a.scores + cell * SQUARE, s);
        __syncthreads();
        invert(s, a.inverse + cell * SQUARE);
    }
}

} // namespace

cudaError_t kernel_delta_squares(cudaStream_t stream, const struct kernel_delta_args *a)
{
    cudaError_t status = cudaFuncSetAttribute(squares, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(sizeof(tiles)));
    if (status != cudaSuccess)
        return status;
    dim3 grid(static_cast<unsigned>(a->chunks), static_cast<unsigned>(a->key_heads),
              static_cast<unsigned>(a->runs));
    squares<<<grid, THREADS, sizeof(tiles), stream>>>(*a);
    return cudaGetLastError();
}
