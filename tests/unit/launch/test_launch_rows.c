/* The tables of launch.h: complete, and the same in both directions. */
#include "base/layout/key.h"
#include "planner/cli/options.h"
#include "planner/launch/launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Keys that a table may leave out: fsdp, e_fsdp and micro_batch follow from other rows where an
 * engine counts copies of the state or sequences per step; the settings of a feature whose only row
 * is `instead` never apply. */
static bool may_be_missing(const char *key)
{
    static const char *const keys[] = {
        "fsdp",           "e_fsdp",      "micro_batch", "moe_chunks",       "wgrad_delay",
        "moe_cap_tokens", "vocab_group", "vocab_strip", "loss_tile_tokens", "reference_weights",
        "lora_targets"
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static bool has_row(const struct launch_target *target, const char *key)
{
    const struct launch_row *row;
    for (size_t i = 0; (row = launch_row_at(target, i)); i++)
        if (strcmp(row->key, key) == 0)
            return true;
    return false;
}

static void every_key_has_a_row_in_every_table(void **state)
{
    (void)state;
    int tables = 0;
    for (size_t t = 0; t < launch_target_count; t++) {
        const struct launch_target *target = &launch_targets[t];
        if (!target->tables[0])
            continue;
        tables++;
        for (size_t k = 0; k < choice_key_count; k++)
            if (!has_row(target, choice_keys[k].key) && !may_be_missing(choice_keys[k].key))
                fail_msg("%s has no row for %s", target->name, choice_keys[k].key);
    }
    assert_true(tables >= 2);
}

/* A value of a row is one that --set takes, so that a launch file cannot mean an unknown one. */
static void every_value_is_one_of_its_key(void **state)
{
    (void)state;
    int checked = 0;
    for (size_t t = 0; t < launch_target_count; t++) {
        const struct launch_row *row;
        for (size_t i = 0; (row = launch_row_at(&launch_targets[t], i)); i++) {
            const char *values[] = { row->value, row->instead };
            int key = choice_key_find(row->key);
            for (int v = 0; v < 2 && key >= 0; v++) {
                struct choices choices = { 0 };
                struct diag_list errors = { 0 };
                if (!values[v] || !values[v][0] || strchr("@-", values[v][0]))
                    continue;
                checked++;
                if (choice_parse(&choices, key, values[v], (struct pos){ 0 }, &errors) != 0)
                    fail_msg("%s: %s=%s", launch_targets[t].name, row->key, values[v]);
            }
        }
    }
    assert_true(checked > 100);
}

/* Every value of a named key has a row, so that no plan is exported without it silently. */
static void every_named_value_has_a_row(void **state)
{
    (void)state;
    for (size_t t = 0; t < launch_target_count; t++)
        for (size_t k = 0; k < choice_key_count; k++) {
            const struct choice_key *key = &choice_keys[k];
            if (key->type != KEY_ENUM || !has_row(&launch_targets[t], key->key))
                continue;
            for (int v = 0; v < key->name_count; v++) {
                const struct launch_row *row;
                bool found = false;
                for (size_t i = 0; (row = launch_row_at(&launch_targets[t], i)); i++)
                    found = found || (strcmp(row->key, key->key) == 0 &&
                                      (!row->value || strcmp(row->value, key->names[v]) == 0));
                if (!found && strcmp(key->names[v], "none") != 0)
                    fail_msg("%s has no row for %s=%s", launch_targets[t].name, key->key,
                             key->names[v]);
            }
        }
}

/* A replacement is itself a value that has a row without one: nothing is replaced twice. */
static void a_replacement_is_final(void **state)
{
    (void)state;
    for (size_t t = 0; t < launch_target_count; t++) {
        const struct launch_row *row, *other;
        for (size_t i = 0; (row = launch_row_at(&launch_targets[t], i)); i++) {
            bool final = !row->instead || !row->instead[0] || row->instead[0] == '@';
            for (size_t j = 0; !final && (other = launch_row_at(&launch_targets[t], j)); j++)
                if (strcmp(other->key, row->key) == 0 &&
                    (!other->value || strcmp(other->value, row->instead) == 0)) {
                    final = !other->instead || strcmp(other->instead, row->instead) == 0;
                    break;
                }
            if (!final)
                fail_msg("%s: %s=%s is replaced by %s, which has no row of its own",
                         launch_targets[t].name, row->key, row->value ? row->value : "any",
                         row->instead);
        }
    }
}

static void options_name_every_target(void **state)
{
    (void)state;
    const char *const *names = option_infos[OPTION_TO].names;
    for (size_t i = 0; i < launch_target_count; i++)
        assert_string_equal(names[i], launch_targets[i].name);
    assert_null(names[launch_target_count]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_has_a_row_in_every_table),
        cmocka_unit_test(every_value_is_one_of_its_key),
        cmocka_unit_test(every_named_value_has_a_row),
        cmocka_unit_test(a_replacement_is_final),
        cmocka_unit_test(options_name_every_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
