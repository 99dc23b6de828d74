#include "base/escape.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* GROWTH: one byte (U+007F) becomes six. */
enum { PAIR_BYTES = 12, LONG_BYTES = 10, SHORT_BYTES = 6, GROWTH = 6 };

/* The value of "\uXXXX" at text, or -1. */
static int32_t unit_at(const char *text)
{
    int32_t value = 0;
    if (text[0] != '\\' || text[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* The character of a high and a low surrogate at text (RFC 8259, section 7), or 0. */
static uint32_t pair_at(const char *text, size_t left)
{
    if (left < PAIR_BYTES)
        return 0;
    int32_t high = unit_at(text);
    if (high < 0xd800 || high > 0xdbff)
        return 0;
    int32_t low = unit_at(text + 6);
    if (low < 0xdc00 || low > 0xdfff)
        return 0;
    return (uint32_t)(0x10000 + (high - 0xd800) * 0x400 + (low - 0xdc00));
}

static bool remember(struct escapes *ret, size_t *room, struct escape_place place)
{
    if (ret->count == *room) {
        size_t wanted = *room ? *room * 2 : 64;
        struct escape_place *grown = realloc(ret->places, wanted * sizeof *grown);
        if (!grown)
            return false;
        ret->places = grown;
        *room = wanted;
    }
    ret->places[ret->count++] = place;
    return true;
}

/* The bytes of a character at text that JSON allows in a string and YAML does not, or 0. */
static size_t forbidden_at(const char *text, size_t left, uint32_t *ret)
{
    unsigned char bytes[3] = { 0 };
    memcpy(bytes, text, left < sizeof bytes ? left : sizeof bytes);
    *ret = bytes[0];
    if (bytes[0] == 0x7f)
        return 1;
    *ret = bytes[1];
    if (bytes[0] == 0xc2 && bytes[1] >= 0x80 && bytes[1] < 0xa0)
        return 2;
    *ret = (bytes[0] & 0x0fU) << 12 | (bytes[1] & 0x3fU) << 6 | (bytes[2] & 0x3fU);
    bool third = bytes[0] >= 0xe0 && bytes[0] < 0xf0;
    return third && (*ret == 0x2028 || *ret == 0x2029 || *ret == 0xfeff || *ret >= 0xfffe) ? 3 : 0;
}

/* Writes what stands for the character at text, if it needs that, and moves `at` behind it. Returns
 * the bytes of the old text that are done with, 0 where nothing needs to be rewritten. */
static size_t rewrite_one(const char *text, size_t left, struct escapes *ret,
                          struct escape_place *at)
{
    size_t taken = PAIR_BYTES;
    int written = LONG_BYTES;
    uint32_t character = pair_at(text, left);
    at->shift = PAIR_BYTES - LONG_BYTES;
    if (!character) {
        taken = forbidden_at(text, left, &character);
        written = SHORT_BYTES;
        at->shift = 1 - SHORT_BYTES;
    }
    if (taken == 0)
        return 0;
    (void)snprintf(ret->text + ret->bytes, LONG_BYTES + 1,
                   written == LONG_BYTES ? "\\U%08" PRIx32 : "\\u%04" PRIx32, character);
    ret->bytes += (size_t)written;
    at->column += (size_t)written;
    return taken;
}

int escapes_rewrite(const char *text, size_t bytes, struct escapes *ret)
{
    *ret = (struct escapes){ .text = malloc(bytes * GROWTH + 1) };
    if (!ret->text)
        return -1;
    struct escape_place at = { 0, 0, 0 };
    size_t room = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes;) {
        size_t rewritten = quoted ? rewrite_one(text + i, bytes - i, ret, &at) : 0;
        i += rewritten;
        if (rewritten > 0 && !remember(ret, &room, at))
            return -1;
        if (rewritten > 0)
            continue;
        /* A backslash takes the next character with it, so that \" ends no string. */
        size_t taken = quoted && text[i] == '\\' && i + 1 < bytes && text[i + 1] != '\n' ? 2 : 1;
        if (text[i] == '"')
            quoted = !quoted;
        for (; taken > 0; taken--, i++) {
            ret->text[ret->bytes++] = text[i];
            at.column += ((unsigned char)text[i] & 0xc0) != 0x80;
            if (text[i] == '\n')
                at = (struct escape_place){ at.line + 1, 0, 0 };
        }
    }
    return 0;
}

void escapes_done(struct escapes *escapes)
{
    free(escapes->text);
    free(escapes->places);
    *escapes = (struct escapes){ 0 };
}
