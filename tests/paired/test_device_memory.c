/* Today's predictions against the device figures that were measured on H200s (tests/data/measured:
 * plan and measurement of each run, with device, driver, libraries, date and command). The plan's
 * machine is replaced by the hardware file of today. A row is within bounds when its error is at
 * most the largest of 1 % of the figure, 3 % of what is not static, and 64 MiB; and when of the
 * live arena, whole and item by item, no more than a thousandth of the figure is unexplained. In
 * half of the rows what comes and goes is at least 40 % of the figure, so that state cannot hide a
 * wrong working set. */
#include "planner/compare/compare.h"
#include "tests/paired/stored.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LEAST_ROWS = 90 };

static double bound_of(const struct compared_rank *rank, const struct rank_budget *budget)
{
    double device = (double)rank->device.measured_bytes;
    double moving = device - (double)budget->category_bytes[CATEGORY_STATIC];
    return fmax(fmax(0.01 * device, 0.03 * moving), 64.0 * 1048576.0);
}

/* Own maxima of what lives in the arena. */
static void judge_items(const char *name, const struct compared_rank *rank)
{
    for (int i = 0; i < ITEM_COUNT; i++) {
        const struct figure *item = &rank->items[i];
        double error = (double)item->predicted_bytes - (double)item->measured_bytes;
        if (item_in_arena((enum item)i) &&
            fabs(error) > 0.001 * (double)rank->device.measured_bytes)
            fail_msg("%s: rank %d: %s: %.0f bytes unexplained", name, rank->rank,
                     item_infos[i].name, error);
    }
}

static void judge(const char *name, struct prediction *prediction,
                  const struct measurement *measurement)
{
    struct tolerances tolerances = tolerances_default();
    struct comparison comparison;
    struct diag_list errors = { 0 };
    assert_int_equal(prediction_compute(prediction), 0);
    assert_int_equal(comparison_compute(prediction, measurement, &tolerances, &comparison, &errors),
                     0);
    for (size_t i = 0; i < comparison.rank_count; i++) {
        const struct compared_rank *rank = &comparison.ranks[i];
        const struct rank_budget *budget = prediction_rank(prediction, rank->rank);
        double error = (double)rank->device.predicted_bytes - (double)rank->device.measured_bytes;
        double arena = (double)rank->arena.predicted_bytes - (double)rank->arena.measured_bytes;
        printf("  %-26s rank %d  device %8.3f GB  error %+7.1f MiB (%+.3f %%)  arena %+.3f %%\n",
               name, rank->rank, (double)rank->device.measured_bytes / 1e9, error / 1048576,
               100 * rank->device.error, 100 * rank->arena.error);
        assert_true(rank->device.measured_bytes > 0);
        if (fabs(error) > bound_of(rank, budget))
            fail_msg("%s: rank %d: device figure off by %.0f bytes", name, rank->rank, error);
        if (fabs(arena) > 0.001 * (double)rank->device.measured_bytes)
            fail_msg("%s: rank %d: %.0f bytes of the arena unexplained", name, rank->rank, arena);
        judge_items(name, rank);
    }
    comparison_done(&comparison);
}

/* Of the rank with the largest figure, what comes and goes at its peak. */
static bool is_mostly_moving(const struct measurement *measurement)
{
    const struct measured_rank *largest = &measurement->ranks[0];
    for (size_t i = 1; i < measurement->rank_count; i++)
        if (measurement->ranks[i].device_bytes > largest->device_bytes)
            largest = &measurement->ranks[i];
    uint64_t moving = 0;
    for (int i = 0; i < ITEM_COUNT; i++)
        if (item_infos[i].category == CATEGORY_DYNAMIC || item_infos[i].category == CATEGORY_LOGITS)
            moving += largest->item_bytes[i];
    return (double)moving >= 0.4 * (double)largest->device_bytes;
}

struct tally {
    int moving; /* rows of which two fifths come and go */
};

static void check_row(const char *name, const json_t *row, void *context)
{
    static struct prediction prediction;
    struct tally *tally = context;
    struct measurement measurement = { .rank_count = 0 };
    stored_plan(json_object_get(row, "plan"), &prediction.plan);
    stored_measurement(json_object_get(row, "measurement"), &measurement);
    judge(name, &prediction, &measurement);
    tally->moving += is_mostly_moving(&measurement);
    measurement_done(&measurement);
}

static void test_rows(void **state)
{
    (void)state;
    struct tally tally = { 0 };
    int rows = stored_each("", check_row, &tally);
    printf("  in %d of %d rows 40 %% of the figure come and go\n", tally.moving, rows);
    assert_true(rows >= LEAST_ROWS);
    assert_true(2 * tally.moving >= rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
