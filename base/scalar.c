#include "base/scalar.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *spelling;
    enum node_kind kind;
    bool boolean;
    double real;
} words[] = {
    { "", NODE_NULL, false, 0 },
    { "~", NODE_NULL, false, 0 },
    { "null", NODE_NULL, false, 0 },
    { "Null", NODE_NULL, false, 0 },
    { "NULL", NODE_NULL, false, 0 },
    { "true", NODE_BOOL, true, 0 },
    { "True", NODE_BOOL, true, 0 },
    { "TRUE", NODE_BOOL, true, 0 },
    { "false", NODE_BOOL, false, 0 },
    { "False", NODE_BOOL, false, 0 },
    { "FALSE", NODE_BOOL, false, 0 },
    { ".inf", NODE_REAL, false, (double)INFINITY },
    { ".Inf", NODE_REAL, false, (double)INFINITY },
    { ".INF", NODE_REAL, false, (double)INFINITY },
    { "+.inf", NODE_REAL, false, (double)INFINITY },
    { "-.inf", NODE_REAL, false, -(double)INFINITY },
    { "-.Inf", NODE_REAL, false, -(double)INFINITY },
    { "-.INF", NODE_REAL, false, -(double)INFINITY },
    { "Infinity", NODE_REAL, false, (double)INFINITY },
    { "-Infinity", NODE_REAL, false, -(double)INFINITY },
    { ".nan", NODE_REAL, false, (double)NAN },
    { ".NaN", NODE_REAL, false, (double)NAN },
    { ".NAN", NODE_REAL, false, (double)NAN },
    { "NaN", NODE_REAL, false, (double)NAN },
};

static size_t digits_at(const char *text)
{
    return strspn(text, "0123456789");
}

/* [-+]? digits, or an octal 0o17 or hexadecimal 0x1f without a sign. ret_base: 8, 10, 16. */
static bool is_integer(const char *text, int *ret_base)
{
    *ret_base = 10;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'o')) {
        *ret_base = text[1] == 'x' ? 16 : 8;
        size_t digits = strspn(text + 2, *ret_base == 16 ? "0123456789abcdefABCDEF" : "01234567");
        return digits > 0 && text[2 + digits] == '\0';
    }
    if (*text == '-' || *text == '+')
        text++;
    size_t digits = digits_at(text);
    return digits > 0 && text[digits] == '\0';
}

/* [-+]? ( . digits | digits [. digits*] ) ( [eE] [-+]? digits )? */
static bool is_real(const char *text)
{
    if (*text == '-' || *text == '+')
        text++;
    size_t before = digits_at(text);
    text += before;
    size_t after = 0;
    if (*text == '.') {
        after = digits_at(text + 1);
        text += 1 + after;
    }
    if (before + after == 0)
        return false;
    if (*text != 'e' && *text != 'E')
        return *text == '\0';
    text++;
    if (*text == '-' || *text == '+')
        text++;
    size_t exponent = digits_at(text);
    return exponent > 0 && text[exponent] == '\0';
}

static int resolve_integer(const char *text, int base, struct node *ret)
{
    errno = 0;
    long long value = strtoll(base == 10 ? text : text + 2, NULL, base);
    ret->kind = NODE_INT;
    ret->integer = value;
    ret->real = (double)value;
    return errno ? -1 : 0;
}

int scalar_resolve(const char *text, struct node *ret)
{
    int base;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i].spelling) == 0) {
            ret->kind = words[i].kind;
            ret->boolean = words[i].boolean;
            ret->real = words[i].real;
            return 0;
        }
    }
    if (is_integer(text, &base))
        return resolve_integer(text, base, ret);
    if (!is_real(text)) {
        ret->kind = NODE_TEXT;
        return 0;
    }
    ret->kind = NODE_REAL;
    ret->real = strtod(text, NULL);
    return isfinite(ret->real) ? 0 : -1;
}
