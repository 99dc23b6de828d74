/* Today's predictions of a step's time against those that were measured on H200s
 * (tests/data/measured: plan and measurement of each run). The plan's machine is replaced by the
 * hardware file of today, whose figures `rankfit calibrate` measured operation by operation and
 * none of which comes from these runs; routed rows are those measured. Of a run the median of its
 * steps counts, the first left out: libraries choose their kernels in it. */
#include "planner/report/prediction.h"
#include "tests/paired/stored.h"
#include "tests/support/asked.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LEAST_ROWS = 50, MOST_STEPS = 64 };

static const double bound = 0.10, mean_bound = 0.05;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_step(const struct measured_rank *rank)
{
    double steps[MOST_STEPS];
    size_t count = 0;
    for (size_t i = 1; i < rank->steps && count < MOST_STEPS; i++)
        steps[count++] = rank->step_seconds[i];
    assert_true(count > 0);
    qsort(steps, count, sizeof *steps, by_value);
    return (steps[(count - 1) / 2] + steps[count / 2]) / 2;
}

static double rows_of(const struct measured_rank *rank)
{
    double sum = 0;
    for (size_t i = 0; i < rank->routed_count; i++)
        sum += (double)rank->routed[i].rows_received;
    return sum;
}

/* The rank that receives the most paces the others. */
static const struct measured_rank *busiest(const struct measurement *measurement)
{
    const struct measured_rank *ret = &measurement->ranks[0];
    for (size_t i = 1; i < measurement->rank_count; i++)
        if (rows_of(&measurement->ranks[i]) > rows_of(ret))
            ret = &measurement->ranks[i];
    return ret;
}

static void print_row(const char *name, const struct step_time *time, double measured)
{
    printf("  %-28s %8.1f ms  predicted %8.1f  %+5.1f %% |", name, 1e3 * measured,
           1e3 * time->seconds, 100 * (time->seconds / measured - 1));
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        if (time->item_seconds[i] >= 0.01 * time->seconds)
            printf(" %s %.1f", time_item_names[i], 1e3 * time->item_seconds[i]);
    printf("\n");
}

/* The machine as one knew it before calls, launches, operands and clocks were measured. */
static void forget_fine_keys(struct hardware *hardware)
{
    static const double none = 0;
    for (size_t i = 0; i < hardware_key_count; i++)
        if (hardware_keys[i].fine)
            memcpy((char *)hardware + hardware_keys[i].offset, &none, sizeof none);
}

struct summary {
    bool fine; /* keys are taken */
    int rows, beyond;
    double sum; /* of relative errors, without their signs */
};

static void check_row(const char *name, const json_t *row, void *context)
{
    static struct prediction prediction;
    struct summary *summary = context;
    struct measurement measurement = { .rank_count = 0 };
    struct step_time time;
    stored_plan(json_object_get(row, "plan"), &prediction.plan);
    stored_measurement(json_object_get(row, "measurement"), &measurement);
    if (!summary->fine)
        forget_fine_keys(&prediction.plan.hardware);
    assert_int_equal(prediction_compute(&prediction), 0);
    struct budget_input in = prediction.input;
    in.measured = busiest(&measurement);
    step_time_compute(asked(&in), &time);
    double seconds = median_step(&measurement.ranks[0]), error = fabs(time.seconds / seconds - 1);
    if (summary->fine)
        print_row(name, &time, seconds);
    measurement_done(&measurement);
    summary->beyond += error > bound;
    summary->sum += error;
}

static void check_rows(bool fine, struct summary *ret)
{
    *ret = (struct summary){ .fine = fine };
    ret->rows = stored_each("", check_row, ret);
}

static void test_rows(void **state)
{
    (void)state;
    struct summary s;
    check_rows(true, &s);
    printf("  mean of %d rows: %.1f %%, %d beyond %.0f %%\n", s.rows, 100 * s.sum / s.rows,
           s.beyond, 100 * bound);
    assert_true(s.rows >= LEAST_ROWS);
    assert_int_equal(s.beyond, 0);
    assert_true(s.sum / s.rows <= mean_bound);
}

/* What is not measured is missed: the bounds are no formality. */
static void test_it_takes_fine_keys(void **state)
{
    (void)state;
    struct summary s;
    check_rows(false, &s);
    printf("  without the fine keys: %.1f %%, %d beyond %.0f %%\n", 100 * s.sum / s.rows, s.beyond,
           100 * bound);
    assert_true(s.beyond > 0);
    assert_true(s.sum / s.rows > mean_bound);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows),
                                        cmocka_unit_test(test_it_takes_fine_keys) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
