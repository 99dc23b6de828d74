/* RANKFIT_FAULT as it is read: what is a fault, what is none. */
#include "executor/runtime/fault.h"

#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void faults_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct fault want;
    } cases[] = {
        { NULL, { FAULT_NONE, RUN_PHASE_START, 0, 1, 0 } },
        { "", { FAULT_NONE, RUN_PHASE_START, 0, 1, 0 } },
        { "kill:start", { FAULT_KILL, RUN_PHASE_START, 0, 1, 0 } },
        { "segv:forward:rank=2", { FAULT_SEGV, RUN_PHASE_FORWARD, 2, 1, 0 } },
        { "term:loss:step=3", { FAULT_TERM, RUN_PHASE_LOSS, 0, 3, 0 } },
        { "fail:backward:rank=1:step=2", { FAULT_FAIL, RUN_PHASE_BACKWARD, 1, 2, 0 } },
        { "stall:reduce:step=2:rank=1", { FAULT_STALL, RUN_PHASE_REDUCE, 1, 2, 0 } },
        { "kill:optimizer", { FAULT_KILL, RUN_PHASE_OPTIMIZER, 0, 1, 0 } },
        { "fail:save", { FAULT_FAIL, RUN_PHASE_SAVE, 0, 1, 0 } },
        { "alloc:12:rank=3", { FAULT_ALLOC, RUN_PHASE_START, 3, 1, 12 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fault fault;
        struct diag_list list = { 0 };
        assert_int_equal(fault_parse(cases[i].text, &fault, &list), 0);
        assert_int_equal(list.count, 0);
        assert_int_equal(fault.kind, cases[i].want.kind);
        assert_int_equal(fault.phase, cases[i].want.phase);
        assert_int_equal(fault.rank, cases[i].want.rank);
        assert_int_equal(fault.step, cases[i].want.step);
        assert_int_equal(fault.take, cases[i].want.take);
    }
}

static void other_texts_are_told(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "kill",
        "kill:",
        "none:start",
        "kil:start",
        "kill:begin",
        "kill:start:",
        "kill:start:2",
        "kill:start:rank=",
        "kill:save:step=0",
        "kill:save:rank=-1",
        "kill:save:rank=1:step=1:rank=1",
        "alloc:0",
        "alloc:x",
        "alloc:1:step=2",
        "alloc",
        "fail:loss,rank=1",
        ":::",
        "kill:start:rank=99999999999",
    };
    char longer[400];
    memset(longer, 'k', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    FILE *out = golden_begin();
    for (size_t i = 0; i <= sizeof texts / sizeof *texts; i++) {
        const char *text = i < sizeof texts / sizeof *texts ? texts[i] : longer;
        struct fault fault;
        struct diag_list list = { 0 };
        if (fault_parse(text, &fault, &list) == 0)
            print_error("'%s' is taken\n", text);
        assert_int_equal(list.errors, 1);
        assert_int_equal(fault.kind, FAULT_NONE);
        diag_list_print(out, &list);
    }
    assert_golden_end("refused requests");
}

/* A failing phase strikes at its place only. */
static void strikes_where_asked(void **state)
{
    (void)state;
    struct fault fault;
    struct diag_list list = { 0 };
    assert_int_equal(fault_parse("fail:reduce:rank=1:step=2", &fault, &list), 0);
    for (int phase = 0; phase < RUN_PHASE_COUNT; phase++)
        for (int rank = 0; rank < 3; rank++)
            for (int step = 1; step < 4; step++) {
                bool here = phase == RUN_PHASE_REDUCE && rank == 1 && step == 2;
                int status = fault_strike(&fault, rank, (enum run_phase)phase, step, &list);
                assert_int_equal(status, here ? -1 : 0);
            }
    assert_int_equal(list.errors, 1);
    assert_golden_diags("a phase fails", &list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_read),
        cmocka_unit_test(other_texts_are_told),
        cmocka_unit_test(strikes_where_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
