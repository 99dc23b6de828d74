/* pack_place.h - places intervals one after another, each into a gap that what was placed before
 * leaves below it. Knows nothing of why an order is good. For packing only. */
#ifndef RANKFIT_EXECUTOR_MEMORY_PACK_PLACE_H
#define RANKFIT_EXECUTOR_MEMORY_PACK_PLACE_H

#include "executor/memory/pack.h"

/* Which of the gaps that are large enough an item takes. */
enum pack_fit { PACK_FIT_LOWEST, PACK_FIT_TIGHTEST, PACK_FIT_COUNT };

struct pack_placer;

/* Borrows the items, of which the first `fixed` keep the offsets they have. NULL when host memory
 * is short. */
struct pack_placer *pack_placer_open(const struct pack_item *items, size_t count, size_t fixed);
void pack_placer_close(struct pack_placer *placer);

/* Places all items in the order given (count different indices, the fixed ones first), writes the
 * offset of each, and returns the end of the highest that is not fixed. Items of 0 bytes are at 0.
 */
uint64_t pack_placer_run(struct pack_placer *placer, const uint32_t *order, enum pack_fit fit,
                         uint64_t *offsets);

/* What was done so far, counted in comparisons with placed items. */
uint64_t pack_placer_effort(const struct pack_placer *placer);

#endif
