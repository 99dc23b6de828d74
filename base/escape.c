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

/* One way through a text: what is read, what is written, where the newest string begins. */
struct rewriting {
    const char *text;
    size_t bytes, i;
    struct escapes *ret;
    struct escape_place at, quote;
    size_t room, first, last; /* of the places; first character that is no space; last + 1 */
    size_t colon;             /* has been written before its turn; 0: none */
    bool quoted;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void put(struct rewriting *r, char c)
{
    r->ret->text[r->ret->bytes++] = c;
    r->at.column += ((unsigned char)c & 0xc0) != 0x80;
    if (c == '\n')
        r->at = (struct escape_place){ r->at.line + 1, 0, 0 };
}

/* Behind a string: when it is a key whose colon is on another line, the colon is written next to
 * it, in the place of a blank or at the end of the line, so that no other column moves. */
static void end_string(struct rewriting *r)
{
    size_t colon = r->i;
    bool same_line = true;
    for (; colon < r->bytes && is_space(r->text[colon]); colon++)
        same_line = same_line && r->text[colon] != '\n';
    if (colon == r->bytes || r->text[colon] != ':')
        return;
    size_t characters = r->at.line == r->quote.line ? r->at.column - r->quote.column : 0;
    if (characters > KEY_CHARACTERS_MAX && r->ret->long_key_characters == 0) {
        r->ret->long_key = r->quote;
        r->ret->long_key_characters = characters;
    }
    if (same_line)
        return;
    r->colon = colon;
    put(r, ':');
    if (r->text[r->i] == ' ' || r->text[r->i] == '\t')
        r->i++;
}

/* A character that stays, or a colon that has moved, or a tab where YAML wants none. */
static void copy_one(struct rewriting *r)
{
    char c = r->text[r->i];
    bool outside = r->i < r->first || r->i >= r->last;
    bool moved = r->colon > 0 && r->i == r->colon;
    r->i++;
    put(r, moved || (outside && c == '\t') ? ' ' : c);
}

/* Copies what needs no other form. A backslash takes the next character with it, so that \" ends no
 * string. */
static void copy_next(struct rewriting *r)
{
    char c = r->text[r->i];
    bool pair = r->quoted && c == '\\' && r->i + 1 < r->bytes && r->text[r->i + 1] != '\n';
    if (c == '"' && !r->quoted)
        r->quote = r->at;
    copy_one(r);
    if (pair)
        copy_one(r);
    if (c != '"')
        return;
    r->quoted = !r->quoted;
    if (!r->quoted)
        end_string(r);
}

int escapes_rewrite(const char *text, size_t bytes, struct escapes *ret)
{
    struct rewriting r = { .text = text, .bytes = bytes, .ret = ret };
    *ret = (struct escapes){ .text = malloc(bytes * GROWTH + 1) };
    if (!ret->text)
        return -1;
    while (r.first < bytes && is_space(text[r.first]))
        r.first++;
    for (r.last = bytes; r.last > 0 && is_space(text[r.last - 1]);)
        r.last--;
    while (r.i < bytes) {
        size_t rewritten = r.quoted ? rewrite_one(text + r.i, bytes - r.i, ret, &r.at) : 0;
        r.i += rewritten;
        if (rewritten == 0)
            copy_next(&r);
        else if (!remember(ret, &r.room, r.at))
            return -1;
    }
    return 0;
}

void escapes_done(struct escapes *escapes)
{
    free(escapes->text);
    free(escapes->places);
    *escapes = (struct escapes){ 0 };
}
