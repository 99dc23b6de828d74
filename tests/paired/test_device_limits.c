/* Today's verdicts against runs on H200s within memory limits about their predicted peaks
 * (tests/data/measured/limits, by tests/bench/cuda/limits.sh): what is said to fit has run, and
 * what was two bounds below its predicted peak has not. The machine of a plan is the hardware file
 * of today with the limit in the place of its memory, and nothing kept from it. */
#include "planner/report/prediction.h"
#include "tests/paired/stored.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LEAST_PLANS = 5, LEAST_RUNS = 16, VERDICTS = 3 };

/* How many runs of each verdict ended (0) and were completed (1). */
struct tally {
    int plans, runs;
    int of[VERDICTS][2];
};

static uint64_t bytes_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("'%s' is missing", key);
    return (uint64_t)json_integer_value(value);
}

static void judge_run(const char *name, struct prediction *prediction, const json_t *document,
                      const json_t *run, struct tally *tally)
{
    uint64_t limit = bytes_at(run, "limit_bytes"), peak = bytes_at(document, "peak_bytes");
    uint64_t bound = bytes_at(document, "bound_bytes");
    bool completed = json_is_true(json_object_get(run, "completed"));
    double sides = ((double)limit - (double)peak) / (double)bound;

    prediction->plan.hardware.memory_bytes = limit;
    assert_int_equal(prediction_compute(prediction), 0);
    printf("  %-24s %+.0f b  limit %8.3f GB  %-12s  %s\n", name, sides, (double)limit / 1e9,
           verdict_names[prediction->verdict],
           completed ? "ran" : json_string_value(json_object_get(run, "error")));
    tally->runs++;
    tally->of[prediction->verdict][completed]++;
    if (prediction->verdict == VERDICT_FITS && !completed)
        fail_msg("%s: said to fit in %.3f GB, and ended", name, (double)limit / 1e9);
    if (sides < -1.5 && completed)
        fail_msg("%s: ran in %.3f GB, two bounds below its peak", name, (double)limit / 1e9);
    if (sides < -1.5)
        assert_int_equal(prediction->verdict, VERDICT_DOES_NOT_FIT);
    if (!completed)
        assert_int_equal(bytes_at(run, "status"), 3);
}

/* What the stored plans keep free is nothing. */
static void judge_plan(const char *name, const json_t *document, void *context)
{
    static struct prediction prediction;
    struct tally *tally = context;
    size_t index;
    json_t *run;
    stored_plan(json_object_get(document, "plan"), &prediction.plan);
    assert_int_equal(prediction.plan.headroom_bytes + prediction.plan.reserve_bytes, 0);
    json_array_foreach(json_object_get(document, "runs"), index, run)
        judge_run(name, &prediction, document, run, tally);
    tally->plans++;
}

static void limits_hold(void **state)
{
    struct tally tally = { 0 };
    (void)state;
    (void)stored_each("limits", judge_plan, &tally);
    for (int i = 0; i < VERDICTS; i++)
        printf("  %-12s  %d ran, %d ended\n", verdict_names[i], tally.of[i][1], tally.of[i][0]);
    assert_true(tally.plans >= LEAST_PLANS);
    assert_true(tally.runs >= LEAST_RUNS);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(limits_hold) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
