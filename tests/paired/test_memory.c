/* Predicted against measured memory: each layout is planned, run on local ranks and compared
 * through the command line, and the errors are computed again here from the two figures of each
 * line. */
#include "base/item.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct row {
    const char *name, *options;
};

/* Worlds 1 to 4, two models, balanced and natural routing, EP inside and across shard groups; full
 * recompute, streamed loss, plain experts. */
static const struct row rows[] = {
    { "tiny, one rank", "--model tiny-moe --gpus 1 --seq 2K --micro-batch 2 --global-batch 2" },
    { "tiny, one rank, natural, two micro-batches",
      "--model tiny-moe --gpus 1 --seq 1K --micro-batch 4 --global-batch 8 --routing natural" },
    { "tiny, two ranks, experts apart",
      "--model tiny-moe --gpus 2 --seq 1K --micro-batch 4 --set ep=2" },
    { "tiny, four ranks, experts apart, natural",
      "--model tiny-moe --gpus 4 --seq 1K --micro-batch 2 --set ep=4 --routing natural" },
    { "tiny, four ranks, experts sharded and apart",
      "--model tiny-moe --gpus 4 --seq 512 --micro-batch 4 --set ep=2 --set e_fsdp=2" },
    { "small, two ranks, sharded", "--model small-moe --gpus 2 --seq 512 --set ep=1" },
    { "tiny, three ranks, natural",
      "--model tiny-moe --gpus 3 --seq 1K --micro-batch 4 --set ep=1 --routing natural" },
    { "small, four ranks, experts apart",
      "--model small-moe --gpus 4 --seq 256 --micro-batch 8 --set ep=4" },
    { "small, four ranks, experts apart, natural",
      "--model small-moe --gpus 4 --seq 256 --micro-batch 8 --set ep=4 --routing natural" },
    { "small, four ranks, two replicas",
      "--model small-moe --gpus 4 --seq 512 --set ep=2 --set fsdp=2" },
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

struct seen {
    int rows, mostly_dynamic;
};

static const char *program(void)
{
    const char *path = getenv("RANKFIT_PROGRAM");
    assert_non_null(path);
    return path;
}

/* Runs a shell line built from the program and arguments; returns its exit status. */
static int run_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run_line(const char *format, ...)
{
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    assert_true(length > 0 && (size_t)length < sizeof line);
    int status = system(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static json_t *read_json(const char *directory, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    json_error_t error;
    json_t *document = json_load_file(path, 0, &error);
    if (!document)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    return document;
}

static double relative_error(const json_t *predicted, const json_t *measured)
{
    double m = json_number_value(measured), p = json_number_value(predicted);
    return m > 0 ? (p - m) / m : p > 0 ? 1 : 0;
}

static void check_rank(const char *row, const json_t *rank)
{
    long long number = json_integer_value(json_object_get(rank, "rank"));
    const json_t *arena = json_object_get(rank, "arena_bytes");
    double peak = json_number_value(json_object_get(arena, "measured"));
    double error =
        relative_error(json_object_get(arena, "predicted"), json_object_get(arena, "measured"));
    printf("  %-46s rank %lld  arena %10.0f bytes  error %+.3f %%\n", row, number, peak,
           100 * error);
    assert_true(peak > 0);
    if (fabs(error) > 0.02)
        fail_msg("%s: rank %lld: arena off by %.2f %%", row, number, 100 * error);
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(rank, "items"), i, item)
    {
        const json_t *predicted = json_object_get(item, "predicted_bytes");
        const json_t *measured = json_object_get(item, "measured_bytes");
        double largest = fmax(json_number_value(predicted), json_number_value(measured));
        double item_error = relative_error(predicted, measured);
        if (largest >= 0.01 * peak && fabs(item_error) > 0.05)
            fail_msg("%s: rank %lld: %s predicted %.0f, measured %.0f bytes", row, number,
                     json_string_value(json_object_get(item, "name")), json_number_value(predicted),
                     json_number_value(measured));
    }
}

/* Share of the first rank's measured arena peak that is dynamic or logits. */
static double dynamic_share(const json_t *measurement)
{
    const json_t *rank = json_array_get(json_object_get(measurement, "ranks"), 0);
    double wanted = 0, all = 0;
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(rank, "items"), i, entry)
    {
        enum item item = item_find(json_string_value(json_object_get(entry, "name")));
        double bytes = json_number_value(json_object_get(entry, "bytes"));
        if (item == ITEM_COUNT || !item_in_arena(item))
            continue;
        all += bytes;
        if (item_infos[item].category == CATEGORY_DYNAMIC ||
            item_infos[item].category == CATEGORY_LOGITS)
            wanted += bytes;
    }
    return all > 0 ? wanted / all : 0;
}

static void check_row(const struct row *row, const char *directory, struct seen *seen)
{
    int status = run_line("'%s' plan --hardware host --set recompute=full --set loss=linear_ce "
                          "--set moe=plain %s -o '%s/plan.json' >'%s/plan.txt'",
                          program(), row->options, directory, directory);
    if (status != 0)
        fail_msg("%s: plan exits %d", row->name, status);
    status = run_line("'%s' run '%s/plan.json' --steps 1 -o '%s/measured.json' >'%s/run.txt' "
                      "2>'%s/run.err'",
                      program(), directory, directory, directory, directory);
    if (status != 0) {
        (void)run_line("cat '%s/run.err' >&2", directory);
        fail_msg("%s: run exits %d", row->name, status);
    }
    status = run_line("'%s' compare '%s/plan.json' '%s/measured.json' --json >'%s/compared.json'",
                      program(), directory, directory, directory);
    json_t *comparison = read_json(directory, "compared.json");
    size_t i;
    json_t *rank;
    json_array_foreach(json_object_get(comparison, "ranks"), i, rank) check_rank(row->name, rank);
    assert_true(json_array_size(json_object_get(comparison, "ranks")) > 0);
    assert_int_equal(status, 0);
    json_decref(comparison);

    json_t *measurement = read_json(directory, "measured.json");
    seen->rows++;
    double share = dynamic_share(measurement);
    printf("  %-46s %.0f %% dynamic and logits\n", row->name, 100 * share);
    seen->mostly_dynamic += share >= 0.5;
    json_decref(measurement);
}

static void test_rows(void **state)
{
    (void)state;
    char directory[] = "/tmp/rankfit-paired-XXXXXX";
    assert_non_null(mkdtemp(directory));
    struct seen seen = { 0, 0 };
    for (size_t i = 0; i < ROW_COUNT; i++)
        check_row(&rows[i], directory, &seen);
    (void)run_line("rm -rf '%s'", directory);
    printf("  %d of %d layouts are mostly dynamic and logits\n", seen.mostly_dynamic, seen.rows);
    assert_true(2 * seen.mostly_dynamic >= seen.rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
