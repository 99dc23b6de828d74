/* The arithmetic that a person can redo, through the command line: recipes and --set keys only. */
#include "tests/e2e/program.h"
#include "tests/support/near.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* An item of the first rank of a budget. */
static double item_bytes(const char *arguments, const char *item)
{
    char line[512];
    (void)snprintf(line, sizeof line, "budget --json %s", arguments);
    json_t *budget = program_json(line, 0);
    double ret = number_at(json_named(json_at(budget, "ranks.0.items"), item), "max_bytes");
    json_decref(budget);
    return ret;
}

static void full_logits(void **state)
{
    (void)state;
    /* 32.55 GB, two ways of splitting; 65.10 GB unsplit; 16.27 GB in bf16 */
    assert_near(item_bytes("--recipe article-logits-cp4", "logits"), 32768.0 * 248320 * 4, 0,
                "bytes");
    assert_near(item_bytes("--recipe article-logits-tp2cp2", "logits"), 65536.0 * 124160 * 4, 0,
                "bytes");
    assert_near(item_bytes("--recipe article-logits-cp2", "logits"), 65095598080.0, 0, "bytes");
    assert_near(item_bytes("--recipe article-logits-bf16", "logits"), 16273899520.0, 0, "bytes");
    assert_near(item_bytes("--recipe article-logits-cp4", "logits"), 32.55e9, 1e-3, "bytes");
}

static void set_keys_win_over_recipes(void **state)
{
    (void)state;
    assert_near(item_bytes("--recipe article-logits-cp4 --set logits_dtype=bf16", "logits"),
                16273899520.0, 0, "bytes");
    assert_near(item_bytes("--recipe article-logits-cp4 --set cp=2", "logits"), 65095598080.0, 0,
                "bytes");
}

/* 128K over cp 4 is 32K, over cp 8 16K: seen in the layer inputs, 40 x 2 bytes x tokens x 2,048. */
static void local_sequence(void **state)
{
    (void)state;
    assert_near(item_bytes("--recipe article-local-sequence", "checkpoints"),
                40.0 * 2 * 32768 * 2048, 0, "bytes");
    assert_near(item_bytes("--recipe article-local-sequence --set cp=8", "checkpoints"),
                40.0 * 2 * 16384 * 2048, 0, "bytes");
}

/* What an item grows by when the experts' width doubles. */
static double growth(const char *recipe, const char *item)
{
    char line[256];
    (void)snprintf(line, sizeof line, "--recipe %s --set model.moe.width=1024", recipe);
    double wide = item_bytes(line, item);
    (void)snprintf(line, sizeof line, "--recipe %s --set model.moe.width=512", recipe);
    return wide - item_bytes(line, item);
}

static const double experts_grown = 40.0 * 256 * 3 * 2048 * 512;

static void state_under_zero1(void **state)
{
    (void)state;
    const char *recipe = "article-state-zero1";
    double world = 32, pp = 2, ep = 4;
    assert_near(growth(recipe, "master") + growth(recipe, "moments"), 12 * experts_grown / world, 0,
                "bytes");
    assert_near(growth(recipe, "weights") + growth(recipe, "gradients"),
                6 * experts_grown / (pp * ep), 0, "bytes");
}

static void state_under_fsdp(void **state)
{
    (void)state;
    const char *recipe = "article-state-fsdp";
    double world = 32;
    assert_near(growth(recipe, "master") + growth(recipe, "moments"), 12 * experts_grown / world, 0,
                "bytes");
    assert_near(growth(recipe, "weights") + growth(recipe, "gradients"), 6 * experts_grown / world,
                0, "bytes");
}

/* The true figures of the real model, counted by hand from its published configuration: an expert
 * part a rank is 40 x 256 x 3 x 2,048 x 512 / 32; the dense part is everything else of the text
 * trunk, each unit padded to 64 x 32 elements (under 2,048 a unit). */
static void state_of_the_real_model(void **state)
{
    (void)state;
    double trained = 34660610688.0;
    double dense = trained - experts_grown;
    double unpadded = experts_grown / 32 + dense / 32;
    double padding = 42 * 64; /* 40 layers, embedding, head: at most 64 elements a rank each */
    double weights = item_bytes("--recipe article-state-fsdp", "weights") / 2;
    assert_true(weights >= unpadded && weights <= unpadded + padding);
}

/* Hardware FLOPs over model FLOPs. Llama-3.1-8B at 8K by hand: layers hold 32 x 218,103,808 matmul
 * parameters, the head 525,336,576; attention forward is 2 x 2 x 32 x 128 x 4,096 a layer. */
static void recompute_turns_6_into_8(void **state)
{
    (void)state;
    double layers = 32 * 218103808.0, head = 525336576.0;
    double attention = 32 * 2.0 * 2 * 32 * 128 * 4096;
    double model = 6 * (layers + head) + 3 * attention;
    double flash = 0.5 * attention;
    json_t *full = program_json("plan --json --recipe article-recompute", 0);
    json_t *none = program_json(
        "plan --json --recipe article-recompute --set recompute=none --set loss=full", 0);
    double with = number_at(full, "recommended.step.hardware_tflops_per_gpu") /
                  number_at(full, "recommended.step.model_tflops_per_gpu");
    double without = number_at(none, "recommended.step.hardware_tflops_per_gpu") /
                     number_at(none, "recommended.step.model_tflops_per_gpu");
    assert_near(without, (model + flash) / model, 1e-9, "ratio");
    /* layers: 2 N more, so 6 N becomes 8 N, less the down projections, 4,096 x 14,336 each, that a
     * replay does not come to; attention replayed once */
    double down = 32 * 4096.0 * 14336;
    double replayed = 8 * layers - 2 * down + 6 * head + 4 * attention + flash;
    assert_near(with, replayed / model, 1e-9, "ratio");
    json_decref(full);
    json_decref(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_logits),
        cmocka_unit_test(set_keys_win_over_recipes),
        cmocka_unit_test(local_sequence),
        cmocka_unit_test(state_under_zero1),
        cmocka_unit_test(state_under_fsdp),
        cmocka_unit_test(state_of_the_real_model),
        cmocka_unit_test(recompute_turns_6_into_8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
