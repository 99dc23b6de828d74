#include "executor/memory/pack.h"

#include "base/checked.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Above this many items only the first order is tried, which keeps packing quadratic with a small
 * constant. */
enum { PACK_TRY_ALL = 4096 };

struct placed {
    uint64_t offset, end;
    uint32_t first, last;
};

/* An item's rank in the order of placing: higher keys first, ties in the order of taking. */
struct ordered {
    double key;
    uint32_t index;
};

static double key_bytes(const struct pack_item *item)
{
    return (double)item->bytes;
}

static double key_lifetime(const struct pack_item *item)
{
    return (double)(item->last - item->first);
}

static double key_area(const struct pack_item *item)
{
    return (double)item->bytes * (double)(item->last - item->first);
}

static double key_time(const struct pack_item *item)
{
    return -(double)item->first;
}

static double (*const keys[])(const struct pack_item *item) = { key_bytes, key_area, key_lifetime,
                                                                key_time };
enum { KEY_COUNT = (int)(sizeof keys / sizeof keys[0]) };

static int compare_ordered(const void *left, const void *right)
{
    const struct ordered *a = left, *b = right;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* The smallest gap that fits among the placed items that share a moment with `item`; above them all
 * when there is none. placed is sorted by offset. */
static uint64_t best_gap(const struct placed *placed, size_t count, const struct pack_item *item)
{
    uint64_t top = 0, best = 0, best_size = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (placed[i].first >= item->last || item->first >= placed[i].last)
            continue;
        if (placed[i].offset > top) {
            uint64_t gap = placed[i].offset - top;
            if (gap >= item->bytes && gap < best_size) {
                best_size = gap;
                best = top;
            }
        }
        if (placed[i].end > top)
            top = placed[i].end;
    }
    return best_size == UINT64_MAX ? top : best;
}

static size_t upper_bound(const struct placed *placed, size_t count, uint64_t offset)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (placed[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t place_in_order(struct pack_item *items, const struct ordered *order, size_t count,
                               struct placed *placed)
{
    uint64_t extent = 0;
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        struct pack_item *item = &items[order[i].index];
        item->offset = 0;
        if (item->bytes == 0)
            continue;
        item->offset = best_gap(placed, used, item);
        uint64_t end = add_sat(item->offset, item->bytes);
        size_t at = upper_bound(placed, used, item->offset);
        memmove(placed + at + 1, placed + at, (used - at) * sizeof *placed);
        placed[at] = (struct placed){ item->offset, end, item->first, item->last };
        used++;
        if (end > extent)
            extent = end;
    }
    return extent;
}

/* Tries the orders one after another until one meets the live peak, and keeps the best. */
static uint64_t try_orders(struct pack_item *items, size_t count, uint64_t peak,
                           struct ordered *order, struct placed *placed, uint64_t *best_offsets)
{
    uint64_t best = UINT64_MAX;
    int tries = count > PACK_TRY_ALL ? 1 : KEY_COUNT;
    for (int t = 0; t < tries && best > peak; t++) {
        for (size_t i = 0; i < count; i++)
            order[i] = (struct ordered){ keys[t](&items[i]), (uint32_t)i };
        qsort(order, count, sizeof *order, compare_ordered);
        uint64_t extent = place_in_order(items, order, count, placed);
        if (t > 0 && extent >= best)
            continue;
        best = extent;
        for (size_t i = 0; i < count; i++)
            best_offsets[i] = items[i].offset;
    }
    for (size_t i = 0; i < count; i++)
        items[i].offset = best_offsets[i];
    return best;
}

int pack_items(struct pack_item *items, size_t count, uint64_t *ret_extent)
{
    *ret_extent = 0;
    if (count == 0)
        return 0;
    uint64_t peak;
    struct ordered *order = malloc(count * sizeof *order);
    struct placed *placed = malloc(count * sizeof *placed);
    uint64_t *offsets = calloc(count, sizeof *offsets);
    int status = -1;
    if (order && placed && offsets && pack_live_peak(items, count, &peak) == 0) {
        *ret_extent = try_orders(items, count, peak, order, placed, offsets);
        status = 0;
    }
    free(order);
    free(placed);
    free(offsets);
    return status;
}

struct change {
    uint32_t event;
    bool begins;
    uint64_t bytes;
};

/* At one event what ends goes before what begins. */
static int compare_change(const void *left, const void *right)
{
    const struct change *a = left, *b = right;
    if (a->event != b->event)
        return a->event < b->event ? -1 : 1;
    return (int)a->begins - (int)b->begins;
}

int pack_live_peak(const struct pack_item *items, size_t count, uint64_t *ret_peak)
{
    *ret_peak = 0;
    if (count == 0)
        return 0;
    struct change *changes = malloc(2 * count * sizeof *changes);
    if (!changes)
        return -1;
    for (size_t i = 0; i < count; i++) {
        changes[2 * i] = (struct change){ items[i].first, true, items[i].bytes };
        changes[2 * i + 1] = (struct change){ items[i].last, false, items[i].bytes };
    }
    qsort(changes, 2 * count, sizeof *changes, compare_change);
    uint64_t live = 0;
    for (size_t i = 0; i < 2 * count; i++) {
        live = changes[i].begins ? add_sat(live, changes[i].bytes) : live - changes[i].bytes;
        if (live > *ret_peak)
            *ret_peak = live;
    }
    free(changes);
    return 0;
}
