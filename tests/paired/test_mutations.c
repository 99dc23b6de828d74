/* A comparison that cannot fail proves nothing: one measured run, judged by the true prediction and
 * by three wrong ones (a buffer too many, a lifetime halved, a group of the wrong size). The true
 * one must be within tolerance and each wrong one must not. The tables are changed where the linker
 * lets this program stand between budgets and residency_evaluate (--wrap). */
#include "planner/compare/compare.h"
#include "planner/residency/residency.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

enum mutation { MUTATION_NONE, MUTATION_EXTRA_BUFFER, MUTATION_HALVED_LIFETIME };
static enum mutation mutation;

void __real_residency_evaluate(const struct residency_shape *shape, enum mixer mixer, enum ffn ffn,
                               enum residency_mode mode, struct residency_half *halves,
                               struct residency *ret);
void __wrap_residency_evaluate(const struct residency_shape *shape, enum mixer mixer, enum ffn ffn,
                               enum residency_mode mode, struct residency_half *halves,
                               struct residency *ret);

static void sum_again(struct residency *ret)
{
    memset(ret->max, 0, sizeof ret->max);
    ret->peak = 0;
    for (int step = 0; step < ret->steps; step++) {
        uint64_t total = 0;
        for (int owner = 0; owner < OWNER_COUNT; owner++) {
            uint64_t bytes = ret->live[step][owner];
            total += bytes;
            if (bytes > ret->max[owner])
                ret->max[owner] = bytes;
        }
        if (total > ret->peak) {
            ret->peak = total;
            ret->peak_step = step;
        }
    }
}

/* One more tensor [T, H] in every step of every layer. */
static void add_buffer(const struct residency_shape *shape, struct residency *ret)
{
    uint64_t bytes = 2 * shape->rows[ROWS_TOKENS] * shape->width[WIDTH_HIDDEN];
    for (int step = 0; step < ret->steps; step++)
        ret->live[step][OWNER_WORKING] += bytes;
}

/* The projection [T, Q + 2K] lives from the replay to step c6 of the backward; here only to the end
 * of the replay. */
static void halve_lifetime(const struct residency_shape *shape, struct residency *ret)
{
    enum { ATTENTION_STEPS = 6 }; /* c1 to c6 */
    uint64_t bytes = 2 * shape->rows[ROWS_TOKENS] * shape->width[WIDTH_QKV];
    int end = residency_ffn_backward[FFN_MOE]->steps + ATTENTION_STEPS;
    for (int step = 0; step < end; step++)
        ret->live[step][OWNER_WORKING] -= bytes;
}

void __wrap_residency_evaluate(const struct residency_shape *shape, enum mixer mixer, enum ffn ffn,
                               enum residency_mode mode, struct residency_half *halves,
                               struct residency *ret)
{
    __real_residency_evaluate(shape, mixer, ffn, mode, halves, ret);
    if (mutation == MUTATION_EXTRA_BUFFER)
        add_buffer(shape, ret);
    if (mutation == MUTATION_HALVED_LIFETIME && mode == RESIDENCY_BACKWARD)
        halve_lifetime(shape, ret);
    if (mutation != MUTATION_NONE)
        sum_again(ret);
}

struct judged {
    struct prediction prediction;
    struct measurement measurement;
};

static void run_once(const char *directory, const char *options)
{
    char line[1024];
    const char *program = getenv("RANKFIT_PROGRAM");
    assert_non_null(program);
    int length =
        snprintf(line, sizeof line,
                 "'%s' plan --hardware host %s -o '%s/plan.json' >'%s/log' && "
                 "'%s' run '%s/plan.json' --steps 1 -o '%s/measured.json' >>'%s/log' 2>&1",
                 program, options, directory, directory, program, directory, directory, directory);
    assert_true(length > 0 && (size_t)length < sizeof line);
    int status = system(line);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int set_up(void **state)
{
    static struct judged judged;
    static struct diag_list errors;
    char directory[] = "/tmp/rankfit-mutations-XXXXXX", path[128], line[160];
    assert_non_null(mkdtemp(directory));
    run_once(directory, "--model tiny-moe --gpus 4 --seq 512 --micro-batch 4 --set ep=4 "
                        "--set recompute=full --set loss=linear_ce --set moe=plain");
    (void)snprintf(path, sizeof path, "%s/plan.json", directory);
    int status = plan_load(path, &judged.prediction.plan, &errors);
    (void)snprintf(path, sizeof path, "%s/measured.json", directory);
    status |= measurement_load(path, &judged.measurement, &errors);
    diag_list_print(stderr, &errors);
    (void)snprintf(line, sizeof line, "rm -rf '%s'", directory);
    status |= system(line);
    *state = &judged;
    return status;
}

static int tear_down(void **state)
{
    struct judged *judged = *state;
    measurement_done(&judged->measurement);
    return 0;
}

/* Judges the run by what is predicted now. */
static bool within(struct judged *judged)
{
    struct tolerances tolerances = tolerances_default();
    struct comparison comparison;
    struct diag_list errors = { 0 };
    prediction_compute(&judged->prediction);
    assert_int_equal(comparison_compute(&judged->prediction, &judged->measurement, &tolerances,
                                        &comparison, &errors),
                     0);
    printf("  worst: %s of rank %d, %+.2f %%\n", comparison_item_name(comparison.worst_item),
           comparison.worst_rank, 100 * comparison.worst_error);
    bool ret = comparison.within;
    comparison_done(&comparison);
    return ret;
}

static void test_truth(void **state)
{
    mutation = MUTATION_NONE;
    assert_true(within(*state));
}

static void test_extra_buffer(void **state)
{
    mutation = MUTATION_EXTRA_BUFFER;
    assert_false(within(*state));
    mutation = MUTATION_NONE;
}

static void test_halved_lifetime(void **state)
{
    mutation = MUTATION_HALVED_LIFETIME;
    assert_false(within(*state));
    mutation = MUTATION_NONE;
}

static void test_wrong_group(void **state)
{
    struct judged *judged = *state;
    struct layout *layout = &judged->prediction.plan.choices.layout;
    assert_int_equal(layout->fsdp, 4);
    layout->fsdp = 2;
    layout->d_rep = 2;
    assert_false(within(judged));
    layout->fsdp = 4;
    layout->d_rep = 1;
    assert_true(within(judged));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truth),
        cmocka_unit_test(test_extra_buffer),
        cmocka_unit_test(test_halved_lifetime),
        cmocka_unit_test(test_wrong_group),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
