/* Attention against the definition in double (all scores, softmax, product), its gradient against
 * finite differences of that, for group-query heads, windows and tiles that do not divide. */
#include "tests/support/random.h"
#include "tests/unit/executor/host_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* One case: shapes, data as stored, data in double, and the output's weight in the scalar that is
 * differentiated. */
struct problem {
    struct attention a;
    int64_t rows, q_width, kv_width;
    bf16 *d_o;
    double *q, *k, *v, *weight;
    double *o, *lse; /* results of define() */
};

static void define_row(const struct problem *p, int64_t row, int head)
{
    const struct attention *a = &p->a;
    int64_t query = row % a->tokens, start = row - query, d = a->head_dim;
    int64_t first = a->window > 0 && query + 1 > a->window ? query + 1 - a->window : 0;
    const double *q = p->q + row * p->q_width + head * d;
    int64_t kv = head / (a->heads / a->kv_heads) * d;
    double *o = p->o + row * p->q_width + head * d, sum = 0;
    for (int64_t i = 0; i < d; i++)
        o[i] = 0;
    for (int64_t key = first; key <= query; key++) {
        const double *k = p->k + (start + key) * p->kv_width + kv;
        const double *v = p->v + (start + key) * p->kv_width + kv;
        double score = 0;
        for (int64_t i = 0; i < d; i++)
            score += q[i] * k[i];
        double share = exp(score / sqrt((double)d));
        sum += share;
        for (int64_t i = 0; i < d; i++)
            o[i] += share * v[i];
    }
    for (int64_t i = 0; i < d; i++)
        o[i] /= sum;
    p->lse[row * a->heads + head] = log(sum);
}

static double define(const void *context)
{
    const struct problem *p = context;
    double scalar = 0;
    for (int64_t row = 0; row < p->rows; row++)
        for (int head = 0; head < p->a.heads; head++)
            define_row(p, row, head);
    for (int64_t i = 0; i < p->rows * p->q_width; i++)
        scalar += p->weight[i] * p->o[i];
    return scalar;
}

/* v lies inside a wider row, as in the fused projection. */
enum { V_EXTRA = 3 };

static struct problem problem_open(uint64_t *seed, struct attention a)
{
    struct problem p = { .a = a, .rows = a.sequences * a.tokens };
    p.q_width = (int64_t)a.heads * a.head_dim;
    p.kv_width = (int64_t)a.kv_heads * a.head_dim;
    p.a.q_stride = p.q_width;
    p.a.k_stride = p.kv_width;
    p.a.v_stride = p.kv_width + V_EXTRA;
    bf16 *q = random_bf16(seed, p.rows * p.q_width, 1);
    bf16 *k = random_bf16(seed, p.rows * p.kv_width, 1);
    bf16 *v = random_bf16(seed, p.rows * p.a.v_stride, 1);
    p.a.q = q, p.a.k = k, p.a.v = v;
    p.a.o = get_memory(p.rows * p.q_width, sizeof(bf16));
    p.a.lse = get_memory(p.rows * a.heads, sizeof(float));
    p.d_o = random_bf16(seed, p.rows * p.q_width, 1);
    p.q = doubles_of_bf16(q, p.rows * p.q_width);
    p.k = doubles_of_bf16(k, p.rows * p.kv_width);
    p.v = get_memory(p.rows * p.kv_width, sizeof(double));
    for (int64_t i = 0; i < p.rows * p.kv_width; i++)
        p.v[i] = double_of(v[i / p.kv_width * p.a.v_stride + i % p.kv_width]);
    p.weight = doubles_of_bf16(p.d_o, p.rows * p.q_width);
    p.o = get_memory(p.rows * p.q_width, sizeof(double));
    p.lse = get_memory(p.rows * a.heads, sizeof(double));
    return p;
}

static void problem_done(struct problem *p)
{
    void *owned[] = { (bf16 *)(uintptr_t)p->a.q,
                      (bf16 *)(uintptr_t)p->a.k,
                      (bf16 *)(uintptr_t)p->a.v,
                      p->a.o,
                      p->a.lse,
                      p->d_o,
                      p->q,
                      p->k,
                      p->v,
                      p->weight,
                      p->o,
                      p->lse };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

static const struct attention cases[] = {
    { .sequences = 2, .heads = 4, .kv_heads = 2, .head_dim = 16, .tokens = 130 },
    { .sequences = 1, .heads = 2, .kv_heads = 1, .head_dim = 20, .tokens = 200, .window = 7 },
    { .sequences = 1, .heads = 1, .kv_heads = 1, .head_dim = 256, .tokens = 97 },
    { .sequences = 1, .heads = 2, .kv_heads = 2, .head_dim = 8, .tokens = 250, .window = 110 },
    { .sequences = 3, .heads = 3, .kv_heads = 1, .head_dim = 32, .tokens = 1 },
};
enum { CASES = (int)(sizeof cases / sizeof cases[0]) };

static void test_forward(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 11;
    for (int i = 0; i < CASES; i++) {
        struct problem p = problem_open(&seed, cases[i]);
        (void)define(&p);
        assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &p.a, &f->diags), 0);
        assert_rms_bf16(p.a.o, p.o, p.rows * p.q_width, 0.5);
        assert_rms_float(p.a.lse, p.lse, p.rows * p.a.heads, 1e-5);
        problem_done(&p);
    }
}

/* Compares a sample of a gradient's elements with slopes of the definition. */
static void check_slopes(uint64_t *seed, const struct problem *p, double *at, int64_t width,
                         const bf16 *gradient, int64_t stride)
{
    enum { SAMPLES = 40 };
    double want[SAMPLES];
    bf16 got[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        int64_t row = (int64_t)random_below(seed, (uint64_t)p->rows);
        int64_t column = (int64_t)random_below(seed, (uint64_t)width);
        want[i] = slope(define, p, &at[row * width + column], 1e-4);
        got[i] = gradient[row * stride + column];
    }
    double size = 0;
    for (int i = 0; i < SAMPLES; i++)
        size += fabs(want[i]);
    if (size > 1e-6)
        assert_rms_bf16(got, want, SAMPLES, 2);
    else
        for (int i = 0; i < SAMPLES; i++)
            assert_true(fabs(double_of(got[i])) < 0.01);
}

static void test_backward(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 12;
    for (int i = 0; i < CASES; i++) {
        struct problem p = problem_open(&seed, cases[i]);
        int64_t stride = p.q_width + 2 * p.kv_width;
        bf16 *dqkv = get_memory(p.rows * stride, sizeof *dqkv);
        float *delta = get_memory(p.rows * p.a.heads, sizeof *delta);
        uint64_t bytes = f->ops->attention_workspace_bytes(f->backend, &p.a);
        assert_int_equal(bytes, 8 * p.a.tokens * p.a.head_dim);
        void *workspace = get_memory((int64_t)bytes, 1);
        assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &p.a, &f->diags), 0);
        struct attention_gradient g = { .forward = p.a,
                                        .d_o = p.d_o,
                                        .dq = dqkv,
                                        .dk = dqkv + p.q_width,
                                        .dv = dqkv + p.q_width + p.kv_width,
                                        .dq_stride = stride,
                                        .dk_stride = stride,
                                        .dv_stride = stride,
                                        .delta = delta,
                                        .workspace = workspace };
        assert_int_equal(f->ops->attention_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
        check_slopes(&seed, &p, p.q, p.q_width, g.dq, stride);
        check_slopes(&seed, &p, p.k, p.kv_width, g.dk, stride);
        check_slopes(&seed, &p, p.v, p.kv_width, g.dv, stride);
        free(dqkv);
        free(delta);
        free(workspace);
        problem_done(&p);
    }
}

/* The first tokens of a sequence do not see that it goes on. */
static void test_rows_are_independent(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 13;
    struct problem p = problem_open(&seed, (struct attention){ .sequences = 1,
                                                               .heads = 2,
                                                               .kv_heads = 1,
                                                               .head_dim = 24,
                                                               .tokens = 210,
                                                               .window = 120 });
    bf16 *whole = p.a.o;
    assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &p.a, &f->diags), 0);
    for (int64_t tokens = 1; tokens < 210; tokens += 13) {
        struct attention part = p.a;
        part.tokens = tokens;
        part.o = get_memory(tokens * p.q_width, sizeof(bf16));
        assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &part, &f->diags), 0);
        assert_memory_equal(part.o, whole, (size_t)(tokens * p.q_width) * sizeof(bf16));
        free(part.o);
    }
    problem_done(&p);
}

static void test_heads_that_do_not_fit(void **state)
{
    struct host_fixture *f = *state;
    struct diag_list diags = { 0 };
    struct attention wide = { .heads = 1, .kv_heads = 1, .head_dim = 257, .tokens = 1 };
    struct attention odd = { .heads = 3, .kv_heads = 2, .head_dim = 8, .tokens = 1 };
    assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &wide, &diags), -1);
    assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &odd, &diags), -1);
    assert_int_equal(diags.errors, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_rows_are_independent),
        cmocka_unit_test(test_heads_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, host_fixture_open, host_fixture_close);
}
