/* Head norms and rotary embedding: forward against the formula in double, backward against finite
 * differences of that formula. */
#include "tests/unit/executor/host_fixture.h"

#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROWS = 9 };

struct rope_problem {
    struct rope r;
    double *qkv, *q_norm, *k_norm; /* norms NULL when there are none */
    double *q_weight, *k_weight, *q, *k;
};

static int64_t query_stride(const struct rope *r)
{
    return r->q_head_stride ? r->q_head_stride : r->head_dim;
}

/* Rotation as multiplication of x_a + j x_b by e^(j angle), of pairs (i, i + half) or neighbors. */
static double define_head(const struct rope_problem *p, int64_t position, const double *norm,
                          const double *from, const double *weight, double *to)
{
    int d = p->r.head_dim, half = p->r.rotary_dim / 2;
    double squares = 0, scalar = 0;
    for (int64_t i = 0; i < d; i++)
        squares += from[i] * from[i];
    double rms = norm ? sqrt(squares / d + p->r.norm_eps) : 1;
    for (int64_t i = 0; i < d; i++)
        to[i] = from[i] / rms * (norm ? norm[i] + (p->r.norm_zero_centred ? 1 : 0) : 1);
    for (int64_t i = 0; i < half; i++) {
        int64_t a = p->r.adjacent ? 2 * i : i, b = p->r.adjacent ? a + 1 : i + half;
        double angle = (double)position / pow(p->r.theta, 2.0 * (double)i / p->r.rotary_dim);
        if (p->r.stretched)
            angle = (double)position * p->r.frequency[i];
        double factor = p->r.rotation_factor > 0 ? p->r.rotation_factor : 1;
        double complex turned = factor * (to[a] + I * to[b]) * cexp(I * angle);
        to[a] = creal(turned);
        to[b] = cimag(turned);
    }
    for (int64_t i = 0; i < d; i++)
        scalar += weight[i] * to[i];
    return scalar;
}

/* Zig-zag runs count from where they begin in the sequence. */
static int64_t position_of(const struct rope *r, int64_t row)
{
    int64_t i = row % r->tokens;
    if (r->run_tokens == 0)
        return i;
    return i < r->run_tokens ? r->run_first[0] + i : r->run_first[1] + i - r->run_tokens;
}

static double define_rope(const void *context)
{
    const struct rope_problem *p = context;
    const struct rope *r = &p->r;
    double scalar = 0;
    for (int64_t row = 0; row < r->rows; row++) {
        const double *from = p->qkv + row * r->qkv_stride;
        for (int64_t h = 0; h < r->heads; h++) {
            int64_t at = (row * r->heads + h) * r->head_dim;
            scalar += define_head(p, position_of(r, row), p->q_norm, from + h * query_stride(r),
                                  p->q_weight + at, p->q + at);
        }
        for (int64_t h = 0; h < r->kv_heads; h++) {
            int64_t at = (row * r->kv_heads + h) * r->head_dim;
            scalar +=
                define_head(p, position_of(r, row), p->k_norm, from + r->k_offset + h * r->head_dim,
                            p->k_weight + at, p->k + at);
        }
    }
    return scalar;
}

static void check_rope_backward(struct host_fixture *f, struct rope_problem *p, bf16 *dqkv,
                                enum dtype type)
{
    const struct rope *r = &p->r;
    int64_t count = r->rows * r->qkv_stride, d = r->head_dim;
    double *want = doubles_of_bf16(dqkv, count);
    double *want_norm[2] = { get_memory(r->head_dim, 8), get_memory(r->head_dim, 8) };
    float *float_norm[2] = { get_memory(r->head_dim, 4), get_memory(r->head_dim, 4) };
    for (int64_t i = 0; i < count; i++) {
        int64_t column = i % r->qkv_stride;
        if ((column < r->k_offset && column / query_stride(r) < r->heads &&
             column % query_stride(r) < d) ||
            (column >= r->k_offset && column < r->k_offset + r->kv_heads * d))
            want[i] = slope(define_rope, p, &p->qkv[i], 1e-5);
    }
    for (int64_t i = 0; i < r->head_dim && p->q_norm; i++) {
        want_norm[0][i] = slope(define_rope, p, &p->q_norm[i], 1e-5);
        want_norm[1][i] = slope(define_rope, p, &p->k_norm[i], 1e-5);
    }
    struct rope_gradient g = { *r, dqkv, float_norm[0], float_norm[1], type };
    assert_int_equal(f->ops->rope_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    assert_rms_bf16(dqkv, want, count, 0.5);
    for (int64_t i = 0; i < 2; i++) {
        if (type == DTYPE_FP32)
            assert_rms_float(float_norm[i], want_norm[i], r->head_dim, 1e-5);
        else
            assert_rms_bf16((bf16 *)float_norm[i], want_norm[i], r->head_dim, 0.5);
        free(want_norm[i]);
        free(float_norm[i]);
    }
    free(want);
}

enum {
    HEADS = 3,
    KV_HEADS = 1,
    HEAD = 12,
    Q_WIDTH = HEADS * HEAD,
    KV_WIDTH = KV_HEADS * HEAD,
    Q_COUNT = ROWS * Q_WIDTH,
    K_COUNT = ROWS * KV_WIDTH
};

/* Column of element i of the heads' q, in a row where head_stride lies between heads. */
static int64_t query_column(const struct rope *r, int64_t i)
{
    return i / HEAD * query_stride(r) + i % HEAD;
}

/* Completes the shape: rows are q | k | v, with `gate` columns after each head of q; gate and v
 * pass through untouched. */
static void check_rope(struct host_fixture *f, struct rope r, bool norms, int gate, enum dtype type)
{
    uint64_t seed = 22;
    int64_t k_offset = Q_WIDTH + (int64_t)HEADS * gate, stride = k_offset + (int64_t)2 * KV_WIDTH;
    int64_t count = ROWS * stride, q_count = Q_COUNT, k_count = K_COUNT;
    bf16 *qkv = random_bf16(&seed, count, 1), *dqkv = random_bf16(&seed, count, 1);
    bf16 *q_norm = random_bf16(&seed, HEAD, 1), *k_norm = random_bf16(&seed, HEAD, 1);
    r.rows = ROWS, r.heads = HEADS, r.kv_heads = KV_HEADS, r.head_dim = HEAD;
    r.theta = 1e4, r.norm_eps = 1e-6;
    r.q_norm = norms ? q_norm : NULL, r.k_norm = norms ? k_norm : NULL;
    r.qkv = qkv, r.qkv_stride = stride, r.k_offset = k_offset;
    r.q_head_stride = gate ? HEAD + gate : 0;
    r.q = get_memory(q_count, sizeof(bf16));
    r.k = get_memory(k_count, sizeof(bf16));
    struct rope_problem p = { r,
                              doubles_of_bf16(qkv, count),
                              norms ? doubles_of_bf16(q_norm, HEAD) : NULL,
                              norms ? doubles_of_bf16(k_norm, HEAD) : NULL,
                              get_memory(q_count, 8),
                              get_memory(k_count, 8),
                              get_memory(q_count, 8),
                              get_memory(k_count, 8) };
    for (int64_t i = 0; i < q_count; i++)
        p.q_weight[i] = double_of(dqkv[i / Q_WIDTH * stride + query_column(&r, i % Q_WIDTH)]);
    for (int64_t i = 0; i < k_count; i++)
        p.k_weight[i] = double_of(dqkv[i / KV_WIDTH * stride + r.k_offset + i % KV_WIDTH]);
    (void)define_rope(&p);
    assert_int_equal(f->ops->rope(f->backend, STREAM_COMPUTE, &r, &f->diags), 0);
    assert_rms_bf16(r.q, p.q, q_count, 0.5);
    assert_rms_bf16(r.k, p.k, k_count, 0.5);
    check_rope_backward(f, &p, dqkv, type);
    void *owned[] = { qkv,      dqkv,     q_norm,     k_norm,     r.q, r.k, p.qkv,
                      p.q_norm, p.k_norm, p.q_weight, p.k_weight, p.q, p.k };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

static void test_whole_heads(void **state)
{
    const struct rope r = { .tokens = 4, .rotary_dim = HEAD };
    check_rope(*state, r, true, 0, DTYPE_FP32);
    check_rope(*state, r, false, 0, DTYPE_FP32);
}

static void test_partial_rotary(void **state)
{
    check_rope(*state, (struct rope){ .tokens = 4, .rotary_dim = 4 }, true, 0, DTYPE_BF16);
    check_rope(*state, (struct rope){ .tokens = 4, .rotary_dim = 2 }, false, 0, DTYPE_FP32);
}

static void test_gated_heads(void **state)
{
    const struct rope r = { .tokens = 5, .rotary_dim = 4, .norm_zero_centred = true };
    check_rope(*state, r, true, HEAD, DTYPE_FP32);
}

static void test_zig_zag_positions(void **state)
{
    const struct rope r = {
        .tokens = 4, .rotary_dim = HEAD, .run_tokens = 2, .run_first = { 6, 16 }
    };
    check_rope(*state, r, true, 0, DTYPE_FP32);
}

static void test_stretched(void **state)
{
    struct rope r = { .tokens = 7,
                      .rotary_dim = 8,
                      .adjacent = true,
                      .stretched = true,
                      .frequency = { 1, 0.5, 0.02, 0.003 },
                      .rotation_factor = 1.3 };
    check_rope(*state, r, true, 0, DTYPE_FP32);
    r.adjacent = false;
    check_rope(*state, r, false, 4, DTYPE_FP32);
}

static void test_shapes_that_do_not_fit(void **state)
{
    struct host_fixture *f = *state;
    struct diag_list diags = { 0 };
    const struct rope odd = { .tokens = 4, .head_dim = HEAD, .rotary_dim = 3 };
    const struct rope runs = { .tokens = 5, .head_dim = HEAD, .rotary_dim = 4, .run_tokens = 2 };
    assert_int_equal(f->ops->rope(f->backend, STREAM_COMPUTE, &odd, &diags), -1);
    assert_int_equal(f->ops->rope(f->backend, STREAM_COMPUTE, &runs, &diags), -1);
    assert_int_equal(diags.errors, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stretched),         cmocka_unit_test(test_whole_heads),
        cmocka_unit_test(test_partial_rotary),    cmocka_unit_test(test_gated_heads),
        cmocka_unit_test(test_zig_zag_positions), cmocka_unit_test(test_shapes_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, host_fixture_open, host_fixture_close);
}
