#include "tests/e2e/texts.h"

#include "tests/e2e/program.h"
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void run(int status, const char *command, struct program_result *ret)
{
    program_expect(command, status, ret);
    if (status >= 2)
        assert_string_equal(ret->out, "");
}

void assert_told(const char *title, int status, const char *command)
{
    struct program_result result;
    run(status, command, &result);
    (void)fprintf(golden_begin(), "%s%s%s", result.out,
                  *result.out && *result.err ? "--- standard error\n" : "", result.err);
    assert_golden_end(title);
    program_done(&result);
}

int print_diagnostics(FILE *out, const char *text)
{
    int errors = 0;
    bool wanted = false;
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        char line[1024];
        (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        bool error = strstr(line, "error: ") != NULL;
        bool hint = strncmp(line, "  hint: ", 8) == 0;
        wanted = error || strstr(line, "warning: ") || (wanted && hint);
        errors += error;
        if (wanted)
            (void)fprintf(out, "%s\n", line);
    }
    return errors;
}

void assert_told_diagnostics(const char *title, int status, const char *command)
{
    struct program_result result;
    run(status, command, &result);
    (void)print_diagnostics(golden_begin(), result.err);
    assert_golden_end(title);
    program_done(&result);
}

static void check(void **state)
{
    const struct told *told = *state;
    assert_told(told->title, told->status, told->command);
}

void told_tests(const struct told *rows, size_t count, struct CMUnitTest *ret)
{
    for (size_t i = 0; i < count; i++) {
        union {
            const struct told *read;
            void *state;
        } same = { .read = &rows[i] };
        ret[i] = (struct CMUnitTest){ rows[i].title, check, NULL, NULL, same.state };
    }
}
