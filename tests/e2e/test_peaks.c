/* `rankfit validate public`: the errors of engine megatron over all rows, once more from the rows.
 */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"
#include "tests/support/near.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static json_t *run_named(json_t *document, const char *name)
{
    return json_named(json_at(document, "sets.0.runs"), name);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Every error from its own row, the median from all, the bound of one percent. */
static void errors_over_all(void **state)
{
    size_t index;
    json_t *run;
    double errors[64], own[64];
    (void)state;
    json_t *document = program_json("validate --json public", 0);
    size_t count = json_array_size(json_at(document, "sets.0.runs"));
    assert_int_equal(count, 14);
    json_array_foreach(json_at(document, "sets.0.runs"), index, run)
    {
        double measured = number_at(run, "measured_bytes"), arena = number_at(run, "arena_bytes");
        double engine = number_at(run, "engine_bytes");
        errors[index] = engine / measured - 1;
        own[index] = arena / measured - 1;
        assert_near(number_at(run, "engine_error"), errors[index], 1e-9, "");
        assert_near(number_at(run, "error"), own[index], 1e-9, "");
        assert_true(arena < engine && engine / measured - 1 < 0.01 && errors[index] > -0.01);
    }
    qsort(errors, count, sizeof *errors, by_value);
    qsort(own, count, sizeof *own, by_value);
    assert_near(number_at(document, "sets.0.engine_errors.median"), (errors[6] + errors[7]) / 2,
                1e-9, "");
    assert_near(number_at(document, "sets.0.errors.median"), (own[6] + own[7]) / 2, 1e-9, "");
    assert_near(number_at(document, "sets.0.engine_errors.least"), errors[0], 1e-9, "");
    assert_near(number_at(document, "sets.0.engine_errors.most"), errors[count - 1], 1e-9, "");
    assert_true(json_array_size(json_at(document, "sets.0.left_out")) >= 5);
    json_decref(document);
}

/* Measured figures are GiB: 66.55. */
static void measured_in_gib(void **state)
{
    (void)state;
    json_t *document = program_json("validate --json public", 0);
    assert_near(number_at(run_named(document, "70b_tp1_pp2"), "measured_bytes"),
                66.55 * 1073741824.0, 1e-12, "bytes");
    json_decref(document);
}

/* One row off by a tenth of its size: the bound does not hold, exit 1. */
static void a_bound_that_does_not_hold(void **state)
{
    struct program_result result;
    (void)state;
    program_run("cp -r \"$RANKFIT_SOURCE_ROOT/validation/models\" $TMP && sed 's/peak: 28.29/peak: "
                "31.1/' \"$RANKFIT_SOURCE_ROOT/validation/public.yaml\" >$TMP/off.yaml && "
                "\"$RANKFIT\" validate --json $TMP/off.yaml",
                &result);
    assert_int_equal(result.status, 1);
    json_t *document = json_loads(result.out, 0, NULL);
    assert_true(json_is_false(json_at(document, "sets.0.holds")));
    json_decref(document);
    program_done(&result);
}

static void faulty_files(void **state)
{
    (void)state;
    assert_told("faulty peaks", 2, "\"$RANKFIT\" validate peaks-faulty.yaml");
    assert_told("unknown rules", 2, "\"$RANKFIT\" validate peaks-unknown-rules.yaml");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_over_all),
        cmocka_unit_test(measured_in_gib),
        cmocka_unit_test(a_bound_that_does_not_hold),
        cmocka_unit_test(faulty_files),
    };
    return cmocka_run_group_tests_name("peaks", tests, NULL, NULL);
}
