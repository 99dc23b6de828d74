/* worker.c - what a worker has found, and what of the rest is worth a look. */
#include "planner/search/family.h"

#include <string.h>

int worker_init(struct worker *worker, const struct space *space, struct shared_search *shared)
{
    struct budget_input facts = space_budget_input(space, NULL);
    memset(worker, 0, sizeof *worker);
    worker->shared = shared;
    worker->space = *space;
    worker->estimator = estimator_open(&facts);
    if (!worker->estimator || (shared->front && front_init(&worker->front)))
        return -1;
    return 0;
}

void worker_done(struct worker *worker)
{
    estimator_close(worker->estimator);
    front_done(&worker->front);
}

bool score_better(const struct score *a, const struct score *b)
{
    if (a->first < b->first || a->first > b->first)
        return a->first < b->first;
    if (a->second < b->second || a->second > b->second)
        return a->second < b->second;
    return a->unit != b->unit ? a->unit < b->unit : a->member < b->member;
}

static double bound_of(const struct worker *w)
{
    uint64_t bits = atomic_load_explicit(&w->shared->bound, memory_order_relaxed);
    double bound;
    memcpy(&bound, &bits, sizeof bound);
    return bound;
}

/* Scores are positive, so that their bits are ordered as they are. */
static void lower_bound(struct worker *w, double first)
{
    uint64_t bits, now = atomic_load_explicit(&w->shared->bound, memory_order_relaxed);
    memcpy(&bits, &first, sizeof bits);
    while (bits < now &&
           !atomic_compare_exchange_weak_explicit(&w->shared->bound, &now, bits,
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
}

bool worker_is_hopeless(const struct worker *w, double seconds, uint64_t bytes)
{
    const struct shared_search *shared = w->shared;
    if (shared->skip_nothing)
        return false;
    if (bytes > worker_most_bytes(w))
        return true;
    if (shared->front)
        return front_covers(&w->front, seconds, bytes);
    return shared->goal != GOAL_SMALLEST && seconds > bound_of(w);
}

uint64_t worker_most_bytes(const struct worker *w)
{
    double bound;
    if (w->shared->goal != GOAL_SMALLEST)
        return w->space.limit_bytes;
    if (w->shared->front)
        return UINT64_MAX;
    bound = bound_of(w);
    return bound < 1e19 ? (uint64_t)bound : UINT64_MAX;
}

static bool is_wanted(const struct worker *w, const struct peaks *peaks)
{
    uint64_t limit = w->space.limit_bytes;
    if (peaks->host_bytes > space_host_room(&w->space))
        return false;
    switch (w->shared->goal) {
    case GOAL_FITS:
        return peaks->peak_upper_bytes <= limit;
    case GOAL_TIGHT:
        return peaks->peak_bytes <= limit;
    case GOAL_SMALLEST:
        break;
    }
    return true;
}

bool worker_judge(struct worker *w, const struct choices *choices, double seconds,
                  uint64_t *ret_bytes)
{
    struct peaks peaks;
    struct score score = { .unit = w->unit, .member = w->member };
    w->judged++;
    estimator_peaks(w->estimator, choices, &peaks);
    if (ret_bytes)
        *ret_bytes = peaks.peak_upper_bytes;
    if (!is_wanted(w, &peaks))
        return false;
    double bytes = (double)peaks.peak_upper_bytes;
    bool smallest = w->shared->goal == GOAL_SMALLEST;
    score.first = smallest ? bytes : seconds;
    score.second = smallest ? seconds : bytes;
    if (w->shared->front)
        front_add(&w->front, w->unit, seconds, peaks.peak_upper_bytes, choices);
    if (w->any && !score_better(&score, &w->best_score))
        return true;
    w->any = true;
    w->best_score = score;
    w->best = *choices;
    lower_bound(w, score.first);
    return true;
}
