#include "tests/support/golden.h"

#include "tests/support/text.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct {
    FILE *out;
    char *text;
    size_t bytes;
} pieces;

static void golden_path(char *ret, size_t size)
{
    const char *root = getenv("RANKFIT_SOURCE_ROOT"), *name = program_invocation_short_name;
    if (!root)
        fail_msg("RANKFIT_SOURCE_ROOT is not set");
    (void)snprintf(ret, size, "%s/tests/golden/%s.txt", root,
                   strncmp(name, "test_", 5) == 0 ? name + 5 : name);
}

/* The section's first line in `whole`, which is its heading, or NULL. */
static const char *find_section(const char *whole, const char *heading)
{
    size_t length = strlen(heading);
    for (const char *at = whole; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
        if (strncmp(at, heading, length) == 0)
            return at;
    return NULL;
}

static const char *section_end(const char *section)
{
    const char *next = strstr(section, "\n=== ");
    return next ? next + 1 : section + strlen(section);
}

/* Replaces the section, or adds it at the end; an interrupted run leaves the old file. */
static void update(const char *path, const char *heading, const char *text)
{
    char fresh[PATH_MAX + 32], *whole = text_of_file(path);
    const char *before = whole ? whole : "";
    const char *section = find_section(before, heading);
    const char *after = section ? section_end(section) : "";
    size_t kept = section ? (size_t)(section - before) : strlen(before);
    (void)snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    FILE *out = fopen(fresh, "wb");
    assert_non_null(out);
    (void)fprintf(out, "%.*s%s%s%s", (int)kept, before, heading, text, after);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(rename(fresh, path), 0);
    free(whole);
}

static void report_difference(const char *path, const char *whole, const char *want,
                              const char *got)
{
    int line = 1;
    size_t same = 0, start = 0;
    for (; got[same] && got[same] == want[same]; same++)
        if (got[same] == '\n')
            start = same + 1;
    for (const char *at = whole; at < want + start; at++)
        line += *at == '\n';
    print_error("%s:%d\n  got   %.*s\n  want  %.*s\n  ./check --update rewrites the file\n", path,
                line, (int)strcspn(got + start, "\n"), got + start,
                (int)strcspn(want + start, "\n"), want + start);
}

/* Whether the file has the section, and the section is `text`. */
static bool is_recorded(const char *path, const char *heading, const char *text)
{
    char *whole = text_of_file(path);
    const char *section = whole ? find_section(whole, heading) : NULL;
    bool same = false;
    if (!section) {
        print_error("%s has no section %s", path, heading);
    } else {
        const char *want = section + strlen(heading), *end = section_end(section);
        same = strlen(text) == (size_t)(end - want) && strncmp(text, want, strlen(text)) == 0;
        if (!same)
            report_difference(path, whole, want, text);
    }
    free(whole);
    return same;
}

void support_assert_golden(const char *title, const char *text, const char *file, int line)
{
    char path[PATH_MAX], heading[1024];
    const char *wanted = getenv("RANKFIT_UPDATE_GOLDEN");
    assert_non_null(text);
    assert_true(snprintf(heading, sizeof heading, "=== %s\n", title) < (int)sizeof heading);
    golden_path(path, sizeof path);
    char *normalised = text_normalised(text), *ended = NULL;
    size_t length = strlen(normalised);
    const char *end = length > 0 && normalised[length - 1] != '\n' ? "\n" : "";
    assert_true(asprintf(&ended, "%s%s", normalised, end) >= 0);
    free(normalised);
    assert_null(strstr(ended, "\n=== "));
    bool same = true;
    if (wanted && strcmp(wanted, "1") == 0)
        update(path, heading, ended);
    else
        same = is_recorded(path, heading, ended);
    free(ended);
    if (!same)
        _fail(file, line);
}

FILE *golden_begin(void)
{
    if (pieces.out)
        (void)fclose(pieces.out);
    free(pieces.text);
    pieces.text = NULL;
    pieces.out = open_memstream(&pieces.text, &pieces.bytes);
    assert_non_null(pieces.out);
    return pieces.out;
}

FILE *golden_out(void)
{
    assert_non_null(pieces.out);
    return pieces.out;
}

void support_assert_golden_end(const char *title, const char *file, int line)
{
    assert_non_null(pieces.out);
    assert_int_equal(fclose(pieces.out), 0);
    pieces.out = NULL;
    support_assert_golden(title, pieces.text, file, line);
}
