/* fixture.h - safetensors files written by hand, without the writer under test. */
#ifndef RANKFIT_TESTS_UNIT_SAFETENSORS_FIXTURE_H
#define RANKFIT_TESTS_UNIT_SAFETENSORS_FIXTURE_H

#include "base/diag.h"

#include <stddef.h>
#include <stdint.h>

/* Length, header as it is, then `data_bytes` bytes 0, 1, 2... */
void fixture_put_tensors(const char *path, const char *header, size_t data_bytes);

/* Adds the diagnostics of an attempt to the golden text: "# title", then each as printed. */
void fixture_note(const char *title, const struct diag_list *errors);

/* Opens `path`, which must be refused, and notes why. */
void fixture_refuse(const char *title, const char *path);

#endif
