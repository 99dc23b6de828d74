/* Router, sorting of choices and the four ways rows move, against definitions written with other
 * means (sorting by comparison, scalar products, finite differences). */
#include "tests/support/random.h"
#include "tests/unit/executor/host_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    ROWS = 40,
    EXPERTS = 11,
    TOP = 3,
    WIDTH = 70,
    PROBS = ROWS * EXPERTS,
    CHOSEN = ROWS * TOP,
    DENSE = ROWS * WIDTH,
    SPREAD = CHOSEN * WIDTH
};

struct router_problem {
    bool normalize, sigmoid;
    double scaling;
    double *logits, *weight;
    const int32_t *choices;
    double weights[CHOSEN];
};

/* Of a sigmoid the score itself, of a softmax its numerator. */
static double score(const struct router_problem *p, int64_t at)
{
    return p->sigmoid ? 1 / (1 + exp(-p->logits[at])) : exp(p->logits[at]);
}

static double define_weights(const void *context)
{
    struct router_problem *p = (struct router_problem *)(uintptr_t)context;
    double scalar = 0;
    for (int64_t r = 0; r < ROWS; r++) {
        double all = 0, chosen = 0;
        for (int64_t e = 0; e < EXPERTS; e++)
            all += score(p, r * EXPERTS + e);
        for (int64_t j = 0; j < TOP; j++)
            chosen += score(p, r * EXPERTS + p->choices[r * TOP + j]);
        for (int64_t j = 0; j < TOP; j++) {
            int64_t at = r * TOP + j;
            double divisor = p->normalize ? chosen : p->sigmoid ? 1 : all;
            p->weights[at] = p->scaling * score(p, r * EXPERTS + p->choices[at]) / divisor;
            scalar += p->weight[at] * p->weights[at];
        }
    }
    return scalar;
}

static void check_router(struct host_fixture *f, bool normalize, bool given, bool sigmoid)
{
    uint64_t seed = 31;
    float *probs = random_floats(&seed, PROBS, 1), weights[CHOSEN];
    float *d_weights = random_floats(&seed, CHOSEN, 1), d_logits[PROBS];
    int32_t choices[CHOSEN];
    for (int64_t i = 0; i < CHOSEN; i++)
        choices[i] = (int32_t)((i / TOP + i % TOP * 3) % EXPERTS);
    struct router_problem p = {
        .normalize = normalize, .sigmoid = sigmoid, .scaling = sigmoid ? 2.5 : 1, .choices = choices
    };
    p.logits = doubles_of_floats(probs, PROBS);
    p.weight = doubles_of_floats(d_weights, CHOSEN);
    struct router r = { ROWS, EXPERTS, TOP, normalize, probs, choices, weights, given, sigmoid };
    r.scaling = sigmoid ? 2.5F : 0;
    assert_int_equal(f->ops->router(f->backend, STREAM_COMPUTE, &r, &f->diags), 0);
    for (int64_t i = 0; i < CHOSEN && given; i++)
        assert_int_equal(choices[i], (i / TOP + i % TOP * 3) % EXPERTS);
    for (int64_t i = 0; i < CHOSEN && !given; i++) {
        /* the j-th choice is beaten by exactly j experts */
        const double *row = p.logits + i / TOP * EXPERTS;
        int above = 0;
        for (int64_t e = 0; e < EXPERTS; e++)
            above += row[e] > row[choices[i]];
        assert_int_equal(above, i % TOP);
    }
    (void)define_weights(&p);
    assert_rms_float(weights, p.weights, CHOSEN, 1e-6);
    double want[PROBS];
    for (int64_t i = 0; i < PROBS; i++)
        want[i] = slope(define_weights, &p, &p.logits[i], 1e-5);
    assert_int_equal(
        f->ops->router_backward(f->backend, STREAM_COMPUTE, &r, d_weights, d_logits, &f->diags), 0);
    assert_rms_float(d_logits, want, PROBS, 1e-5);
    free(probs);
    free(d_weights);
    free(p.logits);
    free(p.weight);
}

static void test_router(void **state)
{
    for (int bits = 0; bits < 8; bits++)
        check_router(*state, bits & 1, bits & 2, bits & 4);
}

/* Three of 8 experts in 4 groups of two, by hand: with corrections group 3 (0.6 + 0.5) and group 0
 * (0.9 + 0.1) are the best two by the sum of both; without, groups 0 and 1 by their best alone. */
static void test_groups_limit_the_choice(void **state)
{
    struct host_fixture *f = *state;
    const float scores[8] = { 0.9F, 0.1F, 0.7F, 0.2F, 0.3F, 0.4F, 0.1F, 0.5F };
    bf16 correction[8] = { 0, 0, 0, 0, 0, 0, 0x3f00, 0 }; /* 0.5 */
    float probs[8], weights[3];
    int32_t choices[3];
    struct router r = { 1, 8, 3, true, probs, choices, weights, false };
    const int32_t corrected[3] = { 0, 6, 7 }, plain[3] = { 0, 2, 3 };

    r.sigmoid = true, r.groups = 4, r.group_limit = 2, r.scaling = 3;
    for (int with = 0; with < 2; with++) {
        for (int e = 0; e < 8; e++)
            probs[e] = logf(scores[e] / (1 - scores[e]));
        r.correction = with ? correction : NULL;
        const int32_t *want = with ? corrected : plain;
        assert_int_equal(f->ops->router(f->backend, STREAM_COMPUTE, &r, &f->diags), 0);
        assert_memory_equal(choices, want, sizeof plain);
        float sum = scores[want[0]] + scores[want[1]] + scores[want[2]];
        for (int j = 0; j < 3; j++)
            assert_true(fabsf(weights[j] - 3 * scores[want[j]] / sum) < 1e-5F);
    }
    r.groups = 3;
    struct diag_list diags = { 0 };
    assert_int_equal(f->ops->router(f->backend, STREAM_COMPUTE, &r, &diags), -1);
    assert_int_equal(diags.errors, 1);
}

static void test_ties_go_to_the_lower_index(void **state)
{
    struct host_fixture *f = *state;
    float probs[5] = { 1, 2, 2, 1, 2 }, weights[4];
    int32_t choices[4];
    struct router r = { 1, 5, 4, true, probs, choices, weights, false };
    const int32_t want[4] = { 1, 2, 4, 0 };
    assert_int_equal(f->ops->router(f->backend, STREAM_COMPUTE, &r, &f->diags), 0);
    assert_memory_equal(choices, want, sizeof want);
}

static void test_bad_choices(void **state)
{
    struct host_fixture *f = *state;
    struct diag_list diags = { 0 };
    float probs[2] = { 0 }, weights[1];
    int32_t choices[1] = { 2 }, slots[1];
    int64_t counts[2];
    struct router r = { 1, 2, 1, true, probs, choices, weights, true };
    assert_int_equal(f->ops->router(f->backend, STREAM_COMPUTE, &r, &diags), -1);
    assert_int_equal(
        f->ops->sort_choices(f->backend, STREAM_COMPUTE, 1, 1, 2, choices, slots, counts, &diags),
        -1);
    r.top_k = 3;
    assert_int_equal(f->ops->router(f->backend, STREAM_COMPUTE, &r, &diags), -1);
    assert_int_equal(diags.errors, 3);
}

static void random_slots(struct host_fixture *f, uint64_t *seed, int32_t *choices, int32_t *slots,
                         int64_t *counts)
{
    for (int64_t i = 0; i < CHOSEN; i++)
        choices[i] = (int32_t)random_below(seed, EXPERTS - 1); /* the last expert gets nothing */
    assert_int_equal(f->ops->sort_choices(f->backend, STREAM_COMPUTE, ROWS, TOP, EXPERTS, choices,
                                          slots, counts, &f->diags),
                     0);
}

static void test_sort_choices(void **state)
{
    int32_t choices[CHOSEN], slots[CHOSEN];
    int64_t counts[EXPERTS];
    uint64_t seed = 32;
    random_slots(*state, &seed, choices, slots, counts);
    for (int64_t i = 0; i < CHOSEN; i++) {
        int before = 0;
        for (int64_t other = 0; other < CHOSEN; other++)
            before += choices[other] < choices[i] || (choices[other] == choices[i] && other < i);
        assert_int_equal(slots[i], before);
    }
    for (int64_t e = 0; e < EXPERTS; e++) {
        int load = 0;
        for (int64_t i = 0; i < CHOSEN; i++)
            load += choices[i] == e;
        assert_int_equal(counts[e], load);
    }
}

/* combine(scatter(x)) = base + top_k x, and each value comes home. */
static void test_scatter_and_combine(void **state)
{
    struct host_fixture *f = *state;
    int32_t choices[CHOSEN], slots[CHOSEN];
    int64_t counts[EXPERTS];
    uint64_t seed = 33;
    random_slots(f, &seed, choices, slots, counts);
    bf16 *x = random_bf16(&seed, DENSE, 1), *base = random_bf16(&seed, DENSE, 1);
    bf16 *moved = get_memory(SPREAD, sizeof *moved);
    bf16 *sum = get_memory(DENSE, sizeof *sum);
    float *values = random_floats(&seed, CHOSEN, 1);
    float there[CHOSEN], back[CHOSEN];
    double want[DENSE];
    assert_int_equal(f->ops->scatter_rows(f->backend, STREAM_COMPUTE, ROWS, TOP, WIDTH, x, slots,
                                          moved, values, there, &f->diags),
                     0);
    for (int64_t i = 0; i < CHOSEN; i++) {
        assert_memory_equal(moved + (int64_t)slots[i] * WIDTH, x + i / TOP * WIDTH,
                            WIDTH * sizeof *x);
        assert_true(there[slots[i]] == values[i]);
    }
    for (int64_t i = 0; i < DENSE; i++)
        want[i] = TOP * double_of(x[i]);
    assert_int_equal(f->ops->combine_rows(f->backend, STREAM_COMPUTE, ROWS, TOP, WIDTH, moved,
                                          slots, NULL, sum, there, back, &f->diags),
                     0);
    assert_rms_bf16(sum, want, DENSE, 0.5);
    assert_memory_equal(back, values, sizeof back);
    for (int64_t i = 0; i < DENSE; i++)
        want[i] += double_of(base[i]);
    assert_int_equal(f->ops->combine_rows(f->backend, STREAM_COMPUTE, ROWS, TOP, WIDTH, moved,
                                          slots, base, base, NULL, NULL, &f->diags),
                     0);
    assert_rms_bf16(base, want, DENSE, 0.5);
    free(x);
    free(base);
    free(moved);
    free(sum);
    free(values);
}

static void test_gather_and_spread(void **state)
{
    struct host_fixture *f = *state;
    int32_t map[ROWS];
    uint64_t seed = 34;
    for (int32_t i = 0; i < ROWS; i++)
        map[i] = (i * 7 + 3) % ROWS; /* 7 and 40 have no common factor: a permutation */
    bf16 *x = random_bf16(&seed, DENSE, 1), *y = get_memory(DENSE, sizeof *y);
    bf16 *z = get_memory(DENSE, sizeof *z);
    float *values = random_floats(&seed, ROWS, 1), moved[ROWS], back[ROWS];
    assert_int_equal(f->ops->gather_rows(f->backend, STREAM_COMPUTE, ROWS, WIDTH, x, map, y, values,
                                         moved, &f->diags),
                     0);
    for (int64_t i = 0; i < ROWS; i++) {
        assert_memory_equal(y + i * WIDTH, x + (int64_t)map[i] * WIDTH, WIDTH * sizeof *x);
        assert_true(moved[i] == values[map[i]]);
    }
    assert_int_equal(f->ops->spread_rows(f->backend, STREAM_COMPUTE, ROWS, WIDTH, y, map, z, moved,
                                         back, &f->diags),
                     0);
    assert_memory_equal(z, x, DENSE * sizeof *x);
    assert_memory_equal(back, values, sizeof back);
    free(x);
    free(y);
    free(z);
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router),
        cmocka_unit_test(test_groups_limit_the_choice),
        cmocka_unit_test(test_ties_go_to_the_lower_index),
        cmocka_unit_test(test_bad_choices),
        cmocka_unit_test(test_sort_choices),
        cmocka_unit_test(test_scatter_and_combine),
        cmocka_unit_test(test_gather_and_spread),
    };
    return cmocka_run_group_tests(tests, host_fixture_open, host_fixture_close);
}
