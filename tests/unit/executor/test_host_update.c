/* Embedding, loss, norms of gradients, AdamW and conversions against double and hand
 * calculation. */
#include "executor/backend/host/bf16.h"
#include "executor/backend/host/exponential.h"
#include "tests/support/near.h"
#include "tests/support/random.h"
#include "tests/unit/executor/host_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* All 65,536 values there and back; every other float to the nearest, ties to even. */
static void test_conversions(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = bf16_to_float((bf16)bits);
        if (isnan(value)) {
            assert_true(isnan(bf16_to_float(bf16_from_float(value))));
            continue;
        }
        assert_true((double)value == double_of((bf16)bits));
        assert_int_equal(bf16_from_float(value), bits);
    }
    uint64_t seed = 41;
    for (int64_t i = 0; i < 200000; i++) {
        uint32_t bits = (uint32_t)random_next(&seed);
        if (i % 4 == 0)
            bits = (bits & 0xffff0000U) | 0x8000U; /* half way */
        float value;
        memcpy(&value, &bits, sizeof value);
        if (!isnan(value))
            assert_int_equal(bf16_from_float(value), bf16_of((double)value));
    }
    const uint32_t quiet_bits = 0x7f800001U; /* a NaN whose upper half alone would be infinity */
    float nan_value;
    memcpy(&nan_value, &quiet_bits, sizeof nan_value);
    assert_true(isnan(bf16_to_float(bf16_from_float(nan_value))));
}

static void test_exponential(void **state)
{
    (void)state;
    for (int i = -87000; i < 88000; i++) {
        float x = 0.001F * (float)i;
        assert_near(fast_exp(x), exp((double)x), 2.5e-7, "");
    }
    assert_true(fast_exp(-INFINITY) == 0.0F);
    assert_true(fast_exp(-88.0F) == 0.0F);
    assert_true(fast_exp(0.0F) == 1.0F);
}

enum {
    ROWS = 30,
    VOCAB = 77,
    WIDTH = 19,
    TOKENS = 7,
    LOGITS = ROWS * VOCAB,
    DENSE = ROWS * WIDTH,
    TABLE = TOKENS * WIDTH
};

struct loss_problem {
    double *logits;
    const int32_t *targets;
};

static double define_loss(const void *context)
{
    const struct loss_problem *p = context;
    double loss = 0;
    for (int64_t r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int64_t v = 0; v < VOCAB; v++)
            sum += exp(p->logits[r * VOCAB + v]);
        if (p->targets[r] >= 0)
            loss += log(sum) - p->logits[r * VOCAB + p->targets[r]];
    }
    return loss;
}

static void test_cross_entropy(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 42;
    float *logits = random_floats(&seed, LOGITS, 3);
    int32_t targets[ROWS];
    for (int64_t r = 0; r < ROWS; r++)
        targets[r] = r % 5 == 4 ? -1 : (int32_t)random_below(&seed, VOCAB);
    struct loss_problem p = { doubles_of_floats(logits, LOGITS), targets };
    double want[LOGITS], loss = 2.5;
    for (int64_t i = 0; i < LOGITS; i++)
        want[i] = 0.125 * slope(define_loss, &p, &p.logits[i], 1e-5);
    bf16 *gradient = random_bf16(&seed, LOGITS, 1);
    assert_int_equal(f->ops->cross_entropy(f->backend, STREAM_COMPUTE, ROWS, VOCAB, logits, targets,
                                           0.125F, gradient, &loss, &f->diags),
                     0);
    assert_near(loss, 2.5 + define_loss(&p), 1e-6, "nats");
    assert_rms_bf16(gradient, want, LOGITS, 0.5);
    struct diag_list diags = { 0 };
    targets[0] = VOCAB;
    assert_int_equal(f->ops->cross_entropy(f->backend, STREAM_COMPUTE, ROWS, VOCAB, logits, targets,
                                           1, gradient, &loss, &diags),
                     -1);
    free(logits);
    free(gradient);
    free(p.logits);
}

/* Logits of one row: 0 and ln 3, target the first: p = 1/4, loss = ln 4, gradient -3/4 and 3/4. */
static void test_cross_entropy_by_hand(void **state)
{
    struct host_fixture *f = *state;
    float logits[2] = { 0, (float)log(3) };
    int32_t target = 0;
    bf16 gradient[2];
    double loss = 0;
    assert_int_equal(f->ops->cross_entropy(f->backend, STREAM_COMPUTE, 1, 2, logits, &target, 1,
                                           gradient, &loss, &f->diags),
                     0);
    assert_near(loss, log(4), 1e-6, "nats");
    assert_int_equal(gradient[0], bf16_of(-0.75));
    assert_int_equal(gradient[1], bf16_of(0.75));
}

static void check_embedding(struct host_fixture *f, enum dtype type)
{
    uint64_t seed = 43;
    int32_t ids[ROWS];
    for (int64_t r = 0; r < ROWS; r++)
        ids[r] = (int32_t)random_below(&seed, TOKENS);
    bf16 *table = random_bf16(&seed, TABLE, 1), *dy = random_bf16(&seed, DENSE, 1);
    bf16 out[DENSE], *d_bf16 = random_bf16(&seed, TABLE, 1);
    float *d_float = random_floats(&seed, TABLE, 1);
    assert_int_equal(
        f->ops->embed(f->backend, STREAM_COMPUTE, ROWS, WIDTH, ids, table, out, &f->diags), 0);
    for (int64_t r = 0; r < ROWS; r++)
        assert_memory_equal(out + r * WIDTH, table + (int64_t)ids[r] * WIDTH, WIDTH * sizeof *out);
    double *want =
        type == DTYPE_FP32 ? doubles_of_floats(d_float, TABLE) : doubles_of_bf16(d_bf16, TABLE);
    for (int64_t i = 0; i < DENSE; i++)
        want[(int64_t)ids[i / WIDTH] * WIDTH + i % WIDTH] += double_of(dy[i]);
    void *d_table = type == DTYPE_FP32 ? (void *)d_float : d_bf16;
    assert_int_equal(f->ops->embed_backward(f->backend, STREAM_COMPUTE, ROWS, WIDTH, ids, dy,
                                            d_table, type, &f->diags),
                     0);
    if (type == DTYPE_FP32)
        assert_rms_float(d_float, want, TABLE, 1e-6);
    else
        assert_rms_bf16(d_bf16, want, TABLE, 0.5);
    free(table);
    free(dy);
    free(d_bf16);
    free(d_float);
    free(want);
}

static void test_embedding(void **state)
{
    check_embedding(*state, DTYPE_FP32);
    check_embedding(*state, DTYPE_BF16);
}

static void test_sums(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 44;
    enum { COUNT = 1003 };
    float *floats = random_floats(&seed, COUNT, 1), *more = random_floats(&seed, COUNT, 1);
    bf16 *halves = random_bf16(&seed, COUNT, 1), rounded[COUNT];
    double want[COUNT], squares = 0, sum = 0;
    for (int64_t i = 0; i < COUNT; i++)
        squares += double_of(halves[i]) * double_of(halves[i]);
    assert_int_equal(
        f->ops->sum_squares(f->backend, STREAM_COMPUTE, COUNT, halves, DTYPE_BF16, &sum, &f->diags),
        0);
    assert_near(sum, squares, 1e-12, "");
    assert_int_equal(f->ops->to_bf16(f->backend, STREAM_COMPUTE, COUNT, floats, rounded, &f->diags),
                     0);
    for (int64_t i = 0; i < COUNT; i++) {
        assert_int_equal(rounded[i], bf16_of((double)floats[i]));
        want[i] = double_of(rounded[i]) + double_of(halves[i]);
    }
    assert_int_equal(
        f->ops->add(f->backend, STREAM_COMPUTE, COUNT, halves, rounded, DTYPE_BF16, &f->diags), 0);
    for (int64_t i = 0; i < COUNT; i++) {
        assert_int_equal(rounded[i], bf16_of(want[i]));
        want[i] = (double)(floats[i] + more[i]);
    }
    assert_int_equal(
        f->ops->add(f->backend, STREAM_COMPUTE, COUNT, floats, more, DTYPE_FP32, &f->diags), 0);
    squares = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        assert_true((double)more[i] == want[i]);
        squares += want[i] * want[i];
    }
    assert_int_equal(
        f->ops->sum_squares(f->backend, STREAM_COMPUTE, COUNT, more, DTYPE_FP32, &sum, &f->diags),
        0);
    assert_near(sum, squares, 1e-12, "");
    free(floats);
    free(more);
    free(halves);
}

/* One step from zero moments: m^ = g and v^ = g^2, so the weight moves by rate * sign(g) after its
 * decay: 2 (1 - 0.1 * 0.5) - 0.1 = 1.8 and -2 * 0.95 + 0.1 = -1.8. */
static void test_adamw_by_hand(void **state)
{
    struct host_fixture *f = *state;
    float gradient[2] = { 3, -0.5F }, master[2] = { 2, -2 }, m[2] = { 0 }, v[2] = { 0 };
    bf16 weight[2];
    struct adamw a = { 2, gradient, DTYPE_FP32, master, m,     v,    weight,
                       1, 0.1F,     0.9F,       0.999F, 1e-8F, 0.5F, 1 };
    assert_int_equal(f->ops->adamw(f->backend, STREAM_COMPUTE, &a, &f->diags), 0);
    assert_near(master[0], 1.8, 1e-6, "");
    assert_near(master[1], -1.8, 1e-6, "");
    assert_int_equal(weight[0], bf16_of(1.8));
    assert_near(m[0], 0.3, 1e-6, "");
    assert_near(v[0], 0.009, 1e-4, "");
}

static void test_adamw_steps(void **state)
{
    enum { COUNT = 101, STEPS = 6 };
    struct host_fixture *f = *state;
    uint64_t seed = 45;
    float *master = random_floats(&seed, COUNT, 1), m[COUNT] = { 0 }, v[COUNT] = { 0 };
    double *want = doubles_of_floats(master, COUNT), want_m[COUNT] = { 0 }, want_v[COUNT] = { 0 };
    bf16 weight[COUNT];
    for (int step = 1; step <= STEPS; step++) {
        bf16 *gradient = random_bf16(&seed, COUNT, 1);
        struct adamw a = { COUNT, gradient, DTYPE_BF16, master, m,     v,    weight,
                           0.25F, 0.01F,    0.9F,       0.95F,  1e-3F, 0.1F, step };
        assert_int_equal(f->ops->adamw(f->backend, STREAM_COMPUTE, &a, &f->diags), 0);
        for (int64_t i = 0; i < COUNT; i++) {
            double g = 0.25 * double_of(gradient[i]);
            want_m[i] = 0.9 * want_m[i] + 0.1 * g;
            want_v[i] = 0.95 * want_v[i] + 0.05 * g * g;
            want[i] -= 0.01 * 0.1 * want[i];
            want[i] -= 0.01 * (want_m[i] / (1 - pow(0.9, step))) /
                       (sqrt(want_v[i] / (1 - pow(0.95, step))) + 1e-3);
        }
        free(gradient);
    }
    assert_rms_float(master, want, COUNT, 1e-6);
    assert_rms_float(m, want_m, COUNT, 1e-5);
    assert_rms_float(v, want_v, COUNT, 1e-5);
    assert_rms_bf16(weight, want, COUNT, 0.5);
    free(master);
    free(want);
}

static void test_copies(void **state)
{
    struct host_fixture *f = *state;
    char from[5] = "abcd", to[5] = "wxyz";
    assert_int_equal(f->ops->upload(f->backend, STREAM_COMPUTE, to, from, 2, &f->diags), 0);
    assert_string_equal(to, "abyz");
    assert_int_equal(f->ops->zero(f->backend, STREAM_COMPUTE, to, 5, &f->diags), 0);
    assert_memory_equal(to, "\0\0\0\0", 5);
    assert_int_equal(f->ops->copy(f->backend, STREAM_COMPUTE, NULL, NULL, 0, &f->diags), 0);
    assert_int_equal(f->ops->device_bytes(f->backend), 0);
    assert_true(f->ops->workspace_bytes(f->backend) <= 4 << 20);
}

/* Columns [3, 10) of rows of 12 become columns [2, 9) of rows of 9; what is beside stays. Values
 * around half way between two bf16 round to even. */
static void test_strided_rows(void **state)
{
    enum { COPIED = 7, FROM = 12, TO = 9, FROM_COUNT = ROWS * FROM, TO_COUNT = ROWS * TO };
    struct host_fixture *f = *state;
    uint64_t seed = 47;
    bf16 *from = random_bf16(&seed, FROM_COUNT, 1), *to = random_bf16(&seed, TO_COUNT, 1);
    bf16 *rounded = get_memory(TO_COUNT, sizeof *rounded), before[TO_COUNT];
    float *wide = get_memory(FROM_COUNT, sizeof *wide);
    memcpy(before, to, sizeof before);
    memcpy(rounded, to, sizeof before);
    for (int64_t i = 0; i < FROM_COUNT; i++)
        wide[i] = (float)(double_of(from[i]) * (1 + (double)(i % 5) * 0x1p-9));
    assert_int_equal(f->ops->copy_rows(f->backend, STREAM_COMPUTE, ROWS, COPIED, from + 3, FROM,
                                       to + 2, TO, &f->diags),
                     0);
    assert_int_equal(f->ops->rows_to_bf16(f->backend, STREAM_COMPUTE, ROWS, COPIED, wide + 3, FROM,
                                          rounded + 2, TO, &f->diags),
                     0);
    for (int64_t i = 0; i < TO_COUNT; i++) {
        bool copied = i % TO >= 2;
        int64_t source = i / TO * FROM + 3 + i % TO - 2;
        assert_int_equal(to[i], copied ? from[source] : before[i]);
        assert_int_equal(rounded[i], copied ? bf16_of((double)wide[source]) : before[i]);
    }
    free(from);
    free(to);
    free(rounded);
    free(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversions),   cmocka_unit_test(test_exponential),
        cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_cross_entropy_by_hand),
        cmocka_unit_test(test_embedding),     cmocka_unit_test(test_sums),
        cmocka_unit_test(test_adamw_by_hand), cmocka_unit_test(test_adamw_steps),
        cmocka_unit_test(test_copies),        cmocka_unit_test(test_strided_rows),
    };
    return cmocka_run_group_tests(tests, host_fixture_open, host_fixture_close);
}
