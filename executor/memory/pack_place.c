#include "executor/memory/pack_place.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

/* Time is cut into slots of equal length, each with a shelf of the placed items that are live in
 * it. Most items live within one slot and are compared with that shelf only; those that live in
 * several are compared with all, of which only what came since the last such look is not sorted. */
enum { SLOT_EVENTS = 64 };

/* What else there is to do, in comparisons: for an item, and for so many that are moved up to make
 * room for it. */
enum { PLACING = 16, MOVED_A_COMPARISON = 16 };

struct placed {
    uint64_t offset, end;
    uint32_t first, last;
};

/* Sorted by offset. */
struct shelf {
    struct placed *at;
    size_t count;
};

struct pack_placer {
    const struct pack_item *items;
    size_t count, fixed, slots;
    uint32_t begin;
    struct shelf *shelves; /* one a slot */
    struct shelf all;
    size_t sorted; /* of all */
    struct placed *room, *spare;
    uint64_t effort;
};

static size_t slot_of(const struct pack_placer *placer, uint32_t event)
{
    return (event - placer->begin) / SLOT_EVENTS;
}

static size_t last_slot(const struct pack_placer *placer, const struct pack_item *item)
{
    return slot_of(placer, item->last - 1);
}

static void span(struct pack_placer *placer)
{
    uint32_t end = 0;
    placer->begin = UINT32_MAX;
    for (size_t i = 0; i < placer->count; i++) {
        if (placer->items[i].first < placer->begin)
            placer->begin = placer->items[i].first;
        if (placer->items[i].last > end)
            end = placer->items[i].last;
    }
    placer->slots = placer->count ? slot_of(placer, end - 1) + 1 : 0;
}

/* Cuts one block into the shelves, each as long as all its items need. */
static int open_shelves(struct pack_placer *placer)
{
    size_t total = 2 * placer->count, used = total;
    placer->shelves = calloc(placer->slots + 1, sizeof *placer->shelves);
    if (!placer->shelves)
        return -1;
    for (size_t i = 0; i < placer->count; i++)
        for (size_t s = slot_of(placer, placer->items[i].first);
             s <= last_slot(placer, &placer->items[i]); s++, total++)
            placer->shelves[s].count++;
    placer->room = calloc(total + 1, sizeof *placer->room);
    if (!placer->room)
        return -1;
    placer->all.at = placer->room;
    placer->spare = placer->room + placer->count;
    for (size_t s = 0; s < placer->slots; s++) {
        placer->shelves[s].at = placer->room + used;
        used += placer->shelves[s].count;
    }
    return 0;
}

struct pack_placer *pack_placer_open(const struct pack_item *items, size_t count, size_t fixed)
{
    struct pack_placer *placer = calloc(1, sizeof *placer);
    if (!placer)
        return NULL;
    placer->items = items;
    placer->count = count;
    placer->fixed = fixed;
    span(placer);
    if (open_shelves(placer) == 0)
        return placer;
    pack_placer_close(placer);
    return NULL;
}

void pack_placer_close(struct pack_placer *placer)
{
    if (!placer)
        return;
    free(placer->shelves);
    free(placer->room);
    free(placer);
}

/* A gap among the shelf's items that share a moment with `item`; above them all when there is none.
 */
static uint64_t find_gap(const struct shelf *shelf, const struct pack_item *item, enum pack_fit fit)
{
    uint64_t top = 0, best = 0, best_size = UINT64_MAX;
    for (const struct placed *p = shelf->at; p < shelf->at + shelf->count; p++) {
        if (p->first >= item->last || item->first >= p->last)
            continue;
        uint64_t gap = p->offset > top ? p->offset - top : 0;
        if (gap >= item->bytes && gap < best_size) {
            best_size = gap;
            best = top;
            if (fit == PACK_FIT_LOWEST)
                break;
        }
        if (p->end > top)
            top = p->end;
    }
    return best_size == UINT64_MAX ? top : best;
}

/* Returns what it cost. */
static uint64_t shelve(struct shelf *shelf, const struct placed *placed)
{
    size_t low = 0, high = shelf->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (shelf->at[middle].offset <= placed->offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(shelf->at + low + 1, shelf->at + low, (shelf->count - low) * sizeof *shelf->at);
    shelf->at[low] = *placed;
    shelf->count++;
    return 1 + (shelf->count - low) / MOVED_A_COMPARISON;
}

static int compare_offset(const void *left, const void *right)
{
    const struct placed *a = left, *b = right;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Sorts what came last and merges it with the rest, from the back. */
static const struct shelf *sort_all(struct pack_placer *placer)
{
    struct placed *at = placer->all.at, *tail = placer->spare;
    size_t left = placer->sorted, right = placer->all.count - left;

    memcpy(tail, at + left, right * sizeof *tail);
    qsort(tail, right, sizeof *tail, compare_offset);
    for (size_t to = placer->all.count; right > 0; to--) {
        if (left > 0 && at[left - 1].offset > tail[right - 1].offset)
            at[to - 1] = at[--left];
        else
            at[to - 1] = tail[--right];
    }
    placer->sorted = placer->all.count;
    placer->effort += placer->all.count;
    return &placer->all;
}

/* Among what lives together with the item. */
static uint64_t choose_offset(struct pack_placer *placer, const struct pack_item *item,
                              enum pack_fit fit)
{
    size_t first = slot_of(placer, item->first), last = last_slot(placer, item);
    const struct shelf *shelf = first == last ? &placer->shelves[first] : sort_all(placer);
    placer->effort += shelf->count + PLACING;
    return find_gap(shelf, item, fit);
}

static struct placed place(struct pack_placer *placer, size_t index, enum pack_fit fit)
{
    const struct pack_item *item = &placer->items[index];
    uint64_t offset = index < placer->fixed ? item->offset : choose_offset(placer, item, fit);
    struct placed ret = { offset, add_sat(offset, item->bytes), item->first, item->last };

    placer->all.at[placer->all.count++] = ret;
    for (size_t s = slot_of(placer, item->first); s <= last_slot(placer, item); s++)
        placer->effort += shelve(&placer->shelves[s], &ret);
    return ret;
}

uint64_t pack_placer_run(struct pack_placer *placer, const uint32_t *order, enum pack_fit fit,
                         uint64_t *offsets)
{
    uint64_t extent = 0;
    placer->all.count = placer->sorted = 0;
    for (size_t s = 0; s < placer->slots; s++)
        placer->shelves[s].count = 0;
    for (size_t i = 0; i < placer->count; i++) {
        struct placed placed = { 0 };
        if (placer->items[order[i]].bytes > 0)
            placed = place(placer, order[i], fit);
        offsets[order[i]] = placed.offset;
        if (order[i] >= placer->fixed && placed.end > extent)
            extent = placed.end;
    }
    return extent;
}

uint64_t pack_placer_effort(const struct pack_placer *placer)
{
    return placer->effort;
}
