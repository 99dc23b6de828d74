/* The delta rule's chain over a segment's chunks: states and outputs. A warp owns sixteen value
 * columns of a head's state for good, transposed, in registers: S^T [16 values, 128 keys]. All
 * products have these sixteen rows, so that one product is the next one's operand without
 * leaving the registers, and warps wait for nothing but tiles:
 *   X^T = S^T k^T;  Y^T = beta (v^T - exp(c) X^T);  U^T = Y^T T^T with T = (I + B)^-1;
 *   o^T = (exp(c) S^T q^T + U^T P^T) / sqrt(128);  S^T = E S^T + (E / exp(c) U)^T k.
 * States and U are rounded to bf16 as operands; the state itself stays in fp32. */
#include "executor/backend/cuda/delta_chain.cuh"

namespace
{

/* ENDS: states alone. */
enum mode { WITH_OUTPUT, KEEPING, ENDS };

template <int WARPS> struct stage {
    uint16_t k[CHUNK * WIDE], t[CHUNK * NARROW], v[CHUNK * block<WARPS>::pitch];
    float gates[GATES];
    uint16_t q[CHUNK * WIDE], p[CHUNK * NARROW]; /* last: of outputs alone */
};

/* Bytes of a stage, and of all that a block has. */
template <mode MODE, int WARPS> struct sizes {
    static constexpr int all = static_cast<int>(sizeof(stage<WARPS>));
    static constexpr int stage_bytes =
        MODE == WITH_OUTPUT ? all : all - 2 * (CHUNK * WIDE + CHUNK * NARROW);
    static constexpr int stages = STAGES * stage_bytes;
    static constexpr int room = stages + (MODE == KEEPING ? 2 * 16 * WARPS * WIDE : 0);
};

template <mode MODE, int WARPS>
__device__ __forceinline__ void load_stage(const kernel_delta_args &a, const block_place &at,
                                           int chunk, stage<WARPS> &s)
{
    constexpr int COLUMNS = block<WARPS>::columns;
    int thread = static_cast<int>(threadIdx.x) - WARPS * WARP;
    int count = delta_count(a, chunk);
    int64_t cell = delta_cell(a, at.run, chunk, at.head), channels = delta_channels_of(a);
    const uint16_t *from = a.qkv + delta_row(a, at.run, chunk) * channels;

    copy_tile<CHUNK, DIM, COPYING>(thread, s.k, WIDE, from + (a.key_heads + at.key_head) * DIM,
                                   channels, count);
    copy_tile<CHUNK, CHUNK, COPYING>(thread, s.t, NARROW, a.inverse + cell * SQUARE, CHUNK, CHUNK);
    copy_tile<CHUNK, COLUMNS, COPYING>(thread, s.v, block<WARPS>::pitch,
                                       from + (2 * a.key_heads + at.head) * DIM + at.first,
                                       channels, at.zeros ? 0 : count);
    if (MODE == WITH_OUTPUT) {
        copy_tile<CHUNK, DIM, COPYING>(thread, s.q, WIDE, from + at.key_head * DIM, channels,
                                       count);
        copy_tile<CHUNK, CHUNK, COPYING>(thread, s.p, NARROW, a.scores + cell * SQUARE, CHUNK,
                                         CHUNK);
    }
    copy_gates(thread, s.gates, a, cell);
}

/* x becomes Y^T, rounded into y. */
template <int WARPS>
__device__ __forceinline__ void form_y(const stage<WARPS> &s, int column, float (&x)[4][2][4],
                                       fragment (&y)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        fragment v;
        load_a_turned(v, s.v, block<WARPS>::pitch, column, i * 16);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float2 e = gate_of(s.gates, 2 * i + j), beta = gate_of(s.gates + 2 * CHUNK, 2 * i + j);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t both = v.r[2 * j + half];
                float *at = x[i][j] + 2 * half;
                at[0] = beta.x * (low_half(both) - e.x * at[0]);
                at[1] = beta.y * (high_half(both) - e.y * at[1]);
            }
        }
        pack_tiles(y[i], x[i]);
    }
}

/* column: the warp's first within the block; rows: its own, for states on their way out. */
template <mode MODE, int WARPS>
__device__ __forceinline__ void advance(const kernel_delta_args &a, const block_place &at,
                                        int chunk, int column, stage<WARPS> &s, uint16_t *rows,
                                        float (&state)[8][2][4])
{
    fragment rounded[8], y[4], u[4];
    float x[4][2][4], out[4][2][4];

    round_tiles(rounded, state);
    through_state(rounded, s.k, x);
    form_y(s, column, x, y);
    if (MODE == KEEPING)
        store_state(rows, rounded,
                    a.before +
                        (delta_cell(a, at.run, chunk, at.head) * DIM + at.first + column) * DIM);
    if (MODE == WITH_OUTPUT) {
        through_state(rounded, s.q, out);
        scale_tokens(s.gates, 1.0F, out);
    }
    clear(x);
    through_triangle(y, s.t, x);
    if (MODE == WITH_OUTPUT) {
        round_tiles(u, x);
        through_triangle(u, s.p, out);
    }
    scale_tokens(s.gates + CHUNK, 1.0F, x);
    round_tiles(u, x);
    scale_state(state, s.gates[CHUNK - 1]);
    into_state(u, s.k, state);
    if (MODE == WITH_OUTPUT) {
        int64_t width = static_cast<int64_t>(a.value_heads) * DIM;
        scale_state(out, SCALE);
        store_rows(s.v, block<WARPS>::pitch, column, out,
                   a.o + delta_row(a, at.run, chunk) * width + at.head * DIM + at.first, width,
                   delta_count(a, chunk));
    }
}

template <mode MODE, int WARPS>
__device__ __forceinline__ stage<WARPS> &stage_of(char *room, int chunk)
{
    return *reinterpret_cast<stage<WARPS> *>(room +
                                             chunk % STAGES * sizes<MODE, WARPS>::stage_bytes);
}

/* The first states of a warp's columns. */
__device__ __forceinline__ void begin(const kernel_delta_args &a, const block_place &at, int column,
                                      float (&state)[8][2][4])
{
    const float *from = at.zeros ? state_at(a.transition_from, a.value_heads * DIM * DIM, at)
                                 : state_at(a.from, a.from_stride, at);
    load_state(from, at.zeros, at.first + column, state);
    if (a.kept && !at.zeros)
        save_state(state_at(a.kept, a.kept_stride, at), at.first + column, state);
}

__device__ __forceinline__ void end(const kernel_delta_args &a, const block_place &at, int column,
                                    float (&state)[8][2][4])
{
    float *to = at.zeros ? state_at(a.transition_to, a.value_heads * DIM * DIM, at)
                         : state_at(a.to, a.to_stride, at);
    if (to)
        save_state(to, at.first + column, state);
}

template <mode MODE, int WARPS>
__global__ void __launch_bounds__(block<WARPS>::threads, 1)
    forward(const __grid_constant__ kernel_delta_args a)
{
    extern __shared__ uint4 room[];
    char *stages = reinterpret_cast<char *>(room);
    const block_place at = find_block<WARPS>(a);
    int warp = static_cast<int>(threadIdx.x) / WARP, column = warp * 16;
    bool copies = warp >= WARPS;
    uint16_t *rows =
        reinterpret_cast<uint16_t *>(stages + sizes<MODE, WARPS>::stages) + column * WIDE;
    float state[8][2][4];

    if (!copies)
        begin(a, at, column, state);
    for (int chunk = 0; chunk < STAGES - 1 && copies; chunk++) {
        if (chunk < a.chunks)
            load_stage<MODE, WARPS>(a, at, chunk, stage_of<MODE, WARPS>(stages, chunk));
        copies_commit();
    }
    for (int chunk = 0; chunk < a.chunks; chunk++) {
        int ahead = chunk + STAGES - 1;
        if (copies)
            copies_wait<STAGES - 2>();
        __syncthreads();
        if (!copies)
            advance<MODE, WARPS>(a, at, chunk, column, stage_of<MODE, WARPS>(stages, chunk), rows,
                                 state);
        else if (ahead < a.chunks)
            load_stage<MODE, WARPS>(a, at, ahead, stage_of<MODE, WARPS>(stages, ahead));
        if (copies)
            copies_commit();
    }
    if (!copies)
        end(a, at, column, state);
}

template <mode MODE, int WARPS> cudaError_t launch(cudaStream_t stream, const kernel_delta_args *a)
{
    constexpr int BYTES = sizes<MODE, WARPS>::room, BLOCKS = DIM / block<WARPS>::columns;
    cudaError_t status = cudaFuncSetAttribute(forward<MODE, WARPS>,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    if (status != cudaSuccess)
        return status;
    dim3 grid(a->transition_to ? 2 * BLOCKS : BLOCKS, static_cast<unsigned>(a->value_heads),
              static_cast<unsigned>(a->runs));
    forward<MODE, WARPS><<<grid, block<WARPS>::threads, BYTES, stream>>>(*a);
    return cudaGetLastError();
}

template <mode MODE> cudaError_t choose(cudaStream_t stream, const kernel_delta_args *a)
{
    if (a->warps == 1)
        return launch<MODE, 1>(stream, a);
    return a->warps == 2 ? launch<MODE, 2>(stream, a) : launch<MODE, 4>(stream, a);
}

} // namespace

cudaError_t kernel_delta_forward(cudaStream_t stream, const struct kernel_delta_args *a)
{
    if (a->before)
        return choose<KEEPING>(stream, a);
    return a->o ? choose<WITH_OUTPUT>(stream, a) : choose<ENDS>(stream, a);
}
