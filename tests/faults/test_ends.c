/* How a run ends when a rank is killed, fails or stands still at any phase: all ranks end, the
 * first cause is reported once, the status is 3, what was measured is kept, nothing is left behind.
 */
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

/* A run that hangs is ended by force, which no test takes for its end. */
#define WITHIN "timeout -k 5 60 "

/* Runs two ranks with `fault`; `measured` says whether a step was finished before it strikes. One
 * error gives the cause, one that the run has ended. */
static void check_fault(const char *fault, const char *options, bool measured)
{
    char command[LINE];
    struct program_result result;
    (void)snprintf(command, sizeof command,
                   "mkdir $TMP/t; export TMPDIR=$TMP/t; \"$RANKFIT\" plan " TINY
                   " -o $TMP/p.yaml >/dev/null; RANKFIT_FAULT=%s " WITHIN
                   "\"$RANKFIT\" run $TMP/p.yaml --json -o $TMP/m.json %s >$TMP/out; echo $?; "
                   "ls -A $TMP/t; pgrep -f \"rankfit-host $TMP/p.yaml\"; "
                   "test -f $TMP/m.json && grep -c step_seconds $TMP/m.json",
                   fault, options);
    program_run(command, &result);
    const char *want = measured ? "3\n2\n" : "3\n";
    if (strcmp(result.out, want) != 0)
        print_error("%s: %s\n%s", fault, result.out, result.err);
    assert_string_equal(result.out, want);
    assert_int_equal(print_diagnostics(golden_begin(), result.err), 2);
    assert_golden_end(fault);
    program_done(&result);
}

static const struct {
    const char *phase;
    bool measured; /* step 2's own phases follow a measured step */
} phases[] = {
    { "start", false }, { "forward", true },   { "loss", true }, { "backward", true },
    { "reduce", true }, { "optimizer", true }, { "save", true },
};
enum { PHASES = sizeof phases / sizeof *phases };

static void killed_at_every_phase(void **state)
{
    (void)state;
    for (int i = 0; i < PHASES; i++) {
        char fault[80];
        (void)snprintf(fault, sizeof fault, "kill:%s:rank=1:step=2", phases[i].phase);
        check_fault(fault, "", phases[i].measured);
    }
}

static void failing_at_every_phase(void **state)
{
    (void)state;
    for (int i = 0; i < PHASES; i++) {
        char fault[80];
        (void)snprintf(fault, sizeof fault, "fail:%s:rank=%d:step=2", phases[i].phase, i % 2);
        check_fault(fault, "", phases[i].measured);
    }
}

static void other_signals(void **state)
{
    (void)state;
    check_fault("segv:backward:rank=0", "", false);
    check_fault("term:loss:rank=1:step=2", "", true);
}

/* The ranks that wait report the missing rank and the operation. */
static void standing_still(void **state)
{
    (void)state;
    check_fault("stall:start:rank=1", "--stall-timeout 3", false);
    check_fault("stall:reduce:rank=0:step=2", "--stall-timeout 3", true);
}

/* A refused take: of residents, of the dry step, of the step itself. */
static void refused_takes(void **state)
{
    (void)state;
    check_fault("alloc:1:rank=1", "", false);
    check_fault("alloc:90", "", false);
    check_fault("alloc:400:rank=1", "", false);
}

static void malformed_requests(void **state)
{
    (void)state;
    assert_told_diagnostics("a malformed request", 2,
                            "RANKFIT_FAULT=kill:lunch " WITHIN "\"$RANKFIT\" run " TINY);
}

/* Interrupted while ranks train, by signals 50 ms apart: rankfit reports it (whether a rank's own
 * report arrives depends on the moment, so it is left out), and no file, no process and none of the
 * memory that ranks share is left. */
static void check_interruption(const char *names)
{
    char command[LINE];
    struct program_result result;
    (void)snprintf(
        command, sizeof command,
        "mkdir $TMP/t; export TMPDIR=$TMP/t OMPI_MCA_btl_vader_backing_directory=$TMP/t; "
        "\"$RANKFIT\" plan " TINY " -o $TMP/p.yaml >/dev/null; "
        "env --default-signal=INT \"$RANKFIT\" run $TMP/p.yaml --steps 100000 "
        ">/dev/null 2>$TMP/talk & "
        "for i in $(seq 300); do grep -q '^step 1/' $TMP/talk && break; sleep 0.1; done; "
        "ls $TMP/t | grep -c vader_segment; "
        "for name in %s; do kill -$name $!; sleep 0.05; done; wait $!; echo $?; ls -A $TMP/t; "
        "pgrep -f \"rankfit-host $TMP/p.yaml\"; grep -v 'error: rank' $TMP/talk >&2",
        names);
    program_run(command, &result);
    const char *want = "2\n3\n"; /* two segments while it runs; the status */
    if (strcmp(result.out, want) != 0)
        print_error("%s: %s\n%s", names, result.out, result.err);
    assert_string_equal(result.out, want);
    assert_int_equal(print_diagnostics(golden_begin(), result.err), 1);
    assert_golden_end(names);
    program_done(&result);
}

static void interrupted(void **state)
{
    (void)state;
    check_interruption("INT");
    check_interruption("TERM");
}

static void requested_otherwise(void **state)
{
    (void)state;
    check_interruption("USR1");
    check_interruption("USR2");
    check_interruption("ALRM");
    check_interruption("QUIT");
    check_interruption("PIPE");
}

/* The reader of the output has gone: the shell sees SIGPIPE's status, and nothing is left. */
static void reader_gone(void **state)
{
    (void)state;
    static const char *const commands[] = { "run " TINY " --steps 1 --json",
                                            "rehearse " TINY " --steps 1 --json",
                                            "pair moe=chunked --json" };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char command[LINE];
        struct program_result result;
        (void)snprintf(command, sizeof command,
                       "mkdir $TMP/t; export TMPDIR=$TMP/t; "
                       "(env --default-signal=PIPE " WITHIN "\"$RANKFIT\" %s 2>$TMP/said; "
                       "echo $? >&2) | true; ls -A $TMP/t",
                       commands[i]);
        program_run(command, &result);
        assert_string_equal(result.out, "");
        assert_string_equal(result.err, "141\n");
        program_done(&result);
    }
}

/* A killed run leaves directories and unfinished outputs, which the next run removes; those of a
 * living owner stay. */
static void killed_run_is_cleared(void **state)
{
    (void)state;
    struct program_result result;
    program_run(
        "mkdir $TMP/t; export TMPDIR=$TMP/t; \"$RANKFIT\" plan " TINY " -o $TMP/p.yaml >/dev/null; "
        "\"$RANKFIT\" run $TMP/p.yaml --steps 100000 >/dev/null 2>$TMP/talk & "
        "for i in $(seq 300); do grep -q '^step 1/' $TMP/talk && break; sleep 0.1; done; "
        "name=$(ls $TMP/t); ls -d $TMP/t/$name /dev/shm/${name%-*}-* | wc -l; "
        "\"$RANKFIT\" run $TMP/p.yaml --steps 1 >/dev/null 2>&1; echo $?; "
        "ls -d $TMP/t/$name /dev/shm/${name%-*}-* | wc -l; "
        "kill -KILL $!; wait $! 2>/dev/null; "
        "touch $TMP/.rankfit-${name#rankfit-}; "
        "for i in $(seq 100); do pgrep -f \"rankfit-host $TMP/p.yaml\" >/dev/null || break; "
        "sleep 0.1; done; "
        "\"$RANKFIT\" run $TMP/p.yaml --steps 1 -o $TMP/m.json >/dev/null 2>&1; echo $?; "
        "ls -A $TMP/t; ls -d /dev/shm/${name%-*}-* 2>/dev/null; ls -A $TMP",
        &result);
    assert_string_equal(result.out, "2\n0\n2\n0\nm.json\np.yaml\nt\ntalk\n");
    program_done(&result);
}

static void plans_that_are_read_once(void **state)
{
    (void)state;
    struct program_result result;
    program_run("\"$RANKFIT\" plan " TINY " -o $TMP/p.yaml >/dev/null; mkfifo $TMP/f; "
                "cat $TMP/p.yaml >$TMP/f & " WITHIN
                "\"$RANKFIT\" run $TMP/f --steps 1 >$TMP/out 2>&1; echo $?; "
                "cat $TMP/p.yaml | " WITHIN "\"$RANKFIT\" run /dev/stdin --steps 1 >$TMP/out 2>&1; "
                "echo $?; cp $TMP/p.yaml $TMP/--dump=z; cd $TMP; " WITHIN
                "\"$RANKFIT\" run --steps 1 -- --dump=z >$TMP/out 2>&1; echo $?; ls $TMP",
                &result);
    assert_string_equal(result.out, "0\n0\n0\n--dump=z\nf\nout\np.yaml\n");
    program_done(&result);
}

/* OpenBLAS tries for ever where it gets no buffer. */
/* A sanitized program needs more address space for its shadow alone. */
static void little_address_space(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();
#endif
    assert_told_diagnostics("little address space", 3,
                            "ulimit -v 300000; " WITHIN "\"$RANKFIT\" rehearse " TINY " --steps 1");
}

static void more_ranks_than_processors_stand(void **state)
{
    (void)state;
    struct program_result result;
    program_run(WITHIN "\"$RANKFIT\" calibrate --gpus 65536 -o $TMP/x.yaml 2>&1 | "
                       "sed 's/at most .*/at most N/'; ls $TMP",
                &result);
    assert_string_equal(result.out,
                        "error: 65536 ranks are too many to start here: at most N\n"
                        "  hint: a launcher of your own starts any number on several machines: "
                        "srun or mpirun rankfit run PLAN\n");
    program_done(&result);
}

/* As root only; both ways of consent. */
static void consent_of_root(void **state)
{
    (void)state;
    if (!program_can("test $(id -u) = 0"))
        skip();
    static const char without[] =
        "unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM; " WITHIN
        "\"$RANKFIT\" run " TINY " --steps 1 ";
    char command[LINE];
    struct program_result result;
    assert_told_diagnostics("as root", 2, without);
    (void)snprintf(command, sizeof command, "%s --allow-root 2>&1 | grep root", without);
    program_expect(command, 0, &result);
    assert_string_equal(result.out, "warning: mpirun runs as root\n");
    program_done(&result);
}

static void interrupted_again(void **state)
{
    (void)state;
    check_interruption("INT INT");
    check_interruption("INT INT INT");
    check_interruption("TERM TERM");
    check_interruption("HUP INT");
}

/* A parent's ignored SIGCHLD is inherited; children then leave no status to wait for. */
static void ignored_child_signal(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "run " TINY " --steps 1",
        "rehearse " TINY " --steps 1",
        "pair moe=chunked",
        "calibrate --quick --backend host -o $TMP/x.yaml",
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char command[LINE];
        struct program_result result;
        (void)snprintf(command, sizeof command,
                       "mkdir $TMP/t; export TMPDIR=$TMP/t; " WITHIN "env --ignore-signal=CHLD "
                       "\"$RANKFIT\" %s >/dev/null; echo $?; find $TMP/t -name 'rankfit-*'",
                       commands[i]);
        program_run(command, &result);
        if (strcmp(result.out, "0\n") != 0)
            print_error("%s: %s\n%s", commands[i], result.out, result.err);
        assert_string_equal(result.out, "0\n");
        program_done(&result);
    }
}

/* Under an outer launcher every process is a rank's; the first cause is told once there too. */
static void under_an_outer_launcher(void **state)
{
    (void)state;
    struct program_result result;
    program_run("export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$TMP/t; "
                "mkdir $TMP/t; \"$RANKFIT\" plan " TINY " -o $TMP/p.yaml >/dev/null; "
                "RANKFIT_FAULT=kill:loss:rank=1:step=2 " WITHIN
                "mpirun -np 2 --oversubscribe --bind-to none "
                "\"$RANKFIT\" run $TMP/p.yaml -o $TMP/m.json >/dev/null 2>$TMP/talk; echo $?; "
                "grep -A1 'error: rank' $TMP/talk >&2; "
                "find $TMP/t -name 'rankfit-*'; pgrep -f \"rankfit-host $TMP/p.yaml\"",
                &result);
    if (strcmp(result.out, "3\n") != 0)
        print_error("%s\n%s", result.out, result.err);
    assert_string_equal(result.out, "3\n");
    assert_int_equal(print_diagnostics(golden_begin(), result.err), 1);
    assert_golden_end("under an outer launcher");
    program_done(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_every_phase), cmocka_unit_test(failing_at_every_phase),
        cmocka_unit_test(other_signals),         cmocka_unit_test(standing_still),
        cmocka_unit_test(refused_takes),         cmocka_unit_test(malformed_requests),
        cmocka_unit_test(interrupted),           cmocka_unit_test(interrupted_again),
        cmocka_unit_test(ignored_child_signal),  cmocka_unit_test(under_an_outer_launcher),
        cmocka_unit_test(requested_otherwise),   cmocka_unit_test(reader_gone),
        cmocka_unit_test(killed_run_is_cleared), cmocka_unit_test(plans_that_are_read_once),
        cmocka_unit_test(little_address_space),  cmocka_unit_test(more_ranks_than_processors_stand),
        cmocka_unit_test(consent_of_root),
    };
    if (!program_can("command -v mpirun && command -v pgrep && command -v timeout"))
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
