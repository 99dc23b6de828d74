/* A comparison that cannot fail proves nothing: one measured run, judged by the true prediction and
 * by three wrong ones (a buffer too many, a lifetime halved, a group of the wrong size). The true
 * one must be within tolerance and each wrong one must not. What the lists of operations come to is
 * changed where the linker lets this program stand behind step_layer_init (--wrap). */
#include "planner/compare/compare.h"
#include "planner/step/layer.h"

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

void __real_step_layer_init(const struct step_kind *kind, struct step_layer *ret);
void __wrap_step_layer_init(const struct step_kind *kind, struct step_layer *ret);

/* One more tensor [T, H] while any layer is at work. */
static void add_buffer(struct step_pass *pass)
{
    static const struct step_tensor tensor = { "extra", ROWS_TOKENS,        WIDTH_HIDDEN,
                                               2,       ITEM_LAYER_WORKING, FATE_REMADE };
    struct step_life *life = &pass->lives[pass->count++];
    *life = (struct step_life){ .tensor = &tensor,
                                .rows = tensor.rows,
                                .width = tensor.width,
                                .bytes = tensor.bytes,
                                .item = tensor.item };
    for (int zone = 0; zone < ZONE_COUNT; zone++)
        if (pass->points[zone] > 0)
            life->last = (struct step_place){ .zone = (uint8_t)zone,
                                              .point = (uint8_t)(pass->points[zone] - 1) };
}

/* The projected queries, keys and values are read until attention's backward; here they are gone
 * when it begins. */
static void halve_lifetime(struct step_pass *pass)
{
    for (int i = 0; i < pass->count; i++)
        if (pass->lives[i].tensor && strcmp(pass->lives[i].tensor->name, "qkv") == 0)
            pass->lives[i].last = (struct step_place){ 0 };
}

void __wrap_step_layer_init(const struct step_kind *kind, struct step_layer *ret)
{
    __real_step_layer_init(kind, ret);
    for (int mode = 0; mutation == MUTATION_EXTRA_BUFFER && mode < MODE_COUNT; mode++)
        add_buffer(&ret->pass[mode]);
    if (mutation == MUTATION_HALVED_LIFETIME)
        halve_lifetime(&ret->pass[MODE_BACKWARD]);
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
                        "--set recompute=full --set loss=linear_ce --set moe=plain "
                        "--set sharding=fsdp --set fsdp=4 --set tp=1 --set pp=1 --set cp=1");
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
    prediction_done(&judged->prediction);
    return 0;
}

/* Judges the run by what is predicted now. */
static bool within(struct judged *judged)
{
    struct tolerances tolerances = tolerances_default();
    struct comparison comparison;
    struct diag_list errors = { 0 };
    assert_int_equal(prediction_compute(&judged->prediction), 0);
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
