/* Layouts that other software refused late, or not at all: what is said before the launch. */
#include "tests/e2e/cases.h"
#include "tests/e2e/program.h"
#include "tests/support/near.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define H100(model, gpus) "--model " model " --hardware h100-sxm --gpus " #gpus " --seq 4K "

/* THUDM/slime#1818, NVIDIA-NeMo/Speech#14838: a layout for more GPUs than there are died inside the
 * creation of process groups. pp 2 x ep 8 = 16 ranks; with 8 GPUs either degree halves. */
static void fewer_gpus_than_the_layout_needs(void **state)
{
    (void)state;
    case_refused(
        H100("qwen3-30b-a3b", 8) "--set tp=1 --set cp=1 --set etp=1 --set pp=2 --set ep=8");
    case_refused(H100("qwen3-30b-a3b", 4) "--set tp=8");
    json_decref(case_plan(H100("qwen3-30b-a3b", 8) "--set pp=1 --set ep=8", "fits"));
    json_decref(case_plan(H100("qwen3-30b-a3b", 8) "--set pp=2 --set ep=4", "fits"));
}

/* THUDM/slime#1662, PrimeIntellect-ai/prime-rl#3042, huggingface/transformers#48307: more tensor
 * ranks than key/value heads failed in the forward pass. 2 heads: tp 1 or 2. Whether heads may be
 * replicated is the engine's rule, so the engine is named. Over 8 ulysses ranks each of the 2 heads
 * travels to 8 / 2 = 4 of them. */
static void fewer_key_heads_than_ranks(void **state)
{
    (void)state;
    case_refused(H100("qwen3.5-35b-a3b", 32) "--set tp=4 --set pp=1 --set ep=8 --set cp=1");
    json_decref(case_plan(H100("qwen3.5-35b-a3b", 32) "--set tp=2 --set ep=8 --set cp=1", "fits"));
    json_decref(case_plan(H100("qwen3.5-35b-a3b", 32) "--set tp=1 --set ep=8 --set cp=1", "fits"));
    case_refused(H100("qwen3-30b-a3b", 8) "--set tp=8");
    case_warned(H100("qwen3.5-35b-a3b", 32) "--set tp=1 --set cp=8 --set context=ulysses");
    case_explained("kv_replication");
}

/* verl-project/verl#1226: 40 query heads over 16 ulysses ranks. Divisors of 40 are eight; the 8
 * key/value heads divide into or repeat over 1, 2, 4, 8 and 40 ranks; 16 GPUs leave 1, 2, 4, 8. At
 * 8 each rank has one key/value head of its own: nothing repeats. */
static void ulysses_wants_whole_heads(void **state)
{
    (void)state;
    case_refused(H100("qwen2.5-32b", 16) "--set cp=16 --set context=ulysses");
    json_t *plan = case_plan(H100("qwen2.5-32b", 16) "--set cp=8 --set context=ulysses", "fits");
    assert_int_equal(case_warnings("ulysses over as many ranks as key/value heads", plan), 0);
    json_decref(plan);
}

static void assert_stages(json_t *plan, const int *layers, size_t count)
{
    json_t *stages = json_at(plan, "recommended.layout.stage_layers");
    assert_int_equal(json_array_size(stages), count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(json_integer_value(json_array_get(stages, i)), layers[i]);
}

#define AIR                                                                                        \
    H100("glm-4.5-air", 32)                                                                        \
    "--global-batch 256 --set tp=1 --set cp=1 --set pp=4 --set ep=8 --set sharding=zero1 "         \
    "--set recompute=full --set loss=linear_ce --set moe=plain --set model.mtp=1 "

/* modelscope/ms-swift#5737, #6476: 46 layers and a prediction layer do not split over 4 stages; the
 * last one, which holds it and the head, gets 10 (12 x 3 + 10 = 46). An even split of the 46 has
 * one layer more there and does not fit (the rank of the last stage holds its embedding too, which
 * the prediction layer joins), and is slower. 94 layers split without help. */
static void layers_that_stages_do_not_divide(void **state)
{
    (void)state;
    json_t *split = case_plan(AIR, "fits");
    json_t *even = case_plan(AIR "--set stage_layers=11,12,12,11", "does_not_fit");
    assert_stages(split, (const int[]){ 12, 12, 12, 10 }, 4);
    case_reason("a last stage with a prediction layer", split, "stage_layers=12,12,12,10");
    assert_true(number_at(split, "recommended.peak_bytes") <
                number_at(even, "recommended.peak_bytes"));
    assert_true(number_at(split, "recommended.step.seconds") <
                number_at(even, "recommended.step.seconds"));
    assert_int_equal(number_at(even, "recommended.peak_rank"), 24); /* of the last stage */
    json_decref(split);
    json_decref(even);
    case_refused(AIR "--set stage_layers=12,12,12,11");
    json_t *plan =
        case_plan(H100("qwen3-235b-a22b", 64) "--set pp=4 --set stage_layers=24*3,22", "fits");
    assert_stages(plan, (const int[]){ 24, 24, 24, 22 }, 4);
    json_decref(plan);
}

#define WIDE_HEAD                                                                                  \
    H100("qwen3-8b", 16)                                                                           \
    "--global-batch 256 --set pp=4 --set tp=1 --set cp=1 "                                         \
    "--set sharding=zero1 --set recompute=none --set loss=linear_ce "

/* The same for a head that outweighs layers: 151,936 x 4,096 = 622e6 parameters against 193e6 of a
 * layer, so that the last of four stages has the work of about twelve layers where an even split of
 * 36 gives nine to each. Two layers fewer there are taken; one more or one less is slower. */
static void a_last_stage_that_pays_for_its_head(void **state)
{
    (void)state;
    json_t *taken = case_plan(WIDE_HEAD, "fits");
    assert_stages(taken, (const int[]){ 9, 10, 10, 7 }, 4);
    case_reason("a last stage with a wide head", taken, "stage_layers=9,10,10,7");
    double seconds = number_at(taken, "recommended.step.seconds");
    json_t *even = case_plan(WIDE_HEAD "--set stage_layers=9,9,9,9", "fits");
    json_t *heavier = case_plan(WIDE_HEAD "--set stage_layers=9,9,10,8", "fits");
    json_t *lighter = case_plan(WIDE_HEAD "--set stage_layers=10,10,11,5", "fits");
    assert_true(seconds < 0.9 * number_at(even, "recommended.step.seconds"));
    assert_true(seconds < number_at(heavier, "recommended.step.seconds"));
    assert_true(seconds < number_at(lighter, "recommended.step.seconds"));
    json_decref(taken);
    json_decref(even);
    json_decref(heavier);
    json_decref(lighter);
}

/* Interleaved stages are equal, and a head smaller than the differences between stages moves
 * nothing: 2 % of the step is asked for. */
static void stages_stay_even_where_little_is_gained(void **state)
{
    (void)state;
    json_t *turns = case_plan(H100("qwen3-8b", 16) "--global-batch 256 --set pp=2 --set vpp=3 "
                                                   "--set tp=1 --set cp=1 --set sharding=zero1 "
                                                   "--set recompute=none --set loss=linear_ce",
                              "fits");
    json_t *small = case_plan(H100("qwen3-8b", 16) "--global-batch 256 --set pp=2 --set tp=1 "
                                                   "--set cp=1 --set model.vocab=1024 "
                                                   "--set sharding=zero1 --set recompute=full",
                              "fits");
    assert_stages(turns, (const int[]){ 18, 18 }, 2);
    assert_stages(small, (const int[]){ 18, 18 }, 2);
    json_decref(turns);
    json_decref(small);
}

/* What no layout can have is refused with the values next to it that can be had. */
static void nearest_legal_values(void **state)
{
    static const char *const asked[] = {
        H100("qwen3-30b-a3b", 24) "--set ep=12 --set tp=1 --set pp=1",
        H100("qwen3-32b", 24) "--set tp=12 --set pp=1",
        "--model qwen3-8b --hardware h100-sxm --gpus 8 --seq 1513 --set cp=4 --set tp=1",
        H100("qwen3-8b", 8) "--set pp=8 --set vpp=2 --set stage_layers=4*4,5*4",
        H100("qwen3-8b", 64) "--set pp=64 --set tp=1",
    };
    (void)state;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        case_refused(asked[i]);
}

/* NVIDIA/Megatron-LM#1304, #2718, #1778: stages whose layers do not sum to the model's trained a
 * smaller model. 7 x 4 = 28 of 30; 11 + 13 = 24 of 48; a last stage alone. */
static void stages_that_drop_layers(void **state)
{
    (void)state;
    case_refused(H100("qwen3-30b-a3b", 16) "--set pp=2 --set stage_layers=11,13");
    case_refused(H100("qwen3-30b-a3b", 16) "--set model.layers=30 --set pp=4 "
                                           "--set stage_layers=7*4");
    case_refused(H100("qwen3-30b-a3b", 16) "--set pp=1 --set stage_layers=12");
    case_explained("stage_sum");
}

#define PADDED                                                                                     \
    H100("qwen3-30b-a3b", 8)                                                                       \
    "--set ep=8 --set tp=4 --set cp=1 --set pp=1 --set etp=1 --set sharding=zero1 --set "          \
    "loss=full "

/* NVIDIA-NeMo/Megatron-Bridge#1331, hpcaitech/ColossalAI#6167: 151,669 entries over 4 ranks are
 * padded to 297 x 512 = 152,064; all matrices and the logits have that size. The checkpoint's
 * 151,936 rows divide by 4 and stay. 4,096 tokens x 152,064 / 4 x 4 B of logits. */
static void a_vocabulary_that_does_not_divide(void **state)
{
    (void)state;
    case_warned(PADDED "--set model.vocab=151669");
    json_t *odd = case_budget(PADDED "--set model.vocab=151669");
    json_t *even = case_budget(PADDED "--set model.vocab=152064");
    json_t *rows = case_plan(PADDED, "fits");
    assert_near(case_item(odd, "weights"), case_item(even, "weights"), 0, "bytes");
    assert_near(case_item_most(odd, "logits"), 4096.0 * 38016 * 4, 0, "bytes");
    assert_near(case_item_most(rows, "logits"), 4096.0 * 37984 * 4, 0, "bytes");
    assert_int_equal(case_warnings("a vocabulary that divides", rows), 0);
    json_decref(odd);
    json_decref(even);
    json_decref(rows);
    case_explained("vocab_padding");
}

/* OpenRLHF/OpenRLHF#346, verl-project/verl#1811: 256 sequences on 7 ranks of 2 at a time: 18 x 14 =
 * 252, 19 x 14 = 266. 16 sequences over dp 4 are 4 micro-batches for 8 stages: of the step
 * (8 - 1) / (4 + 8 - 1) = 0.636 is bubble. */
static void batches_that_do_not_divide(void **state)
{
    (void)state;
    case_refused(
        H100("qwen3-8b", 7) "--global-batch 256 --micro-batch 2 --set cp=1 --set pp=1 --set tp=1");
    json_t *plan = case_plan(H100("qwen3-8b", 32) "--global-batch 16 --micro-batch 1 --set pp=8 "
                                                  "--set tp=1 --set cp=1",
                             "fits");
    assert_int_equal(case_warnings("4 micro-batches for 8 stages", plan), 1);
    assert_near(number_at(plan, "recommended.step.bubble_fraction"), 7.0 / 11, 1e-12, "");
    json_decref(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fewer_gpus_than_the_layout_needs),
        cmocka_unit_test(fewer_key_heads_than_ranks),
        cmocka_unit_test(ulysses_wants_whole_heads),
        cmocka_unit_test(layers_that_stages_do_not_divide),
        cmocka_unit_test(a_last_stage_that_pays_for_its_head),
        cmocka_unit_test(stages_stay_even_where_little_is_gained),
        cmocka_unit_test(nearest_legal_values),
        cmocka_unit_test(stages_that_drop_layers),
        cmocka_unit_test(a_vocabulary_that_does_not_divide),
        cmocka_unit_test(batches_that_do_not_divide),
    };
    return cmocka_run_group_tests_name("cases: layout", tests, NULL, NULL);
}
