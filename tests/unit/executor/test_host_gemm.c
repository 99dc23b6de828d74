/* Every form, type and shape of the matrix product against a triple loop in double; rows bitwise
 * independent of the rows beside them; workspace in one piece of constant size. */
#include "tests/support/golden.h"
#include "tests/support/random.h"
#include "tests/unit/executor/host_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

struct matrix {
    int64_t rows, columns, stride;
    enum dtype type;
    void *data;
    double *values;
};

static struct matrix matrix_open(uint64_t *seed, int64_t rows, int64_t columns, enum dtype type)
{
    struct matrix m = { rows, columns, columns + (int64_t)random_below(seed, 5), type, NULL, NULL };
    if (type == DTYPE_BF16) {
        m.data = random_bf16(seed, rows * m.stride, 1);
        m.values = doubles_of_bf16(m.data, rows * m.stride);
    } else {
        m.data = random_floats(seed, rows * m.stride, 1);
        m.values = doubles_of_floats(m.data, rows * m.stride);
    }
    return m;
}

static void matrix_done(struct matrix *m)
{
    free(m->data);
    free(m->values);
}

/* Elements between the columns and the next row must stay as they were: they are part of it. */
static void assert_matrix(const struct matrix *got, const double *want)
{
    if (got->type == DTYPE_BF16)
        assert_rms_bf16(got->data, want, got->rows * got->stride, 0.5);
    else
        assert_rms_float(got->data, want, got->rows * got->stride, 2e-6);
}

/* The definition, by index: which factor each form takes from where. */
static double element(const struct gemm *g, const struct matrix *a, const struct matrix *b,
                      int64_t row, int64_t column)
{
    double sum = 0;
    switch (g->form) {
    case GEMM_FORWARD:
        for (int64_t i = 0; i < g->k; i++)
            sum += a->values[row * a->stride + i] * b->values[column * b->stride + i];
        break;
    case GEMM_INPUT:
        for (int64_t i = 0; i < g->n; i++)
            sum += a->values[row * a->stride + i] * b->values[i * b->stride + column];
        break;
    case GEMM_WEIGHT:
        for (int64_t i = 0; i < g->m; i++)
            sum += a->values[i * a->stride + row] * b->values[i * b->stride + column];
        break;
    }
    return sum;
}

static void check_product(struct host_fixture *f, uint64_t *seed, struct gemm g)
{
    int64_t a_rows = g.m, a_columns = g.form == GEMM_FORWARD ? g.k : g.n;
    int64_t b_rows = g.form == GEMM_WEIGHT ? g.m : g.n, b_columns = g.k;
    int64_t c_rows = g.form == GEMM_WEIGHT ? g.n : g.m;
    int64_t c_columns = g.form == GEMM_FORWARD ? g.n : g.k;
    struct matrix a = matrix_open(seed, a_rows, a_columns, g.a_type);
    struct matrix b = matrix_open(seed, b_rows, b_columns, g.b_type);
    struct matrix c = matrix_open(seed, c_rows, c_columns, g.c_type);
    g.a = a.data, g.b = b.data, g.c = c.data;
    g.a_stride = a.stride, g.b_stride = b.stride, g.c_stride = c.stride;
    for (int64_t r = 0; r < c_rows; r++)
        for (int64_t j = 0; j < c_columns; j++) {
            double old = g.accumulate ? c.values[r * c.stride + j] : 0;
            c.values[r * c.stride + j] = old + element(&g, &a, &b, r, j);
        }
    assert_int_equal(f->ops->gemm(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    assert_matrix(&c, c.values);
    matrix_done(&a);
    matrix_done(&b);
    matrix_done(&c);
}

static void test_every_form_and_type(void **state)
{
    static const int64_t shapes[][3] = { { 1, 1, 1 },   { 7, 33, 5 },    { 64, 48, 96 },
                                         { 13, 1, 70 }, { 100, 17, 31 }, { 0, 4, 3 } };
    static const enum gemm_form forms[] = { GEMM_FORWARD, GEMM_INPUT, GEMM_WEIGHT };
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t form = 0; form < 3; form++)
            for (unsigned bits = 0; bits < 16; bits++)
                check_product(*state, &seed,
                              (struct gemm){ .form = forms[form],
                                             .m = shapes[i][0],
                                             .n = shapes[i][1],
                                             .k = shapes[i][2],
                                             .a_type = bits & 1 ? DTYPE_FP32 : DTYPE_BF16,
                                             .b_type = bits & 2 ? DTYPE_FP32 : DTYPE_BF16,
                                             .c_type = bits & 4 ? DTYPE_FP32 : DTYPE_BF16,
                                             .accumulate = bits & 8 });
}

/* Larger than every panel in every direction. */
static void test_many_panels(void **state)
{
    static const enum gemm_form forms[] = { GEMM_FORWARD, GEMM_INPUT, GEMM_WEIGHT };
    uint64_t seed = 2;
    for (size_t form = 0; form < 3; form++)
        check_product(*state, &seed,
                      (struct gemm){ .form = forms[form],
                                     .m = 401,
                                     .n = 389,
                                     .k = 277,
                                     .c_type = DTYPE_FP32,
                                     .accumulate = true });
}

/* Rows computed alone, in odd groups and all at once are the same bits. */
static void test_rows_are_independent(void **state)
{
    enum { ROWS = 403, WIDTH = 270, OUTPUTS = 37, IN = ROWS * WIDTH, OUT = ROWS * OUTPUTS };
    static const int64_t pieces[] = { 1, 5, 6, 64, 385 };
    struct host_fixture *f = *state;
    uint64_t seed = 3;
    for (int form = GEMM_FORWARD; form <= GEMM_INPUT; form++) {
        int64_t n = form == GEMM_FORWARD ? OUTPUTS : WIDTH;
        int64_t k = form == GEMM_FORWARD ? WIDTH : OUTPUTS;
        bf16 *a = random_bf16(&seed, IN, 1), *b = random_bf16(&seed, n * k, 1);
        float *whole = get_memory(OUT, sizeof *whole);
        float *apart = get_memory(OUT, sizeof *apart);
        struct gemm g = {
            (enum gemm_form)form, ROWS,       n,     k, a,       b,     whole, DTYPE_BF16,
            DTYPE_BF16,           DTYPE_FP32, WIDTH, k, OUTPUTS, false, 0
        };
        assert_int_equal(f->ops->gemm(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
            for (int64_t row = 0; row < ROWS; row += pieces[i]) {
                g.m = ROWS - row < pieces[i] ? ROWS - row : pieces[i];
                g.a = a + row * WIDTH;
                g.c = apart + row * OUTPUTS;
                assert_int_equal(f->ops->gemm(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
            }
            assert_memory_equal(apart, whole, OUT * sizeof *whole);
        }
        free(a);
        free(b);
        free(whole);
        free(apart);
    }
}

enum {
    EXPERTS = 4,
    ROUTED = 50,
    INPUTS = 20,
    OUTS = 12,
    ALL_IN = ROUTED * INPUTS,
    ALL_OUT = ROUTED * OUTS,
    ONE_WEIGHT = OUTS * INPUTS,
    ALL_WEIGHTS = EXPERTS * ONE_WEIGHT
};
static const int64_t offsets[EXPERTS + 1] = { 0, 17, 17, 18, ROUTED };

static int expert_of(int64_t row)
{
    int e = 0;
    while (row >= offsets[e + 1])
        e++;
    return e;
}

/* Each row meets its own expert's weight; a weight's gradient sees its own rows only, and an expert
 * without rows gets zeros. */
static void test_experts(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 4;
    int64_t stride = ONE_WEIGHT + 8;
    bf16 *x = random_bf16(&seed, ALL_IN, 1), *dy = random_bf16(&seed, ALL_OUT, 1);
    bf16 *w = random_bf16(&seed, EXPERTS * stride, 1);
    bf16 *y = get_memory(ALL_OUT, sizeof *y), *dx = get_memory(ALL_IN, sizeof *dx);
    float *dw = random_floats(&seed, EXPERTS * stride, 1);
    double *want_y = get_memory(ALL_OUT, 8), *want_dx = get_memory(ALL_IN, 8);
    double *want_dw = doubles_of_floats(dw, EXPERTS * stride);
    for (int64_t i = 0; i < ALL_WEIGHTS; i++)
        want_dw[i / ONE_WEIGHT * stride + i % ONE_WEIGHT] = 0;
    for (int64_t r = 0; r < ROUTED; r++)
        for (int64_t n = 0; n < OUTS; n++)
            for (int64_t k = 0; k < INPUTS; k++) {
                int64_t at = expert_of(r) * stride + n * INPUTS + k;
                want_y[r * OUTS + n] += double_of(x[r * INPUTS + k]) * double_of(w[at]);
                want_dx[r * INPUTS + k] += double_of(dy[r * OUTS + n]) * double_of(w[at]);
                want_dw[at] += double_of(dy[r * OUTS + n]) * double_of(x[r * INPUTS + k]);
            }
    struct gemm forward = { .form = GEMM_FORWARD, .n = OUTS, .k = INPUTS, .a = x, .b = w, .c = y };
    forward.a_stride = forward.b_stride = INPUTS;
    forward.c_stride = OUTS;
    struct gemm input = forward, weight = forward;
    input.form = GEMM_INPUT, input.a = dy, input.c = dx;
    input.a_stride = OUTS, input.c_stride = INPUTS;
    weight.form = GEMM_WEIGHT, weight.a = dy, weight.b = x, weight.c = dw;
    weight.a_stride = OUTS, weight.c_stride = INPUTS, weight.c_type = DTYPE_FP32;
    const struct gemm *all[] = { &forward, &input, &weight };
    for (int i = 0; i < 3; i++) {
        struct expert_gemm g = { *all[i], EXPERTS, offsets, stride };
        assert_int_equal(f->ops->expert_gemm(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    }
    assert_rms_bf16(y, want_y, ALL_OUT, 0.5);
    assert_rms_bf16(dx, want_dx, ALL_IN, 0.5);
    assert_rms_float(dw, want_dw, EXPERTS * stride, 1e-6);
    void *owned[] = { x, dy, w, y, dx, dw, want_y, want_dx, want_dw };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

static void test_no_workspace_is_an_error(void **state)
{
    struct host_fixture *f = *state;
    struct diag_list diags = { 0 };
    struct gemm g = { .form = GEMM_FORWARD, .m = 1, .n = 1, .k = 1 };
    f->ops->set_workspace(f->backend, NULL);
    assert_int_equal(f->ops->gemm(f->backend, STREAM_COMPUTE, &g, &diags), -1);
    assert_golden_diags("no workspace", &diags);
    f->ops->set_workspace(f->backend, f->workspace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form_and_type),      cmocka_unit_test(test_many_panels),
        cmocka_unit_test(test_rows_are_independent),     cmocka_unit_test(test_experts),
        cmocka_unit_test(test_no_workspace_is_an_error),
    };
    return cmocka_run_group_tests(tests, host_fixture_open, host_fixture_close);
}
