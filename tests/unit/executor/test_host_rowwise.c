/* Norm, bias, SwiGLU and sigmoid: forward against the formula in double, backward against finite
 * differences of that formula. */
#include "tests/unit/executor/host_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROWS = 9 };

struct norm_problem {
    int64_t width;
    bool centred; /* multiplies by 1 + w */
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
            p->y[at] = p->x[at] / rms * (p->w[i] + (p->centred ? 1 : 0));
            scalar += p->weight[at] * p->y[at];
        }
    }
    return scalar;
}

static int norm_forward(struct host_fixture *f, const struct norm_problem *p, const bf16 *x,
                        const bf16 *w, bf16 *y)
{
    return (p->centred ? f->ops->rmsnorm_centred : f->ops->rmsnorm)(
        f->backend, STREAM_COMPUTE, ROWS, p->width, 1e-6, x, w, y, &f->diags);
}

static void check_norm(struct host_fixture *f, int64_t width, enum dtype type, bool accumulate,
                       bool centred)
{
    uint64_t seed = 21;
    int64_t count = ROWS * width;
    bf16 *x = random_bf16(&seed, count, 2), *w = random_bf16(&seed, width, 1);
    bf16 *dy = random_bf16(&seed, count, 1), *dx = random_bf16(&seed, count, 1);
    bf16 *y = get_memory(count, sizeof *y), *dw_bf16 = random_bf16(&seed, width, 1);
    float *dw_float = random_floats(&seed, width, 1);
    void *dw = type == DTYPE_FP32 ? (void *)dw_float : dw_bf16;
    struct norm_problem p = { width,
                              centred,
                              doubles_of_bf16(x, count),
                              doubles_of_bf16(w, width),
                              doubles_of_bf16(dy, count),
                              get_memory(count, sizeof(double)) };
    (void)define_norm(&p);
    assert_int_equal(norm_forward(f, &p, x, w, y), 0);
    assert_rms_bf16(y, p.y, count, 0.5);
    double *want_dx = doubles_of_bf16(dx, count);
    double *want_dw =
        type == DTYPE_FP32 ? doubles_of_floats(dw, width) : doubles_of_bf16(dw, width);
    for (int64_t i = 0; i < count; i++)
        want_dx[i] = (accumulate ? want_dx[i] : 0) + slope(define_norm, &p, &p.x[i], 1e-5);
    for (int64_t i = 0; i < width; i++)
        want_dw[i] += slope(define_norm, &p, &p.w[i], 1e-5);
    assert_int_equal((centred ? f->ops->rmsnorm_centred_backward : f->ops->rmsnorm_backward)(
                         f->backend, STREAM_COMPUTE, ROWS, width, 1e-6, dy, x, w, dx, accumulate,
                         dw, type, &f->diags),
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
    check_norm(*state, 64, DTYPE_FP32, true, false);
    check_norm(*state, 37, DTYPE_BF16, false, false);
    check_norm(*state, 16, DTYPE_FP32, false, false);
    check_norm(*state, 48, DTYPE_FP32, true, true);
    check_norm(*state, 21, DTYPE_BF16, false, true);
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

/* A bias on columns [2, 2 + width) of wider rows: y + b in one rounding, column sums backward, the
 * other columns untouched. */
static void check_bias(struct host_fixture *f, enum dtype type)
{
    enum { WIDTH = 21, STRIDE = 26, FIRST = 2, COUNT = ROWS * STRIDE };
    uint64_t seed = 25;
    bf16 *y = random_bf16(&seed, COUNT, 1), *bias = random_bf16(&seed, WIDTH, 1);
    double *before = doubles_of_bf16(y, COUNT);
    float *d_float = random_floats(&seed, WIDTH, 1);
    bf16 *d_bf16 = random_bf16(&seed, WIDTH, 1);
    double *want =
        type == DTYPE_FP32 ? doubles_of_floats(d_float, WIDTH) : doubles_of_bf16(d_bf16, WIDTH);
    assert_int_equal(f->ops->add_bias(f->backend, STREAM_COMPUTE, ROWS, WIDTH, bias, y + FIRST,
                                      STRIDE, &f->diags),
                     0);
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t column = i % STRIDE - FIRST;
        bool biased = column >= 0 && column < WIDTH;
        assert_int_equal(y[i], bf16_of(before[i] + (biased ? double_of(bias[column]) : 0)));
        if (biased)
            want[column] += double_of(y[i]);
    }
    assert_int_equal(
        f->ops->add_bias_backward(f->backend, STREAM_COMPUTE, ROWS, WIDTH, y + FIRST, STRIDE,
                                  type == DTYPE_FP32 ? (void *)d_float : d_bf16, type, &f->diags),
        0);
    if (type == DTYPE_FP32)
        assert_rms_float(d_float, want, WIDTH, 1e-6);
    else
        assert_rms_bf16(d_bf16, want, WIDTH, 0.5);
    void *owned[] = { y, bias, before, d_float, d_bf16, want };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

static void test_bias(void **state)
{
    check_bias(*state, DTYPE_FP32);
    check_bias(*state, DTYPE_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),    cmocka_unit_test(test_bias),
        cmocka_unit_test(test_swiglu),  cmocka_unit_test(test_swiglu_far_out),
        cmocka_unit_test(test_sigmoid),
    };
    return cmocka_run_group_tests(tests, host_fixture_open, host_fixture_close);
}
