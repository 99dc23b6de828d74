/* TOML as a tree; the accepted and refused texts follow the grammar of TOML 1.0. */
#include "base/toml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int read(const char *text, struct tree *tree, struct diag_list *errors)
{
    memset(errors, 0, sizeof *errors);
    return toml_read_text(tree, "t", text, strlen(text), errors);
}

static void values_have_their_kinds(void **state)
{
    (void)state;
    struct tree tree;
    struct diag_list errors;
    const char text[] =
        "# head\na = 4_096\n[b]\n  c = -1.5e3 # end\nd = \"x # \\\"y\\\"\"\n"
        "e = 'C:\\n'\nf = true\n[b.g]\nh = [1, 2,\n 3,]\ni = { j = 1, \"k l\" = 2 }\n"
        "m.n = 0\n";
    assert_int_equal(read(text, &tree, &errors), 0);
    const struct node *b = node_get(tree.root, "b"), *g = node_get(b, "g");
    assert_int_equal(node_get(tree.root, "a")->integer, 4096);
    assert_true(node_get(b, "c")->real == -1500.0);
    assert_string_equal(node_get(b, "d")->text, "x # \"y\"");
    assert_string_equal(node_get(b, "e")->text, "C:\\n");
    assert_true(node_get(b, "f")->boolean);
    assert_int_equal(node_get(g, "h")->count, 3);
    assert_int_equal(node_get(node_get(g, "i"), "k l")->integer, 2);
    assert_int_equal(node_get(node_get(g, "m"), "n")->integer, 0);
    assert_int_equal(node_get(b, "c")->at.line, 4);
    assert_int_equal(node_get(b, "c")->at.column, 7);
    tree_done(&tree);
}

static const struct {
    const char *text, *problem;
} refused[] = {
    { "a", "= is missing" },
    { "a = ", "a value is missing" },
    { "a = 1\na = 2", "given twice" },
    { "a = 1\n[a]", "a value and a table" },
    { "[a", "not closed" },
    { "a = [1 2]", "an array is not closed" },
    { "a = {b = 1", "inline table" },
    { "a = \"b", "a string is not closed" },
    { "a = \"\\u0041\"", "escape" },
    { "a = \"\"\"b\"\"\"", "several lines" },
    { "a = 1979-05-27", "neither" },
    { "a = yes", "neither" },
    { "[[a]]", "array of tables" },
    { "a = 1 b = 2", "more than one" },
    { "= 1", "a key is missing" },
    { "a = 99999999999999999999", "neither" },
    { "a = \"\xff\"", "UTF-8" },
};

static void faults_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct tree tree;
        struct diag_list errors;
        int status = read(refused[i].text, &tree, &errors);
        if (status != -1 || errors.errors != 1 || !strstr(errors.items[0].what, refused[i].problem))
            fail_msg("%s: %d, %s", refused[i].text, status, errors.items[0].what);
        tree_done(&tree);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_have_their_kinds),
        cmocka_unit_test(faults_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
