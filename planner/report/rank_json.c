#include "planner/report/rank_json.h"

#include "base/checked.h"
#include "base/item.h"
#include "planner/predict/range.h"
#include "planner/report/json.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS_TEXT_MAX = 4096 };

static json_t *or_null(int value)
{
    return value < 0 ? json_null() : json_integer(value);
}

json_t *json_phase(const struct phase *phase)
{
    json_t *ret =
        json_pack("{s:s, s:i}", "kind", phase_kind_names[phase->kind], "stage", phase->stage);
    json_object_set_new(ret, "micro_batch", or_null(phase->micro_batch));
    json_object_set_new(ret, "layer", or_null(phase->layer));
    return ret;
}

static json_t *items_json(const struct prediction *prediction, const struct rank_budget *rank)
{
    json_t *ret = json_array();
    for (int i = 0; i < ITEM_COUNT; i++) {
        enum item item = (enum item)i;
        char formula[FORMULA_MAX] = "";
        if (rank->item_bytes[i] == 0 && rank->item_max_bytes[i] == 0)
            continue;
        budget_formula(prediction->predictor, rank, item, formula, sizeof formula);
        json_t *entry = json_object();
        json_object_set_new(entry, "name", json_string(item_infos[i].name));
        json_object_set_new(entry, "category", json_string(category_names[item_infos[i].category]));
        json_object_set_new(entry, "basis",
                            json_string(basis_names[budget_basis(&prediction->input, item)]));
        json_object_set_new(entry, "bytes", json_bytes(rank->item_bytes[i]));
        json_object_set_new(entry, "max_bytes", json_bytes(rank->item_max_bytes[i]));
        json_object_set_new(entry, "formula", json_string(formula));
        json_array_append_new(ret, entry);
    }
    return ret;
}

/* Terms of a budget that this rank has none of: looked at, not forgotten. */
static json_t *zero_items_json(const struct rank_budget *rank)
{
    json_t *ret = json_array();
    for (int i = 0; i < ITEM_COUNT; i++)
        if (rank->item_bytes[i] == 0 && rank->item_max_bytes[i] == 0)
            json_array_append_new(ret, json_string(item_infos[i].name));
    return ret;
}

static json_t *peaks_json(const struct prediction *prediction, const struct rank_budget *budget,
                          int rank)
{
    json_t *ret = json_object();
    struct rank_peaks peaks;
    char key[40];
    budget_peaks(prediction->predictor, budget, rank, &peaks);
    for (int i = 0; i < MOMENT_COUNT; i++) {
        if (peaks.bytes[i] == 0)
            continue;
        (void)snprintf(key, sizeof key, "%s_bytes", moment_names[i]);
        json_object_set_new(ret, key, json_bytes(peaks.bytes[i]));
    }
    for (int i = MOMENT_SAVE; i <= MOMENT_RESUME; i++) {
        (void)snprintf(key, sizeof key, "%s_host_bytes", moment_names[i]);
        json_object_set_new(ret, key, json_bytes(peaks.host_bytes[i]));
    }
    json_object_set_new(ret, "binding", json_string(moment_names[peaks.binding]));
    return ret;
}

static json_t *rank_json(const struct prediction *prediction, const struct rank_budget *budget,
                         int rank, const char *ranks)
{
    json_t *ret = json_object();
    json_object_set_new(ret, "rank", json_integer(rank));
    json_object_set_new(ret, "ranks", json_string(ranks));
    json_object_set_new(ret, "stage", json_integer(budget->stage));
    for (int i = 0; i < CATEGORY_COUNT; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "%s_bytes", category_names[i]);
        json_object_set_new(ret, key, json_bytes(budget->category_bytes[i]));
    }
    json_object_set_new(ret, "arena_bytes", json_bytes(budget->arena_bytes));
    json_object_set_new(ret, "peak_bytes", json_bytes(budget->peak_bytes));
    json_object_set_new(ret, "peak_upper_bytes", json_bytes(budget->peak_upper_bytes));
    json_object_set_new(ret, "peak_phase", json_phase(&budget->peak_phase));
    json_object_set_new(ret, "peaks", peaks_json(prediction, budget, rank));
    json_object_set_new(ret, "host_bytes", json_bytes(budget->host_bytes));
    json_object_set_new(ret, "routed_rows", json_bytes(budget->routed_rows));
    json_object_set_new(ret, "routed_rows_upper", json_bytes(budget->routed_rows_upper));
    json_object_set_new(ret, "items", items_json(prediction, budget));
    json_object_set_new(ret, "zero_items", zero_items_json(budget));
    return ret;
}

json_t *report_ranks_json(const struct prediction *prediction, int rank)
{
    json_t *ret = json_array();
    char ranks[RANKS_TEXT_MAX];
    if (rank >= 0) {
        (void)snprintf(ranks, sizeof ranks, "%d", rank);
        json_array_append_new(
            ret, rank_json(prediction, prediction_rank(prediction, rank), rank, ranks));
        return ret;
    }
    for (int i = 0; i < prediction->budget.count; i++) {
        const struct rank_budget *group = &prediction->budget.groups[i];
        budget_group_ranks(&prediction->input, &prediction->budget, i, ranks, sizeof ranks);
        json_array_append_new(ret, rank_json(prediction, group, group->rank, ranks));
    }
    return ret;
}

json_t *report_phases_json(const struct prediction *prediction, const struct rank_budget *rank)
{
    json_t *ret = json_array();
    struct phase_bytes *phases = calloc(REPORT_MAX_PHASES, sizeof *phases);
    if (!phases)
        return ret;
    size_t count = budget_phases(prediction->predictor, rank->stage, phases, REPORT_MAX_PHASES);
    for (size_t i = 0; i < count && i < REPORT_MAX_PHASES; i++) {
        json_t *entry = json_object();
        json_object_set_new(entry, "phase", json_phase(&phases[i].phase));
        /* What a device reserves for routed rows is there in every phase. */
        uint64_t bytes = add_sat(phases[i].bytes, rank->item_bytes[ITEM_SLACK]);
        json_object_set_new(entry, "bytes", json_bytes(bytes));
        json_array_append_new(ret, entry);
    }
    free(phases);
    return ret;
}

static json_t *time_items_json(const struct budget_input *input, const struct step_time *time)
{
    json_t *ret = json_array();
    for (int i = 0; i < TIME_ITEM_COUNT; i++) {
        enum time_item item = (enum time_item)i;
        char formula[FORMULA_MAX] = "";
        step_time_formula(input, time, item, formula, sizeof formula);
        json_t *entry = json_pack("{s:s}", "name", time_item_names[i]);
        json_object_set_new(entry, "seconds", json_number(time->item_seconds[i]));
        json_object_set_new(entry, "basis", json_string(basis_names[step_time_basis(input, item)]));
        json_object_set_new(entry, "formula", json_string(formula));
        json_array_append_new(ret, entry);
    }
    return ret;
}

static json_t *range_json(const struct time_range *range)
{
    json_t *ret = json_object(), *causes = json_array();
    json_object_set_new(ret, "fastest_seconds", json_number(range->fastest));
    json_object_set_new(ret, "slowest_seconds", json_number(range->slowest));
    for (int i = 0; i < range->count; i++)
        json_array_append_new(causes, json_pack("{s:s, s:o}", "cause", range->causes[i].what,
                                                "seconds", json_number(range->causes[i].seconds)));
    json_object_set_new(ret, "causes", causes);
    return ret;
}

json_t *report_speed_json(const struct step_time *time)
{
    json_t *ret = json_object();
    json_object_set_new(ret, "seconds", json_number(time->seconds));
    json_object_set_new(ret, "model_tflops_per_gpu",
                        json_number(time->model_flops_per_second_per_gpu / 1e12));
    json_object_set_new(ret, "hardware_tflops_per_gpu",
                        json_number(time->hardware_flops_per_second_per_gpu / 1e12));
    json_object_set_new(ret, "mfu", json_number(time->mfu));
    json_object_set_new(ret, "hfu", json_number(time->hfu));
    json_object_set_new(ret, "tokens_per_second_per_gpu",
                        json_number(time->tokens_per_second_per_gpu));
    json_object_set_new(ret, "bubble_fraction", json_number(time->bubble_fraction));
    json_object_set_new(ret, "exposed_communication_seconds",
                        json_number(time->exposed_communication_seconds));
    return ret;
}

json_t *report_step_json(const struct prediction *prediction)
{
    const struct step_time *time = &prediction->time;
    json_t *ret = report_speed_json(time);
    json_object_set_new(ret, "items", time_items_json(&prediction->input, time));
    json_object_set_new(ret, "range", range_json(&prediction->range));
    return ret;
}
