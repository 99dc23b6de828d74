/* Operations of attention through MLA's compressed keys and values, and attention whose values are
 * narrower than its keys: forward against their definitions in double, backward against finite
 * differences of these. */
#include "tests/unit/executor/host_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 6, COLUMNS = 20, LONG = COLUMNS + 5, WHOLE = ROWS * LONG };

struct norm_problem {
    double *x, *w, *weight; /* rows of LONG, of which COLUMNS are normed */
    double y[WHOLE];
};

static double define_norm(const void *context)
{
    struct norm_problem *p = (struct norm_problem *)(uintptr_t)context;
    double scalar = 0;
    for (int64_t r = 0; r < ROWS; r++) {
        double squares = 0;
        for (int64_t i = 0; i < COLUMNS; i++)
            squares += p->x[r * LONG + i] * p->x[r * LONG + i];
        for (int64_t i = 0; i < COLUMNS; i++) {
            int64_t at = r * LONG + i;
            p->y[at] = p->x[at] / sqrt(squares / COLUMNS + 1e-6) * p->w[i];
            scalar += p->weight[at] * p->y[at];
        }
    }
    return scalar;
}

/* Columns behind the normed ones stay as they are, and the gradient may take its own place. */
static void test_column_norm(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 71;
    bf16 *x = random_bf16(&seed, WHOLE, 1), *w = random_bf16(&seed, COLUMNS, 1);
    bf16 *d = random_bf16(&seed, WHOLE, 1), *y = random_bf16(&seed, WHOLE, 1);
    struct norm_problem p = {
        doubles_of_bf16(x, WHOLE), doubles_of_bf16(w, COLUMNS), doubles_of_bf16(d, WHOLE), { 0 }
    };
    double want_dw[COLUMNS], *want_dx = doubles_of_bf16(d, WHOLE);
    float dw[COLUMNS] = { 0 };
    struct column_norm_gradient g = { .forward = { .rows = ROWS,
                                                   .width = COLUMNS,
                                                   .eps = 1e-6,
                                                   .x = x,
                                                   .w = w,
                                                   .y = y,
                                                   .x_stride = LONG,
                                                   .y_stride = LONG },
                                      .dy = d,
                                      .dx = d,
                                      .dy_stride = LONG,
                                      .dx_stride = LONG,
                                      .dw = dw,
                                      .grad_type = DTYPE_FP32 };
    for (int64_t i = 0; i < WHOLE; i++)
        if (i % LONG >= COLUMNS)
            p.y[i] = double_of(y[i]);
    (void)define_norm(&p);
    assert_int_equal(f->ops->column_norm(f->backend, STREAM_COMPUTE, &g.forward, &f->diags), 0);
    assert_rms_bf16(y, p.y, WHOLE, 0.5);
    for (int64_t i = 0; i < WHOLE; i++)
        if (i % LONG < COLUMNS)
            want_dx[i] = slope(define_norm, &p, &p.x[i], 1e-5);
    for (int64_t i = 0; i < COLUMNS; i++)
        want_dw[i] = slope(define_norm, &p, &p.w[i], 1e-5);
    assert_int_equal(f->ops->column_norm_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    assert_rms_bf16(d, want_dx, WHOLE, 0.5);
    assert_rms_float(dw, want_dw, COLUMNS, 1e-5);
    double *doubles[] = { p.x, p.w, p.weight, want_dx };
    bf16 *halves[] = { x, w, d, y };
    for (int i = 0; i < 4; i++) {
        free(doubles[i]);
        free(halves[i]);
    }
}

/* The last four of each head's ten turn; turning back restores them. */
static void test_part_rope(void **state)
{
    enum { HEADS = 2, HEAD = 10, TURNED = 4, STRIDE = HEADS * HEAD + 3, COUNT = ROWS * STRIDE };
    struct host_fixture *f = *state;
    uint64_t seed = 72;
    bf16 *x = random_bf16(&seed, COUNT, 1), *y = random_bf16(&seed, COUNT, 1);
    double *want = doubles_of_bf16(y, COUNT), *again = doubles_of_bf16(x, COUNT);
    const struct rope angles = {
        .rows = ROWS, .tokens = 3, .rotary_dim = TURNED, .theta = 100, .adjacent = true
    };
    struct part_rope p = { &angles, HEADS, HEAD, x, y, STRIDE, STRIDE, false };
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t h = 0; h < HEADS; h++) {
            int64_t at = r * STRIDE + h * HEAD;
            for (int64_t i = 0; i < HEAD - TURNED; i++)
                want[at + i] = double_of(x[at + i]);
            for (int64_t i = 0; i < TURNED / 2; i++) {
                double angle = (double)(r % 3) * pow(100, -2.0 * (double)i / TURNED);
                double a = double_of(x[at + 6 + 2 * i]), b = double_of(x[at + 7 + 2 * i]);
                want[at + 6 + 2 * i] = a * cos(angle) - b * sin(angle);
                want[at + 7 + 2 * i] = b * cos(angle) + a * sin(angle);
            }
        }
    assert_int_equal(f->ops->part_rope(f->backend, STREAM_COMPUTE, &p, &f->diags), 0);
    assert_rms_bf16(y, want, COUNT, 0.5);
    p.from = y;
    p.back = true;
    assert_int_equal(f->ops->part_rope(f->backend, STREAM_COMPUTE, &p, &f->diags), 0);
    for (int64_t i = 0; i < COUNT; i++)
        if (i % STRIDE >= HEADS * HEAD)
            again[i] = double_of(y[i]);
    assert_rms_bf16(y, again, COUNT, 1);
    free(x);
    free(y);
    free(want);
    free(again);
}

/* Three heads of 4 + 3, pairs of 4 + 2: every element has one source, so values are exact. */
static void test_join_keys(void **state)
{
    enum { HEADS = 3, OWN = 4, SHARED = 3, PAIR = 6, HEAD = OWN + SHARED };
    struct host_fixture *f = *state;
    uint64_t seed = 73;
    bf16 *own = random_bf16(&seed, ROWS * HEADS * PAIR, 1);
    bf16 *shared = random_bf16(&seed, ROWS * SHARED, 1);
    bf16 keys[ROWS * HEADS * HEAD], *d_own = random_bf16(&seed, ROWS * HEADS * PAIR, 1);
    double before = double_of(d_own[OWN]), want[ROWS * SHARED];
    float sums[ROWS * SHARED];
    struct joined_keys_gradient g = { .forward = { ROWS, HEADS, OWN, SHARED, own, shared,
                                                   HEADS * PAIR, PAIR, SHARED, keys },
                                      .d_keys = keys,
                                      .d_own = d_own,
                                      .d_shared = shared };
    assert_int_equal(f->ops->join_keys(f->backend, STREAM_COMPUTE, &g.forward, &f->diags), 0);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t i = 0; i < HEAD; i++)
                assert_int_equal(keys[(r * HEADS + h) * HEAD + i],
                                 i < OWN ? own[(r * HEADS + h) * PAIR + i]
                                         : shared[r * SHARED + i - OWN]);
    /* keys taken as gradients: each head's shared part is the same number */
    for (int64_t i = 0; i < ROWS * SHARED; i++) {
        want[i] = HEADS * double_of(shared[i]);
        sums[i] = (float)want[i];
    }
    g.d_shared_sum = sums;
    assert_int_equal(f->ops->join_keys_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    for (int64_t i = 0; i < ROWS * SHARED; i++)
        assert_true(fabs(sums[i] - 2 * want[i]) <= 1e-6 * fabs(want[i]));
    g.d_shared_sum = NULL;
    assert_int_equal(f->ops->join_keys_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    assert_rms_bf16(shared, want, ROWS * SHARED, 0.5);
    for (int64_t i = 0; i < OWN; i++)
        assert_int_equal(d_own[PAIR + i], own[PAIR + i]);
    assert_true(double_of(d_own[OWN]) == before);
    free(own);
    free(shared);
    free(d_own);
}

/* Two heads: keys of 6, values of 3 and 2 columns of something else. */
enum {
    TOKENS = 7,
    HEADS = 2,
    KEY = 6,
    VALUE = 3,
    PAIR = VALUE + 2,
    QS = TOKENS * HEADS * KEY,
    VS = TOKENS * HEADS * PAIR,
    OS = TOKENS * HEADS * VALUE
};

struct attention_problem {
    double *q, *k, *v, *weight;
    double o[OS];
};

/* Scores carry a factor of 1.5 over 1 / sqrt(KEY). */
static double define_attention(const void *context)
{
    struct attention_problem *p = (struct attention_problem *)(uintptr_t)context;
    double scalar = 0;
    for (int64_t t = 0; t < TOKENS; t++)
        for (int64_t h = 0; h < HEADS; h++) {
            double scores[TOKENS], total = 0, *o = p->o + (t * HEADS + h) * VALUE;
            memset(o, 0, VALUE * sizeof *o);
            for (int64_t j = 0; j <= t; j++) {
                double sum = 0;
                for (int64_t i = 0; i < KEY; i++)
                    sum += p->q[(t * HEADS + h) * KEY + i] * p->k[(j * HEADS + h) * KEY + i];
                scores[j] = exp(1.5 * sum / sqrt(KEY));
                total += scores[j];
            }
            for (int64_t j = 0; j <= t; j++)
                for (int64_t i = 0; i < VALUE; i++)
                    o[i] += scores[j] / total * p->v[(j * HEADS + h) * PAIR + i];
            for (int64_t i = 0; i < VALUE; i++)
                scalar += p->weight[(t * HEADS + h) * VALUE + i] * o[i];
        }
    return scalar;
}

static void test_narrow_values(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 74;
    bf16 *q = random_bf16(&seed, QS, 1), *k = random_bf16(&seed, QS, 1);
    bf16 *v = random_bf16(&seed, VS, 1), *d_o = random_bf16(&seed, OS, 1), o[OS], dq[QS], dk[QS];
    bf16 *dv = random_bf16(&seed, VS, 1);
    float lse[TOKENS * HEADS], delta[TOKENS * HEADS], workspace[2 * TOKENS * KEY];
    struct attention_problem p = { doubles_of_bf16(q, QS),
                                   doubles_of_bf16(k, QS),
                                   doubles_of_bf16(v, VS),
                                   doubles_of_bf16(d_o, OS),
                                   { 0 } };
    double want_q[QS], want_k[QS], *want_v = doubles_of_bf16(dv, VS);
    struct attention_gradient g = { .forward = { .sequences = 1,
                                                 .heads = HEADS,
                                                 .kv_heads = HEADS,
                                                 .head_dim = KEY,
                                                 .tokens = TOKENS,
                                                 .q = q,
                                                 .k = k,
                                                 .v = v,
                                                 .q_stride = HEADS * KEY,
                                                 .k_stride = HEADS * KEY,
                                                 .v_stride = HEADS * PAIR,
                                                 .o = o,
                                                 .lse = lse,
                                                 .value_dim = VALUE,
                                                 .v_head_stride = PAIR,
                                                 .score_factor = 1.5F },
                                    .d_o = d_o,
                                    .dq = dq,
                                    .dk = dk,
                                    .dv = dv,
                                    .dq_stride = HEADS * KEY,
                                    .dk_stride = HEADS * KEY,
                                    .dv_stride = HEADS * PAIR,
                                    .dv_head_stride = PAIR,
                                    .delta = delta,
                                    .workspace = workspace };
    assert_true(f->ops->attention_workspace_bytes(f->backend, &g.forward) <= sizeof workspace);
    (void)define_attention(&p);
    assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &g.forward, &f->diags), 0);
    assert_rms_bf16(o, p.o, OS, 0.5);
    assert_int_equal(f->ops->attention_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    for (int64_t i = 0; i < QS; i++) {
        want_q[i] = slope(define_attention, &p, &p.q[i], 1e-5);
        want_k[i] = slope(define_attention, &p, &p.k[i], 1e-5);
    }
    for (int64_t i = 0; i < VS; i++)
        if (i % PAIR < VALUE)
            want_v[i] = slope(define_attention, &p, &p.v[i], 1e-5);
    assert_rms_bf16(dq, want_q, QS, 1.5); /* delta is of o, which bf16 rounds */
    assert_rms_bf16(dk, want_k, QS, 1.5);
    assert_rms_bf16(dv, want_v, VS, 0.5);
    bf16 *halves[] = { q, k, v, d_o, dv };
    double *doubles[] = { p.q, p.k, p.v, p.weight, want_v };
    for (int i = 0; i < 5; i++) {
        free(halves[i]);
        free(doubles[i]);
    }
}

/* Values wider than keys have no room in the sums of the backward. */
static void test_wide_values(void **state)
{
    struct host_fixture *f = *state;
    struct diag_list diags = { 0 };
    const struct attention a = {
        .heads = 1, .kv_heads = 1, .head_dim = KEY, .value_dim = KEY + 1, .tokens = 1
    };
    assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &a, &diags), -1);
    assert_int_equal(diags.errors, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_column_norm), cmocka_unit_test(test_part_rope),
        cmocka_unit_test(test_join_keys),   cmocka_unit_test(test_narrow_values),
        cmocka_unit_test(test_wide_values),
    };
    return cmocka_run_group_tests(tests, host_fixture_open, host_fixture_close);
}
