#include "executor/memory/pack_search.h"

#include "base/checked.h"
#include "executor/memory/pack_place.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The first search has one part in SEARCH_SHARE of all effort; a neighbourhood may cost
 * REPAIR_EFFORT. */
enum {
    REPAIR_EFFORT = 1000000,
    REPAIR_STARTS = 4,
    REPAIR_PATIENCE = 20,
    SEARCH_SHARE = 8,
    SHORTEST_WINDOW = 16,
    WINDOW_DOUBLINGS = 5,
    REPAIRS_A_KICK = 12
};

/* A part of the items as a task of its own: first what reaches out of the window and stays where it
 * is, then what lives wholly within. */
struct part {
    struct pack_item *items;
    size_t *places; /* of each in the whole */
    size_t count, fixed;
};

struct by_offset {
    uint64_t offset;
    uint32_t index;
};

struct repair {
    struct pack_task *whole;
    struct part part;
    struct pack_placer *placer;
    struct by_offset *sorted;
    uint32_t *order;
    uint64_t *offsets, *best_offsets;
    uint64_t top, best; /* ends of the highest item: now, and with the best offsets */
};

static size_t highest(const struct pack_task *whole, uint64_t *ret_end)
{
    size_t ret = 0;
    *ret_end = 0;
    for (size_t i = 0; i < whole->count; i++) {
        uint64_t end = add_sat(whole->items[i].offset, whole->items[i].bytes);
        if (whole->items[i].bytes > 0 && end > *ret_end) {
            *ret_end = end;
            ret = i;
        }
    }
    return ret;
}

static void cut_out(const struct pack_task *whole, uint32_t first, uint32_t last, struct part *ret)
{
    ret->count = 0;
    for (int within = 0; within <= 1; within++) {
        ret->fixed = within ? ret->fixed : 0;
        for (size_t i = 0; i < whole->count; i++) {
            const struct pack_item *item = &whole->items[i];
            bool meets = item->first < last && first < item->last;
            if (!meets || (item->first >= first && item->last <= last) != within)
                continue;
            ret->items[ret->count] = *item;
            ret->places[ret->count++] = i;
        }
        if (!within)
            ret->fixed = ret->count;
    }
}

/* The neighbourhood of an item: a window of drawn width around its life. */
static void cut_around(struct pack_task *whole, const struct pack_item *item, struct part *ret)
{
    uint32_t width = SHORTEST_WINDOW << (int)(pack_draw(&whole->random) * WINDOW_DOUBLINGS);
    uint32_t first = item->first > width ? item->first - width : 0;
    uint32_t last = item->last < UINT32_MAX - width ? item->last + width : UINT32_MAX;
    cut_out(whole, first, last, ret);
}

static void spend(struct pack_task *whole, uint64_t spent)
{
    whole->effort -= spent < whole->effort ? spent : whole->effort;
}

/* Packs the neighbourhood of what is highest anew and keeps that unless it is higher. What it costs
 * to gather a part is spent as well. */
static int repair_top(struct repair *r)
{
    struct pack_task *whole = r->whole;
    struct part *part = &r->part;
    uint64_t extent;
    cut_around(whole, &whole->items[highest(whole, &r->top)], part);
    uint64_t allowed = whole->effort < REPAIR_EFFORT ? whole->effort : REPAIR_EFFORT;
    double start = PACK_PLAIN_STARTS + pack_draw(&whole->random) * PACK_PLAIN_STARTS;
    struct pack_task task = { .items = part->items,
                              .count = part->count,
                              .fixed = part->fixed,
                              .target = whole->target,
                              .effort = allowed,
                              .first_start = (int)start,
                              .starts = REPAIR_STARTS,
                              .patience = REPAIR_PATIENCE,
                              .random = whole->random };
    if (pack_search(&task, &extent) != 0)
        return -1;
    for (size_t i = part->fixed; i < part->count && extent <= r->top; i++)
        whole->items[part->places[i]].offset = part->items[i].offset;
    spend(whole, allowed - task.effort + whole->count);
    whole->random = task.random;
    (void)highest(whole, &r->top);
    return 0;
}

static int compare_offset(const void *left, const void *right)
{
    const struct by_offset *a = left, *b = right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* All items from the lowest up, but the highest at a drawn place before, mostly early. */
static void order_kicked(struct repair *r)
{
    const struct pack_task *whole = r->whole;
    uint32_t moved = (uint32_t)highest(whole, &r->top);
    size_t used = 0, left = whole->count;
    for (size_t i = 0; i < whole->count; i++)
        r->sorted[i] = (struct by_offset){ whole->items[i].offset, (uint32_t)i };
    qsort(r->sorted, whole->count, sizeof *r->sorted, compare_offset);
    double share = pack_draw(&r->whole->random) * pack_draw(&r->whole->random);
    size_t place = (size_t)(share * (double)left);
    for (size_t i = 0; i < left; i++) {
        if (used == place)
            r->order[used++] = moved;
        if (r->sorted[i].index != moved)
            r->order[used++] = r->sorted[i].index;
    }
    if (used < left)
        r->order[used] = moved;
}

/* Puts all items down anew. From the lowest up that raises none; what the moved one meets has to
 * find another place. */
static void kick(struct repair *r)
{
    struct pack_task *whole = r->whole;
    uint64_t before = pack_placer_effort(r->placer);
    order_kicked(r);
    r->top = pack_placer_run(r->placer, r->order, PACK_FIT_LOWEST, r->offsets);
    for (size_t i = 0; i < whole->count; i++)
        whole->items[i].offset = r->offsets[i];
    spend(whole, pack_placer_effort(r->placer) - before + whole->count);
}

/* Keeps what is there when it is no worse than the best, else returns to that. */
static void settle(struct repair *r)
{
    bool keeps = r->top <= r->best;
    for (size_t i = 0; i < r->whole->count; i++) {
        if (keeps)
            r->best_offsets[i] = r->whole->items[i].offset;
        else
            r->whole->items[i].offset = r->best_offsets[i];
    }
    r->best = keeps ? r->top : r->best;
}

static int repair(struct repair *r)
{
    const struct pack_task *whole = r->whole;
    settle(r);
    while (r->best > whole->target && whole->effort > 0) {
        for (int i = 0; i < REPAIRS_A_KICK && r->top > whole->target && whole->effort > 0; i++)
            if (repair_top(r) != 0)
                return -1;
        settle(r);
        if (r->best > whole->target)
            kick(r);
    }
    settle(r);
    return 0;
}

static bool open_repair(struct repair *r)
{
    size_t count = r->whole->count;
    r->part.items = calloc(count, sizeof *r->part.items);
    r->part.places = calloc(count, sizeof *r->part.places);
    r->placer = pack_placer_open(r->whole->items, count, 0);
    r->sorted = calloc(count, sizeof *r->sorted);
    r->order = calloc(count, sizeof *r->order);
    r->offsets = calloc(count, sizeof *r->offsets);
    r->best_offsets = calloc(count, sizeof *r->best_offsets);
    return r->part.items && r->part.places && r->placer && r->sorted && r->order && r->offsets &&
           r->best_offsets;
}

static void close_repair(struct repair *r)
{
    free(r->part.items);
    free(r->part.places);
    pack_placer_close(r->placer);
    free(r->sorted);
    free(r->order);
    free(r->offsets);
    free(r->best_offsets);
}

int pack_search_and_repair(struct pack_task *task, uint64_t *ret_extent)
{
    uint64_t kept = task->effort - task->effort / SEARCH_SHARE;
    task->effort -= kept;
    int status = pack_search(task, ret_extent);
    task->effort += kept;
    if (status != 0 || *ret_extent <= task->target || task->effort == 0)
        return status;
    struct repair r = { .whole = task, .top = *ret_extent, .best = *ret_extent };
    status = open_repair(&r) ? repair(&r) : -1;
    close_repair(&r);
    *ret_extent = r.best;
    return status;
}
