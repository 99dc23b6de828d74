#include "executor/memory/pack.h"

#include "base/checked.h"
#include "executor/memory/pack_search.h"

#include <stdbool.h>
#include <stdlib.h>

/* Comparisons that a packing may cost: some tenths of a second. */
#define PACK_EFFORT UINT64_C(120000000)
enum { PACK_PATIENCE = 20 };

/* An extent that is as good as the least: what is above it would not show. */
static uint64_t good_enough(uint64_t bytes)
{
    return add_sat(bytes, (UINT64_C(1) << 20) + (bytes >> 14));
}

/* An item in the order of time. */
struct timed {
    struct pack_item *item;
};

static int compare_first(const void *left, const void *right)
{
    const struct pack_item *a = ((const struct timed *)left)->item;
    const struct pack_item *b = ((const struct timed *)right)->item;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Items between two moments at which nothing is live: their packing is nobody else's business. A
 * step's micro-batches are such runs, mostly alike. */
struct run {
    const struct timed *items;
    size_t count;
};

static struct run next_run(const struct timed *items, size_t count)
{
    struct run ret = { items, 0 };
    for (uint32_t last = 0; ret.count < count; ret.count++) {
        const struct pack_item *item = items[ret.count].item;
        if (ret.count > 0 && item->first >= last)
            break;
        if (item->last > last)
            last = item->last;
    }
    return ret;
}

static bool are_alike(const struct run *a, const struct run *b)
{
    if (a->count != b->count)
        return false;
    uint32_t shift = a->count ? b->items[0].item->first - a->items[0].item->first : 0;
    for (size_t i = 0; i < a->count; i++) {
        const struct pack_item *here = a->items[i].item, *there = b->items[i].item;
        if (here->bytes != there->bytes || here->first + shift != there->first ||
            here->last + shift != there->last)
            return false;
    }
    return true;
}

/* Packs a run by way of `room`, where its items stand side by side. */
static int pack_run(const struct run *run, struct pack_item *room, uint64_t target,
                    uint64_t *effort, uint64_t *ret_extent)
{
    for (size_t i = 0; i < run->count; i++)
        room[i] = *run->items[i].item;
    struct pack_task task = { .items = room,
                              .count = run->count,
                              .target = target,
                              .effort = *effort,
                              .starts = PACK_PLAIN_STARTS,
                              .patience = PACK_PATIENCE,
                              .random = UINT64_C(0x9e3779b97f4a7c15) };
    if (pack_search_and_repair(&task, ret_extent) != 0)
        return -1;
    for (size_t i = 0; i < run->count; i++)
        run->items[i].item->offset = room[i].offset;
    *effort = task.effort;
    return 0;
}

/* A run need not be packed below what another one needs. */
static int pack_runs(const struct timed *sorted, struct pack_item *room, size_t count,
                     uint64_t peak, uint64_t *ret_extent)
{
    struct run before = { sorted, 0 };
    uint64_t effort = PACK_EFFORT, extent = 0;
    for (size_t done = 0; done < count; done += before.count) {
        struct run run = next_run(sorted + done, count - done);
        uint64_t target = good_enough(peak > *ret_extent ? peak : *ret_extent);
        if (are_alike(&before, &run))
            for (size_t i = 0; i < run.count; i++)
                run.items[i].item->offset = before.items[i].item->offset;
        else if (pack_run(&run, room, target, &effort, &extent) != 0)
            return -1;
        if (extent > *ret_extent)
            *ret_extent = extent;
        before = run;
    }
    return 0;
}

int pack_items(struct pack_item *items, size_t count, uint64_t *ret_extent)
{
    *ret_extent = 0;
    if (count == 0)
        return 0;
    uint64_t peak;
    struct timed *sorted = calloc(count, sizeof *sorted);
    struct pack_item *room = calloc(count, sizeof *room);
    int status = -1;
    if (sorted && room && pack_live_peak(items, count, &peak) == 0) {
        for (size_t i = 0; i < count; i++)
            sorted[i].item = &items[i];
        qsort(sorted, count, sizeof *sorted, compare_first);
        status = pack_runs(sorted, room, count, peak, ret_extent);
    }
    free(sorted);
    free(room);
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
