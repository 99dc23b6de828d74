#include "base/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIR_BYTES = 12, YAML_BYTES = PAIR_BYTES - ESCAPE_SHORTER };

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

int escapes_rewrite(const char *text, size_t bytes, struct escapes *ret)
{
    *ret = (struct escapes){ 0 };
    if (!memmem(text, bytes, "\\ud", 3) && !memmem(text, bytes, "\\uD", 3))
        return 0;
    ret->text = malloc(bytes + 1);
    if (!ret->text)
        return -1;
    struct escape_place at = { 0, 0 };
    size_t room = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes;) {
        uint32_t character = quoted ? pair_at(text + i, bytes - i) : 0;
        if (character) {
            (void)snprintf(ret->text + ret->bytes, YAML_BYTES + 1, "\\U%08x", character);
            ret->bytes += YAML_BYTES;
            at.column += YAML_BYTES;
            i += PAIR_BYTES;
            if (!remember(ret, &room, at))
                return -1;
            continue;
        }
        /* A backslash takes the next character with it, so that \" ends no string. */
        size_t taken = quoted && text[i] == '\\' && i + 1 < bytes && text[i + 1] != '\n' ? 2 : 1;
        if (taken == 1 && text[i] == '"')
            quoted = !quoted;
        for (; taken > 0; taken--, i++) {
            ret->text[ret->bytes++] = text[i];
            at.column += ((unsigned char)text[i] & 0xc0) != 0x80;
            if (text[i] == '\n')
                at = (struct escape_place){ at.line + 1, 0 };
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
