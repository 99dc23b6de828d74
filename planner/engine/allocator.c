#include "planner/engine/allocator.h"

#include "base/checked.h"

#include <stdlib.h>

enum { MIN_BLOCK = 512, SMALL_MOST = 1 << 20, SMALL_SEGMENT = 2 << 20 };
enum { LARGE_LEAST = 10 << 20, LARGE_SEGMENT = 20 << 20, LARGE_ROUND = 2 << 20 };

/* Blocks of a segment are a chain by address; free blocks of a size class a chain of their own. */
struct allocator_block {
    uint64_t bytes;
    int before, after; /* in the segment */
    int previous_free, next_free;
    uint8_t pool; /* 0 small, 1 large */
    bool in_use;
};

void allocator_init(struct allocator *allocator)
{
    *allocator = (struct allocator){ .free_slot = -1 };
    for (int pool = 0; pool < 2; pool++)
        for (int i = 0; i < 64; i++)
            allocator->first_free[pool][i] = -1;
}

void allocator_done(struct allocator *allocator)
{
    free(allocator->blocks);
    allocator_init(allocator);
}

uint64_t allocator_rounded(uint64_t bytes)
{
    return bytes < MIN_BLOCK ? MIN_BLOCK : round_up_to(bytes, MIN_BLOCK);
}

static int size_class(uint64_t bytes)
{
    return 63 - __builtin_clzll(bytes);
}

static void list_free(struct allocator *a, int at)
{
    struct allocator_block *block = &a->blocks[at];
    int *first = &a->first_free[block->pool][size_class(block->bytes)];
    block->in_use = false;
    block->previous_free = -1;
    block->next_free = *first;
    if (*first >= 0)
        a->blocks[*first].previous_free = at;
    *first = at;
}

static void unlist(struct allocator *a, int at)
{
    const struct allocator_block *block = &a->blocks[at];
    if (block->next_free >= 0)
        a->blocks[block->next_free].previous_free = block->previous_free;
    if (block->previous_free >= 0)
        a->blocks[block->previous_free].next_free = block->next_free;
    else
        a->first_free[block->pool][size_class(block->bytes)] = block->next_free;
}

static int new_block(struct allocator *a)
{
    if (a->free_slot >= 0) {
        int ret = a->free_slot;
        a->free_slot = a->blocks[ret].next_free;
        return ret;
    }
    if (a->count == a->room) {
        int room = a->room > 0 ? 2 * a->room : 256;
        void *list = realloc(a->blocks, (size_t)room * sizeof *a->blocks);
        if (!list) {
            a->failed = true;
            return -1;
        }
        a->blocks = list;
        a->room = room;
    }
    return a->count++;
}

static void drop_slot(struct allocator *a, int at)
{
    a->blocks[at].next_free = a->free_slot;
    a->free_slot = at;
}

/* The smallest free block of at least `bytes`. Of equal ones PyTorch takes the lowest address; here
 * the order of slots stands for it. */
static int best_fit(const struct allocator *a, int pool, uint64_t bytes)
{
    int best = -1;
    for (int i = size_class(bytes); i < 64 && best < 0; i++)
        for (int at = a->first_free[pool][i]; at >= 0; at = a->blocks[at].next_free) {
            uint64_t size = a->blocks[at].bytes;
            if (size >= bytes && (best < 0 || size < a->blocks[best].bytes ||
                                  (size == a->blocks[best].bytes && at < best)))
                best = at;
        }
    return best;
}

static uint64_t segment_bytes(int pool, uint64_t bytes)
{
    if (pool == 0)
        return SMALL_SEGMENT;
    return bytes < LARGE_LEAST ? LARGE_SEGMENT : round_up_to(bytes, LARGE_ROUND);
}

static int new_segment(struct allocator *a, int pool, uint64_t bytes)
{
    int at = new_block(a);
    if (at < 0)
        return -1;
    a->blocks[at] = (struct allocator_block){
        .bytes = segment_bytes(pool, bytes), .before = -1, .after = -1, .pool = (uint8_t)pool
    };
    a->reserved_bytes += a->blocks[at].bytes;
    if (a->reserved_bytes > a->reserved_peak_bytes)
        a->reserved_peak_bytes = a->reserved_bytes;
    return at;
}

static void split(struct allocator *a, int at, uint64_t bytes)
{
    uint64_t rest = a->blocks[at].bytes - bytes;
    bool splits = a->blocks[at].pool == 0 ? rest >= MIN_BLOCK : rest > SMALL_MOST;
    int behind = splits ? new_block(a) : -1;
    if (behind < 0)
        return;
    struct allocator_block *block = &a->blocks[at];
    a->blocks[behind] = (struct allocator_block){
        .bytes = rest, .before = at, .after = block->after, .pool = block->pool
    };
    if (block->after >= 0)
        a->blocks[block->after].before = behind;
    block->after = behind;
    block->bytes = bytes;
    list_free(a, behind);
}

int allocator_take(struct allocator *a, uint64_t bytes)
{
    if (bytes == 0)
        return -2;
    uint64_t rounded = allocator_rounded(bytes);
    int pool = rounded <= SMALL_MOST ? 0 : 1, at = best_fit(a, pool, rounded);
    if (at >= 0)
        unlist(a, at);
    else
        at = new_segment(a, pool, rounded);
    if (at < 0)
        return -1;
    split(a, at, rounded);
    a->blocks[at].in_use = true;
    a->allocated_bytes += a->blocks[at].bytes;
    if (a->allocated_bytes > a->allocated_peak_bytes)
        a->allocated_peak_bytes = a->allocated_bytes;
    return at;
}

/* Joins the block behind `at` to it. */
static void merge(struct allocator *a, int at)
{
    int behind = a->blocks[at].after;
    a->blocks[at].bytes += a->blocks[behind].bytes;
    a->blocks[at].after = a->blocks[behind].after;
    if (a->blocks[behind].after >= 0)
        a->blocks[a->blocks[behind].after].before = at;
    drop_slot(a, behind);
}

void allocator_give(struct allocator *a, int at)
{
    if (at < 0)
        return;
    a->allocated_bytes -= a->blocks[at].bytes;
    int after = a->blocks[at].after, before = a->blocks[at].before;
    if (after >= 0 && !a->blocks[after].in_use) {
        unlist(a, after);
        merge(a, at);
    }
    if (before >= 0 && !a->blocks[before].in_use) {
        unlist(a, before);
        merge(a, before);
        at = before;
    }
    list_free(a, at);
}
