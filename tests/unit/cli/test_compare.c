/* Comparisons: a measurement made from the budget itself is within tolerance; each thing that is
 * off is found, named and judged. */
#include "base/hardware/hardware.h"
#include "planner/compare/compare.h"
#include "tests/support/golden.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, STEPS = 3, LAYERS = 4 };

struct fixture {
    struct prediction prediction;
    struct measurement measurement;
    struct measured_rank ranks[RANKS];
    struct routed_rows routed[RANKS][LAYERS];
    double seconds[STEPS], loss[STEPS];
};

/* tiny-moe on four host ranks, experts over all of them. */
static void make_plan(struct plan *plan)
{
    struct diag_list list = { 0 };
    assert_int_equal(model_load("tiny-moe", &plan->model, &list), 0);
    assert_int_equal(hardware_load("host", &plan->hardware, &list), 0);
    plan->gpus = RANKS;
    plan->seq_tokens = 256;
    plan->global_batch = RANKS;
    plan->routing_quantile = 0.99;
    memcpy(plan->engine, "rankfit", sizeof "rankfit");
    plan->choices.primitives = primitives_default();
    plan->choices.layout = (struct layout){
        .tp = 1,
        .pp = 1,
        .vpp = 1,
        .cp = 1,
        .ep = RANKS,
        .etp = 1,
        .fsdp = RANKS,
        .d_rep = 1,
        .e_fsdp = 1,
        .e_rep = 1,
        .micro_batch = 1,
        .micro_batches = 1,
        .stage_layers = { LAYERS },
    };
    assert_int_equal(plan_seal(plan, &(struct diag_list){ 0 }), 0);
}

/* What a run would measure whose every tensor is as predicted, with balanced rows. */
static void measure_as_predicted(struct fixture *f)
{
    uint64_t rows = f->prediction.plan.seq_tokens * 2; /* top_k 2 */
    for (int r = 0; r < RANKS; r++) {
        const struct rank_budget *budget = prediction_rank(&f->prediction, r);
        struct measured_rank *rank = &f->ranks[r];
        *rank = (struct measured_rank){ .rank = r,
                                        .arena_live_bytes = budget->arena_bytes,
                                        .arena_extent_bytes = budget->arena_bytes,
                                        .routed_count = LAYERS,
                                        .routed = f->routed[r],
                                        .steps = STEPS,
                                        .step_seconds = f->seconds,
                                        .loss = f->loss };
        memcpy(rank->item_bytes, budget->item_bytes, sizeof rank->item_bytes);
        memcpy(rank->item_max_bytes, budget->item_max_bytes, sizeof rank->item_max_bytes);
        for (int layer = 0; layer < LAYERS; layer++)
            f->routed[r][layer] = (struct routed_rows){ layer, 0, rows, rows, 0, NULL };
    }
    f->seconds[0] = 5;
    f->seconds[1] = 1;
    f->seconds[2] = 2;
    f->measurement = (struct measurement){
        .backend = "host", .steps = STEPS, .rank_count = RANKS, .ranks = f->ranks
    };
    memcpy(f->measurement.plan_digest, f->prediction.plan.digest,
           sizeof f->measurement.plan_digest);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    make_plan(&f->prediction.plan);
    assert_int_equal(prediction_compute(&f->prediction), 0);
    measure_as_predicted(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    prediction_done(&f->prediction);
    free(f);
    return 0;
}

static void compare(struct fixture *f, struct comparison *ret)
{
    struct diag_list list = { 0 };
    struct tolerances tolerances = tolerances_default();
    assert_int_equal(comparison_compute(&f->prediction, &f->measurement, &tolerances, ret, &list),
                     0);
}

static void what_is_as_predicted_is_within(void **state)
{
    struct comparison comparison;
    compare(*state, &comparison);
    assert_true(comparison.within);
    assert_true(comparison.worst_error == 0);
    assert_string_equal(comparison.cause, "");
    assert_true(comparison.measured_seconds == 2); /* the median without the first */
    comparison_done(&comparison);
}

static void one_item_too_large_is_found(void **state)
{
    struct fixture *f = *state;
    struct comparison comparison;
    uint64_t predicted = f->ranks[2].item_max_bytes[ITEM_CHECKPOINTS];
    f->ranks[2].item_max_bytes[ITEM_CHECKPOINTS] = predicted * 5 / 4;
    compare(f, &comparison);
    assert_false(comparison.within);
    assert_int_equal(comparison.worst_rank, 2);
    assert_int_equal(comparison.worst_item, ITEM_CHECKPOINTS);
    /* (p - 1.25 p) / 1.25 p */
    assert_true(comparison.worst_error < -0.199 && comparison.worst_error > -0.201);
    assert_golden("cause of an item too large", comparison.cause);
    comparison_done(&comparison);
}

static void an_arena_off_by_three_percent_is_found(void **state)
{
    struct fixture *f = *state;
    struct comparison comparison;
    f->ranks[1].arena_live_bytes = f->ranks[1].arena_live_bytes * 103 / 100;
    compare(f, &comparison);
    assert_false(comparison.within);
    assert_int_equal(comparison.worst_item, WORST_ARENA);
    assert_int_equal(comparison.worst_rank, 1);
    comparison_done(&comparison);
}

/* A device's figure that is too large: the largest of what it holds beside live tensors is named.
 */
static void what_the_device_holds_is_named(void **state)
{
    struct fixture *f = *state;
    static const struct {
        uint64_t room, extent, device; /* in eighths of what is live */
        const char *cause;
    } cases[] = { { 16, 17, 18, "room" },
                  { 9, 16, 17, "packing" },
                  { 0, 16, 17, "packing" },
                  { 9, 10, 16, "library" } };
    (void)snprintf(f->measurement.backend, sizeof f->measurement.backend, "cuda");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct comparison comparison;
        struct measured_rank *rank = &f->ranks[3];
        uint64_t eighth = rank->arena_live_bytes / 8;
        for (int r = 0; r < RANKS; r++)
            f->ranks[r].device_bytes = prediction_rank(&f->prediction, r)->peak_bytes;
        rank->arena_room_bytes = cases[i].room * eighth;
        rank->arena_extent_bytes = cases[i].extent * eighth;
        rank->device_bytes = cases[i].device * eighth;
        compare(f, &comparison);
        assert_false(comparison.within);
        assert_int_equal(comparison.worst_item, WORST_DEVICE);
        assert_int_equal(strncmp(comparison.cause, cases[i].cause, strlen(cases[i].cause)), 0);
        comparison_done(&comparison);
    }
}

/* Items under 1 % of the peak are shown, not judged. */
static void small_items_are_not_judged(void **state)
{
    struct fixture *f = *state;
    struct comparison comparison;
    uint64_t peak = f->ranks[0].arena_live_bytes;
    assert_true(f->ranks[0].item_max_bytes[ITEM_INPUTS] < peak / 200);
    f->ranks[0].item_max_bytes[ITEM_INPUTS] *= 2;
    compare(f, &comparison);
    assert_true(comparison.within);
    assert_false(comparison.ranks[0].items[ITEM_INPUTS].judged);
    comparison_done(&comparison);
}

/* Twice the rows: judged at them, the plan's own beside; the cause is told. */
static void rows_are_taken_from_the_measurement(void **state)
{
    struct fixture *f = *state;
    struct comparison comparison;
    for (int layer = 0; layer < LAYERS; layer++)
        f->routed[3][layer].rows_received *= 2;
    compare(f, &comparison);
    const struct figure *figure = &comparison.ranks[3].items[ITEM_EXPERT_WORKING];
    assert_true(figure->predicted_bytes > figure->planned_bytes);
    assert_int_equal(figure->planned_bytes, f->ranks[3].item_max_bytes[ITEM_EXPERT_WORKING]);
    assert_int_equal(comparison.ranks[3].measured_rows, 2 * comparison.ranks[3].planned_rows);
    assert_false(comparison.within); /* the measurement still says what fewer rows would hold */
    comparison_done(&comparison);
}

/* A run that received four times the planned rows needs the bytes of these rows, and yet more than
 * the upper bound that was printed before it: that is a comparison that fails. */
static void a_passed_bound_fails(void **state)
{
    struct fixture *f = *state;
    struct comparison comparison;
    compare(f, &comparison);
    assert_true(comparison.within && !comparison.passed);
    comparison_done(&comparison);
    for (int layer = 0; layer < LAYERS; layer++)
        f->routed[1][layer].rows_received *= 4;
    struct budget *budget = calloc(1, sizeof *budget);
    assert_non_null(budget);
    predictor_choose(f->prediction.predictor, &f->prediction.plan.choices, &f->ranks[1]);
    budget_compute(f->prediction.predictor, budget);
    predictor_choose(f->prediction.predictor, &f->prediction.plan.choices, NULL);
    f->ranks[1].arena_live_bytes = budget->groups[0].arena_bytes;
    memcpy(f->ranks[1].item_max_bytes, budget->groups[0].item_max_bytes,
           sizeof budget->groups[0].item_max_bytes);
    free(budget);
    compare(f, &comparison);
    assert_true(comparison.ranks[1].arena.within);
    assert_true(comparison.ranks[1].passed && !comparison.ranks[0].passed);
    assert_true(comparison.passed && !comparison.within);
    comparison_done(&comparison);
}

static void time_is_judged_on_demand(void **state)
{
    struct fixture *f = *state;
    struct comparison comparison;
    struct diag_list list = { 0 };
    struct tolerances tolerances = tolerances_default();
    tolerances.time = 0.1;
    for (int i = 0; i < STEPS; i++)
        f->seconds[i] = f->prediction.time.seconds * 1.05;
    assert_int_equal(
        comparison_compute(&f->prediction, &f->measurement, &tolerances, &comparison, &list), 0);
    assert_true(comparison.within);
    comparison_done(&comparison);
    for (int i = 0; i < STEPS; i++)
        f->seconds[i] = f->prediction.time.seconds * 1.25;
    assert_int_equal(
        comparison_compute(&f->prediction, &f->measurement, &tolerances, &comparison, &list), 0);
    assert_false(comparison.within);
    comparison_done(&comparison);
}

static void another_plan_is_refused(void **state)
{
    struct fixture *f = *state;
    struct comparison comparison;
    struct diag_list list = { 0 };
    struct tolerances tolerances = tolerances_default();
    f->measurement.plan_digest[0] ^= 1;
    assert_int_equal(
        comparison_compute(&f->prediction, &f->measurement, &tolerances, &comparison, &list), -1);
    assert_int_equal(list.errors, 1);
    f->measurement.plan_digest[0] ^= 1;
    f->ranks[0].rank = RANKS;
    assert_int_equal(
        comparison_compute(&f->prediction, &f->measurement, &tolerances, &comparison, &list), -1);
}

static void document_has_the_contract_keys(void **state)
{
    struct comparison comparison;
    compare(*state, &comparison);
    struct json *document = comparison_to_json(&comparison);
    assert_string_equal(json_string_value(json_object_get(json_view(document), "schema")),
                        "rankfit.comparison/1");
    json_t *rank = json_array_get(json_object_get(json_view(document), "ranks"), 0);
    json_t *arena = json_object_get(rank, "arena_bytes");
    static const char *const figures[] = { "predicted", "measured", "error" };
    for (size_t i = 0; i < 3; i++)
        assert_true(json_is_number(json_object_get(arena, figures[i])));
    assert_null(json_object_get(rank, "device_bytes"));
    json_t *item = json_array_get(json_object_get(rank, "items"), 0);
    static const char *const keys[] = { "predicted_bytes", "measured_bytes", "error" };
    for (size_t i = 0; i < 3; i++)
        assert_true(json_is_number(json_object_get(item, keys[i])));
    assert_true(json_is_object(json_object_get(json_view(document), "tolerances")));
    assert_true(json_is_object(json_object_get(json_view(document), "worst")));
    assert_string_equal(json_string_value(json_object_get(json_view(document), "verdict")),
                        "within");
    json_free(document);
    comparison_done(&comparison);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_as_predicted_is_within, setup, teardown),
        cmocka_unit_test_setup_teardown(one_item_too_large_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(an_arena_off_by_three_percent_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(what_the_device_holds_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(small_items_are_not_judged, setup, teardown),
        cmocka_unit_test_setup_teardown(rows_are_taken_from_the_measurement, setup, teardown),
        cmocka_unit_test_setup_teardown(a_passed_bound_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(time_is_judged_on_demand, setup, teardown),
        cmocka_unit_test_setup_teardown(another_plan_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(document_has_the_contract_keys, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
