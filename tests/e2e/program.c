#include "tests/e2e/program.h"

#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { COMMAND_MAX = 8192, PATH_MAX_BYTES = 512 };

static char *take_file(const char *directory, const char *name)
{
    char path[PATH_MAX_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    char *text = text_of_file(path);
    assert_non_null(text);
    return text;
}

static int run_shell(const char *command)
{
    int status = system(command); /* NOLINT(cert-env33-c): the tests' own commands */
    assert_int_not_equal(status, -1);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void program_run(const char *command, struct program_result *ret)
{
    char directory[] = "/tmp/rankfit-test-XXXXXX";
    char line[COMMAND_MAX];
    const char *root = getenv("RANKFIT_SOURCE_ROOT");
    *ret = (struct program_result){ 0 };
    assert_non_null(getenv("RANKFIT"));
    if (!root) {
        fail();
        return;
    }
    assert_non_null(mkdtemp(directory));
    int length = snprintf(line, sizeof line,
                          "mkdir %s/tmp; cd %s/tests/e2e/input && { TMP=%s/tmp; %s\n} "
                          ">%s/out 2>%s/err",
                          directory, root, directory, command, directory, directory);
    assert_in_range(length, 1, (int)sizeof line - 1);
    ret->status = run_shell(line);
    ret->out = take_file(directory, "out");
    ret->err = take_file(directory, "err");
    (void)snprintf(line, sizeof line, "rm -rf %s", directory);
    (void)run_shell(line);
}

void program_done(struct program_result *result)
{
    free(result->out);
    free(result->err);
}

void program_expect(const char *command, int status, struct program_result *ret)
{
    program_run(command, ret);
    if (ret->status != status)
        print_error("%s\nexit status %d, not %d\n%s\n%s", command, ret->status, status, ret->out,
                    ret->err);
    assert_int_equal(ret->status, status);
}

bool program_can(const char *command)
{
    struct program_result result;
    program_run(command, &result);
    bool ret = result.status == 0;
    program_done(&result);
    return ret;
}

json_t *program_json(const char *arguments, int status)
{
    char command[COMMAND_MAX];
    struct program_result result;
    json_error_t error;
    (void)snprintf(command, sizeof command, "\"$RANKFIT\" %s", arguments);
    program_expect(command, status, &result);
    json_t *document = json_loads(result.out, 0, &error);
    if (!document)
        print_error("rankfit %s: line %d: %s\n", arguments, error.line, error.text);
    assert_non_null(document);
    program_done(&result);
    return document;
}

json_t *json_at(json_t *document, const char *path)
{
    json_t *at = document;
    while (at && *path) {
        char key[64];
        size_t length = strcspn(path, ".");
        assert_in_range(length, 1, sizeof key - 1);
        memcpy(key, path, length);
        key[length] = '\0';
        at = json_is_array(at) ? json_array_get(at, (size_t)strtoul(key, NULL, 10))
                               : json_object_get(at, key);
        path += length + (path[length] == '.');
    }
    return at;
}

double number_at(json_t *document, const char *path)
{
    json_t *value = json_at(document, path);
    if (!json_is_number(value))
        print_error("no number at %s\n", path);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

json_t *json_named(json_t *array, const char *name)
{
    size_t index;
    json_t *entry;
    json_array_foreach(array, index, entry)
    {
        const char *found = json_string_value(json_object_get(entry, "name"));
        if (found && strcmp(found, name) == 0)
            return entry;
    }
    print_error("nothing is named %s\n", name);
    assert_non_null(NULL);
    return NULL;
}
