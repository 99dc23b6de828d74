#include "base/file.h"
#include "base/tree.h"

#include "tests/support/directory.h"
#include "tests/support/golden.h"
#include "tests/support/random.h"
#include "tests/support/same.h"
#include "tests/support/text.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 1500 };

static int enter(void **state)
{
    (void)umask(022);
    (void)unsetenv("RANKFIT_DATA");
    return directory_enter(state);
}

static void put(const char *path, const char *text)
{
    directory_put(path, text, strlen(text));
}

static void assert_holds(const char *path, const char *want)
{
    char *text = text_of_file(path);
    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
}

static mode_t mode_of(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_mode & 0777;
}

static void test_write(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    assert_int_equal(file_write_whole("new.txt", "hello\n", 6, &errors), 0);
    assert_holds("new.txt", "hello\n");
    assert_int_equal(mode_of("new.txt"), 0644);
    assert_int_equal(chmod("new.txt", 0600), 0);
    assert_int_equal(file_write_whole("new.txt", "", 0, &errors), 0);
    assert_holds("new.txt", "");
    assert_int_equal(mode_of("new.txt"), 0600);
    /* A link keeps pointing at the file that gets the new text. */
    assert_int_equal(symlink("new.txt", "link.txt"), 0);
    assert_int_equal(file_write_whole("link.txt", "through", 7, &errors), 0);
    struct stat status;
    assert_int_equal(lstat("link.txt", &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_holds("new.txt", "through");
    assert_int_equal(file_write_whole("/dev/null", "x", 1, &errors), 0);
    assert_int_equal(directory_count("."), 2);
    assert_int_equal(errors.count, 0);
}

static void test_write_failures(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    assert_int_equal(mkdir("directory", 0755), 0);
    put("old.txt", "old");
    assert_int_equal(file_write_whole("directory", "x", 1, &errors), -1);
    assert_int_equal(file_write_whole("missing/new.txt", "x", 1, &errors), -1);
    assert_int_equal(file_write_whole("old.txt/new.txt", "x", 1, &errors), -1);
    assert_int_equal(file_write_whole("/dev/full", "x", 1, &errors), -1);
    assert_int_equal(file_write_whole("", "x", 1, &errors), -1);
    assert_golden_diags("cannot be written", &errors);
    assert_int_equal(directory_count("."), 2);
    assert_int_equal(directory_count("directory"), 0);
}

/* A file size limit stands for a disk that fills up half way. */
static void test_write_cut_short(void **state)
{
    (void)state;
    static char large[100000];
    struct diag_list errors = { 0 };
    struct rlimit before;
    put("old.txt", "old");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    struct rlimit limit = { 4096, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int existing = file_write_whole("old.txt", large, sizeof large, &errors);
    int fresh = file_write_whole("new.txt", large, sizeof large, &errors);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(existing, -1);
    assert_int_equal(fresh, -1);
    assert_golden_diags("too large for the limit", &errors);
    assert_holds("old.txt", "old");
    assert_int_equal(directory_count("."), 1);
}

static int write_document(const char *path, json_t *document, struct diag_list *reterr)
{
    struct json *json = json_of(json_incref(document));
    int ret = file_write_document(path, json, reterr);
    json_free(json);
    return ret;
}

static void test_document_forms(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    json_t *document = json_pack("{s:i, s:{s:f, s:[]}, s:[i,i], s:[{s:s, s:b}, [s,n]], s:s, s:{}}",
                                 "z", 1, "a", "real", 2.0, "none", "list", 3, 4, "deep", "name",
                                 "x: y", "on", 1, "1", "text", "plain words", "empty");
    assert_non_null(document);
    assert_int_equal(write_document("a.yaml", document, &errors), 0);
    assert_int_equal(write_document("a.json", document, &errors), 0);
    assert_int_equal(errors.count, 0);
    assert_holds("a.yaml", "z: 1\n"
                           "a:\n"
                           "  real: 2.0\n"
                           "  none: []\n"
                           "list:\n"
                           "  - 3\n"
                           "  - 4\n"
                           "deep:\n"
                           "  - name: \"x: y\"\n"
                           "    \"on\": true\n"
                           "  - - \"1\"\n"
                           "    - null\n"
                           "text: plain words\n"
                           "empty: {}\n");
    assert_holds("a.json", "{\n"
                           "  \"z\": 1,\n"
                           "  \"a\": {\n"
                           "    \"real\": 2.0,\n"
                           "    \"none\": []\n"
                           "  },\n"
                           "  \"list\": [\n"
                           "    3,\n"
                           "    4\n"
                           "  ],\n"
                           "  \"deep\": [\n"
                           "    {\n"
                           "      \"name\": \"x: y\",\n"
                           "      \"on\": true\n"
                           "    },\n"
                           "    [\n"
                           "      \"1\",\n"
                           "      null\n"
                           "    ]\n"
                           "  ],\n"
                           "  \"text\": \"plain words\",\n"
                           "  \"empty\": {}\n"
                           "}\n");
    json_decref(document);
}

/* Neither a new file nor a change to an old one. */
static void test_failed_documents(void **state)
{
    (void)state;
    struct json *document = json_map();
    json_put_int(document, "right", 1);
    json_put(document, "wrong", json_of(NULL));
    assert_int_equal(file_write_whole("old.json", "old", 3, &(struct diag_list){ 0 }), 0);
    static const char *const paths[] = { "new.json", "new.yaml", "old.json" };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct diag_list errors = { 0 };
        assert_int_equal(file_write_document(paths[i], document, &errors), -1);
        assert_true(errors.no_memory);
        assert_int_equal(errors.count, 0);
    }
    assert_holds("old.json", "old");
    assert_int_equal(directory_count("."), 1);
    json_free(document);
}

static void assert_renders(json_t *document, const char *want)
{
    char *text = file_render_yaml(document);
    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
    json_decref(document);
}

static void test_rendered_scalars(void **state)
{
    (void)state;
    assert_renders(json_real(0.1), "0.1\n");
    assert_renders(json_real(1e22), "1.0e+22\n");
    assert_renders(json_real(-0.0), "-0.0\n");
    /* 1/3 needs 16 digits, 0.1 + 0.2 all 17. */
    assert_renders(json_real(1.0 / 3), "0.3333333333333333\n");
    assert_renders(json_real(0.1 + 0.2), "0.30000000000000004\n");
    assert_renders(json_integer(INT64_MIN), "-9223372036854775808\n");
    assert_renders(json_string(""), "\"\"\n");
    assert_renders(json_string("128K"), "128K\n");
    assert_renders(json_string("qwen3.5-35b-a3b"), "qwen3.5-35b-a3b\n");
    assert_renders(json_string("0-7,16-23"), "0-7,16-23\n");
    assert_renders(json_string("80:4"), "\"80:4\"\n");
    assert_renders(json_string("1e6"), "\"1e6\"\n");
    assert_renders(json_string("Yes"), "\"Yes\"\n");
    assert_renders(json_string("a\tb\nc\x01\\\"é"), "\"a\\tb\\nc\\u0001\\\\\\\"é\"\n");
    assert_renders(json_string("\ufeff\u2028"), "\"\\ufeff\\u2028\"\n");
    assert_renders(json_object(), "{}\n");
    assert_renders(json_array(), "[]\n");
}

static void read_back(const char *path, json_t *want, int round)
{
    struct diag_list errors = { 0 };
    struct tree tree;
    int status = write_document(path, want, &errors);
    status = status == 0 ? tree_read_file(&tree, path, &errors) : status;
    if (status != 0)
        diag_list_print(stderr, &errors);
    if (status != 0 || !same_as_json(tree.root, want)) {
        char *text = text_of_file(path);
        fail_msg("round %d: %s", round, text);
    }
    tree_done(&tree);
}

static void test_read_back(void **state)
{
    (void)state;
    uint64_t seed = 26;
    print_message("seed %" PRIu64 "\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        json_t *want = random_json(&seed, 5);
        char *text = file_render_yaml(want);
        struct tree tree;
        struct diag_list errors = { 0 };
        int status = tree_read_text(&tree, "in.yaml", text, strlen(text), &errors);
        if (status != 0)
            diag_list_print(stderr, &errors);
        if (status != 0 || !same_as_json(tree.root, want))
            fail_msg("round %d:\n%s", round, text);
        tree_done(&tree);
        if (round % 50 == 0 && (json_is_object(want) || json_is_array(want))) {
            read_back("back.yml", want, round);
            read_back("back.json", want, round);
        }
        free(text);
        json_decref(want);
    }
}

/* Escaped, the key takes 2,400 characters: more than a reader looks through for a plain key's
 * colon.
 */
static void test_long_keys(void **state)
{
    (void)state;
    char key[401];
    struct diag_list errors = { 0 };
    struct tree tree;
    memset(key, 0x7f, sizeof key - 1);
    key[sizeof key - 1] = '\0';
    json_t *want = json_pack("[{s:i, s:s}, {s:{s:[i, i]}}]", key, 1, "after", "it", key, key, 2, 3);
    char *text = file_render_yaml(want);
    assert_non_null(text);
    assert_int_equal(tree_read_text(&tree, "in.yaml", text, strlen(text), &errors), 0);
    assert_true(same_as_json(tree.root, want));
    tree_done(&tree);
    free(text);
    json_decref(want);
}

static void make_data(void)
{
    assert_int_equal(mkdir("data", 0755), 0);
    assert_int_equal(mkdir("data/hardware", 0755), 0);
    assert_int_equal(mkdir("data/models", 0755), 0);
    put("data/hardware/test-gpu-two.yaml", "b: 1\n");
    put("data/hardware/test-gpu-one.yaml", "a: 1\n");
    put("data/hardware/test-notes.txt", "");
    put("data/hardware/.test-hidden.yaml", "");
    put("data/models/test-model.yaml", "");
    put("given.yaml", "");
    assert_int_equal(mkdir("test-gpu-one", 0755), 0);
    assert_int_equal(mkdir("checkpoint", 0755), 0);
    assert_int_equal(setenv("RANKFIT_DATA", "data", 1), 0);
}

static void test_find(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct diag_list errors = { 0 };
    make_data();
    /* A directory in the way hides no hardware, but is a model if it is asked for as one. */
    assert_int_equal(file_find_data("hardware", "test-gpu-one", path, sizeof path, &errors), 0);
    assert_string_equal(path, "data/hardware/test-gpu-one.yaml");
    assert_int_equal(file_find_data("models", "test-model", path, sizeof path, &errors), 0);
    assert_string_equal(path, "data/models/test-model.yaml");
    assert_int_equal(file_find_data("models", "checkpoint", path, sizeof path, &errors), 0);
    assert_string_equal(path, "checkpoint");
    assert_int_equal(file_find_data("models", "./checkpoint", path, sizeof path, &errors), 0);
    assert_string_equal(path, "./checkpoint");
    assert_int_equal(file_find_data("hardware", "given.yaml", path, sizeof path, &errors), 0);
    assert_string_equal(path, "given.yaml");
    assert_int_equal(errors.count, 0);
}

/* Other letters, an organization before a model, the beginning of one piece of hardware alone:
 * found and said. */
static void test_find_meant(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *name, *path;
    } cases[] = {
        { "models", "Test-Model", "data/models/test-model.yaml" },
        { "models", "Org/Test-Model", "data/models/test-model.yaml" },
        { "models", "org/test-model", "data/models/test-model.yaml" },
        { "hardware", "TEST-GPU-One", "data/hardware/test-gpu-one.yaml" },
        { "hardware", "Test-Alone", "data/hardware/test-alone-80gb.yaml" },
    };
    make_data();
    put("data/hardware/test-alone-80gb.yaml", "a: 1\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[PATH_MAX];
        struct diag_list errors = { 0 };
        assert_int_equal(file_find_data(cases[i].kind, cases[i].name, path, sizeof path, &errors),
                         0);
        assert_string_equal(path, cases[i].path);
        assert_int_equal(errors.count, 1);
        assert_int_equal(errors.items[0].severity, SEVERITY_WARNING);
    }
    static const char *const refused[][2] = {
        { "hardware", "test-gpu" },       { "hardware", "test-alon" },
        { "hardware", "org/test-alone" }, { "models", "org/x/test-model" },
        { "models", "./Test-Model" },     { "models", "test" },
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char path[PATH_MAX];
        struct diag_list errors = { 0 };
        assert_int_equal(file_find_data(refused[i][0], refused[i][1], path, sizeof path, &errors),
                         -1);
        assert_int_equal(errors.errors, 1);
    }
}

static void find_failing(const char *kind, const char *name, struct diag_list *errors)
{
    char path[PATH_MAX] = "untouched";
    assert_int_equal(file_find_data(kind, name, path, sizeof path, errors), -1);
    assert_string_equal(path, "untouched");
}

static void test_find_failures(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    make_data();
    find_failing("hardware", "test-gpu-on", &errors);
    find_failing("hardware", "nothing-like-any-of-the-names", &errors);
    find_failing("models", "test-modle", &errors);
    find_failing("recipes", "nothing-like-any-of-the-names", &errors);
    find_failing("hardware", "test-gpu-one.yaml", &errors);
    find_failing("hardware", "./absent", &errors);
    find_failing("hardware", "./checkpoint", &errors);
    find_failing("hardware", "", &errors);
    char small[8];
    assert_int_equal(file_find_data("models", "test-model", small, sizeof small, &errors), -1);
    assert_int_equal(setenv("RANKFIT_DATA", "given.yaml", 1), 0);
    find_failing("hardware", "test-gpu-one", &errors);
    assert_golden_diags("cannot be found", &errors);
}

/* Notes names with "test-" in them (the source tree's own data are listed too), checks order. */
struct seen {
    char names[128], last[128];
    bool sorted;
};

static void see(const char *name, const char *path, void *context)
{
    struct seen *seen = context;
    assert_non_null(strstr(path, name));
    seen->sorted = seen->sorted && strcmp(seen->last, name) < 0;
    (void)snprintf(seen->last, sizeof seen->last, "%s", name);
    size_t used = strlen(seen->names);
    if (strstr(name, "test-"))
        (void)snprintf(seen->names + used, sizeof seen->names - used, "%s ", name);
}

static void test_list(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct seen seen = { .sorted = true };
    char path[PATH_MAX];
    make_data();
    /* A name of the source tree too: given once (names rise strictly), and the first place wins. */
    put("data/hardware/h200.yaml", "a: 1\n");
    assert_int_equal(file_find_data("hardware", "h200", path, sizeof path, &errors), 0);
    assert_string_equal(path, "data/hardware/h200.yaml");
    assert_int_equal(file_list_data("hardware", see, &seen, &errors), 0);
    assert_string_equal(seen.names, "test-gpu-one test-gpu-two ");
    assert_true(seen.sorted);
    assert_int_equal(setenv("RANKFIT_DATA", "absent", 1), 0);
    assert_int_equal(file_list_data("hardware", see, &seen, &errors), -1);
    assert_int_equal(errors.errors, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, directory_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_write),          TEST(test_write_failures),   TEST(test_write_cut_short),
        TEST(test_document_forms), TEST(test_failed_documents), TEST(test_rendered_scalars),
        TEST(test_read_back),      TEST(test_long_keys),        TEST(test_find),
        TEST(test_find_meant),     TEST(test_find_failures),    TEST(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
