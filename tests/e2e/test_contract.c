/* The JSON documents: every key of the contract is there, with its type, and parts add up. */
#include "tests/e2e/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* "s" text, "i" integer, "n" number, "o" object, "a" array; "?" before it: or null. */
struct key {
    const char *path, *type;
};

static int has_type(const json_t *value, const char *type)
{
    if (type[0] == '?')
        return json_is_null(value) || has_type(value, type + 1);
    return type[0] == 's'   ? json_is_string(value)
           : type[0] == 'i' ? json_is_integer(value)
           : type[0] == 'n' ? json_is_number(value)
           : type[0] == 'o' ? json_is_object(value)
                            : json_is_array(value);
}

static void check_keys(json_t *document, const struct key *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        json_t *value = json_at(document, keys[i].path);
        if (!value || !has_type(value, keys[i].type))
            print_error("%s is %s\n", keys[i].path, value ? "of another type" : "missing");
        assert_true(value && has_type(value, keys[i].type));
    }
}

static const char *const categories[] = { "static_bytes", "dynamic_bytes", "logits_bytes",
                                          "communication_bytes", "runtime_bytes" };

static const struct key rank_keys[] = {
    { "rank", "i" },
    { "ranks", "s" },
    { "stage", "i" },
    { "static_bytes", "i" },
    { "dynamic_bytes", "i" },
    { "logits_bytes", "i" },
    { "runtime_bytes", "i" },
    { "communication_bytes", "i" },
    { "arena_bytes", "i" },
    { "peak_bytes", "i" },
    { "peak_phase.kind", "s" },
    { "host_bytes", "i" },
    { "items.0.name", "s" },
    { "items.0.category", "s" },
    { "items.0.basis", "s" },
    { "items.0.bytes", "i" },
    { "items.0.max_bytes", "i" },
    { "items.0.formula", "s" },
};

static const struct key plan_keys[] = {
    { "schema", "s" },
    { "plan_digest", "s" },
    { "model.name", "s" },
    { "model.params_total", "i" },
    { "model.params_active", "i" },
    { "model.params_trained", "i" },
    { "model.params_by_component.embedding", "i" },
    { "hardware.name", "s" },
    { "hardware.gpu", "s" },
    { "hardware.gpus", "i" },
    { "hardware.memory_bytes", "i" },
    { "workload.seq_tokens", "i" },
    { "workload.micro_batch", "i" },
    { "workload.global_batch", "i" },
    { "workload.routing", "s" },
    { "engine.name", "s" },
    { "engine.version", "s" },
    { "verdict", "s" },
    { "limit_bytes", "i" },
    { "warnings", "a" },
    { "assumptions", "a" },
    { "binding", "s" },
    { "nearest", "a" },
    { "recommended.layout.tp", "i" },
    { "recommended.layout.pp", "i" },
    { "recommended.layout.vpp", "i" },
    { "recommended.layout.cp", "i" },
    { "recommended.layout.ep", "i" },
    { "recommended.layout.etp", "i" },
    { "recommended.layout.dp", "i" },
    { "recommended.layout.fsdp", "i" },
    { "recommended.layout.d_rep", "i" },
    { "recommended.layout.e_dp", "i" },
    { "recommended.layout.e_fsdp", "i" },
    { "recommended.layout.e_rep", "i" },
    { "recommended.layout.micro_batch", "i" },
    { "recommended.layout.micro_batches", "i" },
    { "recommended.layout.stage_layers", "a" },
    { "recommended.primitives.sharding", "s" },
    { "recommended.primitives.grad_dtype", "s" },
    { "recommended.primitives.recompute", "s" },
    { "recommended.primitives.loss", "s" },
    { "recommended.primitives.moe", "s" },
    { "recommended.primitives.moe_chunks", "i" },
    { "recommended.primitives.context", "s" },
    { "recommended.primitives.linear_context", "s" },
    { "recommended.primitives.offload", "a" },
    { "recommended.reasons.0.choice", "s" },
    { "recommended.reasons.0.because", "s" },
    { "recommended.peak_bytes", "i" },
    { "recommended.peak_upper_bytes", "i" },
    { "recommended.peak_rank", "i" },
    { "recommended.peak_phase.kind", "s" },
    { "recommended.peak_phase.stage", "i" },
    { "recommended.peak_phase.micro_batch", "?i" },
    { "recommended.peak_phase.layer", "?i" },
    { "recommended.peak_by_metric.allocated", "i" },
    { "recommended.peak_by_metric.reserved", "i" },
    { "recommended.peak_by_metric.device", "i" },
    { "recommended.ranks", "a" },
    { "recommended.step.seconds", "n" },
    { "recommended.step.model_tflops_per_gpu", "n" },
    { "recommended.step.hardware_tflops_per_gpu", "n" },
    { "recommended.step.mfu", "n" },
    { "recommended.step.hfu", "n" },
    { "recommended.step.tokens_per_second_per_gpu", "n" },
    { "recommended.step.bubble_fraction", "n" },
    { "recommended.step.exposed_communication_seconds", "n" },
    { "recommended.step.items.0.name", "s" },
    { "recommended.step.items.0.seconds", "n" },
    { "recommended.step.items.0.basis", "s" },
    { "recommended.step.items.0.formula", "s" },
    { "candidates", "a" },
    { "searched.layouts", "i" },
    { "searched.legal", "i" },
    { "searched.fitting", "i" },
    { "searched.seconds", "n" },
    { "searched.derived_over_best", "?n" },
};

/* Categories sum to the peak; items of a category sum to it. */
static void check_sums(json_t *rank)
{
    double total = 0;
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        double items = 0;
        size_t index, length = strcspn(categories[i], "_");
        json_t *item;
        json_array_foreach(json_at(rank, "items"), index, item)
        {
            const char *category = json_string_value(json_object_get(item, "category"));
            if (strncmp(category, categories[i], length) == 0 && category[length] == '\0')
                items += number_at(item, "bytes");
            assert_true(number_at(item, "max_bytes") >= number_at(item, "bytes"));
        }
        assert_true(items == number_at(rank, categories[i]));
        total += items;
    }
    assert_true(total == number_at(rank, "peak_bytes"));
}

static void check_ranks(json_t *ranks)
{
    size_t index;
    json_t *rank;
    assert_true(json_array_size(ranks) > 0);
    json_array_foreach(ranks, index, rank)
    {
        check_keys(rank, rank_keys, sizeof rank_keys / sizeof *rank_keys);
        check_sums(rank);
    }
}

static double time_of_items(json_t *step)
{
    double total = 0;
    size_t index;
    json_t *item;
    json_array_foreach(json_at(step, "items"), index, item) total += number_at(item, "seconds");
    return total;
}

static void check_plan(json_t *plan)
{
    check_keys(plan, plan_keys, sizeof plan_keys / sizeof *plan_keys);
    assert_string_equal(json_string_value(json_at(plan, "schema")), "rankfit.plan/1");
    check_ranks(json_at(plan, "recommended.ranks"));
    json_t *layout = json_at(plan, "recommended.layout");
    double gpus = number_at(plan, "hardware.gpus");
    assert_true(number_at(layout, "tp") * number_at(layout, "cp") * number_at(layout, "dp") *
                    number_at(layout, "pp") ==
                gpus);
    assert_true(number_at(layout, "etp") * number_at(layout, "ep") * number_at(layout, "e_dp") *
                    number_at(layout, "pp") ==
                gpus);
    double seconds = number_at(plan, "recommended.step.seconds");
    double apart = time_of_items(json_at(plan, "recommended.step")) - seconds;
    assert_true(apart < 1e-6 * seconds && apart > -1e-6 * seconds);
}

static void plan_of_the_main_job(void **state)
{
    (void)state;
    json_t *plan = program_json("plan --json --recipe qwen3.5-35b-a3b-128k", 0);
    check_plan(plan);
    assert_true(number_at(plan, "model.params_total") == 35951822704.0);
    assert_true(number_at(plan, "recommended.peak_upper_bytes") <= number_at(plan, "limit_bytes"));
    json_decref(plan);
}

static void plan_with_stages(void **state)
{
    (void)state;
    json_t *plan = program_json("plan --json --recipe qwen3.5-35b-a3b-128k --set pp=4", 0);
    check_plan(plan);
    assert_true(json_array_size(json_at(plan, "recommended.layout.stage_layers")) == 4);
    assert_true(json_array_size(json_at(plan, "recommended.ranks")) >= 4);
    json_decref(plan);
}

/* The nearest that fits is named, and does fit when it is asked for. */
static void plan_that_does_not_fit(void **state)
{
    (void)state;
    json_t *plan = program_json(
        "plan --json --model qwen3.5-35b-a3b --hardware h100-sxm --gpus 2 --seq 128K", 1);
    check_plan(plan);
    assert_string_equal(json_string_value(json_at(plan, "verdict")), "does_not_fit");
    assert_true(json_array_size(json_at(plan, "nearest")) > 0);
    assert_true(number_at(plan, "recommended.peak_bytes") > number_at(plan, "limit_bytes"));
    json_t *gpus = json_at(plan, "nearest.0.gpus");
    if (gpus) {
        char line[256];
        (void)snprintf(line, sizeof line,
                       "plan --json --model qwen3.5-35b-a3b --hardware h100-sxm --seq 128K --gpus "
                       "%lld",
                       (long long)json_integer_value(gpus));
        json_decref(program_json(line, 0));
    }
    json_decref(plan);
}

static void limit_follows_headroom_and_reserve(void **state)
{
    (void)state;
    const char *line = "plan --json --model qwen3-0.6b --hardware h200 --gpus 8 --seq 4K "
                       "--headroom 1GB --reserve 2GB";
    json_t *plan = program_json(line, 0);
    assert_true(number_at(plan, "limit_bytes") == 150109880320.0 - 3e9);
    json_decref(plan);
    plan = program_json("plan --json --model qwen3-0.6b --hardware h200 --gpus 8 --seq 4K", 0);
    double limit = number_at(plan, "limit_bytes");
    assert_true(limit > 0.98 * 150109880320.0 - 1 && limit < 0.98 * 150109880320.0 + 1);
    json_decref(plan);
}

static void budget_of_one_rank(void **state)
{
    (void)state;
    json_t *budget = program_json("budget --json --recipe qwen3.5-35b-a3b-128k --rank 5", 0);
    assert_string_equal(json_string_value(json_at(budget, "schema")), "rankfit.budget/1");
    check_ranks(json_at(budget, "ranks"));
    assert_true(number_at(budget, "ranks.0.rank") == 5);
    double peak = number_at(budget, "ranks.0.peak_bytes"), most = 0;
    size_t index;
    json_t *phase;
    json_array_foreach(json_at(budget, "phases"), index, phase)
    {
        assert_true(json_is_string(json_at(phase, "phase.kind")));
        double bytes = number_at(phase, "bytes");
        most = bytes > most ? bytes : most;
    }
    assert_true(most == peak);
    json_decref(budget);
}

/* A plan file is the same plan: budget of the file equals budget of the question; -o leaves
 * standard output as it is; JSON and YAML say the same. */
static void plan_files(void **state)
{
    (void)state;
    struct program_result result;
    program_run(
        "set -e; Q=\"--model qwen3-30b-a3b --hardware h100-sxm --gpus 16 --seq 32K\"\n"
        "\"$RANKFIT\" plan $Q >$TMP/a; \"$RANKFIT\" plan $Q -o $TMP/p.yaml >$TMP/b\n"
        "\"$RANKFIT\" plan $Q -o $TMP/p.json >/dev/null; cmp $TMP/a $TMP/b\n"
        "\"$RANKFIT\" budget --json $Q >$TMP/c; \"$RANKFIT\" budget --json $TMP/p.yaml >$TMP/d\n"
        "\"$RANKFIT\" budget --json $TMP/p.json >$TMP/e; cmp $TMP/c $TMP/d; cmp $TMP/c $TMP/e\n"
        "echo same",
        &result);
    assert_string_equal(result.err, "");
    assert_string_equal(result.out, "same\n");
    program_done(&result);
}

static void explain_counts_a_model(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double total;
    } published[] = {
        { "qwen3-30b-a3b", 30532122624 },
        { "qwen3.5-35b-a3b", 35951822704 },
        { "qwen3-0.6b", 596049920 },
        { "llama-3.1-8b", 8030261248 },
    };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        char line[128];
        (void)snprintf(line, sizeof line, "explain %s --json", published[i].name);
        json_t *document = program_json(line, 0);
        assert_string_equal(json_string_value(json_at(document, "schema")), "rankfit.explain/1");
        assert_true(number_at(document, "model.params_total") == published[i].total);
        assert_true(number_at(document, "model.params_active") > 0);
        assert_true(number_at(document, "model.params_active_all") > 0);
        assert_true(number_at(document, "model.params_active_core") > 0);
        assert_true(number_at(document, "model.params_trained") > 0);
        assert_true(json_is_integer(json_at(document, "model.params_by_component.vision")));
        json_decref(document);
    }
}

/* Whatever list shows, explain knows. */
static void explain_knows_what_list_shows(void **state)
{
    (void)state;
    static const char *const kinds[] = { "keys", "items", "primitives", "hardware" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char line[160];
        size_t index;
        json_t *entry;
        (void)snprintf(line, sizeof line, "list %s --json", kinds[i]);
        json_t *list = program_json(line, 0);
        assert_true(json_array_size(json_at(list, kinds[i])) > 0);
        json_array_foreach(json_at(list, kinds[i]), index, entry)
        {
            const char *name = json_string_value(json_object_get(entry, "name"));
            if (strstr(name, "FIELD"))
                continue;
            (void)snprintf(line, sizeof line, "explain %s --json", name);
            json_decref(program_json(line, 0));
        }
        json_decref(list);
    }
}

/* A line is no wider than a terminal of 116 columns. */
static void lines_are_not_wide(void **state)
{
    (void)state;
    struct program_result result;
    program_run("\"$RANKFIT\" plan --recipe qwen3.5-35b-a3b-128k | awk 'length > 116'", &result);
    assert_string_equal(result.out, "");
    program_done(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_of_the_main_job),
        cmocka_unit_test(plan_with_stages),
        cmocka_unit_test(plan_that_does_not_fit),
        cmocka_unit_test(limit_follows_headroom_and_reserve),
        cmocka_unit_test(budget_of_one_rank),
        cmocka_unit_test(plan_files),
        cmocka_unit_test(explain_counts_a_model),
        cmocka_unit_test(explain_knows_what_list_shows),
        cmocka_unit_test(lines_are_not_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
