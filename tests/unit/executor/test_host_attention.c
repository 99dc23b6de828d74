/* Attention against the definition in double (all scores, softmax, product), its gradient against
 * finite differences of that, for group-query heads, windows, tiles that do not divide and runs of
 * queries within a longer sequence. */
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
    int64_t rows, key_rows, q_width, kv_width;
    bf16 *d_o;
    double *q, *k, *v, *weight;
    double *o, *lse; /* results of define() */
};

static int64_t keys_of(const struct attention *a)
{
    return a->key_tokens ? a->key_tokens : a->tokens;
}

static int64_t run_stride_of(const struct attention *a)
{
    return a->run_stride ? a->run_stride : a->tokens;
}

static void define_row(const struct problem *p, int sequence, int64_t in_run, int head)
{
    const struct attention *a = &p->a;
    int64_t query = a->first_query + in_run, start = sequence * keys_of(a), d = a->head_dim;
    int64_t row = sequence * run_stride_of(a) + in_run;
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
    for (int sequence = 0; sequence < p->a.sequences; sequence++)
        for (int64_t query = 0; query < p->a.tokens; query++)
            for (int head = 0; head < p->a.heads; head++)
                define_row(p, sequence, query, head);
    for (int64_t i = 0; i < p->rows * p->q_width; i++)
        scalar += p->weight[i] * p->o[i];
    return scalar;
}

/* v lies inside a wider row, as in the fused projection. */
enum { V_EXTRA = 3 };

static struct problem problem_open(uint64_t *seed, struct attention a)
{
    struct problem p = { .a = a,
                         .rows = a.sequences * run_stride_of(&a),
                         .key_rows = a.sequences * keys_of(&a) };
    p.q_width = (int64_t)a.heads * a.head_dim;
    p.kv_width = (int64_t)a.kv_heads * a.head_dim;
    p.a.q_stride = p.q_width;
    p.a.k_stride = p.kv_width;
    p.a.v_stride = p.kv_width + V_EXTRA;
    bf16 *q = random_bf16(seed, p.rows * p.q_width, 1);
    bf16 *k = random_bf16(seed, p.key_rows * p.kv_width, 1);
    bf16 *v = random_bf16(seed, p.key_rows * p.a.v_stride, 1);
    p.a.q = q, p.a.k = k, p.a.v = v;
    p.a.o = get_memory(p.rows * p.q_width, sizeof(bf16));
    p.a.lse = get_memory(p.rows * a.heads, sizeof(float));
    p.d_o = random_bf16(seed, p.rows * p.q_width, 1);
    p.q = doubles_of_bf16(q, p.rows * p.q_width);
    p.k = doubles_of_bf16(k, p.key_rows * p.kv_width);
    p.v = get_memory(p.key_rows * p.kv_width, sizeof(double));
    for (int64_t i = 0; i < p.key_rows * p.kv_width; i++)
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
    { .sequences = 2,
      .heads = 4,
      .kv_heads = 2,
      .head_dim = 16,
      .tokens = 70,
      .key_tokens = 230,
      .first_query = 101,
      .run_stride = 75 },
    { .sequences = 1,
      .heads = 2,
      .kv_heads = 1,
      .head_dim = 24,
      .tokens = 120,
      .window = 30,
      .key_tokens = 300,
      .first_query = 180 },
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
static void check_slopes(uint64_t *seed, const struct problem *p, double *at, int64_t rows,
                         int64_t width, const bf16 *gradient, int64_t stride)
{
    enum { SAMPLES = 40 };
    double want[SAMPLES];
    bf16 got[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        int64_t row = (int64_t)random_below(seed, (uint64_t)rows);
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

/* The rows of dq and of dk | dv as a projection would have them. */
static struct attention_gradient gradient_open(struct host_fixture *f, const struct problem *p)
{
    uint64_t bytes = f->ops->attention_workspace_bytes(f->backend, &p->a);
    int64_t stride = p->q_width + 2 * p->kv_width;
    bf16 *d_kv = get_memory(p->key_rows * stride, sizeof *d_kv);
    assert_int_equal(bytes, 8 * keys_of(&p->a) * p->a.head_dim);
    return (struct attention_gradient){ .forward = p->a,
                                        .d_o = p->d_o,
                                        .dq = get_memory(p->rows * stride, sizeof(bf16)),
                                        .dk = d_kv,
                                        .dv = d_kv + p->kv_width,
                                        .dq_stride = stride,
                                        .dk_stride = stride,
                                        .dv_stride = stride,
                                        .delta = get_memory(p->rows * p->a.heads, sizeof(float)),
                                        .workspace = get_memory((int64_t)bytes, 1) };
}

static void gradient_done(struct attention_gradient *g)
{
    free(g->dq);
    free(g->dk);
    free(g->delta);
    free(g->workspace);
}

static void test_backward(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 12;
    for (int i = 0; i < CASES; i++) {
        struct problem p = problem_open(&seed, cases[i]);
        struct attention_gradient g = gradient_open(f, &p);
        assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &p.a, &f->diags), 0);
        assert_int_equal(f->ops->attention_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
        check_slopes(&seed, &p, p.q, p.rows, p.q_width, g.dq, g.dq_stride);
        check_slopes(&seed, &p, p.k, p.key_rows, p.kv_width, g.dk, g.dk_stride);
        check_slopes(&seed, &p, p.v, p.key_rows, p.kv_width, g.dv, g.dv_stride);
        gradient_done(&g);
        problem_done(&p);
    }
}

/* Two calls add the same sums, which, halved and rounded, are what the call without sums writes. */
static void test_sums_of_key_gradients(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 14;
    struct problem p = problem_open(&seed, cases[CASES - 2]);
    struct attention_gradient plain = gradient_open(f, &p), summed = plain;
    int64_t stride = 2 * p.kv_width + 1;
    float *sums = get_memory(p.key_rows * stride, sizeof *sums);
    summed.dk = summed.dv = NULL;
    summed.dk_sum = sums;
    summed.dv_sum = sums + p.kv_width;
    summed.sum_stride = stride;
    assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &p.a, &f->diags), 0);
    assert_int_equal(f->ops->attention_backward(f->backend, STREAM_COMPUTE, &plain, &f->diags), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(f->ops->attention_backward(f->backend, STREAM_COMPUTE, &summed, &f->diags),
                         0);
    for (int64_t i = 0; i < p.key_rows * 2 * p.kv_width; i++) {
        int64_t row = i / (2 * p.kv_width), column = i % (2 * p.kv_width);
        double half = (double)sums[row * stride + column] / 2;
        assert_int_equal(bf16_of(half), plain.dk[row * plain.dk_stride + column]);
    }
    for (int64_t row = 0; row < p.key_rows; row++)
        assert_true(sums[row * stride + stride - 1] == 0);
    free(sums);
    gradient_done(&plain);
    problem_done(&p);
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

/* A rank's rows of one sequence: its chunk of the first half, then that of the second. */
enum { CP = 3, CHUNK = 50, LOCAL = 2 * CHUNK, WHOLE = 2 * CP * CHUNK, SEQUENCES = 2 };

static int64_t chunk_of(int rank, int run)
{
    return run == 0 ? rank : 2 * CP - 1 - rank;
}

/* to[rank's row] = from[row of the whole sequences] (or back) for rows of `bytes`. */
static void pick_rows(int rank, void *local, void *whole, int64_t bytes, bool back)
{
    for (int64_t i = 0; i < (int64_t)SEQUENCES * LOCAL; i++) {
        int64_t sequence = i / LOCAL, run = i % LOCAL / CHUNK;
        int64_t row = sequence * WHOLE + chunk_of(rank, (int)run) * CHUNK + i % CHUNK;
        char *a = (char *)local + i * bytes, *b = (char *)whole + row * bytes;
        memcpy(back ? b : a, back ? a : b, (size_t)bytes);
    }
}

static void *picked(int rank, const void *whole, int64_t bytes)
{
    void *local = get_memory((int64_t)SEQUENCES * LOCAL, bytes);
    pick_rows(rank, local, (void *)(uintptr_t)whole, bytes, false);
    return local;
}

/* Both runs of one rank, forward and backward, against keys of the whole sequences; o, lse and dq
 * end in their places of the whole, key gradients in the sums. */
static void run_rank(struct host_fixture *f, const struct problem *p,
                     const struct attention_gradient *whole, int rank, struct attention_gradient to)
{
    int64_t heads = p->a.heads, q_bytes = p->q_width * (int64_t)sizeof(bf16);
    int64_t dq_bytes = to.dq_stride * (int64_t)sizeof(bf16);
    bf16 *q = picked(rank, p->a.q, q_bytes), *d_o = picked(rank, p->d_o, q_bytes);
    bf16 *o = picked(rank, p->a.o, q_bytes), *dq = picked(rank, to.dq, dq_bytes);
    float *lse = picked(rank, p->a.lse, 4 * heads), *delta = picked(rank, p->a.lse, 4 * heads);
    for (int run = 0; run < 2; run++) {
        struct attention_gradient g = to;
        int64_t at = (int64_t)run * CHUNK;
        g.forward = p->a;
        g.forward.tokens = CHUNK;
        g.forward.key_tokens = WHOLE;
        g.forward.first_query = chunk_of(rank, run) * CHUNK;
        g.forward.run_stride = LOCAL;
        g.forward.q = q + at * p->q_width;
        g.forward.o = o + at * p->q_width;
        g.forward.lse = lse + at * heads;
        g.d_o = d_o + at * p->q_width;
        g.dq = dq + at * g.dq_stride;
        g.delta = delta + at * heads;
        g.workspace = whole->workspace;
        assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &g.forward, &f->diags), 0);
        assert_int_equal(f->ops->attention_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    }
    pick_rows(rank, o, to.forward.o, q_bytes, true);
    pick_rows(rank, lse, to.forward.lse, 4 * heads, true);
    pick_rows(rank, dq, to.dq, dq_bytes, true);
    void *owned[] = { q, d_o, o, dq, lse, delta };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

/* dq with gates between the heads: the heads are those of `dense`, the gates untouched. */
static void check_gated_dq(const struct attention_gradient *dense,
                           const struct attention_gradient *gated, const bf16 *before, int64_t rows)
{
    const struct attention *a = &dense->forward;
    int64_t d = a->head_dim;
    for (int64_t i = 0; i < rows * a->heads; i++) {
        int64_t row = i / a->heads, head = i % a->heads;
        int64_t at = row * gated->dq_stride + head * gated->dq_head_stride;
        assert_memory_equal(gated->dq + at, dense->dq + row * dense->dq_stride + head * d,
                            (size_t)d * sizeof(bf16));
        assert_memory_equal(gated->dq + at + d, before + at + d, (size_t)d * sizeof(bf16));
    }
}

/* The halves of a zig-zag order, rank after rank, give what one call over whole sequences gives: o,
 * lse and dq to the bit, dk and dv but for the order of sums. */
static void check_zig_zag(struct host_fixture *f, int64_t window)
{
    uint64_t seed = 15;
    const struct attention shape = { .sequences = SEQUENCES,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 16,
                                     .tokens = WHOLE,
                                     .window = window };
    struct problem p = problem_open(&seed, shape);
    struct attention_gradient whole = gradient_open(f, &p), parts = { .forward = p.a };
    int64_t dq_count = p.rows * 2 * p.q_width, sums = p.key_rows * 2 * p.kv_width;
    whole.dk_sum = get_memory(sums, sizeof(float));
    whole.dv_sum = whole.dk_sum + p.kv_width;
    whole.sum_stride = 2 * p.kv_width;
    assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &p.a, &f->diags), 0);
    assert_int_equal(f->ops->attention_backward(f->backend, STREAM_COMPUTE, &whole, &f->diags), 0);
    bf16 *before = random_bf16(&seed, dq_count, 1);
    parts.forward.o = get_memory(p.rows * p.q_width, sizeof(bf16));
    parts.forward.lse = get_memory(p.rows * p.a.heads, sizeof(float));
    parts.dq = get_memory(dq_count, sizeof(bf16));
    memcpy(parts.dq, before, (size_t)dq_count * sizeof(bf16));
    parts.dq_stride = 2 * p.q_width;
    parts.dq_head_stride = (int64_t)2 * p.a.head_dim;
    parts.dk_sum = get_memory(sums, sizeof(float));
    parts.dv_sum = parts.dk_sum + p.kv_width;
    parts.sum_stride = whole.sum_stride;
    for (int rank = 0; rank < CP; rank++)
        run_rank(f, &p, &whole, rank, parts);
    assert_memory_equal(parts.forward.o, p.a.o, (size_t)(p.rows * p.q_width) * sizeof(bf16));
    assert_memory_equal(parts.forward.lse, p.a.lse, (size_t)(p.rows * p.a.heads) * sizeof(float));
    check_gated_dq(&whole, &parts, before, p.rows);
    double *want = doubles_of_floats(whole.dk_sum, sums);
    assert_rms_float(parts.dk_sum, want, sums, 1e-6);
    void *owned[] = { before, parts.forward.o, parts.forward.lse, parts.dq, parts.dk_sum,
                      want,   whole.dk_sum };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
    gradient_done(&whole);
    problem_done(&p);
}

static void test_zig_zag(void **state)
{
    check_zig_zag(*state, 0);
    check_zig_zag(*state, 64);
}

static void test_shapes_that_do_not_fit(void **state)
{
    struct host_fixture *f = *state;
    struct diag_list diags = { 0 };
    struct attention wide = { .heads = 1, .kv_heads = 1, .head_dim = 257, .tokens = 1 };
    struct attention odd = { .heads = 3, .kv_heads = 2, .head_dim = 8, .tokens = 1 };
    assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &wide, &diags), -1);
    struct attention late = {
        .heads = 1, .kv_heads = 1, .head_dim = 8, .tokens = 3, .key_tokens = 9, .first_query = 7
    };
    assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &odd, &diags), -1);
    assert_int_equal(f->ops->attention(f->backend, STREAM_COMPUTE, &late, &diags), -1);
    assert_int_equal(diags.errors, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_rows_are_independent),
        cmocka_unit_test(test_sums_of_key_gradients),
        cmocka_unit_test(test_zig_zag),
        cmocka_unit_test(test_shapes_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, host_fixture_open, host_fixture_close);
}
