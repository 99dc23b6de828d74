/* The halves are independent as linked: nothing of the planner is in the executor, nothing of the
 * executor in rankfit, and rankfit needs neither BLAS, MPI nor CUDA. */
#include "tests/e2e/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SKIPPED = 77 };

/* Functions that a library defines for others, and all functions of a program. */
#define OF_LIBRARY(file) "nm -g --defined-only " file " | awk '$2 == \"T\" {print $3}' | sort -u"
#define OF_PROGRAM(file) "nm --defined-only " file " | awk '$2 ~ /[Tt]/ {print $3}' | sort -u"

static void expect_empty(const char *command)
{
    struct program_result result;
    program_run(command, &result);
    assert_string_equal(result.err, "");
    assert_string_equal(result.out, "");
    program_done(&result);
}

static void no_planner_in_the_executor(void **state)
{
    (void)state;
    expect_empty(OF_LIBRARY("\"$PLANNER_LIB\"") " >$TMP/a; " OF_PROGRAM(
        "\"$RANKFIT_HOST\"") " >$TMP/b; test -s $TMP/a && test -s $TMP/b && comm -12 $TMP/a "
                             "$TMP/b");
}

static void no_executor_in_rankfit(void **state)
{
    (void)state;
    expect_empty(OF_LIBRARY("\"$EXECUTOR_LIB\"") " >$TMP/a; " OF_PROGRAM(
        "\"$RANKFIT\"") " >$TMP/b; test -s $TMP/a && test -s $TMP/b && comm -12 $TMP/a $TMP/b");
}

/* The way of looking finds what is there: the planner in rankfit. */
static void the_planner_is_seen_in_rankfit(void **state)
{
    (void)state;
    struct program_result result;
    program_run(OF_PROGRAM("\"$RANKFIT\"") " | grep -c '^budget_'", &result);
    assert_true(strtol(result.out, NULL, 10) > 3);
    program_done(&result);
}

static void no_heavy_libraries(void **state)
{
    (void)state;
    expect_empty("readelf -d \"$RANKFIT\" | grep NEEDED | grep -E 'openblas|libmpi|cuda|nccl'");
}

static int has_tools(void)
{
    struct program_result result;
    program_run("command -v nm readelf awk && test -x \"$RANKFIT_HOST\"", &result);
    int status = result.status;
    program_done(&result);
    return status == 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_planner_in_the_executor),
        cmocka_unit_test(no_executor_in_rankfit),
        cmocka_unit_test(the_planner_is_seen_in_rankfit),
        cmocka_unit_test(no_heavy_libraries),
    };
    return has_tools() ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
}
