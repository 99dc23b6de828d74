/* What a step works on, and the moments beside it, through the command line: first step and resume,
 * passes of reinforcement learning, budgets of tokens, packed rows. */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/near.h"

#define LLAMA "--model llama-3.1-8b --hardware h100-sxm --gpus 8 --seq 8K --micro-batch 2"
#define SHARDED " --set sharding=fsdp --set fsdp=8 --set recompute=full"

/* Moments are 8 bytes a parameter: 8 x 8,030,261,248 / 8 (padding adds nothing) = 7.48 GiB. */
static void moments_are_missing_in_the_first_step(void **state)
{
    (void)state;
    json_t *budget = program_json("budget --json " LLAMA SHARDED, 0);
    json_t *peaks = json_at(budget, "ranks.0.peaks");
    double steady = number_at(peaks, "steady_bytes");
    assert_true(steady == number_at(budget, "ranks.0.peak_bytes"));
    assert_near((steady - number_at(peaks, "first_step_bytes")) / (1024.0 * 1024 * 1024), 7.479,
                0.001, "GiB");
    /* gradients 4, weights 2, master 4, moments 8 bytes a parameter, and what runs: on both sides
     */
    double idle = number_at(budget, "ranks.0.static_bytes");
    assert_near(idle, 18 * 8030261248.0 / 8, 1e-9, "B");
    assert_true(number_at(peaks, "resume_bytes") == number_at(peaks, "save_bytes"));
    assert_true(number_at(peaks, "resume_bytes") > idle);
    /* the head: 128,256 x 4,096 and the norm, 525,340,672 elements; slices of eight ranks, rank 0's
     * once more, and the whole */
    assert_near(number_at(peaks, "save_host_bytes"), 2 * (525340672.0 / 8 * 9 + 525340672.0), 1e-12,
                "B");
    assert_string_equal(json_string_value(json_at(peaks, "binding")), "steady");
    json_decref(budget);
}

/* Where a rank's buffers are host memory a save may be what does not fit. */
static void a_save_may_bind(void **state)
{
    (void)state;
    json_t *plan = program_json("plan --json --model tiny-moe --hardware host --gpus 2 --seq 64 "
                                "--set ep=2 --set cp=1 --set sharding=replicated --set "
                                "model.vocab=262144 --set loss_tile_tokens=1 --headroom 0 --set "
                                "hardware.memory_bytes=1550MB",
                                1);
    assert_string_equal(json_string_value(json_at(plan, "verdict")), "does_not_fit");
    assert_string_equal(json_string_value(json_at(plan, "recommended.ranks.0.peaks.binding")),
                        "save");
    assert_golden("a save binds", json_string_value(json_at(plan, "binding")));
    json_decref(plan);
}

static double reference_bytes(json_t *budget)
{
    return number_at(json_named(json_at(budget, "ranks.0.items"), "reference_weights"), "bytes");
}

static void passes_of_reinforcement_learning(void **state)
{
    (void)state;
    json_t *plain = program_json("plan --json " LLAMA SHARDED, 0);
    json_t *plan = program_json(
        "plan --json " LLAMA SHARDED " --set rl=old,reference,entropy --reserve 20GB", 0);
    json_t *step = json_at(plan, "recommended.step");
    double passes = number_at(json_named(json_at(step, "items"), "log_probabilities"), "seconds");
    /* two forwards beside a step of four (forward, replay, backward twice as long) */
    double of_step = number_at(plain, "recommended.step.seconds");
    assert_true(passes > 0.4 * of_step && passes < 0.6 * of_step);
    assert_true(number_at(plan, "workload.reserve_bytes") == 20e9);
    assert_near(number_at(plan, "limit_bytes"), number_at(plain, "limit_bytes") - 20e9, 1e-12, "B");
    double most = number_at(plan, "recommended.ranks.0.peaks.logprob_bytes");
    assert_true(most > 0 && most < number_at(plan, "recommended.peak_bytes"));
    json_decref(plain);
    json_decref(plan);
    json_t *budget = program_json("budget --json " LLAMA SHARDED " --set rl=reference", 0);
    assert_near(reference_bytes(budget), 2 * 8030261248.0 / 8, 1e-9, "B");
    json_decref(budget);
}

/* 2,048 of prompt and 30,720 of response over cp 4. */
static void budgets_of_tokens(void **state)
{
    (void)state;
    json_t *plan = program_json("plan --json --model llama-3.1-8b --hardware h100-sxm --gpus 32 "
                                "--seq 32K --global-batch 64 --set cp=4 --set tokens_per_gpu=8192",
                                0);
    json_t *rows = json_at(plan, "recommended.rows");
    assert_true(number_at(rows, "tokens_per_micro_batch") == 32768);
    assert_true(number_at(rows, "micro_batches") == 8);
    assert_true(number_at(rows, "lost_fraction") == 0);
    json_decref(plan);
    assert_told("a token budget below the longest sample", 2,
                "\"$RANKFIT\" plan --model llama-3.1-8b --hardware h100-sxm --gpus 32 --seq 32K "
                "--set cp=4 --set tokens_per_gpu=8000");
}

/* Pieces of 1,000 and 513 over cp 4 and tp 2: 520 for the second, 7 tokens of 1,520 lost. */
static void packed_rows(void **state)
{
    struct program_result result;
    (void)state;
    program_run(
        "set -e; Q='--model llama-3.1-8b --hardware h100-sxm --gpus 8 --seq 1520 --lengths "
        "1000,513 --set cp=4 --set tp=2'\n"
        "\"$RANKFIT\" plan $Q -o $TMP/p.yaml >/dev/null\n"
        "\"$RANKFIT\" budget --json $Q >$TMP/a 2>/dev/null\n"
        "\"$RANKFIT\" budget --json $TMP/p.yaml >$TMP/b; cmp $TMP/a $TMP/b\n"
        "printf '513 1000\\n' >$TMP/l.txt\n"
        "\"$RANKFIT\" budget --json ${Q%1000,513*}$TMP/l.txt${Q#*1000,513} 2>/dev/null | cmp "
        "- $TMP/a\n"
        "grep -o '\"pad_tokens\": [0-9]*\\|\"lengths\": \"[0-9,]*\"' $TMP/b",
        &result);
    assert_golden("padding", result.err);
    assert_string_equal(result.out, "\"lengths\": \"1000,513\"\n\"pad_tokens\": 7\n");
    program_done(&result);
}

/* A recipe says the same: a list, or a file beside it. */
static void rows_of_a_recipe(void **state)
{
    struct program_result result;
    (void)state;
    program_run(
        "set -e; mkdir $TMP/r; cd $TMP; printf '513\\n1000\\n' >r/pieces.txt\n"
        "for l in 1000,513 pieces.txt; do printf 'model: llama-3.1-8b\\nhardware: h100-sxm\\n"
        "gpus: 8\\nseq: 1536\\nlengths: %s\\nset:\\n  cp: 2\\n  tp: 4\\n  packing: piece\\n' $l "
        ">r/r.yaml; \"$RANKFIT\" budget --json --recipe r/r.yaml 2>/dev/null | grep -o "
        "'\"pad_tokens\": [0-9]*\\|\"piece_multiple\": [0-9]*'; done",
        &result);
    assert_string_equal(result.err, "");
    /* 2 x lcm(2, 4): 1,000 stays, 513 becomes 520 */
    assert_string_equal(result.out, "\"piece_multiple\": 8\n\"pad_tokens\": 7\n"
                                    "\"piece_multiple\": 8\n\"pad_tokens\": 7\n");
    program_done(&result);
}

/* An executor that does not run them says which key. */
static void they_are_not_run(void **state)
{
    (void)state;
    assert_told(
        "passes and packing are not run", 2,
        "\"$RANKFIT\" run --model tiny-moe --hardware host --gpus 2 --seq 128 --lengths 100 "
        "--set rl=old");
}

static void moments_are_explained(void **state)
{
    (void)state;
    assert_told("explained", 0,
                "set -e; for t in first_step logprob reference_weights log_probabilities "
                "token_budget packing=row entropy max_tokens_per_gpu sample_packing "
                "gpu_memory_utilization ref_policy; do \"$RANKFIT\" explain $t; done");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_are_missing_in_the_first_step),
        cmocka_unit_test(a_save_may_bind),
        cmocka_unit_test(passes_of_reinforcement_learning),
        cmocka_unit_test(budgets_of_tokens),
        cmocka_unit_test(packed_rows),
        cmocka_unit_test(rows_of_a_recipe),
        cmocka_unit_test(they_are_not_run),
        cmocka_unit_test(moments_are_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
