/* Measurement files: round trip and faults. */
#include "base/file.h"
#include "base/plan/measurement.h"
#include "tests/support/directory.h"
#include "tests/support/golden.h"
#include "tests/unit/plan/fixture.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t chunks[] = { 123, 177, 0 };
/* The second as files of plain schedules have it. */
static struct routed_rows routed[] = { { 0, 0, 256, 300, 3, chunks }, { 3, 1, 256, 212, 0, NULL } };
static double seconds[] = { 0.25, 0.125 };
static double losses[] = { 5.5625, 5.5 };

static void fill_rank(struct measured_rank *ret, int rank)
{
    *ret = (struct measured_rank){ .rank = rank,
                                   .arena_live_bytes = 1000 + (uint64_t)rank,
                                   .arena_extent_bytes = 1280,
                                   .arena_room_bytes = rank ? 1270 : 0,
                                   .rss_bytes = UINT64_C(5000000000),
                                   .peak_phase = "backward micro-batch 0 layer 5",
                                   .routed_count = 2,
                                   .routed = routed,
                                   .steps = 2,
                                   .step_seconds = seconds,
                                   .loss = losses };
    ret->item_bytes[ITEM_WEIGHTS] = 600;
    ret->item_max_bytes[ITEM_WEIGHTS] = 640;
    ret->item_max_bytes[ITEM_LOSS_WORKING] = 77;
    for (int i = 0; i < PHASE_TIME_COUNT; i++)
        ret->phase_seconds[i] = 0.5 + i;
}

static struct json *sample(void)
{
    struct measured_rank ranks[2];
    struct measurement m = { .plan_digest = "0123456789abcdef",
                             .backend = "host",
                             .device = "a processor",
                             .versions = "a BLAS, an MPI",
                             .steps = 2,
                             .rank_count = 2,
                             .ranks = ranks };
    fill_rank(&ranks[0], 0);
    fill_rank(&ranks[1], 1);
    return measurement_to_json(&m);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct measurement got;
    struct json *document = sample();

    assert_int_equal(file_write_document("m.yaml", document, &errors), 0);
    json_free(document);
    assert_int_equal(measurement_load("m.yaml", &got, &errors), 0);
    assert_string_equal(got.plan_digest, "0123456789abcdef");
    assert_string_equal(got.backend, "host");
    assert_string_equal(got.versions, "a BLAS, an MPI");
    assert_int_equal(got.rank_count, 2);
    const struct measured_rank *rank = &got.ranks[1];
    assert_int_equal(rank->rank, 1);
    assert_int_equal(rank->arena_live_bytes, 1001);
    assert_int_equal(rank->arena_room_bytes, 1270);
    assert_int_equal(got.ranks[0].arena_room_bytes, 0); /* as files of before have it */
    assert_int_equal(got.rehearsed_world, 0);
    assert_int_equal(rank->rss_bytes, UINT64_C(5000000000));
    assert_string_equal(rank->peak_phase, "backward micro-batch 0 layer 5");
    assert_int_equal(rank->item_bytes[ITEM_WEIGHTS], 600);
    assert_int_equal(rank->item_max_bytes[ITEM_WEIGHTS], 640);
    assert_int_equal(rank->item_max_bytes[ITEM_LOSS_WORKING], 77);
    assert_int_equal(rank->item_max_bytes[ITEM_GRADIENTS], 0);
    assert_int_equal(rank->routed_count, 2);
    assert_int_equal(rank->routed[1].layer, 3);
    assert_int_equal(rank->routed[1].micro_batch, 1);
    assert_int_equal(rank->routed[1].rows_received, 212);
    assert_int_equal(rank->routed[1].chunk_count, 0);
    assert_int_equal(rank->routed[0].chunk_count, 3);
    assert_int_equal(rank->routed[0].chunk_rows_received[1], 177);
    assert_int_equal(rank->routed[0].chunk_rows_received[2], 0);
    assert_int_equal(rank->steps, 2);
    assert_true(rank->step_seconds[1] == 0.125);
    assert_true(rank->loss[0] == 5.5625);
    assert_true(rank->phase_seconds[PHASE_TIME_LOSS] == 1.5);
    measurement_done(&got);
}

/* JSON has no NaN: a loss that left the numbers is null, and NaN again when read. */
static void test_rehearsal(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct measured_rank rank;
    struct measurement got, m = { .plan_digest = "0123456789abcdef",
                                  .backend = "cuda",
                                  .steps = 2,
                                  .rehearsed_world = 32,
                                  .rank_count = 1,
                                  .ranks = &rank };

    fill_rank(&rank, 5);
    rank.device_bytes = 9000;
    rank.modelled_bytes = 700;
    struct json *document = measurement_to_json(&m);
    assert_int_equal(file_write_document("m.json", document, &errors), 0);
    json_free(document);
    assert_int_equal(measurement_load("m.json", &got, &errors), 0);
    assert_int_equal(got.rehearsed_world, 32);
    assert_int_equal(got.ranks[0].rank, 5);
    assert_int_equal(got.ranks[0].modelled_bytes, 700);
    measurement_done(&got);
}

static void test_nan_loss(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct measurement got;
    double lost[] = { 5.5, NAN };
    struct measured_rank rank;
    struct measurement m = { .steps = 2, .rank_count = 1, .ranks = &rank };

    fill_rank(&rank, 0);
    rank.loss = lost;
    struct json *document = measurement_to_json(&m);
    assert_int_equal(file_write_document("m.json", document, &errors), 0);
    json_free(document);
    assert_int_equal(measurement_load("m.json", &got, &errors), 0);
    assert_true(got.ranks[0].loss[0] == 5.5);
    assert_true(isnan(got.ranks[0].loss[1]));
    measurement_done(&got);
}

static const struct {
    const char *name, *from, *to;
} faults[] = {
    { "schema", "rankfit.measurement/1", "rankfit.plan/1" },
    { "item", "\"weights\"", "\"wieghts\"" },
    { "negative", "\"arena_live_bytes\": 1001", "\"arena_live_bytes\": -1" },
    { "missing", "\"rss_bytes\"", "\"rss\"" },
    { "losses", "5.5625,", "" },
    { "text", "0.125", "\"fast\"" },
    { "chunks", "123", "1.5" },
};

static void test_faults(void **state)
{
    (void)state;
    struct json *document = sample();
    char *good = json_dumps(json_view(document), JSON_INDENT(2));
    FILE *out = golden_begin();

    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct diag_list errors = { 0 };
        struct measurement got;
        fixture_write_changed("m.json", good, faults[i].from, faults[i].to);
        assert_int_equal(measurement_load("m.json", &got, &errors), -1);
        (void)fprintf(out, "# %s\n", faults[i].name);
        diag_list_print(out, &errors);
    }
    assert_golden_end("one fault each");
    free(good);
    json_free(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_round_trip),
        IN_DIRECTORY(test_rehearsal),
        IN_DIRECTORY(test_nan_loss),
        IN_DIRECTORY(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
