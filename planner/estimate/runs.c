/* runs.c - what kept_by_others finds looking at all ends of runs, here from one to the next. */
#include "planner/estimate/shared.h"

#include "base/checked.h"

#include <string.h>

/* Passes of one direction, in the order in which they are played: `left` of the run at work before
 * the next one is. */
struct passes {
    int64_t run, left;
};

struct play {
    int64_t stages, runs, held; /* held: runs that there are layers for */
    const uint64_t *kept;
    uint64_t *most;
    int64_t sum; /* kept by all in flight */
    struct passes forward, backward;
};

static int64_t kept_of(const struct play *w, int64_t run)
{
    return run < w->held ? (int64_t)w->kept[run] : 0;
}

/* Of the run at work, which is part of the sum. */
static void look(struct play *w, int64_t run, int64_t sum)
{
    int64_t others = sum - kept_of(w, run);
    if (run < w->held && others > (int64_t)w->most[run])
        w->most[run] = (uint64_t)others;
}

static void pass(const struct play *w, struct passes *p, int64_t n, int step)
{
    p->left -= n;
    if (p->left > 0)
        return;
    p->left = w->stages;
    p->run = (p->run + step + w->runs) % w->runs;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Until the first backward nothing leaves: the last pass of a stretch is the fullest. */
static void warm_up(struct play *w, int64_t forwards)
{
    while (forwards > 0) {
        int64_t n = least(forwards, w->forward.left);
        w->sum += n * kept_of(w, w->forward.run);
        look(w, w->forward.run, w->sum);
        pass(w, &w->forward, n, 1);
        forwards -= n;
    }
    look(w, w->backward.run, w->sum);
}

/* One backward and one forward, so many times; between ends of runs the sum changes evenly, and the
 * first or the last of a stretch is the fullest. After a turn of all runs all repeats. */
static void steady(struct play *w, int64_t pairs)
{
    pairs = least(pairs, w->stages * w->runs);
    while (pairs > 0) {
        int64_t n = least(pairs, least(w->forward.left, w->backward.left));
        int64_t forth = w->forward.run, back = w->backward.run;
        int64_t in = kept_of(w, forth), out = kept_of(w, back);
        look(w, forth, w->sum + in - out);
        w->sum += (n - 1) * (in - out);
        look(w, back, w->sum);
        w->sum += in - out;
        look(w, forth, w->sum);
        pass(w, &w->forward, n, 1);
        pass(w, &w->backward, n, -1);
        look(w, w->backward.run, w->sum);
        pairs -= n;
    }
}

/* No more forwards: of each stretch of a run its first pass is the fullest. */
static void run_down(struct play *w, int64_t backwards)
{
    while (backwards > 0) {
        int64_t n = least(backwards, w->backward.left);
        look(w, w->backward.run, w->sum);
        w->sum -= n * kept_of(w, w->backward.run);
        pass(w, &w->backward, n, -1);
        backwards -= n;
    }
}

/* Whether no sum of a play, nor of kept_by_others, comes near the end of its type. */
static bool is_small(const struct play *w)
{
    uint64_t group = 0;
    for (int64_t i = 0; i < w->runs; i++)
        group = add_sat(group, i < w->held ? w->kept[i] : 0);
    return !bytes_overflowed(mul_sat(mul_sat(group, (uint64_t)w->stages), 32));
}

void kept_in_flight(const struct stage_parts *parts, int runs, const uint64_t *kept, uint64_t *ret)
{
    const struct budget_input *in = &parts->e->in;
    const struct layout *l = &in->choices->layout;
    struct play w = { l->pp, l->vpp, runs, kept, ret, 0, { 0, l->pp }, { l->vpp - 1, l->pp } };
    bool whole = micro_batches_of(in) % l->pp == 0; /* groups: else their ends are elsewhere */
    if (l->vpp <= 1 || !whole || !is_small(&w)) {
        kept_by_others(in, parts->stage->index, runs, kept, ret);
        return;
    }
    int64_t all = (int64_t)micro_batches_of(in) * l->vpp;
    int64_t in_flight = (int64_t)(parts->flight.other_layers / (uint64_t)parts->flight.run) + 1;
    memset(ret, 0, (size_t)runs * sizeof *ret);
    warm_up(&w, in_flight);
    steady(&w, all - in_flight);
    if (all - in_flight <= w.stages * w.runs)
        run_down(&w, in_flight);
}
