/* Plan files: round trips, the digest, and what is said about files that are not plans. */
#include "base/file.h"
#include "tests/support/directory.h"
#include "tests/support/golden.h"
#include "tests/unit/plan/fixture.h"

#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The parts whose length is not this test's matter come last, so that positions stay. */
static char *plan_text(const struct plan *plan)
{
    struct json *document = plan_to_json(plan), *hardware = json_map();
    json_put_int(hardware, "gpus", plan->gpus);
    json_merge(hardware, hardware_to_json(&plan->hardware));
    json_drop(document, "model");
    json_drop(document, "hardware");
    json_put(document, "hardware", hardware);
    json_put(document, "model", model_to_json(&plan->model));
    char *text = json_dumps(json_view(document), JSON_INDENT(2));
    json_free(document);
    assert_non_null(text);
    return text;
}

static void assert_same_plan(const struct plan *got, const struct plan *want)
{
    assert_string_equal(got->digest, want->digest);
    assert_string_equal(got->model.name, want->model.name);
    assert_int_equal(got->model.moe.experts, want->model.moe.experts);
    assert_int_equal(got->model.layer_ffn[3], want->model.layer_ffn[3]);
    assert_true(got->hardware.memory_bytes == want->hardware.memory_bytes);
    assert_true(got->hardware.gemm_efficiency == want->hardware.gemm_efficiency);
    assert_int_equal(got->gpus, want->gpus);
    assert_int_equal(got->seq_tokens, want->seq_tokens);
    assert_int_equal(got->global_batch, want->global_batch);
    assert_int_equal(got->headroom_bytes, want->headroom_bytes);
    assert_int_equal(got->reserve_bytes, want->reserve_bytes);
    assert_int_equal(got->dispatch_bound_rows, want->dispatch_bound_rows);
    assert_true(got->routing_quantile == want->routing_quantile);
    assert_int_equal(got->routing.kind, want->routing.kind);
    assert_int_equal(got->routing.hot_experts, want->routing.hot_experts);
    assert_string_equal(got->engine, want->engine);
    assert_memory_equal(&got->choices.layout, &want->choices.layout, sizeof got->choices.layout);
    assert_int_equal(got->choices.primitives.sharding, want->choices.primitives.sharding);
    assert_int_equal(got->choices.primitives.recompute_layers,
                     want->choices.primitives.recompute_layers);
}

static void round_trip(const char *name)
{
    struct diag_list errors = { 0 };
    struct plan *plan = calloc(2, sizeof *plan);

    assert_non_null(plan);
    fixture_plan(plan);
    struct json *document = plan_to_json(plan);
    assert_int_equal(file_write_document(name, document, &errors), 0);
    json_free(document);
    if (plan_load(name, plan + 1, &errors) != 0)
        diag_list_print(stderr, &errors);
    assert_int_equal(errors.count, 0);
    assert_same_plan(plan + 1, plan);
    free(plan);
}

static void test_round_trip_json(void **state)
{
    (void)state;
    round_trip("plan.json");
}

static void test_round_trip_yaml(void **state)
{
    (void)state;
    round_trip("plan.yaml");
}

static void put_inside(struct json *document, const char *part, const char *key)
{
    struct json *map = json_of(json_deep_copy(json_object_get(json_view(document), part)));
    json_put_int(map, key, 1);
    json_put(document, part, map);
}

/* What the planner adds beside the plan is skipped and does not change the digest. */
static void test_prediction_is_skipped(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct plan *plan = calloc(2, sizeof *plan);

    assert_non_null(plan);
    fixture_plan(plan);
    struct json *document = plan_to_json(plan);
    put_inside(document, "model", "params_total");
    put_inside(document, "recommended", "peak_bytes");
    json_put_text(document, "verdict", "fits");
    assert_int_equal(file_write_document("plan.json", document, &errors), 0);
    json_free(document);
    assert_int_equal(plan_load("plan.json", plan + 1, &errors), 0);
    assert_same_plan(plan + 1, plan);
    free(plan);
}

/* Each changed input gives another digest; the same inputs give the same one. */
static void test_digest_covers_inputs(void **state)
{
    (void)state;
    char digest[20];
    struct plan *plan = calloc(1, sizeof *plan);

    assert_non_null(plan);
    fixture_plan(plan);
    memcpy(digest, plan->digest, sizeof digest);
    assert_int_equal(plan_seal(plan, &(struct diag_list){ 0 }), 0);
    assert_string_equal(plan->digest, digest);
    plan->seq_tokens++;
    assert_int_equal(plan_seal(plan, &(struct diag_list){ 0 }), 0);
    assert_string_not_equal(plan->digest, digest);
    plan->seq_tokens--;
    plan->model.hidden++;
    assert_int_equal(plan_seal(plan, &(struct diag_list){ 0 }), 0);
    assert_string_not_equal(plan->digest, digest);
    plan->model.hidden--;
    plan->choices.primitives.prefetch_units++;
    assert_int_equal(plan_seal(plan, &(struct diag_list){ 0 }), 0);
    assert_string_not_equal(plan->digest, digest);
    plan->choices.primitives.prefetch_units--;
    plan->dispatch_bound_rows++;
    assert_int_equal(plan_seal(plan, &(struct diag_list){ 0 }), 0);
    assert_string_not_equal(plan->digest, digest);
    plan->dispatch_bound_rows--;
    assert_int_equal(plan_seal(plan, &(struct diag_list){ 0 }), 0);
    assert_string_equal(plan->digest, digest);
    free(plan);
}

/* FNV-1a of the canonical text, by hand over the same document. What came after plan files counts
 * only where it is not as before. */
static void check_digest(enum exchange exchange)
{
    static const char *const later[] = {
        "loss_tile_tokens",
        "latent_head_block",
        "attention_deterministic",
        "optimizer",
        "moments_dtype",
        "master",
        "lora_rank",
        "lora_targets",
        "frozen",
        "tokens_per_gpu",
        "rl",
        "reference_weights",
        "packing",
        "keep_attention",
    };
    char want[20];
    struct plan *plan = calloc(1, sizeof *plan);

    assert_non_null(plan);
    fixture_plan(plan);
    plan->choices.primitives.exchange = exchange;
    assert_int_equal(plan_seal(plan, &(struct diag_list){ 0 }), 0);
    struct json *document = plan_to_json(plan), *primitives;
    json_drop(document, "schema");
    json_drop(document, "plan_digest");
    const json_t *recommended = json_object_get(json_view(document), "recommended");
    primitives = json_of(json_incref(json_object_get(recommended, "primitives")));
    assert_true(json_has(primitives, "exchange"));
    if (exchange == EXCHANGE_SM)
        json_drop(primitives, "exchange");
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        json_drop(primitives, later[i]);
    json_free(primitives);
    char *text = json_dumps(json_view(document), JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *at = text; *at; at++) {
        hash ^= (unsigned char)*at;
        hash *= UINT64_C(0x100000001b3);
    }
    (void)snprintf(want, sizeof want, "%016" PRIx64, hash);
    assert_string_equal(plan->digest, want);
    free(text);
    json_free(document);
    free(plan);
}

static void test_digest_is_fnv1a(void **state)
{
    (void)state;
    check_digest(EXCHANGE_SM);
    check_digest(EXCHANGE_COPY);
}

/* Fine keys of a machine are younger than many plans: 0, as they are where a file does not say
 * them, changes neither the digest nor the text, and a plan that has one comes back. */
static void test_fine_hardware_keys(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct plan *plan = calloc(2, sizeof *plan);
    char before[20];

    assert_non_null(plan);
    fixture_plan(plan);
    memcpy(before, plan->digest, sizeof before);
    char *text = plan_text(plan);
    assert_null(strstr(text, "gemm_call_seconds"));
    free(text);
    plan->hardware.gemm_call_seconds = 3e-6;
    assert_int_equal(plan_seal(plan, &(struct diag_list){ 0 }), 0);
    assert_string_not_equal(plan->digest, before);
    struct json *document = plan_to_json(plan);
    assert_int_equal(file_write_document("fine.json", document, &errors), 0);
    json_free(document);
    assert_int_equal(plan_load("fine.json", plan + 1, &errors), 0);
    assert_same_plan(plan + 1, plan);
    assert_true(plan[1].hardware.gemm_call_seconds > 2e-6);
    plan->hardware.gemm_call_seconds = 0;
    assert_int_equal(plan_seal(plan, &(struct diag_list){ 0 }), 0);
    assert_string_equal(plan->digest, before);
    free(plan);
}

struct fault {
    const char *name, *from, *to;
};

/* One change of a good file each; all messages in one golden file. */
static const struct fault faults[] = {
    { "schema", "rankfit.plan/1", "rankfit.plan/9" },
    { "missing", "\"dispatch_bound_rows\"", "\"dispatch_bound\"" },
    { "gpus", "\"gpus\": 2", "\"gpus\": \"two\"" },
    { "routing", "80:4", "80;4" },
    { "sharding", "\"zero1\"", "\"zero9\"" },
    { "no_layout", "\"layout\"", "\"layuot\"" },
};

static void test_faults(void **state)
{
    (void)state;
    struct plan *plan = calloc(2, sizeof *plan);
    FILE *out = golden_begin();

    assert_non_null(plan);
    fixture_plan(plan);
    char *good = plan_text(plan);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct diag_list errors = { 0 };
        fixture_write_changed("plan.json", good, faults[i].from, faults[i].to);
        assert_int_equal(plan_load("plan.json", plan + 1, &errors), -1);
        (void)fprintf(out, "# %s\n", faults[i].name);
        diag_list_print(out, &errors);
    }
    assert_golden_end("one fault each");
    free(good);
    free(plan);
}

/* A file that was edited by hand is not the plan that was made. */
static void test_edited(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct plan *plan = calloc(2, sizeof *plan);

    assert_non_null(plan);
    fixture_plan(plan);
    char *good = plan_text(plan);
    fixture_write_changed("plan.json", good, "\"seq_tokens\": 128", "\"seq_tokens\": 256");
    assert_int_equal(plan_load("plan.json", plan + 1, &errors), -1);
    assert_int_equal(errors.count, 1);
    assert_int_equal(errors.items[0].line, 3);
    assert_non_null(strstr(errors.items[0].what, plan->digest));
    free(good);
    free(plan);
}

static void test_not_a_plan(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct plan *plan = calloc(1, sizeof *plan);

    assert_non_null(plan);
    fixture_write_changed("list.json", "[1, 2]", "1", "1");
    fixture_write_changed("broken.json", "{\"schema\": ", "schema", "schema");
    assert_int_equal(plan_load("list.json", plan, &errors), -1);
    assert_int_equal(plan_load("broken.json", plan, &errors), -1);
    assert_int_equal(plan_load("absent.json", plan, &errors), -1);
    assert_golden_diags("not a plan", &errors);
    free(plan);
}

/* Sealed, so the digest is right, and yet no layout: four ranks' degrees on two. */
static void test_illegal_layout(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct plan *plan = calloc(2, sizeof *plan);

    assert_non_null(plan);
    fixture_plan(plan);
    plan->choices.layout.fsdp = 4;
    assert_int_equal(plan_seal(plan, &(struct diag_list){ 0 }), 0);
    struct json *document = plan_to_json(plan);
    assert_int_equal(file_write_document("plan.json", document, &errors), 0);
    json_free(document);
    assert_int_equal(plan_load("plan.json", plan + 1, &errors), -1);
    assert_true(errors.errors > 0);
    assert_true(errors.items[0].line > 0);
    free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_round_trip_json),
        IN_DIRECTORY(test_round_trip_yaml),
        IN_DIRECTORY(test_prediction_is_skipped),
        IN_DIRECTORY(test_digest_covers_inputs),
        IN_DIRECTORY(test_digest_is_fnv1a),
        IN_DIRECTORY(test_fine_hardware_keys),
        IN_DIRECTORY(test_faults),
        IN_DIRECTORY(test_edited),
        IN_DIRECTORY(test_not_a_plan),
        IN_DIRECTORY(test_illegal_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
