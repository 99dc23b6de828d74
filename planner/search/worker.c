/* worker.c - what a worker has found, and what of the rest is worth a look. */
#include "planner/search/family.h"

#include "base/checked.h"

#include <string.h>

int worker_init(struct worker *worker, const struct space *space, struct shared_search *shared)
{
    struct budget_input facts = space_budget_input(space, NULL);
    memset(worker, 0, sizeof *worker);
    worker->shared = shared;
    worker->space = *space;
    worker->predictor = worker->space.predictor = predictor_open(&facts, PREDICTOR_MANY_LAYOUTS);
    worker->slowest = worker->space.slowest =
        predictor_open_slowest(&facts, PREDICTOR_MANY_LAYOUTS);
    return worker->predictor && worker->slowest ? 0 : -1;
}

void worker_done(struct worker *worker)
{
    predictor_close(worker->predictor);
    predictor_close(worker->slowest);
}

static bool score_better(const struct score *a, const struct score *b)
{
    if (a->first < b->first || a->first > b->first)
        return a->first < b->first;
    if (a->second < b->second || a->second > b->second)
        return a->second < b->second;
    if (a->third < b->third || a->third > b->third)
        return a->third < b->third;
    return a->unit != b->unit ? a->unit < b->unit : a->member < b->member;
}

void found_take(struct found *found, const struct found *other)
{
    if (other->any && (!found->any || score_better(&other->score, &found->score)))
        *found = *other;
}

void step_set(struct step *step, uint64_t bytes, double bound)
{
    uint64_t bits;
    memcpy(&bits, &bound, sizeof bits);
    step->bytes = bytes;
    atomic_store(&step->bound, bits);
}

static double bound_of(const struct step *step)
{
    uint64_t bits = atomic_load_explicit(&step->bound, memory_order_relaxed);
    double bound;
    memcpy(&bound, &bits, sizeof bound);
    return bound;
}

/* Scores are positive, so that their bits are ordered as they are. */
static void lower_bound(struct step *step, double first)
{
    uint64_t bits, now = atomic_load_explicit(&step->bound, memory_order_relaxed);
    memcpy(&bits, &first, sizeof bits);
    while (bits < now && !atomic_compare_exchange_weak_explicit(
                             &step->bound, &now, bits, memory_order_relaxed, memory_order_relaxed))
        continue;
}

/* A floor bounds the point estimate too, which is what is tight by. */
uint64_t worker_most_bytes(const struct worker *w, int step)
{
    const struct shared_search *shared = w->shared;
    uint64_t bytes = shared->steps[step].bytes;
    double bound;
    if (shared->skip_nothing)
        return UINT64_MAX;
    switch (shared->goal) {
    case GOAL_FITS:
    case GOAL_EXPECTED:
        break;
    case GOAL_TIGHT:
        return bytes < w->space.limit_bytes ? bytes : w->space.limit_bytes;
    case GOAL_SMALLEST:
        bound = bound_of(&shared->steps[step]);
        return bound < 1e19 ? (uint64_t)bound : UINT64_MAX;
    case GOAL_ROOMIEST:
        bound = bound_of(&shared->steps[step]) * (double)shared->same_bytes;
        return bound < (double)bytes ? (uint64_t)bound : bytes;
    }
    return bytes;
}

int worker_step(const struct worker *w, uint64_t bytes)
{
    int step = w->shared->step_count - 1;
    while (step >= 0 && bytes > worker_most_bytes(w, step))
        step--;
    return step;
}

/* Bounds are sums in another order than the seconds of a layout: equal up to rounding. */
bool worker_is_slow(const struct worker *w, int step, double seconds)
{
    const struct shared_search *shared = w->shared;
    if (shared->skip_nothing || shared->goal == GOAL_SMALLEST)
        return false;
    double most = shared->goal == GOAL_EXPECTED || shared->goal == GOAL_ROOMIEST
                      ? shared->most_seconds
                      : bound_of(&shared->steps[step]);
    return seconds * (1 - 1e-12) > most;
}

bool worker_is_hopeless(const struct worker *w, double seconds, uint64_t bytes)
{
    int step = worker_step(w, bytes);
    return step < 0 || worker_is_slow(w, step, seconds);
}

static bool is_wanted(const struct worker *w, const struct layout_peaks *peaks)
{
    uint64_t limit = w->space.limit_bytes;
    if (peaks->host_bytes > space_host_room(&w->space))
        return false;
    enum goal goal = w->shared->goal;
    if (goal == GOAL_EXPECTED || goal == GOAL_ROOMIEST)
        goal = w->shared->fits;
    if (goal == GOAL_FITS)
        return peaks->peak_upper_bytes <= limit;
    return goal != GOAL_TIGHT || peaks->peak_bytes <= limit;
}

static void take(struct worker *w, int step, struct score score, const struct choices *choices)
{
    struct found *found = &w->found[step];
    score.unit = w->unit;
    score.member = w->member;
    if (found->any && !score_better(&score, &found->score))
        return;
    *found = (struct found){ true, score, *choices };
    lower_bound(&w->shared->steps[step], score.first);
}

double worker_seconds(struct worker *w, const struct choices *choices)
{
    return predictor_slowest_seconds(w->slowest, choices);
}

double worker_expected(struct worker *w, const struct choices *choices)
{
    struct step_time time;
    predictor_time(w->predictor, choices, &time);
    return time.seconds;
}

bool worker_judge(struct worker *w, const struct choices *choices, double seconds)
{
    const struct shared_search *shared = w->shared;
    struct layout_peaks peaks;
    int step = 0;
    w->judged++;
    predictor_peaks(w->predictor, choices, &peaks);
    if (!is_wanted(w, &peaks))
        return false;
    for (; step < shared->step_count && peaks.peak_upper_bytes <= shared->steps[step].bytes; step++)
        take(w, step, (struct score){ .first = seconds, .second = (double)peaks.peak_upper_bytes },
             choices);
    return step == shared->step_count;
}

uint64_t worker_weigh(struct worker *w, const struct choices *choices)
{
    struct layout_peaks peaks;
    w->judged++;
    predictor_peaks(w->predictor, choices, &peaks);
    uint64_t bytes = peaks.peak_upper_bytes;
    if (is_wanted(w, &peaks) && bytes <= worker_most_bytes(w, 0))
        take(w, 0, (struct score){ .first = (double)bytes, .second = worker_seconds(w, choices) },
             choices);
    return bytes;
}

bool worker_expect(struct worker *w, const struct choices *choices)
{
    struct layout_peaks peaks;
    w->judged++;
    predictor_peaks(w->predictor, choices, &peaks);
    if (!is_wanted(w, &peaks))
        return false;
    double seconds = worker_expected(w, choices);
    take(w, 0, (struct score){ .first = seconds, .second = (double)peaks.peak_upper_bytes },
         choices);
    return true;
}

uint64_t worker_room(struct worker *w, const struct choices *choices)
{
    struct layout_peaks peaks;
    w->judged++;
    predictor_peaks(w->predictor, choices, &peaks);
    return is_wanted(w, &peaks) ? div_up(peaks.peak_upper_bytes, w->shared->same_bytes) : 0;
}

void worker_take_room(struct worker *w, const struct choices *choices, uint64_t units)
{
    take(w, 0,
         (struct score){ .first = (double)units,
                         .second = choices_complexity(choices),
                         .third = worker_expected(w, choices) },
         choices);
}
