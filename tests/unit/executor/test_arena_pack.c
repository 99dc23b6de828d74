/* Packing: what lives together never overlaps, the extent is the least there is where that can be
 * found by trying everything, near the live peak for traces like a step's, and never below it. */
#include "executor/memory/pack.h"
#include "tests/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ALIGNMENT = 256 };
#define MIB (UINT64_C(1) << 20)

static uint64_t peak_by_counting(const struct pack_item *items, size_t count, uint32_t events)
{
    uint64_t peak = 0;
    for (uint32_t event = 0; event < events; event++) {
        uint64_t live = 0;
        for (size_t i = 0; i < count; i++)
            if (items[i].first <= event && event < items[i].last)
                live += items[i].bytes;
        peak = live > peak ? live : peak;
    }
    return peak;
}

/* Packs, checks every pair, and returns the extent. */
static uint64_t check_pack(struct pack_item *items, size_t count)
{
    uint64_t extent, end = 0;
    assert_int_equal(pack_items(items, count, &extent), 0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(items[i].offset % ALIGNMENT, 0);
        if (items[i].bytes && items[i].offset + items[i].bytes > end)
            end = items[i].offset + items[i].bytes;
        for (size_t j = 0; j < i && items[i].bytes; j++) {
            bool together = items[i].first < items[j].last && items[j].first < items[i].last;
            bool share = items[i].offset < items[j].offset + items[j].bytes &&
                         items[j].offset < items[i].offset + items[i].bytes;
            if (together && share && items[j].bytes)
                fail_msg("items %zu and %zu overlap", j, i);
        }
    }
    assert_int_equal(extent, end);
    return extent;
}

static void test_random_traces(void **state)
{
    (void)state;
    for (uint64_t trial = 1; trial <= 200; trial++) {
        uint64_t seed = trial, peak;
        size_t count = 1 + random_below(&seed, 60);
        struct pack_item items[60];
        uint32_t events = 100;
        for (size_t i = 0; i < count; i++) {
            uint32_t first = (uint32_t)random_below(&seed, events - 1);
            uint32_t last = first + 1 + (uint32_t)random_below(&seed, events - first - 1);
            items[i] = (struct pack_item){ first, last, ALIGNMENT * random_below(&seed, 50), 0 };
        }
        uint64_t extent = check_pack(items, count);
        assert_int_equal(pack_live_peak(items, count, &peak), 0);
        assert_int_equal(peak, peak_by_counting(items, count, events));
        assert_true(extent >= peak);
    }
}

/* The end of an item put as low as the `used` items before it in the order allow. */
static uint64_t put_lowest(struct pack_item *items, const size_t *order, size_t used)
{
    struct pack_item *item = &items[order[used]];
    item->offset = 0;
    for (size_t i = 0; i < used; i++) {
        const struct pack_item *other = &items[order[i]];
        if (other->first < item->last && item->first < other->last &&
            other->offset < item->offset + item->bytes &&
            item->offset < other->offset + other->bytes) {
            item->offset = other->offset + other->bytes;
            i = (size_t)-1; /* look at all of them again */
        }
    }
    return item->offset + item->bytes;
}

/* The least extent there is: the items of the best packing, put down from the lowest up, never end
 * higher than they are, so that some order of putting each as low as it goes is as good. */
static uint64_t least_extent(struct pack_item *items, size_t *order, size_t used, size_t count,
                             uint64_t extent)
{
    uint64_t best = UINT64_MAX;
    if (used == count)
        return extent;
    for (size_t i = used; i < count; i++) {
        size_t kept = order[used];
        order[used] = order[i];
        order[i] = kept;
        uint64_t end = put_lowest(items, order, used);
        uint64_t found = least_extent(items, order, used + 1, count, end > extent ? end : extent);
        best = found < best ? found : best;
        order[i] = order[used];
        order[used] = kept;
    }
    return best;
}

/* Sizes are far above what counts as good enough. */
static void test_small_cases_are_packed_best(void **state)
{
    (void)state;
    for (uint64_t trial = 1; trial <= 400; trial++) {
        uint64_t seed = trial;
        size_t count = 2 + random_below(&seed, 6), order[7];
        struct pack_item items[7], tried[7];
        for (size_t i = 0; i < count; i++) {
            uint32_t first = (uint32_t)random_below(&seed, 9);
            uint32_t last = first + 1 + (uint32_t)random_below(&seed, 9 - first);
            items[i] = (struct pack_item){ first, last, 8 * MIB * (1 + random_below(&seed, 9)), 0 };
            tried[i] = items[i];
            order[i] = i;
        }
        uint64_t extent = check_pack(items, count);
        uint64_t least = least_extent(tried, order, 0, count, 0);
        if (extent != least)
            fail_msg("trial %llu: extent %llu MiB, least %llu", (unsigned long long)trial,
                     (unsigned long long)(extent / MIB), (unsigned long long)(least / MIB));
    }
}

/* Seven items of which never more than 11 units are live, that nobody can pack into 11. */
static void test_peak_out_of_reach(void **state)
{
    (void)state;
    static const struct pack_item found[7] = { { 0, 1, 5, 0 }, { 2, 5, 4, 0 }, { 4, 6, 3, 0 },
                                               { 2, 4, 2, 0 }, { 0, 3, 5, 0 }, { 3, 5, 4, 0 },
                                               { 5, 6, 5, 0 } };
    struct pack_item items[7], tried[7];
    size_t order[7];
    uint64_t peak;
    for (size_t i = 0; i < 7; i++) {
        items[i] = tried[i] = found[i];
        items[i].bytes *= 8 * MIB;
        order[i] = i;
    }
    assert_int_equal(pack_live_peak(items, 7, &peak), 0);
    assert_int_equal(peak, 88 * MIB);
    assert_int_equal(least_extent(tried, order, 0, 7, 0), 12);
    assert_int_equal(check_pack(items, 7), 96 * MIB);
}

/* Squares of sizes and lives that fill a rectangle: a packing without a gap exists, which is as
 * hard as packing gets. */
static size_t cut_rectangle(struct pack_item *items, size_t count, uint64_t *seed)
{
    size_t used = 1;
    items[0] = (struct pack_item){ 0, 4096, 16384 * MIB, 0 };
    for (size_t tries = 0; used < count && tries < 100 * count; tries++) {
        struct pack_item *cut = &items[random_below(seed, used)];
        uint64_t size = cut->bytes / MIB, share = 16 + random_below(seed, 32);
        uint32_t life = cut->last - cut->first;
        items[used] = *cut;
        if (random_below(seed, 2) && size > 64) {
            cut->bytes = size * share / 64 * MIB;
            items[used++].bytes -= cut->bytes;
        } else if (life > 8) {
            cut->last = cut->first + (uint32_t)(life * share / 64);
            items[used++].first = cut->last;
        }
    }
    return used;
}

static void test_puzzle_without_gaps(void **state)
{
    (void)state;
    static const size_t sizes[] = { 20, 60, 150 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct pack_item items[150];
        uint64_t seed = i + 1, peak;
        size_t count = cut_rectangle(items, sizes[i], &seed);
        assert_int_equal(pack_live_peak(items, count, &peak), 0);
        assert_int_equal(peak, 16384 * MIB);
        uint64_t extent = check_pack(items, count);
        if ((double)extent > 1.25 * (double)peak)
            fail_msg("%zu pieces: extent %llu MiB", count, (unsigned long long)(extent / MIB));
    }
}

static void test_same_offsets_every_time(void **state)
{
    (void)state;
    struct pack_item first[150], second[150];
    uint64_t seed = 5;
    size_t count = cut_rectangle(first, 150, &seed);
    for (size_t i = 0; i < count; i++)
        second[i] = first[i];
    assert_int_equal(check_pack(first, count), check_pack(second, count));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(first[i].offset, second[i].offset);
}

/* A trace under construction: events in order, `live` the indices not yet given back. */
struct trace {
    struct pack_item items[20000];
    size_t count;
    uint32_t event;
};

static size_t take(struct trace *t, uint64_t units)
{
    t->items[t->count] = (struct pack_item){ t->event++, 0, units * MIB, 0 };
    return t->count++;
}

static void give(struct trace *t, size_t index)
{
    t->items[index].last = t->event++;
}

/* The layer of ARCHITECTURE.md in outline: norm, projection, heads, output; then routed rows of
 * random capacity. `saved` returns what a backward would want. */
static void forward_layer(struct trace *t, uint64_t *seed)
{
    size_t n1 = take(t, 64), qkv = take(t, 100), qr = take(t, 64), kr = take(t, 16);
    give(t, n1);
    size_t o = take(t, 64), lse = take(t, 2);
    give(t, qkv), give(t, qr), give(t, kr), give(t, lse);
    size_t x1 = take(t, 64);
    give(t, o);
    uint64_t rows = 400 + random_below(seed, 200);
    size_t probs = take(t, 8), send = take(t, 512), recv = take(t, rows);
    give(t, send);
    size_t xe = take(t, rows);
    give(t, recv);
    size_t h = take(t, rows);
    give(t, xe);
    size_t a = take(t, rows / 2);
    give(t, h);
    size_t y = take(t, rows);
    give(t, a);
    size_t back = take(t, 512);
    give(t, y), give(t, back), give(t, probs), give(t, x1);
}

static void backward_layer(struct trace *t, uint64_t *seed)
{
    size_t qkv = take(t, 100), o = take(t, 64), x1 = take(t, 64), probs = take(t, 8);
    uint64_t rows = 400 + random_below(seed, 200);
    size_t xe = take(t, rows), h = take(t, rows), dy = take(t, rows), a = take(t, rows / 2);
    give(t, a);
    size_t da = take(t, rows / 2);
    give(t, dy), give(t, da), give(t, xe);
    size_t dxe = take(t, rows);
    give(t, h);
    size_t back = take(t, 512);
    give(t, dxe), give(t, back), give(t, probs), give(t, x1);
    size_t d_o = take(t, 64), dqkv = take(t, 100);
    give(t, o), give(t, d_o), give(t, qkv);
    size_t n1 = take(t, 64);
    give(t, dqkv), give(t, n1);
}

/* Layers forward and back for some micro-batches, units gathered one ahead. */
static struct trace *step(uint64_t seed, int layers, int micro_batches)
{
    struct trace *t = calloc(1, sizeof *t);
    assert_non_null(t);
    size_t checkpoints[64], unit = 0, next;
    for (int m = 0; m < micro_batches; m++) {
        unit = take(t, 300);
        for (int i = 0; i < layers; i++) {
            next = take(t, 300);
            checkpoints[i] = take(t, 64);
            forward_layer(t, &seed);
            give(t, unit);
            unit = next;
        }
        size_t tile = take(t, 900), dx = take(t, 64);
        give(t, tile);
        for (int i = layers - 1; i >= 0; i--) {
            next = take(t, 300);
            size_t gradient = take(t, 600);
            backward_layer(t, &seed);
            size_t shard = take(t, 80);
            give(t, shard), give(t, gradient), give(t, checkpoints[i]), give(t, unit);
            unit = next;
        }
        give(t, dx), give(t, unit);
    }
    return t;
}

static void test_step_is_packed_tightly(void **state)
{
    (void)state;
    static const int shapes[][2] = { { 2, 1 }, { 4, 2 }, { 12, 1 }, { 24, 3 }, { 36, 1 } };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct trace *t = step(i + 1, shapes[i][0], shapes[i][1]);
        uint64_t peak;
        assert_int_equal(pack_live_peak(t->items, t->count, &peak), 0);
        uint64_t extent = check_pack(t->items, t->count);
        if ((double)extent > 1.002 * (double)peak)
            fail_msg("%zu takes: extent %llu, live peak %llu", t->count, (unsigned long long)extent,
                     (unsigned long long)peak);
        free(t);
    }
}

static void test_nothing(void **state)
{
    (void)state;
    uint64_t value = 7;
    assert_int_equal(pack_items(NULL, 0, &value), 0);
    assert_int_equal(value, 0);
    assert_int_equal(pack_live_peak(NULL, 0, &value), 0);
    assert_int_equal(value, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_traces),
        cmocka_unit_test(test_small_cases_are_packed_best),
        cmocka_unit_test(test_peak_out_of_reach),
        cmocka_unit_test(test_puzzle_without_gaps),
        cmocka_unit_test(test_same_offsets_every_time),
        cmocka_unit_test(test_step_is_packed_tightly),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
