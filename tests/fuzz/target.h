/* target.h - what a fuzz target is: one function fed with bytes, run by libFuzzer or by replay.c.
 * A target must neither crash nor abort, whatever the bytes; a broken promise of the reader (what
 * it accepts it must write and accept again) is reported by fuzz_require. */
#ifndef RANKFIT_TESTS_FUZZ_TARGET_H
#define RANKFIT_TESTS_FUZZ_TARGET_H

#include "base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Always returns 0. The name is libFuzzer's. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The bytes as a file for readers that take a path. ret: at least FUZZ_PATH_BYTES. Returns the
 * handle that keeps the file alive until it is closed. */
enum { FUZZ_PATH_BYTES = 64 };
int fuzz_file(const uint8_t *data, size_t bytes, char *ret);

/* Aborts, saying which promise was broken and what the diagnostics were. errors may be NULL. */
_Noreturn void fuzz_broken(const char *promise, const struct diag_list *errors);

static inline void fuzz_require(bool kept, const char *promise, const struct diag_list *errors)
{
    if (!kept)
        fuzz_broken(promise, errors);
}

/* Aborts unless a reader's status agrees with its diagnostics: an error is told, and what is told
 * as an error is one. */
void fuzz_require_told(int status, const struct diag_list *errors);

#endif
