#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/host.h"

#include <math.h>

/* Widest head and rotary part; the buffers below stand on the stack. */
enum { HEAD_MAX = 512, ROTARY_HALF_MAX = ROPE_MAX_PAIRS };

/* cos and sin of one position; frequencies theta^(-2i / rotary_dim). */
struct rotation {
    int half;
    int first_step, second; /* pair i is (first_step * i, first_step * i + second) */
    double factor;
    double frequency[ROTARY_HALF_MAX];
    float cosine[ROTARY_HALF_MAX], sine[ROTARY_HALF_MAX];
};

static int rotation_open(const struct rope *r, struct rotation *ret, struct diag_list *reterr)
{
    static const struct pos nowhere = { NULL, 0, 0 };
    ret->half = r->rotary_dim / 2;
    if (r->run_tokens > 0 && r->tokens != 2 * r->run_tokens)
        return diag_error(reterr, nowhere, "rope: sequences of %lld rows in two runs of %lld",
                          (long long)r->tokens, (long long)r->run_tokens);
    if (r->head_dim > HEAD_MAX || r->rotary_dim > r->head_dim || r->rotary_dim % 2 != 0)
        return diag_error(reterr, nowhere, "rope: rotary %d of head_dim %d (at most %d, even)",
                          r->rotary_dim, r->head_dim, HEAD_MAX);
    ret->first_step = r->adjacent ? 2 : 1;
    ret->second = r->adjacent ? 1 : ret->half;
    ret->factor = r->rotation_factor > 0 ? r->rotation_factor : 1.0;
    for (int i = 0; i < ret->half; i++)
        ret->frequency[i] =
            r->stretched ? r->frequency[i] : pow(r->theta, -2.0 * i / r->rotary_dim);
    return 0;
}

static int64_t position_of(const struct rope *r, int64_t row)
{
    int64_t in_sequence = row % r->tokens;
    if (r->run_tokens < 1)
        return in_sequence;
    return r->run_first[in_sequence / r->run_tokens] + in_sequence % r->run_tokens;
}

/* What a head norm multiplies by. */
static inline __attribute__((always_inline)) float norm_weight(const struct rope *r,
                                                               const bf16 *norm, int64_t i)
{
    return bf16_to_float(norm[i]) + (r->norm_zero_centred ? 1.0F : 0.0F);
}

static int64_t query_stride(const struct rope *r)
{
    return r->q_head_stride > 0 ? r->q_head_stride : r->head_dim;
}

static void rotation_at(struct rotation *rotation, int64_t position)
{
    for (int i = 0; i < rotation->half; i++) {
        double angle = (double)position * rotation->frequency[i];
        rotation->cosine[i] = (float)(rotation->factor * cos(angle));
        rotation->sine[i] = (float)(rotation->factor * sin(angle));
    }
}

/* Each pair turns by its angle; sign -1 turns back, which is also the gradient. */
static inline __attribute__((always_inline)) void turn(const struct rotation *rotation, float sign,
                                                       float *x)
{
    int step = rotation->first_step, apart = rotation->second;
    for (int i = 0; i < rotation->half; i++) {
        float c = rotation->cosine[i], s = sign * rotation->sine[i];
        float first = x[step * i], second = x[step * i + apart];
        x[step * i] = first * c - second * s;
        x[step * i + apart] = second * c + first * s;
    }
}

static inline __attribute__((always_inline)) void widen(const bf16 *from, int count, float *to)
{
    for (int i = 0; i < count; i++)
        to[i] = bf16_to_float(from[i]);
}

static inline __attribute__((always_inline)) void narrow(const float *from, int count, bf16 *to)
{
    for (int i = 0; i < count; i++)
        to[i] = bf16_from_float(from[i]);
}

static inline __attribute__((always_inline)) float inverse_rms(const float *x, int count,
                                                               double eps)
{
    float sum = 0;
    for (int i = 0; i < count; i++)
        sum += x[i] * x[i];
    return 1.0F / sqrtf(sum / (float)count + (float)eps);
}

HOST_HOT
static void head_forward(const struct rope *r, const struct rotation *rotation, const bf16 *norm,
                         const bf16 *from, bf16 *to)
{
    float x[HEAD_MAX];
    widen(from, r->head_dim, x);
    float inverse = norm ? inverse_rms(x, r->head_dim, r->norm_eps) : 1.0F;
    for (int i = 0; i < r->head_dim && norm; i++)
        x[i] = x[i] * inverse * norm_weight(r, norm, i);
    turn(rotation, 1.0F, x);
    narrow(x, r->head_dim, to);
}

int host_rope(struct backend *b, enum stream s, const struct rope *r, struct diag_list *reterr)
{
    struct rotation rotation = { 0 };
    (void)b, (void)s;
    if (rotation_open(r, &rotation, reterr))
        return -1;
    for (int64_t row = 0; row < r->rows; row++) {
        const bf16 *qkv = r->qkv + row * r->qkv_stride;
        rotation_at(&rotation, position_of(r, row));
        for (int64_t h = 0; h < r->heads; h++)
            head_forward(r, &rotation, r->q_norm, qkv + h * query_stride(r),
                         r->q + (row * r->heads + h) * r->head_dim);
        for (int64_t h = 0; h < r->kv_heads; h++)
            head_forward(r, &rotation, r->k_norm, qkv + r->k_offset + h * r->head_dim,
                         r->k + (row * r->kv_heads + h) * r->head_dim);
    }
    return 0;
}

/* Turns back, then through the norm: with n = x / rms and g = dy w, dx = (g - n mean(g n)) / rms
 * and the norm's own gradient dy n goes to sums. */
HOST_HOT
static void head_backward(const struct rope *r, const struct rotation *rotation, const bf16 *norm,
                          const bf16 *from, bf16 *gradient, float *sums)
{
    float x[HEAD_MAX], d[HEAD_MAX];
    widen(gradient, r->head_dim, d);
    turn(rotation, -1.0F, d);
    if (norm) {
        widen(from, r->head_dim, x);
        float inverse = inverse_rms(x, r->head_dim, r->norm_eps), mean = 0;
        for (int i = 0; i < r->head_dim; i++) {
            x[i] *= inverse;
            sums[i] += d[i] * x[i];
            d[i] *= norm_weight(r, norm, i);
            mean += d[i] * x[i];
        }
        mean /= (float)r->head_dim;
        for (int i = 0; i < r->head_dim; i++)
            d[i] = (d[i] - x[i] * mean) * inverse;
    }
    narrow(d, r->head_dim, gradient);
}

int host_rope_backward(struct backend *b, enum stream s, const struct rope_gradient *g,
                       struct diag_list *reterr)
{
    const struct rope *r = &g->forward;
    struct rotation rotation = { 0 };
    float q_sums[HEAD_MAX] = { 0 }, k_sums[HEAD_MAX] = { 0 };
    (void)b, (void)s;
    if (rotation_open(r, &rotation, reterr))
        return -1;
    for (int64_t row = 0; row < r->rows; row++) {
        const bf16 *qkv = r->qkv + row * r->qkv_stride;
        bf16 *dqkv = g->dqkv + row * r->qkv_stride;
        rotation_at(&rotation, position_of(r, row));
        for (int64_t h = 0; h < r->heads; h++)
            head_backward(r, &rotation, r->q_norm, qkv + h * query_stride(r),
                          dqkv + h * query_stride(r), q_sums);
        for (int64_t h = 0; h < r->kv_heads; h++) {
            int64_t at = r->k_offset + h * r->head_dim;
            head_backward(r, &rotation, r->k_norm, qkv + at, dqkv + at, k_sums);
        }
    }
    for (int i = 0; i < r->head_dim; i++) {
        if (r->q_norm && g->dq_norm)
            add_typed(g->dq_norm, g->grad_type, i, q_sums[i]);
        if (r->k_norm && g->dk_norm)
            add_typed(g->dk_norm, g->grad_type, i, k_sums[i]);
    }
    return 0;
}

/* The last rotary_dim elements of one head. */
static void turn_part(const struct part_rope *p, const struct rotation *rotation, const bf16 *from,
                      bf16 *to)
{
    float x[HEAD_MAX];
    widen(from, p->head_dim, x);
    turn(rotation, p->back ? -1.0F : 1.0F, x + p->head_dim - p->angles->rotary_dim);
    narrow(x, p->head_dim, to);
}

int host_part_rope(struct backend *b, enum stream s, const struct part_rope *p,
                   struct diag_list *reterr)
{
    struct rope angles = *p->angles;
    struct rotation rotation = { 0 };
    (void)b, (void)s;
    angles.head_dim = p->head_dim;
    if (rotation_open(&angles, &rotation, reterr))
        return -1;
    for (int64_t row = 0; row < angles.rows; row++) {
        rotation_at(&rotation, position_of(&angles, row));
        for (int64_t h = 0; h < p->heads; h++)
            turn_part(p, &rotation, p->from + row * p->from_stride + h * p->head_dim,
                      p->to + row * p->to_stride + h * p->head_dim);
    }
    return 0;
}
