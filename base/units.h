/* units.h - the only place where GB, GiB, K, M, percent and milliseconds exist: reading them from
 * people and printing them for people. Code elsewhere holds bytes, tokens, seconds, fractions. */
#ifndef RANKFIT_BASE_UNITS_H
#define RANKFIT_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* "80GB" (1e9), "1.5GiB" (2^30), also kB MB TB KiB MiB TiB B or a bare number of bytes; in any
 * case. Returns -1 for anything else, for negatives and for more than 2^63 - 1. */
int units_parse_bytes(const char *text, uint64_t *ret_bytes);

/* "128K" = 131,072, "1M" = 2^20, or a bare number; K and M, or k and m, are 2^10 and 2^20. -1 as
 * above or 0. */
int units_parse_tokens(const char *text, uint64_t *ret_tokens);

/* "2%" or "0.02" -> 0.02; -1 outside 0..1. */
int units_parse_fraction(const char *text, double *ret_fraction);

/* A whole number with bounds, no trailing characters. */
int units_parse_int(const char *text, int64_t min, int64_t max, int64_t *ret);

/* "32.55 GB"; digits after the point given. Returns buffer. */
char *units_format_gb(char *buffer, size_t size, uint64_t bytes, int decimals);
/* "30.31 GiB" */
char *units_format_gib(char *buffer, size_t size, uint64_t bytes, int decimals);
/* "131,072" */
char *units_format_count(char *buffer, size_t size, uint64_t count);
/* "128K" when a multiple of 1024, else the plain number. */
char *units_format_tokens(char *buffer, size_t size, uint64_t tokens);
/* "12.3 ms", "1.62 s", "840 us": three significant digits. */
char *units_format_seconds(char *buffer, size_t size, double seconds);

#endif
