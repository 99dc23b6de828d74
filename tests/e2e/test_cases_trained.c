/* What is trained, and by what, asked of the program: parameters, state, refusals. */
#include "tests/e2e/cases.h"
#include "tests/e2e/program.h"
#include "tests/support/golden.h"
#include "tests/support/near.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FULL_WIDTH "--set pp=1 --set tp=1 --set cp=1 --set fsdp=8 "
#define LLAMA                                                                                      \
    "--model llama-3.1-8b --hardware h100-sxm --gpus 8 --seq 8K --set sharding=fsdp " FULL_WIDTH
#define QWEN                                                                                       \
    "--model qwen3-30b-a3b --hardware h100-sxm --gpus 8 --seq 8K --set sharding=fsdp " FULL_WIDTH

/* Llama-3.1-8B has 8,030,261,248 parameters; adapters of rank 16 for all its projections are
 * 41,943,040, as PEFT prints. Over 8 ranks: weights of both in bf16, 16 B (gradient, master and two
 * moments in fp32) an adapter's parameter. */
static void adapters_alone_are_trained(void **state)
{
    (void)state;
    json_t *plan = case_plan(LLAMA "--set lora_rank=16", "fits");
    assert_int_equal(number_at(plan, "model.params_total"), 8030261248);
    assert_int_equal(number_at(plan, "model.params_trained"), 41943040);
    assert_near(case_item(plan, "weights"), 2.0 * (8030261248 + 41943040) / 8, 0, "B");
    assert_near(case_item(plan, "gradients") + case_item(plan, "master") +
                    case_item(plan, "moments"),
                16.0 * 41943040 / 8, 0, "B");
    json_decref(plan);
}

/* The router has 48 x 262,144 of Qwen3-30B-A3B's 30,532,122,624 parameters, embedding and head
 * 311,164,928 each. */
static void frozen_parts_are_not(void **state)
{
    (void)state;
    json_t *plan = case_plan(QWEN "--set frozen=embedding,head,router --set recompute=full "
                                  "--set moments_dtype=bf16",
                             "fits");
    assert_int_equal(number_at(plan, "model.params_trained"),
                     UINT64_C(30532122624) - UINT64_C(2) * 311164928 - UINT64_C(48) * 262144);
    json_decref(plan);
}

/* 4 B of master weights for all of Llama's parameters; 4 of momentum, and 4 more where AdamW stays:
 * embedding, head and norms, 1,050,939,392. */
static void muon_has_one_moment(void **state)
{
    (void)state;
    json_t *plan = case_plan(LLAMA "--set optimizer=muon", "fits");
    assert_near(case_item(plan, "master"), 4.0 * 8030261248 / 8, 0, "B");
    assert_near(case_item(plan, "moments"), 4.0 * (8030261248 + 1050939392.0) / 8, 0, "B");
    json_decref(plan);
    plan = case_plan(LLAMA "--set optimizer=muon --set master=none", "fits");
    assert_near(case_item(plan, "master"), 0, 0, "B");
    json_decref(plan);
}

static void what_contradicts_is_refused(void **state)
{
    (void)state;
    case_refused(LLAMA "--set optimizer=muon --set lora_rank=16");
    case_refused(LLAMA "--set optimizer=muon --set offload=optimizer");
    case_refused(LLAMA "--set lora_rank=16 --set frozen=head");
    case_refused(LLAMA "--set lora_rank=16 --set lora_targets=experts");
    case_refused(LLAMA "--set frozen=experts");
    case_warned(LLAMA "--set lora_targets=mlp");
}

static void keys_are_explained(void **state)
{
    (void)state;
    case_explained("muon");
    case_explained("lora_targets");
    case_explained("frozen");
    case_explained("master=none");
}

/* A plan file says what was set, and is answered as the question was. */
static void plan_files_keep_it(void **state)
{
    struct program_result result;
    (void)state;
    program_run("$RANKFIT plan " LLAMA "--set lora_rank=16 --set lora_targets=attention,mlp "
                "-o $TMP/plan.yaml >/dev/null && grep -A2 -E 'lora_rank|lora_targets' "
                "$TMP/plan.yaml && $RANKFIT budget $TMP/plan.yaml",
                &result);
    assert_int_equal(result.status, 0);
    assert_non_null(strstr(result.out, "lora_rank: 16"));
    assert_golden("a plan file with adapters", result.out);
    program_done(&result);
}

/* modelscope/ms-swift#5615: 4 cards of 24 GB with LoRA and ep 2 run out of memory. The launch line
 * names the degrees that are not 1; judged as it is, experts are whole and it does not fit. */
static void a_launch_line_is_judged_as_it_is(void **state)
{
    static const char line[] =
        "--model qwen3-30b-a3b --hardware rtx4090 --gpus 4 --seq 3000 --set ep=2 "
        "--set lora_rank=8 --set recompute=full --set sharding=zero1 --exact";
    (void)state;
    json_t *plan = case_plan(line, "does_not_fit");
    assert_int_equal(number_at(plan, "recommended.layout.etp"), 1);
    assert_int_equal(number_at(plan, "recommended.layout.tp"), 1);
    assert_int_equal(number_at(plan, "recommended.layout.dp"), 4);
    assert_int_equal(number_at(plan, "recommended.primitives.keep_attention"), 0);
    /* half of the experts and all else in bf16: 2 B x (28.99e9 / 2 + 1.54e9) */
    assert_near(case_item(plan, "weights"), 2 * (28.99e9 / 2 + 1.54e9), 0.03, "B");
    json_decref(plan);
    /* an expert group's shards that were named leave the others at full width */
    plan = case_plan("--model glm-5.2 --hardware h100-sxm --gpus 64 --seq 2048 --set ep=32 "
                     "--set lora_rank=16 --set lora_targets=attention --set recompute=full "
                     "--set sharding=fsdp --set e_fsdp=2 --exact",
                     "fits");
    assert_int_equal(number_at(plan, "recommended.layout.fsdp"), 64);
    json_decref(plan);
    case_refused("--model qwen3-8b --hardware h100-sxm --gpus 8 --seq 4096 --set tp=3 --exact");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launch_line_is_judged_as_it_is),
        cmocka_unit_test(adapters_alone_are_trained),
        cmocka_unit_test(frozen_parts_are_not),
        cmocka_unit_test(muon_has_one_moment),
        cmocka_unit_test(what_contradicts_is_refused),
        cmocka_unit_test(keys_are_explained),
        cmocka_unit_test(plan_files_keep_it),
    };
    return cmocka_run_group_tests_name("cases trained", tests, NULL, NULL);
}
