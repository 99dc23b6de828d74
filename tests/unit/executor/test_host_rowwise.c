/* Norm, rotary embedding and SwiGLU: forward against the formula in double, backward against finite
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

struct norm_problem {
    int64_t width;
    double *x, *w, *weight, *y;
};

static double define_norm(const void *context)
{
    const struct norm_problem *p = context;
    double scalar = 0;
    for (int64_t r = 0; r < ROWS; r++) {
        double squares = 0;
        for (int64_t i = 0; i < p->width; i++)
            squares += pow(p->x[r * p->width + i], 2);
        double rms = sqrt(squares / (double)p->width + 1e-6);
        for (int64_t i = 0; i < p->width; i++) {
            int64_t at = r * p->width + i;
            p->y[at] = p->x[at] / rms * p->w[i];
            scalar += p->weight[at] * p->y[at];
        }
    }
    return scalar;
}

static void check_norm(struct host_fixture *f, int64_t width, enum dtype type, bool accumulate)
{
    uint64_t seed = 21;
    int64_t count = ROWS * width;
    bf16 *x = random_bf16(&seed, count, 2), *w = random_bf16(&seed, width, 1);
    bf16 *dy = random_bf16(&seed, count, 1), *dx = random_bf16(&seed, count, 1);
    bf16 *y = get_memory(count, sizeof *y), *dw_bf16 = random_bf16(&seed, width, 1);
    float *dw_float = random_floats(&seed, width, 1);
    void *dw = type == DTYPE_FP32 ? (void *)dw_float : dw_bf16;
    struct norm_problem p = { width, doubles_of_bf16(x, count), doubles_of_bf16(w, width),
                              doubles_of_bf16(dy, count), get_memory(count, sizeof(double)) };
    (void)define_norm(&p);
    assert_int_equal(
        f->ops->rmsnorm(f->backend, STREAM_COMPUTE, ROWS, width, 1e-6, x, w, y, &f->diags), 0);
    assert_rms_bf16(y, p.y, count, 0.5);
    double *want_dx = doubles_of_bf16(dx, count);
    double *want_dw =
        type == DTYPE_FP32 ? doubles_of_floats(dw, width) : doubles_of_bf16(dw, width);
    for (int64_t i = 0; i < count; i++)
        want_dx[i] = (accumulate ? want_dx[i] : 0) + slope(define_norm, &p, &p.x[i], 1e-5);
    for (int64_t i = 0; i < width; i++)
        want_dw[i] += slope(define_norm, &p, &p.w[i], 1e-5);
    assert_int_equal(f->ops->rmsnorm_backward(f->backend, STREAM_COMPUTE, ROWS, width, 1e-6, dy, x,
                                              w, dx, accumulate, dw, type, &f->diags),
                     0);
    assert_rms_bf16(dx, want_dx, count, 0.5);
    if (type == DTYPE_FP32)
        assert_rms_float(dw, want_dw, width, 1e-5);
    else
        assert_rms_bf16(dw, want_dw, width, 0.5);
    void *owned[] = {
        x, w, dy, dx, y, dw_bf16, dw_float, p.x, p.w, p.weight, p.y, want_dx, want_dw
    };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

static void test_norm(void **state)
{
    check_norm(*state, 64, DTYPE_FP32, true);
    check_norm(*state, 37, DTYPE_BF16, false);
    check_norm(*state, 16, DTYPE_FP32, false);
}

struct rope_problem {
    struct rope r;
    double *qkv, *q_norm, *k_norm; /* norms NULL when there are none */
    double *q_weight, *k_weight, *q, *k;
};

/* Rotation as multiplication of x_i + j x_(i + half) by e^(j angle). */
static double define_head(const struct rope_problem *p, int64_t position, const double *norm,
                          const double *from, const double *weight, double *to)
{
    int d = p->r.head_dim, half = p->r.rotary_dim / 2;
    double squares = 0, scalar = 0;
    for (int64_t i = 0; i < d; i++)
        squares += from[i] * from[i];
    double rms = norm ? sqrt(squares / d + p->r.norm_eps) : 1;
    for (int64_t i = 0; i < d; i++)
        to[i] = from[i] / rms * (norm ? norm[i] : 1);
    for (int64_t i = 0; i < half; i++) {
        double angle = (double)position / pow(p->r.theta, 2.0 * (double)i / p->r.rotary_dim);
        double complex turned = CMPLX(to[i], to[i + half]) * cexp(CMPLX(0, angle));
        to[i] = creal(turned);
        to[i + half] = cimag(turned);
    }
    for (int64_t i = 0; i < d; i++)
        scalar += weight[i] * to[i];
    return scalar;
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
            scalar += define_head(p, row % r->tokens, p->q_norm, from + h * r->head_dim,
                                  p->q_weight + at, p->q + at);
        }
        for (int64_t h = 0; h < r->kv_heads; h++) {
            int64_t at = (row * r->kv_heads + h) * r->head_dim;
            scalar +=
                define_head(p, row % r->tokens, p->k_norm, from + r->k_offset + h * r->head_dim,
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
        if (column < r->heads * d ||
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

/* Rows are q | gate | k | v; gate and v pass through untouched. */
static void check_rope(struct host_fixture *f, int rotary_dim, bool norms, int gate,
                       enum dtype type)
{
    enum {
        HEADS = 3,
        KV_HEADS = 1,
        HEAD = 12,
        TOKENS = 4,
        Q_WIDTH = HEADS * HEAD,
        KV_WIDTH = KV_HEADS * HEAD,
        Q_COUNT = ROWS * Q_WIDTH,
        K_COUNT = ROWS * KV_WIDTH
    };
    uint64_t seed = 22;
    int64_t stride = Q_WIDTH + gate + 2 * KV_WIDTH, count = ROWS * stride;
    bf16 *qkv = random_bf16(&seed, count, 1), *dqkv = random_bf16(&seed, count, 1);
    bf16 *q_norm = random_bf16(&seed, HEAD, 1), *k_norm = random_bf16(&seed, HEAD, 1);
    struct rope r = { .rows = ROWS,
                      .tokens = TOKENS,
                      .heads = HEADS,
                      .kv_heads = KV_HEADS,
                      .head_dim = HEAD,
                      .rotary_dim = rotary_dim,
                      .theta = 1e4,
                      .norm_eps = 1e-6,
                      .q_norm = norms ? q_norm : NULL,
                      .k_norm = norms ? k_norm : NULL,
                      .qkv = qkv,
                      .qkv_stride = stride,
                      .k_offset = Q_WIDTH + gate };
    int64_t q_count = Q_COUNT, k_count = K_COUNT;
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
        p.q_weight[i] = double_of(dqkv[i / Q_WIDTH * stride + i % Q_WIDTH]);
    for (int64_t i = 0; i < k_count; i++)
        p.k_weight[i] = double_of(dqkv[i / HEAD * stride + r.k_offset + i % HEAD]);
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

static void test_rope(void **state)
{
    check_rope(*state, 12, true, 0, DTYPE_FP32);
    check_rope(*state, 4, true, 36, DTYPE_BF16);
    check_rope(*state, 12, false, 0, DTYPE_FP32);
}

struct swiglu_problem {
    int64_t width;
    double *h, *row_weight, *weight, *a;
};

static double define_swiglu(const void *context)
{
    const struct swiglu_problem *p = context;
    double scalar = 0;
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t i = 0; i < p->width; i++) {
            double g = p->h[r * 2 * p->width + i], u = p->h[r * 2 * p->width + p->width + i];
            double a = p->row_weight[r] * g / (1 + exp(-g)) * u;
            p->a[r * p->width + i] = a;
            scalar += p->weight[r * p->width + i] * a;
        }
    return scalar;
}

/* Products of three have long tails, whose last places are larger than the RMS's: one unit. */
static void check_swiglu(struct host_fixture *f, int64_t width, bool weighted)
{
    uint64_t seed = 23;
    int64_t count = ROWS * width;
    bf16 *h = random_bf16(&seed, 2 * count, 3), *da = random_bf16(&seed, count, 1);
    bf16 *a = get_memory(count, sizeof *a);
    float *row_weight = random_floats(&seed, ROWS, 1), *d_row = get_memory(ROWS, sizeof *d_row);
    for (int64_t r = 0; r < ROWS && !weighted; r++)
        row_weight[r] = 1;
    struct swiglu_problem p = { width, doubles_of_bf16(h, 2 * count),
                                doubles_of_floats(row_weight, ROWS), doubles_of_bf16(da, count),
                                get_memory(count, 8) };
    double *want_h = get_memory(2 * count, 8), want_row[ROWS];
    (void)define_swiglu(&p);
    const float *given = weighted ? row_weight : NULL;
    assert_int_equal(
        f->ops->swiglu(f->backend, STREAM_COMPUTE, ROWS, width, h, given, a, &f->diags), 0);
    assert_rms_bf16(a, p.a, count, 1);
    for (int64_t i = 0; i < 2 * count; i++)
        want_h[i] = slope(define_swiglu, &p, &p.h[i], 1e-5);
    for (int64_t r = 0; r < ROWS; r++)
        want_row[r] = slope(define_swiglu, &p, &p.row_weight[r], 1e-5);
    assert_int_equal(f->ops->swiglu_backward(f->backend, STREAM_COMPUTE, ROWS, width, da, given, h,
                                             weighted ? d_row : NULL, &f->diags),
                     0);
    assert_rms_bf16(h, want_h, 2 * count, 1);
    if (weighted)
        assert_rms_float(d_row, want_row, ROWS, 1e-5);
    void *owned[] = { h, da, a, row_weight, d_row, p.h, p.row_weight, p.weight, p.a, want_h };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

static void test_swiglu(void **state)
{
    check_swiglu(*state, 48, true);
    check_swiglu(*state, 13, true);
    check_swiglu(*state, 5, false);
}

/* silu(100) = 100 and silu(-100) = 0 to every digit that bf16 has. */
static void test_swiglu_far_out(void **state)
{
    struct host_fixture *f = *state;
    bf16 h[4] = { bf16_of(100), bf16_of(-100), bf16_of(2), bf16_of(2) }, a[2];
    assert_int_equal(f->ops->swiglu(f->backend, STREAM_COMPUTE, 1, 2, h, NULL, a, &f->diags), 0);
    assert_int_equal(a[0], bf16_of(200));
    assert_true(fabs(double_of(a[1])) < 1e-30);
}

static double define_sigmoid(const void *context)
{
    return 1 / (1 + exp(-*(const double *)context));
}

static void test_sigmoid(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 24;
    float *values = random_floats(&seed, ROWS, 2), *gradient = random_floats(&seed, ROWS, 1);
    double want[ROWS], want_gradient[ROWS];
    for (int r = 0; r < ROWS; r++) {
        double x = (double)values[r];
        want[r] = define_sigmoid(&x);
        want_gradient[r] = (double)gradient[r] * slope(define_sigmoid, &x, &x, 1e-5);
    }
    assert_int_equal(f->ops->sigmoid(f->backend, STREAM_COMPUTE, ROWS, values, &f->diags), 0);
    assert_rms_float(values, want, ROWS, 1e-6);
    assert_int_equal(
        f->ops->sigmoid_backward(f->backend, STREAM_COMPUTE, ROWS, values, gradient, &f->diags), 0);
    assert_rms_float(gradient, want_gradient, ROWS, 1e-6);
    free(values);
    free(gradient);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),    cmocka_unit_test(test_rope),
        cmocka_unit_test(test_swiglu),  cmocka_unit_test(test_swiglu_far_out),
        cmocka_unit_test(test_sigmoid),
    };
    return cmocka_run_group_tests(tests, host_fixture_open, host_fixture_close);
}
