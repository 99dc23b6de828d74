/* allocator.h - PyTorch's caching allocator for device memory, as its source describes it
 * (c10/cuda/CUDACachingAllocator.cpp, releases 2.1 to 2.11, default settings): sizes in multiples
 * of 512 B; up to 1 MiB from segments of 2 MiB; below 10 MiB from segments of 20 MiB; larger ones
 * from segments of their own in multiples of 2 MiB; the smallest free block that fits; a rest is
 * split off where it is at least 512 B (small) or above 1 MiB (large); neighbors merge when freed.
 * Segments are never given back. */
#ifndef RANKFIT_PLANNER_ENGINE_ALLOCATOR_H
#define RANKFIT_PLANNER_ENGINE_ALLOCATOR_H

#include <stdbool.h>
#include <stdint.h>

struct allocator_block;
struct allocator {
    struct allocator_block *blocks;
    int count, room, free_slot;
    int first_free[2][64]; /* by pool and power of two of the size */
    uint64_t allocated_bytes, reserved_bytes;
    uint64_t allocated_peak_bytes, reserved_peak_bytes;
    bool failed; /* no memory of the planner's own */
};

void allocator_init(struct allocator *allocator);
void allocator_done(struct allocator *allocator);

/* A block of at least `bytes`; -1: the planner has no memory. 0 bytes take no block: -2. */
int allocator_take(struct allocator *allocator, uint64_t bytes);
void allocator_give(struct allocator *allocator, int block);

/* Bytes that a request counts as allocated. */
uint64_t allocator_rounded(uint64_t bytes);

#endif
