#include "tests/support/golden.h"
#include "tests/unit/layout/legality_examples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct legality_rule *rule_named(const char *name)
{
    for (size_t i = 0; i < legality_rule_count; i++)
        if (!strcmp(legality_rules[i].name, name))
            return &legality_rules[i];
    fail_msg("no rule %s", name);
    return NULL;
}

static void the_sample_is_legal(void **state)
{
    struct fixture f;
    struct diag_list errors = { 0 };
    (void)state;

    fixture_init(&f);
    assert_int_equal(legality_check(&f.input, &errors), 0);
    assert_int_equal(errors.count, 0);
    assert_int_equal(legality_check(&f.input, NULL), 0);
}

/* Each rule reports its example with its severity, and the check of all rules agrees. */
static void each_rule_is_violated(void **state)
{
    FILE *out = golden_begin();
    (void)state;
    for (int i = 0; i < legality_example_count; i++) {
        const struct example *e = &legality_examples[i];
        const struct legality_rule *rule = rule_named(e->rule);
        struct diag_list one = { 0 }, all = { 0 };
        struct fixture f;

        fixture_init(&f);
        e->bend(&f);
        if (rule->check(&f.input, &one) != 1 || one.count < 1)
            fail_msg("%s, example %d: not violated", e->rule, i);
        assert_int_equal(rule->check(&f.input, NULL), 1);
        assert_int_equal(one.items[0].severity, rule->severity);
        (void)fprintf(out, "[%s]\n", e->rule);
        diag_list_print(out, &one);
        int errors = legality_check(&f.input, &all);
        assert_int_equal(errors > 0, all.errors > 0);
        assert_int_equal(legality_check(&f.input, NULL) > 0, errors > 0);
        if (rule->severity == SEVERITY_ERROR)
            assert_true(errors > 0);
    }
    assert_golden_end("every rule");
}

static void every_rule_has_an_example(void **state)
{
    (void)state;
    for (size_t i = 0; i < legality_rule_count; i++) {
        bool found = strstr(legality_rules[i].name, "_idle") != NULL; /* below */
        for (int e = 0; e < legality_example_count; e++)
            found = found || !strcmp(legality_examples[e].rule, legality_rules[i].name);
        if (!found)
            fail_msg("no example of %s", legality_rules[i].name);
    }
}

/* A good layout breaks no other rule: each example with one fault reports that fault only. */
static void one_fault_is_one_report(void **state)
{
    static const char *const single[] = { "experts",      "kv_heads",    "stage_sum",
                                          "batch",        "context",     "moe",
                                          "expert_world", "vocab_group", "virtual_groups" };
    (void)state;

    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        for (int e = 0; e < legality_example_count; e++) {
            struct diag_list all = { 0 };
            struct fixture f;
            if (strcmp(legality_examples[e].rule, single[i]) != 0)
                continue;
            fixture_init(&f);
            legality_examples[e].bend(&f);
            if (legality_check(&f.input, &all) != 1)
                fail_msg("%s: %d errors, second: %s", single[i], all.errors, all.items[1].what);
        }
    }
}

static void all_faults_at_once_with_places(void **state)
{
    struct fixed_choices fixed = { 0 };
    struct diag_list errors = { 0 };
    struct fixture f;
    (void)state;

    fixture_init(&f);
    assert_int_equal(choice_set(&fixed, "ep", "8", (struct pos){ "recipe.yaml", 4, 7 }, &errors),
                     0);
    experts_uneven(&f);
    chunks_under_plain(&f);
    ring_without_group(&f);
    f.input.fixed = &fixed;
    assert_int_equal(legality_check(&f.input, &errors), 3);
    assert_int_equal(errors.errors, 3);
    assert_string_equal(errors.items[0].file, "recipe.yaml");
    assert_int_equal(errors.items[0].line, 4);
}

static void idle_keys_are_named(void **state)
{
    struct fixed_choices fixed = { 0 };
    struct diag_list errors = { 0 };
    struct fixture f;
    (void)state;

    fixture_init(&f);
    assert_int_equal(choice_set(&fixed, "slots", "3", (struct pos){ 0 }, &errors), 0);
    f.input.fixed = &fixed;
    assert_int_equal(legality_check(&f.input, &errors), 0);
    assert_int_equal(errors.count, 1);
    assert_golden_diags("an idle key of offload", &errors);
    f.choices.primitives.offload = OFFLOAD_OPTIMIZER;
    memset(&errors, 0, sizeof errors);
    assert_int_equal(legality_check(&f.input, &errors), 0);
    assert_int_equal(errors.count, 0);

    assert_int_equal(choice_set(&fixed, "lora_targets", "mlp", (struct pos){ 0 }, &errors), 0);
    assert_int_equal(legality_check(&f.input, &errors), 0);
    assert_int_equal(errors.count, 1);
    assert_golden_diags("an idle key of adapters", &errors);
    f.choices.primitives.lora_rank = 16;
    memset(&errors, 0, sizeof errors);
    assert_int_equal(legality_check(&f.input, &errors), 0);
    assert_int_equal(errors.count, 0);
}

/* What shards neither weights nor gradients gathers and reduces nothing by units. */
static void keys_of_units_are_idle_without_them(void **state)
{
    static const struct {
        enum sharding sharding;
        int idle;
    } rows[] = {
        { SHARDING_FSDP, 0 },
        { SHARDING_ZERO2, 1 },
        { SHARDING_ZERO1, 2 },
        { SHARDING_REPLICATED, 2 },
    };
    FILE *out = golden_begin();
    struct fixed_choices fixed = { 0 };
    struct diag_list errors = { 0 };
    struct fixture f;
    (void)state;

    fixture_init(&f);
    f.input.fixed = &fixed;
    assert_int_equal(choice_set(&fixed, "prefetch_units", "2", (struct pos){ 0 }, &errors), 0);
    assert_int_equal(choice_set(&fixed, "comm_streams", "2", (struct pos){ 0 }, &errors), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        f.choices.primitives.sharding = rows[i].sharding;
        memset(&errors, 0, sizeof errors);
        assert_int_equal(legality_check(&f.input, &errors), 0);
        assert_int_equal(errors.count, rows[i].idle);
        (void)fprintf(out, "# %s\n", sharding_names[rows[i].sharding]);
        diag_list_print(out, &errors);
    }
    assert_golden_end("idle keys of units");
}

/* A key that nobody set is at fault for another that somebody did. */
static void faults_stand_where_something_was_set(void **state)
{
    struct fixed_choices fixed = { 0 };
    struct diag_list errors = { 0 };
    struct fixture f;
    const struct pos said = { "recipe.yaml", 7, 9 };
    (void)state;

    fixture_init(&f);
    f.input.fixed = &fixed;
    assert_int_equal(choice_set(&fixed, "loss", "ring_dtp", said, &errors), 0);
    assert_int_equal(choice_set(&fixed, "recompute", "full", (struct pos){ "else", 1, 1 }, &errors),
                     0);
    f.choices.primitives.loss = LOSS_RING_DTP;
    f.choices.primitives.vocab_group = 7;
    assert_true(legality_check(&f.input, &errors) > 0);
    assert_golden_diags("an unset key at fault", &errors);
    assert_string_equal(errors.items[0].file, "recipe.yaml");
    assert_int_equal(errors.items[0].line * 100 + errors.items[0].column, 709);
}

/* Warnings about what cannot be would only hide why it cannot. */
static void nothing_is_unwise_about_the_impossible(void **state)
{
    struct fixed_choices fixed = { 0 };
    struct diag_list errors = { 0 };
    struct fixture f;
    (void)state;

    fixture_init(&f);
    f.input.fixed = &fixed;
    assert_int_equal(choice_set(&fixed, "slots", "3", (struct pos){ 0 }, &errors), 0);
    f.choices.layout.vpp = 2;
    assert_int_equal(legality_check(&f.input, &errors), 1);
    assert_int_equal(errors.count, 1);
    assert_golden_diags("no warning about the impossible", &errors);
}

/* Absurd degrees must not overflow or divide by zero on their way to a message. */
static void absurd_degrees_are_survived(void **state)
{
    static const int absurd[] = { 0, -1, 65536, INT32_MAX, INT32_MIN };
    (void)state;

    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        for (int which = 0; which < 10; which++) {
            struct diag_list errors = { 0 };
            struct fixture f;
            fixture_init(&f);
            struct layout *l = &f.choices.layout;
            int *const degrees[10] = { &l->tp,   &l->pp,  &l->cp,     &l->ep,    &l->etp,
                                       &l->fsdp, &l->vpp, &l->e_fsdp, &l->d_rep, &l->micro_batch };
            *degrees[which] = absurd[i];
            assert_true(legality_check(&f.input, &errors) > 0);
            assert_true(legality_check(&f.input, NULL) > 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sample_is_legal),
        cmocka_unit_test(each_rule_is_violated),
        cmocka_unit_test(every_rule_has_an_example),
        cmocka_unit_test(one_fault_is_one_report),
        cmocka_unit_test(all_faults_at_once_with_places),
        cmocka_unit_test(idle_keys_are_named),
        cmocka_unit_test(keys_of_units_are_idle_without_them),
        cmocka_unit_test(faults_stand_where_something_was_set),
        cmocka_unit_test(nothing_is_unwise_about_the_impossible),
        cmocka_unit_test(absurd_degrees_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
