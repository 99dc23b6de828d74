#include "planner/report/rank_json.h"

#include "base/checked.h"
#include "base/item.h"
#include "planner/predict/range.h"
#include "planner/report/json.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS_TEXT_MAX = 4096 };

static void put_or_null(struct json *map, const char *key, int value)
{
    if (value < 0)
        json_put_null(map, key);
    else
        json_put_int(map, key, value);
}

struct json *json_phase(const struct phase *phase)
{
    struct json *ret = json_map();
    json_put_text(ret, "kind", phase_kind_names[phase->kind]);
    json_put_int(ret, "stage", phase->stage);
    put_or_null(ret, "micro_batch", phase->micro_batch);
    put_or_null(ret, "layer", phase->layer);
    return ret;
}

static struct json *items_json(const struct prediction *prediction, const struct rank_budget *rank)
{
    struct json *ret = json_list();
    for (int i = 0; i < ITEM_COUNT; i++) {
        enum item item = (enum item)i;
        char formula[FORMULA_MAX] = "";
        if (rank->item_bytes[i] == 0 && rank->item_max_bytes[i] == 0)
            continue;
        budget_formula(prediction->predictor, rank, item, formula, sizeof formula);
        struct json *entry = json_map();
        json_put_text(entry, "name", item_infos[i].name);
        json_put_text(entry, "category", category_names[item_infos[i].category]);
        json_put_text(entry, "basis", basis_names[budget_basis(&prediction->input, item)]);
        json_put_u64(entry, "bytes", rank->item_bytes[i]);
        json_put_u64(entry, "max_bytes", rank->item_max_bytes[i]);
        json_put_text(entry, "formula", formula);
        json_append(ret, entry);
    }
    return ret;
}

/* Terms of a budget that this rank has none of: looked at, not forgotten. */
static struct json *zero_items_json(const struct rank_budget *rank)
{
    struct json *ret = json_list();
    for (int i = 0; i < ITEM_COUNT; i++)
        if (rank->item_bytes[i] == 0 && rank->item_max_bytes[i] == 0)
            json_append_text(ret, item_infos[i].name);
    return ret;
}

static struct json *peaks_json(const struct prediction *prediction,
                               const struct rank_budget *budget, int rank)
{
    struct json *ret = json_map();
    struct rank_peaks peaks;
    char key[40];
    budget_peaks(prediction->predictor, budget, rank, &peaks);
    for (int i = 0; i < MOMENT_COUNT; i++) {
        if (peaks.bytes[i] == 0)
            continue;
        (void)snprintf(key, sizeof key, "%s_bytes", moment_names[i]);
        json_put_u64(ret, key, peaks.bytes[i]);
    }
    for (int i = MOMENT_SAVE; i <= MOMENT_RESUME; i++) {
        (void)snprintf(key, sizeof key, "%s_host_bytes", moment_names[i]);
        json_put_u64(ret, key, peaks.host_bytes[i]);
    }
    json_put_text(ret, "binding", moment_names[peaks.binding]);
    return ret;
}

static struct json *rank_json(const struct prediction *prediction, const struct rank_budget *budget,
                              int rank, const char *ranks)
{
    struct json *ret = json_map();
    json_put_int(ret, "rank", rank);
    json_put_text(ret, "ranks", ranks);
    json_put_int(ret, "stage", budget->stage);
    for (int i = 0; i < CATEGORY_COUNT; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "%s_bytes", category_names[i]);
        json_put_u64(ret, key, budget->category_bytes[i]);
    }
    json_put_u64(ret, "arena_bytes", budget->arena_bytes);
    json_put_u64(ret, "peak_bytes", budget->peak_bytes);
    json_put_u64(ret, "peak_upper_bytes", budget->peak_upper_bytes);
    json_put(ret, "peak_phase", json_phase(&budget->peak_phase));
    json_put(ret, "peaks", peaks_json(prediction, budget, rank));
    json_put_u64(ret, "host_bytes", budget->host_bytes);
    json_put_u64(ret, "routed_rows", budget->routed_rows);
    json_put_u64(ret, "routed_rows_upper", budget->routed_rows_upper);
    json_put(ret, "items", items_json(prediction, budget));
    json_put(ret, "zero_items", zero_items_json(budget));
    return ret;
}

struct json *report_ranks_json(const struct prediction *prediction, int rank)
{
    struct json *ret = json_list();
    char ranks[RANKS_TEXT_MAX];
    if (rank >= 0) {
        (void)snprintf(ranks, sizeof ranks, "%d", rank);
        json_append(ret, rank_json(prediction, prediction_rank(prediction, rank), rank, ranks));
        return ret;
    }
    for (int i = 0; i < prediction->budget.count; i++) {
        const struct rank_budget *group = &prediction->budget.groups[i];
        budget_group_ranks(&prediction->input, &prediction->budget, i, ranks, sizeof ranks);
        json_append(ret, rank_json(prediction, group, group->rank, ranks));
    }
    return ret;
}

struct json *report_phases_json(const struct prediction *prediction, const struct rank_budget *rank)
{
    struct json *ret = json_list();
    struct phase_bytes *phases = calloc(REPORT_MAX_PHASES, sizeof *phases);
    if (!phases) {
        json_free(ret);
        return NULL;
    }
    size_t count = budget_phases(prediction->predictor, rank->stage, phases, REPORT_MAX_PHASES);
    for (size_t i = 0; i < count && i < REPORT_MAX_PHASES; i++) {
        struct json *entry = json_map();
        json_put(entry, "phase", json_phase(&phases[i].phase));
        /* What a device reserves for routed rows is there in every phase. */
        uint64_t bytes = add_sat(phases[i].bytes, rank->item_bytes[ITEM_SLACK]);
        json_put_u64(entry, "bytes", bytes);
        json_append(ret, entry);
    }
    free(phases);
    return ret;
}

static struct json *time_items_json(const struct budget_input *input, const struct step_time *time)
{
    struct json *ret = json_list();
    for (int i = 0; i < TIME_ITEM_COUNT; i++) {
        enum time_item item = (enum time_item)i;
        char formula[FORMULA_MAX] = "";
        step_time_formula(input, time, item, formula, sizeof formula);
        struct json *entry = json_map();
        json_put_text(entry, "name", time_item_names[i]);
        json_put_number(entry, "seconds", time->item_seconds[i]);
        json_put_text(entry, "basis", basis_names[step_time_basis(input, item)]);
        json_put_text(entry, "formula", formula);
        json_append(ret, entry);
    }
    return ret;
}

static struct json *range_json(const struct time_range *range)
{
    struct json *ret = json_map(), *causes = json_list();
    json_put_number(ret, "fastest_seconds", range->fastest);
    json_put_number(ret, "slowest_seconds", range->slowest);
    for (int i = 0; i < range->count; i++) {
        struct json *cause = json_map();
        json_put_text(cause, "cause", range->causes[i].what);
        json_put_number(cause, "seconds", range->causes[i].seconds);
        json_append(causes, cause);
    }
    json_put(ret, "causes", causes);
    return ret;
}

struct json *report_speed_json(const struct step_time *time)
{
    struct json *ret = json_map();
    json_put_number(ret, "seconds", time->seconds);
    json_put_number(ret, "model_tflops_per_gpu", time->model_flops_per_second_per_gpu / 1e12);
    json_put_number(ret, "hardware_tflops_per_gpu", time->hardware_flops_per_second_per_gpu / 1e12);
    json_put_number(ret, "mfu", time->mfu);
    json_put_number(ret, "hfu", time->hfu);
    json_put_number(ret, "tokens_per_second_per_gpu", time->tokens_per_second_per_gpu);
    json_put_number(ret, "bubble_fraction", time->bubble_fraction);
    json_put_number(ret, "exposed_communication_seconds", time->exposed_communication_seconds);
    return ret;
}

struct json *report_step_json(const struct prediction *prediction)
{
    const struct step_time *time = &prediction->time;
    struct json *ret = report_speed_json(time);
    json_put(ret, "items", time_items_json(&prediction->input, time));
    json_put(ret, "range", range_json(&prediction->range));
    return ret;
}
