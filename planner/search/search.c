/* search.c - workers over the factorizations of the world, and what they found put together. */
#include "planner/search/search.h"

#include "planner/search/family.h"
#include "planner/search/units.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 16 };

struct search {
    struct space space;
    struct units units;
    uint64_t unit_count;
    pthread_mutex_t lock; /* of units */
    struct shared_search shared;
    int workers;
    struct worker worker[THREADS_MAX];
    uint64_t table_bytes;
    struct found fastest, smallest;
    struct found roomiest; /* of the equally fast */
    int front_count;
    struct found front[FRONT_MAX]; /* the fastest first; those of a step on which there is nothing
                                      are not `any` */
};

static double now_seconds(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now))
        return 0;
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

struct job {
    struct search *search;
    int index;
    const struct search_options *options; /* of the caller's thread only: it tells of progress */
};

static bool take_unit(struct search *search, struct degrees *ret, uint64_t *ret_unit)
{
    (void)pthread_mutex_lock(&search->lock);
    bool taken = units_next(&search->units, ret, ret_unit);
    (void)pthread_mutex_unlock(&search->lock);
    return taken;
}

/* Takes units until there are none. */
static void *work(void *context)
{
    struct job *job = context;
    struct search *search = job->search;
    struct degrees degrees;
    uint64_t unit;
    while (take_unit(search, &degrees, &unit)) {
        worker_search(&search->worker[job->index], unit, &degrees);
        if (job->options && job->options->progress)
            job->options->progress(job->options->context,
                                   (double)unit / (double)search->unit_count);
    }
    return NULL;
}

static int thread_count(const struct search_options *options, uint64_t units)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    long threads = options->threads > 0 ? options->threads : cores;
    if (threads > THREADS_MAX)
        threads = THREADS_MAX;
    if ((uint64_t)threads > units)
        threads = (long)units;
    return threads > 1 ? (int)threads : 1;
}

/* Where a thread cannot be had, the others do its work. */
static void run_workers(struct search *search, const struct search_options *options)
{
    pthread_t threads[THREADS_MAX];
    struct job jobs[THREADS_MAX];
    bool started[THREADS_MAX] = { false };

    units_init(&search->space, &search->units);
    for (int i = 1; i < search->workers; i++) {
        jobs[i] = (struct job){ search, i, NULL };
        started[i] = pthread_create(&threads[i], NULL, work, &jobs[i]) == 0;
    }
    jobs[0] = (struct job){ search, 0, options };
    (void)work(&jobs[0]);
    for (int i = 1; i < search->workers; i++)
        if (started[i])
            (void)pthread_join(threads[i], NULL);
}

static void probe_units(struct search *search)
{
    struct degrees degrees;
    uint64_t unit;
    units_init(&search->space, &search->units);
    while (units_next(&search->units, &degrees, &unit))
        worker_probe(&search->worker[0], unit, &degrees);
}

/* The whole space once; what the workers found before is forgotten. ret: what they find on each
 * step. */
static void run_steps(struct search *search, const struct search_options *options,
                      struct found *ret)
{
    struct shared_search *shared = &search->shared;
    for (int i = 0; i < search->workers; i++) {
        struct worker *worker = &search->worker[i];
        memset(worker->found, 0, sizeof worker->found);
        worker->layouts = worker->legal = 0;
    }
    if (shared->goal == GOAL_SMALLEST && !shared->skip_nothing)
        probe_units(search);
    run_workers(search, options);
    for (int i = 0; i < search->workers; i++)
        for (int step = 0; step < shared->step_count; step++)
            found_take(&ret[step], &search->worker[i].found[step]);
}

/* One goal for the limit of the question; only less than `bound` is of interest. */
static void run_goal(struct search *search, const struct search_options *options, enum goal goal,
                     double bound, struct found *ret)
{
    struct shared_search *shared = &search->shared;
    shared->goal = goal;
    shared->step_count = 1;
    bool limited = goal == GOAL_FITS ||
                   (goal != GOAL_TIGHT && goal != GOAL_SMALLEST && shared->fits == GOAL_FITS);
    step_set(&shared->steps[0], limited ? search->space.limit_bytes : UINT64_MAX, bound);
    run_steps(search, options, ret);
}

static const double no_bound = 1e300;

/* What is fastest of what fits, or else of what fits by the point estimate. */
static void find_fastest(struct search *search, const struct search_options *options)
{
    double worth = options->worth_seconds > 0 ? options->worth_seconds : no_bound;
    run_goal(search, options, GOAL_FITS, worth, &search->fastest);
    if (!search->fastest.any && !options->fits_only)
        run_goal(search, options, GOAL_TIGHT, no_bound, &search->fastest);
}

/* Of the layouts as fast as the fastest, or nearly so where memory to spare is the objective, the
 * one with the most. */
static void find_roomiest(struct search *search, const struct search_options *options)
{
    struct shared_search *shared = &search->shared;
    struct found expected = { .any = false };
    double share = options->objective == OBJECTIVE_HEADROOM ? SEARCH_HEADROOM : SEARCH_EQUALLY_FAST;
    if (!search->fastest.any)
        return;
    shared->fits = shared->goal;
    shared->most_seconds = search->fastest.score.first * (1 + share);
    shared->same_bytes = search->space.limit_bytes / SEARCH_ROOM_UNITS + 1;
    run_goal(search, options, GOAL_EXPECTED, no_bound, &expected);
    shared->most_expected = expected.score.first * (1 + share);
    run_goal(search, options, GOAL_ROOMIEST, no_bound, &search->roomiest);
    shared->goal = shared->fits;
}

/* The smallest as a point of a front: seconds first. */
static struct found as_point(const struct found *smallest)
{
    struct found ret = *smallest;
    ret.score.first = smallest->score.second;
    ret.score.second = smallest->score.first;
    return ret;
}

/* From the fastest to the smallest at even steps of bytes the fastest layout on each: nothing beats
 * it in both. What the two ends are is known. */
static void find_front(struct search *search, const struct search_options *options)
{
    struct shared_search *shared = &search->shared;
    const struct found last = as_point(&search->smallest), *first = &search->fastest;
    uint64_t most = (uint64_t)first->score.second, least = (uint64_t)last.score.second;
    search->front[0] = *first;
    search->front_count = FRONT_MAX;
    if (!first->any || most <= least) {
        search->front[0] = first->any ? *first : last;
        search->front_count = 1;
        return;
    }
    shared->step_count = FRONT_MAX - 2;
    for (int i = 1; i < FRONT_MAX - 1; i++)
        step_set(&shared->steps[i - 1], most - (most - least) * (uint64_t)i / (FRONT_MAX - 1),
                 shared->goal == GOAL_FITS ? last.score.first : no_bound);
    run_steps(search, options, search->front + 1);
    search->front[FRONT_MAX - 1] = last;
}

static void run_goals(struct search *search, const struct search_options *options)
{
    find_fastest(search, options);
    if (!options->fastest)
        find_roomiest(search, options);
    enum goal goal = search->shared.goal;
    bool wanted = !options->fits_only && !options->no_smallest;
    if (options->front || (!search->fastest.any && wanted))
        run_goal(search, options, GOAL_SMALLEST, no_bound, &search->smallest);
    search->shared.goal = goal;
    if (options->front && search->smallest.any)
        find_front(search, options);
}

/* The whole answer of a layout, by the budgets themselves. */
static void candidate_of(const struct space *space, const struct choices *choices,
                         struct candidate *ret)
{
    ret->choices = *choices;
    predictor_choose(space->predictor, &ret->choices, NULL);
    budget_worst(space->predictor, &ret->worst);
    step_time_compute(space->predictor, &ret->time);
    ret->slowest_seconds = predictor_slowest_seconds(space->slowest, &ret->choices);
    ret->verdict = space_verdict(space, &ret->worst);
}

/* Each point once. */
static void take_front(const struct search *search, struct search_result *ret)
{
    const struct found *last = NULL;
    for (int i = 0; i < search->front_count; i++) {
        const struct found *found = &search->front[i];
        if (!found->any || (last && found->score.second >= last->score.second))
            continue;
        candidate_of(&search->space, &found->choices, &ret->front[ret->front_count++]);
        last = found;
    }
}

static void collect(const struct search *search, struct search_result *ret)
{
    bool smallest = !search->fastest.any;
    const struct found *best = smallest               ? &search->smallest
                               : search->roomiest.any ? &search->roomiest
                                                      : &search->fastest;
    for (int i = 0; i < search->workers; i++) {
        ret->layouts += search->worker[i].layouts;
        ret->legal += search->worker[i].legal;
        ret->judged += search->worker[i].judged;
        ret->possible |= search->worker[i].possible;
    }
    if (search->fastest.any)
        ret->fastest_seconds = search->fastest.score.first;
    ret->table_bytes = search->table_bytes;
    ret->any = best->any;
    ret->gpus = search->space.q->gpus;
    if (best->any)
        candidate_of(&search->space, &best->choices, &ret->best);
    take_front(search, ret);
}

static int search_init(struct search *search, const struct question *q,
                       const struct search_options *options)
{
    if (pthread_mutex_init(&search->lock, NULL))
        return -1;
    space_init(&search->space, q);
    space_open(&search->space, options->everything);
    if (options->kinds)
        space_open_kinds(&search->space);
    if (!options->host_memory)
        space_close_host(&search->space);
    search->space.only_offload = options->offloads;
    search->shared.skip_nothing = options->skip_nothing;
    search->unit_count = units_count(&search->space);
    search->workers = thread_count(options, search->unit_count);
    for (int i = 0; i < search->workers; i++) {
        struct worker *worker = &search->worker[i];
        if (worker_init(worker, &search->space, &search->shared))
            return -1;
        if (options->settled)
            search->table_bytes +=
                predictor_settle(worker->predictor) + predictor_settle(worker->slowest);
    }
    search->space.predictor = search->worker[0].predictor; /* for what comes after the workers */
    search->space.slowest = search->worker[0].slowest;
    return 0;
}

static void search_done(struct search *search)
{
    for (int i = 0; i < search->workers; i++)
        worker_done(&search->worker[i]);
    (void)pthread_mutex_destroy(&search->lock);
    free(search);
}

int search_run(const struct question *q, const struct search_options *options,
               struct search_result *ret, struct diag_list *reterr)
{
    double start = now_seconds();
    struct search *search = calloc(1, sizeof *search);
    int rc = -1;

    memset(ret, 0, sizeof *ret);
    if (search && search_init(search, q, options) == 0) {
        run_goals(search, options);
        collect(search, ret);
        rc = 0;
    }
    if (search)
        search_done(search);
    ret->seconds = now_seconds() - start;
    return rc == 0 ? 0 : diag_no_memory(reterr);
}

/* Machines come in divisors of a node and in whole nodes. */
static bool is_a_world(const struct question *q, int gpus)
{
    int node = q->hardware->gpus_per_node;
    return node < 1 || node % gpus == 0 || gpus % node == 0;
}

/* Seconds of a step on this question's GPUs that cost as much a token as the best so far. */
static double worth_seconds(const struct question *q, const struct search_result *best)
{
    struct question other = *q;
    if (!best->any)
        return 0;
    other.gpus = best->gpus;
    double sequences = (double)question_global_batch(q) / (double)question_global_batch(&other);
    return best->fastest_seconds * sequences * best->gpus / q->gpus;
}

struct part {
    const struct search_options *options;
    int done, of;
};

static void progress_of_part(void *context, double share)
{
    const struct part *part = context;
    part->options->progress(part->options->context, (part->done + share) / part->of);
}

/* Fewer GPUs first: the first that fit are the fewest. */
int search_worlds(const struct question *q, const struct search_options *options,
                  struct search_result *ret, struct diag_list *reterr)
{
    struct question part_q = *q;
    struct search_options part_options = *options;
    struct part part = { options, 0, q->gpus };
    struct search_result *one = calloc(1, sizeof *one);
    int rc = 0, fewer = 0;

    memset(ret, 0, sizeof *ret);
    if (!one)
        return diag_no_memory(reterr);
    part_options.fits_only = true;
    part_options.settled = false; /* the tables of a world come and go with it */
    part_options.progress = options->progress ? progress_of_part : NULL;
    part_options.context = &part;
    for (int gpus = 1; gpus <= q->gpus && rc == 0; gpus++) {
        if (!is_a_world(q, gpus))
            continue;
        part.done = gpus - 1;
        part_q.gpus = gpus;
        part_options.worth_seconds = worth_seconds(&part_q, ret);
        rc = search_run(&part_q, &part_options, one, reterr);
        one->layouts += ret->layouts;
        one->legal += ret->legal;
        one->judged += ret->judged;
        one->seconds += ret->seconds;
        if (rc == 0 && one->any)
            *ret = *one;
        if (!ret->any)
            fewer = gpus;
        ret->layouts = one->layouts;
        ret->legal = one->legal;
        ret->judged = one->judged;
        ret->seconds = one->seconds;
        if (ret->any && options->objective == OBJECTIVE_GPUS)
            break;
    }
    ret->fewer = ret->any ? fewer : 0;
    free(one);
    return rc;
}

long search_all(const struct question *q, struct candidate *ret)
{
    const struct search_options options = { .objective = OBJECTIVE_THROUGHPUT,
                                            .threads = 1,
                                            .fastest = true };
    struct search_result result;
    struct diag_list errors = { .count = 0 };

    if (search_run(q, &options, &result, &errors) != 0 || !result.any) {
        memset(ret, 0, sizeof *ret);
        ret->verdict = VERDICT_DOES_NOT_FIT;
        return (long)result.layouts;
    }
    *ret = result.best;
    return (long)result.layouts;
}
