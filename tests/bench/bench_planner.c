/* Speed of the planner against its promises, as ratios (below 1.00 keeps the promise): one budget
 * under 20 us, one derivation under 5 ms, `rankfit plan` as a process under 20 ms and 64 MiB.
 * Prints; judges nothing, since a shared machine is no stopwatch. Argument: the rankfit program. */
#include "base/file.h"
#include "base/model/model.h"
#include "planner/derive/derive.h"
#include "tests/support/asked.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double got, double promise, double scale, const char *unit)
{
    printf("%-44s %10.2f %-4s  promise %8.2f %-4s  ratio %.2f\n", what, got * scale, unit,
           promise * scale, unit, got / promise);
}

enum { SAMPLES = 9 };

struct subject {
    struct model model;
    struct hardware hardware;
    struct model_sizes sizes;
    struct question question;
    struct answer answer;
    struct budget budget;
};

static double median_budget_seconds(struct subject *s)
{
    struct budget_input in = { .model = &s->model,
                               .sizes = &s->sizes,
                               .hardware = &s->hardware,
                               .choices = &s->answer.recommended.choices,
                               .gpus = s->question.gpus,
                               .seq_tokens = s->question.seq_tokens,
                               .routing = s->question.routing,
                               .routing_quantile = s->question.routing_quantile };
    double samples[SAMPLES];
    enum { ROUNDS = 2000 };
    for (int i = 0; i < SAMPLES; i++) {
        double start = now_seconds();
        for (int n = 0; n < ROUNDS; n++)
            budget_compute(asked(&in), &s->budget);
        samples[i] = (now_seconds() - start) / ROUNDS;
    }
    qsort(samples, SAMPLES, sizeof *samples, by_value);
    return samples[SAMPLES / 2];
}

static double median_derive_seconds(struct subject *s, struct diag_list *errors)
{
    double samples[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        double start = now_seconds();
        if (derive(&s->question, &s->answer, errors) != 0)
            return -1;
        samples[i] = now_seconds() - start;
    }
    qsort(samples, SAMPLES, sizeof *samples, by_value);
    return samples[SAMPLES / 2];
}

static double median_process_seconds(const char *program, long *ret_rss_bytes)
{
    static const char *const words[] = { "rankfit",    "plan",     "--model", "qwen3.5-35b-a3b",
                                         "--hardware", "h100-sxm", "--gpus",  "32",
                                         "--seq",      "128K",     NULL };
    double samples[SAMPLES];
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", 1 /* O_WRONLY */, 0);
    for (int i = 0; i < SAMPLES; i++) {
        double start = now_seconds();
        pid_t child;
        int status;
        char *argv[sizeof words / sizeof *words];
        memcpy(argv, words, sizeof words);
        if (posix_spawn(&child, program, &quiet, NULL, argv, environ) != 0 ||
            waitpid(child, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            posix_spawn_file_actions_destroy(&quiet);
            return -1;
        }
        samples[i] = now_seconds() - start;
    }
    posix_spawn_file_actions_destroy(&quiet);
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    *ret_rss_bytes = usage.ru_maxrss * 1024;
    qsort(samples, SAMPLES, sizeof *samples, by_value);
    return samples[SAMPLES / 2];
}

int main(int argc, char **argv)
{
    static struct subject s;
    static struct diag_list errors;
    if (argc != 2 || model_load("qwen3.5-35b-a3b", &s.model, &errors) != 0 ||
        hardware_load("h100-sxm", &s.hardware, &errors) != 0) {
        diag_list_print(stderr, &errors);
        return 1;
    }
    model_sizes_init(&s.sizes, &s.model);
    s.question = (struct question){ .model = &s.model,
                                    .sizes = &s.sizes,
                                    .hardware = &s.hardware,
                                    .gpus = 32,
                                    .seq_tokens = 131072,
                                    .micro_batch = 1,
                                    .routing = { .kind = ROUTING_BALANCED },
                                    .routing_quantile = 0.99 };
    s.question.headroom_bytes = s.hardware.memory_bytes / 50;

    double derive_seconds = median_derive_seconds(&s, &errors);
    double budget_seconds = derive_seconds < 0 ? -1 : median_budget_seconds(&s);
    long rss_bytes = 0;
    double process_seconds = median_process_seconds(argv[1], &rss_bytes);
    if (derive_seconds < 0 || process_seconds < 0) {
        diag_list_print(stderr, &errors);
        return 1;
    }
    printf("qwen3.5-35b-a3b on 32 h100-sxm at 128K, medians of %d\n", SAMPLES);
    report("one budget of one layout", budget_seconds, 20e-6, 1e6, "us");
    report("one derivation", derive_seconds, 5e-3, 1e3, "ms");
    report("rankfit plan as a process", process_seconds, 20e-3, 1e3, "ms");
    report("its peak resident memory", (double)rss_bytes, 64.0 * 1048576, 1.0 / 1048576, "MiB");
    return 0;
}
