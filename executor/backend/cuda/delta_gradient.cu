/* Gradients of queries, keys, decays and betas, chunk by chunk: one block a chunk and key head, its
 * value heads one after another, from the states before the chunk (S), the gradient of the state
 * behind it (G) and the values' own gradient, which the chain has left in d_qkv (dV = beta dY).
 * Eight warps: sixteen tokens each, half of the columns each. With X = k S, Y = beta (v - exp(c)
 * X), U = T Y, dX = -exp(c) dV, dP = dO U^T / sqrt(128), dB = -dY U^T and D as in delta_squares.cu:
 *   dQ = exp(c) dO S^T / sqrt(128) + (dP D) k;
 *   dK = dX S^T + (dP D)^T q + (M + M^T) k + E / exp(c) U G^T, M = beta dB D. */
#include "executor/backend/cuda/delta.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr float SCALE = 0.08838834764831845F; /* 1 / sqrt(128) */

struct tiles {
    uint16_t q[CHUNK * WIDE], k[CHUNK * WIDE];
    uint16_t v[CHUNK * WIDE]; /* then Y */
    uint16_t d_o[CHUNK * WIDE], d_v[CHUNK * WIDE], d_x[CHUNK * WIDE], u[CHUNK * WIDE];
    uint16_t s[DIM * WIDE], g[DIM * WIDE]; /* [value][key] */
    uint16_t t[CHUNK * NARROW], p[CHUNK * NARROW], b[CHUNK * NARROW];
    float gates[GATES];
    /* Sums that become the gradients of c and beta: of each half's rows, of columns by the warps'
     * first tokens, of the last token by warps. Each place has one writer, so that sums have one
     * order.
     */
    float row_c[2][CHUNK], row_beta[2][CHUNK], column_c[CHUNK / 16][CHUNK], last_c[THREADS / WARP];
};

/* The part of a thread: the warp's first token and half of the columns, its own rows of tiles. */
struct place {
    int token, half, row, column;
};

__device__ __forceinline__ place find_place()
{
    int warp = static_cast<int>(threadIdx.x) / WARP, lane = static_cast<int>(threadIdx.x % WARP);
    return { warp % 4 * 16, warp / 4, lane / 4, lane % 4 * 2 };
}

template <int PAIRS> __device__ __forceinline__ void clear(float (&x)[PAIRS][2][4])
{
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[i][j / 4][j % 4] = 0.0F;
}

__device__ __forceinline__ float2 read_pair(const uint16_t *from)
{
    uint32_t both = *reinterpret_cast<const uint32_t *>(from);
    return make_float2(low_half(both), high_half(both));
}

__device__ __forceinline__ void write_pair(uint16_t *to, float low, float high)
{
    *reinterpret_cast<uint32_t *>(to) = pack_two(low, high);
}

/* The sum over the four lanes that share a row. */
__device__ __forceinline__ float row_sum(float x)
{
    x += __shfl_xor_sync(EVERY_LANE, x, 1);
    return x + __shfl_xor_sync(EVERY_LANE, x, 2);
}

/* to += a b over `from` to `end`, 16 PAIRS columns from first_column on. Turned: stored
 * [inner][..]. */
template <bool TURN_A, bool TURN_B, int PAIRS>
__device__ __forceinline__ void product(const uint16_t *a, int a_pitch, const uint16_t *b,
                                        int first_column, const place &at, int from, int end,
                                        float (&to)[PAIRS][2][4])
{
    for (int inner = from; inner < end; inner += 16) {
        fragment x, y;
        if (TURN_A)
            load_a_turned(x, a, a_pitch, at.token, inner);
        else
            load_a(x, a, a_pitch, at.token, inner);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            if (TURN_B)
                load_b_turned(y, b, WIDE, first_column + i * 16, inner);
            else
                load_b(y, b, WIDE, first_column + i * 16, inner);
            multiply_pair(to[i], x, y);
        }
    }
}

__device__ __forceinline__ void load_head(const kernel_delta_args &a, int run, int chunk, int head,
                                          tiles &s)
{
    int count = delta_count(a, chunk);
    int64_t row = delta_row(a, run, chunk), channels = delta_channels_of(a);
    int64_t width = static_cast<int64_t>(a.value_heads) * DIM,
            cell = delta_cell(a, run, chunk, head);
    int64_t v = row * channels + (2 * a.key_heads + head) * DIM;

    int thread = static_cast<int>(threadIdx.x);

    copy_tile<CHUNK, DIM, THREADS>(thread, s.v, WIDE, a.qkv + v, channels, count);
    copy_tile<CHUNK, DIM, THREADS>(thread, s.d_v, WIDE, a.d_qkv + v, channels, count);
    copy_tile<CHUNK, DIM, THREADS>(thread, s.d_o, WIDE, a.d_o + row * width + head * DIM, width,
                                   count);
    copy_tile<DIM, DIM, THREADS>(thread, s.s, WIDE, a.before + cell * DIM * DIM, DIM, DIM);
    copy_tile<DIM, DIM, THREADS>(thread, s.g, WIDE, a.behind + cell * DIM * DIM, DIM, DIM);
    copy_tile<CHUNK, CHUNK, THREADS>(thread, s.t, NARROW, a.inverse + cell * SQUARE, CHUNK, CHUNK);
    copy_gates(thread, s.gates, a, cell);
    if (thread < CHUNK)
        for (int half = 0; half < 2; half++)
            s.row_c[half][thread] = s.row_beta[half][thread] = 0.0F;
    copies_commit();
    copies_wait<0>();
    __syncthreads();
}

/* Below that a gradient of beta is lost in the sigmoid that it goes through. */
__device__ __forceinline__ float inverse_of(float beta)
{
    return beta > 1e-30F ? 1.0F / beta : 0.0F;
}

/* Y in the values' place, dX, and the share of X in decays and betas. */
__device__ __forceinline__ void form_y(tiles &s, const place &at)
{
    float x[4][2][4];
    clear(x);
    product<false, false>(s.k, WIDE, s.s, at.half * 64, at, 0, DIM, x);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int t = at.token + at.row + 8 * half;
        float e = s.gates[t], beta = s.gates[2 * CHUNK + t], inverse = inverse_of(beta);
        float direct = 0.0F, along = 0.0F;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int place = t * WIDE + at.half * 64 + i * 8 + at.column;
            const float *held = x[i / 2][i % 2] + 2 * half;
            float2 v = read_pair(s.v + place), d_v = read_pair(s.d_v + place);
            direct += d_v.x * v.x + d_v.y * v.y;
            along += d_v.x * held[0] + d_v.y * held[1];
            write_pair(s.v + place, beta * (v.x - e * held[0]), beta * (v.y - e * held[1]));
            write_pair(s.d_x + place, -e * d_v.x, -e * d_v.y);
        }
        direct = row_sum(direct);
        along = row_sum(along);
        if (at.column == 0) {
            s.row_beta[at.half][t] += (direct - e * along) * inverse;
            s.row_c[at.half][t] -= e * along;
        }
    }
}

__device__ __forceinline__ void form_u(tiles &s, const place &at)
{
    float u[4][2][4];
    clear(u);
    product<false, true>(s.t, NARROW, s.v, at.half * 64, at, 0, at.token + 16, u);
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            write_pair(s.u + (at.token + at.row + 8 * half) * WIDE + at.half * 64 + i * 8 +
                           at.column,
                       u[i / 2][i % 2][2 * half], u[i / 2][i % 2][2 * half + 1]);
}

/* dP D and M, and their share in decays and betas. qk, kk: 32 columns of the products without D.
 */
__device__ __forceinline__ void form_squares(tiles &s, const place &at, const float (&qk)[2][2][4],
                                             const float (&kk)[2][2][4])
{
    float d_p[2][2][4], d_b[2][2][4];
    clear(d_p);
    clear(d_b);
    product<false, false>(s.d_o, WIDE, s.u, at.half * 32, at, 0, DIM, d_p);
    product<false, false>(s.d_v, WIDE, s.u, at.half * 32, at, 0, DIM, d_b);
    float columns[4][2] = { { 0 } };
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int t = at.token + at.row + 8 * half;
        float c = s.gates[3 * CHUNK + t], beta = s.gates[2 * CHUNK + t];
        float inverse = inverse_of(beta), flows = 0.0F, betas = 0.0F;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int to = at.half * 32 + i * 8 + at.column;
            float p[2], b[2];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                int place = 2 * half + j;
                float d = to + j <= t ? __expf(c - s.gates[3 * CHUNK + to + j]) : 0.0F;
                float below = to + j < t ? d : 0.0F;
                p[j] = SCALE * d_p[i / 2][i % 2][place] * d;
                b[j] = -inverse * d_b[i / 2][i % 2][place] * below;
                betas += b[j] * kk[i / 2][i % 2][place];
                b[j] *= beta;
                float flow = p[j] * qk[i / 2][i % 2][place] + b[j] * kk[i / 2][i % 2][place];
                flows += flow;
                columns[i][j] += flow;
            }
            write_pair(s.p + t * NARROW + to, p[0], p[1]);
            write_pair(s.b + t * NARROW + to, b[0], b[1]);
        }
        flows = row_sum(flows);
        betas = row_sum(betas);
        if (at.column == 0) {
            s.row_c[at.half][t] += flows;
            s.row_beta[at.half][t] += betas;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float sum = columns[i][j];
#pragma unroll
            for (int step = 4; step < WARP; step *= 2)
                sum += __shfl_xor_sync(EVERY_LANE, sum, step);
            if (at.row == 0)
                s.column_c[at.token / 16][at.half * 32 + i * 8 + at.column + j] = sum;
        }
}

/* x times the gate of its row, added to `to`; the row's product with `with`. */
__device__ __forceinline__ void add_rows(const tiles &s, const place &at, const float *gates,
                                         float factor, const uint16_t *with,
                                         const float (&x)[4][2][4], float (&to)[4][2][4],
                                         float (&along)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int t = at.token + at.row + 8 * half;
        float gate = factor * gates[t], sum = 0.0F;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float2 y = read_pair(with + t * WIDE + at.half * 64 + i * 8 + at.column);
            float first = gate * x[i / 2][i % 2][2 * half];
            float second = gate * x[i / 2][i % 2][2 * half + 1];
            sum += first * y.x + second * y.y;
            to[i / 2][i % 2][2 * half] += first;
            to[i / 2][i % 2][2 * half + 1] += second;
        }
        along[half] = row_sum(sum);
    }
}

__device__ __forceinline__ void add_queries(tiles &s, const place &at, float (&d_q)[4][2][4])
{
    float x[4][2][4], along[2];
    clear(x);
    product<false, true>(s.d_o, WIDE, s.s, at.half * 64, at, 0, DIM, x);
    add_rows(s, at, s.gates, SCALE, s.q, x, d_q, along);
    if (at.column == 0)
        for (int half = 0; half < 2; half++)
            s.row_c[at.half][at.token + at.row + 8 * half] += along[half];
    product<false, true>(s.p, NARROW, s.k, at.half * 64, at, 0, at.token + 16, d_q);
}

/* Returns the share of the lane's rows in the last token's c. */
__device__ __forceinline__ float add_keys(tiles &s, const place &at, float (&d_k)[4][2][4])
{
    float x[4][2][4], along[2];
    product<false, true>(s.d_x, WIDE, s.s, at.half * 64, at, 0, DIM, d_k);
    product<true, true>(s.p, NARROW, s.q, at.half * 64, at, at.token, CHUNK, d_k);
    product<false, true>(s.b, NARROW, s.k, at.half * 64, at, 0, at.token + 16, d_k);
    product<true, true>(s.b, NARROW, s.k, at.half * 64, at, at.token, CHUNK, d_k);
    clear(x);
    product<false, true>(s.u, WIDE, s.g, at.half * 64, at, 0, DIM, x);
    add_rows(s, at, s.gates + CHUNK, 1.0F, s.k, x, d_k, along);
    if (at.column == 0)
        for (int half = 0; half < 2; half++)
            s.row_c[at.half][at.token + at.row + 8 * half] -= along[half];
    return at.column == 0 ? along[0] + along[1] : 0.0F;
}

/* A thread's share of the product of S and G, element by element. */
__device__ __forceinline__ float carried(const tiles &s)
{
    float sum = 0.0F;
    for (int i = static_cast<int>(threadIdx.x); i < DIM * DIM / 8; i += THREADS) {
        int place = i / (DIM / 8) * WIDE + i % (DIM / 8) * 8;
        float x[8], y[8];
        unpack(load_vector(s.s + place), x);
        unpack(load_vector(s.g + place), y);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum += x[j] * y[j];
    }
    return sum;
}

__device__ __forceinline__ float gradient_of_c(const tiles &s, int t)
{
    float sum = s.row_c[0][t] + s.row_c[1][t];
    for (int i = 0; i < CHUNK / 16; i++)
        sum -= s.column_c[i][t];
    for (int i = 0; i < THREADS / WARP && t == CHUNK - 1; i++)
        sum += s.last_c[i];
    return sum;
}

/* By one warp, two tokens a lane: a decay counts in every sum from its token on. */
__device__ __forceinline__ void store_gates(const kernel_delta_args &a, int run, int chunk,
                                            int head, const tiles &s)
{
    int lane = static_cast<int>(threadIdx.x), count = delta_count(a, chunk);
    float first = gradient_of_c(s, 2 * lane), second = gradient_of_c(s, 2 * lane + 1);
    float behind = first + second;
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        float more = __shfl_down_sync(EVERY_LANE, behind, step);
        behind += lane + step < WARP ? more : 0.0F;
    }
    behind -= first;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int t = 2 * lane + i;
        int64_t gate = (delta_row(a, run, chunk) + t) * a.value_heads + head;
        if (t >= count)
            break;
        a.d_decay[gate] = i == 0 ? first + behind : behind;
        a.d_beta[gate] = s.row_beta[0][t] + s.row_beta[1][t];
    }
}

__device__ __forceinline__ void store_rows(const place &at, const float (&x)[4][2][4], uint16_t *to,
                                           int64_t stride, int count)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int t = at.token + at.row + 8 * half;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (t < count)
                write_pair(to + t * stride + at.half * 64 + i * 8 + at.column,
                           x[i / 2][i % 2][2 * half], x[i / 2][i % 2][2 * half + 1]);
    }
}

__global__ void __launch_bounds__(THREADS, 1) gradient(const __grid_constant__ kernel_delta_args a)
{
    extern __shared__ uint4 room[];
    tiles &s = *reinterpret_cast<tiles *>(room);
    int chunk = static_cast<int>(blockIdx.x), key_head = static_cast<int>(blockIdx.y);
    int run = static_cast<int>(blockIdx.z), each = a.value_heads / a.key_heads;
    int count = delta_count(a, chunk), thread = static_cast<int>(threadIdx.x);
    int64_t channels = delta_channels_of(a);
    int64_t q = delta_row(a, run, chunk) * channels + key_head * DIM, k = q + a.key_heads * DIM;
    const place at = find_place();
    float d_q[4][2][4], d_k[4][2][4], qk[2][2][4], kk[2][2][4];

    copy_tile<CHUNK, DIM, THREADS>(thread, s.q, WIDE, a.qkv + q, channels, count);
    copy_tile<CHUNK, DIM, THREADS>(thread, s.k, WIDE, a.qkv + k, channels, count);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    clear(d_q);
    clear(d_k);
    clear(qk);
    clear(kk);
    product<false, false>(s.q, WIDE, s.k, at.half * 32, at, 0, DIM, qk);
    product<false, false>(s.k, WIDE, s.k, at.half * 32, at, 0, DIM, kk);
    for (int i = 0; i < each; i++) {
        int head = key_head * each + i;
        __syncthreads();
        load_head(a, run, chunk, head, s);
        form_y(s, at);
        __syncthreads();
        form_u(s, at);
        __syncthreads();
        form_squares(s, at, qk, kk);
        __syncthreads();
        add_queries(s, at, d_q);
        float last = warp_sum(add_keys(s, at, d_k) + s.gates[CHUNK - 1] * carried(s));
        if (thread % WARP == 0)
            s.last_c[thread / WARP] = last;
        __syncthreads();
        if (thread < WARP)
            store_gates(a, run, chunk, head, s);
    }
    store_rows(at, d_q, a.d_qkv + q, channels, count);
    store_rows(at, d_k, a.d_qkv + k, channels, count);
}

} // namespace

int kernel_delta_shared_bytes(void)
{
    return static_cast<int>(sizeof(tiles));
}

cudaError_t kernel_delta_gradient(cudaStream_t stream, const struct kernel_delta_args *a)
{
    cudaError_t status = cudaFuncSetAttribute(gradient, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(sizeof(tiles)));
    if (status != cudaSuccess)
        return status;
    dim3 grid(static_cast<unsigned>(a->chunks), static_cast<unsigned>(a->key_heads),
              static_cast<unsigned>(a->runs));
    gradient<<<grid, THREADS, sizeof(tiles), stream>>>(*a);
    return cudaGetLastError();
}
