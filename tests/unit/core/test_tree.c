#include "base/tree.h"

#include "tests/support/golden.h"
#include "tests/support/random.h"
#include "tests/support/same.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 1500 };

static int read_text(struct tree *tree, const char *text, struct diag_list *reterr)
{
    return tree_read_text(tree, "in.yaml", text, strlen(text), reterr);
}

static void test_scalars(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum node_kind kind;
        double number;
    } cases[] = {
        { "~", NODE_NULL, 0 },
        { "null", NODE_NULL, 0 },
        { "Null", NODE_NULL, 0 },
        { "true", NODE_BOOL, 1 },
        { "FALSE", NODE_BOOL, 0 },
        { "yes", NODE_TEXT, 0 },
        { "0", NODE_INT, 0 },
        { "-7", NODE_INT, -7 },
        { "+7", NODE_INT, 7 },
        { "007", NODE_INT, 7 },
        { "0x1F", NODE_INT, 31 },
        { "0o17", NODE_INT, 15 },
        { "1.5", NODE_REAL, 1.5 },
        { "1.", NODE_REAL, 1 },
        { ".5", NODE_REAL, 0.5 },
        { "1e6", NODE_REAL, 1e6 },
        { "-1.5E-3", NODE_REAL, -1.5e-3 },
        { "1e", NODE_TEXT, 0 },
        { "1.2.3", NODE_TEXT, 0 },
        { "80GB", NODE_TEXT, 0 },
        { "0xg", NODE_TEXT, 0 },
        { "1_000", NODE_TEXT, 0 },
        { ".", NODE_TEXT, 0 },
        { "nan", NODE_TEXT, 0 },
        { ".inf", NODE_REAL, (double)INFINITY },
        { "-.INF", NODE_REAL, -(double)INFINITY },
        { "Infinity", NODE_REAL, (double)INFINITY },
        { "-Infinity", NODE_REAL, -(double)INFINITY },
        { "'1'", NODE_TEXT, 0 },
        { "\"true\"", NODE_TEXT, 0 },
        { "''", NODE_TEXT, 0 },
        { "9223372036854775807", NODE_INT, 0x1p63 },
        { "-9223372036854775808", NODE_INT, -0x1p63 },
        { "9223372036854775808.0", NODE_REAL, 0x1p63 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tree tree;
        struct diag_list errors = { 0 };
        print_message("%s\n", cases[i].text);
        assert_int_equal(read_text(&tree, cases[i].text, &errors), 0);
        assert_int_equal(tree.root->kind, cases[i].kind);
        if (cases[i].kind == NODE_BOOL)
            assert_true(tree.root->boolean == (cases[i].number != 0));
        else if (cases[i].kind == NODE_INT || cases[i].kind == NODE_REAL)
            assert_true(tree.root->real == cases[i].number);
        tree_done(&tree);
    }
    struct tree tree;
    struct diag_list errors = { 0 };
    assert_int_equal(read_text(&tree, "[.nan, NaN]", &errors), 0);
    assert_true(isnan(tree.root->child->real) && isnan(tree.root->child->next->real));
    tree_done(&tree);
}

static void assert_at(const struct node *node, int key_line, int key_column, int line, int column)
{
    assert_non_null(node);
    assert_int_equal(node->key_at.line, key_line);
    assert_int_equal(node->key_at.column, key_column);
    assert_int_equal(node->at.line, line);
    assert_int_equal(node->at.column, column);
    assert_string_equal(node->at.file, "in.yaml");
}

static void test_positions_by_hand(void **state)
{
    (void)state;
    struct tree tree;
    struct diag_list errors = { 0 };
    assert_int_equal(read_text(&tree,
                               "# facts\n"
                               "name: tiny\n"
                               "é: 7\n"
                               "shape:\n"
                               "  layers:   12\n"
                               "  pattern: [a, b]\n",
                               &errors),
                     0);
    assert_at(node_get(tree.root, "name"), 2, 1, 2, 7);
    assert_at(node_get(tree.root, "é"), 3, 1, 3, 4);
    const struct node *shape = node_get(tree.root, "shape");
    assert_at(shape, 4, 1, 5, 3);
    assert_at(node_get(shape, "layers"), 5, 3, 5, 13);
    assert_at(node_get(shape, "pattern"), 6, 3, 6, 12);
    assert_at(node_get(shape, "pattern")->child->next, 0, 0, 6, 16);
    tree_done(&tree);
    /* The pair is 12 columns of the file. A byte order mark is none. */
    assert_int_equal(read_text(&tree,
                               "\xef\xbb\xbf{\"\\ud83d\\ude00\": 1,\n \"b\": \"\\uD83D\\uDE00\", "
                               "\"c\": \"\\\\ud83d\", \"d\":\"\\/\"}",
                               &errors),
                     0);
    assert_at(node_get(tree.root, "😀"), 1, 2, 1, 18);
    assert_at(node_get(tree.root, "b"), 2, 2, 2, 7);
    assert_at(node_get(tree.root, "c"), 2, 23, 2, 28);
    assert_string_equal(node_get(tree.root, "b")->text, "😀");
    assert_string_equal(node_get(tree.root, "c")->text, "\\ud83d");
    assert_string_equal(node_get(tree.root, "d")->text, "/");
    tree_done(&tree);
}

/* Where `at` points in a text, counting characters. */
static const char *find_place(const char *text, struct pos at)
{
    for (int line = 1; line < at.line; line++)
        text = strchr(text, '\n') + 1;
    for (int column = 1; column < at.column; text++)
        column += ((unsigned char)text[1] & 0xc0) != 0x80;
    return text;
}

/* jansson, started at the place of a node, must read the node's value there. */
static void check_places(const struct node *node, const char *text, json_t *want)
{
    const size_t flags = JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK;
    json_t *found = json_loads(find_place(text, node->at), flags, NULL);
    assert_true(json_equal(found, want));
    json_decref(found);
    const char *key;
    json_t *value;
    const struct node *child = node->child;
    json_object_foreach(want, key, value)
    {
        found = json_loads(find_place(text, child->key_at), flags, NULL);
        assert_string_equal(json_string_value(found), key);
        json_decref(found);
        check_places(child, text, value);
        child = child->next;
    }
    for (size_t i = 0; i < json_array_size(want); i++, child = child->next)
        check_places(child, text, json_array_get(want, i));
}

/* A second reader of JSON, jansson, agrees on values and on places. */
static void test_against_jansson(void **state)
{
    (void)state;
    uint64_t seed = 24;
    print_message("seed %" PRIu64 "\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        json_t *want = json_pack("[o]", random_json(&seed, 4));
        size_t indent = random_below(&seed, 3) * 2;
        size_t ascii = random_below(&seed, 2) ? JSON_ENSURE_ASCII : 0;
        char *text = json_dumps(want, JSON_INDENT(indent) | ascii | (indent ? 0 : JSON_COMPACT));
        struct tree tree;
        struct diag_list errors = { 0 };
        int status = read_text(&tree, text, &errors);
        if (status != 0)
            diag_list_print(stderr, &errors);
        if (status != 0 || !same_as_json(tree.root, want))
            fail_msg("round %d: %s", round, text);
        check_places(tree.root, text, want);
        tree_done(&tree);
        free(text);
        json_decref(want);
    }
}

/* Whatever bytes come in: an answer or an error, never a crash. (Sanitizers watch this one.) */
static void test_damaged_text(void **state)
{
    (void)state;
    static const char marks[] = "{}[]:,\"'\\\n\t -#&*!|>%@?ud\xff\x80";
    uint64_t seed = 25;
    int accepted = 0;
    print_message("seed %" PRIu64 "\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        json_t *document = random_json(&seed, 4);
        char *text = json_dumps(document, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
        size_t bytes = strlen(text);
        for (int i = 0; i < 3; i++)
            text[random_below(&seed, bytes)] = marks[random_below(&seed, sizeof marks)];
        struct tree tree;
        struct diag_list errors = { 0 };
        int status = tree_read_text(&tree, "in.yaml", text, bytes, &errors);
        assert_int_equal(status, errors.errors > 0 ? -1 : 0);
        assert_true((tree.root != NULL) == (status == 0));
        accepted += status == 0;
        tree_done(&tree);
        free(text);
        json_decref(document);
    }
    assert_in_range(accepted, 1, ROUNDS - 1);
}

static void append_errors(FILE *out, const char *title, const char *text, size_t bytes)
{
    struct tree tree;
    struct diag_list errors = { 0 };
    (void)fprintf(out, "# %s\n", title);
    assert_int_equal(tree_read_text(&tree, "in.yaml", text, bytes, &errors), -1);
    assert_null(tree.root);
    diag_list_print(out, &errors);
    tree_done(&tree);
}

static void test_error_texts(void **state)
{
    (void)state;
    static const struct {
        const char *title, *text;
    } cases[] = {
        { "empty", "" },
        { "only a comment", "# nothing\n" },
        { "duplicate keys", "a: 1\nb: 2\na: 3\na: 4\n" },
        { "duplicate keys on one line", "{\"a\": 1, \"a\": 2}" },
        { "anchor and alias", "a: &x 1\nb: *x\n" },
        { "tag", "a: !!int 1\n" },
        { "two documents", "a: 1\n---\nb: 2\n" },
        { "whole number too large", "a: 9223372036854775808\nb: -99999999999999999999\n" },
        { "real too large", "a: 1e400\n" },
        { "not closed", "{\"a\": [1, 2}" },
        { "string not closed", "a: \"b\n" },
        { "map in a scalar's place", "a: b: c\n" },
        { "tab as indent", "a:\n\tb: 1\n" },
        { "list as key", "? [a]\n: 1\n" },
        { "no key", "a: 1\n: 2\n" },
        { "not UTF-8", "a: 1\nb: é\xff\n" },
        { "not UTF-8 behind a surrogate pair", "{\"a\": \"\\ud83d\\ude00\xff\"}" },
        { "half a surrogate pair", "{\"a\": \"\\ud83d\"}" },
        { "error behind surrogate pairs", "{\"a\": \"\\ud83d\\ude00\\ud83d\\ude00\", @}" },
        { "NUL in text", "a: \"b\\0c\"\n" },
        { "control character in a key", "\"\\e[31m\": 1\n\"\\e[31m\": 2\n" },
    };
    FILE *out = golden_begin();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        append_errors(out, cases[i].title, cases[i].text, strlen(cases[i].text));
    append_errors(out, "NUL in the file", "a: 1\n\0b: 2\n", 11);
    append_errors(out, "NUL in a key", "\"a\\0\": 1\n", 9);
    assert_golden_end("malformed");
}

/* `depth` lists around a number. Returns the reader's status. */
static int read_nested(size_t depth, struct diag_list *reterr)
{
    char *text = malloc(2 * depth + 1);
    memset(text, '[', depth);
    text[depth] = '1';
    memset(text + depth + 1, ']', depth);
    struct tree tree;
    int ret = tree_read_text(&tree, "in.yaml", text, 2 * depth + 1, reterr);
    tree_done(&tree);
    free(text);
    return ret;
}

/* A list of `count` numbers (and the list itself: count + 1 values). */
static int read_wide(size_t count, struct diag_list *reterr)
{
    char *text = malloc(2 * count + 2);
    for (size_t i = 0; i < count; i++) {
        text[2 * i] = i ? ',' : '[';
        text[2 * i + 1] = '1';
    }
    text[2 * count] = ']';
    struct tree tree;
    int ret = tree_read_text(&tree, "in.yaml", text, 2 * count + 1, reterr);
    tree_done(&tree);
    free(text);
    return ret;
}

static int read_blank(size_t bytes, struct diag_list *reterr)
{
    char *text = malloc(bytes);
    memset(text, '\n', bytes);
    text[0] = '1';
    struct tree tree;
    int ret = tree_read_text(&tree, "in.yaml", text, bytes, reterr);
    tree_done(&tree);
    free(text);
    return ret;
}

static void test_limits(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    assert_int_equal(read_nested(64, &errors), 0);
    assert_int_equal(read_wide(999999, &errors), 0);
    assert_int_equal(read_blank(16777216, &errors), 0);
    assert_int_equal(errors.count, 0);
    assert_int_equal(read_nested(65, &errors), -1);
    assert_int_equal(errors.items[0].column, 65);
    assert_int_equal(read_nested(500000, &errors), -1);
    assert_int_equal(read_wide(1000000, &errors), -1);
    assert_int_equal(read_blank(16777217, &errors), -1);
    assert_int_equal(errors.errors, 4);
    assert_golden_diags("beyond limits", &errors);
}

static void test_many_keys(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    for (int i = 0; i < 100000; i++)
        (void)fprintf(out, "key%d: %d\n", i, i);
    (void)fprintf(out, "key5: 0\n");
    assert_int_equal(fclose(out), 0);
    struct tree tree;
    struct diag_list errors = { 0 };
    assert_int_equal(tree_read_text(&tree, "in.yaml", text, bytes, &errors), -1);
    assert_int_equal(errors.errors, 1);
    assert_int_equal(errors.items[0].line, 100001);
    assert_golden_diags("a key twice among 100,000", &errors);
    tree_done(&tree);
    free(text);
}

static const char typed[] = "layers: abc\n"
                            "count: 600\n"
                            "batch: 1e6\n"
                            "half: 0.5\n"
                            "list: [1]\n"
                            "map: {a: 1}\n"
                            "flag: true\n"
                            "none: null\n"
                            "text: hello\n"
                            "quoted: \"12\"\n"
                            "nan: .nan\n"
                            "long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaéaaaa\n";

static void test_typed_reads(void **state)
{
    (void)state;
    struct tree tree;
    struct diag_list errors = { 0 };
    assert_int_equal(read_text(&tree, typed, &errors), 0);
    const struct node *map = tree.root;
    int64_t integer = 7;
    double real = 7;
    bool flag = false;
    const char *text = "";
    const struct node *node = NULL;
    assert_int_equal(node_int(map, "count", 1, 600, &integer, &errors), 1);
    assert_int_equal(integer, 600);
    assert_int_equal(node_int(map, "count", 600, 700, &integer, &errors), 1);
    assert_int_equal(node_real(map, "count", 0, 1000, &real, &errors), 1);
    assert_true(real == 600);
    assert_int_equal(node_real(map, "half", 0, 1, &real, &errors), 1);
    assert_true(real == 0.5);
    assert_int_equal(node_bool(map, "flag", &flag, &errors), 1);
    assert_true(flag);
    assert_int_equal(node_text(map, "quoted", &text, &errors), 1);
    assert_string_equal(text, "12");
    assert_int_equal(node_map(map, "map", &node, &errors), 1);
    assert_int_equal(node->count, 1);
    assert_int_equal(node_list(map, "list", &node, &errors), 1);
    assert_int_equal(node->kind, NODE_LIST);
    /* Absent and null leave everything as it was. */
    integer = 7;
    assert_int_equal(node_int(map, "absent", 1, 2, &integer, &errors), 0);
    assert_int_equal(node_int(map, "none", 1, 2, &integer, &errors), 0);
    assert_int_equal(node_int(NULL, "count", 1, 2, &integer, &errors), 0);
    assert_int_equal(node_real(map, "absent", 1, 2, &real, &errors), 0);
    assert_int_equal(node_text(map, "none", &text, &errors), 0);
    assert_int_equal(integer, 7);
    assert_string_equal(text, "12");
    assert_null(node_get(map, "none"));
    assert_null(node_get(node_get(map, "count"), "count"));
    assert_int_equal(errors.count, 0);
    tree_done(&tree);
}

static void test_typed_errors(void **state)
{
    (void)state;
    struct tree tree;
    struct diag_list errors = { 0 };
    assert_int_equal(read_text(&tree, typed, &errors), 0);
    const struct node *map = tree.root;
    int64_t integer = 7;
    double real = 7;
    bool flag = true;
    const char *text = "kept";
    const struct node *node = NULL;
    assert_int_equal(node_int(map, "layers", 1, 512, &integer, &errors), -1);
    assert_int_equal(node_int(map, "count", 1, 512, &integer, &errors), -1);
    assert_int_equal(node_int(map, "count", 601, INT64_MAX, &integer, &errors), -1);
    assert_int_equal(node_int(map, "count", INT64_MIN, 599, &integer, &errors), -1);
    assert_int_equal(node_int(map, "batch", 1, INT64_MAX, &integer, &errors), -1);
    assert_int_equal(node_int(map, "half", INT64_MIN, INT64_MAX, &integer, &errors), -1);
    assert_int_equal(node_int(map, "list", 1, 2, &integer, &errors), -1);
    assert_int_equal(node_int(map, "flag", 1, 2, &integer, &errors), -1);
    assert_int_equal(node_int(map, "quoted", 1, 20, &integer, &errors), -1);
    assert_int_equal(node_real(map, "count", 0, 1, &real, &errors), -1);
    assert_int_equal(node_real(map, "nan", 0, (double)INFINITY, &real, &errors), -1);
    assert_int_equal(node_real(map, "text", -(double)INFINITY, 0, &real, &errors), -1);
    assert_int_equal(node_real(map, "map", -(double)INFINITY, (double)INFINITY, &real, &errors),
                     -1);
    assert_int_equal(node_bool(map, "count", &flag, &errors), -1);
    assert_int_equal(node_text(map, "count", &text, &errors), -1);
    assert_int_equal(node_text(map, "list", &text, &errors), -1);
    assert_int_equal(node_map(map, "list", &node, &errors), -1);
    assert_int_equal(node_list(map, "text", &node, &errors), -1);
    assert_int_equal(node_list(map, "long", &node, &errors), -1);
    assert_int_equal(integer, 7);
    assert_true(real == 7 && flag && node == NULL);
    assert_string_equal(text, "kept");
    static const char *const known[] = { "layers", "count", "batch", "half", "list", "map",
                                         "flag",   "none",  "text",  "nan",  "lonk" };
    assert_int_equal(node_check_keys(map, known, sizeof known / sizeof *known, &errors), -1);
    assert_int_equal(node_check_keys(node_get(map, "map"), known, 2, &errors), -1);
    assert_golden_diags("wrong types", &errors);
    tree_done(&tree);
}

/* What JSON allows around keys and brackets and YAML does not; places by counting in the text. */
static void test_json_blanks(void **state)
{
    (void)state;
    static const char text[] =
        " \t\r\n\t{\"a\"\n: 1,\n  \"b\" \t\r\n\t: [2],\"c\"\r\n:\n\"x\\n: y\"}\n\t\n\t";
    struct diag_list list = { 0 };
    struct tree tree;
    if (tree_read_text(&tree, "in.yaml", text, sizeof text - 1, &list) != 0) {
        diag_list_print(stderr, &list);
        fail();
    }
    assert_int_equal(tree.root->count, 3);
    const struct node *a = node_get(tree.root, "a"), *b = node_get(tree.root, "b");
    const struct node *c = node_get(tree.root, "c");
    assert_int_equal(a->integer, 1);
    assert_at(a, 2, 3, 3, 3);
    assert_int_equal(b->child->integer, 2);
    assert_at(b, 4, 3, 5, 4);
    assert_string_equal(c->text, "x\n: y");
    assert_at(c, 5, 8, 7, 1);
    tree_done(&tree);
}

/* A key of 1,022 characters and its quotes are what YAML takes; one more is told by its length. */
static void test_long_json_keys(void **state)
{
    (void)state;
    struct diag_list list = { 0 };
    for (int length = 1021; length <= 1024; length++) {
        char text[1100];
        struct tree tree;
        int bytes = snprintf(text, sizeof text, "{\"x\": 1,\n \"%0*d\": 1}", length, 0);
        int status = tree_read_text(&tree, "j", text, (size_t)bytes, &list);
        assert_int_equal(status, length <= 1022 ? 0 : -1);
        if (status != 0) {
            const struct diag *newest = &list.items[list.count - 1];
            assert_int_equal(newest->line, 2);
            assert_int_equal(newest->column, 2);
        }
        tree_done(&tree);
    }
    assert_int_equal(list.count, 2);
    assert_golden_diags("long keys of JSON", &list);
}

/* The same in block style, where libyaml only knows that a colon came too late. */
static void test_long_yaml_keys(void **state)
{
    (void)state;
    struct diag_list list = { 0 };
    for (int quoted = 0; quoted < 2; quoted++) {
        char text[1300];
        struct tree tree;
        int bytes = snprintf(text, sizeof text, "x: 1\n%s%0*d%s: 1\n", quoted ? "\"" : "k", 1100, 0,
                             quoted ? "\"" : "");
        assert_int_equal(tree_read_text(&tree, "y", text, (size_t)bytes, &list), -1);
        tree_done(&tree);
    }
    assert_golden_diags("long keys of YAML", &list);
}

static void test_unreadable_files(void **state)
{
    (void)state;
    struct tree tree;
    struct diag_list errors = { 0 };
    assert_int_equal(tree_read_file(&tree, "/does/not/exist.yaml", &errors), -1);
    tree_done(&tree);
    assert_int_equal(tree_read_file(&tree, "/", &errors), -1);
    tree_done(&tree);
    assert_int_equal(tree_read_file(&tree, "/dev/null", &errors), -1);
    tree_done(&tree);
    assert_int_equal(tree_read_file(&tree, "/dev/zero", &errors), -1);
    tree_done(&tree);
    assert_golden_diags("unreadable files", &errors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),         cmocka_unit_test(test_positions_by_hand),
        cmocka_unit_test(test_against_jansson), cmocka_unit_test(test_damaged_text),
        cmocka_unit_test(test_error_texts),     cmocka_unit_test(test_limits),
        cmocka_unit_test(test_many_keys),       cmocka_unit_test(test_typed_reads),
        cmocka_unit_test(test_typed_errors),    cmocka_unit_test(test_unreadable_files),
        cmocka_unit_test(test_json_blanks),     cmocka_unit_test(test_long_json_keys),
        cmocka_unit_test(test_long_yaml_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
