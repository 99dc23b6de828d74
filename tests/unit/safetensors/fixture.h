/* fixture.h - an empty directory for each test, and safetensors files written by hand, without the
 * writer under test. */
#ifndef RANKFIT_TESTS_UNIT_SAFETENSORS_FIXTURE_H
#define RANKFIT_TESTS_UNIT_SAFETENSORS_FIXTURE_H

#include "base/diag.h"

#include <stddef.h>
#include <stdint.h>

/* cmocka's setup and teardown: the test runs inside a directory of its own. */
int fixture_enter(void **state);
int fixture_leave(void **state);

/* How many names the directory holds. */
int fixture_count_names(void);

void fixture_put(const char *path, const void *data, size_t bytes);

/* Length, header as it is, then `data_bytes` bytes 0, 1, 2... */
void fixture_put_tensors(const char *path, const char *header, size_t data_bytes);

/* The diagnostics of an attempt, appended to a transcript: "== title", then each as printed. */
struct transcript {
    char text[32768];
    size_t used;
};
void fixture_note(struct transcript *transcript, const char *title, const struct diag_list *errors);

/* Opens `path`, which must be refused, and notes why. */
void fixture_refuse(struct transcript *transcript, const char *title, const char *path);

#endif
