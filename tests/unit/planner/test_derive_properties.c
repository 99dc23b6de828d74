/* Properties of the ordered decisions on random models, machines and sequences. The seed is printed; give
 * another in RANKFIT_SEED. */
#include "base/text.h"
#include "test_derive_fixture.h"

#include <math.h>
#include <stdlib.h>

enum { CASES = 60 };

/* Stages, tensor splits and a larger cp for speed: against the best step without them. */
#define WORST_OVER_BEST_OF_CP 0.9

static uint64_t seed_of_run(const char *test)
{
    const char *text = getenv("RANKFIT_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 20260705;
    print_message("%s: seed %llu\n", test, (unsigned long long)seed);
    return seed;
}

static bool derived(const struct ask *ask, struct answer *ret)
{
    struct diag_list list = { 0 };
    struct question q = ask->q;
    q.policy = POLICY_ARTICLES;
    return derive(&q, ret, &list) == 0;
}

static void derived_choices_are_legal(void **state)
{
    static struct answer answer;
    uint64_t seed = seed_of_run(__func__);
    struct ask ask;
    (void)state;
    for (int i = 0; i < CASES; i++) {
        ask_random(&ask, &seed, 64);
        if (!derived(&ask, &answer))
            continue;
        const struct candidate *c = &answer.recommended;
        assert_true(ask_is_legal(&ask, &c->choices));
        assert_int_equal(layout_world(&c->choices.layout), ask.q.gpus);
        assert_int_equal(c->verdict == VERDICT_FITS,
                         c->worst.peak_upper_bytes <= answer.limit_bytes);
        assert_int_equal(c->verdict == VERDICT_DOES_NOT_FIT,
                         c->worst.peak_bytes > answer.limit_bytes);
        for (int n = 0; n < answer.candidate_count; n++)
            assert_true(ask_is_legal(&ask, &answer.candidates[n].choices));
    }
}

/* Memory in steps from 4 GiB up, over the policy's border at 180e9 bytes. */
static void more_memory_never_unfits(void **state)
{
    static struct answer answer;
    uint64_t seed = seed_of_run(__func__);
    struct ask ask;
    (void)state;
    for (int i = 0; i < CASES / 3; i++) {
        int before = VERDICT_DOES_NOT_FIT;
        ask_random(&ask, &seed, 16);
        for (uint64_t memory = UINT64_C(4) << 30; memory < UINT64_C(600) << 30;
             memory += memory / 3) {
            ask.hardware.memory_bytes = memory;
            ask_memory_changed(&ask);
            if (!derived(&ask, &answer))
                break;
            assert_true((int)answer.recommended.verdict <= before);
            before = (int)answer.recommended.verdict;
        }
    }
}

/* Seconds of the best layout with one stage and unsplit tensors; INFINITY where none fits. */
static double seconds_with(const struct ask *ask, const char *key, const char *value)
{
    static struct candidate best;
    struct question q = ask->q;
    struct diag_list list = { 0 };

    choice_set(&q.fixed, "pp", "1", (struct pos){ 0 }, &list);
    choice_set(&q.fixed, "tp", "1", (struct pos){ 0 }, &list);
    choice_set(&q.fixed, "etp", "1", (struct pos){ 0 }, &list);
    if (key)
        choice_set(&q.fixed, key, value, (struct pos){ 0 }, &list);
    search_all(&q, &best);
    return best.verdict == VERDICT_FITS ? best.slowest_seconds : (double)INFINITY;
}

/* The cp of the policy: the fewest ranks, dividing the world, whose share is at most 32K. */
static int policy_cp(const struct ask *ask)
{
    int cp = 1;
    while (ask->q.seq_tokens / (uint64_t)cp > 32768 && cp * 2 <= ask->q.gpus)
        cp *= 2;
    return cp;
}

/* Small memory first raises cp: beyond the policy's only where its own value fits with no other
 * stages and tensor splits, or for speed. Stages and tensor splits come only when no cp fits
 * without them, or for speed: a search finds nothing without them that is faster by a tenth. */
static void small_memory_brings_cp_then_pp(void **state)
{
    static struct answer answer;
    uint64_t seed = seed_of_run(__func__);
    int larger_cp = 0, stages = 0;
    struct ask ask;
    (void)state;
    for (int i = 0; i < CASES / 5; i++) {
        ask_random(&ask, &seed, 8);
        for (uint64_t memory = UINT64_C(100) << 30; memory > UINT64_C(3) << 30;
             memory -= memory / 5) {
            char cp[16];
            ask.hardware.memory_bytes = memory;
            ask_memory_changed(&ask);
            if (!derived(&ask, &answer) || answer.recommended.verdict != VERDICT_FITS)
                break;
            const struct layout *l = &answer.recommended.choices.layout;
            double seconds = answer.recommended.slowest_seconds;
            size_t used = 0;
            text_append(cp, sizeof cp, &used, "%d", policy_cp(&ask));
            if (l->pp > 1 || l->tp > 1) {
                assert_true(seconds <= seconds_with(&ask, NULL, NULL) / WORST_OVER_BEST_OF_CP);
                stages++;
            } else if (l->cp > policy_cp(&ask)) {
                assert_true(seconds <= seconds_with(&ask, "cp", cp) / WORST_OVER_BEST_OF_CP);
                larger_cp++;
            }
        }
    }
    print_message("larger cp %d times, stages or tensor splits %d times\n", larger_cp, stages);
    assert_true(larger_cp + stages > 0);
}

/* From 180e9 bytes on, every smaller cp does not fit with one stage and whole tensors; just below,
 * the policy's value or more is taken. */
static void large_memory_takes_the_smallest_cp(void **state)
{
    static struct answer answer;
    uint64_t seed = seed_of_run(__func__);
    int cut = 0;
    struct ask ask;
    (void)state;
    for (int i = 0; i < CASES / 2; i++) {
        ask_random(&ask, &seed, 8);
        ask.q.seq_tokens = (uint64_t)131072 << random_below(&seed, 4);
        ask.hardware.memory_bytes = UINT64_C(180000000000);
        ask_memory_changed(&ask);
        if (!derived(&ask, &answer) || answer.recommended.verdict != VERDICT_FITS)
            continue;
        int large = answer.recommended.choices.layout.cp;
        for (int cp = 1; cp < large; cp *= 2) {
            char text[16];
            size_t used = 0;
            text_append(text, sizeof text, &used, "%d", cp);
            assert_true(isinf(seconds_with(&ask, "cp", text)));
            cut++;
        }
        ask.hardware.memory_bytes--;
        assert_true(derived(&ask, &answer));
        if (answer.recommended.verdict == VERDICT_FITS)
            assert_true(answer.recommended.choices.layout.cp >= large);
    }
    assert_true(cut > 0);
}

static void what_is_nearest_fits_when_asked_again(void **state)
{
    static struct answer answer;
    uint64_t seed = seed_of_run(__func__);
    int entries = 0;
    struct ask ask;
    (void)state;
    for (int i = 0; i < CASES / 2; i++) {
        ask_random(&ask, &seed, 16);
        ask.hardware.memory_bytes = (uint64_t)(5 + random_below(&seed, 15)) << 30;
        ask_memory_changed(&ask);
        if (!derived(&ask, &answer) || answer.recommended.verdict != VERDICT_DOES_NOT_FIT)
            continue;
        for (int n = 0; n < answer.nearest_count; n++) {
            assert_true(answer.nearest[n].peak_bytes > 0);
            ask_nearest(&ask, &answer.nearest[n]);
            entries++;
        }
    }
    print_message("%d entries asked again\n", entries);
    assert_true(entries > 10);
}

/* Fixes one derived degree to another of its values and asks again. */
static void fixed_choices_survive(void **state)
{
    static const char *const settings[][2] = {
        { "recompute", "none" },
        { "recompute", "full" },
        { "loss", "full" },
        { "cp", "2" },
        { "pp", "2" },
        { "tp", "2" },
        { "sharding", "zero1" },
        { "prefetch_units", "3" },
        { "grad_dtype", "bf16" },
    };
    static struct answer answer;
    uint64_t seed = seed_of_run(__func__);
    struct ask ask;
    (void)state;
    for (int i = 0; i < CASES; i++) {
        uint64_t pick = random_below(&seed, sizeof settings / sizeof *settings);
        char value[32];
        ask_random(&ask, &seed, 32);
        ask_set(&ask, settings[pick][0], settings[pick][1]);
        if (!derived(&ask, &answer))
            continue;
        choice_format(&answer.recommended.choices, choice_key_find(settings[pick][0]), value,
                      sizeof value);
        assert_string_equal(value, settings[pick][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(derived_choices_are_legal),
        cmocka_unit_test(more_memory_never_unfits),
        cmocka_unit_test(small_memory_brings_cp_then_pp),
        cmocka_unit_test(large_memory_takes_the_smallest_cp),
        cmocka_unit_test(what_is_nearest_fits_when_asked_again),
        cmocka_unit_test(fixed_choices_survive),
    };
    return cmocka_run_group_tests_name("derive_properties", tests, NULL, NULL);
}
