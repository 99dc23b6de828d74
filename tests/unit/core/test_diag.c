#include "base/diag.h"
#include "base/item.h"

#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_forms(void **state)
{
    (void)state;
    struct diag_list list = { 0 };
    char long_file[400];
    char long_text[600];
    memset(long_file, 'd', sizeof long_file - 1);
    long_file[sizeof long_file - 1] = '\0';
    memset(long_text, 'w', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    struct pos place = { "models/a.yaml", 3, 7 };
    assert_int_equal(diag_error(&list, place, "'layers' is %d, expected %s", 0, "more"), -1);
    assert_int_equal(diag_hint(&list, "use %d", 1), -1);
    diag_error(&list, (struct pos){ "models/a.yaml", 0, 0 }, "the file is empty");
    diag_error(&list, (struct pos){ "models/a.yaml", 4, 0 }, "a line without a column");
    diag_error(&list, (struct pos){ 0 }, "no hardware named 'x'");
    diag_hint(&list, "first");
    diag_hint(&list, "the second hint replaces the first");
    diag_warning(&list, place, "unusual");
    diag_error(&list, (struct pos){ long_file, 1, 1 }, "%s", long_text);
    diag_error(&list, place, "control characters: %s", "a\x1b[31mb\nc\td");
    assert_int_equal(list.count, 7);
    assert_int_equal(list.errors, 6);
    assert_golden_diags("forms", &list);
}

/* Printed once and alone: every other fault may follow from it. */
static void test_no_memory(void **state)
{
    (void)state;
    struct diag_list list = { 0 }, part = { 0 };
    diag_error(&list, (struct pos){ "plan.json", 3, 7 }, "the file was edited");
    assert_int_equal(diag_no_memory(&part), -1);
    assert_int_equal(diag_no_memory(&part), -1);
    assert_int_equal(part.errors, 1);
    diag_append(&list, &part);
    assert_true(list.no_memory);
    diag_error(&list, (struct pos){ 0 }, "no model named 'x'");
    diag_hint(&list, "did you mean 'x'?");
    assert_golden_diags("no memory", &list);
}

static void test_no_cut_character(void **state)
{
    (void)state;
    struct diag_list list = { 0 };
    /* 2-byte characters behind an odd number of letters: the cut falls inside one of them. */
    for (int shift = 0; shift < 2; shift++) {
        char text[900] = "x";
        for (size_t i = (size_t)shift; i + 2 < sizeof text; i += 2) {
            text[i] = '\xc3';
            text[i + 1] = '\xa9';
        }
        diag_error(&list, (struct pos){ 0 }, "%s", text);
        const char *what = list.items[shift].what;
        size_t length = strlen(what);
        assert_true(length < sizeof list.items[0].what);
        assert_string_equal(what + length - 3, "...");
        assert_int_equal((unsigned char)what[length - 4], 0xa9);
    }
}

static void test_overflow(void **state)
{
    (void)state;
    struct diag_list list = { 0 };
    for (int i = 0; i < DIAG_MAX + 5; i++) {
        diag_error(&list, (struct pos){ 0 }, "error %d", i);
        diag_hint(&list, "hint %d", i);
    }
    assert_int_equal(list.count, DIAG_MAX);
    assert_int_equal(list.errors, DIAG_MAX + 5);
    assert_int_equal(list.dropped, 5);
    /* The hint of a dropped entry does not land on the last one kept. */
    assert_string_equal(list.items[DIAG_MAX - 1].hint, "hint 31");
    assert_golden_diags("more than a list holds", &list);
}

static void test_append(void **state)
{
    (void)state;
    struct diag_list list = { 0 };
    struct diag_list more = { 0 };
    assert_int_equal(diag_hint(&list, "nothing to hint at"), -1);
    for (int i = 0; i < 20; i++) {
        diag_error(&list, (struct pos){ 0 }, "old %d", i);
        diag_error(&more, (struct pos){ 0 }, "new %d", i);
    }
    diag_append(&list, &more);
    assert_int_equal(list.count, DIAG_MAX);
    assert_int_equal(list.errors, 40);
    assert_int_equal(list.dropped, 40 - DIAG_MAX);
    assert_string_equal(list.items[19].what, "old 19");
    assert_string_equal(list.items[20].what, "new 0");
}

/* The names and categories that the interface promises, in its order. */
static void test_items(void **state)
{
    (void)state;
    static const char *const promised[] = {
        "weights static",
        "master static",
        "moments static",
        "gradients static",
        "reference_weights static",
        "checkpoints dynamic",
        "layer_saved dynamic",
        "layer_working dynamic",
        "gathered_weights dynamic",
        "gathered_gradients dynamic",
        "kv_gather dynamic",
        "dispatch_send dynamic",
        "dispatch_recv dynamic",
        "expert_working dynamic",
        "pipeline_buffers dynamic",
        "inputs dynamic",
        "logits logits",
        "loss_working logits",
        "communicators communication",
        "context runtime",
        "modules runtime",
        "workspace runtime",
        "slack runtime",
    };
    int outside_arena = 0;
    assert_int_equal(sizeof promised / sizeof *promised, ITEM_COUNT);
    for (int i = 0; i < ITEM_COUNT; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "%s %s", item_infos[i].name,
                       category_names[item_infos[i].category]);
        assert_string_equal(text, promised[i]);
        assert_int_equal(item_find(item_infos[i].name), i);
        assert_true(strlen(item_infos[i].meaning) > 20);
        outside_arena += !item_in_arena((enum item)i);
    }
    assert_int_equal(outside_arena, 4);
    assert_false(item_in_arena(ITEM_COMMUNICATORS));
    assert_true(item_in_arena(ITEM_WORKSPACE));
    assert_int_equal(item_find("weight"), ITEM_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),    cmocka_unit_test(test_no_cut_character),
        cmocka_unit_test(test_overflow), cmocka_unit_test(test_append),
        cmocka_unit_test(test_items),    cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
