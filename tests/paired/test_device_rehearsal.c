/* Rehearsals on H200s as they are stored in tests/data/measured/rehearsals: the rehearsed rank
 * against the same rank of the run, where there was one, and against today's prediction. A row is
 * {date, command, plan, measurement (of the run), rehearsals: [measurement, ...]}. */
#include "planner/compare/compare.h"
#include "tests/paired/stored.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LEAST_ROWS = 55 };

struct row {
    const char *name;
    struct prediction prediction;
    struct measurement run; /* no ranks: the world was larger than the machine */
};

static const struct measured_rank *rank_of(const struct measurement *m, int rank)
{
    for (size_t i = 0; i < m->rank_count; i++)
        if (m->ranks[i].rank == rank)
            return &m->ranks[i];
    fail_msg("no rank %d", rank);
    return NULL;
}

static const struct measured_rank *only_rank(const struct measurement *m)
{
    if (m->rank_count == 1 && m->ranks)
        return m->ranks;
    fail_msg("a rehearsal of %zu ranks", m->rank_count);
    abort();
}

static void check_memory(const char *name, const struct measured_rank *run,
                         const struct measured_rank *rehearsed)
{
    assert_int_equal(run->arena_live_bytes, rehearsed->arena_live_bytes);
    assert_int_equal(run->arena_extent_bytes, rehearsed->arena_extent_bytes);
    assert_string_equal(run->peak_phase, rehearsed->peak_phase);
    assert_int_equal(run->routed_count, rehearsed->routed_count);
    for (size_t i = 0; i < run->routed_count; i++)
        assert_int_equal(run->routed[i].rows_received, rehearsed->routed[i].rows_received);
    for (int i = 0; i < ITEM_COUNT; i++)
        if (item_in_arena((enum item)i) && (run->item_bytes[i] != rehearsed->item_bytes[i] ||
                                            run->item_max_bytes[i] != rehearsed->item_max_bytes[i]))
            fail_msg("%s: rank %d: %s differs", name, run->rank, item_infos[i].name);
}

static bool overlaps(const struct primitives *p)
{
    bool sharded = p->sharding == SHARDING_FSDP;
    return p->moe == MOE_CHUNKED || (sharded && (p->prefetch_units > 0 || p->comm_streams > 1));
}

/* Of the last step, which the phases are of: all of it, or what is left without the transfers. */
static double seconds_of(const struct measured_rank *rank, bool all)
{
    double step = rank->step_seconds[rank->steps - 1];
    return all ? step : step - rank->phase_seconds[PHASE_TIME_COMMUNICATION];
}

/* A run goes at the pace of its slowest GPU, which the others wait for in the step's exchanges; a
 * rehearsed rank waits for nobody. So the slowest of the rehearsed ranks is held against the
 * slowest of the run. Where nothing overlaps that is what they compute, else whole steps. */
static void check_time(const struct row *row, const struct measurement *rehearsals, size_t count)
{
    bool mixed = overlaps(&row->prediction.plan.choices.primitives);
    double wanted = 0, got = 0, bound = mixed ? 0.08 : 0.03;
    for (size_t i = 0; i < count; i++) {
        const struct measured_rank *rehearsed = only_rank(&rehearsals[i]);
        const struct measured_rank *run = rank_of(&row->run, rehearsed->rank);
        double one = seconds_of(rehearsed, mixed) / seconds_of(run, mixed) - 1;
        wanted = fmax(wanted, seconds_of(run, mixed));
        got = fmax(got, seconds_of(rehearsed, mixed));
        if (fabs(one) > 0.08)
            fail_msg("%s: rank %d: off by %.1f %%", row->name, run->rank, 100 * one);
    }
    printf("  %-18s %s  run %.4f s, rehearsed %.4f s (%+.1f %%)\n", row->name,
           mixed ? "step   " : "compute", wanted, got, 100 * (got / wanted - 1));
    assert_int_equal(count, row->run.rank_count);
    if (fabs(got / wanted - 1) > bound)
        fail_msg("%s: %.4f s rehearsed, %.4f s in the run", row->name, got, wanted);
}

/* As for runs: the largest of 1 % of the figure, 3 % of what is not static, and 64 MiB. */
static void check_prediction(const struct row *row, const struct measurement *rehearsal)
{
    const struct tolerances tolerances = tolerances_default();
    struct comparison comparison;
    struct diag_list errors = { 0 };
    assert_int_equal(
        comparison_compute(&row->prediction, rehearsal, &tolerances, &comparison, &errors), 0);
    const struct compared_rank *rank = &comparison.ranks[0];
    double device = (double)rank->device.measured_bytes;
    double off = (double)rank->device.predicted_bytes - device;
    const struct rank_budget *budget = prediction_rank(&row->prediction, rank->rank);
    double moving = device - (double)budget->category_bytes[CATEGORY_STATIC];
    double arena = (double)rank->arena.predicted_bytes - (double)rank->arena.measured_bytes;

    printf("  %-20s rank %d  device %8.3f GB, of it modelled %.3f GB, error %+.1f MiB, arena %+.3f "
           "%%\n",
           row->name, rank->rank, device / 1e9, (double)rank->modelled_bytes / 1e9, off / 1048576,
           100 * rank->arena.error);
    assert_true(device > 0 && rank->modelled_bytes > 0);
    assert_true(fabs(arena) <= 0.001 * device);
    assert_true(fabs(off) <= fmax(fmax(0.01 * device, 0.03 * moving), 64.0 * 1048576.0));
    comparison_done(&comparison);
}

static void check_rehearsal(const struct row *row, const struct measurement *rehearsal)
{
    assert_int_equal(rehearsal->rehearsed_world, row->prediction.plan.gpus);
    check_prediction(row, rehearsal);
    if (row->run.rank_count > 0)
        check_memory(row->name, rank_of(&row->run, only_rank(rehearsal)->rank),
                     only_rank(rehearsal));
}

static void check_rehearsals(const struct row *row, const json_t *list)
{
    enum { MOST = 8 };
    struct measurement rehearsals[MOST] = { 0 };
    size_t i, count = json_array_size(list);
    const json_t *part;

    assert_in_range(count, 1, MOST);
    json_array_foreach(list, i, part)
    {
        stored_measurement(part, &rehearsals[i]);
        check_rehearsal(row, &rehearsals[i]);
    }
    if (row->run.rank_count > 0)
        check_time(row, rehearsals, count);
    for (i = 0; i < count; i++)
        measurement_done(&rehearsals[i]);
}

static void check_row(const char *name, const json_t *stored, void *context)
{
    static struct row row;
    (void)context;
    memset(&row, 0, sizeof row);
    row.name = name;
    stored_plan(json_object_get(stored, "plan"), &row.prediction.plan);
    assert_int_equal(prediction_compute(&row.prediction), 0);
    if (json_is_object(json_object_get(stored, "measurement")))
        stored_measurement(json_object_get(stored, "measurement"), &row.run);
    check_rehearsals(&row, json_object_get(stored, "rehearsals"));
    measurement_done(&row.run);
    prediction_done(&row.prediction);
}

static void stored_rehearsals(void **state)
{
    (void)state;
    assert_true(stored_each("rehearsals", check_row, NULL) >= LEAST_ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(stored_rehearsals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
