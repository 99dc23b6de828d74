#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit byte_units[] = {
    { "", 1 },
    { "B", 1 },
    { "kB", 1000 },
    { "MB", 1000000 },
    { "GB", 1000000000 },
    { "TB", 1000000000000 },
    { "KiB", UINT64_C(1) << 10 },
    { "MiB", UINT64_C(1) << 20 },
    { "GiB", UINT64_C(1) << 30 },
    { "TiB", UINT64_C(1) << 40 },
};

static const struct unit token_units[] = {
    { "", 1 },
    { "K", UINT64_C(1) << 10 },
    { "M", UINT64_C(1) << 20 },
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* 10^18 * 10 still fits 64 bits. */
enum { PLACES_MAX = 18 };

/* A decimal number taken apart, so that "0.1GB" is exact: digits / 10^places. */
struct decimal {
    uint64_t digits;
    int places;
};

/* Reads digits with at most one point between digits. Returns what follows, or NULL where there is
 * no number or it has more digits than 64 bits hold. */
static const char *read_decimal(const char *text, struct decimal *ret)
{
    bool point = false;
    *ret = (struct decimal){ 0 };
    if (!is_digit(*text))
        return NULL;
    for (; is_digit(*text) || (*text == '.' && !point); text++) {
        if (*text == '.') {
            point = true;
            continue;
        }
        if (ret->digits > (UINT64_MAX - 9) / 10 || ret->places == PLACES_MAX)
            return NULL;
        ret->digits = ret->digits * 10 + (uint64_t)(*text - '0');
        ret->places += point;
    }
    return point && !is_digit(text[-1]) ? NULL : text;
}

/* value = digits * factor / 10^places. `exact` asks for a whole result; otherwise it is rounded to
 * the nearest. The fraction is multiplied by the factor in steps of 10 or 2, the whole part of each
 * step carried over, which keeps everything inside 64 bits. */
static int scale(struct decimal decimal, uint64_t factor, bool exact, uint64_t *ret)
{
    uint64_t divisor = 1;
    for (int i = 0; i < decimal.places; i++)
        divisor *= 10;
    uint64_t whole = decimal.digits / divisor;
    uint64_t rest = decimal.digits % divisor;
    uint64_t fraction = 0;
    for (uint64_t left = factor; left > 1;) {
        uint64_t step = left % 10 == 0 ? 10 : 2;
        left /= step;
        rest *= step;
        fraction = fraction * step + rest / divisor;
        rest %= divisor;
    }
    if (exact && rest != 0)
        return -1;
    fraction += rest >= divisor - rest && rest > 0;
    uint64_t value;
    if (__builtin_mul_overflow(whole, factor, &value) ||
        __builtin_add_overflow(value, fraction, &value) || value > INT64_MAX)
        return -1;
    *ret = value;
    return 0;
}

/* A number, at most one blank, a unit of the table in any case. Base units take no fraction. */
static int parse_scaled(const char *text, const struct unit *units, size_t count, bool exact,
                        uint64_t *ret)
{
    struct decimal decimal;
    const char *rest = read_decimal(text, &decimal);
    if (!rest)
        return -1;
    if (rest[0] == ' ' && rest[1])
        rest++;
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(rest, units[i].name) == 0)
            return scale(decimal, units[i].factor, exact || units[i].factor == 1, ret);
    return -1;
}

int units_parse_bytes(const char *text, uint64_t *ret_bytes)
{
    return parse_scaled(text, byte_units, sizeof byte_units / sizeof *byte_units, false, ret_bytes);
}

int units_parse_tokens(const char *text, uint64_t *ret_tokens)
{
    return parse_scaled(text, token_units, sizeof token_units / sizeof *token_units, true,
                        ret_tokens);
}

int units_parse_fraction(const char *text, double *ret_fraction)
{
    /* strtod alone would also take blanks, signs, hexadecimal, "inf" and "nan". */
    if (!is_digit(*text) || strspn(text, "0123456789.eE+-%") != strlen(text))
        return -1;
    char *end;
    double value = strtod(text, &end);
    if (strcmp(end, "%") == 0)
        value /= 100;
    else if (*end)
        return -1;
    if (!(value >= 0 && value <= 1))
        return -1;
    *ret_fraction = value;
    return 0;
}

int units_parse_int(const char *text, int64_t min, int64_t max, int64_t *ret)
{
    const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
    if (!is_digit(*digits))
        return -1;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || *end || value < min || value > max)
        return -1;
    *ret = value;
    return 0;
}

char *units_format_gb(char *buffer, size_t size, uint64_t bytes, int decimals)
{
    (void)snprintf(buffer, size, "%.*f GB", decimals, (double)bytes / 1e9);
    return buffer;
}

char *units_format_gib(char *buffer, size_t size, uint64_t bytes, int decimals)
{
    (void)snprintf(buffer, size, "%.*f GiB", decimals, (double)bytes / 0x1p30);
    return buffer;
}

char *units_format_count(char *buffer, size_t size, uint64_t count)
{
    char reversed[32];
    size_t used = 0;
    int digits = 0;
    do {
        if (digits > 0 && digits % 3 == 0)
            reversed[used++] = ',';
        reversed[used++] = (char)('0' + count % 10);
        count /= 10;
        digits++;
    } while (count > 0);
    size_t length = 0;
    while (used > 0 && length + 1 < size)
        buffer[length++] = reversed[--used];
    if (size > 0)
        buffer[length] = '\0';
    return buffer;
}

char *units_format_tokens(char *buffer, size_t size, uint64_t tokens)
{
    if (tokens > 0 && tokens % 1024 == 0)
        (void)snprintf(buffer, size, "%" PRIu64 "K", tokens / 1024);
    else
        (void)snprintf(buffer, size, "%" PRIu64, tokens);
    return buffer;
}

char *units_format_seconds(char *buffer, size_t size, double seconds)
{
    static const struct {
        const char *name;
        double per_second;
    } scales[] = { { "us", 1e6 }, { "ms", 1e3 }, { "s", 1 } };
    if (seconds == 0 || !isfinite(seconds)) {
        (void)snprintf(buffer, size, "%.0f s", seconds);
        return buffer;
    }
    size_t last = sizeof scales / sizeof *scales - 1;
    size_t i = 0;
    /* 999.5 would be printed as 1000: the next unit shows it with three digits. */
    while (i < last && fabs(seconds) * scales[i].per_second >= 999.5)
        i++;
    double value = seconds * scales[i].per_second;
    double size_of_value = fabs(value);
    int decimals = size_of_value < 0.9995  ? 3
                   : size_of_value < 9.995 ? 2
                   : size_of_value < 99.95 ? 1
                                           : 0;
    (void)snprintf(buffer, size, "%.*f %s", decimals, value, scales[i].name);
    return buffer;
}
