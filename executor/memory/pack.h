/* pack.h - places intervals of time on a line of bytes so that no two that live together overlap.
 * Knows neither owners nor pointers. */
#ifndef RANKFIT_EXECUTOR_MEMORY_PACK_H
#define RANKFIT_EXECUTOR_MEMORY_PACK_H

#include <stddef.h>
#include <stdint.h>

/* Live from event `first` until just before event `last` (first < last). */
struct pack_item {
    uint32_t first, last;
    uint64_t bytes;  /* a multiple of the alignment; 0 takes no place */
    uint64_t offset; /* out */
};

/* Fills the offsets and *ret_extent, the end of the highest item: never below the live peak, and
 * mostly not above it by more than a MiB and a 2^-14th. The same items get the same offsets; a
 * packing that is hard to find costs some tenths of a second. -1 when host memory is short. */
int pack_items(struct pack_item *items, size_t count, uint64_t *ret_extent);

/* The largest sum of bytes live at one event: no packing can be smaller. -1 when host memory is
 * short. */
int pack_live_peak(const struct pack_item *items, size_t count, uint64_t *ret_peak);

#endif
