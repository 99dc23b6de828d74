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
#include "planner/budget/parts.h"

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

/* Of the n-th run of backwards, counted through all groups; none before the first. */
static uint64_t taken(const struct schedule *s, const uint64_t *bytes, int n)
{
    return n < 0 ? 0 : bytes[s->runs - 1 - n % s->runs];
}

/* Of the n-th run of forwards; none behind the last. */
static uint64_t brought(const struct schedule *s, const uint64_t *bytes, int n)
{
    return n * s->stages < s->passes ? bytes[n % s->runs] : 0;
}

/* Sums may wrap on their way, and are right in the end. bytes: of a pass of each run. */
static void find_forwards(const struct schedule *s, const uint64_t *bytes, struct fullest *ret)
{
    uint64_t p = (uint64_t)s->stages, turn = (uint64_t)(s->ahead % s->stages), sum = 0;
    int late = s->ahead / s->stages, count = s->passes / s->stages;
    for (int i = 0; i < count; i++) {
        struct fullest *run = &ret[i % s->runs];
        int first = i * s->stages;
        uint64_t own = bytes[i % s->runs], before = own - taken(s, bytes, i - late - 1);
        uint64_t after = own - taken(s, bytes, i - late), turned = sum + turn * before;
        consider(run, sum, first);
        consider(run, turned, first + (int)turn);
        consider(run, turned + (p - 1 - turn) * after, first + s->stages - 1);
        sum = turned + (p - turn) * after;
    }
}

/* Beside the first backward. */
static uint64_t first_backward(const struct schedule *s, const uint64_t *bytes)
{
    uint64_t sum = 0;
    int forwards = s->ahead + 1, whole = forwards / s->stages;
    for (int i = 0; i < whole; i++)
        sum += (uint64_t)s->stages * bytes[i % s->runs];
    return sum + (uint64_t)(forwards % s->stages) * bytes[whole % s->runs] - bytes[s->runs - 1];
}

static void find_backwards(const struct schedule *s, const uint64_t *bytes, struct fullest *ret)
{
    int early = (s->ahead + 1) / s->stages, rest = (s->ahead + 1) % s->stages;
    uint64_t last = (uint64_t)s->stages - 1, turn = rest > 0 ? (uint64_t)(s->stages - rest) : last;
    uint64_t sum = first_backward(s, bytes);
    for (int i = 0; i < s->runs; i++) {
        struct fullest *run = &ret[s->runs - 1 - i];
        int first = i * s->stages;
        uint64_t own = taken(s, bytes, i), before = brought(s, bytes, i + early) - own;
        uint64_t next = brought(s, bytes, i + early + (rest > 0)), turned = sum + turn * before;
        consider(run, sum, first);
        consider(run, turned, first + (int)turn);
        sum = turned + (last - turn) * (next - own);
        consider(run, sum, first + s->stages - 1);
        sum += next - taken(s, bytes, i + 1);
    }
}

/* Passes of a run among the first n, which are `groups` whole groups and `rest`. */
static uint64_t passes_of(const struct schedule *s, int groups, int rest, int run)
{
    int own = rest - run * s->stages, count = groups * s->stages;
    count += own < 0 ? 0 : own < s->stages ? own : s->stages;
    return (uint64_t)count;
}

/* What is beside a pass, run by run. */
static void in_flight_runs(const struct schedule *s, enum way way, int pass, uint64_t *ret)
{
    int group = s->stages * s->runs, at = way == WAY_FORWARD ? pass : pass + s->ahead + 1;
    int forwards = at < s->passes ? at : s->passes;
    int backwards = at > s->ahead ? at - s->ahead : 0;
    for (int i = 0; i < s->runs; i++)
        ret[i] = passes_of(s, forwards / group, forwards % group, i) -
                 passes_of(s, backwards / group, backwards % group, s->runs - 1 - i);
}

static void beside_pass(const struct schedule *s, const struct run_bytes *of, int run, enum way way,
                        int pass, struct beside *ret)
{
    uint64_t count[MODEL_MAX_LAYERS];
    in_flight_runs(s, way, pass, count);
    memset(ret, 0, sizeof *ret);
    ret->micro_batch = pass / (s->stages * s->runs) * s->stages + pass % s->stages;
    ret->order = way == WAY_FORWARD ? 2 * pass : 2 * (pass + s->ahead) + 1;
    ret->micro_batches = count[0] + (run == 0);
    for (int i = 0; i < s->runs; i++) {
        ret->runs = add_sat(ret->runs, count[i]);
        ret->saved = add_sat(ret->saved, mul_sat(count[i], of[i].saved));
        ret->extras = add_sat(ret->extras, mul_sat(count[i], of[i].extras));
    }
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
    if (in->choices->layout.vpp <= 1) {
        beside_each(f, of, ret[0]);
        return;
    }
    schedule_init(in, stage, held, &s);
    for (int i = 0; i < s.runs; i++) {
        bytes[i] = add_sat(inputs, add_sat(of[i].saved, of[i].extras));
        bytes[i] = i == 0 ? add_sat(bytes[i], f->inputs) : bytes[i];
    }
    find(&s, bytes, fullest);
    for (int run = from; run < held; run++)
        for (int way = 0; way < WAYS; way++) {
            int at = run < s.runs ? run : s.runs - 1;
            beside_pass(&s, of, at, (enum way)way, fullest[way][at].pass, &ret[run][way]);
        }
}

/* The most of one kind of bytes, at whichever pass. */
static void most_of(const struct schedule *s, const struct run_bytes *of, bool extras,
                    struct beside (*beside)[WAYS])
{
    struct fullest fullest[WAYS][MODEL_MAX_LAYERS];
    uint64_t bytes[MODEL_MAX_LAYERS], any = 0;
    for (int i = 0; i < s->runs; i++) {
        bytes[i] = extras ? of[i].extras : of[i].saved;
        any |= bytes[i];
    }
    if (any == 0)
        return;
    find(s, bytes, fullest);
    for (int run = 0; run < s->held; run++)
        for (int way = 0; way < WAYS; way++) {
            int at = run < s->runs ? run : s->runs - 1;
            struct beside most, *b = &beside[run][way];
            beside_pass(s, of, at, (enum way)way, fullest[way][at].pass, &most);
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
