/* Packing: what lives together never overlaps, the extent is near the live peak for traces like a
 * step's, and never below it. */
#include "executor/memory/pack.h"
#include "tests/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ALIGNMENT = 256 };

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

/* A trace under construction: events in order, `live` the indices not yet given back. */
struct trace {
    struct pack_item items[20000];
    size_t count;
    uint32_t event;
};

static size_t take(struct trace *t, uint64_t units)
{
    t->items[t->count] = (struct pack_item){ t->event++, 0, units * ALIGNMENT, 0 };
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
        if ((double)extent > 1.05 * (double)peak)
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
        cmocka_unit_test(test_step_is_packed_tightly),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
