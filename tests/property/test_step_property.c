/* Whatever legal combination of shards, context and expert groups, recompute, loss, chunks, dtypes,
 * prefetch, streams and micro-batches is drawn: planned, run on local ranks and compared, every
 * item of every rank is predicted to the byte; and loss, hidden states and gradients are those of
 * one rank. The seed is printed. */
#include "base/safetensors/safetensors.h"
#include "tests/support/random.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SKIPPED = 77, DRAWS = 14, LINE = 2048 };

struct model_row {
    const char *name; /* or a file below the source root */
    int layers, vocab, experts;
};

static const struct model_row models[] = {
    { "tiny-moe", 4, 256, 8 },
    { "tiny-shared-moe", 3, 256, 16 },
    { "$RANKFIT_SOURCE_ROOT/tests/data/reference/qwen3-dense/config.json", 2, 256, 0 },
    { "$RANKFIT_SOURCE_ROOT/tests/property/tied-dense.yaml", 3, 300, 0 },
};

/* One drawn step. */
struct draw {
    const struct model_row *model;
    const char *routing;
    int world, seq, micro_batch, micro_batches, cp, fsdp, ep, e_fsdp;
    const char *sharding;
    bool narrow_gradients;
    char recompute[96], loss[64], experts[80], rest[64];
};

/* What is being drawn from, and where files go. */
struct bench {
    uint64_t random;
    char folder[64];
};

static int below(struct bench *b, int count)
{
    return (int)random_below(&b->random, (uint64_t)count);
}

/* A divisor of `of`. */
static int divisor(struct bench *b, int of)
{
    int ret;
    do
        ret = 1 + below(b, of);
    while (of % ret != 0);
    return ret;
}

static void draw_recompute(struct bench *b, struct draw *d)
{
    int kind = below(b, 3);
    const char *keeps = below(b, 2) ? " --set keep_attention=1" : "";
    if (kind == 0)
        (void)snprintf(d->recompute, sizeof d->recompute, "--set recompute=none");
    else if (kind == 1)
        (void)snprintf(d->recompute, sizeof d->recompute,
                       "--set recompute=full --set recompute_layers=%d%s",
                       below(b, d->model->layers + 1), keeps);
    else
        (void)snprintf(d->recompute, sizeof d->recompute, "--set recompute=full%s", keeps);
}

static void draw_loss(struct bench *b, struct draw *d)
{
    int kind = below(b, 3);
    if (kind == 0)
        (void)snprintf(d->loss, sizeof d->loss, "--set loss=full --set logits_dtype=%s",
                       below(b, 2) == 0 ? "bf16" : "fp32");
    else
        (void)snprintf(d->loss, sizeof d->loss, "--set loss=linear_ce --set vocab_strip=%d",
                       kind == 1 ? 0 : 1 + below(b, d->model->vocab));
}

static void draw_experts(struct bench *b, struct draw *d)
{
    int chunks = 1 + below(b, 4), delay = below(b, chunks + 1);
    if (d->model->experts == 0 || chunks == 1)
        (void)snprintf(d->experts, sizeof d->experts, "--set moe=plain");
    else if (delay == chunks)
        (void)snprintf(d->experts, sizeof d->experts,
                       "--set moe=chunked --set moe_chunks=%d --set wgrad_delay=all", chunks);
    else
        (void)snprintf(d->experts, sizeof d->experts,
                       "--set moe=chunked --set moe_chunks=%d --set wgrad_delay=%d", chunks, delay);
}

static void draw_step(struct bench *b, struct draw *d)
{
    static const char *const shardings[] = { "replicated", "zero1", "fsdp", "fsdp" };
    static const char *const routings[] = { "balanced", "natural", "80:4", "50:4" };
    int count = sizeof models / sizeof *models;

    *d = (struct draw){ .model = &models[below(b, count)],
                        .world = 1 + below(b, 4),
                        .seq = 48 * (1 + below(b, 3)), /* 2 x cp halves each */
                        .micro_batch = 1 + below(b, 2),
                        .micro_batches = 1 + below(b, 3),
                        .sharding = shardings[below(b, 4)],
                        .narrow_gradients = below(b, 3) == 0 };
    d->routing = d->model->experts > 0 ? routings[below(b, 4)] : "balanced";
    d->cp = below(b, 2) == 0 ? 1 : divisor(b, d->world);
    d->fsdp = divisor(b, d->world / d->cp);
    do
        d->ep = d->model->experts > 0 ? divisor(b, d->world) : 1;
    while (d->ep > 1 && d->model->experts % d->ep != 0);
    d->e_fsdp = divisor(b, d->world / d->ep);
    draw_recompute(b, d);
    draw_loss(b, d);
    draw_experts(b, d);
    (void)snprintf(d->rest, sizeof d->rest, "--set prefetch_units=%d --set comm_streams=%d",
                   below(b, 3), 1 + below(b, 2));
}

/* Runs a shell line in the folder; what it prints goes to `output` there. Returns its status. */
static int shell(const struct bench *b, const char *output, const char *line)
{
    char whole[LINE + 160];
    (void)snprintf(whole, sizeof whole, "cd %s && { %s; } >%s 2>errors", b->folder, line, output);
    int status = system(whole);
    if (status != 0) {
        (void)snprintf(whole, sizeof whole, "cat %s/errors >&2", b->folder);
        (void)!system(whole);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void must(const struct bench *b, const char *output, const char *line)
{
    if (shell(b, output, line) != 0)
        fail_msg("%s", line);
}

#define RUN                                                                                        \
    " && mpirun --oversubscribe --bind-to none -n %d \"$RANKFIT_HOST\" %s.yaml "                   \
    "--measurement %s.json --steps 1 --seed 3 --dump %s.safetensors"
#define PLAN "\"$RANKFIT\" plan --hardware host --set tp=1 --set pp=1 "

static void run_many(const struct bench *b, const struct draw *d)
{
    char line[LINE];
    (void)snprintf(line, sizeof line,
                   PLAN "--model %s --gpus %d --seq %d --micro-batch %d --global-batch %d "
                        "--routing %s --set cp=%d --set context=%s --set fsdp=%d --set ep=%d --set "
                        "e_fsdp=%d --set sharding=%s "
                        "--set grad_dtype=%s %s %s %s %s -o many.yaml" RUN,
                   d->model->name, d->world, d->seq, d->micro_batch,
                   d->world / d->cp * d->micro_batch * d->micro_batches, d->routing, d->cp,
                   d->cp > 1 ? "allgather_kv" : "none", d->fsdp, d->ep, d->e_fsdp, d->sharding,
                   d->narrow_gradients ? "bf16" : "fp32", d->recompute, d->loss, d->experts,
                   d->rest, d->world, "many", "many", "many");
    const char *options = strstr(line, "--model");
    print_message("%.*s\n", (int)(strstr(options, " -o ") - options), options);
    must(b, "log", line);
    must(b, "comparison.json", "\"$RANKFIT\" compare --json many.yaml many.json");
}

/* The same tokens on one rank with everything resident and in fp32. The form of the loss is kept:
 * another one rounds a value here and there to its other neighbour. */
static void run_one(const struct bench *b, const struct draw *d)
{
    char line[LINE];
    (void)snprintf(
        line, sizeof line,
        PLAN
        "--model %s --gpus 1 --seq %d --micro-batch 1 --global-batch %d "
        "--routing %s --set cp=1 --set moe=plain --set sharding=replicated --set grad_dtype=fp32 "
        "--set recompute=full %s -o one.yaml" RUN,
        d->model->name, d->seq, d->world / d->cp * d->micro_batch * d->micro_batches, d->routing,
        d->loss, 1, "one", "one", "one");
    must(b, "log", line);
}

static void check_figure(json_t *figure, const char *what, const char *predicted,
                         const char *measured)
{
    json_int_t want = json_integer_value(json_object_get(figure, measured));
    json_int_t got = json_integer_value(json_object_get(figure, predicted));
    if (got != want)
        fail_msg("%s: predicted %lld bytes, measured %lld", what, (long long)got, (long long)want);
}

static void check_memory(const struct bench *b, const struct draw *d)
{
    char path[128];
    size_t i, j;
    json_t *rank, *item;

    (void)snprintf(path, sizeof path, "%s/comparison.json", b->folder);
    json_t *comparison = json_load_file(path, 0, NULL);
    json_t *ranks = json_object_get(comparison, "ranks");
    assert_int_equal(json_array_size(ranks), d->world);
    json_array_foreach(ranks, i, rank)
    {
        json_t *arena = json_object_get(rank, "arena_bytes");
        assert_true(json_integer_value(json_object_get(arena, "measured")) > 0);
        json_array_foreach(json_object_get(rank, "items"), j, item)
            check_figure(item, json_string_value(json_object_get(item, "name")), "predicted_bytes",
                         "measured_bytes");
        check_figure(arena, "arena", "predicted", "measured");
    }
    json_decref(comparison);
}

static struct safetensors *open_dump(const struct bench *b, const char *name)
{
    struct diag_list errors = { 0 };
    struct safetensors *ret;
    char path[128];

    (void)snprintf(path, sizeof path, "%s/%s.safetensors", b->folder, name);
    if (safetensors_open(path, &ret, &errors) != 0)
        diag_list_print(stderr, &errors);
    assert_non_null(ret);
    return ret;
}

static float *read_tensor(const struct safetensors *dump, const char *name, uint64_t elements)
{
    struct diag_list errors = { 0 };
    const struct stored_tensor *tensor = safetensors_find(dump, name);
    float *ret = calloc(elements + 1, sizeof *ret);

    assert_non_null(tensor);
    assert_non_null(ret);
    assert_int_equal(tensor->elements, elements);
    assert_int_equal(safetensors_read_all(dump, tensor, TENSOR_TYPE_F32, ret, &errors), 0);
    return ret;
}

/* RMS of the difference over RMS of `want`. */
static double difference(const float *got, const float *want, uint64_t elements)
{
    double square = 0, size = 0;
    for (uint64_t i = 0; i < elements; i++) {
        square += pow((double)got[i] - (double)want[i], 2);
        size += pow((double)want[i], 2);
    }
    return size > 0 ? sqrt(square / size) : sqrt(square);
}

/* Hidden states to the bit. Gradients in fp32 differ by the order of their sums; in bf16, and
 * behind gradients of keys that a context group sums before it rounds them, by 4 units of the last
 * place.
 */
static void check_numbers(const struct bench *b, const struct draw *d)
{
    struct safetensors *many = open_dump(b, "many"), *one = open_dump(b, "one");
    double tolerance = d->narrow_gradients || d->cp > 1 ? 4 * 0x1p-8 : 1e-5, worst = 0;

    assert_int_equal(safetensors_count(many), safetensors_count(one));
    for (size_t i = 0; i < safetensors_count(one); i++) {
        const struct stored_tensor *tensor = safetensors_at(one, i);
        float *want = read_tensor(one, tensor->name, tensor->elements);
        float *got = read_tensor(many, tensor->name, tensor->elements);
        double error = difference(got, want, tensor->elements);
        bool exact = strcmp(tensor->name, "final_hidden") == 0;
        if (!(error <= (exact ? 0 : tolerance)))
            fail_msg("%s differs by %g", tensor->name, error);
        worst = error > worst ? error : worst;
        free(want);
        free(got);
    }
    print_message("    exact; worst gradient differs by %.2g\n", worst);
    safetensors_close(many);
    safetensors_close(one);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void test_drawn_steps(void **state)
{
    struct bench b = { .random = number("RANKFIT_SEED", 1) };
    uint64_t draws = number("RANKFIT_DRAWS", DRAWS);
    (void)state;

    print_message("seed %llu\n", (unsigned long long)b.random);
    (void)snprintf(b.folder, sizeof b.folder, "/tmp/rankfit-property-XXXXXX");
    assert_non_null(mkdtemp(b.folder));
    for (uint64_t i = 0; i < draws; i++) {
        struct draw d;
        draw_step(&b, &d);
        run_many(&b, &d);
        check_memory(&b, &d);
        run_one(&b, &d);
        check_numbers(&b, &d);
    }
    must(&b, "log", "rm -f *");
    assert_int_equal(rmdir(b.folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_drawn_steps) };
    if (!getenv("RANKFIT_HOST") || system("command -v mpirun >/dev/null") != 0)
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
