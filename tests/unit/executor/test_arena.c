/* The arena: replay of a dry pass, the ledger against a recount of everything, errors that name
 * what was wanted and what was alive, a failure at each take in turn. */
#include "executor/memory/arena.h"
#include "tests/support/golden.h"
#include "tests/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Counts what is reserved; refuses beyond its limit. */
struct counted {
    uint64_t limit, reserved;
    int reservations;
};

static void *counted_reserve(void *context, uint64_t bytes)
{
    struct counted *c = context;
    if (bytes > c->limit)
        return NULL;
    c->reserved += bytes;
    c->reservations++;
    return aligned_alloc(ARENA_ALIGNMENT, bytes);
}

static void counted_release(void *context, void *block, uint64_t bytes)
{
    struct counted *c = context;
    c->reserved -= bytes;
    free(block);
}

static struct arena *open_arena(struct counted *c)
{
    const struct arena_source source = { .reserve = counted_reserve,
                                         .release = counted_release,
                                         .context = c };
    struct arena *arena = arena_open(&source);
    assert_non_null(arena);
    return arena;
}

/* A random but repeatable program: residents, then a step of takes and gives. */
enum { RESIDENTS = 3, MOVES = 120, HELD = 12 };

struct program {
    struct buffer resident[RESIDENTS];
    struct buffer held[HELD];
    enum owner owner[HELD]; /* as arena_own left it */
    unsigned char mark[HELD];
};

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
}

static int take_residents(struct arena *arena, struct program *p, struct diag_list *diags)
{
    for (int i = 0; i < RESIDENTS; i++) {
        uint64_t bytes = UINT64_C(1000) * (unsigned)(i + 1);
        if (arena_take(arena, (enum owner)i, bytes, bytes, &p->resident[i], diags))
            return -1;
    }
    return 0;
}

/* The recount: sums over what is held, by brute force, and their maxima. */
struct recount {
    uint64_t peak, owner_at_peak[OWNER_COUNT], owner_max[OWNER_COUNT], item_max[ITEM_COUNT];
    uint64_t item_at_peak[ITEM_COUNT];
};

static void recount(const struct program *p, struct recount *r)
{
    uint64_t owner[OWNER_COUNT] = { 0 }, item[ITEM_COUNT] = { 0 }, live = 0;
    for (int i = 0; i < RESIDENTS; i++)
        owner[i] += rounded(p->resident[i].bytes);
    for (int i = 0; i < HELD; i++)
        if (p->held[i].take)
            owner[p->owner[i]] += rounded(p->held[i].bytes);
    for (int i = 0; i < OWNER_COUNT; i++) {
        item[owner_infos[i].item] += owner[i];
        live += owner[i];
        r->owner_max[i] = owner[i] > r->owner_max[i] ? owner[i] : r->owner_max[i];
    }
    for (int i = 0; i < ITEM_COUNT; i++)
        r->item_max[i] = item[i] > r->item_max[i] ? item[i] : r->item_max[i];
    if (live > r->peak) {
        r->peak = live;
        memcpy(r->owner_at_peak, owner, sizeof owner);
        memcpy(r->item_at_peak, item, sizeof item);
    }
}

/* Fills what was taken and checks that nobody wrote over it until it is given. */
static void check_held(const struct program *p, int slot)
{
    const unsigned char *data = p->held[slot].data;
    for (uint64_t i = 0; data && i < p->held[slot].bytes; i++)
        assert_int_equal(data[i], p->mark[slot]);
}

static void release_all(struct arena *arena, struct program *p)
{
    for (int i = 0; i < HELD; i++)
        if (p->held[i].take)
            arena_give(arena, &p->held[i]);
}

static int step_move(struct arena *arena, struct program *p, uint64_t *seed, uint64_t *sizes,
                     struct diag_list *diags)
{
    int slot = (int)random_below(seed, HELD);
    enum owner owner = (enum owner)random_below(seed, OWNER_COUNT);
    uint64_t capacity = random_below(seed, 6000);
    uint64_t bytes = random_below(sizes, capacity + 1);
    if (p->held[slot].take && capacity % 5 == 0) {
        arena_own(arena, &p->held[slot], owner);
        p->owner[slot] = owner;
    } else if (p->held[slot].take) {
        check_held(p, slot);
        arena_give(arena, &p->held[slot]);
    } else {
        if (arena_take(arena, owner, bytes, capacity, &p->held[slot], diags))
            return -1;
        p->owner[slot] = owner;
        p->mark[slot] = (unsigned char)random_below(sizes, 256);
        if (p->held[slot].data)
            memset(p->held[slot].data, p->mark[slot], bytes);
    }
    return 0;
}

/* program_seed fixes the sequence and capacities; size_seed what is really used of them. */
static int run_step(struct arena *arena, struct program *p, uint64_t program_seed,
                    uint64_t size_seed, struct recount *r, struct diag_list *diags)
{
    int status = 0;
    arena_mark_step(arena);
    if (r)
        recount(p, r);
    for (int i = 0; i < MOVES && status == 0; i++) {
        arena_phase(arena, "move %d", i);
        status = step_move(arena, p, &program_seed, &size_seed, diags);
        if (r && status == 0)
            recount(p, r);
    }
    release_all(arena, p);
    return status;
}

static void test_ledger_against_recount(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct counted c = { .limit = UINT64_MAX };
        struct diag_list diags = { 0 };
        struct program p = { 0 };
        struct arena *arena = open_arena(&c);
        assert_int_equal(take_residents(arena, &p, &diags), 0);
        assert_int_equal(run_step(arena, &p, seed, seed, NULL, &diags), 0);
        assert_int_equal(arena_pack(arena, &diags), 0);
        for (int i = 0; i < RESIDENTS; i++) {
            arena_resident(arena, &p.resident[i]);
            assert_non_null(p.resident[i].data);
            memset(p.resident[i].data, 0xa0 + i, p.resident[i].bytes);
        }
        for (uint64_t step = 0; step < 3; step++) {
            struct recount want = { 0 };
            struct arena_record got;
            arena_record_reset(arena);
            assert_int_equal(run_step(arena, &p, seed, 100 + step, &want, &diags), 0);
            arena_record(arena, &got);
            assert_int_equal(got.live_peak_bytes, want.peak);
            assert_memory_equal(got.owner_at_peak, want.owner_at_peak, sizeof want.owner_at_peak);
            assert_memory_equal(got.item_at_peak, want.item_at_peak, sizeof want.item_at_peak);
            assert_memory_equal(got.owner_max, want.owner_max, sizeof want.owner_max);
            assert_memory_equal(got.item_max, want.item_max, sizeof want.item_max);
            assert_int_equal(got.extent_bytes, c.reserved);
            assert_true(got.extent_bytes >= got.live_peak_bytes);
        }
        for (int i = 0; i < RESIDENTS; i++)
            for (uint64_t j = 0; j < p.resident[i].bytes; j++)
                assert_int_equal(((unsigned char *)p.resident[i].data)[j], 0xa0 + i);
        assert_int_equal(diags.errors, 0);
        assert_int_equal(c.reservations, 1);
        arena_close(arena);
        assert_int_equal(c.reserved, 0);
    }
}

/* A failure at each take, dry or real, is one error, and the same step runs afterwards. */
static void test_fail_at_each_take(void **state)
{
    (void)state;
    struct counted c = { .limit = UINT64_MAX };
    struct diag_list diags = { 0 };
    struct program p = { 0 };
    struct arena *arena = open_arena(&c);
    assert_int_equal(take_residents(arena, &p, &diags), 0);
    assert_int_equal(run_step(arena, &p, 5, 5, NULL, &diags), 0);
    assert_int_equal(arena_pack(arena, &diags), 0);
    int failures = 0;
    FILE *out = golden_begin();
    for (long n = 1;; n++) {
        struct diag_list one = { 0 };
        arena_fail_at(arena, n);
        int status = run_step(arena, &p, 5, 6, NULL, &one);
        arena_fail_at(arena, 0);
        assert_int_equal(one.errors, status ? 1 : 0);
        if (status == 0)
            break;
        diag_list_print(out, &one);
        assert_int_equal(run_step(arena, &p, 5, 7, NULL, &diags), 0);
        failures++;
    }
    assert_true(failures > 20);
    assert_golden_end("each take refused");
    arena_close(arena);
    for (long n = 1; n <= RESIDENTS + failures; n++) {
        struct diag_list one = { 0 };
        struct program again = { 0 };
        arena = open_arena(&c);
        arena_fail_at(arena, n);
        assert_int_not_equal(
            take_residents(arena, &again, &one) || run_step(arena, &again, 5, 5, NULL, &one), 0);
        assert_int_equal(one.errors, 1);
        arena_close(arena);
    }
    assert_int_equal(diags.errors, 0);
    assert_int_equal(c.reserved, 0);
}

/* One resident of 512 bytes, then a step of two takes. */
static struct arena *small(struct counted *c, struct buffer *resident, struct diag_list *diags)
{
    struct buffer a, b;
    struct arena *arena = open_arena(c);
    assert_int_equal(arena_take(arena, OWNER_WEIGHTS, 500, 500, resident, diags), 0);
    assert_true(arena_is_dry(arena));
    arena_mark_step(arena);
    assert_int_equal(arena_take(arena, OWNER_LAYER, 100, 100, &a, diags), 0);
    assert_int_equal(arena_take(arena, OWNER_EXPERT, 10, 1000, &b, diags), 0);
    assert_null(b.data);
    arena_give(arena, &a);
    arena_give(arena, &b);
    assert_int_equal(arena_pack(arena, diags), 0);
    assert_false(arena_is_dry(arena));
    return arena;
}

static void test_by_hand(void **state)
{
    (void)state;
    struct counted c = { .limit = UINT64_MAX };
    struct diag_list diags = { 0 };
    struct buffer resident, a, b;
    struct arena_record record;
    struct arena *arena = small(&c, &resident, &diags);
    /* 512 resident, 256 and 1024 (the capacity) beside each other. */
    assert_int_equal(c.reserved, 512 + 256 + 1024);
    arena_mark_step(arena);
    assert_int_equal(arena_take(arena, OWNER_LAYER, 100, 100, &a, &diags), 0);
    arena_phase(arena, "forward layer %d", 3);
    assert_int_equal(arena_take(arena, OWNER_EXPERT, 600, 1000, &b, &diags), 0);
    arena_give(arena, &a);
    arena_own(arena, &b, OWNER_CHECKPOINT);
    arena_give(arena, &b);
    arena_give(arena, &b); /* holds nothing: no effect */
    arena_record(arena, &record);
    assert_int_equal(record.live_peak_bytes, 512 + 256 + 768);
    assert_int_equal(record.room_bytes, 512 + 256 + 1024);
    assert_int_equal(record.owner_at_peak[OWNER_EXPERT], 768);
    assert_int_equal(record.item_at_peak[ITEM_WEIGHTS], 512);
    assert_int_equal(record.owner_max[OWNER_CHECKPOINT], 768);
    assert_int_equal(record.item_max[ITEM_CHECKPOINTS], 768);
    assert_string_equal(record.peak_phase, "forward layer 3");
    arena_record_reset(arena);
    arena_record(arena, &record);
    assert_int_equal(record.live_peak_bytes, 512);
    assert_int_equal(record.owner_max[OWNER_EXPERT], 0);
    arena_close(arena);
    assert_int_equal(diags.errors, 0);
}

static void test_overflow_names_what_was_alive(void **state)
{
    (void)state;
    struct counted c = { .limit = UINT64_MAX };
    struct diag_list diags = { 0 };
    struct buffer resident, a, b;
    struct arena *arena = small(&c, &resident, &diags);
    arena_mark_step(arena);
    arena_phase(arena, "forward micro-batch 0 layer 1");
    assert_int_equal(arena_take(arena, OWNER_LAYER, 100, 100, &a, &diags), 0);
    assert_int_equal(arena_take(arena, OWNER_EXPERT, 1001, 1000, &b, &diags), -1);
    assert_int_equal(b.take, 0);
    assert_golden_diags("more than the capacity", &diags);
    arena_give(arena, &a);
    arena_close(arena);
}

/* Each departure from the dry pass is told at the take where it shows. */
static void test_other_sequences(void **state)
{
    (void)state;
    struct counted c = { .limit = UINT64_MAX };
    struct diag_list diags = { 0 };
    struct buffer resident, a, b, more;
    struct arena *arena = small(&c, &resident, &diags);
    arena_mark_step(arena);
    assert_int_equal(arena_take(arena, OWNER_KV, 100, 100, &a, &diags), -1);
    arena_mark_step(arena);
    assert_int_equal(arena_take(arena, OWNER_LAYER, 100, 600, &a, &diags), -1);
    arena_mark_step(arena);
    assert_int_equal(arena_take(arena, OWNER_LAYER, 100, 100, &a, &diags), 0);
    arena_give(arena, &a);
    assert_int_equal(arena_take(arena, OWNER_EXPERT, 10, 1000, &b, &diags), -1);
    arena_mark_step(arena);
    assert_int_equal(arena_take(arena, OWNER_LAYER, 100, 100, &a, &diags), 0);
    assert_int_equal(arena_take(arena, OWNER_EXPERT, 10, 1000, &b, &diags), 0);
    assert_int_equal(arena_take(arena, OWNER_KV, 10, 10, &more, &diags), -1);
    arena_mark_step(arena);
    assert_int_equal(arena_take(arena, OWNER_LAYER, 100, 100, &a, &diags), -1);
    assert_int_equal(diags.errors, 5);
    assert_golden_diags("other sequences than the dry pass", &diags);
    arena_close(arena);
    assert_int_equal(c.reserved, 0);
}

static void test_pack_refuses(void **state)
{
    (void)state;
    struct counted c = { .limit = 1024 };
    struct diag_list diags = { 0 };
    struct buffer a, b;
    struct arena *arena = open_arena(&c); /* a take of the step that is never given back */
    arena_mark_step(arena);
    assert_int_equal(arena_take(arena, OWNER_LOSS, 1, 1, &a, &diags), 0);
    assert_int_equal(arena_pack(arena, &diags), -1);
    arena_close(arena);
    arena = open_arena(&c); /* a resident given back in the step */
    assert_int_equal(arena_take(arena, OWNER_MASTER, 1, 1, &a, &diags), 0);
    arena_mark_step(arena);
    assert_int_equal(arena_take(arena, OWNER_LOSS, 1, 1, &b, &diags), 0);
    arena_give(arena, &a);
    arena_give(arena, &b);
    assert_int_equal(arena_pack(arena, &diags), -1);
    arena_close(arena);
    arena = open_arena(&c); /* more than the source has */
    assert_int_equal(arena_take(arena, OWNER_MASTER, 1025, 1025, &a, &diags), 0);
    assert_int_equal(arena_pack(arena, &diags), -1);
    assert_int_equal(arena_take(arena, OWNER_MASTER, UINT64_MAX - 5, UINT64_MAX, &b, &diags), -1);
    arena_close(arena);
    assert_int_equal(diags.errors, 4);
    assert_golden_diags("refused packings", &diags);
    assert_int_equal(c.reserved, 0);
}

static uint64_t counted_available(void *context)
{
    const struct counted *c = context;
    return c->limit - c->reserved;
}

/* A source that knows says what was there. */
static void test_refusal_says_what_is_there(void **state)
{
    (void)state;
    struct counted c = { .limit = 1024 };
    struct diag_list diags = { 0 };
    struct buffer a;
    const struct arena_source source = { counted_reserve, counted_release, &c, counted_available };
    struct arena *arena = arena_open(&source);
    assert_int_equal(arena_take(arena, OWNER_MASTER, 1025, 1025, &a, &diags), 0);
    assert_int_equal(arena_pack(arena, &diags), -1);
    assert_golden_diags("a source that knows its room", &diags);
    arena_close(arena);
}

/* The step of test_by_hand holds 512 + 256 + 768 = 1,536 bytes at its peak. */
static int step_within(uint64_t limit, struct diag_list *diags)
{
    struct counted c = { .limit = UINT64_MAX };
    struct buffer resident, a, b;
    struct arena *arena = small(&c, &resident, diags);
    arena_limit(arena, limit);
    arena_mark_step(arena);
    arena_phase(arena, "loss");
    int ret = arena_take(arena, OWNER_LAYER, 100, 100, &a, diags);
    if (ret == 0)
        ret = arena_take(arena, OWNER_EXPERT, 600, 1000, &b, diags);
    arena_close(arena);
    return ret;
}

static void test_limit_of_what_lives(void **state)
{
    (void)state;
    struct diag_list diags = { 0 };
    assert_int_equal(step_within(1536, &diags), 0);
    assert_int_equal(step_within(1535, &diags), -1);
    assert_int_equal(step_within(767, &diags), -1);
    assert_int_equal(diags.errors, 2);
    assert_golden_diags("steps beyond the limit", &diags);
}

/* What is resident is judged before the first step. */
static void test_limit_of_residents(void **state)
{
    (void)state;
    for (uint64_t limit = 1279; limit <= 1280; limit++) {
        struct counted c = { .limit = UINT64_MAX };
        struct diag_list diags = { 0 };
        struct buffer weights, master;
        struct arena *arena = open_arena(&c);
        arena_limit(arena, limit);
        assert_int_equal(arena_take(arena, OWNER_WEIGHTS, 500, 500, &weights, &diags), 0);
        assert_int_equal(arena_take(arena, OWNER_MASTER, 768, 768, &master, &diags), 0);
        assert_int_equal(arena_pack(arena, &diags), limit < 1280 ? -1 : 0);
        assert_int_equal(diags.errors, limit < 1280);
        if (limit < 1280)
            assert_golden_diags("residents beyond the limit", &diags);
        arena_close(arena);
        assert_int_equal(c.reserved, 0);
    }
}

/* Setup's own scratch, given back before the step, takes no memory. */
static void test_setup_scratch(void **state)
{
    (void)state;
    struct counted c = { .limit = 1024 };
    struct diag_list diags = { 0 };
    struct buffer scratch, kept, empty;
    struct arena *arena = open_arena(&c);
    assert_int_equal(arena_take(arena, OWNER_LAYER, 5000, 5000, &scratch, &diags), 0);
    assert_int_equal(arena_take(arena, OWNER_WEIGHTS, 1000, 1000, &kept, &diags), 0);
    assert_int_equal(arena_take(arena, OWNER_WEIGHTS, 0, 0, &empty, &diags), 0);
    arena_give(arena, &scratch);
    assert_int_equal(arena_pack(arena, &diags), 0);
    assert_int_equal(c.reserved, 1024);
    arena_resident(arena, &kept);
    assert_non_null(kept.data);
    arena_give(arena, &kept);
    arena_give(arena, &empty);
    arena_close(arena);
    assert_int_equal(diags.errors, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ledger_against_recount),
        cmocka_unit_test(test_fail_at_each_take),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_overflow_names_what_was_alive),
        cmocka_unit_test(test_other_sequences),
        cmocka_unit_test(test_pack_refuses),
        cmocka_unit_test(test_refusal_says_what_is_there),
        cmocka_unit_test(test_limit_of_what_lives),
        cmocka_unit_test(test_limit_of_residents),
        cmocka_unit_test(test_setup_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
