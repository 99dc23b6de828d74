/* Building JSON: forms of values, what members and lists do, and that of a document built while
 * any one allocation fails, jansson's or our own, either all is there or nothing. */
#include "base/json.h"
#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The linker sends base's calls here (--wrap), jansson's come by json_set_alloc_funcs. */
void *__real_malloc(size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

static long allocations, failing; /* the one that fails, from 1; 0: none */

static bool fails(void)
{
    return ++allocations == failing;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    return fails() ? NULL : __real_realloc(memory, bytes);
}

/* Renders, releases, and compares. */
static void expect(struct json *json, const char *want)
{
    char *text = json_render(json, JSON_FORM_BARE);
    json_free(json);
    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
}

static void values_have_one_form(void **state)
{
    (void)state;
    struct json *map = json_document("rankfit.test/1");
    json_put_text(map, "text", "a \"b\"");
    json_put_text(map, "no_text", NULL);
    json_put_int(map, "int", INT64_MIN);
    json_put_u64(map, "u64", INT64_MAX);
    json_put_u64(map, "beyond", (uint64_t)INT64_MAX + 1);
    json_put_u64(map, "saturated", UINT64_MAX);
    json_put_number(map, "number", 0.5);
    json_put_number(map, "nan", NAN);
    json_put_number(map, "infinity", -INFINITY);
    json_put_bool(map, "bool", true);
    json_put_null(map, "null");
    json_put(map, "nothing", json_nothing());
    expect(map, "{\"schema\":\"rankfit.test/1\",\"text\":\"a \\\"b\\\"\",\"no_text\":null,"
                "\"int\":-9223372036854775808,\"u64\":9223372036854775807,"
                "\"beyond\":9223372036854775807,\"saturated\":9223372036854775807,"
                "\"number\":0.5,\"nan\":null,\"infinity\":null,\"bool\":true,\"null\":null,"
                "\"nothing\":null}");
    struct json *list = json_list();
    json_append_text(list, "é");
    json_append_int(list, -1);
    json_append_u64(list, UINT64_MAX);
    json_append_number(list, NAN);
    json_append(list, json_list());
    expect(list, "[\"é\",-1,9223372036854775807,null,[]]");
}

static void members_keep_their_place(void **state)
{
    (void)state;
    struct json *map = json_map(), *more = json_map();
    json_put_int(map, "z", 1);
    json_put_int(map, "a", 2);
    json_put_int(map, "m", 3);
    json_put_int(map, "a", 4);
    json_drop(map, "m");
    json_put_int(more, "z", 9);
    json_put_int(more, "b", 5);
    json_merge(map, more);
    assert_true(json_has(map, "z"));
    assert_false(json_has(map, "m"));
    char *sorted = json_render(map, JSON_FORM_SORTED);
    assert_string_equal(sorted, "{\"a\":4,\"b\":5,\"z\":1}");
    free(sorted);
    expect(map, "{\"z\":1,\"a\":4,\"b\":5}");
}

/* Well-formed as Unicode's table 3-7 has it; the others as U+FFFD, byte for byte. */
static void text_that_is_no_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "\x7f\xc2\x80\xdf\xbf", "\x7f\xc2\x80\xdf\xbf" },
        { "\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80", "\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80" },
        { "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf" },
        { "a\x80z", "a\xef\xbf\xbdz" },                             /* no first byte */
        { "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd" },                 /* overlong */
        { "\xc1\xbf", "\xef\xbf\xbd\xef\xbf\xbd" },                 /* overlong */
        { "\xe0\x9f\xbf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* overlong */
        { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* a surrogate */
        { "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* > 10FFFF */
        { "\xf0\x8f\xbf\xbf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
        { "\xf5", "\xef\xbf\xbd" },
        { "ab\xc3", "ab\xef\xbf\xbd" }, /* cut */
        { "\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd" },
        { "\xe2\x82z", "\xef\xbf\xbd\xef\xbf\xbdz" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct json *list = json_list();
        json_append_text(list, rows[i].text);
        const json_t *text = json_array_get(json_view(list), 0);
        assert_string_equal(json_string_value(text), rows[i].want);
        assert_int_equal(text_is_utf8(rows[i].text), strcmp(rows[i].text, rows[i].want) == 0);
        json_free(list);
    }
    assert_true(text_is_utf8(""));
}

static void forms_of_a_document(void **state)
{
    (void)state;
    struct json *map = json_map();
    json_put_number(map, "real", 0.1 + 0.2);
    json_put(map, "list", json_list());
    char *file = json_render(map, JSON_FORM_FILE), *shown = json_render(map, JSON_FORM_SHOWN);
    assert_string_equal(file, "{\n  \"real\": 0.30000000000000004,\n  \"list\": []\n}");
    assert_string_equal(shown, "{\n  \"real\": 0.3,\n  \"list\": []\n}");
    free(file);
    free(shown);
    json_free(map);
    expect(json_nothing(), "null");
}

/* What has failed takes everything and stays failed. */
static void failure_climbs(void **state)
{
    (void)state;
    struct json *map = json_map(), *list = json_list();
    json_append(list, json_of(NULL));
    json_append_int(list, 1);
    json_append(list, json_map());
    assert_null(json_view(list));
    json_put(map, "list", list);
    json_put_int(map, "int", 1);
    json_put(map, "map", json_map());
    json_merge(map, json_map());
    json_drop(map, "int");
    assert_false(json_has(map, "int"));
    assert_null(json_view(map));
    assert_null(json_render(map, JSON_FORM_BARE));
    json_free(map);
    struct json *whole = json_map();
    json_merge(whole, NULL);
    assert_null(json_view(whole));
    json_free(whole);
    json_put_int(NULL, "int", 1);
    json_append_text(NULL, "text");
    json_free(NULL);
}

/* Uses every kind of call, with members enough for jansson's tables to grow. */
static struct json *build(void)
{
    struct json *ret = json_document("rankfit.test/1"), *list = json_list(), *more = json_map();
    for (int i = 0; i < 20; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "member %d", i);
        json_put_text(ret, key, i % 2 ? "plain" : "cut \xc3");
        json_put_u64(more, key + 3, (uint64_t)i);
        json_append_number(list, 0.5 * i);
        json_append(list, json_map());
    }
    json_append_int(list, 1);
    json_append_u64(list, 1);
    json_append_text(list, "text");
    json_put(ret, "list", list);
    json_merge(ret, more);
    json_put_int(ret, "int", 1);
    json_put_number(ret, "number", 0.5);
    json_put_bool(ret, "bool", true);
    json_put_null(ret, "null");
    json_put(ret, "nothing", json_nothing());
    return ret;
}

static char *built_text(enum json_form form)
{
    struct json *json = build();
    char *ret = json_render(json, form);
    json_free(json);
    return ret;
}

static void each_allocation_fails_in_turn(void **state)
{
    (void)state;
    json_set_alloc_funcs(__wrap_malloc, free);
    for (int form = JSON_FORM_FILE; form <= JSON_FORM_SORTED; form++) {
        failing = allocations = 0;
        char *want = built_text((enum json_form)form);
        long count = allocations, whole = 0;
        assert_non_null(want);
        assert_true(count > 200);
        for (long nth = 1; nth <= count; nth++) {
            allocations = 0;
            failing = nth;
            char *text = built_text((enum json_form)form);
            if (text)
                assert_string_equal(text, want);
            whole += text != NULL;
            free(text);
        }
        /* A list that cannot grow where it need not yet is whole. */
        assert_true(whole < count / 10);
        free(want);
    }
    failing = 0;
    json_set_alloc_funcs(malloc, free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_have_one_form), cmocka_unit_test(members_keep_their_place),
        cmocka_unit_test(text_that_is_no_utf8), cmocka_unit_test(forms_of_a_document),
        cmocka_unit_test(failure_climbs),       cmocka_unit_test(each_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
