/* The whole loop on local ranks: plan, run, compare. Needs mpirun and rankfit-host; without them
 * the test is skipped. */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { SKIPPED = 77 };

#define TINY                                                                                       \
    "--model tiny-moe --hardware host --gpus 2 --seq 128 --set ep=2 --set tp=1 --set pp=1"         \
    " --set cp=1 --set sharding=fsdp"

static void check_measured_rank(json_t *rank, size_t steps)
{
    static const char *const keys[] = { "rank", "arena_live_bytes", "arena_extent_bytes",
                                        "device_bytes", "rss_bytes" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        (void)number_at(rank, keys[i]);
    assert_true(number_at(rank, "arena_live_bytes") > 0);
    assert_true(number_at(rank, "arena_extent_bytes") >= number_at(rank, "arena_live_bytes"));
    assert_int_equal(json_array_size(json_at(rank, "loss")), steps);
    assert_int_equal(json_array_size(json_at(rank, "step_seconds")), steps);
    assert_true(isfinite(number_at(rank, "loss.0")));
    assert_true(json_array_size(json_at(rank, "routed_rows")) > 0);
    assert_true(json_is_object(json_at(rank, "phase_seconds")));
    double live = 0;
    size_t index;
    json_t *item;
    json_array_foreach(json_at(rank, "items"), index, item)
    {
        live += number_at(item, "bytes");
        assert_true(number_at(item, "max_bytes") >= number_at(item, "bytes"));
    }
    assert_true(live == number_at(rank, "arena_live_bytes"));
}

static void quickstart_runs(void **state)
{
    (void)state;
    size_t index;
    json_t *rank;
    json_t *measurement = program_json("run --recipe host-quickstart --json", 0);
    assert_string_equal(json_string_value(json_at(measurement, "schema")), "rankfit.measurement/1");
    assert_string_equal(json_string_value(json_at(measurement, "backend")), "host");
    assert_int_equal(json_array_size(json_at(measurement, "ranks")), 4);
    json_array_foreach(json_at(measurement, "ranks"), index, rank) check_measured_rank(rank, 3);
    json_decref(measurement);
}

/* Plans, runs, changes the measurement by `change` and compares. */
static json_t *comparison_of(const char *change)
{
    char command[1024];
    struct program_result result;
    (void)snprintf(command, sizeof command,
                   "\"$RANKFIT\" plan " TINY " -o $TMP/p.yaml >/dev/null && "
                   "\"$RANKFIT\" run $TMP/p.yaml --steps 2 -o $TMP/m.json >/dev/null 2>&1; %s"
                   "\"$RANKFIT\" compare --json $TMP/p.yaml $TMP/m.json",
                   change);
    program_expect(command, *change ? 1 : 0, &result);
    json_t *ret = json_loads(result.out, 0, NULL);
    assert_non_null(ret);
    program_done(&result);
    return ret;
}

/* The plan is run from its file, its measurement kept and compared: exit 0, all within. */
static void run_then_compare(void **state)
{
    (void)state;
    json_t *comparison = comparison_of("");
    assert_string_equal(json_string_value(json_at(comparison, "verdict")), "within");
    assert_int_equal(json_array_size(json_at(comparison, "ranks")), 2);
    (void)json_named(json_at(comparison, "ranks.1.items"), "checkpoints");
    json_decref(comparison);
}

/* A tolerance of nothing is out of reach for the arena's rounding or exact: the status says which;
 * a tolerance for the time that no machine meets says no. */
static void compare_says_no(void **state)
{
    (void)state;
    json_t *comparison =
        comparison_of("sed -i 's/\"arena_live_bytes\": [0-9]*/\"arena_live_bytes\": 1000/' "
                      "$TMP/m.json; ");
    assert_string_equal(json_string_value(json_at(comparison, "verdict")), "out_of_tolerance");
    json_decref(comparison);
}

static void another_plan_is_refused(void **state)
{
    (void)state;
    assert_told("a measurement of another plan", 2,
                "\"$RANKFIT\" plan " TINY " -o $TMP/p.yaml >/dev/null && "
                "\"$RANKFIT\" plan " TINY " --micro-batch 2 -o $TMP/q.yaml >/dev/null && "
                "\"$RANKFIT\" run $TMP/p.yaml --steps 1 -o $TMP/m.json >/dev/null 2>&1 && "
                "\"$RANKFIT\" compare $TMP/q.yaml $TMP/m.json");
}

/* Under an outer mpirun every process becomes one rank; rank 0 tells, once. */
static void outer_launcher(void **state)
{
    (void)state;
    struct program_result result;
    program_expect(
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; "
        "\"$RANKFIT\" plan " TINY " -o $TMP/p.yaml >/dev/null && "
        "mpirun -np 2 --oversubscribe --bind-to none \"$RANKFIT\" run $TMP/p.yaml --steps 1 "
        "--json 2>/dev/null >$TMP/m.json && \"$RANKFIT\" compare $TMP/p.yaml $TMP/m.json",
        0, &result);
    program_done(&result);
    assert_told_diagnostics("a launcher of another world", 2,
                            "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; "
                            "\"$RANKFIT\" plan " TINY " -o $TMP/p.yaml >/dev/null && "
                            "mpirun -q -np 1 --oversubscribe \"$RANKFIT\" run $TMP/p.yaml");
}

/* A text file is trained on as bytes; nothing temporary is left behind. */
static void trains_on_a_file(void **state)
{
    (void)state;
    struct program_result result;
    program_expect("seq 1 2000 >$TMP/text; mkdir $TMP/t; "
                   "TMPDIR=$TMP/t \"$RANKFIT\" run " TINY
                   " --data $TMP/text --steps 2 >$TMP/out 2>&1 || "
                   "{ cat $TMP/out; exit 1; }; ls -A $TMP/t",
                   0, &result);
    assert_string_equal(result.out, "");
    program_done(&result);
}

/* An executor of one line of shell in the place of the real one. */
#define FAKE(script)                                                                               \
    "printf '#!/bin/sh\\n" script "\\n' >$TMP/rankfit-host; chmod +x $TMP/rankfit-host; "          \
    "mkdir $TMP/t; TMPDIR=$TMP/t RANKFIT_LIBEXEC=$TMP \"$RANKFIT\" run " TINY

/* What the executor says passes through mpirun; a killed rank is a failed run. */
static void statuses_pass(void **state)
{
    (void)state;
    struct program_result result;
    program_expect(FAKE("exit 2"), 2, &result);
    program_done(&result);
    program_expect(FAKE("exit 3"), 3, &result);
    program_done(&result);
    assert_told_diagnostics("a killed rank", 3, FAKE("kill -9 $$"));
}

/* A run that says it finished and measured nothing has failed. */
static void a_missing_measurement_is_an_error(void **state)
{
    (void)state;
    struct program_result result;
    program_expect(FAKE("exit 0"), 3, &result);
    assert_string_equal(result.out, "");
    program_done(&result);
}

/* Interrupted, the run ends, says so by its status, and leaves nothing behind. */
static void interruption_cleans_up(void **state)
{
    (void)state;
    struct program_result result;
    program_expect(
        FAKE(
            "sleep 60") " >/dev/null 2>&1 & sleep 1; kill -TERM $!; wait $!; echo $?; ls -A $TMP/t",
        0, &result);
    assert_string_equal(result.out, "3\n");
    program_done(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quickstart_runs),
        cmocka_unit_test(run_then_compare),
        cmocka_unit_test(compare_says_no),
        cmocka_unit_test(another_plan_is_refused),
        cmocka_unit_test(statuses_pass),
        cmocka_unit_test(a_missing_measurement_is_an_error),
        cmocka_unit_test(interruption_cleans_up),
        cmocka_unit_test(outer_launcher),
        cmocka_unit_test(trains_on_a_file),
    };
    if (!program_can(CAN_RUN))
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
