/* One rank rehearsed against the same rank among all: arena, extent, every item, the peak's moment
 * and the routed rows are equal to the byte. The layouts are planned, run and rehearsed through the
 * command line; two drawn from a printed seed (RANKFIT_SEED sets it), all with RANKFIT_ALL=1. */
#include <jansson.h>
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

/* What the router decides is replayed, since its choices depend on weights that are not there. */
static const char *const rows[] = {
    "tiny-moe --gpus 2 --seq 2K --micro-batch 2 --set cp=2 --set ep=1 --set recompute=full",
    "tiny-moe --gpus 2 --seq 1K --micro-batch 8 --set cp=2 --set ep=2 --routing natural --set "
    "recompute=full",
    "tiny-moe --gpus 3 --seq 1K --micro-batch 4 --set ep=1 --routing natural --set recompute=full",
    "tiny-moe --gpus 4 --seq 1K --micro-batch 8 --set cp=4 --set ep=4 --set recompute=full",
    "tiny-moe --gpus 4 --seq 1K --micro-batch 2 --global-batch 16 --set sharding=zero1 --set ep=2 "
    "--set recompute=none",
    "tiny-moe --gpus 8 --seq 1K --set ep=8 --set fsdp=4 --set recompute=full --routing 80:4",
    "small-moe --gpus 4 --seq 256 --micro-batch 4 --set ep=4 --routing natural --set "
    "recompute=full --set moe=chunked --set moe_chunks=4 --set wgrad_delay=all",
    "small-moe --gpus 4 --seq 256 --set sharding=replicated --set ep=4 --set recompute=full "
    "--routing 80:4",
    "small-moe --gpus 4 --seq 256 --set grad_dtype=bf16 --set ep=2 --set e_fsdp=2 --routing "
    "zipf:0.5",
    "tiny-shared-moe --gpus 4 --seq 512 --global-batch 4 --set sharding=zero1 --set ep=4 --set "
    "cp=2 --set recompute=full --routing 80:4",
    "tiny-shared-moe --gpus 2 --seq 1K --set cp=2 --set ep=2 --set recompute=full --set "
    "moe=chunked --set moe_chunks=2 --set wgrad_delay=1",
    "qwen3-0.6b --set model.layers=1 --set model.vocab=2048 --gpus 2 --seq 256 --set "
    "comm_streams=2 --set recompute=full",
};
enum { ROW_COUNT = sizeof rows / sizeof *rows, DRAWN = 2 };

static const char *program(void)
{
    const char *path = getenv("RANKFIT_PROGRAM");
    assert_non_null(path);
    return path;
}

/* A shell line in the directory; fails with what it said unless it ends with `wanted`. */
static void line(const char *directory, int wanted, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void line(const char *directory, int wanted, const char *format, ...)
{
    char arguments[1024], command[2048];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    int length = snprintf(command, sizeof command, "cd %s && %s %s >out 2>err", directory,
                          program(), arguments);
    assert_true(length > 0 && (size_t)length < sizeof command);
    int status = system(command);
    if (WIFEXITED(status) && WEXITSTATUS(status) == wanted)
        return;
    (void)snprintf(command, sizeof command, "cat %s/err", directory);
    (void)system(command);
    fail_msg("rankfit %s: status %d", arguments, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static json_t *read_json(const char *directory, const char *name)
{
    char path[512];
    json_error_t error;
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    json_t *document = json_load_file(path, 0, &error);
    if (!document)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    return document;
}

static const json_t *rank_of(const json_t *measurement, int rank)
{
    const json_t *ranks = json_object_get(measurement, "ranks");
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        const json_t *entry = json_array_get(ranks, i);
        if (json_integer_value(json_object_get(entry, "rank")) == rank)
            return entry;
    }
    fail_msg("no rank %d", rank);
    return NULL;
}

static void same(const char *row, int rank, const char *key, const json_t *run,
                 const json_t *rehearsal)
{
    const json_t *a = json_object_get(run, key), *b = json_object_get(rehearsal, key);
    assert_non_null(a);
    if (json_equal(a, b))
        return;
    char *ran = json_dumps(a, JSON_ENCODE_ANY), *rehearsed = json_dumps(b, JSON_ENCODE_ANY);
    fail_msg("%s: rank %d: %s: run %s, rehearsed %s", row, rank, key, ran, rehearsed);
    free(ran);
    free(rehearsed);
}

static void check_rank(const char *directory, const char *row, const json_t *run, int rank,
                       bool replays)
{
    static const char *const keys[] = {
        "arena_live_bytes", "arena_extent_bytes", "arena_room_bytes", "peak_phase", "items",
        "routed_rows"
    };
    line(directory, 0, "rehearse plan.json --steps 1 --rank %d %s -o rehearsal.json", rank,
         replays ? "--replay-rows run.json" : "");
    json_t *rehearsal = read_json(directory, "rehearsal.json");
    const json_t *world = json_object_get(json_object_get(rehearsal, "rehearsal"), "world");
    size_t ranks = json_array_size(json_object_get(run, "ranks"));

    assert_int_equal(json_array_size(json_object_get(rehearsal, "ranks")), 1);
    assert_int_equal(json_integer_value(world), ranks);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        same(row, rank, keys[i], rank_of(run, rank), rank_of(rehearsal, rank));
    json_decref(rehearsal);
}

static void remove_directory(const char *directory)
{
    char command[256];
    (void)snprintf(command, sizeof command, "rm -rf %s", directory);
    (void)system(command);
}

static void check_row(const char *row)
{
    char directory[] = "/tmp/rankfit-rehearsal-XXXXXX";
    assert_non_null(mkdtemp(directory));
    line(directory, 0, "plan --hardware host --model %s -o plan.json", row);
    line(directory, 0, "run plan.json --steps 1 -o run.json");
    json_t *run = read_json(directory, "run.json");
    size_t ranks = json_array_size(json_object_get(run, "ranks"));

    assert_true(ranks > 1);
    for (size_t rank = 0; rank < ranks; rank++)
        check_rank(directory, row, run, (int)rank, strstr(row, "natural") != NULL);
    json_decref(run);
    remove_directory(directory);
}

static void rehearsed_ranks_hold_what_ranks_hold(void **state)
{
    const char *seed_text = getenv("RANKFIT_SEED");
    unsigned seed = seed_text ? (unsigned)strtoul(seed_text, NULL, 10) : (unsigned)time(NULL);
    bool all = getenv("RANKFIT_ALL") != NULL;

    (void)state;
    print_message("RANKFIT_SEED=%u\n", seed);
    for (unsigned i = 0; i < (all ? ROW_COUNT : DRAWN); i++)
        check_row(rows[all ? i : (seed + i * (ROW_COUNT / DRAWN)) % ROW_COUNT]);
}

/* More ranks than the machine could run: the prediction of the worst and of another. */
static void a_world_of_many_is_as_predicted(void **state)
{
    char directory[] = "/tmp/rankfit-rehearsal-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(directory));
    line(directory, 0,
         "plan --hardware host --model tiny-moe --gpus 32 --seq 2K --set ep=8 --set cp=2 --set "
         "recompute=full --routing 80:4 -o plan.json");
    for (int last = 0; last < 2; last++) {
        line(directory, 0, "rehearse plan.json --steps 1 %s -o rehearsal.json",
             last ? "--rank 31" : "");
        line(directory, 0, "compare plan.json rehearsal.json --tolerance 0.0001 -o compared.json");
        json_t *compared = read_json(directory, "compared.json");
        json_t *rank = json_array_get(json_object_get(compared, "ranks"), 0);
        json_t *arena = json_object_get(rank, "arena_bytes");
        assert_int_equal(json_integer_value(json_object_get(rank, "rank")), last ? 31 : 0);
        assert_int_equal(json_integer_value(json_object_get(arena, "predicted")),
                         json_integer_value(json_object_get(arena, "measured")));
        json_decref(compared);
    }
    remove_directory(directory);
}

static void what_cannot_be_rehearsed_is_said(void **state)
{
    char directory[] = "/tmp/rankfit-rehearsal-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(directory));
    line(directory, 0,
         "plan --hardware host --model tiny-moe --gpus 2 --seq 256 --set ep=2 -o "
         "plan.json");
    line(directory, 0,
         "plan --hardware host --model tiny-moe --gpus 4 --seq 256 --set ep=2 -o "
         "other.json");
    line(directory, 2, "rehearse plan.json --rank 2");
    line(directory, 2, "rehearse plan.json --rank -1");
    line(directory, 2, "rehearse plan.json --save weights.safetensors");
    line(directory, 2, "rehearse plan.json --replay-rows plan.json");
    line(directory, 0, "rehearse plan.json --rank 1 --steps 1 -o one.json");
    line(directory, 2, "rehearse plan.json --rank 0 --replay-rows one.json");
    line(directory, 2, "rehearse other.json --rank 1 --replay-rows one.json");
    line(directory, 2,
         "rehearse --hardware h100-sxm --model tiny-moe --backend host --gpus 4 "
         "--seq 256 --set tp=2 --set ep=2 --set recompute=full");
    remove_directory(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rehearsed_ranks_hold_what_ranks_hold),
        cmocka_unit_test(a_world_of_many_is_as_predicted),
        cmocka_unit_test(what_cannot_be_rehearsed_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
