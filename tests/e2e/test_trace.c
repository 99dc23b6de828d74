/* run --trace on local ranks, read back: ranges that nest as a step does, every operation inside of
 * one and of a known name, nothing side by side in a rank's thread, times that add up. */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"
#include "tests/support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SKIPPED = 77, RANKS = 2, STEPS = 2, LAYERS = 4, MOST = 8192 };
enum { ROW_STEP, ROW_OPERATIONS, ROW_COLLECTIVES, ROWS };

#define QUESTION                                                                                   \
    "--model tiny-moe --hardware host --gpus 2 --seq 512 --set ep=2 --set tp=1 --set pp=1"         \
    " --set cp=1 --set sharding=fsdp --set recompute=full --set moe=plain"

static const char *const phases[] = { "forward", "loss", "backward", "reduce", "optimizer" };
enum { PHASES = sizeof phases / sizeof *phases };

/* Of the backend's and the fabric's tables. */
static const char *const operations[] = {
    "add",
    "adamw",
    "attention",
    "attention_backward",
    "combine_rows",
    "copy",
    "cross_entropy",
    "download",
    "embed",
    "embed_backward",
    "expert_gemm",
    "gather_rows",
    "gemm",
    "rmsnorm",
    "rmsnorm_backward",
    "rope",
    "rope_backward",
    "router",
    "router_backward",
    "scatter_rows",
    "sort_choices",
    "spread_rows",
    "sum_squares",
    "swiglu",
    "swiglu_backward",
    "sync",
    "upload",
    "zero",
    NULL,
};
static const char *const collectives[] = {
    "all_gather",
    "all_gather_start",
    "all_reduce",
    "all_to_all_rows",
    "all_to_all_rows_start",
    "exchange_counts",
    "reduce_scatter",
    "reduce_scatter_start",
    "sum_doubles",
    "transfer_wait",
    NULL,
};

struct interval {
    const char *name;
    double begin, end; /* microseconds */
};

/* One rank's intervals, those of a row in order of their begin, the longer first. */
struct rank {
    struct interval rows[ROWS][MOST];
    int counts[ROWS];
};

static bool is_in(const char *word, const char *const *words)
{
    while (*words && strcmp(*words, word) != 0)
        words++;
    return *words != NULL;
}

static int order(const void *a, const void *b)
{
    const struct interval *left = a, *right = b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    return (left->end < right->end) - (left->end > right->end);
}

static void read_rank(json_t *trace, int wanted, struct rank *ret)
{
    size_t index;
    json_t *event;
    memset(ret, 0, sizeof *ret);
    json_array_foreach(json_at(trace, "traceEvents"), index, event)
    {
        const char *kind = json_string_value(json_at(event, "ph"));
        if (strcmp(kind, "X") != 0 || (int)number_at(event, "pid") != wanted)
            continue;
        int row = (int)number_at(event, "tid");
        assert_in_range(row, 0, ROWS - 1);
        assert_true(ret->counts[row] < MOST);
        double begin = number_at(event, "ts");
        ret->rows[row][ret->counts[row]++] =
            (struct interval){ json_string_value(json_at(event, "name")), begin,
                               begin + number_at(event, "dur") };
    }
    for (int row = 0; row < ROWS; row++)
        qsort(ret->rows[row], (size_t)ret->counts[row], sizeof *ret->rows[row], order);
}

/* Sums rounded to a nanosecond. */
static bool within(const struct interval *inner, const struct interval *outer)
{
    return inner->begin >= outer->begin - 0.002 && inner->end <= outer->end + 0.002;
}

/* How many ranges of this name are within `outer`; NULL: anywhere. */
static int count_in(const struct rank *rank, const char *name, const struct interval *outer)
{
    int ret = 0;
    for (int i = 0; i < rank->counts[ROW_STEP]; i++) {
        const struct interval *range = &rank->rows[ROW_STEP][i];
        ret += strcmp(range->name, name) == 0 && (!outer || within(range, outer));
    }
    return ret;
}

static const struct interval *range_of(const struct rank *rank, const char *name,
                                       const struct interval *outer)
{
    for (int i = 0; i < rank->counts[ROW_STEP]; i++) {
        const struct interval *range = &rank->rows[ROW_STEP][i];
        if (strcmp(range->name, name) == 0 && (!outer || within(range, outer)))
            return range;
    }
    fail_msg("no range '%s'", name);
    return NULL;
}

/* Every range lies in the one before it or begins behind it. */
static void check_nesting(const struct rank *rank)
{
    enum { DEEPEST = 8 };
    const struct interval *open[DEEPEST];
    int depth = 0;
    for (int i = 0; i < rank->counts[ROW_STEP]; i++) {
        const struct interval *range = &rank->rows[ROW_STEP][i];
        assert_true(range->end >= range->begin);
        while (depth > 0 && range->begin >= open[depth - 1]->end - 0.002)
            depth--;
        if (depth > 0)
            assert_true(within(range, open[depth - 1]));
        assert_true(depth < DEEPEST);
        open[depth++] = range;
    }
}

static void check_step(const struct rank *rank, const struct interval *step)
{
    char layer[32];
    const struct interval *batch = range_of(rank, "micro-batch 0", step);
    for (int i = 0; i < PHASES; i++)
        assert_int_equal(count_in(rank, phases[i], i < 3 ? batch : step), 1);
    const struct interval *forward = range_of(rank, "forward", step);
    const struct interval *backward = range_of(rank, "backward", step);
    for (int i = 0; i < LAYERS; i++) {
        (void)snprintf(layer, sizeof layer, "layer %d", i);
        assert_int_equal(count_in(rank, layer, forward), 1);
        assert_int_equal(count_in(rank, layer, backward), 1);
        assert_int_equal(count_in(rank, "replay", range_of(rank, layer, backward)), 1);
    }
    assert_int_equal(count_in(rank, "embedding", forward), 1);
    assert_int_equal(count_in(rank, "embedding", backward), 1);
}

/* Operations and collectives of a rank follow each other: one thread asks for them. */
static void check_operations(const struct rank *rank)
{
    static struct interval all[2 * MOST];
    int count = 0;
    for (int row = ROW_OPERATIONS; row <= ROW_COLLECTIVES; row++)
        for (int i = 0; i < rank->counts[row]; i++) {
            const struct interval *operation = &rank->rows[row][i];
            if (!is_in(operation->name, row == ROW_OPERATIONS ? operations : collectives))
                fail_msg("unknown operation '%s'", operation->name);
            all[count++] = *operation;
        }
    qsort(all, (size_t)count, sizeof *all, order);
    for (int i = 1; i < count; i++)
        assert_true(all[i].begin >= all[i - 1].end - 0.002);
    assert_true(count > 500);
}

/* Microseconds of the operations within a range. */
static double busy_in(const struct rank *rank, const struct interval *range)
{
    double ret = 0;
    for (int row = ROW_OPERATIONS; row <= ROW_COLLECTIVES; row++)
        for (int i = 0; i < rank->counts[row]; i++)
            if (within(&rank->rows[row][i], range))
                ret += rank->rows[row][i].end - rank->rows[row][i].begin;
    return ret;
}

/* What a phase took by the measurement of the same step, and what its operations took. Between two
 * looks at the clock a busy machine may do something else for a while. */
static void check_times(const struct rank *rank, json_t *measured)
{
    const struct interval *step = range_of(rank, "step 2", NULL);
    double all = 0, busy = 0;
    for (int i = 0; i < PHASES; i++) {
        char key[64];
        const struct interval *phase = range_of(rank, phases[i], step);
        (void)snprintf(key, sizeof key, "phase_seconds.%s", phases[i]);
        double seconds = (phase->end - phase->begin) / 1e6, told = number_at(measured, key);
        if (fabs(seconds - told) > 0.05 + 0.1 * told)
            fail_msg("%s: %.6f s in the trace, %.6f measured", phases[i], seconds, told);
        double within_phase = busy_in(rank, phase);
        assert_true(within_phase <= phase->end - phase->begin + 1);
        all += phase->end - phase->begin;
        busy += within_phase;
    }
    print_message("operations fill %.1f %% of the phases\n", 100 * busy / all);
    assert_true(busy > 0.5 * all);
}

static void reads_back(void **state)
{
    (void)state;
    static struct rank rank;
    struct program_result result;
    json_error_t error;
    program_run("\"$RANKFIT\" run " QUESTION " --steps 2 --trace $TMP/t.json --json 2>$TMP/talk "
                ">$TMP/m.json && cat $TMP/t.json && cat $TMP/m.json >&2",
                &result);
    assert_int_equal(result.status, 0);
    json_t *trace = json_loads(result.out, 0, &error);
    json_t *measurement = json_loads(result.err, 0, NULL);
    if (!trace)
        fail_msg("%d:%d: %s", error.line, error.column, error.text);
    assert_non_null(measurement);
    assert_string_equal(json_string_value(json_at(trace, "otherData.schema")), "rankfit.trace/1");
    assert_string_equal(json_string_value(json_at(trace, "otherData.plan_digest")),
                        json_string_value(json_at(measurement, "plan_digest")));
    assert_true(json_is_true(json_at(measurement, "traced")));
    for (int i = 0; i < RANKS; i++) {
        char step[16], key[16];
        read_rank(trace, i, &rank);
        check_nesting(&rank);
        for (int s = 1; s <= STEPS; s++) {
            (void)snprintf(step, sizeof step, "step %d", s);
            assert_int_equal(count_in(&rank, step, NULL), 1);
            check_step(&rank, range_of(&rank, step, NULL));
        }
        check_operations(&rank);
        (void)snprintf(key, sizeof key, "ranks.%d", i);
        check_times(&rank, json_at(measurement, key));
    }
    json_decref(trace);
    json_decref(measurement);
    program_done(&result);
}

/* The trace of a run that ends early is not begun; without one nothing says so. */
static void whole_or_not_at_all(void **state)
{
    (void)state;
    struct program_result result;
    program_run("RANKFIT_FAULT=fail:backward:step=2 \"$RANKFIT\" run " QUESTION
                " --trace $TMP/t.json >/dev/null 2>&1; echo $?; ls -A $TMP",
                &result);
    assert_string_equal(result.out, "3\n");
    program_done(&result);
    assert_told_diagnostics("a trace in no directory", 2,
                            "\"$RANKFIT\" run " QUESTION " --trace $TMP/none/t.json --steps 1");
    program_run("\"$RANKFIT\" run " QUESTION " --steps 1 --json 2>/dev/null", &result);
    assert_int_equal(result.status, 0);
    assert_null(strstr(result.out, "traced"));
    program_done(&result);
}

/* A comparison says that the measured figures contain the trace's own. */
static void noted_by_compare(void **state)
{
    (void)state;
    struct program_result result;
    program_run("\"$RANKFIT\" plan " QUESTION " -o $TMP/p.yaml >/dev/null; "
                "\"$RANKFIT\" run $TMP/p.yaml --steps 1 --trace $TMP/t.json -o $TMP/m.yaml "
                ">/dev/null 2>&1; \"$RANKFIT\" compare $TMP/p.yaml $TMP/m.yaml | grep ^traced",
                &result);
    assert_int_equal(result.status, 0);
    assert_golden("the note of a traced run", result.out);
    program_done(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back),
        cmocka_unit_test(whole_or_not_at_all),
        cmocka_unit_test(noted_by_compare),
    };
    if (!program_can(CAN_RUN))
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
