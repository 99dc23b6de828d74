/* passes.c - interleaved stages: what the runs of layers that are not at work hold, pass by pass.
 *
 * Passes are numbered from 0 in each direction. Both directions go by groups of P micro-batches,
 * a group's v runs one after another, forward from the first run to the last and backward from the
 * last to the first; backward b is played right behind forward b + ahead. So beside forward n there
 * is what the first n forwards brought and the first n - ahead backwards did not take, and beside
 * backward b the same for n = b + ahead + 1, as far as there are forwards. Two things follow:
 *
 * - From group to group what is beside a forward of a run only grows, since older groups are
 *   still there, and reaches back two groups at most: the fullest is in the first three. What is
 *   beside a backward is of its own group and later ones, which only run out: the fullest is in the
 *   first group. Either holds at least as much of every run as all others.
 * - Within a run it changes evenly between the ends of the runs of the other direction: it is
 *   fullest at its own ends, or where the other direction turns to its next run. */
#include "planner/predict/parts.h"

#include "base/checked.h"

#include <string.h>

enum { FULL_GROUPS = 3 };

/* All that there is to look at is played before the fourth group. */
struct schedule {
    int stages, runs, passes, ahead;
    int held; /* runs that there are layers for */
};

static void schedule_init(const struct budget_input *in, int stage, int held, struct schedule *ret)
{
    const struct layout *l = &in->choices->layout;
    int p = l->pp, v = held < l->vpp ? held : l->vpp, ahead = 2 * (p - stage - 1) + (v - 1) * p;
    int groups = micro_batches_of(in) / p + (micro_batches_of(in) % p > 0); /* legality: whole */
    groups = groups < 1 ? 1 : groups < FULL_GROUPS ? groups : FULL_GROUPS;
    *ret = (struct schedule){ p, v, groups * p * v, 0, held };
    ret->ahead = ahead < ret->passes - 1 ? ahead : ret->passes - 1;
}

/* The first of a run's fullest passes in one direction. */
struct fullest {
    bool any;
    uint64_t bytes;
    int pass;
};

static void consider(struct fullest *f, uint64_t bytes, int pass)
{
    if (!f->any || bytes > f->bytes)
        *f = (struct fullest){ true, bytes, pass };
}

/* A run's place among those of one direction, which come round again group by group. */
static int next_run(const struct schedule *s, int run)
{
    return run + 1 < s->runs ? run + 1 : 0;
}

static int run_before(const struct schedule *s, int run)
{
    return run > 0 ? run - 1 : s->runs - 1;
}

/* Sums may wrap on their way, and are right in the end. bytes: of a pass of each run. `back` is the
 * run whose backwards begin next, `leaving` what one of those at work takes. */
static void find_forwards(const struct schedule *s, const uint64_t *bytes, struct fullest *ret)
{
    uint64_t p = (uint64_t)s->stages, turn = (uint64_t)(s->ahead % s->stages), sum = 0, leaving = 0;
    int late = s->ahead / s->stages, run = 0, back = s->runs - 1;
    for (int i = 0; i * s->stages < s->passes; i++, run = next_run(s, run)) {
        int first = i * s->stages;
        uint64_t turned = sum + turn * (bytes[run] - leaving);
        if (i >= late) {
            leaving = bytes[back];
            back = run_before(s, back);
        }
        uint64_t after = bytes[run] - leaving;
        consider(&ret[run], sum, first);
        consider(&ret[run], turned, first + (int)turn);
        consider(&ret[run], turned + (p - 1 - turn) * after, first + s->stages - 1);
        sum = turned + (p - turn) * after;
    }
}

/* Beside the first backward: what the forwards before it brought, of which the last are those of
 * run *ret_run. */
static uint64_t first_backward(const struct schedule *s, const uint64_t *bytes, int *ret_run)
{
    uint64_t sum = 0;
    int left = s->ahead + 1, run = 0;
    for (; left >= s->stages; left -= s->stages, run = next_run(s, run))
        sum += (uint64_t)s->stages * bytes[run];
    *ret_run = run;
    return sum + (uint64_t)left * bytes[run] - bytes[s->runs - 1];
}

/* `forth` is the run whose forwards are played beside, `to_come` how many forwards are left from
 * its first on. */
static void find_backwards(const struct schedule *s, const uint64_t *bytes, struct fullest *ret)
{
    int forth, rest = (s->ahead + 1) % s->stages, to_come = s->passes - (s->ahead + 1 - rest);
    uint64_t last = (uint64_t)s->stages - 1, turn = rest > 0 ? (uint64_t)(s->stages - rest) : last;
    uint64_t sum = first_backward(s, bytes, &forth);
    for (int run = s->runs - 1; run >= 0; run--) {
        int first = (s->runs - 1 - run) * s->stages;
        uint64_t coming = to_come > 0 ? bytes[forth] : 0;
        uint64_t turned = sum + turn * (coming - bytes[run]);
        if (rest > 0)
            coming = to_come > s->stages ? bytes[next_run(s, forth)] : 0;
        consider(&ret[run], sum, first);
        consider(&ret[run], turned, first + (int)turn);
        sum = turned + (last - turn) * (coming - bytes[run]);
        consider(&ret[run], sum, first + s->stages - 1);
        sum += coming - (run > 0 ? bytes[run - 1] : 0);
        forth = next_run(s, forth);
        to_come -= s->stages;
    }
}

/* Sums over the runs before the i-th, in the order of forwards or of backwards. */
struct sums {
    uint64_t saved[WAYS][MODEL_MAX_LAYERS + 1], extras[WAYS][MODEL_MAX_LAYERS + 1];
};

static void sums_init(const struct schedule *s, const struct run_bytes *of, struct sums *ret)
{
    for (int way = 0; way < WAYS; way++) {
        ret->saved[way][0] = ret->extras[way][0] = 0;
        for (int i = 0; i < s->runs; i++) {
            const struct run_bytes *run = &of[way == WAY_FORWARD ? i : s->runs - 1 - i];
            ret->saved[way][i + 1] = add_sat(ret->saved[way][i], run->saved);
            ret->extras[way][i + 1] = add_sat(ret->extras[way][i], run->extras);
        }
    }
}

/* The first n passes of a direction: whole groups, whole runs of the next one, a part of another.
 */
struct played {
    uint64_t groups, run, part;
};

static struct played played_init(const struct schedule *s, int n)
{
    int runs = n / s->stages, groups = runs / s->runs;
    return (struct played){ (uint64_t)groups, (uint64_t)(runs - groups * s->runs),
                            (uint64_t)(n - runs * s->stages) };
}

static uint64_t played_bytes(const struct schedule *s, const struct played *p, const uint64_t *sums)
{
    uint64_t whole = add_sat(mul_sat(p->groups, sums[s->runs]), sums[p->run]);
    uint64_t part = mul_sat(p->part, sums[p->run + 1] - sums[p->run]);
    return add_sat(mul_sat(whole, (uint64_t)s->stages), part);
}

/* Passes of the run at that place of its group. */
static uint64_t played_passes(const struct schedule *s, const struct played *p, uint64_t place)
{
    uint64_t p_of = (uint64_t)s->stages;
    return p->groups * p_of + (p->run > place ? p_of : p->run == place ? p->part : 0);
}

static uint64_t difference(uint64_t came, uint64_t gone)
{
    return bytes_overflowed(came) ? came : came - gone;
}

static void beside_pass(const struct schedule *s, const struct sums *sums, int run, enum way way,
                        int pass, struct beside *ret)
{
    int at = way == WAY_FORWARD ? pass : pass + s->ahead + 1;
    int forwards = at < s->passes ? at : s->passes, backwards = at > s->ahead ? at - s->ahead : 0;
    struct played came = played_init(s, forwards), gone = played_init(s, backwards);
    struct played own = way == WAY_FORWARD ? came : played_init(s, pass);
    *ret = (struct beside){ .runs = (uint64_t)(forwards - backwards) };
    ret->micro_batch = (int)(own.groups * (uint64_t)s->stages + own.part);
    ret->order = way == WAY_FORWARD ? 2 * pass : 2 * (pass + s->ahead) + 1;
    ret->micro_batches =
        played_passes(s, &came, 0) + (run == 0) - played_passes(s, &gone, (uint64_t)s->runs - 1);
    ret->saved = difference(played_bytes(s, &came, sums->saved[WAY_FORWARD]),
                            played_bytes(s, &gone, sums->saved[WAY_BACKWARD]));
    ret->extras = difference(played_bytes(s, &came, sums->extras[WAY_FORWARD]),
                             played_bytes(s, &gone, sums->extras[WAY_BACKWARD]));
}

static void find(const struct schedule *s, const uint64_t *bytes,
                 struct fullest ret[WAYS][MODEL_MAX_LAYERS])
{
    for (int way = 0; way < WAYS; way++)
        for (int i = 0; i < s->runs; i++)
            ret[way][i].any = false;
    find_forwards(s, bytes, ret[WAY_FORWARD]);
    find_backwards(s, bytes, ret[WAY_BACKWARD]);
}

/* All micro-batches alike: as many as there ever are, or one less, beside every pass. */
static void beside_each(const struct in_flight *f, const struct run_bytes *of, struct beside *ret)
{
    uint64_t others = f->micro_batches > 1 ? (uint64_t)f->micro_batches - 1 : 0;
    for (int way = 0; way < WAYS; way++) {
        memset(&ret[way], 0, sizeof ret[way]);
        ret[way].micro_batch = way == WAY_FORWARD ? (int)others : 0;
        ret[way].runs = others;
        ret[way].micro_batches = others + 1;
        ret[way].saved = ret[way].most_saved = mul_sat(others, of->saved);
        ret[way].extras = ret[way].most_extras = mul_sat(others, of->extras);
    }
}

void beside_init(const struct budget_input *in, int stage, const struct in_flight *f,
                 const struct run_bytes *of, int from, struct beside (*ret)[WAYS])
{
    struct fullest fullest[WAYS][MODEL_MAX_LAYERS];
    uint64_t bytes[MODEL_MAX_LAYERS], inputs = mul_sat((uint64_t)f->run, f->checkpoint);
    int held = run_count(f->run, f->layers);
    struct schedule s;
    struct sums sums;
    if (in->choices->layout.vpp <= 1) {
        beside_each(f, of, ret[0]);
        return;
    }
    schedule_init(in, stage, held, &s);
    bytes[0] = add_sat(f->inputs, add_sat(inputs, add_sat(of[0].saved, of[0].extras)));
    for (int i = 1; i < s.runs; i++)
        bytes[i] = add_sat(inputs, add_sat(of[i].saved, of[i].extras));
    find(&s, bytes, fullest);
    sums_init(&s, of, &sums);
    for (int run = from; run < held; run++)
        for (int way = 0; way < WAYS; way++) {
            int at = run < s.runs ? run : s.runs - 1;
            beside_pass(&s, &sums, at, (enum way)way, fullest[way][at].pass, &ret[run][way]);
        }
}

/* The most of one kind of bytes, at whichever pass. */
static void most_of(const struct schedule *s, const struct run_bytes *of, bool extras,
                    struct beside (*beside)[WAYS])
{
    struct fullest fullest[WAYS][MODEL_MAX_LAYERS];
    uint64_t bytes[MODEL_MAX_LAYERS], any = 0;
    struct sums sums;
    for (int i = 0; i < s->runs; i++) {
        bytes[i] = extras ? of[i].extras : of[i].saved;
        any |= bytes[i];
    }
    if (any == 0)
        return;
    find(s, bytes, fullest);
    sums_init(s, of, &sums);
    for (int run = 0; run < s->held; run++)
        for (int way = 0; way < WAYS; way++) {
            int at = run < s->runs ? run : s->runs - 1;
            struct beside most, *b = &beside[run][way];
            beside_pass(s, &sums, at, (enum way)way, fullest[way][at].pass, &most);
            if (extras)
                b->most_extras = most.extras;
            else
                b->most_saved = most.saved;
        }
}

void beside_most(const struct budget_input *in, int stage, const struct in_flight *f,
                 const struct run_bytes *of, struct beside (*beside)[WAYS])
{
    struct schedule s;
    if (in->choices->layout.vpp <= 1)
        return;
    schedule_init(in, stage, run_count(f->run, f->layers), &s);
    most_of(&s, of, false, beside);
    most_of(&s, of, true, beside);
}
