/* rankfit validate: the articles' figures, each side worked here by hand, and what is wrong with
 * files of figures. */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"
#include "tests/support/near.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What the articles reckon with: 753e9 parameters, 78 layers, 2 % dense, 98 % in 256 experts. */
#define LAYER (753e9 / 78)
#define GB *1e9
/* Times in s, then what they hide behind. */
#define WIRE_1M (LAYER * 0.98 * 2 / 64 * 4 / 45e9)
#define WIRE_256K ((LAYER * 0.98 * 2 / 8 * 4 + LAYER * 0.02 * 8) / 90e9)
#define ACTIVE (LAYER * (0.02 + 0.98 * 8 / 256))
#define FAR (1408.0 * 1048576 * 7 / 64)
#define LAYER_TIME (8 * ACTIVE * 16384 * 5 / 2e15)

/* published: as the article prints it (0: it does not); printed: from the article's rounded inputs;
 * unrounded: the same chain without rounding between. All in the unit that the article uses. */
struct hand {
    const char *name;
    double published, printed, unrounded;
};

static const struct hand hands[] = {
    { "state_1t", 18, 18, 18 },
    { "gpus_1t", 90, 90, 90 },
    { "layer_inputs", 0.958, 78 * 6144 * 2 / 1e6, 0.958464 },
    { "chosen_keys", 0.172, 21 * 2048 * 4 / 1e6, 0.172032 },
    { "kept", 0, 0.958 + 0.172, 0.958464 + 0.172032 },
    { "dispatch_row", 13312, 6144 * 2 + 256 * 4, 13312 },
    { "dispatch_1m", 0.852, 13312 * 64 / 1e6, 0.851968 },
    { "working_1m", 2.5, 2.5, 2.5 },
    { "gathered_1m", 2.727, LAYER *(0.02 + 0.98 / 64) * 8 / 1e9, 2.7272115 },
    { "tokens_1m", 16384, 16384, 16384 },
    { "dynamic_1m", 73.433, 16384 * (0.958 + 0.172 + 0.852 + 2.5) / 1e3,
      16384 * (0.958464 + 0.172032 + 0.851968 + 2.5) / 1e3 },
    { "state_1m", 56.122, 753 * 18 * (0.02 / 64 + 0.98 / 256), 56.12203 },
    { "total_1m", 133, 73.433 + 56.122 + 2.727, 73.440690 + 56.122031 + 2.7272115 },
    { "spare_1m", 67, 200 - 133, 200 - 132.2899329 },
    { "dynamic_1m_leaner", 0, 16384 * (0.958 + 0.172 + 0.852 + 1.5) / 1e3,
      16384 * (0.958464 + 0.172032 + 0.851968 + 1.5) / 1e3 },
    { "state_128", 0, 753 * 18 * (0.02 / 64 + 0.98 / 128), 108.008438 },
    { "fits_128", 200, 57.05 + 108.008 + 2.727, 57.056690 + 108.008438 + 2.7272115 },
    { "fits_two", 200, 114.10 + 56.122 + 2.727, 114.10 + 56.122031 + 2.7272115 },
    { "layer_experts_1m", 300, LAYER * 0.98 * 2 / 64 / 1e6, 295.6490 },
    { "expert_traffic_1m", 1200, 1200, 1182.596 },
    { "expert_wire_1m", 27, 1200 / 45.0, 1e3 * WIRE_1M },
    { "layer_active", 0.5, ACTIVE / 1e9, 0.4887260 },
    { "layer_flops", 4, 0.5 * 8, 3.909808 },
    { "tokens_to_hide_1m", 4500, 2e15 * 27e-3 / 12e9, 2e15 * WIRE_1M / (24 * ACTIVE) },
    { "plan_hides_1m", 0, 4500, 2e15 * WIRE_1M / (24 * ACTIVE) },
    { "tokens_256k", 32768, 32768, 32768 },
    { "dispatch_256k", 0.106, 13312 * 8 / 1e6, 0.106496 },
    { "working_256k", 1.5, 1.5, 1.5 },
    { "gathered_256k", 11.005, LAYER *(0.02 + 0.98 / 8) * 8 / 1e9, 11.005385 },
    { "dynamic_256k", 100.66, 32768 * (0.106 + 0.958 + 0.172 + 1.5) / 1e3 + 11.005,
      32768 * (0.106496 + 0.958464 + 0.172032 + 1.5) / 1e3 + 11.005385 },
    { "state_256k", 52.95, 753 * 18 / 256.0, 52.945313 },
    { "state_256k_copies", 85.77, 753 * 18 * (0.02 / 8 + 0.98 / 256), 85.771406 },
    { "total_256k", 0, 100.66 + 52.95, 100.691138 + 52.945313 },
    { "total_256k_copies", 0, 100.66 + 85.77, 100.691138 + 85.771406 },
    { "layer_experts_256k", 2.365, LAYER * 0.98 * 2 / 8 / 1e9, 2.3651923 },
    { "expert_traffic_256k", 9.460, 2.365 * 4, 9.4607692 },
    { "dense_traffic_256k", 1.544, LAYER * 0.02 * 8 / 1e9, 1.5446154 },
    { "traffic_256k", 11, 9.460 + 1.544, 11.005385 },
    { "wire_256k", 122, 11 / 0.090, 1e3 * WIRE_256K },
    { "tokens_to_hide_256k", 20300, 2e15 * 122e-3 / 12e9, 2e15 * WIRE_256K / (24 * ACTIVE) },
    { "plan_hides_256k", 0, 2e15 * 122e-3 / 12e9, 2e15 * WIRE_256K / (24 * ACTIVE) },
    { "latent_row", 1408, (512 + 64 + 128) * 2, 1408 },
    { "sequence_latents", 1.476, 1408 * 1048576.0 / 1e9, 1.476395 },
    { "far_latents", 161.5, 1476 * 7 / 64.0, FAR / 1e6 },
    { "near_latents", 1.292, 1.476 * 7 / 8, 1.291846 },
    { "far_wire", 7.2, 161.5 * 4 / 90, 1e3 * FAR * 4 / 90e9 },
    { "layer_time", 164, 1e3 * 4e9 * 16384 * 5 / 2e15, 1e3 * LAYER_TIME },
    { "far_share", 4.4, 100 * 7.2 / 164, 100 * FAR * 4 / 90e9 / LAYER_TIME },
    { "tokens_to_hide_b300", 12200, 2e15 * 122e-3 / 20e9, 2e15 * WIRE_256K / (40 * ACTIVE) },
    { "skew", 1, 1, 1 },
    { "skew_etp4", 1, 1, 1 },
    { "skew_ratio", 1, 1, 1 },
    { "etp_copies", 4, 4, 4 },
    { "etp_width", 2048, 512, 512 },
    { "etp_step", 1, 1, 1 },
    { "etp_step_skewed", 0, 1, 1 },
    { "logits_tp2cp2", 32.55, 65536 * 124160.0 * 4 / 1e9, 32.547799 },
    { "logits_cp4", 32.55, 32768 * 248320.0 * 4 / 1e9, 32.547799 },
    { "logits_cp2", 65.10, 65536 * 248320.0 * 4 / 1e9, 65.095598 },
    { "logits_bf16", 16.27, 65536 * 124160.0 * 2 / 1e9, 16.2738995 },
    { "replay_tax", 1.33, 8 / 6.0, 8 / 6.0 },
    { "utilization_186", 18.8, 18600 / 989.0, 18.806876 },
    { "mfu_predicted", 18.8, 18600 / 989.0, 18.806876 },
    { "utilization_sparse", 9.4, 18600 / 1979.0, 9.3986862 },
    { "mfu_if_hardware", 14, 18600 / 989.0 * 6 / 8, 14.105157 },
    { "hfu_if_model", 0, 18600 / 989.0 * 8 / 6, 25.075834 },
    { "hidden_8", 0.89, 8 / 9.0, 8 / 9.0 },
    { "hidden_16", 0.94, 16 / 17.0, 16 / 17.0 },
    { "hidden_32", 0.97, 32 / 33.0, 32 / 33.0 },
    { "bubble_8", 50, 100 * 7 / 15.0, 100 * 7 / 15.0 },
    { "bubble_over_work_8", 1, 7 / 8.0, 7 / 8.0 },
    { "edge", 1.28, 100 / 78.0, 100 / 78.0 },
    { "micro_batches_for_edge", 0, 7 * 0.9872 / 0.0128, 7 * 77 },
};

static json_t *figures_of(json_t *document)
{
    return json_at(document, "sets.0.figures");
}

static void figures_are_the_articles(json_t *document)
{
    json_t *figures = figures_of(document);
    assert_string_equal(json_string_value(json_at(document, "schema")), "rankfit.validation/1");
    assert_true(json_is_true(json_at(document, "holds")));
    for (size_t i = 0; i < sizeof hands / sizeof *hands; i++) {
        json_t *figure = json_named(figures, hands[i].name);
        if (hands[i].published > 0)
            assert_near(number_at(figure, "published"), hands[i].published, 0, hands[i].name);
        else
            assert_true(json_is_null(json_object_get(figure, "published")));
        assert_near(number_at(figure, "as_printed"), hands[i].printed, 1e-6, hands[i].name);
        assert_near(number_at(figure, "unrounded"), hands[i].unrounded, 1e-6, hands[i].name);
        assert_true(json_is_true(json_object_get(figure, "holds")));
    }
}

/* GLM-5.2 by hand from its published configuration: a layer with experts but without an indexer. */
#define ATTENTION                                                                                  \
    (6144.0 * 2048 + 2048.0 * 64 * 256 + 6144.0 * (512 + 64) + 512.0 * 64 * (192 + 256) +          \
     64.0 * 256 * 6144 + 2048 + 512 + 2 * 6144)
#define DENSE_PART (ATTENTION + 6144.0 * 256 + 256 + 3 * 6144.0 * 2048)
#define EXPERT_PART (256 * 3 * 6144.0 * 2048)
/* The trunk, 743,377,019,904 parameters, of which 75 layers have experts. */
#define TRAINED 743377019904.0
#define IN_EXPERTS (75 * EXPERT_PART)

struct own {
    const char *name;
    double value, tolerance;
};

static const struct own owns[] = {
    /* what a GB200 gives a program: 188,733 MiB */
    { "gpus_1t", 91, 0 },
    { "layer_inputs", 78 * 6144 * 2 / 1e6, 1e-12 },
    { "chosen_keys", 21 * 2048 * 4 / 1e6, 1e-12 },
    { "kept", (78 * 6144 * 2 + 21 * 2048 * 4) / 1e6, 1e-12 },
    { "dispatch_row", 6144 * 2 + 4, 0 },
    { "dispatch_1m", 8 * (6144 * 2 + 4) / 1e6, 1e-12 },
    { "dispatch_256k", 8 * (6144 * 2 + 4) / 1e6, 1e-12 },
    { "tokens_1m", 1048576.0 * 4 / 256, 0 },
    { "tokens_256k", 262144.0 * 32 / 256, 0 },
    { "gathered_1m", (DENSE_PART + EXPERT_PART / 64) * 8 / 1e9, 1e-9 },
    { "gathered_256k", (DENSE_PART + EXPERT_PART / 8) * 8 / 1e9, 1e-9 },
    /* units are padded: under 64 elements a rank each */
    { "state_1m", 18 * ((TRAINED - IN_EXPERTS) / 64 + IN_EXPERTS / 256) / 1e9, 2e-6 },
    { "state_256k", 18 * TRAINED / 256 / 1e9, 2e-6 },
    { "state_256k_copies", 18 * ((TRAINED - IN_EXPERTS) / 8 + IN_EXPERTS / 256) / 1e9, 2e-6 },
    { "layer_experts_1m", EXPERT_PART * 2 / 64 / 1e6, 1e-9 },
    { "layer_experts_256k", EXPERT_PART * 2 / 8 / 1e9, 1e-9 },
    { "expert_wire_1m", EXPERT_PART * 8 / 64 / (0.85 * 50e9) * 1e3, 1e-9 },
    { "layer_active", (DENSE_PART + EXPERT_PART * 8 / 256) / 1e9, 1e-9 },
    { "dense_traffic_256k", DENSE_PART * 8 / 1e9, 1e-9 },
    { "wire_256k", (EXPERT_PART + DENSE_PART * 8) / (0.85 * 100e9) * 1e3, 1e-9 },
    { "latent_row", 1408, 0 },
    { "far_latents", FAR / 1e6, 1e-9 },
    { "far_wire", FAR * 4 / 85e9 * 1e3, 1e-9 },
    /* of 64 x 16,384 tokens four fifths send 4 rows to rank 0; the others' 4 or 8 go to 63 ranks */
    { "skew", 0.8 * 4 * 64 / 8, 1e-6 },
    { "skew_etp4", (0.8 * 4 * 64 + 3 * 4.8 * 64 / 63) / 4 / 8, 1e-5 },
    { "skew_ratio", (3.2 + 3 * 4.8 / 63) / 4 / 3.2, 1e-5 },
    { "etp_copies", 4, 0 },
    { "etp_width", 512, 0 },
    { "logits_tp2cp2", 32.547799, 1e-7 },
    { "logits_cp4", 32.547799, 1e-7 },
    { "logits_cp2", 65.095598, 1e-7 },
    { "logits_bf16", 16.2738995, 1e-7 },
    { "utilization_186", 18600 / 989.4, 1e-9 },
    { "bubble_8", 100 * 7 / 15.0, 1e-9 },
    { "bubble_over_work_8", 7 / 8.0, 1e-9 },
};

static void own_figures(json_t *document)
{
    for (size_t i = 0; i < sizeof owns / sizeof *owns; i++)
        assert_near(number_at(json_named(figures_of(document), owns[i].name), "rankfit"),
                    owns[i].value, owns[i].tolerance, owns[i].name);
}

/* Every figure is worked above; every one that rankfit puts beside a published one and that is
 * further off than rounding says by what. */
static void nothing_is_left_out(json_t *document)
{
    json_t *figure;
    size_t index, unworked = 0;
    json_array_foreach(figures_of(document), index, figure)
    {
        const char *name = json_string_value(json_object_get(figure, "name"));
        json_t *own = json_object_get(figure, "rankfit"), *input;
        bool worked = false, told = json_object_get(figure, "why") != NULL;
        size_t i;
        for (i = 0; i < sizeof hands / sizeof *hands; i++)
            worked = worked || strcmp(hands[i].name, name) == 0;
        unworked += !worked;
        if (!json_object_get(figure, "fact"))
            json_array_foreach(json_object_get(figure, "inputs"), i, input) told =
                told || json_object_get(input, "origin");
        double off = json_number_value(own) / number_at(figure, "as_printed") - 1;
        if (!told && json_is_number(own) && fabs(off) > 0.01)
            print_error("%s: why is it %+.1f %%?\n", name, 100 * off);
        assert_true(told || !json_is_number(own) || fabs(off) <= 0.01);
    }
    assert_int_equal(unworked, 2); /* gathered_budget_...: the budget's items, below */
}

/* The article's sum and the peak, part by part; the parts are all of both. */
static void parts_add_up(json_t *document)
{
    static const char *const whole[] = { "total_1m", "dynamic_256k", "total_256k",
                                         "total_256k_copies" };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        json_t *figure = json_named(figures_of(document), whole[i]), *part;
        double published = 0, own = 0;
        size_t index;
        json_array_foreach(json_object_get(figure, "parts"), index, part)
        {
            published += number_at(part, "published");
            own += number_at(part, "rankfit");
        }
        assert_near(published, number_at(figure, "as_printed"), 2e-5, "GB");
        assert_near(own, number_at(figure, "rankfit"), 1e-9, "GB");
    }
}

/* The same figures come from the budget that the figure's question asks for. */
static void peak_is_the_budgets(json_t *document)
{
    json_t *budget = program_json(
        "budget --json --model glm-5.2 --hardware gb200-nvl72 --gpus 256 --seq 1M --global-batch 4 "
        "--set tp=1 --set pp=1 --set cp=64 --set ep=64 --set etp=1 --set fsdp=1 --set e_fsdp=4 "
        "--set sharding=fsdp --set grad_dtype=fp32 --set recompute=full --set loss=linear_ce "
        "--set moe=plain --set context=allgather_kv",
        0);
    json_t *items = json_at(budget, "ranks.0.items");
    double gathered = number_at(json_named(items, "gathered_weights"), "max_bytes") +
                      number_at(json_named(items, "gathered_gradients"), "max_bytes");
    assert_near(number_at(json_named(figures_of(document), "total_1m"), "rankfit"),
                number_at(budget, "ranks.0.peak_bytes") / 1e9, 1e-12, "GB");
    assert_near(number_at(json_named(figures_of(document), "gathered_budget_1m"), "rankfit"),
                gathered / 1e9, 1e-12, "GB");
    json_decref(budget);
}

/* Asked once. */
static void figures_that_ship(void **state)
{
    (void)state;
    json_t *document = program_json("validate figures --json", 0);
    figures_are_the_articles(document);
    own_figures(document);
    nothing_is_left_out(document);
    parts_add_up(document);
    peak_is_the_budgets(document);
    json_decref(document);
}

static const struct told tolds[] = {
    { "text", 0, "\"$RANKFIT\" validate figures.yaml" },
    { "wrong", 1, "\"$RANKFIT\" validate figures_wrong.yaml" },
    { "unknown_set", 2, "\"$RANKFIT\" validate figrues" },
    { "malformed", 2, "\"$RANKFIT\" validate malformed.yaml" },
    { "not_a_set", 2, "\"$RANKFIT\" validate unknown_keys.yaml" },
    { "schema", 2, "\"$RANKFIT\" validate figures_schema.yaml" },
    { "empty", 2, "\"$RANKFIT\" validate figures_empty.yaml" },
    { "rules", 2, "\"$RANKFIT\" validate figures_rules.yaml" },
    { "inputs", 2, "\"$RANKFIT\" validate figures_inputs.yaml" },
    { "questions", 2, "\"$RANKFIT\" validate figures_questions.yaml" },
    { "facts", 2, "\"$RANKFIT\" validate figures_facts.yaml" },
    { "explain", 0, "\"$RANKFIT\" explain tokens_to_hide_behind" },
};

/* A document is whole or not there: nothing on standard output, no file, when the file is faulty.
 */
static void faulty_files_give_no_document(void **state)
{
    (void)state;
    struct program_result result;
    program_run("\"$RANKFIT\" validate --json figures_rules.yaml -o $TMP/out.json 2>/dev/null; "
                "echo $?; ls -A $TMP",
                &result);
    assert_string_equal(result.out, "2\n");
    program_done(&result);
}

int main(void)
{
    enum { TOLD_COUNT = sizeof tolds / sizeof *tolds, OTHERS = 2 };
    struct CMUnitTest tests[TOLD_COUNT + OTHERS] = {
        cmocka_unit_test(figures_that_ship),
        cmocka_unit_test(faulty_files_give_no_document),
    };
    told_tests(tolds, TOLD_COUNT, tests + OTHERS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
