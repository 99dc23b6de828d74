/* run --memory-limit on local ranks: what is said to fit runs, what is far beyond ends with one
 * clear error, and the limit stands for the machine's memory in the verdict. */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"
#include "tests/support/golden.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SKIPPED = 77, LINE = 1600, RANKS = 2 };

/* Some 400 MB a rank, most of it tensors. */
#define QUESTION                                                                                   \
    "--model tiny-moe --hardware host --gpus 2 --seq 256 --set ep=2 --set tp=1 --set pp=1"         \
    " --set cp=1 --set sharding=fsdp --set model.vocab=131072 --set loss=full"                     \
    " --set recompute=full --headroom 0"

static const long long bound = 64 << 20; /* the least of the design's section 8, a rank */

static long long predicted_peak(void)
{
    json_t *plan = program_json("plan " QUESTION " --json", 0);
    long long ret = (long long)number_at(plan, "recommended.peak_bytes");
    json_decref(plan);
    assert_true(ret > 3 * bound);
    return ret;
}

/* Errors and warnings are those of the golden file but for their figures, which depend on the
 * memory that a process has before its tensors; of errors, one gives the cause, one that the run
 * has ended. */
static void assert_diagnostics(const char *title, const char *text)
{
    char *listed = text_replaced(text, "([a-z][a-z ]* [0-9][0-9,]*[0-9](, )?)+", "TENSORS N");
    char *named = text_replaced(listed, "'[^']*'", "'TENSOR'");
    char *masked = text_replaced(named, "[0-9][0-9,]*", "N");
    assert_int_equal(print_diagnostics(golden_begin(), masked), 2);
    assert_golden_end(title);
    free(listed);
    free(named);
    free(masked);
}

/* Neither an error nor a warning, such as that the plan does not fit. */
static void assert_silent(const char *text)
{
    assert_null(strstr(text, "warning: "));
    assert_null(strstr(text, "error: "));
}

/* Runs `arguments` with a limit for all ranks together. */
static void run_within(const char *arguments, const char *limit, int status,
                       struct program_result *ret)
{
    char command[LINE];
    (void)snprintf(command, sizeof command,
                   "\"$RANKFIT\" plan " QUESTION " -o $TMP/p.yaml >/dev/null; "
                   "\"$RANKFIT\" run %s --steps 1 --memory-limit %s -o $TMP/m.json >$TMP/out; "
                   "status=$?; test $status -ne 0 || \"$RANKFIT\" compare $TMP/p.yaml $TMP/m.json; "
                   "exit $status",
                   arguments, limit);
    program_run(command, ret);
    if (ret->status != status)
        print_error("%s within %s: status %d\n%s\n%s", arguments, limit, ret->status, ret->out,
                    ret->err);
    assert_int_equal(ret->status, status);
}

static void run_with_rank_bytes(long long bytes, int status, struct program_result *ret)
{
    char limit[32];
    (void)snprintf(limit, sizeof limit, "%lld", RANKS * bytes);
    run_within("$TMP/p.yaml", limit, status, ret);
}

/* The plan of the file is what is run: its measurement is compared with it. */
static void above_the_peak(void **state)
{
    (void)state;
    struct program_result result;
    run_with_rank_bytes(predicted_peak() + bound, 0, &result);
    assert_silent(result.err);
    program_done(&result);
}

static void below_the_peak(void **state)
{
    (void)state;
    long long peak = predicted_peak();
    for (int sides = 1; sides <= 2; sides++) {
        struct program_result result;
        char title[32];
        run_with_rank_bytes(peak - sides * bound, 3, &result);
        (void)snprintf(title, sizeof title, "%d bounds below the peak", sides);
        assert_diagnostics(title, result.err);
        program_done(&result);
    }
}

/* What is too little for the state ends before the first step. */
static void less_than_the_state(void **state)
{
    (void)state;
    struct program_result result;
    run_within("$TMP/p.yaml", "256MiB", 3, &result);
    assert_diagnostics("less than the state", result.err);
    program_done(&result);
}

/* The memory of a hardware file; and a question that the options ask is derived for the limit. */
static void of_hardware(void **state)
{
    (void)state;
    struct program_result result;
    run_within("$TMP/p.yaml", "h200", 0, &result);
    assert_silent(result.err);
    program_done(&result);
    run_within(QUESTION, "300MB", 3, &result);
    assert_diagnostics("options within a limit", result.err);
    program_done(&result);
    program_run("printf 'hardware: host\\nmemory-limit: limits/small.yaml\\n' >$TMP/recipe.yaml; "
                "mkdir $TMP/limits; sed '0,/detect/s//300MB/' "
                "\"$RANKFIT_SOURCE_ROOT/hardware/host.yaml\" >$TMP/limits/small.yaml; "
                "\"$RANKFIT\" run --recipe $TMP/recipe.yaml " QUESTION " --steps 1",
                &result);
    assert_int_equal(result.status, 3);
    assert_diagnostics("a limit of a hardware file", result.err);
    program_done(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(above_the_peak),
        cmocka_unit_test(below_the_peak),
        cmocka_unit_test(less_than_the_state),
        cmocka_unit_test(of_hardware),
    };
    if (!program_can(CAN_RUN))
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
