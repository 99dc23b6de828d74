#include "base/layout/stage_list.h"
#include "base/text.h"
#include "base/units.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { NUMBER_BYTES = 24, EXPANDED_BYTES = 8192, MAX_DEPTH = 8, SHOWN = 24 };

/* The text being read, what a stage may have, and where the fault is told. */
struct reader {
    const char *text, *at;
    int most;
    char *fault;
};

/* -1, so that callers can `return fault(...)`. */
static int fault(const struct reader *r, const char *words)
{
    if (r->fault)
        (void)text_copy(r->fault, STAGE_FAULT_BYTES, words);
    return -1;
}

static int fault_of_stage(const struct reader *r, int stage, const char *words)
{
    if (r->fault)
        (void)snprintf(r->fault, STAGE_FAULT_BYTES, "stage %d %s", stage, words);
    return -1;
}

/* The character that is read. */
static int fault_here(const struct reader *r, const char *words)
{
    if (r->fault)
        (void)snprintf(r->fault, STAGE_FAULT_BYTES, "'%c', character %d, %s", *r->at,
                       (int)(r->at - r->text) + 1, words);
    return -1;
}

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

static int fault_of_part(const struct reader *r, int part, const char *text, size_t length)
{
    int shown = length < SHOWN ? (int)length : SHOWN;
    if (!r->fault)
        return -1;
    if (length == 0)
        (void)snprintf(r->fault, STAGE_FAULT_BYTES, "part %d is empty", part);
    else
        (void)snprintf(r->fault, STAGE_FAULT_BYTES,
                       "part %d, '%.*s', is neither a number from 1 to %d nor one such as 12*3",
                       part, shown, text, r->most);
    return -1;
}

/* "12" or "12*3" of `length` bytes: adds 1 or 3 stages. */
static int add_part(const struct reader *r, int part, size_t length, int *count, int *ret)
{
    const char *star = memchr(r->at, '*', length);
    size_t first = star ? (size_t)(star - r->at) : length;
    int layers, times = 1;
    if (parse_number(r->at, first, r->most, &layers) ||
        (star && parse_number(star + 1, length - first - 1, INT32_MAX, &times)))
        return fault_of_part(r, part, r->at, length);
    if (times > LAYOUT_MAX_STAGES - *count)
        return fault(r, "there are more than 128 stages");
    for (int i = 0; i < times; i++)
        ret[(*count)++] = layers;
    return 0;
}
_Static_assert(LAYOUT_MAX_STAGES == 128, "the words above");

static int parse_counts(struct reader *r, int *ret)
{
    int count = 0;
    for (int part = 1;; part++, r->at++) {
        size_t length = strcspn(r->at, ",");
        if (add_part(r, part, length, &count, ret))
            return -1;
        r->at += length;
        if (!*r->at)
            return 0;
    }
}

/* A layout string with its repetitions written out. */
struct expansion {
    size_t used;
    char text[EXPANDED_BYTES];
};

static const char *const too_long = "it has more than 8192 letters when written out";
_Static_assert(EXPANDED_BYTES == 8192, "the words above");

/* What stands from `start` on, as often as the number behind the star says. */
static int repeat(struct reader *r, struct expansion *e, size_t start)
{
    size_t length = e->used - start, digits = strspn(r->at + 1, "0123456789");
    int times;
    if (digits == 0 || (digits == strspn(r->at + 1, "0")))
        return fault_here(r, "stands before no number of at least 1");
    if (parse_number(r->at + 1, digits, EXPANDED_BYTES, &times) ||
        length * (size_t)times > sizeof e->text - start)
        return fault(r, too_long);
    for (int i = 1; i < times; i++)
        memcpy(e->text + start + (size_t)i * length, e->text + start, length);
    e->used = start + (size_t)times * length;
    r->at += 1 + digits;
    return 0;
}

static int expand(struct reader *r, struct expansion *e, int depth);

/* Behind its opening bracket, up to the closing one and over it. */
static int expand_group(struct reader *r, struct expansion *e, int depth)
{
    if (depth == MAX_DEPTH)
        return fault_here(r, "opens one bracket too many inside others");
    r->at++;
    if (expand(r, e, depth + 1))
        return -1;
    if (*r->at != ')')
        return fault(r, "a bracket is not closed");
    r->at++;
    return 0;
}

/* One letter, bar or group, and its repetition. */
static int expand_one(struct reader *r, struct expansion *e, int depth)
{
    size_t start = e->used;
    if (*r->at == '(') {
        if (expand_group(r, e, depth))
            return -1;
    } else if (!strchr("EtmL|", *r->at)) {
        return fault_here(r, "is none of E, t, m, L, |, (, ) and *N behind one of them");
    } else if (e->used == sizeof e->text) {
        return fault(r, too_long);
    } else {
        e->text[e->used++] = *r->at++;
    }
    return *r->at == '*' ? repeat(r, e, start) : 0;
}

/* Up to the end or the bracket that closes the group. Commas are for the eye. */
static int expand(struct reader *r, struct expansion *e, int depth)
{
    while (*r->at && *r->at != ')') {
        if (*r->at == ',')
            r->at++;
        else if (expand_one(r, e, depth))
            return -1;
    }
    return depth == 0 && *r->at ? fault_here(r, "closes no bracket") : 0;
}

/* Where the embedding, the loss and the prediction layers stand is no choice. */
static int check_places(const struct reader *r, const struct expansion *e)
{
    bool bar = false, layer = false;
    for (size_t i = e->used; i-- > 0;) {
        if (e->text[i] == 'E' && i > 0)
            return fault(r, "E is not at the beginning: the embedding is on the first stage");
        if (e->text[i] == 'L' && i + 1 < e->used)
            return fault(r, "L is not at the end: the loss is on the last stage");
        if (e->text[i] == 'm' && (bar || layer))
            return fault(r, "m is not behind the layers of the last stage");
        bar = bar || e->text[i] == '|';
        layer = layer || e->text[i] == 't';
    }
    return 0;
}

static int parse_letters(struct reader *r, int *ret)
{
    struct expansion e = { .used = 0 };
    int stage = 0;
    if (expand(r, &e, 0))
        return -1;
    for (size_t i = 0; i < e.used; i++) {
        if (e.text[i] == '|' && ++stage == LAYOUT_MAX_STAGES)
            return fault(r, "there are more than 128 stages");
        ret[stage] += e.text[i] == 't';
    }
    for (int i = 0; i <= stage; i++)
        if (ret[i] < 1 || ret[i] > r->most)
            return fault_of_stage(r, i, ret[i] < 1 ? "has no layer t" : "has too many layers");
    return check_places(r, &e);
}

int stage_list_parse(const char *text, int most, int ret[LAYOUT_MAX_STAGES], char *ret_fault)
{
    struct reader r = { .text = text, .at = text, .most = most, .fault = ret_fault };
    memset(ret, 0, sizeof(int) * LAYOUT_MAX_STAGES);
    if (!*text)
        return fault(&r, "it is empty");
    return strpbrk(text, "EtmL|") ? parse_letters(&r, ret) : parse_counts(&r, ret);
}
