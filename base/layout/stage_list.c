#include "base/layout/stage_list.h"
#include "base/units.h"

#include <stdbool.h>
#include <string.h>

enum { NUMBER_BYTES = 24, EXPANDED_BYTES = 8192, MAX_DEPTH = 8 };

static int parse_number(const char *text, size_t length, int most, int *ret)
{
    char digits[NUMBER_BYTES];
    int64_t number;
    if (length >= sizeof digits)
        return -1;
    memcpy(digits, text, length);
    digits[length] = '\0';
    if (units_parse_int(digits, 1, most, &number))
        return -1;
    *ret = (int)number;
    return 0;
}

/* "12" or "12*3" of `length` bytes: adds 1 or 3 stages. */
static int add_part(const char *part, size_t length, int most, int *count, int *ret)
{
    const char *star = memchr(part, '*', length);
    size_t first = star ? (size_t)(star - part) : length;
    int layers, times = 1;
    if (parse_number(part, first, most, &layers) ||
        (star && parse_number(star + 1, length - first - 1, LAYOUT_MAX_STAGES, &times)) ||
        times > LAYOUT_MAX_STAGES - *count)
        return -1;
    for (int i = 0; i < times; i++)
        ret[(*count)++] = layers;
    return 0;
}

static int parse_counts(const char *text, int most, int *ret)
{
    int count = 0;
    for (const char *part = text;; part++) {
        size_t length = strcspn(part, ",");
        if (add_part(part, length, most, &count, ret))
            return -1;
        part += length;
        if (!*part)
            return 0;
    }
}

/* A layout string with its repetitions written out. */
struct expansion {
    const char *at;
    size_t used;
    char text[EXPANDED_BYTES];
};

/* What stands from `start` on, `times` times. */
static int repeat(struct expansion *e, size_t start, int times)
{
    size_t length = e->used - start;
    if (length * (size_t)times > sizeof e->text - start)
        return -1;
    for (int i = 1; i < times; i++)
        memcpy(e->text + start + (size_t)i * length, e->text + start, length);
    e->used = start + (size_t)times * length;
    return 0;
}

static int expand(struct expansion *e, int depth);

/* One letter, bar or group, and its repetition. */
static int expand_one(struct expansion *e, int depth)
{
    size_t start = e->used, digits;
    int times;
    if (*e->at == '(') {
        e->at++;
        if (depth == MAX_DEPTH || expand(e, depth + 1) || *e->at != ')')
            return -1;
    } else if (!strchr("EtmL|", *e->at) || e->used == sizeof e->text) {
        return -1;
    } else {
        e->text[e->used++] = *e->at;
    }
    e->at++;
    if (*e->at != '*')
        return 0;
    digits = strspn(e->at + 1, "0123456789");
    if (parse_number(e->at + 1, digits, EXPANDED_BYTES, &times) || repeat(e, start, times))
        return -1;
    e->at += 1 + digits;
    return 0;
}

/* Up to the end or the bracket that closes the group. Commas are for the eye. */
static int expand(struct expansion *e, int depth)
{
    while (*e->at && *e->at != ')') {
        if (*e->at == ',')
            e->at++;
        else if (expand_one(e, depth))
            return -1;
    }
    return depth == 0 && *e->at ? -1 : 0;
}

static int parse_letters(const char *text, int most, int *ret)
{
    struct expansion e = { .at = text };
    int stage = 0;
    if (expand(&e, 0))
        return -1;
    for (size_t i = 0; i < e.used; i++) {
        if (e.text[i] == '|' && ++stage == LAYOUT_MAX_STAGES)
            return -1;
        ret[stage] += e.text[i] == 't';
    }
    for (int i = 0; i <= stage; i++)
        if (ret[i] < 1 || ret[i] > most)
            return -1;
    return 0;
}

int stage_list_parse(const char *text, int most, int ret[LAYOUT_MAX_STAGES])
{
    memset(ret, 0, sizeof(int) * LAYOUT_MAX_STAGES);
    return strpbrk(text, "EtmL|") ? parse_letters(text, most, ret) : parse_counts(text, most, ret);
}
