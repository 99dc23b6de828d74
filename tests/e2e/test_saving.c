/* What saving takes, measured: the fullest process of a run that saves its weights beside one that
 * does not, against the buffers that the budget tells. Needs mpirun and rankfit-host; without them
 * the test is skipped. */
#include "tests/e2e/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/resource.h>

#include "tests/support/near.h"

enum { SKIPPED = 77 };

/* The embedding and the head have 4.2 million elements each. */
#define QUESTION                                                                                   \
    "--model tiny-moe --hardware host --gpus 2 --seq 64 --set ep=2 --set cp=1 --set sharding=fsdp" \
    " --set model.vocab=65536 --global-batch 2"

/* Of the fullest process so far that has ended. */
static double resident_bytes(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &usage), 0);
    return 1024 * (double)usage.ru_maxrss;
}

static double run(const char *more)
{
    struct program_result result;
    char command[1024];
    (void)snprintf(command, sizeof command, "\"$RANKFIT\" run " QUESTION " --steps 1 %s >/dev/null",
                   more);
    program_run(command, &result);
    if (result.status != 0)
        fail_msg("%s", result.err);
    program_done(&result);
    return resident_bytes();
}

/* The arena's pages stay with a process once a step has touched them, so that what saving takes
 * comes on top. Each rank's slice of a unit, both as they arrive at rank 0, and the whole: 21 MB.
 */
static void buffers_are_those_predicted(void **state)
{
    (void)state;
    json_t *budget = program_json("budget --json " QUESTION, 0);
    json_t *peaks = json_at(budget, "ranks.0.peaks");
    double read = 65536 * 4;
    double buffers = number_at(peaks, "save_bytes") - (number_at(peaks, "resume_bytes") - read);
    json_decref(budget);
    double without = run(""), with = run("--save $TMP/weights.safetensors");
    assert_near(buffers, with - without, 0.05, "bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_are_those_predicted),
    };
    if (!program_can(CAN_RUN))
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
