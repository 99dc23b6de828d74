/* Speed of estimates and searches against their promises, in CPU time, as ratios (below 1.00 keeps
 * the promise): full answers (memory of all stages and step time) at 300,000 a second, a million
 * layouts each judged in 5 s on two cores, in memory that is the same for a tenth of them; searches
 * with their proofs beside. Prints; judges nothing. */
#include "base/model/model.h"
#include "planner/predict/predictor.h"
#include "planner/search/search.h"
#include "planner/search/space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAYOUTS = 200000 };

struct subject {
    struct model model;
    struct hardware hardware;
    struct model_sizes sizes;
    struct question question;
    struct space space;
    int count;
    struct choices *layouts;
};

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void report(const char *what, double got, double promise, const char *unit)
{
    printf("%-52s %12.3f %-4s  promise %10.3f %-4s  ratio %.2f\n", what, got, unit, promise, unit,
           got / promise);
}

/* Settings of one set of degrees. */
static void add_settings(struct subject *s, const struct degrees *degrees)
{
    const struct space *space = &s->space;
    int points = space->sharding.count * space->recompute.count * space->loss.count *
                 space->chunks.count * space->ahead.count;
    for (int i = 0; i < points && s->count < LAYOUTS; i++) {
        struct settings settings = { .linear_context = LINEAR_CONTEXT_STATE_PASS };
        int rest = i;
        settings.ahead = (enum ahead)space->ahead.values[rest % space->ahead.count];
        rest /= space->ahead.count;
        settings.loss = (enum loss)space->loss.values[rest % space->loss.count];
        rest /= space->loss.count;
        settings.recompute = (enum recompute)space->recompute.values[rest % space->recompute.count];
        rest /= space->recompute.count;
        settings.chunks = space->chunks.values[rest % space->chunks.count];
        rest /= space->chunks.count;
        settings.sharding = (enum sharding)space->sharding.values[rest];
        space_complete(space, degrees, &settings, &s->layouts[s->count]);
        s->count += space_is_legal(space, &s->layouts[s->count]);
    }
}

/* Every factorization, in the order of a search. */
static void add_degrees(struct subject *s, enum degree degree, struct degrees *degrees)
{
    int values[SPACE_MAX_DIVISORS];
    int count = space_degree_values(&s->space, degree, degrees, values);
    int *const places[] = { &degrees->tp, &degrees->pp, &degrees->cp, &degrees->ep, &degrees->etp };
    for (int i = 0; i < count && s->count < LAYOUTS; i++) {
        *places[degree] = values[i];
        if (degree == DEGREE_ETP)
            add_settings(s, degrees);
        else
            add_degrees(s, (enum degree)(degree + 1), degrees);
    }
}

static void answer_all(const struct subject *s, const char *what)
{
    struct budget_input facts = space_budget_input(&s->space, NULL);
    struct predictor *e = predictor_open(&facts, PREDICTOR_MANY_LAYOUTS);
    uint64_t sum = 0;
    double start = cpu_seconds(), seconds = 0;
    for (int i = 0; e && i < s->count; i++) {
        struct layout_peaks peaks;
        struct step_time time;
        predictor_peaks(e, &s->layouts[i], &peaks);
        predictor_time(e, &s->layouts[i], &time);
        sum += peaks.peak_bytes;
        seconds += time.seconds;
    }
    double taken = (cpu_seconds() - start) / s->count * 1e6;
    predictor_close(e);
    report(what, taken, 1e6 / 300000, "us");
    printf("%52s (%d layouts; sums %g bytes, %g s)\n", "", s->count, (double)sum, seconds);
}

/* The most that this process ever held, or -1. */
static long peak_kib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long ret = -1;
    while (file && ret < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, "VmHWM:", 6) == 0)
            ret = strtol(line + 6, NULL, 10);
    if (file)
        (void)fclose(file);
    return ret;
}

/* Forgets what was held so far. */
static void reset_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file)
        return;
    (void)fputs("5", file);
    (void)fclose(file);
}

static double search(struct subject *s, const struct search_options *options, uint64_t *ret_judged,
                     uint64_t *ret_layouts)
{
    static struct search_result result;
    struct diag_list errors = { 0 };
    double start = cpu_seconds();
    if (search_run(&s->question, options, &result, &errors) != 0)
        return 0;
    *ret_judged = result.judged;
    *ret_layouts = result.layouts;
    return cpu_seconds() - start;
}

/* Every layout that derivation chooses from, each judged: none is skipped. Returns what was held at
 * most. */
static long judge_all(struct subject *s, int gpus)
{
    const struct search_options options = { .threads = 2, .skip_nothing = true, .settled = true };
    uint64_t judged = 1, layouts;
    s->question.gpus = gpus;
    reset_peak();
    double taken = search(s, &options, &judged, &layouts);
    printf("%ju layouts on %d GPUs, each judged: %.3f s of CPU, %.1f MiB held at most\n",
           (uintmax_t)judged, gpus, taken, (double)peak_kib() / 1024);
    report("a million of them on two cores", taken / 2 / (double)judged * 1e6, 5, "s");
    return peak_kib();
}

/* The whole space with its proofs. Returns what was held at most. */
static long search_everything(struct subject *s, int gpus)
{
    const struct search_options options = { .threads = 2, .everything = true, .settled = true };
    uint64_t judged = 1, layouts = 1;
    s->question.gpus = gpus;
    reset_peak();
    double taken = search(s, &options, &judged, &layouts);
    printf(
        "search of everything on %d GPUs: %.3f s of CPU for %.3g layouts, %ju judged, %.1f MiB\n",
        gpus, taken, (double)layouts, (uintmax_t)judged, (double)peak_kib() / 1024);
    return peak_kib();
}

static int open_subject(struct subject *s, int gpus)
{
    static struct diag_list errors;
    if (model_load("qwen3.5-35b-a3b", &s->model, &errors) != 0 ||
        hardware_load("h100-sxm", &s->hardware, &errors) != 0) {
        diag_list_print(stderr, &errors);
        return -1;
    }
    model_sizes_init(&s->sizes, &s->model);
    s->question = (struct question){ .model = &s->model,
                                     .sizes = &s->sizes,
                                     .hardware = &s->hardware,
                                     .gpus = gpus,
                                     .seq_tokens = 131072,
                                     .micro_batch = 1,
                                     .routing = { .kind = ROUTING_BALANCED },
                                     .routing_quantile = 0.99 };
    s->question.headroom_bytes = s->hardware.memory_bytes / 50;
    space_init(&s->space, &s->question);
    s->layouts = calloc(LAYOUTS, sizeof *s->layouts);
    return s->layouts ? 0 : -1;
}

int main(void)
{
    static struct subject s;
    if (open_subject(&s, 32) != 0)
        return 1;
    struct degrees degrees = space_fixed_degrees(&s.space);
    add_degrees(&s, DEGREE_TP, &degrees);
    printf("qwen3.5-35b-a3b on h100-sxm at 128K\n");
    answer_all(&s, "one full answer, 32 GPUs, in the order of a search");
    free(s.layouts);
    long some = judge_all(&s, 2), all = judge_all(&s, 4);
    report("memory of ten times the layouts judged", (double)all / (double)some, 1, "x");
    long few = search_everything(&s, 32), many = search_everything(&s, 256);
    report("memory of ten times the layouts searched", (double)many / (double)few, 1, "x");
    return 0;
}
