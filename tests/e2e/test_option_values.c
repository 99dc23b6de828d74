/* A value that is none of its option's, of every option of every command: the status is 2, the
 * option and the value are named, and nothing was printed, written or started. */
#include "planner/cli/command.h"
#include "tests/e2e/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LINE = 2400 };

/* What each command needs to be right. */
static const struct {
    const char *command, *arguments;
    bool asks; /* about a model on machines */
} usual[] = {
    { "plan", "", true },
    { "budget", "", true },
    { "run", "", true },
    { "compare", "$TMP/plan.json $TMP/measurement.json", false },
    { "explain", "weights", false },
    { "list", "models", false },
    { "pair", "moe=chunked", false },
    { "rehearse", "", true },
    { "calibrate", "--quick", false },
    { "search", "--tokens 1e9", true },
    { "sweep", "", true },
    { "grid", "", true },
    { "validate", "figures", false },
    { "export", "$TMP/plan.json --to slurm", false },
    { "check", "launch.sh --hardware host", false },
};
enum { COMMANDS = sizeof usual / sizeof *usual };

static const struct {
    enum option_id id;
    const char *words;
} question[] = {
    { OPTION_MODEL, " --model tiny-moe" },
    { OPTION_HARDWARE, " --hardware host" },
    { OPTION_GPUS, " --gpus 2" },
    { OPTION_SEQ, " --seq 128" },
};

/* Types of which "nonsense" is no value; NULL for the others. */
static const char *nonsense_of(enum option_type type)
{
    switch (type) {
    case OPTION_NUMBER:
    case OPTION_TOKENS:
    case OPTION_BYTES:
    case OPTION_FRACTION:
    case OPTION_BYTES_OR_DATA:
    case OPTION_BYTES_OR_PERCENT:
    case OPTION_NAME:
    case OPTION_PROFILE:
    case OPTION_AMOUNT:
        return "nonsense";
    case OPTION_DATA_PATH:
        return "$TMP/nonsense.yaml";
    case OPTION_FLAG:
    case OPTION_TEXT:
    case OPTION_PATH:
        break;
    }
    return NULL;
}

/* Programs in the place of mpirun and the executors, that tell when they are started. */
static const char stand_ins[] =
    "mkdir $TMP/bin; printf '#!/bin/sh\\n: >%s/started\\n' $TMP >$TMP/bin/mpirun; chmod +x "
    "$TMP/bin/mpirun; cp $TMP/bin/mpirun $TMP/bin/rankfit-host; cp $TMP/bin/mpirun "
    "$TMP/bin/rankfit-cuda; export PATH=$TMP/bin:$PATH RANKFIT_LIBEXEC=$TMP/bin; ";

static void run(int row, enum option_id id, const char *value, struct program_result *ret)
{
    char command[LINE];
    int used = snprintf(command, sizeof command, "%s\"$RANKFIT\" %s %s", stand_ins,
                        usual[row].command, usual[row].arguments);
    for (size_t i = 0; usual[row].asks && i < sizeof question / sizeof *question; i++)
        if (question[i].id != id)
            used +=
                snprintf(command + used, sizeof command - (size_t)used, "%s", question[i].words);
    const struct command *info = command_find(usual[row].command);
    if (option_infos[OPTION_OUTPUT].commands & command_bit(info))
        used += snprintf(command + used, sizeof command - (size_t)used, " -o $TMP/o.yaml");
    if (value)
        used += snprintf(command + used, sizeof command - (size_t)used, " --%s %s",
                         option_infos[id].name, value);
    (void)snprintf(command + used, sizeof command - (size_t)used,
                   "; status=$?; ls $TMP | grep -v bin; exit $status");
    program_run(command, ret);
}

static void check(int row, enum option_id id)
{
    struct program_result result;
    const char *value = nonsense_of(option_infos[id].type);
    run(row, id, value, &result);
    bool named = strstr(result.err, "nonsense") && strstr(result.err, "error: ");
    if (result.status != 2 || result.out[0] || !named)
        print_error("rankfit %s --%s %s: %d\n%s%s", usual[row].command, option_infos[id].name,
                    value, result.status, result.out, result.err);
    assert_int_equal(result.status, 2);
    assert_string_equal(result.out, "");
    assert_true(named);
    program_done(&result);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    int checked = 0;
    assert_int_equal(COMMANDS, command_count);
    for (int row = 0; row < COMMANDS; row++) {
        const struct command *command = command_find(usual[row].command);
        assert_non_null(command);
        for (int id = 0; id < OPTION_COUNT; id++)
            if ((option_infos[id].commands & command_bit(command)) &&
                nonsense_of(option_infos[id].type)) {
                check(row, (enum option_id)id);
                checked++;
            }
    }
    print_message("%d options\n", checked);
    assert_true(checked > 100);
}

/* The way of looking sees what a right question starts and writes. */
static void right_questions_are_answered(void **state)
{
    (void)state;
    struct program_result result;
    for (int row = 0; row < COMMANDS; row++) {
        unsigned bit = command_bit(command_find(usual[row].command));
        bool starts = bit & (FOR_START | FOR_CALIBRATE);
        if (bit & (FOR_COMPARE | FOR_VALIDATE | FOR_EXPORT | FOR_CHECK | FOR_LAYOUTS))
            continue;
        run(row, OPTION_COUNT, NULL, &result);
        if (starts != (strstr(result.out, "started\n") != NULL))
            print_error("%s: %s\n%s", usual[row].command, result.out, result.err);
        assert_int_equal(starts, strstr(result.out, "started\n") != NULL);
        assert_true(result.out[0]);
        program_done(&result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(right_questions_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
