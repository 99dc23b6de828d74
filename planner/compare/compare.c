#include "planner/compare/compare.h"

#include "base/checked.h"
#include "planner/compare/cause.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tolerances tolerances_default(void)
{
    return (struct tolerances){
        .arena = 0.02, .device = 0.03, .item = 0.05, .item_share = 0.01, .time = -1
    };
}

const char *comparison_item_name(int item)
{
    if (item >= 0 && item < ITEM_COUNT)
        return item_infos[item].name;
    return item == WORST_ARENA ? "arena" : item == WORST_DEVICE ? "device" : "step time";
}

static double error_of(double predicted, double measured)
{
    if (measured > 0)
        return (predicted - measured) / measured;
    return predicted > 0 ? NAN : 0;
}

/* Something predicted where nothing was measured is never within. */
static struct figure figure_of(uint64_t predicted, uint64_t planned, uint64_t measured,
                               double tolerance, bool judged)
{
    struct figure ret = { predicted, planned, measured, 0, judged, true };
    ret.error = error_of((double)predicted, (double)measured);
    ret.within = !judged || (!isnan(ret.error) && fabs(ret.error) <= tolerance);
    return ret;
}

static uint64_t most_rows_received(const struct measured_rank *rank)
{
    uint64_t most = 0;
    for (size_t i = 0; i < rank->routed_count; i++)
        if (rank->routed[i].rows_received > most)
            most = rank->routed[i].rows_received;
    return most;
}

/* Only what the arena holds has owners that were measured item by item. */
static void compare_items(const struct rank_budget *judged, const struct rank_budget *planned,
                          const struct measured_rank *measured, const struct tolerances *tolerances,
                          struct compared_rank *ret)
{
    double share = tolerances->item_share * (double)measured->arena_live_bytes;
    for (int i = 0; i < ITEM_COUNT; i++) {
        if (!item_in_arena((enum item)i))
            continue;
        uint64_t predicted = judged->item_max_bytes[i];
        uint64_t seen = measured->item_max_bytes[i];
        bool counts = (double)seen >= share || (double)predicted >= share;
        ret->items[i] = figure_of(predicted, planned->item_max_bytes[i], seen, tolerances->item,
                                  counts && (seen > 0 || predicted > 0));
    }
}

/* The bound as it was printed before the run, at the routing that the plan assumed. */
static void compare_bound(const struct rank_budget *planned, bool on_device,
                          struct compared_rank *ret)
{
    uint64_t doubt = planned->peak_upper_bytes - planned->peak_bytes;
    ret->upper_bytes = on_device ? planned->peak_upper_bytes : add_sat(planned->arena_bytes, doubt);
    uint64_t measured = on_device ? ret->device.measured_bytes : ret->arena.measured_bytes;
    ret->passed = measured > ret->upper_bytes;
}

static void compare_rank(const struct prediction *prediction, const struct measured_rank *measured,
                         const struct tolerances *tolerances, bool on_device, struct budget *budget,
                         struct compared_rank *ret)
{
    predictor_choose(prediction->predictor, &prediction->plan.choices, measured);
    budget_compute(prediction->predictor, budget);
    predictor_choose(prediction->predictor, &prediction->plan.choices, NULL);
    const struct rank_budget *judged = &budget->groups[0]; /* that rank alone */
    const struct rank_budget *planned = prediction_rank(prediction, measured->rank);
    *ret = (struct compared_rank){
        .rank = measured->rank,
        .extent_bytes = measured->arena_extent_bytes,
        .room_bytes = measured->arena_room_bytes,
        .modelled_bytes = measured->modelled_bytes,
        .planned_rows = planned->routed_rows,
        .measured_rows = most_rows_received(measured),
        .arena = figure_of(judged->arena_bytes, planned->arena_bytes, measured->arena_live_bytes,
                           tolerances->arena, !on_device),
        .device = figure_of(judged->peak_bytes, planned->peak_bytes, measured->device_bytes,
                            tolerances->device, on_device),
    };
    compare_items(judged, planned, measured, tolerances, ret);
    compare_bound(planned, on_device, ret);
}

static void consider(struct comparison *comparison, const struct figure *figure, int rank, int item)
{
    if (!figure->judged)
        return;
    comparison->within = comparison->within && figure->within;
    double size = isnan(figure->error) ? INFINITY : fabs(figure->error);
    double worst = isnan(comparison->worst_error) ? INFINITY : fabs(comparison->worst_error);
    if (comparison->worst_item >= 0 && size <= worst)
        return;
    comparison->worst_rank = rank;
    comparison->worst_item = item;
    comparison->worst_error = figure->error;
}

static void find_worst(struct comparison *comparison)
{
    comparison->worst_item = -1;
    comparison->within = true;
    for (size_t i = 0; i < comparison->rank_count; i++) {
        const struct compared_rank *rank = &comparison->ranks[i];
        consider(comparison, &rank->arena, rank->rank, WORST_ARENA);
        consider(comparison, &rank->device, rank->rank, WORST_DEVICE);
        for (int item = 0; item < ITEM_COUNT; item++)
            consider(comparison, &rank->items[item], rank->rank, item);
    }
    for (size_t i = 0; i < comparison->rank_count; i++)
        comparison->passed |= comparison->ranks[i].passed;
    comparison->within = comparison->within && !comparison->passed;
    double time_tolerance = comparison->tolerances.time;
    if (time_tolerance >= 0 && !(fabs(comparison->time_error) <= time_tolerance))
        comparison->within = false;
}

static int ascending(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The median over the steps of the slowest rank's time; the first step warms up and is left out
 * where there are others. */
static double median_step_seconds(const struct measurement *measurement)
{
    size_t steps = SIZE_MAX;
    for (size_t i = 0; i < measurement->rank_count; i++)
        if (measurement->ranks[i].steps < steps)
            steps = measurement->ranks[i].steps;
    double *seconds = steps == SIZE_MAX || steps == 0 ? NULL : calloc(steps, sizeof *seconds);
    if (!seconds)
        return 0;
    for (size_t i = 0; i < measurement->rank_count; i++)
        for (size_t step = 0; step < steps; step++)
            seconds[step] = fmax(seconds[step], measurement->ranks[i].step_seconds[step]);
    size_t first = steps > 1 ? 1 : 0;
    qsort(seconds + first, steps - first, sizeof *seconds, ascending);
    double ret = seconds[first + (steps - first) / 2];
    free(seconds);
    return ret;
}

static int check_match(const struct prediction *prediction, const struct measurement *measurement,
                       struct diag_list *reterr)
{
    const struct plan *plan = &prediction->plan;
    if (strcmp(plan->digest, measurement->plan_digest) != 0) {
        diag_error(reterr, (struct pos){ 0 },
                   "the measurement is of another plan: digest %s, the plan has %s",
                   measurement->plan_digest, plan->digest);
        return diag_hint(reterr, "run this plan: rankfit run PLAN -o MEASUREMENT");
    }
    if (measurement->rank_count == 0 || measurement->rank_count > (size_t)plan->gpus)
        return diag_error(reterr, (struct pos){ 0 },
                          "the measurement has %zu ranks, the plan a world of %d",
                          measurement->rank_count, plan->gpus);
    if (measurement->rehearsed_world > 0 && measurement->rehearsed_world != plan->gpus)
        return diag_error(reterr, (struct pos){ 0 },
                          "the rehearsal is of a world of %d, the plan has %d",
                          measurement->rehearsed_world, plan->gpus);
    for (size_t i = 0; i < measurement->rank_count; i++)
        if (measurement->ranks[i].rank < 0 || measurement->ranks[i].rank >= plan->gpus)
            return diag_error(reterr, (struct pos){ 0 },
                              "the measurement names rank %d in a world of %d",
                              measurement->ranks[i].rank, plan->gpus);
    return 0;
}

static void compare_time(const struct prediction *prediction, const struct measurement *measurement,
                         struct comparison *ret)
{
    ret->predicted_seconds = prediction->time.seconds;
    ret->measured_seconds = median_step_seconds(measurement);
    ret->time_error = error_of(ret->predicted_seconds, ret->measured_seconds);
}

int comparison_compute(const struct prediction *prediction, const struct measurement *measurement,
                       const struct tolerances *tolerances, struct comparison *ret,
                       struct diag_list *reterr)
{
    *ret = (struct comparison){ .tolerances = *tolerances };
    if (check_match(prediction, measurement, reterr) != 0)
        return -1;
    struct budget *budget = malloc(sizeof *budget);
    ret->ranks = calloc(measurement->rank_count, sizeof *ret->ranks);
    if (!budget || !ret->ranks) {
        free(budget);
        comparison_done(ret);
        return diag_no_memory(reterr);
    }
    ret->rank_count = measurement->rank_count;
    ret->on_device = strcmp(measurement->backend, "host") != 0;
    ret->traced = measurement->traced;
    ret->rehearsed_world = measurement->rehearsed_world;
    for (size_t i = 0; i < ret->rank_count; i++)
        compare_rank(prediction, &measurement->ranks[i], tolerances, ret->on_device, budget,
                     &ret->ranks[i]);
    free(budget);
    compare_time(prediction, measurement, ret);
    find_worst(ret);
    comparison_cause(ret, ret->cause, sizeof ret->cause);
    return 0;
}

void comparison_done(struct comparison *comparison)
{
    free(comparison->ranks);
    *comparison = (struct comparison){ 0 };
}
