/* rankfit search, sweep and grid through the command line: their documents, what must hold among
 * their figures, and how far the derived layouts of the recipes that ship are from the best. */
#include "tests/e2e/program.h"
#include "tests/support/near.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define QUESTION "--model qwen3-30b-a3b --hardware h100-sxm --gpus 8 --seq 16K"
/* Where the whole space is not the point. */
#define NARROW QUESTION " --set tp=1 --set moe=plain"

static void assert_in_bounds(double value, double least, double most)
{
    if (value < least || value > most)
        fail_msg("%g is not within %g and %g", value, least, most);
}

static void assert_text(json_t *document, const char *path, const char *text)
{
    assert_string_equal(json_string_value(json_at(document, path)), text);
}

static void the_best_beats_the_derived(void **state)
{
    (void)state;
    json_t *search = program_json("search --json " QUESTION, 0);
    json_t *plan = program_json("plan --json " QUESTION, 0);
    assert_text(search, "schema", "rankfit.search/1");
    assert_text(search, "verdict", "fits");
    assert_text(search, "objective", "throughput");
    assert_text(plan, "verdict", "fits");
    double best = number_at(search, "best.step.seconds");
    double derived = number_at(plan, "recommended.step.seconds");
    assert_true(best <= derived);
    assert_near(number_at(search, "derived.step.seconds"), derived, 1e-12, "s");
    assert_true(number_at(search, "best.peak_upper_bytes") <= number_at(search, "limit_bytes"));
    assert_true(number_at(search, "searched.layouts") > 1e6);
    assert_true(number_at(search, "searched.judged") < number_at(search, "searched.layouts"));
    json_decref(search);
    json_decref(plan);
}

/* tokens / (tokens/s a GPU x 3,600) GPU-hours, over the GPUs the hours. */
static void hours_follow_from_the_rate(void **state)
{
    (void)state;
    json_t *search = program_json("search --json " NARROW " --objective gpu-hours --tokens 1e9", 0);
    double rate = number_at(search, "best.step.tokens_per_second_per_gpu");
    double gpus = number_at(search, "gpus");
    assert_true(gpus >= 1 && gpus <= 8);
    assert_near(number_at(search, "training.gpu_hours"), 1e9 / rate / 3600, 1e-9, "h");
    assert_near(number_at(search, "training.hours"), 1e9 / rate / 3600 / gpus, 1e-9, "h");
    json_decref(search);
}

static void fewer_gpus_and_less_memory(void **state)
{
    (void)state;
    json_t *fastest = program_json("search --json " NARROW, 0);
    json_t *leanest = program_json("search --json " NARROW " --objective headroom", 0);
    json_t *fewest = program_json("search --json " NARROW " --objective gpus", 0);
    json_t *offloaded =
        program_json("search --json " NARROW " --objective gpus --set offload=optimizer", 0);
    assert_true(number_at(leanest, "best.peak_upper_bytes") <
                number_at(fastest, "best.peak_upper_bytes"));
    assert_true(number_at(leanest, "best.step.seconds") > number_at(fastest, "best.step.seconds"));
    assert_int_equal(number_at(fewest, "gpus"), 8);
    assert_true(number_at(offloaded, "gpus") < 8);
    assert_int_equal(number_at(fewest, "gpus_with_host_memory"), number_at(offloaded, "gpus"));
    json_decref(offloaded);
    json_decref(fastest);
    json_decref(leanest);
    json_decref(fewest);
}

/* From fast to lean, none beaten in both. */
static void the_pareto_table_falls(void **state)
{
    (void)state;
    json_t *search = program_json(
        "search --json --pareto --model qwen3-0.6b --hardware h100-sxm --gpus 4 --seq 16K", 0);
    json_t *front = json_at(search, "pareto");
    assert_true(json_array_size(front) > 2);
    for (size_t i = 1; i < json_array_size(front); i++) {
        json_t *before = json_array_get(front, i - 1), *point = json_array_get(front, i);
        assert_true(number_at(point, "slowest_seconds") > number_at(before, "slowest_seconds"));
        assert_true(number_at(point, "peak_upper_bytes") < number_at(before, "peak_upper_bytes"));
    }
    json_decref(search);
}

/* What search writes with -o is a plan that budget reads back to the byte. */
static void the_best_is_a_plan(void **state)
{
    struct program_result result;
    (void)state;
    program_run("\"$RANKFIT\" search --json " NARROW " -o $TMP/best.yaml >$TMP/search.json && "
                "\"$RANKFIT\" budget --json $TMP/best.yaml >$TMP/budget.json && "
                "grep -o '\"peak_bytes\": [0-9]*' $TMP/search.json | head -1 >$TMP/a && "
                "grep -o '\"peak_bytes\": [0-9]*' $TMP/budget.json | sort -t: -nk2 | tail -1 "
                ">$TMP/b && cmp $TMP/a $TMP/b && cat $TMP/a",
                &result);
    assert_int_equal(result.status, 0);
    assert_non_null(strstr(result.out, "peak_bytes"));
    program_done(&result);
}

/* Six pairs, each the plan of its own question; longer sequences take more memory or other ways. */
static void a_sweep_is_many_plans(void **state)
{
    (void)state;
    json_t *sweep = program_json(
        "sweep --json --model qwen3-30b-a3b --hardware h100-sxm --gpus 8,16 --seq 8K,32K,64K", 0);
    json_t *plan = program_json(
        "plan --json --model qwen3-30b-a3b --hardware h100-sxm --gpus 16 --seq 32K", 0);
    assert_text(sweep, "schema", "rankfit.sweep/1");
    assert_int_equal(json_array_size(json_at(sweep, "cells")), 6);
    assert_true(number_at(sweep, "cells.4.gpus") == 16);
    assert_true(number_at(sweep, "cells.4.seq_tokens") == 32768);
    assert_true(number_at(sweep, "cells.4.peak_bytes") ==
                number_at(plan, "recommended.peak_bytes"));
    assert_near(number_at(sweep, "cells.4.step.mfu"), number_at(plan, "recommended.step.mfu"), 1e-9,
                "");
    json_decref(sweep);
    json_decref(plan);
}

/* What is illegal for one pair does not end the others. */
static void a_sweep_skips_what_is_not_legal(void **state)
{
    (void)state;
    json_t *sweep = program_json("sweep --json --model qwen3-30b-a3b --hardware h100-sxm --gpus "
                                 "3,8 --seq 8K --set ep=8",
                                 0);
    assert_true(json_is_false(json_at(sweep, "cells.0.legal")));
    assert_true(json_is_string(json_at(sweep, "cells.0.fault")));
    assert_true(json_is_true(json_at(sweep, "cells.1.legal")));
    json_decref(sweep);
}

/* What is said to fit is within the limit, without recompute and with it. */
static void a_grid_marks_what_fits(void **state)
{
    size_t index;
    int keeps = 0, recomputes = 0;
    json_t *cell;
    (void)state;
    json_t *grid = program_json("grid --json " QUESTION, 0);
    assert_text(grid, "schema", "rankfit.grid/1");
    assert_true(json_array_size(json_at(grid, "cells")) > 10);
    json_array_foreach(json_at(grid, "cells"), index, cell)
    {
        bool kept = json_is_true(json_at(cell, "none.fits"));
        bool recomputed = json_is_true(json_at(cell, "full.fits"));
        keeps += kept;
        recomputes += recomputed;
        if (kept)
            assert_true(number_at(cell, "none.peak_upper_bytes") <= number_at(grid, "limit_bytes"));
        if (recomputed)
            assert_true(number_at(cell, "full.peak_upper_bytes") <= number_at(grid, "limit_bytes"));
    }
    assert_true(keeps > 0 && recomputes > 0);
    json_decref(grid);
}

static void nothing_fits_is_a_no(void **state)
{
    (void)state;
    json_t *search =
        program_json("search --json --model llama-3.1-70b --hardware h100-sxm --gpus 2 "
                     "--seq 8K --set offload=none",
                     1);
    assert_text(search, "verdict", "does_not_fit");
    json_decref(search);
    json_decref(program_json(
        "sweep --json --model llama-3.1-70b --hardware h100-sxm --gpus 1,2 --seq 8K", 1));
}

/* The recommendation is one of those within 2 % of the shortest step. */
static void judge_plan(const char *name, int *ret_judged)
{
    struct program_result result;
    char command[256];

    (void)snprintf(command, sizeof command, "\"$RANKFIT\" plan --json %s", name);
    program_run(command, &result);
    json_t *plan = result.status <= 1 ? json_loads(result.out, 0, NULL) : NULL;
    assert_non_null(plan);
    json_t *ratio = json_at(plan, "searched.derived_over_best");
    if (json_is_number(ratio)) {
        printf("  %-64s %.4f under %s\n", name, json_number_value(ratio),
               json_string_value(json_at(plan, "searched.policy")));
        assert_in_bounds(json_number_value(ratio), 0.98, 1 + 1e-9);
        (*ret_judged)++;
    }
    json_decref(plan);
    program_done(&result);
}

static void recipes_are_derived_well(void **state)
{
    struct program_result names;
    char *rest, *name;
    int judged = 0;
    (void)state;
    program_run("cd \"$RANKFIT_SOURCE_ROOT/recipes\" && for f in *.yaml; do echo ${f%.yaml}; done",
                &names);
    for (name = strtok_r(names.out, "\n", &rest); name; name = strtok_r(NULL, "\n", &rest)) {
        char recipe[128];
        (void)snprintf(recipe, sizeof recipe, "--recipe %s", name);
        judge_plan(recipe, &judged);
    }
    assert_true(judged >= 19);
    program_done(&names);
}

/* From one domain to worlds of hundreds, with large memory and small, slow links and fast. */
static void questions_are_derived_well(void **state)
{
    static const char *const questions[] = {
        "--model qwen3-30b-a3b --hardware h100-sxm --gpus 8 --seq 16K",
        "--model gpt-oss-120b --hardware h200 --gpus 16 --seq 32K",
        "--model qwen3-235b-a22b --hardware b200 --gpus 32 --seq 8K",
        "--model qwen3-30b-a3b --hardware h800 --gpus 32 --seq 32K",
        "--model qwen3-next-80b-a3b --hardware h200 --gpus 32 --seq 64K",
        "--model llama-3.1-70b --hardware a100-80gb --gpus 64 --seq 8K",
        "--model glm-4.5-air --hardware mi355x --gpus 64 --seq 32K",
        "--model deepseek-v3 --hardware b300-nvl8 --gpus 128 --seq 8K",
        "--model glm-5.2 --hardware gb200-nvl72 --gpus 256 --seq 1M",
        "--model kimi-k2 --hardware h100-sxm --gpus 512 --seq 4K",
    };
    int judged = 0, count = (int)(sizeof questions / sizeof *questions);
    (void)state;
    for (int i = 0; i < count; i++)
        judge_plan(questions[i], &judged);
    assert_int_equal(judged, count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_beats_the_derived),
        cmocka_unit_test(hours_follow_from_the_rate),
        cmocka_unit_test(fewer_gpus_and_less_memory),
        cmocka_unit_test(the_pareto_table_falls),
        cmocka_unit_test(the_best_is_a_plan),
        cmocka_unit_test(a_sweep_is_many_plans),
        cmocka_unit_test(a_sweep_skips_what_is_not_legal),
        cmocka_unit_test(a_grid_marks_what_fits),
        cmocka_unit_test(nothing_fits_is_a_no),
        cmocka_unit_test(recipes_are_derived_well),
        cmocka_unit_test(questions_are_derived_well),
    };
    return cmocka_run_group_tests_name("layouts", tests, NULL, NULL);
}
