/* What is beside the fullest pass of each run of an interleaved stage, against all passes played
 * one after another and counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget_sample.h"
#include "planner/predict/parts.h"
#include "tests/support/random.h"

#include <stdlib.h>

enum { RUNS = 6, MOST_MICRO_BATCHES = 60 };

static int pick(uint64_t *seed, int low, int high)
{
    return low + (int)random_below(seed, (uint64_t)high - (uint64_t)low + 1);
}

/* One stage: runs of one micro-batch that are in flight, as they are played. */
struct play {
    const struct in_flight *f;
    const struct run_bytes *of;
    int stages, runs, micro_batches;
    bool in_flight[MOST_MICRO_BATCHES][RUNS];
    struct beside best[RUNS][WAYS];
    uint64_t best_bytes[RUNS][WAYS];
    bool any[RUNS][WAYS];
};

static struct beside count(const struct play *p, int micro_batch, int run)
{
    struct beside ret = { .micro_batch = micro_batch };
    for (int m = 0; m < p->micro_batches; m++) {
        bool begun = m == micro_batch; /* its ids and targets are there from run 0 to run 0 */
        for (int r = 0; r < p->runs; r++) {
            begun = begun || p->in_flight[m][r];
            if (!p->in_flight[m][r] || (m == micro_batch && r == run))
                continue;
            ret.runs++;
            ret.saved += p->of[r].saved;
            ret.extras += p->of[r].extras;
        }
        ret.micro_batches += begun;
    }
    return ret;
}

static void look(struct play *p, int micro_batch, int run, enum way way, int order)
{
    struct beside now = count(p, micro_batch, run), *best = &p->best[run][way];
    uint64_t inputs = now.runs * (uint64_t)p->f->run * p->f->checkpoint;
    uint64_t bytes = inputs + now.saved + now.extras + now.micro_batches * p->f->inputs;
    uint64_t saved = best->most_saved, extras = best->most_extras;
    now.order = order;
    if (!p->any[run][way] || bytes > p->best_bytes[run][way]) {
        p->best_bytes[run][way] = bytes;
        *best = now;
    }
    p->any[run][way] = true;
    best->most_saved = now.saved > saved ? now.saved : saved;
    best->most_extras = now.extras > extras ? now.extras : extras;
}

/* The n-th pass in groups of as many micro-batches as stages, a group's run by run. */
static void pass_of(const struct play *p, int n, int *ret_micro_batch, int *ret_run)
{
    int group = p->stages * p->runs;
    *ret_run = n % group / p->stages;
    *ret_micro_batch = n / group * p->stages + n % p->stages;
}

static void play(struct play *p, int stage)
{
    int all = p->micro_batches * p->runs, m, r;
    int ahead = 2 * (p->stages - stage - 1) + (p->runs - 1) * p->stages;
    ahead = ahead < all - 1 ? ahead : all - 1;
    for (int n = 0; n < all + ahead; n++) {
        if (n < all) {
            pass_of(p, n, &m, &r);
            p->in_flight[m][r] = true;
            look(p, m, r, WAY_FORWARD, 2 * n);
        }
        if (n < ahead)
            continue;
        pass_of(p, n - ahead, &m, &r);
        r = p->runs - 1 - r;
        assert_true(p->in_flight[m][r]);
        look(p, m, r, WAY_BACKWARD, 2 * n + 1);
        p->in_flight[m][r] = false;
    }
}

static void assert_same(const struct beside *got, const struct beside *want)
{
    assert_int_equal(got->micro_batch, want->micro_batch);
    assert_int_equal(got->order, want->order);
    assert_int_equal(got->runs, want->runs);
    assert_int_equal(got->micro_batches, want->micro_batches);
    assert_int_equal(got->saved, want->saved);
    assert_int_equal(got->extras, want->extras);
    assert_int_equal(got->most_saved, want->most_saved);
    assert_int_equal(got->most_extras, want->most_extras);
}

/* Runs that keep nothing, little or much. */
static void draw_bytes(uint64_t *seed, struct run_bytes *ret)
{
    bool saves = pick(seed, 0, 3) > 0, extras = pick(seed, 0, 2) == 0;
    for (int i = 0; i < RUNS; i++) {
        ret[i].saved = saves && pick(seed, 0, 3) ? (uint64_t)pick(seed, 0, 5000) : 0;
        ret[i].extras = extras && pick(seed, 0, 3) ? (uint64_t)pick(seed, 0, 500) : 0;
    }
}

static void draw_stage(uint64_t *seed, struct layout *l, struct in_flight *f)
{
    l->pp = pick(seed, 2, 7);
    l->vpp = pick(seed, 2, RUNS);
    l->micro_batches = l->pp * pick(seed, 1, MOST_MICRO_BATCHES / l->pp);
    *f = (struct in_flight){ .run = pick(seed, 1, 3), .micro_batches = 1 };
    f->layers = f->run * l->vpp;
    f->checkpoint = (uint64_t)pick(seed, 1, 1000);
    f->inputs = (uint64_t)pick(seed, 0, 300);
}

static void assert_fullest(const struct budget_input *in, int stage, const struct in_flight *f,
                           const struct run_bytes *of)
{
    static struct play p;
    struct beside beside[RUNS][WAYS];
    const struct layout *l = &in->choices->layout;
    memset(&p, 0, sizeof p);
    p.f = f;
    p.of = of;
    p.stages = l->pp;
    p.runs = l->vpp;
    p.micro_batches = l->micro_batches;
    play(&p, stage);
    memset(beside, 0, sizeof beside);
    beside_init(in, stage, f, of, 0, beside);
    beside_most(in, stage, f, of, beside);
    for (int i = 0; i < l->vpp; i++)
        for (int way = 0; way < WAYS; way++)
            assert_same(&beside[i][way], &p.best[i][way]);
}

static void fullest_passes_are_those_of_all(void **state)
{
    struct sample s;
    struct run_bytes of[RUNS];
    struct in_flight f;
    uint64_t seed = 11;
    (void)state;
    memset(&s, 0, sizeof s);
    sample_layout(&s.choices.layout);
    s.in.choices = &s.choices;
    for (int round = 0; round < 4000; round++) {
        draw_stage(&seed, &s.choices.layout, &f);
        draw_bytes(&seed, of);
        assert_fullest(&s.in, pick(&seed, 0, s.choices.layout.pp - 1), &f, of);
    }
}

/* By hand: two stages of two runs, micro-batches A and B. Stage 0 does all four forwards before the
 * first backward: run 0 of A and B, run 1 of A and B; then back run 1 of A and B, run 0 of A and B.
 */
static void two_stages_of_two_runs(void **state)
{
    static const struct run_bytes of[] = { { 100, 0 }, { 10, 0 } };
    struct in_flight f = { .run = 1, .layers = 2, .checkpoint = 1, .micro_batches = 2 };
    struct beside got[2][WAYS];
    struct sample s;
    (void)state;
    memset(&s, 0, sizeof s);
    sample_layout(&s.choices.layout);
    s.in.choices = &s.choices;
    s.choices.layout.pp = s.choices.layout.vpp = s.choices.layout.micro_batches = 2;
    beside_init(&s.in, 0, &f, of, 0, got);
    assert_int_equal(got[0][WAY_FORWARD].runs, 1); /* B's, beside A's */
    assert_int_equal(got[0][WAY_FORWARD].saved, 100);
    assert_int_equal(got[1][WAY_FORWARD].runs, 3);
    assert_int_equal(got[1][WAY_FORWARD].saved, 210);
    assert_int_equal(got[1][WAY_FORWARD].micro_batch, 1);
    assert_int_equal(got[1][WAY_BACKWARD].saved, 210); /* A's */
    assert_int_equal(got[1][WAY_BACKWARD].micro_batch, 0);
    assert_int_equal(got[0][WAY_BACKWARD].saved, 100);
    assert_int_equal(got[0][WAY_BACKWARD].micro_batches, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_stages_of_two_runs),
        cmocka_unit_test(fullest_passes_are_those_of_all),
    };
    return cmocka_run_group_tests_name("passes", tests, NULL, NULL);
}
