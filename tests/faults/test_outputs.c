/* Every output on a full disk, at a limit of file size, or where no file can be: a clear error,
 * status 3 (2 where it is known beforehand), and nothing partial. */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SKIPPED = 77, LINE = 1600 };

#define TINY                                                                                       \
    "--model tiny-moe --hardware host --gpus 2 --seq 64 --set ep=2 --set tp=1 --set pp=1"          \
    " --set cp=1 --set sharding=fsdp"
#define PLAN "TINY='" TINY "'; \"$RANKFIT\" plan $TINY -o $TMP/p.yaml >/dev/null; "
#define MEASURED "\"$RANKFIT\" run $TMP/p.yaml --steps 1 --json >$TMP/m.json 2>/dev/null; "
#define HOST                                                                                       \
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; " PLAN                      \
    "timeout -k 5 60 mpirun -q -np 2 --oversubscribe --bind-to none \"$RANKFIT_HOST\" "            \
    "$TMP/p.yaml "                                                                                 \
    "--steps 1 "

/* Standard output of every command that answers on it. */
static void results_on_a_full_device(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "plan $TINY",
        "plan $TINY --json",
        "budget $TMP/p.yaml",
        "explain tp",
        "explain tiny-moe --json",
        "list models",
        "run $TMP/p.yaml --steps 1",
        "run $TMP/p.yaml --steps 1 --json",
        "compare $TMP/p.yaml $TMP/m.json",
        "compare $TMP/p.yaml $TMP/m.json --json",
        "--help",
        "--version",
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char command[LINE];
        bool compares = strncmp(commands[i], "compare", 7) == 0;
        (void)snprintf(command, sizeof command, PLAN "%s\"$RANKFIT\" %s >/dev/full",
                       compares ? MEASURED : "", commands[i]);
        assert_told_diagnostics(commands[i], 3, command);
    }
}

/* Files beyond the limit, whether or not its signal is ignored: neither the file nor a piece of it.
 */
static void files_beyond_the_limit(void **state)
{
    (void)state;
    static const char *const signals[] = { "trap '' XFSZ; ", "" };
    static const char *const outputs[] = {
        "plan $TINY -o $TMP/d/x.yaml",
        "plan $TINY -o $TMP/d/x.json",
        "budget $TMP/p.yaml -o $TMP/d/x.json",
        "compare $TMP/p.yaml $TMP/m.json -o $TMP/d/x.json",
    };
    FILE *out = golden_begin();
    for (size_t i = 0; i < 2 * sizeof outputs / sizeof *outputs; i++) {
        char command[LINE];
        struct program_result result;
        (void)snprintf(command, sizeof command,
                       "mkdir $TMP/d; " PLAN "%s(ulimit -f 1; %s\"$RANKFIT\" %s "
                       ">/dev/null); echo $?; ls -A $TMP/d",
                       i / 2 == 3 ? MEASURED : "", signals[i % 2], outputs[i / 2]);
        program_run(command, &result);
        if (strcmp(result.out, "3\n") != 0)
            print_error("%s\n%s%s", command, result.out, result.err);
        assert_string_equal(result.out, "3\n");
        (void)print_diagnostics(out, result.err);
        program_done(&result);
    }
    assert_golden_end("files beyond the limit");
}

/* What the executor writes. */
static void executor_on_a_full_device(void **state)
{
    static const char *const outputs[] = {
        "--measurement /dev/full",
        "--measurement $TMP/m.json --dump /dev/full",
        "--measurement $TMP/m.json --save /dev/full",
        "--measurement $TMP/m.json --trace /dev/full",
    };
    (void)state;
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        char command[LINE];
        (void)snprintf(command, sizeof command, HOST "%s >/dev/null", outputs[i]);
        assert_told_diagnostics(outputs[i], 3, command);
    }
}

/* Known before anything runs: status 2 and no step. */
static void executor_where_no_file_can_be(void **state)
{
    (void)state;
    static const char *const outputs[] = {
        "--measurement $TMP/none/m.json",
        "--measurement $TMP",
        "--measurement $TMP/m.json --dump $TMP/none/d.safetensors",
        "--measurement $TMP/m.json --dump $TMP",
        "--measurement $TMP/m.json --save $TMP/none/w.safetensors",
        "--measurement $TMP/m.json --save $TMP/p.yaml/w.safetensors",
        "--measurement $TMP/m.json --trace $TMP/none/t.json",
    };
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        char command[LINE];
        struct program_result result;
        (void)snprintf(command, sizeof command, HOST "%s; echo $?; ls -A $TMP", outputs[i]);
        program_run(command, &result);
        if (strcmp(result.out, "2\np.yaml\n") != 0)
            print_error("%s\n%s%s", command, result.out, result.err);
        assert_string_equal(result.out, "2\np.yaml\n");
        assert_null(strstr(result.err, "step 1"));
        (void)print_diagnostics(golden_begin(), result.err);
        assert_golden_end(outputs[i]);
        program_done(&result);
    }
}

/* The same of rankfit's own outputs, and its temporary directory. */
static void no_place_for_files(void **state)
{
    (void)state;
    assert_told_diagnostics("a plan in no directory", 3,
                            PLAN "\"$RANKFIT\" plan $TINY -o $TMP/none/p.yaml");
    assert_told_diagnostics("a measurement in no directory", 3,
                            PLAN "\"$RANKFIT\" run $TMP/p.yaml --steps 1 -o $TMP/none/m.json");
    assert_told_diagnostics("no temporary directory", 3,
                            PLAN "TMPDIR=$TMP/none \"$RANKFIT\" run $TMP/p.yaml --steps 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_on_a_full_device),
        cmocka_unit_test(files_beyond_the_limit),
        cmocka_unit_test(executor_on_a_full_device),
        cmocka_unit_test(executor_where_no_file_can_be),
        cmocka_unit_test(no_place_for_files),
    };
    if (!program_can("command -v mpirun && command -v timeout && test -c /dev/full"))
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
