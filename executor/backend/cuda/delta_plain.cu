/* The delta rule token by token in fp32 without matrix units. With S' = exp(g) S before the token,
 * h = S'^T k and w = beta (v - h):  S = S' + k w^T;  o = S^T q / sqrt(key_dim). Slow and plain: for
 * heads that the tiled kernels do not serve, and the judge of those. Columns of a state do not
 * meet, so that forward a thread has some of them. Backward with G the gradient of S: dw = G^T k;
 * dh = -beta dw;  dS' = G + k dh^T;  dk = G w + S' dh;  dq = S do / sqrt(key_dim) and so on; a
 * block has the value heads of a key head, whose queries and keys they share, and makes states
 * again: before every BLOCK tokens of a kept segment, and before every token of a block. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

namespace
{

constexpr int THREADS = 128, BLOCK = 64, SEGMENT = KERNEL_DELTA_SEGMENT;

using args = kernel_delta_plain_args;

/* The part of a block: run, value head and where its values are in a row of qkv. */
struct place {
    int64_t row, head_count; /* first row of the run */
    int run, head;
    int64_t q, k, v, channels;
};

__device__ __forceinline__ place find_head(const args &a, int run, int head)
{
    int64_t keys = static_cast<int64_t>(a.key_heads) * a.key_dim;
    int64_t key = static_cast<int64_t>(head / (a.value_heads / a.key_heads)) * a.key_dim;
    place p;
    p.run = run;
    p.head = head;
    p.head_count = a.value_heads;
    p.row = run * a.tokens;
    p.q = key;
    p.k = keys + key;
    p.v = 2 * keys + static_cast<int64_t>(head) * a.value_dim;
    p.channels = 2 * keys + static_cast<int64_t>(a.value_heads) * a.value_dim;
    return p;
}

__device__ __forceinline__ int64_t gate_at(const place &p, int64_t t)
{
    return (p.row + t) * p.head_count + p.head;
}

__device__ __forceinline__ int64_t state_size(const args &a)
{
    return static_cast<int64_t>(a.key_dim) * a.value_dim;
}

/* A run's and head's state in a tensor of them. */
__device__ __forceinline__ int64_t state_offset(const place &p, int64_t size)
{
    return (p.run * p.head_count + p.head) * size;
}

/* Where the state before a segment is kept. */
__device__ __forceinline__ float *kept_state(const args &a, const place &p, int64_t segment)
{
    int64_t segments = (a.tokens + SEGMENT - 1) / SEGMENT;
    return a.states + ((p.run * segments + segment) * p.head_count + p.head) * state_size(a);
}

/* Column j of the state goes through token t; `value` of it. Returns the output's. */
__device__ __forceinline__ float step(const args &a, const place &p, int64_t t, float value,
                                      float *state, int columns, int j)
{
    const uint16_t *row = a.qkv + (p.row + t) * p.channels;
    float decay = expf(a.decay[gate_at(p, t)]), beta = a.beta[gate_at(p, t)], held = 0, out = 0;
    for (int i = 0; i < a.key_dim; i++) {
        float x = decay * state[static_cast<int64_t>(i) * columns + j];
        held += x * bf16_to_float(row[p.k + i]);
        state[static_cast<int64_t>(i) * columns + j] = x;
    }
    float write = beta * (value - held);
    for (int i = 0; i < a.key_dim; i++) {
        float x =
            state[static_cast<int64_t>(i) * columns + j] + bf16_to_float(row[p.k + i]) * write;
        out += x * bf16_to_float(row[p.q + i]);
        state[static_cast<int64_t>(i) * columns + j] = x;
    }
    return out * rsqrtf(static_cast<float>(a.key_dim));
}

__device__ __forceinline__ float value_of(const args &a, const place &p, int64_t t, int j)
{
    return bf16_to_float(a.qkv[(p.row + t) * p.channels + p.v + j]);
}

__device__ __forceinline__ void copy_column(const float *from, float *to, int rows, int columns,
                                            int j)
{
    for (int i = 0; i < rows; i++)
        to[static_cast<int64_t>(i) * columns + j] =
            from ? from[static_cast<int64_t>(i) * columns + j] : 0.0F;
}

__device__ __forceinline__ void run_column(const args &a, const place &p, float *state, int j)
{
    int64_t at = state_offset(p, state_size(a));
    copy_column(a.initial ? a.initial + at : nullptr, state, a.key_dim, a.value_dim, j);
    for (int64_t t = 0; t < a.tokens; t++) {
        if (a.states && t % SEGMENT == 0)
            copy_column(state, kept_state(a, p, t / SEGMENT), a.key_dim, a.value_dim, j);
        float out = step(a, p, t, value_of(a, p, t, j), state, a.value_dim, j);
        if (a.o)
            a.o[gate_at(p, t) * a.value_dim + j] = bf16_from_float(out);
    }
    if (a.final)
        copy_column(state, a.final + at, a.key_dim, a.value_dim, j);
}

/* The unit states, where there are no values. */
__device__ __forceinline__ void run_unit_column(const args &a, const place &p, int j)
{
    float *state = a.transition + state_offset(p, static_cast<int64_t>(a.key_dim) * a.key_dim);
    for (int i = 0; i < a.key_dim; i++)
        state[static_cast<int64_t>(i) * a.key_dim + j] = i == j ? 1.0F : 0.0F;
    for (int64_t t = 0; t < a.tokens; t++)
        (void)step(a, p, t, 0.0F, state, a.key_dim, j);
}

__global__ void __launch_bounds__(THREADS) forward(const __grid_constant__ args a)
{
    int index = a.first + static_cast<int>(blockIdx.x);
    const place p = find_head(a, index / a.value_heads, index % a.value_heads);
    float *state = a.workspace + blockIdx.x * state_size(a);
    for (int j = static_cast<int>(threadIdx.x); j < a.value_dim; j += THREADS)
        run_column(a, p, state, j);
    for (int j = static_cast<int>(threadIdx.x); j < a.key_dim && a.transition; j += THREADS)
        run_unit_column(a, p, j);
}

/* Vectors of one token that threads share. */
struct token {
    float q[KERNEL_DELTA_WIDE], k[KERNEL_DELTA_WIDE];
    float d_q[KERNEL_DELTA_WIDE], d_k[KERNEL_DELTA_WIDE]; /* over the value heads */
    float d_o[KERNEL_DELTA_WIDE], w[KERNEL_DELTA_WIDE], d_h[KERNEL_DELTA_WIDE];
    float room[2][WARP];
};

/* Of one value head: the gradient of its state, and states before blocks and before tokens. */
struct head_states {
    float *gradient, *blocks, *tokens;
};

__device__ __forceinline__ head_states states_of(const args &a, int value_head)
{
    int64_t size = state_size(a), each = a.value_heads / a.key_heads;
    int64_t one = (1 + SEGMENT / BLOCK + BLOCK) * size;
    head_states s;
    s.gradient = a.workspace + (blockIdx.x * each + value_head) * one;
    s.blocks = s.gradient + size;
    s.tokens = s.blocks + SEGMENT / BLOCK * size;
    return s;
}

/* States before the blocks of a segment, from its saved state. */
__device__ __forceinline__ void fill_blocks(const args &a, const place &p, int64_t first,
                                            int64_t end, const head_states &s)
{
    int64_t size = state_size(a);
    for (int j = static_cast<int>(threadIdx.x); j < a.value_dim; j += THREADS) {
        copy_column(kept_state(a, p, first / SEGMENT), s.tokens, a.key_dim, a.value_dim, j);
        for (int64_t t = first; t < end; t++) {
            if ((t - first) % BLOCK == 0)
                copy_column(s.tokens, s.blocks + (t - first) / BLOCK * size, a.key_dim, a.value_dim,
                            j);
            (void)step(a, p, t, value_of(a, p, t, j), s.tokens, a.value_dim, j);
        }
    }
}

__device__ __forceinline__ void fill_tokens(const args &a, const place &p, int64_t first,
                                            int64_t end, const float *before, float *tokens)
{
    int64_t size = state_size(a);
    for (int j = static_cast<int>(threadIdx.x); j < a.value_dim; j += THREADS) {
        copy_column(before, tokens, a.key_dim, a.value_dim, j);
        for (int64_t t = first; t + 1 < end; t++) {
            float *state = tokens + (t - first) * size;
            copy_column(state, state + size, a.key_dim, a.value_dim, j);
            (void)step(a, p, t, value_of(a, p, t, j), state + size, a.value_dim, j);
        }
    }
}

/* By columns: w, dh, dv, and G with the share of the output. Returns this thread's share of dbeta.
 */
__device__ __forceinline__ float back_columns(const args &a, const place &p, int64_t t,
                                              const float *state, float *gradient, token &s)
{
    float decay = expf(a.decay[gate_at(p, t)]), beta = a.beta[gate_at(p, t)], d_beta = 0;
    float scale = rsqrtf(static_cast<float>(a.key_dim));
    for (int j = static_cast<int>(threadIdx.x); j < a.value_dim; j += THREADS) {
        float d_o = scale * bf16_to_float(a.d_o[gate_at(p, t) * a.value_dim + j]);
        float held = 0, d_w = 0;
        for (int i = 0; i < a.key_dim; i++) {
            int64_t at = static_cast<int64_t>(i) * a.value_dim + j;
            float g = gradient[at] + s.q[i] * d_o;
            held += decay * state[at] * s.k[i];
            d_w += g * s.k[i];
            gradient[at] = g;
        }
        float missing = value_of(a, p, t, j) - held;
        s.d_o[j] = d_o;
        s.w[j] = beta * missing;
        s.d_h[j] = -beta * d_w;
        d_beta += d_w * missing;
        if (a.d_qkv)
            a.d_qkv[(p.row + t) * p.channels + p.v + j] = bf16_from_float(beta * d_w);
    }
    return d_beta;
}

/* By rows: dq, dk, and G before the token. Returns this thread's share of dg. */
__device__ __forceinline__ float back_rows(const args &a, const place &p, int64_t t,
                                           const float *state, float *gradient, token &s)
{
    float decay = expf(a.decay[gate_at(p, t)]), d_g = 0;
    for (int i = static_cast<int>(threadIdx.x); i < a.key_dim; i += THREADS) {
        float d_q = 0, d_k = 0;
        for (int j = 0; j < a.value_dim; j++) {
            int64_t at = static_cast<int64_t>(i) * a.value_dim + j;
            float before = decay * state[at], g = gradient[at];
            float d_before = g + s.k[i] * s.d_h[j];
            d_q += (before + s.k[i] * s.w[j]) * s.d_o[j];
            d_k += g * s.w[j] + before * s.d_h[j];
            d_g += d_before * before;
            gradient[at] = decay * d_before;
        }
        s.d_q[i] += d_q;
        s.d_k[i] += d_k;
    }
    return d_g;
}

__device__ __forceinline__ void open_token(const args &a, const place &p, int64_t t, token &s)
{
    const uint16_t *row = a.qkv + (p.row + t) * p.channels;
    for (int i = static_cast<int>(threadIdx.x); i < a.key_dim; i += THREADS) {
        s.q[i] = bf16_to_float(row[p.q + i]);
        s.k[i] = bf16_to_float(row[p.k + i]);
        s.d_q[i] = s.d_k[i] = 0.0F;
    }
    __syncthreads();
}

/* One token backward: every value head of the key head. */
__device__ void back_token(const args &a, int run, int key_head, int64_t t, int64_t first, token &s)
{
    int each = a.value_heads / a.key_heads;
    open_token(a, find_head(a, run, key_head * each), t, s);
    for (int e = 0; e < each; e++) {
        const place p = find_head(a, run, key_head * each + e);
        const head_states kept = states_of(a, e);
        const float *state = kept.tokens + (t - first) * state_size(a);
        float d_beta = back_columns(a, p, t, state, kept.gradient, s);
        __syncthreads();
        float d_g = back_rows(a, p, t, state, kept.gradient, s);
        d_beta = block_sum(d_beta, s.room[0]);
        d_g = block_sum(d_g, s.room[1]);
        if (a.d_qkv && threadIdx.x == 0) {
            a.d_beta[gate_at(p, t)] = d_beta;
            a.d_decay[gate_at(p, t)] = d_g;
        }
        __syncthreads();
    }
    const place p = find_head(a, run, key_head * each);
    uint16_t *row = a.d_qkv ? a.d_qkv + (p.row + t) * p.channels : nullptr;
    for (int i = static_cast<int>(threadIdx.x); i < a.key_dim && row; i += THREADS) {
        row[p.q + i] = bf16_from_float(s.d_q[i]);
        row[p.k + i] = bf16_from_float(s.d_k[i]);
    }
    __syncthreads();
}

__device__ void back_segment(const args &a, int run, int key_head, int64_t first, int64_t end,
                             token &s)
{
    int each = a.value_heads / a.key_heads;
    for (int e = 0; e < each; e++)
        fill_blocks(a, find_head(a, run, key_head * each + e), first, end, states_of(a, e));
    for (int64_t block = (end - first - 1) / BLOCK; block >= 0; block--) {
        int64_t from = first + block * BLOCK, to = from + BLOCK < end ? from + BLOCK : end;
        for (int e = 0; e < each; e++) {
            const head_states kept = states_of(a, e);
            fill_tokens(a, find_head(a, run, key_head * each + e), from, to,
                        kept.blocks + block * state_size(a), kept.tokens);
        }
        __syncthreads();
        for (int64_t t = to - 1; t >= from; t--)
            back_token(a, run, key_head, t, from, s);
    }
}

/* The gradient of a head's states, from behind the run or to before it. */
__device__ __forceinline__ void move_gradient(const args &a, const place &p, const float *from,
                                              float *to)
{
    for (int64_t i = threadIdx.x; i < state_size(a); i += THREADS)
        to[i] = from ? from[i] : 0.0F;
}

__global__ void __launch_bounds__(THREADS) backward(const __grid_constant__ args a)
{
    __shared__ token s;
    int index = a.first + static_cast<int>(blockIdx.x), each = a.value_heads / a.key_heads;
    int run = index / a.key_heads, key_head = index % a.key_heads;
    for (int e = 0; e < each; e++) {
        const place p = find_head(a, run, key_head * each + e);
        move_gradient(a, p, a.d_final ? a.d_final + state_offset(p, state_size(a)) : nullptr,
                      states_of(a, e).gradient);
    }
    __syncthreads();
    for (int64_t first = (a.tokens - 1) / SEGMENT * SEGMENT; first >= 0; first -= SEGMENT)
        back_segment(a, run, key_head, first,
                     first + SEGMENT < a.tokens ? first + SEGMENT : a.tokens, s);
    for (int e = 0; e < each && a.d_initial; e++) {
        const place p = find_head(a, run, key_head * each + e);
        move_gradient(a, p, states_of(a, e).gradient, a.d_initial + state_offset(p, state_size(a)));
    }
}

} // namespace

int64_t kernel_delta_plain_bytes(int heads, int key_dim, int value_dim, bool backward)
{
    int64_t size = 4 * static_cast<int64_t>(key_dim) * value_dim;
    return backward ? heads * (1 + SEGMENT / BLOCK + BLOCK) * size : size;
}

cudaError_t kernel_delta_plain(cudaStream_t stream, const struct kernel_delta_plain_args *a)
{
    forward<<<static_cast<unsigned>(a->count), THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}

cudaError_t kernel_delta_plain_backward(cudaStream_t stream,
                                        const struct kernel_delta_plain_args *a)
{
    backward<<<static_cast<unsigned>(a->count), THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}
