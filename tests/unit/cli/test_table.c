/* Tables and paragraphs: alignment, margins, widths, against texts written out. */
#include "planner/report/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void columns_line_up(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    struct table table = { .columns = 3, .left = 1u | 1u << 2 };
    static const char *const cells[] = { "GB", "static", "note",   "ranks 0-31", "1.5",
                                         "",   "rank 9", "100.25", "x" };
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        table_cell(&table, "%s", cells[i]);
    table_print(&table, "memory", out);
    table_done(&table);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "memory  GB          static  note\n"
                              "        ranks 0-31     1.5\n"
                              "        rank 9      100.25  x\n");
    free(text);
}

static void paragraphs_break_between_words(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    text_wrap("why",
              "ep 8   one expert group per domain, which is long enough to need a second line of "
              "text and more",
              7, out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "why     ep 8   one expert group per domain, which is long enough to "
                              "need a second line of text and\n"
                              "               more\n");
    free(text);
}

static void sizes_have_one_unit(void **state)
{
    (void)state;
    assert_string_equal(scale_for(999999999).unit, "MB");
    assert_string_equal(scale_for(1000000000).unit, "GB");
    assert_true(scaled(scale_for(2000000000), 1500000000) == 1.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_line_up),
        cmocka_unit_test(paragraphs_break_between_words),
        cmocka_unit_test(sizes_have_one_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
