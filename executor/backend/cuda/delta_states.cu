/* The delta rule's chain backwards over a segment's chunks: gradients of states, and of values on
 * the way. As forward a warp owns sixteen value columns, now of G^T, the gradient of the state
 * behind a chunk: dU^T = E / exp(c) (G^T k^T) + dO^T P / sqrt(128);  dY^T = dU^T T;  dV^T = beta
 * dY^T; G^T = E G^T + (exp(c) dO)^T q / sqrt(128) - (beta exp(c) dY)^T k. */
#include "executor/backend/cuda/delta_chain.cuh"

namespace
{

template <int WARPS> struct stage {
    uint16_t k[CHUNK * WIDE], q[CHUNK * WIDE];
    uint16_t t[CHUNK * NARROW], p[CHUNK * NARROW], d_o[CHUNK * block<WARPS>::pitch];
    float gates[GATES];
};

template <int WARPS> struct tiles {
    stage<WARPS> stages[STAGES];
    uint16_t rows[16 * WARPS * WIDE]; /* gradients of states on their way out */
};

template <int WARPS>
__device__ __forceinline__ void load_stage(const kernel_delta_args &a, const block_place &at,
                                           int chunk, stage<WARPS> &s)
{
    constexpr int COLUMNS = block<WARPS>::columns;
    int thread = static_cast<int>(threadIdx.x) - WARPS * WARP;
    int count = delta_count(a, chunk);
    int64_t cell = delta_cell(a, at.run, chunk, at.head), channels = delta_channels_of(a);
    int64_t row = delta_row(a, at.run, chunk), width = static_cast<int64_t>(a.value_heads) * DIM;
    const uint16_t *from = a.qkv + row * channels;

    copy_tile<CHUNK, DIM, COPYING>(thread, s.k, WIDE, from + (a.key_heads + at.key_head) * DIM,
                                   channels, count);
    copy_tile<CHUNK, DIM, COPYING>(thread, s.q, WIDE, from + at.key_head * DIM, channels, count);
    copy_tile<CHUNK, CHUNK, COPYING>(thread, s.t, NARROW, a.inverse + cell * SQUARE, CHUNK, CHUNK);
    copy_tile<CHUNK, CHUNK, COPYING>(thread, s.p, NARROW, a.scores + cell * SQUARE, CHUNK, CHUNK);
    copy_tile<CHUNK, COLUMNS, COPYING>(thread, s.d_o, block<WARPS>::pitch,
                                       a.d_o + row * width + at.head * DIM + at.first, width,
                                       count);
    copy_gates(thread, s.gates, a, cell);
}

/* to += x m for m [token][token] lower triangular: tile i of 16 tokens sees those from itself on.
 */
__device__ __forceinline__ void back_through_triangle(const fragment (&x)[4], const uint16_t *m,
                                                      float (&to)[4][2][4])
{
#pragma unroll
    for (int inner = 0; inner < 4; inner++)
#pragma unroll
        for (int i = 0; i <= inner; i++) {
            fragment b;
            load_b_turned(b, m, NARROW, i * 16, inner * 16);
            multiply_pair(to[i], x[inner], b);
        }
}

/* Operands times exp(c) / sqrt(128) of their tokens. */
__device__ __forceinline__ void scale_operands(const float *gates, fragment (&x)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float2 g = gate_of(gates, 2 * i + e / 2);
            x[i].r[e] =
                pack_two(low_half(x[i].r[e]) * g.x * SCALE, high_half(x[i].r[e]) * g.y * SCALE);
        }
}

/* dY^T; d_o: the operands of the chunk. */
template <int WARPS>
__device__ __forceinline__ void solve(const stage<WARPS> &s, const fragment (&state)[8],
                                      const fragment (&d_o)[4], float (&y)[4][2][4])
{
    fragment d_u[4];
    float x[4][2][4];

    through_state(state, s.k, x);
    scale_tokens(s.gates + CHUNK, 1.0F, x);
    clear(y);
    back_through_triangle(d_o, s.p, y);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[i][j / 4][j % 4] += SCALE * y[i][j / 4][j % 4];
    round_tiles(d_u, x);
    clear(y);
    back_through_triangle(d_u, s.t, y);
}

template <bool ALL, int WARPS>
__device__ __forceinline__ void retreat(const kernel_delta_args &a, const block_place &at,
                                        int chunk, int column, stage<WARPS> &s, uint16_t *rows,
                                        float (&state)[8][2][4])
{
    fragment rounded[8], d_o[4], d_y[4];
    float y[4][2][4];

    round_tiles(rounded, state);
    if (ALL)
        store_state(rows, rounded,
                    a.behind +
                        (delta_cell(a, at.run, chunk, at.head) * DIM + at.first + column) * DIM);
#pragma unroll
    for (int i = 0; i < 4; i++)
        load_a_turned(d_o[i], s.d_o, block<WARPS>::pitch, column, i * 16);
    solve(s, rounded, d_o, y);
    scale_tokens(s.gates + 2 * CHUNK, 1.0F, y);
    scale_operands(s.gates, d_o);
    scale_state(state, s.gates[CHUNK - 1]);
    into_state(d_o, s.q, state);
    if (ALL) {
        int64_t channels = delta_channels_of(a);
        store_rows(s.d_o, block<WARPS>::pitch, column, y,
                   a.d_qkv + delta_row(a, at.run, chunk) * channels +
                       (2 * a.key_heads + at.head) * DIM + at.first,
                   channels, delta_count(a, chunk));
    }
    scale_tokens(s.gates, -1.0F, y);
    round_tiles(d_y, y);
    into_state(d_y, s.k, state);
}

template <bool ALL, int WARPS>
__global__ void __launch_bounds__(block<WARPS>::threads, 1)
    backward(const __grid_constant__ kernel_delta_args a)
{
    extern __shared__ uint4 room[];
    tiles<WARPS> &s = *reinterpret_cast<tiles<WARPS> *>(room);
    const block_place at = find_block<WARPS>(a);
    int warp = static_cast<int>(threadIdx.x) / WARP, column = warp * 16;
    bool copies = warp >= WARPS;
    float state[8][2][4];

    if (!copies)
        load_state(state_at(a.from, a.from_stride, at), false, at.first + column, state);
    for (int i = 0; i < STAGES - 1 && copies; i++) {
        if (i < a.chunks)
            load_stage(a, at, a.chunks - 1 - i, s.stages[i]);
        copies_commit();
    }
    for (int i = 0; i < a.chunks; i++) {
        int ahead = i + STAGES - 1;
        if (copies)
            copies_wait<STAGES - 2>();
        __syncthreads();
        if (!copies)
            retreat<ALL>(a, at, a.chunks - 1 - i, column, s.stages[i % STAGES],
                         s.rows + column * WIDE, state);
        else if (ahead < a.chunks)
            load_stage(a, at, a.chunks - 1 - ahead, s.stages[ahead % STAGES]);
        if (copies)
            copies_commit();
    }
    if (!copies && a.to)
        save_state(state_at(a.to, a.to_stride, at), at.first + column, state);
}

template <bool ALL, int WARPS> cudaError_t launch(cudaStream_t stream, const kernel_delta_args *a)
{
    constexpr int BYTES = static_cast<int>(sizeof(tiles<WARPS>));
    cudaError_t status = cudaFuncSetAttribute(backward<ALL, WARPS>,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    if (status != cudaSuccess)
        return status;
    dim3 grid(DIM / block<WARPS>::columns, static_cast<unsigned>(a->value_heads),
              static_cast<unsigned>(a->runs));
    backward<ALL, WARPS><<<grid, block<WARPS>::threads, BYTES, stream>>>(*a);
    return cudaGetLastError();
}

template <bool ALL> cudaError_t choose(cudaStream_t stream, const kernel_delta_args *a)
{
    if (a->warps == 1)
        return launch<ALL, 1>(stream, a);
    return a->warps == 2 ? launch<ALL, 2>(stream, a) : launch<ALL, 4>(stream, a);
}

} // namespace

cudaError_t kernel_delta_states_backward(cudaStream_t stream, const struct kernel_delta_args *a)
{
    return a->d_qkv ? choose<true>(stream, a) : choose<false>(stream, a);
}
