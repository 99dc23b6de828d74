#include "base/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { WORD_MAX = 96 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Of two letters that differ in nothing but being a capital. */
static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Optimal string alignment: insertion, deletion, replacement and the swap of two neighbours cost
 * one each (Damerau 1964; no stretch is edited twice). Three rows of the table are enough. Words
 * longer than WORD_MAX are as far as they can be. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][WORD_MAX + 1];
    size_t length_a = strlen(a);
    size_t length_b = strlen(b);
    if (length_a > WORD_MAX || length_b > WORD_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= length_b; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= length_a; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        const size_t *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            size_t replaced = above[j - 1] + !same_letter(a[i - 1], b[j - 1]);
            row[j] = smaller(replaced, smaller(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]))
                row[j] = smaller(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[length_a % 3][length_b];
}

/* The shortest name that begins with `word`, which a single letter must tell from all others; NULL
 * when there is none. */
static const char *completed(const char *word, const char *const *names, size_t count)
{
    size_t length = strlen(word), matches = 0, best_length = SIZE_MAX;
    const char *best = NULL;
    for (size_t i = 0; i < count; i++) {
        if (strncasecmp(names[i], word, length) != 0)
            continue;
        matches++;
        if (strlen(names[i]) < best_length) {
            best_length = strlen(names[i]);
            best = names[i];
        }
    }
    return length > 0 && (matches == 1 || length > 1) ? best : NULL;
}

const char *text_nearest(const char *word, const char *const *names, size_t count)
{
    const char *whole = completed(word, names, count);
    if (whole || !word[0])
        return whole;
    size_t length = strlen(word), limit = length / 2;
    size_t best_distance = (limit > 1 ? limit : 1) + 1;
    const char *best = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t other = strlen(names[i]);
        size_t least = other > length ? other - length : length - other;
        if (least >= best_distance) /* no distance is below the difference of lengths */
            continue;
        size_t distance = edit_distance(word, names[i]);
        if (distance < best_distance) {
            best_distance = distance;
            best = names[i];
        }
    }
    return best;
}

size_t text_character_bytes(const char *text, size_t left)
{
    /* Of sequences with the same second byte's range: their first bytes and their length. */
    static const struct {
        unsigned char first, last, low, high, bytes;
    } rows[] = {
        { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
        { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 },
        { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };
    const unsigned char *at = (const unsigned char *)text;
    if (left == 0 || at[0] < 0x80)
        return left > 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (at[0] < rows[i].first || at[0] > rows[i].last)
            continue;
        if (left < rows[i].bytes || at[1] < rows[i].low || at[1] > rows[i].high)
            return 0;
        for (size_t next = 2; next < rows[i].bytes; next++)
            if ((at[next] & 0xc0) != 0x80)
                return 0;
        return rows[i].bytes;
    }
    return 0;
}

bool text_is_utf8(const char *text)
{
    size_t left = strlen(text), bytes = 1;
    for (; left > 0 && bytes > 0; text += bytes, left -= bytes)
        bytes = text_character_bytes(text, left);
    return bytes > 0;
}

int text_copy(char *ret, size_t size, const char *text)
{
    size_t length = strlen(text);
    if (size == 0)
        return -1;
    size_t taken = smaller(length, size - 1);
    memcpy(ret, text, taken);
    ret[taken] = '\0';
    return taken == length ? 0 : -1;
}

void text_append(char *buffer, size_t size, size_t *used, const char *format, ...)
{
    if (*used >= size)
        return;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(buffer + *used, size - *used, format, arguments);
    va_end(arguments);
    if (length < 0)
        buffer[*used] = '\0';
    else
        *used = smaller(*used + (size_t)length, size - 1);
}

void text_append_names(char *buffer, size_t size, size_t *used, const char *const *names,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *between = i == 0 ? "" : i == count - 1 ? " or " : ", ";
        text_append(buffer, size, used, "%s%s", between, names[i]);
    }
}
