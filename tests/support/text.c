#include "tests/support/text.h"

#include <limits.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char *text_of_file(const char *path)
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

char *text_replaced(const char *text, const char *expression, const char *by)
{
    char *ret = NULL;
    size_t bytes = 0;
    regex_t regex;
    regmatch_t found;
    FILE *out = open_memstream(&ret, &bytes);
    assert_non_null(out);
    assert_int_equal(regcomp(&regex, expression, REG_EXTENDED), 0);
    for (int flags = 0; regexec(&regex, text, 1, &found, flags) == 0; flags = REG_NOTBOL) {
        (void)fprintf(out, "%.*s%s", (int)found.rm_so, text, by);
        text += found.rm_eo;
    }
    (void)fputs(text, out);
    assert_int_equal(fclose(out), 0);
    regfree(&regex);
    return ret;
}

/* A malloc'd copy with each occurrence of the source tree's path replaced. */
static char *without_root(const char *text)
{
    char expression[2 * PATH_MAX] = "";
    size_t used = 0;
    const char *root = getenv("RANKFIT_SOURCE_ROOT");
    assert_non_null(root);
    for (; *root && used + 2 < sizeof expression; root++) {
        if (strchr(".[]{}()*+?^$|\\", *root))
            expression[used++] = '\\';
        expression[used++] = *root;
    }
    return text_replaced(text, expression, "ROOT");
}

char *text_normalised(const char *text)
{
    static const struct {
        const char *expression, *by;
    } varying[] = {
        { "/tmp/rankfit-[a-z]+-[A-Za-z0-9]+(/tmp)?", "TMP" },
        { "rankfit-[A-Za-z0-9]{6}\\>", "rankfit-DRAWN" },
        { "\\<[0-9a-f]{16}\\>", "DIGEST" },
        { " in [0-9.]+ s\\>", " in D s" }, /* that something took */
    };
    char *ret = without_root(text);
    for (size_t i = 0; i < sizeof varying / sizeof *varying; i++) {
        char *before = ret;
        ret = text_replaced(before, varying[i].expression, varying[i].by);
        free(before);
    }
    return ret;
}
