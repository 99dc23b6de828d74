/* fixture.h - models for the tests of base/model: a configuration of tests/data/configs with some
 * of its text replaced, read as if it were a file. */
#ifndef RANKFIT_TESTS_UNIT_MODEL_FIXTURE_H
#define RANKFIT_TESTS_UNIT_MODEL_FIXTURE_H

#include "base/model/tensor.h"

#include <stddef.h>

/* One replacement; `from` must be in the text. An edit whose from is NULL ends a list. */
struct edit {
    const char *from, *to;
};

/* Reads tests/data/configs/`file` (or ../../../models/...) after the edits.
 * Positions are given as in "config". edits: up to a row with from NULL, or NULL. */
int fixture_read(const char *file, const struct edit *edits, struct model *ret,
                 struct diag_list *reterr);

/* The same for a text. */
int fixture_read_text(const char *text, struct model *ret, struct diag_list *reterr);

/* Must be read without a fault. */
void fixture_model(const char *file, const struct edit *edits, struct model *ret);

/* A model that ships, by name. */
void fixture_shipped(const char *name, struct model *ret);

/* params_total after the edits. */
uint64_t fixture_total(const char *file, const struct edit *edits);

#endif
