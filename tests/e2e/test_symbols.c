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

/* "FUNCTION OBJECT": calls of jansson, which are those of json_... that no library of ours has. */
#define CALLS_OF_JANSSON                                                                           \
    "nm -A \"$BASE_LIB\" \"$PLANNER_LIB\" \"$CLI_LIB\" \"$EXECUTOR_LIB\" >$TMP/all; "              \
    "awk 'NF > 1 && $(NF-1) == \"T\" {print $NF}' $TMP/all | sort -u >$TMP/ours; "                 \
    "awk 'NF > 1 && $(NF-1) == \"U\" && $NF ~ /^json_/ {print $NF, $1}' $TMP/all | sort -u | "     \
    "join -v 1 - $TMP/ours"

/* Outside base/json.c only what reads: jansson's constructors say by a status that few look at that
 * a part is missing. */
static void json_is_built_in_one_place(void **state)
{
    (void)state;
    expect_empty(
        CALLS_OF_JANSSON
        " | grep -v '[:/]json\\.c\\.o:' | grep -vE '^json_(object_(get|size|iter[a-z_]*|key_to_"
        "iter)|array_(get|size)|(integer|real|number|string)_value|delete|loadb) '");
    struct program_result result;
    program_run(CALLS_OF_JANSSON " | grep -c '^json_object_set_new '", &result);
    assert_string_equal(result.out, "1\n");
    program_done(&result);
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
        cmocka_unit_test(no_planner_in_the_executor),     cmocka_unit_test(no_executor_in_rankfit),
        cmocka_unit_test(the_planner_is_seen_in_rankfit), cmocka_unit_test(no_heavy_libraries),
        cmocka_unit_test(json_is_built_in_one_place),
    };
    return has_tools() ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
}
