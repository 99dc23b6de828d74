/* The table of pairs against the tables it draws on: every key and value that a row names is one
 * that --set takes, and names find their rows. */
#include "base/layout/key.h"
#include "planner/cli/pair_row.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void assert_setting(const char *key, const char *value)
{
    struct diag_list errors = { 0 };
    struct choices choices = { .primitives = primitives_default() };
    int row = choice_key_find(key);

    if (row < 0)
        fail_msg("%s is no key", key);
    if (choice_parse(&choices, row, value, (struct pos){ 0 }, &errors) != 0)
        fail_msg("%s does not take %s", key, value);
}

static void test_rows_name_what_there_is(void **state)
{
    (void)state;
    for (size_t i = 0; i < pair_row_count; i++) {
        const struct pair_row *row = &pair_rows[i];
        assert_setting(row->key, row->reference);
        assert_setting(row->key, row->other);
        assert_string_not_equal(row->reference, row->other);
        for (int w = 0; w < PAIR_MAX_WITH && row->with_other[w].key; w++)
            assert_setting(row->with_other[w].key, row->with_other[w].value);
        for (int w = 0; w < PAIR_MAX_WITH && row->with_reference[w].key; w++)
            assert_setting(row->with_reference[w].key, row->with_reference[w].value);
        assert_ptr_equal(pair_row_find(row->key, strlen(row->key)), row);
    }
}

static void test_names(void **state)
{
    struct diag_list errors = { 0 };
    const char *value = NULL;

    (void)state;
    const struct pair_row *row = pair_row_of("moe=chunked", &value, &errors);
    assert_non_null(row);
    assert_string_equal(row->key, "moe");
    assert_string_equal(value, "chunked");
    assert_null(pair_row_of("moe=", &value, &errors));
    assert_null(pair_row_of("moe", &value, &errors));
    assert_null(pair_row_of("", &value, &errors));
    assert_int_equal(errors.errors, 3);
}

/* Looser kinds of agreement allow at least what stricter ones do. */
static void test_agreements(void **state)
{
    (void)state;
    for (int i = 1; i < AGREE_COUNT; i++) {
        const struct agreement_info *strict = &agreement_infos[i - 1], *loose = &agreement_infos[i];
        assert_true(loose->loss >= strict->loss && loose->hidden >= strict->hidden);
        assert_true(loose->gradient >= strict->gradient);
    }
    assert_true(agreement_infos[AGREE_EXACT].gradient == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_name_what_there_is),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_agreements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
