/* The least squares of calibration: planes found, bounds held, errors that count alike, too few
 * rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/calibrate/fit.h"
#include "tests/support/near.h"
#include "tests/support/random.h"

#include <math.h>

static struct diag_list diags;

static void plane_is_found(void **state)
{
    (void)state;
    struct fit_rows rows = { .columns = 3 };
    struct fit fit;
    for (int i = 1; i <= 9; i++) {
        const double x[] = { 1, i, i * i };
        fit_add(&rows, x, 2 + 3e-3 * i + 5e-5 * i * i);
    }
    diags = (struct diag_list){ 0 };
    assert_int_equal(fit_solve(&rows, &fit, &diags), 0);
    assert_near(fit.coefficient[0], 2, 1e-9, "s");
    assert_near(fit.coefficient[1], 3e-3, 1e-7, "s");
    assert_near(fit.coefficient[2], 5e-5, 1e-6, "s");
    assert_true(fit.worst < 1e-9);
}

/* t = 10 x - 1 has a negative constant: with none the slope lies between 9 (at x = 1) and 10, and
 * with a lower bound of 12 it is that. */
static void bounds_hold(void **state)
{
    (void)state;
    struct fit_rows rows = { .columns = 2 };
    struct fit fit;
    for (int i = 1; i <= 5; i++) {
        const double x[] = { 1, i };
        fit_add(&rows, x, 10.0 * i - 1);
    }
    diags = (struct diag_list){ 0 };
    assert_int_equal(fit_solve(&rows, &fit, &diags), 0);
    assert_true(fit.coefficient[0] == 0);
    assert_true(fit.coefficient[1] > 9 && fit.coefficient[1] < 10);
    rows.least[1] = 12;
    assert_int_equal(fit_solve(&rows, &fit, &diags), 0);
    assert_true(fit.coefficient[0] == 0);
    assert_true(fit.coefficient[1] == 12);
    assert_near(fit.worst, (12.0 - 9) / 9, 1e-12, "of the time");
    assert_int_equal(fit.worst_row, 0);
}

/* One rate for points of rates 1 and 4: the geometric mean, 2, so that both are off by a factor of
 * two. Relative to the times alone it would be 17/5 for x/t of 1 and 1/4. */
static void twice_and_half_count_alike(void **state)
{
    (void)state;
    struct fit_rows rows = { .columns = 1 };
    struct fit fit;
    const double x = 1;
    fit_add(&rows, &x, 1);
    fit_add(&rows, &x, 4);
    diags = (struct diag_list){ 0 };
    assert_int_equal(fit_solve(&rows, &fit, &diags), 0);
    assert_near(fit.coefficient[0], 2, 1e-3, "s");
}

static void too_few_points_are_an_error(void **state)
{
    (void)state;
    struct fit_rows rows = { .columns = 2 };
    struct fit fit;
    const double x[] = { 1, 1 };
    diags = (struct diag_list){ 0 };
    fit_add(&rows, x, 1);
    assert_int_equal(fit_solve(&rows, &fit, &diags), -1);
    fit_add(&rows, x, 1); /* two columns that are one */
    assert_int_equal(fit_solve(&rows, &fit, &diags), -1);
    assert_int_equal(diags.errors, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plane_is_found),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(twice_and_half_count_alike),
        cmocka_unit_test(too_few_points_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
