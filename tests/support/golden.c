#include "tests/support/golden.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char *support_read_file(const char *path)
{
    FILE *in = fopen(path, "rb");
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = in ? open_memstream(&text, &bytes) : NULL;
    for (int c; out && (c = fgetc(in)) != EOF;)
        (void)fputc(c, out);
    if (out)
        (void)fclose(out);
    if (in)
        (void)fclose(in);
    return text;
}

static void report_difference(const char *name, const char *got, const char *want)
{
    int line = 1;
    size_t start = 0;
    for (size_t i = 0; got[i] && got[i] == want[i]; i++) {
        if (got[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    print_error("tests/golden/%s:%d\n  got   %.*s\n  want  %.*s\n"
                "  RANKFIT_UPDATE_GOLDEN=1 rewrites the file\n",
                name, line, (int)strcspn(got + start, "\n"), got + start,
                (int)strcspn(want + start, "\n"), want + start);
}

static bool update(const char *path, const char *text)
{
    const char *wanted = getenv("RANKFIT_UPDATE_GOLDEN");
    if (!wanted || strcmp(wanted, "1") != 0)
        return false;
    FILE *out = fopen(path, "wb");
    if (!out)
        return false;
    bool written = fputs(text, out) >= 0;
    return fclose(out) == 0 && written;
}

void support_assert_golden(const char *name, const char *text, const char *file, int line)
{
    const char *root = getenv("RANKFIT_SOURCE_ROOT");
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/tests/golden/%s", root ? root : ".", name);
    if (update(path, text))
        return;
    char *want = support_read_file(path);
    bool same = want && strcmp(text, want) == 0;
    if (!want)
        print_error("tests/golden/%s is missing\n", name);
    else if (!same)
        report_difference(name, text, want);
    free(want);
    if (!same)
        _fail(file, line);
}
