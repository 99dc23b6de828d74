/* ladder.c - bounds of layouts that differ in how many layers they recompute alone. */
#include "planner/search/family.h"

uint64_t ladder_floor(struct worker *w, const struct ladder *l, int index)
{
    variant_set(l->variants, index, &l->least->primitives);
    return l->bounds->floor(w->predictor, l->least);
}

int ladder_first_on(struct worker *w, const struct ladder *l, int step, int from)
{
    const uint64_t most = worker_most_bytes(w, step);
    int low = from - 1, high = l->variants->count - 1;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (ladder_floor(w, l, middle) > most)
            low = middle;
        else
            high = middle;
    }
    return high;
}

bool ladder_init(struct worker *w, struct ladder *l)
{
    int last = l->variants->count - 1;
    l->first = l->from;
    if (l->from > last)
        return false;
    l->last_step = worker_step(w, ladder_floor(w, l, last));
    if (l->last_step < 0)
        return false;
    if (w->shared->goal != GOAL_SMALLEST)
        l->first = ladder_first_on(w, l, 0, l->from);
    return true;
}

/* Whether the variants from `first` on, the first that may be on the step `from`, are hopeless for
 * it and for those up to `to`. Nothing on these is faster than the first, which is all that need be
 * asked where even the last of them, of the fewest bytes, asks for more speed; else halves. */
static bool steps_are_hopeless(struct worker *w, const struct ladder *l, int first, int from,
                               int to)
{
    variant_set(l->variants, first, &l->fastest->primitives);
    if (worker_is_slow(w, to, l->bounds->seconds(w->slowest, l->fastest, l->seconds)))
        return true;
    if (from == to)
        return false;
    int middle = from + (to - from) / 2;
    return steps_are_hopeless(w, l, first, from, middle) &&
           steps_are_hopeless(w, l, ladder_first_on(w, l, middle + 1, first), middle + 1, to);
}

bool ladder_is_hopeless(struct worker *w, const struct ladder *l)
{
    if (w->shared->goal == GOAL_SMALLEST)
        return false;
    return steps_are_hopeless(w, l, l->first, 0, l->last_step);
}
