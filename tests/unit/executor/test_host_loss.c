/* Losses in place and in strips of the vocabulary: against log-sum-exp in double and its finite
 * differences, each other, and hand calculation; also far from 0. */
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

enum { ROWS = 30, VOCAB = 77, LOGITS = ROWS * VOCAB };

static const float scale = 0.125F;

struct loss_problem {
    double *logits;
    int32_t targets[ROWS];
};

static double define_row(const struct loss_problem *p, int64_t row)
{
    const double *logits = p->logits + row * VOCAB;
    double largest = logits[0], sum = 0;
    for (int64_t v = 1; v < VOCAB; v++)
        largest = fmax(largest, logits[v]);
    for (int64_t v = 0; v < VOCAB; v++)
        sum += exp(logits[v] - largest);
    return largest + log(sum) - logits[p->targets[row]];
}

static double define_loss(const void *context)
{
    const struct loss_problem *p = context;
    double loss = 0;
    for (int64_t r = 0; r < ROWS; r++)
        loss += p->targets[r] < 0 ? 0 : define_row(p, r);
    return loss;
}

static struct loss_problem problem_open(uint64_t *seed, double *logits)
{
    struct loss_problem p = { .logits = logits };
    for (int r = 0; r < ROWS; r++)
        p.targets[r] = r % 5 == 4 ? -1 : (int32_t)random_below(seed, VOCAB);
    return p;
}

/* What the gradient has to be, by finite differences. */
static double *slopes(struct loss_problem *p)
{
    double *want = get_memory(LOGITS, sizeof *want);
    for (int64_t i = 0; i < LOGITS; i++)
        want[i] = (double)scale * slope(define_loss, p, &p->logits[i], 1e-5);
    return want;
}

/* The same by the formula, for logits whose slopes a step of any size would miss. */
static double *softmax_gradient(const struct loss_problem *p)
{
    double *want = get_memory(LOGITS, sizeof *want);
    for (int64_t i = 0; i < LOGITS; i++) {
        int64_t row = i / VOCAB;
        int32_t target = p->targets[row];
        if (target < 0)
            continue;
        double nats = define_row(p, row) + p->logits[row * VOCAB + target] - p->logits[i];
        want[i] = (double)scale * (exp(-nats) - (i % VOCAB == target ? 1 : 0));
    }
    return want;
}

/* Visits the vocabulary in strips of `width` as a step does: all for the loss, all again for the
 * gradient, which is put together in `gradient`. */
static double run_strips(struct host_fixture *f, const struct loss_problem *p, const float *logits,
                         int64_t width, bf16 *gradient)
{
    float *strip = get_memory(ROWS * width, sizeof *strip), lse[ROWS];
    bf16 *part = get_memory(ROWS * width, sizeof *part);
    double loss = 0;
    for (int r = 0; r < ROWS; r++)
        lse[r] = NAN; /* the first strip sets it */
    for (int pass = 0; pass < 2; pass++)
        for (int64_t first = 0; first < VOCAB; first += width) {
            int64_t here = VOCAB - first < width ? VOCAB - first : width;
            const struct vocabulary_strip v = { ROWS, VOCAB, first, here, strip, p->targets, lse };
            for (int64_t i = 0; i < ROWS * here; i++)
                strip[i] = logits[i / here * VOCAB + first + i % here];
            if (pass == 0)
                assert_int_equal(
                    f->ops->strip_loss(f->backend, STREAM_COMPUTE, &v, &loss, &f->diags), 0);
            else
                assert_int_equal(
                    f->ops->strip_gradient(f->backend, STREAM_COMPUTE, &v, scale, part, &f->diags),
                    0);
            for (int64_t i = 0; i < ROWS * here && pass == 1; i++)
                gradient[i / here * VOCAB + first + i % here] = part[i];
        }
    free(strip);
    free(part);
    return loss;
}

static void test_strips(void **state)
{
    struct host_fixture *f = *state;
    static const int64_t widths[] = { 1, 20, 76, VOCAB };
    uint64_t seed = 61;
    float *logits = random_floats(&seed, LOGITS, 3);
    struct loss_problem p = problem_open(&seed, doubles_of_floats(logits, LOGITS));
    double *want = slopes(&p);
    bf16 gradient[LOGITS];
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        assert_near(run_strips(f, &p, logits, widths[i], gradient), define_loss(&p), 1e-6, "nats");
        assert_rms_bf16(gradient, want, LOGITS, 0.5);
    }
    free(logits);
    free(p.logits);
    free(want);
}

/* The fp32 gradient, rounded, is to the bit what the call with a gradient of its own writes. */
static void test_floats_in_place(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 62;
    float *logits = random_floats(&seed, LOGITS, 3);
    struct loss_problem p = problem_open(&seed, doubles_of_floats(logits, LOGITS));
    double *want = slopes(&p), loss = 2.5, apart_loss = 2.5;
    bf16 apart[LOGITS], rounded[LOGITS];
    assert_int_equal(f->ops->cross_entropy(f->backend, STREAM_COMPUTE, ROWS, VOCAB, logits,
                                           p.targets, scale, apart, &apart_loss, &f->diags),
                     0);
    assert_int_equal(f->ops->cross_entropy_in_place(f->backend, STREAM_COMPUTE, ROWS, VOCAB, logits,
                                                    DTYPE_FP32, p.targets, scale, &loss, &f->diags),
                     0);
    assert_near(loss, 2.5 + define_loss(&p), 1e-6, "nats");
    assert_true(loss == apart_loss);
    assert_rms_float(logits, want, LOGITS, 1e-5);
    assert_int_equal(
        f->ops->to_bf16(f->backend, STREAM_COMPUTE, LOGITS, logits, rounded, &f->diags), 0);
    assert_memory_equal(rounded, apart, sizeof apart);
    free(logits);
    free(p.logits);
    free(want);
}

static void test_bf16_in_place(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 63;
    bf16 *logits = random_bf16(&seed, LOGITS, 3);
    struct loss_problem p = problem_open(&seed, doubles_of_bf16(logits, LOGITS));
    double *want = slopes(&p), loss = 0;
    assert_int_equal(f->ops->cross_entropy_in_place(f->backend, STREAM_COMPUTE, ROWS, VOCAB, logits,
                                                    DTYPE_BF16, p.targets, scale, &loss, &f->diags),
                     0);
    assert_near(loss, define_loss(&p), 1e-6, "nats");
    assert_rms_bf16(logits, want, LOGITS, 0.5);
    free(logits);
    free(p.logits);
    free(want);
}

/* Logits near 10,000 and -10,000: nothing overflows. The sum of exponentials kept between strips is
 * a float of about 10,000, whose last place is 1e-3: its half is the error of a probability. */
static void test_large_logits(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 64;
    float *logits = random_floats(&seed, LOGITS, 1);
    bf16 *narrow = get_memory(LOGITS, sizeof *narrow), gradient[LOGITS];
    for (int64_t i = 0; i < LOGITS; i++) {
        double value = (double)logits[i] + (random_below(&seed, 2) ? 1e4 : -1e4);
        narrow[i] = bf16_of(i / VOCAB % 2 ? value : -fabs(value));
        logits[i] = (float)double_of(narrow[i]) + logits[i];
    }
    struct loss_problem p = problem_open(&seed, doubles_of_floats(logits, LOGITS));
    double *want = softmax_gradient(&p), loss = 0;
    assert_near(run_strips(f, &p, logits, 20, gradient), define_loss(&p), 1e-6, "nats");
    assert_rms_bf16(gradient, want, LOGITS, 1);
    assert_int_equal(f->ops->cross_entropy_in_place(f->backend, STREAM_COMPUTE, ROWS, VOCAB, logits,
                                                    DTYPE_FP32, p.targets, scale, &loss, &f->diags),
                     0);
    assert_near(loss, define_loss(&p), 1e-6, "nats");
    assert_rms_float(logits, want, LOGITS, 1e-5);
    free(want);
    free(p.logits);
    p.logits = doubles_of_bf16(narrow, LOGITS);
    want = softmax_gradient(&p);
    loss = 0;
    assert_int_equal(f->ops->cross_entropy_in_place(f->backend, STREAM_COMPUTE, ROWS, VOCAB, narrow,
                                                    DTYPE_BF16, p.targets, scale, &loss, &f->diags),
                     0);
    assert_near(loss, define_loss(&p), 1e-6, "nats");
    assert_rms_bf16(narrow, want, LOGITS, 0.5);
    free(want);
    free(p.logits);
    free(logits);
    free(narrow);
}

/* Logits 0 and ln 3 in two strips, target the first: lse ln 4, loss ln 4, gradient -3/4, 3/4. */
static void test_strips_by_hand(void **state)
{
    struct host_fixture *f = *state;
    const float logits[2] = { 0, (float)log(3) };
    const int32_t target = 0;
    float lse[1];
    bf16 gradient[2];
    double loss = 0;
    struct vocabulary_strip v = { 1, 2, 0, 1, logits, &target, lse };
    struct vocabulary_strip w = { 1, 2, 1, 1, logits + 1, &target, lse };
    assert_int_equal(f->ops->strip_loss(f->backend, STREAM_COMPUTE, &v, &loss, &f->diags), 0);
    assert_true(lse[0] == 0 && loss == 0);
    assert_int_equal(f->ops->strip_loss(f->backend, STREAM_COMPUTE, &w, &loss, &f->diags), 0);
    assert_near(lse[0], log(4), 1e-6, "nats");
    assert_near(loss, log(4), 1e-6, "nats");
    assert_int_equal(f->ops->strip_gradient(f->backend, STREAM_COMPUTE, &v, 1, gradient, &f->diags),
                     0);
    assert_int_equal(
        f->ops->strip_gradient(f->backend, STREAM_COMPUTE, &w, 1, gradient + 1, &f->diags), 0);
    assert_int_equal(gradient[0], bf16_of(-0.75));
    assert_int_equal(gradient[1], bf16_of(0.75));
}

/* 248,320 equal logits: the loss is ln 248,320, however many small terms are added. */
static void test_large_vocabulary(void **state)
{
    enum { LARGE = 248320 };
    struct host_fixture *f = *state;
    float *logits = get_memory(LARGE, sizeof *logits);
    const int32_t target = LARGE - 1;
    double loss = 0;
    for (int i = 0; i < LARGE; i++)
        logits[i] = 0.7F;
    assert_int_equal(f->ops->cross_entropy_in_place(f->backend, STREAM_COMPUTE, 1, LARGE, logits,
                                                    DTYPE_FP32, &target, 1, &loss, &f->diags),
                     0);
    assert_near(loss, log(LARGE), 1e-9, "nats");
    assert_near(logits[0], 1.0 / LARGE, 1e-6, "");
    assert_near(logits[target], 1.0 / LARGE - 1, 1e-6, "");
    free(logits);
}

static void test_targets_outside(void **state)
{
    struct host_fixture *f = *state;
    struct diag_list diags = { 0 };
    float logits[2] = { 1, 2 }, lse[1] = { 0 };
    const int32_t target = 2;
    double loss = 0;
    const struct vocabulary_strip v = { 1, 2, 0, 2, logits, &target, lse };
    assert_int_equal(f->ops->cross_entropy_in_place(f->backend, STREAM_COMPUTE, 1, 2, logits,
                                                    DTYPE_FP32, &target, 1, &loss, &diags),
                     -1);
    assert_int_equal(f->ops->strip_loss(f->backend, STREAM_COMPUTE, &v, &loss, &diags), -1);
    assert_int_equal(diags.errors, 2);
    assert_true(loss == 0 && logits[0] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strips),          cmocka_unit_test(test_floats_in_place),
        cmocka_unit_test(test_bf16_in_place),   cmocka_unit_test(test_large_logits),
        cmocka_unit_test(test_strips_by_hand),  cmocka_unit_test(test_large_vocabulary),
        cmocka_unit_test(test_targets_outside),
    };
    return cmocka_run_group_tests(tests, host_fixture_open, host_fixture_close);
}
