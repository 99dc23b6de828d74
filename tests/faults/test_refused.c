/* Every take from the arena refused in turn, of dry pass and step, on one rank in this process: one
 * error that says so, and nothing kept (AddressSanitizer looks). */
#include "tests/support/golden.h"
#include "tests/support/text.h"
#include "tests/unit/executor/step_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
/* Leaks are looked for in what the trainer does: Open MPI keeps memory of its own. */
static void leaks_of_others(void)
{
    __lsan_disable();
}

static void leaks_of_ours(void)
{
    __lsan_enable();
}

static int leaks(void)
{
    return __lsan_do_recoverable_leak_check();
}
#else
static void leaks_of_others(void) {}

static void leaks_of_ours(void) {}

static int leaks(void)
{
    return 0;
}
#endif

enum { REFUSED_IN_OPEN, REFUSED_IN_STEP, NOT_REFUSED };

static int run_refusing(const struct plan *plan, struct backend *backend, struct fabric *alone,
                        long take, struct diag_list *list)
{
    const struct data data = { .seed = 5, .vocab = plan->model.vocab };
    const struct trainer_options options = { .seed = 7, .refused_take = take };
    struct trainer trainer;
    struct step_result result;
    int ret = REFUSED_IN_OPEN;
    if (trainer_open_with(&trainer, plan, alone, backend, &data, &options, list) == 0)
        ret = trainer_step(&trainer, 1, &result) == 0 ? NOT_REFUSED : REFUSED_IN_STEP;
    trainer_close(&trainer);
    return ret;
}

/* A backend serves one trainer after another. */
static void refuse_all(const char *title, const struct model *model,
                       const struct step_layout *layout)
{
    char *first = NULL; /* all errors are the same but for tensor, size and phase */
    struct plan *plan = calloc(1, sizeof *plan);
    struct diag_list errors = { 0 };
    struct fabric *alone = step_alone(step_fabric);
    int last = REFUSED_IN_OPEN;
    long take = 1;

    leaks_of_ours();
    assert_non_null(plan);
    step_plan(plan, model, layout, "balanced");
    for (; last != NOT_REFUSED; take++) {
        struct diag_list list = { 0 };
        struct backend *backend = backend_host_open(&errors);
        assert_non_null(backend);
        int now = run_refusing(plan, backend, alone, take, &list);
        backend->ops->close(backend);
        assert_true(now >= last);
        last = now;
        if (now == NOT_REFUSED)
            continue;
        if (list.count != 1)
            diag_list_print(stderr, &list);
        assert_int_equal(list.count, 1);
        char *same = text_replaced(list.items[0].what, "'[^']*'|[0-9][0-9,]*|, during .*", "");
        if (first)
            assert_string_equal(same, first);
        else
            assert_golden(title, same);
        free(first);
        first = same;
        assert_true(take < 100000);
    }
    free(first);
    print_message("%ld takes refused\n", take - 2);
    /* more than a take for each of the tables' rows: twice, the dry pass and the step */
    assert_true(take > 100);
    step_alone_close(alone);
    free(plan);
    assert_int_equal(leaks(), 0);
    leaks_of_others();
}

static void every_take_of_experts(void **state)
{
    (void)state;
    struct model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    step_moe_model(model);
    refuse_all("experts", model,
               &(const struct step_layout){ .micro_batches = 2, .sharding = SHARDING_FSDP });
    free(model);
}

static void every_take_of_a_dense_model(void **state)
{
    (void)state;
    struct model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    step_dense_model(model);
    refuse_all("a dense model", model, &(const struct step_layout){ .sharding = SHARDING_ZERO1 });
    free(model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_take_of_experts),
        cmocka_unit_test(every_take_of_a_dense_model),
    };
    leaks_of_others();
    return step_main(argc, argv, "refused", tests, sizeof tests / sizeof *tests);
}
