/* stored.h - runs kept under tests/data/measured, one file a row: their parts as the readers take
 * them. A part that cannot be read fails the test. */
#ifndef RANKFIT_TESTS_PAIRED_STORED_H
#define RANKFIT_TESTS_PAIRED_STORED_H

#include "base/plan/measurement.h"
#include "base/plan/plan.h"

#include <jansson.h>

/* A plan, its machine replaced by the hardware file of today. */
void stored_plan(const json_t *part, struct plan *ret);
/* measurement_done is due. */
void stored_measurement(const json_t *part, struct measurement *ret);

/* Calls `row` for every NAME.json of a folder beneath tests/data/measured ("": itself), in the
 * order of their names; returns how many there are. */
int stored_each(const char *folder,
                void (*row)(const char *name, const json_t *stored, void *context), void *context);

#endif
