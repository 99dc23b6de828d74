/* The recommendation is the best by search: on random jobs, against every layout of small worlds,
 * and against the same job with more memory, bandwidth or GPUs. The seed is printed; give another in
 * RANKFIT_SEED. */
#include "planner/search/search.h"
#include "planner/search/space.h"
#include "test_derive_fixture.h"
#include "tests/support/near.h"

#include <stdlib.h>

enum { CASES = 24 };

static uint64_t seed_of_run(const char *test)
{
    const char *text = getenv("RANKFIT_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 20261201;
    print_message("%s: seed %llu\n", test, (unsigned long long)seed);
    return seed;
}

static bool recommend(const struct ask *ask, struct answer *ret)
{
    struct diag_list list = { 0 };
    return derive(&ask->q, ret, &list) == 0;
}

static bool fits(const struct answer *answer)
{
    return answer->recommended.verdict == VERDICT_FITS;
}

/* On worlds of up to 4 GPUs every layout that plan opens is judged, none is skipped by proof. */
static void it_is_that_of_an_exhaustive_search(void **state)
{
    static struct answer answer;
    static struct search_result whole;
    uint64_t seed = seed_of_run(__func__);
    int compared = 0;
    struct ask ask;
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const struct search_options options = { .threads = 1, .kinds = true, .skip_nothing = true };
        struct diag_list errors = { 0 };
        ask_random(&ask, &seed, 4);
        ask.model.layers = 4 + (int)random_below(&seed, 3);
        ask_model_changed(&ask);
        if (!recommend(&ask, &answer))
            continue;
        assert_int_equal(search_run(&ask.q, &options, &whole, &errors), 0);
        bool any = whole.any && whole.best.verdict == VERDICT_FITS;
        assert_int_equal(fits(&answer) && !answer.uses_host, any);
        if (!any)
            continue;
        assert_memory_equal(&answer.recommended.choices, &whole.best.choices,
                            sizeof whole.best.choices);
        compared++;
    }
    print_message("%d cases\n", compared);
    assert_true(compared >= CASES / 3);
}

/* No layout is worse for more of its means; the tie rule may take 2 % of it. */
static void assert_no_worse(const struct answer *more, double seconds, const char *what)
{
    if (!fits(more) || more->recommended.slowest_seconds > seconds * (1 + SEARCH_EQUALLY_FAST))
        fail_msg("%s: %g s instead of %g", what, more->recommended.slowest_seconds, seconds);
}

/* At a fixed global batch. Twice the GPUs halve the batch of a data-parallel rank, where it
 * is even. */
static void more_is_never_worse(void **state)
{
    static struct answer answer, more;
    uint64_t seed = seed_of_run(__func__);
    int compared = 0;
    struct ask ask;
    (void)state;
    for (int i = 0; i < CASES; i++) {
        ask_random(&ask, &seed, 16);
        ask.q.global_batch = 64;
        if (!recommend(&ask, &answer) || !fits(&answer) || answer.uses_host)
            continue;
        const struct hardware before = ask.hardware;
        double seconds = answer.recommended.slowest_seconds;
        int batches = answer.recommended.choices.layout.micro_batches;
        ask.hardware.memory_bytes += ask.hardware.memory_bytes / 4;
        ask_memory_changed(&ask);
        assert_true(recommend(&ask, &more));
        assert_no_worse(&more, seconds, "memory");
        ask.hardware = before;
        ask_memory_changed(&ask);
        ask.hardware.link_bytes_per_second *= 1.5;
        ask.hardware.network_bytes_per_second *= 1.5;
        assert_true(recommend(&ask, &more));
        assert_no_worse(&more, seconds, "bandwidth");
        ask.hardware = before;
        ask.q.gpus *= 2;
        assert_true(recommend(&ask, &more));
        if (batches % 2 == 0 && ask.q.gpus <= ask.hardware.domain_gpus)
            assert_no_worse(&more, seconds, "GPUs");
        compared++;
    }
    print_message("%d cases\n", compared);
    assert_true(compared >= CASES / 3);
}

/* A model of 8 billion parameters on one GPU: 16 bytes each are more than it has. */
static void host_memory_is_used_where_nothing_else_fits(void **state)
{
    static struct answer answer;
    struct ask ask;
    (void)state;
    ask_init(&ask, "llama-3.1-8b", "h100-sxm", 1, 4096);
    assert_true(recommend(&ask, &answer));
    assert_true(fits(&answer) && answer.uses_host);
    assert_true(answer.recommended.choices.primitives.offload & OFFLOAD_OPTIMIZER);
    ask_set(&ask, "offload", "none");
    assert_true(recommend(&ask, &answer));
    assert_int_equal(answer.recommended.verdict, VERDICT_DOES_NOT_FIT);
    ask_init(&ask, "llama-3.1-8b", "h100-sxm", 8, 4096);
    assert_true(recommend(&ask, &answer));
    assert_true(fits(&answer) && !answer.uses_host);
    assert_int_equal(answer.recommended.choices.primitives.offload, 0);
    assert_true(answer.has_offloaded);
    assert_int_not_equal(answer.offloaded.choices.primitives.offload, 0);
}

/* No number of bytes is a threshold: around 180e9 a byte changes nothing. */
static void a_byte_changes_nothing(void **state)
{
    static struct answer below, above;
    struct ask ask;
    (void)state;
    ask_init(&ask, "qwen3.5-35b-a3b", "b200", 32, 131072);
    ask.hardware.memory_bytes = UINT64_C(179999999999);
    ask_memory_changed(&ask);
    assert_true(recommend(&ask, &below));
    ask.hardware.memory_bytes += 2;
    ask_memory_changed(&ask);
    assert_true(recommend(&ask, &above));
    assert_memory_equal(&below.recommended.choices, &above.recommended.choices,
                        sizeof above.recommended.choices);
}

/* The articles' main case: their thresholds give their layout; the best takes less, which is said
 * by each of the other. */
static void the_articles_layout_and_the_best(void **state)
{
    static struct answer best, articles;
    struct ask ask;
    (void)state;
    ask_init(&ask, "qwen3.5-35b-a3b", "h100-sxm", 32, 131072);
    assert_true(recommend(&ask, &best));
    ask.q.policy = POLICY_ARTICLES;
    assert_true(recommend(&ask, &articles));
    const struct layout *l = &articles.recommended.choices.layout;
    assert_int_equal(l->tp, 1);
    assert_int_equal(l->pp, 1);
    assert_int_equal(l->ep, 8);
    assert_int_equal(l->cp, 4);
    assert_true(best.has_other && articles.has_other);
    assert_memory_equal(&best.other.choices, &articles.recommended.choices,
                        sizeof articles.recommended.choices);
    assert_memory_equal(&articles.other.choices, &best.recommended.choices,
                        sizeof best.recommended.choices);
    assert_true(best.recommended.slowest_seconds < articles.recommended.slowest_seconds);
}

/* Headroom: no more memory than the best takes, and at most a quarter more time. */
static void headroom_trades_time_for_memory(void **state)
{
    static struct answer best, roomy;
    uint64_t seed = seed_of_run(__func__);
    int compared = 0;
    struct ask ask;
    (void)state;
    for (int i = 0; i < CASES; i++) {
        ask_random(&ask, &seed, 32);
        if (!recommend(&ask, &best) || !fits(&best) || best.uses_host)
            continue;
        ask.q.objective = OBJECTIVE_HEADROOM;
        assert_true(recommend(&ask, &roomy));
        uint64_t unit = roomy.limit_bytes / SEARCH_ROOM_UNITS + 1;
        assert_true(roomy.recommended.worst.peak_upper_bytes <=
                    best.recommended.worst.peak_upper_bytes + unit);
        assert_true(roomy.recommended.slowest_seconds <=
                    best.recommended.slowest_seconds * (1 + SEARCH_HEADROOM));
        compared++;
    }
    assert_true(compared >= CASES / 3);
}

/* A batch that allows one number of data-parallel ranks decides, and is named. */
static void a_batch_that_decides_is_named(void **state)
{
    static struct answer answer;
    struct ask ask;
    bool named = false;
    (void)state;
    ask_init(&ask, "qwen3-4b", "h100-sxm", 7, 4096);
    ask.q.global_batch = 256;
    ask.q.micro_batch = 2;
    assert_true(recommend(&ask, &answer));
    assert_int_equal(answer.recommended.choices.layout.pp, 7);
    for (int i = 0; i < answer.reason_count; i++)
        if (!strcmp(answer.reasons[i].choice, "pp=7"))
            named = strstr(answer.reasons[i].because, "global batch 256") != NULL;
    assert_true(named);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_that_of_an_exhaustive_search),
        cmocka_unit_test(more_is_never_worse),
        cmocka_unit_test(host_memory_is_used_where_nothing_else_fits),
        cmocka_unit_test(a_byte_changes_nothing),
        cmocka_unit_test(the_articles_layout_and_the_best),
        cmocka_unit_test(headroom_trades_time_for_memory),
        cmocka_unit_test(a_batch_that_decides_is_named),
    };
    return cmocka_run_group_tests_name("choose", tests, NULL, NULL);
}
