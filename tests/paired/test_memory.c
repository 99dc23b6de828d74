/* Predicted against measured memory: each layout is planned, run on local ranks and compared
 * through the command line, and the errors are computed again here from the two figures of each
 * line. A third of the rows by default, drawn from a printed seed (RANKFIT_SEED sets it); all with
 * RANKFIT_ALL=1. */
#include "base/item.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct row {
    const char *model, *options;
};

/* DeepSeek-V3 cut down: MLA, groups of experts, three dense layers first. */
#define MLA                                                                                        \
    "deepseek-v3",                                                                                 \
        "--set model.layers=4 --set model.hidden=128 --set model.vocab=1024 --set model.heads=4 "  \
        "--set model.kv_heads=4 --set model.attention.head_dim=48 --set model.nope_dim=32 "        \
        "--set model.rope_dim=16 --set model.latent.value_dim=32 --set model.q_rank=64 "           \
        "--set model.kv_rank=48 --set model.rotary_fraction=0.3333333333333333 "                   \
        "--set model.dense_width=256 --set model.experts=16 --set model.moe.top_k=3 "              \
        "--set model.moe.width=64 --set model.moe.shared_width=64 "

/* GLM-4.5 cut down: a dense layer first, sigmoids, corrections, biases, a shared expert. */
#define GLM                                                                                        \
    "glm-4.5", "--set model.layers=4 --set model.hidden=128 --set model.vocab=1024 "               \
               "--set model.heads=4 --set model.kv_heads=2 --set model.head_dim=32 "               \
               "--set model.dense_width=256 --set model.experts=8 --set model.top_k=3 "            \
               "--set model.moe.width=64 --set model.moe.shared_width=64 "

/* Worlds 1 to 8; state sharded, split and replicated; experts inside and across shard groups, in
 * one run and in chunks; sequences split; recompute none, some and full; every form of the loss;
 * balanced, natural and skewed routing. What a row leaves open is derived. */
static const struct row rows[] = {
    { "tiny-moe", "--gpus 1 --seq 1K --micro-batch 4 --set recompute=full --set loss=linear_ce" },
    { "tiny-moe", "--gpus 1 --seq 1K --micro-batch 4 --global-batch 8 --routing natural --set "
                  "recompute=none --set loss=linear_ce" },
    { "tiny-moe", "--gpus 1 --seq 1K --micro-batch 4 --routing 80:4 --set moe=chunked --set "
                  "moe_chunks=3 --set wgrad_delay=0" },
    { "tiny-moe", "--gpus 2 --seq 1K --micro-batch 4 --set ep=2 --set recompute=full" },
    { "tiny-moe", "--gpus 2 --seq 2K --micro-batch 2 --set cp=2 --set ep=2 --set recompute=full "
                  "--set keep_attention=1" },
    { "tiny-moe", "--gpus 2 --seq 2K --micro-batch 2 --set cp=2 --set ep=1 --set recompute=full" },
    { "tiny-moe", "--gpus 2 --seq 1K --micro-batch 8 --set cp=2 --set ep=2 --routing natural --set "
                  "recompute=full" },
    { "tiny-moe", "--gpus 4 --seq 1K --micro-batch 4 --set ep=4 --routing 50:4 --set "
                  "recompute=full --set moe=plain" },
    { "tiny-moe", "--gpus 4 --seq 1K --micro-batch 4 --set ep=4 --routing 80:4 --set "
                  "recompute=full --set moe=chunked --set moe_chunks=2" },
    { "tiny-moe", "--gpus 4 --seq 1K --micro-batch 4 --set ep=2 --set e_fsdp=2 --set "
                  "recompute=full --set prefetch_units=2" },
    { "tiny-moe", "--gpus 4 --seq 1K --micro-batch 8 --set cp=4 --set ep=4 --set recompute=full" },
    { "tiny-moe", "--gpus 4 --seq 1K --micro-batch 2 --global-batch 16 --set sharding=zero1 --set "
                  "ep=2 --set recompute=none" },
    { "tiny-moe",
      "--gpus 8 --seq 1K --micro-batch 2 --set ep=8 --set recompute=full --set fsdp=4" },
    { "tiny-moe", "--gpus 8 --seq 1K --micro-batch 2 --set ep=4 --set cp=2 --set recompute=full "
                  "--routing natural" },
    { "tiny-moe",
      "--gpus 3 --seq 1K --micro-batch 4 --set ep=1 --routing natural --set recompute=full" },
    { "small-moe", "--gpus 1 --seq 512 --micro-batch 4 --set recompute=full --set loss=full" },
    { "small-moe",
      "--gpus 2 --seq 512 --micro-batch 2 --set ep=2 --set loss=full --set logits_dtype=bf16" },
    { "small-moe",
      "--gpus 2 --seq 512 --micro-batch 2 --set cp=2 --set recompute=none --set loss=linear_ce" },
    { "small-moe",
      "--gpus 4 --seq 256 --micro-batch 8 --set ep=4 --set recompute=full --set moe=plain" },
    { "small-moe", "--gpus 4 --seq 256 --micro-batch 8 --set ep=4 --routing natural --set "
                   "recompute=full --set moe=chunked --set moe_chunks=4 --set wgrad_delay=all" },
    { "small-moe", "--gpus 4 --seq 512 --set ep=2 --set fsdp=2 --set recompute=full" },
    { "small-moe", "--gpus 4 --seq 512 --set sharding=replicated --set ep=4 --set recompute=full" },
    { "small-moe",
      "--gpus 4 --seq 512 --micro-batch 2 --set grad_dtype=bf16 --set ep=2 --set e_fsdp=2" },
    { "small-moe",
      "--gpus 4 --seq 512 --micro-batch 2 --set vocab_strip=1024 --set recompute=full --set ep=4" },
    { "small-moe",
      "--gpus 4 --seq 512 --global-batch 8 --set comm_streams=2 --set ep=1 --set recompute=full" },
    { "tiny-shared-moe", "--gpus 1 --seq 512 --micro-batch 16 --set recompute=full" },
    { "tiny-shared-moe",
      "--gpus 2 --seq 512 --micro-batch 4 --set ep=2 --routing 80:4 --set recompute=full" },
    { "tiny-shared-moe",
      "--gpus 2 --seq 1K --micro-batch 2 --set cp=2 --set ep=2 --set recompute=full --set "
      "moe=chunked --set moe_chunks=2 --set wgrad_delay=1" },
    { "tiny-shared-moe",
      "--gpus 4 --seq 512 --micro-batch 4 --set ep=4 --routing natural --set recompute=none" },
    { "tiny-shared-moe", "--gpus 4 --seq 512 --micro-batch 4 --set ep=4 --set recompute=full --set "
                         "recompute_layers=1" },
    { "tiny-shared-moe", "--gpus 2 --seq 512 --micro-batch 4 --set ep=2 --set recompute=full --set "
                         "recompute_layers=2 --set keep_attention=1 --routing natural" },
    { "tiny-shared-moe", "--gpus 4 --seq 512 --micro-batch 2 --set sharding=zero1 --set ep=4 --set "
                         "cp=2 --set recompute=full" },
    { "tiny-shared-moe",
      "--gpus 8 --seq 512 --micro-batch 2 --set cp=2 --set ep=8 --set recompute=full" },
    { "tiny-shared-moe",
      "--gpus 4 --seq 512 --micro-batch 4 --set prefetch_units=0 --set ep=2 --set recompute=full" },
    { "tiny-hybrid-moe", "--gpus 2 --seq 512 --set ep=2 --set recompute=none" },
    { "tiny-hybrid-moe",
      "--gpus 2 --seq 512 --set cp=2 --set ep=1 --set linear_context=state_pass --set "
      "recompute=none" },
    { "tiny-hybrid-moe",
      "--gpus 2 --seq 512 --set cp=2 --set ep=2 --set linear_context=head_split --set "
      "recompute=full" },
    { "tiny-hybrid-moe",
      "--gpus 4 --seq 1K --set cp=4 --set ep=2 --set linear_context=state_pass --set "
      "recompute=full --set moe=chunked --set moe_chunks=2" },
    { "tiny-hybrid-moe",
      "--gpus 4 --seq 9K --set cp=2 --set ep=4 --set linear_context=head_split --set "
      "context=allgather_kv --set recompute=none" },
    { "tiny-hybrid-moe", "--gpus 2 --seq 9000 --micro-batch 2 --set ep=2 --set recompute=full" },
    { "tiny-hybrid-moe",
      "--gpus 4 --seq 1K --micro-batch 2 --global-batch 8 --set cp=2 --set ep=2 --set "
      "linear_context=state_pass --set recompute=full --set recompute_layers=2" },
    { "tiny-hybrid-moe",
      "--gpus 4 --seq 2K --set cp=2 --set ep=2 --set linear_context=state_pass --set "
      "recompute=full --set keep_attention=1" },
    { "tiny-hybrid-moe", "--gpus 4 --seq 5000 --set ep=4 --set moe=chunked --set moe_chunks=3 "
                         "--set wgrad_delay=1 --set recompute=none" },
    { "tiny-hybrid-moe",
      "--gpus 2 --seq 8320 --set cp=2 --set ep=2 --set linear_context=state_pass --set "
      "recompute=none" },
    { "tiny-hybrid-moe", "--gpus 4 --seq 640 --global-batch 16 --set ep=1 --set sharding=zero1 "
                         "--set recompute=full" },
    { "tiny-hybrid-moe",
      "--gpus 4 --seq 768 --global-batch 8 --set ep=4 --routing 80:4 --set recompute=none" },
    { "tiny-hybrid-moe",
      "--gpus 3 --seq 600 --set cp=3 --set ep=1 --set linear_context=state_pass --set "
      "recompute=full" },
    { "$RANKFIT_DATA/tests/data/reference/qwen3-windows",
      "--gpus 2 --seq 512 --micro-batch 2 --set cp=2 --set recompute=none" },
    { MLA "--gpus 1 --seq 512 --micro-batch 4 --set recompute=none --routing natural" },
    { MLA "--gpus 1 --seq 512 --micro-batch 4 --set recompute=full" },
    { MLA "--gpus 2 --seq 1K --set cp=1 --set ep=2 --set recompute=full --set keep_attention=1" },
    { MLA "--gpus 4 --seq 512 --micro-batch 2 --set cp=1 --set ep=4 --set recompute=full "
          "--set moe=chunked --set moe_chunks=2 --routing natural" },
    { MLA "--gpus 4 --seq 512 --global-batch 8 --set cp=1 --set sharding=zero1 --set ep=2 --set "
          "recompute=full --set recompute_layers=2" },
    { MLA "--gpus 2 --seq 1K --set cp=2 --set ep=1 --set recompute=none" },
    { MLA "--gpus 2 --seq 1K --micro-batch 2 --set cp=2 --set ep=2 --set recompute=full --set "
          "latent_head_block=2" },
    { MLA "--gpus 4 --seq 1K --set cp=4 --set ep=2 --set recompute=full --set "
          "latent_head_block=3 --set keep_attention=1 --routing natural" },
    { MLA "--gpus 4 --seq 2K --set cp=2 --set ep=4 --set sharding=zero1 --set recompute=full "
          "--set latent_head_block=0" },
    { GLM "--gpus 1 --seq 1K --micro-batch 2 --set recompute=none --routing natural" },
    { GLM "--gpus 2 --seq 1K --set cp=2 --set ep=2 --set recompute=full" },
    { GLM "--gpus 4 --seq 512 --micro-batch 2 --set ep=4 --set recompute=full --set moe=chunked "
          "--set moe_chunks=2 --routing natural" },
    { GLM "--gpus 4 --seq 512 --global-batch 8 --set sharding=zero1 --set ep=2 --set "
          "recompute=full --set recompute_layers=2 --set keep_attention=1" },
    { "qwen3-0.6b",
      "--set model.layers=1 --set model.vocab=2048 --gpus 2 --seq 256 --set recompute=full" },
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

/* Bounds of the contract: arena of every rank, and items of at least a hundredth of the peak. */
static const double arena_bound = 0.02, item_bound = 0.05, item_share = 0.01;

struct seen {
    int rows, mostly_dynamic;
    double worst;
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

/* The largest |error| of the rank's arena and of its items that count; fails beyond the bounds. */
static double check_rank(const struct row *row, const json_t *rank)
{
    long long number = json_integer_value(json_object_get(rank, "rank"));
    const json_t *arena = json_object_get(rank, "arena_bytes");
    double peak = json_number_value(json_object_get(arena, "measured"));
    double error =
        relative_error(json_object_get(arena, "predicted"), json_object_get(arena, "measured"));
    double worst = fabs(error);
    assert_true(peak > 0);
    if (fabs(error) > arena_bound)
        fail_msg("%s %s: rank %lld: arena off by %.2f %%", row->model, row->options, number,
                 100 * error);
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(rank, "items"), i, item)
    {
        const json_t *predicted = json_object_get(item, "predicted_bytes");
        const json_t *measured = json_object_get(item, "measured_bytes");
        double largest = fmax(json_number_value(predicted), json_number_value(measured));
        double item_error = fabs(relative_error(predicted, measured));
        if (largest < item_share * peak)
            continue;
        worst = fmax(worst, item_error);
        if (item_error > item_bound)
            fail_msg("%s %s: rank %lld: %s predicted %.0f, measured %.0f bytes", row->model,
                     row->options, number, json_string_value(json_object_get(item, "name")),
                     json_number_value(predicted), json_number_value(measured));
    }
    return worst;
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

static void plan_and_run(const struct row *row, int steps, const char *directory)
{
    int status =
        run_line("'%s' plan --hardware host --model %s %s -o '%s/plan.json' >'%s/log' 2>&1",
                 program(), row->model, row->options, directory, directory);
    if (status == 0)
        status =
            run_line("'%s' run '%s/plan.json' --steps %d -o '%s/measured.json' >>'%s/log' 2>&1",
                     program(), directory, steps, directory, directory);
    if (status == 0)
        return;
    (void)run_line("cat '%s/log' >&2", directory);
    fail_msg("%s %s: plan or run exits %d", row->model, row->options, status);
}

static void check_row(const struct row *row, int steps, const char *directory, struct seen *seen)
{
    double worst = 0;
    size_t i;
    json_t *rank;
    plan_and_run(row, steps, directory);
    int status =
        run_line("'%s' compare '%s/plan.json' '%s/measured.json' --json >'%s/compared.json'",
                 program(), directory, directory, directory);
    json_t *comparison = read_json(directory, "compared.json");
    const json_t *ranks = json_object_get(comparison, "ranks");
    json_array_foreach(ranks, i, rank) worst = fmax(worst, check_rank(row, rank));
    assert_true(json_array_size(ranks) > 0);
    assert_int_equal(status, 0);
    json_t *measurement = read_json(directory, "measured.json");
    double share = dynamic_share(measurement);
    printf("  worst error %.3f %%, %2.0f %% dynamic and logits: %s %s\n", 100 * worst, 100 * share,
           row->model, row->options);
    seen->rows++;
    seen->mostly_dynamic += share >= 0.5;
    seen->worst = fmax(seen->worst, worst);
    json_decref(measurement);
    json_decref(comparison);
}

/* Every third row; another third each day unless the seed is set. */
static bool is_drawn(uint64_t seed, size_t row)
{
    if (getenv("RANKFIT_ALL"))
        return true;
    return (row + seed) % 3 == 0;
}

static void test_rows(void **state)
{
    (void)state;
    const char *given = getenv("RANKFIT_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) / 86400;
    char directory[] = "/tmp/rankfit-paired-XXXXXX";
    assert_non_null(mkdtemp(directory));
    struct seen seen = { 0, 0, 0 };
    printf("  RANKFIT_SEED=%llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (is_drawn(seed, i))
            check_row(&rows[i], 1, directory, &seen);
    (void)run_line("rm -rf '%s'", directory);
    printf("  %d layouts, worst error %.3f %%; %d are mostly dynamic and logits\n", seen.rows,
           100 * seen.worst, seen.mostly_dynamic);
    if (seen.rows == ROW_COUNT)
        assert_true(2 * seen.mostly_dynamic >= seen.rows);
}

/* The router chooses other experts at every step: what was measured must be of one step, and then
 * the prediction at its rows is right to the byte. */
static void test_several_steps(void **state)
{
    static const struct row changing[] = {
        { "tiny-shared-moe",
          "--gpus 2 --seq 256 --micro-batch 2 --global-batch 8 --routing natural "
          "--set ep=2 --set recompute=full --set moe=chunked --set "
          "moe_chunks=3" },
        { "tiny-shared-moe", "--gpus 4 --seq 512 --micro-batch 4 --routing natural --set ep=4 "
                             "--set recompute=none" },
    };
    enum { STEPS = 3 };
    char directory[] = "/tmp/rankfit-paired-XXXXXX";
    struct seen seen = { 0, 0, 0 };

    (void)state;
    assert_non_null(mkdtemp(directory));
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++)
        check_row(&changing[i], STEPS, directory, &seen);
    (void)run_line("rm -rf '%s'", directory);
    assert_true(seen.worst == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows),
                                        cmocka_unit_test(test_several_steps) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
