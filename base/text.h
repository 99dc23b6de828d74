/* text.h - small string helpers: nearest spelling and bounded formatting. */
#ifndef RANKFIT_BASE_TEXT_H
#define RANKFIT_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* The candidate that begins with `word` (of several the shortest, but a single letter counts for
 * one candidate only); else the closest by edit distance (transpositions count one), or NULL when
 * none is within half the word's length (at least 1), or the word is empty. Capitals are as good as
 * small letters. names: count entries. */
const char *text_nearest(const char *word, const char *const *names, size_t count);

/* "a, b or c" of count names, appended at *used as text_append does. */
void text_append_names(char *buffer, size_t size, size_t *used, const char *const *names,
                       size_t count);

/* Bytes of the UTF-8 character (Unicode 15, table 3-7) that text begins with, of which `left` are
 * there; 0: none, so overlong forms, surrogates and what is cut. */
size_t text_character_bytes(const char *text, size_t left);
bool text_is_utf8(const char *text);

/* Copies at most size - 1 bytes and terminates; returns -1 when the text was cut. */
int text_copy(char *ret, size_t size, const char *text);

/* Appends printf-style at *used, never past size; a full buffer stays terminated. */
void text_append(char *buffer, size_t size, size_t *used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
