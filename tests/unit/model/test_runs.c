/* Which models the executors run, and what of the others they do not: every model that ships is in
 * the golden file. Which degrees the kinds of layers allow. */
#include "tests/unit/model/fixture.h"

#include "base/file.h"
#include "base/layout/capability.h"
#include "base/layout/legality_rules.h"
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void choices_init(struct choices *ret)
{
    struct layout *l = &ret->layout;
    memset(ret, 0, sizeof *ret);
    l->tp = l->pp = l->vpp = l->cp = l->ep = l->etp = 1;
    l->fsdp = l->d_rep = l->e_fsdp = l->e_rep = 1;
    l->micro_batch = l->micro_batches = 1;
    ret->primitives = primitives_default();
}

static void add_model(const char *name, const char *path, void *context)
{
    FILE *out = context;
    struct diag_list errors = { 0 };
    struct model model;
    struct choices choices;
    (void)path;
    fixture_shipped(name, &model);
    choices_init(&choices);
    (void)fprintf(out, "# %s\n", name);
    (void)capability_check(BACKEND_CUDA, &model, &choices, &errors);
    for (int i = 0; i < errors.count; i++)
        (void)fprintf(out, "%s\n", errors.items[i].what);
}

static void every_model_runs_or_is_refused(void **state)
{
    (void)state;
    struct diag_list list = { 0 };
    FILE *out = golden_begin();
    assert_int_equal(file_list_data("models", add_model, out, &list), 0);
    assert_golden_end("every model that ships");
}

static int violated(int (*rule)(const struct legality_input *, struct diag_list *),
                    const struct model *model, int tp, int cp, enum linear_context linear)
{
    struct choices choices;
    struct fixed_choices fixed;
    struct diag_list errors = { 0 };
    memset(&fixed, 0, sizeof fixed);
    choices_init(&choices);
    choices.layout.tp = tp;
    choices.layout.cp = cp;
    choices.primitives.linear_context = linear;
    const struct legality_input in = {
        .model = model, .choices = &choices, .fixed = &fixed, .gpus = 64, .seq_tokens = 8192
    };
    int broken = rule(&in, NULL);
    assert_int_equal(rule(&in, &errors) != 0, broken != 0);
    assert_int_equal(errors.errors > 0, broken != 0);
    return broken;
}

/* Nemotron: 8 groups of Mamba-2; MiniMax-M1: 64 heads of lightning attention; Qwen3-Next: 16 key
 * heads. DeepSeek has 128 heads and keys and values for each. */
static void degrees_follow_the_kinds(void **state)
{
    (void)state;
    struct model model;
    fixture_shipped("nemotron-3-nano-30b-a3b", &model);
    assert_int_equal(linear_heads(&model), 8);
    assert_int_equal(violated(legality_linear_heads, &model, 8, 1, LINEAR_CONTEXT_NONE), 0);
    assert_int_equal(violated(legality_linear_heads, &model, 16, 1, LINEAR_CONTEXT_NONE), 1);
    assert_int_equal(violated(legality_head_split, &model, 2, 4, LINEAR_CONTEXT_HEAD_SPLIT), 0);
    assert_int_equal(violated(legality_head_split, &model, 2, 8, LINEAR_CONTEXT_HEAD_SPLIT), 1);
    assert_int_equal(violated(legality_linear_context, &model, 1, 2, LINEAR_CONTEXT_NONE), 1);
    fixture_shipped("minimax-m1", &model);
    assert_int_equal(linear_heads(&model), 64);
    assert_int_equal(violated(legality_kv_heads, &model, 16, 1, LINEAR_CONTEXT_NONE), 1);
    fixture_shipped("qwen3-next-80b-a3b", &model);
    assert_int_equal(linear_heads(&model), 16);
    fixture_shipped("deepseek-v3", &model);
    assert_int_equal(linear_heads(&model), 0);
    assert_int_equal(violated(legality_heads, &model, 64, 1, LINEAR_CONTEXT_NONE), 0);
    assert_int_equal(violated(legality_kv_heads, &model, 64, 1, LINEAR_CONTEXT_NONE), 0);
    assert_int_equal(violated(legality_heads, &model, 48, 1, LINEAR_CONTEXT_NONE), 1);
    assert_true(model_has_softmax(&model) && !model_has_linear(&model));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_runs_or_is_refused),
        cmocka_unit_test(degrees_follow_the_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
