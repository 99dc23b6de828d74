/* `rankfit validate public`: what Megatron keeps beside engine rankfit's tensors by hand from the
 * models' published configurations, and the errors over all rows once more. */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"
#include "tests/support/near.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static json_t *run_named(json_t *document, const char *name)
{
    return json_named(json_at(document, "sets.0.runs"), name);
}

static double kept(json_t *run, const char *name)
{
    return number_at(json_named(json_at(run, "adjustments"), name), "bytes");
}

/* Llama-3.1-70B: hidden 8,192, MLP 28,672, queries 8,192, keys 1,024, vocabulary 128,256. */
static const double hidden = 8192, mlp = 28672, query = 8192, key = 1024, vocab = 128256;

/* Two stages of six layers, 4,096 tokens; the first holds two micro-batches and no head. */
static void a_first_stage(void **state)
{
    (void)state;
    json_t *document = program_json("validate --json public", 0);
    json_t *run = run_named(document, "70b_tp1_pp2");
    double layers = 6, held = 2, tokens = 4096;
    assert_near(kept(run, "inputs"), layers * held * 2 * tokens * 2 * hidden, 0, "bytes");
    assert_near(kept(run, "activations"), layers * held * tokens * 2 * mlp, 0, "bytes");
    double shapes = (query + 2 * key) * hidden + hidden * query + 2 * mlp * hidden + hidden * mlp;
    assert_near(kept(run, "gradients"), 2 * shapes, 0, "bytes");
    json_decref(document);
}

/* One stage of twelve layers, tp 2, and 32K over cp 4: 8,192 tokens; heads are exchanged, and the
 * head's gradient of half a vocabulary is there. */
static void exchanged_heads(void **state)
{
    (void)state;
    json_t *document = program_json("validate --json public", 0);
    json_t *run = run_named(document, "70b_tp2_cp4_32k");
    double layers = 12, tokens = 8192, tp = 2;
    assert_near(kept(run, "inputs"), layers * 2 * tokens / tp * 2 * hidden, 0, "bytes");
    assert_near(kept(run, "activations"), layers * tokens * 2 * mlp / tp, 0, "bytes");
    assert_near(kept(run, "output"), layers * tokens * 2 * query / tp, 0, "bytes");
    double shapes = (query + 2 * key) * hidden + hidden * query + 3 * mlp * hidden + vocab * hidden;
    assert_near(kept(run, "gradients"), 2 * shapes / tp, 0, "bytes");
    json_decref(document);
}

/* DeepSeek-V3, one dense layer and three of experts, ep 8, 4,096 tokens of 8 choices: 32,768 rows.
 */
static void latents_and_experts(void **state)
{
    (void)state;
    json_t *document = program_json("validate --json public", 0);
    json_t *run = run_named(document, "deepseek_v3_ep8");
    double wide = 7168, tokens = 4096, rows = 32768;
    assert_near(kept(run, "inputs"), 4 * 2 * tokens * 2 * wide, 0, "bytes");
    assert_near(kept(run, "activations"),
                tokens * 2 * 18432 + 3 * (rows * 2 * 2048 + tokens * 2 * 2048), 0, "bytes");
    assert_near(kept(run, "latents"), 4 * tokens * 2 * (1536 + 512 + 128 * 64.0), 0, "bytes");
    double shapes = 1536 * wide + 128 * 192 * 1536.0 + 576 * wide + 128 * 256 * 512.0 +
                    wide * 128 * 128 + 3 * 18432 * wide + 3 * 2048 * wide + 129280 * wide;
    assert_near(kept(run, "gradients"), 2 * shapes, 0, "bytes");
    json_decref(document);
}

/* Qwen3-30B-A3B, 48 layers, hidden 2,048, queries 4,096, keys 512, experts of 768, ep 16: norms of
 * heads keep what comes in, and the experts' activation is that of 32,768 rows. */
static void norms_of_heads(void **state)
{
    (void)state;
    json_t *document = program_json("validate --json public", 0);
    json_t *run = run_named(document, "qwen3_30b_ep16");
    double wide = 2048, tokens = 4096, rows = 32768;
    assert_near(kept(run, "heads"), 48 * tokens * 2 * (4096 + 512), 0, "bytes");
    assert_near(kept(run, "activations"), 48 * rows * 2 * 768, 0, "bytes");
    double shapes = (4096 + 2 * 512) * wide + wide * 4096 + 3 * 768 * wide + 151936 * wide;
    assert_near(kept(run, "gradients"), 2 * shapes, 0, "bytes");
    json_decref(document);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Every error from its own row, the median from all, the bound of one percent. */
static void errors_over_all(void **state)
{
    size_t index;
    json_t *run;
    double errors[64], own[64];
    (void)state;
    json_t *document = program_json("validate --json public", 0);
    size_t count = json_array_size(json_at(document, "sets.0.runs"));
    assert_int_equal(count, 14);
    json_array_foreach(json_at(document, "sets.0.runs"), index, run)
    {
        double measured = number_at(run, "measured_bytes"), arena = number_at(run, "arena_bytes");
        double engine = number_at(run, "engine_bytes");
        errors[index] = engine / measured - 1;
        own[index] = arena / measured - 1;
        assert_near(number_at(run, "engine_error"), errors[index], 1e-9, "");
        assert_near(number_at(run, "error"), own[index], 1e-9, "");
        assert_true(arena < engine && engine / measured - 1 < 0.01 && errors[index] > -0.01);
    }
    qsort(errors, count, sizeof *errors, by_value);
    qsort(own, count, sizeof *own, by_value);
    assert_near(number_at(document, "sets.0.engine_errors.median"), (errors[6] + errors[7]) / 2,
                1e-9, "");
    assert_near(number_at(document, "sets.0.errors.median"), (own[6] + own[7]) / 2, 1e-9, "");
    assert_near(number_at(document, "sets.0.engine_errors.least"), errors[0], 1e-9, "");
    assert_near(number_at(document, "sets.0.engine_errors.most"), errors[count - 1], 1e-9, "");
    assert_true(json_array_size(json_at(document, "sets.0.left_out")) >= 5);
    json_decref(document);
}

/* Measured figures are GiB: 66.55. */
static void measured_in_gib(void **state)
{
    (void)state;
    json_t *document = program_json("validate --json public", 0);
    assert_near(number_at(run_named(document, "70b_tp1_pp2"), "measured_bytes"),
                66.55 * 1073741824.0, 1e-12, "bytes");
    json_decref(document);
}

/* One row off by a tenth of its size: the bound does not hold, exit 1. */
static void a_bound_that_does_not_hold(void **state)
{
    struct program_result result;
    (void)state;
    program_run("cp -r \"$RANKFIT_SOURCE_ROOT/validation/models\" $TMP && sed 's/peak: 28.29/peak: "
                "31.1/' \"$RANKFIT_SOURCE_ROOT/validation/public.yaml\" >$TMP/off.yaml && "
                "\"$RANKFIT\" validate --json $TMP/off.yaml",
                &result);
    assert_int_equal(result.status, 1);
    json_t *document = json_loads(result.out, 0, NULL);
    assert_true(json_is_false(json_at(document, "sets.0.holds")));
    json_decref(document);
    program_done(&result);
}

static void faulty_files(void **state)
{
    (void)state;
    assert_told("faulty peaks", 2, "\"$RANKFIT\" validate peaks-faulty.yaml");
    assert_told("unknown rules", 2, "\"$RANKFIT\" validate peaks-unknown-rules.yaml");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_stage),
        cmocka_unit_test(exchanged_heads),
        cmocka_unit_test(latents_and_experts),
        cmocka_unit_test(norms_of_heads),
        cmocka_unit_test(errors_over_all),
        cmocka_unit_test(measured_in_gib),
        cmocka_unit_test(a_bound_that_does_not_hold),
        cmocka_unit_test(faulty_files),
    };
    return cmocka_run_group_tests_name("peaks", tests, NULL, NULL);
}
