#include "executor/memory/pack_search.h"

#include "base/checked.h"
#include "executor/memory/pack_place.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* An item's rank in the order of placing: higher keys first, ties in the order of taking. */
struct ordered {
    double key;
    uint32_t index;
};

struct search {
    const struct pack_task *task;
    struct pack_placer *placer;
    struct ordered *ordered;
    uint32_t *order, *spare;
    uint64_t *offsets, *best_offsets;
    uint64_t best, random;
};

static double key_lifetime(const struct pack_item *item)
{
    return (double)(item->last - item->first);
}

static double key_bytes(const struct pack_item *item)
{
    return (double)item->bytes;
}

static double key_area(const struct pack_item *item)
{
    return key_bytes(item) * key_lifetime(item);
}

static double key_time(const struct pack_item *item)
{
    return 1 / (1 + (double)item->first);
}

static double (*const keys[])(const struct pack_item *item) = { key_lifetime, key_bytes, key_area,
                                                                key_time };
enum { KEY_COUNT = (int)(sizeof keys / sizeof keys[0]) };
_Static_assert(PACK_PLAIN_STARTS == KEY_COUNT * PACK_FIT_COUNT, "every key with every fit");

static int compare_ordered(const void *left, const void *right)
{
    const struct ordered *a = left, *b = right;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Xorshift (Marsaglia 2003), 13-7-17. */
double pack_draw(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (double)(*random >> 11) * 0x1p-53;
}

/* The order of a start; noise makes each key up to twice itself. */
static enum pack_fit begin(struct search *s, int start)
{
    const struct pack_task *task = s->task;
    for (size_t i = 0; i < task->count; i++) {
        double noise = start < PACK_PLAIN_STARTS ? 1 : 1 + pack_draw(&s->random);
        double key = i < task->fixed ? 2e300 : keys[start % KEY_COUNT](&task->items[i]) * noise;
        s->ordered[i] = (struct ordered){ key, (uint32_t)i };
    }
    qsort(s->ordered, task->count, sizeof *s->ordered, compare_ordered);
    for (size_t i = 0; i < task->count; i++)
        s->order[i] = s->ordered[i].index;
    return (enum pack_fit)(start / KEY_COUNT % PACK_FIT_COUNT);
}

static bool is_above(const struct search *s, uint32_t index)
{
    const struct pack_task *task = s->task;
    return add_sat(s->offsets[index], task->items[index].bytes) > task->target;
}

/* What ended above the target goes to the front, behind the fixed ones. */
static void blame(struct search *s)
{
    const struct pack_task *task = s->task;
    size_t used = task->fixed;
    memcpy(s->spare, s->order, used * sizeof *s->order);
    for (int above = 1; above >= 0; above--)
        for (size_t i = task->fixed; i < task->count; i++)
            if (is_above(s, s->order[i]) == above)
                s->spare[used++] = s->order[i];
    uint32_t *order = s->order;
    s->order = s->spare;
    s->spare = order;
}

static bool is_over(const struct search *s)
{
    return s->best <= s->task->target || pack_placer_effort(s->placer) >= s->task->effort;
}

/* One start, and placings as long as they better it. */
static void follow(struct search *s, int start)
{
    enum pack_fit fit = begin(s, start);
    uint64_t own_best = UINT64_MAX;
    for (int idle = 0; idle < s->task->patience; idle++) {
        uint64_t extent = pack_placer_run(s->placer, s->order, fit, s->offsets);
        if (extent <= s->best) {
            s->best = extent;
            memcpy(s->best_offsets, s->offsets, s->task->count * sizeof *s->offsets);
        }
        if (is_over(s))
            return;
        if (extent < own_best) {
            own_best = extent;
            idle = 0;
        }
        blame(s);
    }
}

static bool open_search(struct search *s)
{
    size_t count = s->task->count;
    s->placer = pack_placer_open(s->task->items, count, s->task->fixed);
    s->ordered = calloc(count, sizeof *s->ordered);
    s->order = calloc(count, sizeof *s->order);
    s->spare = calloc(count, sizeof *s->spare);
    s->offsets = calloc(count, sizeof *s->offsets);
    s->best_offsets = calloc(count, sizeof *s->best_offsets);
    return s->placer && s->ordered && s->order && s->spare && s->offsets && s->best_offsets;
}

static void close_search(struct search *s)
{
    pack_placer_close(s->placer);
    free(s->ordered);
    free(s->order);
    free(s->spare);
    free(s->offsets);
    free(s->best_offsets);
}

int pack_search(struct pack_task *task, uint64_t *ret_extent)
{
    struct search s = { .task = task, .best = UINT64_MAX, .random = task->random };
    int status = open_search(&s) ? 0 : -1;
    int start = task->first_start, end = start + task->starts;
    if (status == 0) {
        do
            follow(&s, start++);
        while (start < end && !is_over(&s));
        for (size_t i = 0; i < task->count; i++)
            task->items[i].offset = s.best_offsets[i];
        uint64_t spent = pack_placer_effort(s.placer);
        task->effort -= spent < task->effort ? spent : task->effort;
        task->random = s.random;
    }
    close_search(&s);
    *ret_extent = s.best;
    return status;
}
