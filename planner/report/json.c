#include "planner/report/json.h"

#include "base/item.h"
#include "base/layout/trained.h"
#include "planner/report/assumptions.h"
#include "planner/report/rank_json.h"
#include "planner/report/workload.h"

#include <math.h>
#include <string.h>

json_t *json_bytes(uint64_t bytes)
{
    return json_integer(bytes > INT64_MAX ? INT64_MAX : (json_int_t)bytes);
}

json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *counts_json(const struct model_counts *counts)
{
    json_t *ret = json_object();
    for (int i = 0; i < COMPONENT_COUNT; i++)
        json_object_set_new(ret, component_names[i], json_bytes(counts->by_component[i]));
    return ret;
}

static void add_counts(json_t *object, const struct model_counts *counts)
{
    json_object_set_new(object, "params_total", json_bytes(counts->total));
    json_object_set_new(object, "params_active", json_bytes(counts->active));
    json_object_set_new(object, "params_active_all", json_bytes(counts->active_all));
    json_object_set_new(object, "params_active_core", json_bytes(counts->active_core));
    json_object_set_new(object, "params_trained", json_bytes(counts->trained));
    json_object_set_new(object, "params_by_component", counts_json(counts));
}

json_t *report_model_json(const struct model *model)
{
    struct model_counts counts;
    model_count(model, &counts);
    json_t *ret = json_object();
    json_object_set_new(ret, "name", json_string(model->name));
    add_counts(ret, &counts);
    json_t *facts = model_to_json(model);
    json_object_update_missing(ret, facts);
    json_decref(facts);
    return ret;
}

static json_t *diags_json(const struct diag_list *list)
{
    json_t *ret = json_array();
    for (int i = 0; list && i < list->count; i++)
        if (list->items[i].severity == SEVERITY_WARNING)
            json_array_append_new(ret, json_string(list->items[i].what));
    return ret;
}

json_t *report_nearest_json(const struct answer *answer)
{
    json_t *ret = json_array();
    for (int i = 0; answer && i < answer->nearest_count; i++) {
        const struct nearest *nearest = &answer->nearest[i];
        json_t *entry = json_pack("{s:s}", "change", nearest->change);
        if (nearest->gpus)
            json_object_set_new(entry, "gpus", json_integer(nearest->gpus));
        if (nearest->seq_tokens)
            json_object_set_new(entry, "seq_tokens", json_bytes(nearest->seq_tokens));
        if (nearest->set[0])
            json_object_set_new(entry, "set", json_string(nearest->set));
        json_object_set_new(entry, "peak_bytes", json_bytes(nearest->peak_bytes));
        json_array_append_new(ret, entry);
    }
    return ret;
}

static json_t *binding_json(const struct prediction *prediction, const struct answer *answer)
{
    char text[BINDING_TEXT];
    prediction_binding(prediction, answer->binding, text, sizeof text);
    return json_string(text);
}

static json_t *reasons_json(const struct answer *answer)
{
    json_t *ret = json_array();
    for (int i = 0; answer && i < answer->reason_count; i++)
        json_array_append_new(ret, json_pack("{s:s, s:s}", "choice", answer->reasons[i].choice,
                                             "because", answer->reasons[i].because));
    return ret;
}

static uint64_t metric_bytes(const struct rank_budget *rank, bool reserved)
{
    return rank->arena_bytes + (reserved ? rank->item_bytes[ITEM_SLACK] : 0);
}

static void add_peak(json_t *object, const struct rank_budget *worst)
{
    json_object_set_new(object, "peak_bytes", json_bytes(worst->peak_bytes));
    json_object_set_new(object, "peak_upper_bytes", json_bytes(worst->peak_upper_bytes));
    json_object_set_new(object, "static_bytes", json_bytes(worst->category_bytes[CATEGORY_STATIC]));
    json_object_set_new(object, "peak_rank", json_integer(worst->rank));
    json_object_set_new(object, "peak_phase", json_phase(&worst->peak_phase));
    json_t *metrics = json_object();
    json_object_set_new(metrics, "allocated", json_bytes(metric_bytes(worst, false)));
    json_object_set_new(metrics, "reserved", json_bytes(metric_bytes(worst, true)));
    json_object_set_new(metrics, "device", json_bytes(worst->peak_bytes));
    json_object_set_new(object, "peak_by_metric", metrics);
}

/* Where there are rows to tell of. */
static void add_rows(json_t *object, const struct prediction *prediction)
{
    json_t *rows = report_rows_json(prediction);
    if (rows)
        json_object_set_new(object, "rows", rows);
}

/* "recommended": layout and primitives as the plan file has them, then what is predicted. */
static json_t *recommended_json(const struct prediction *prediction, const struct answer *answer)
{
    const struct plan *plan = &prediction->plan;
    json_t *ret = json_object();
    json_object_set_new(ret, "layout", choices_layout_json(&plan->choices));
    json_object_set_new(ret, "primitives", choices_primitives_json(&plan->choices));
    json_object_set_new(ret, "dispatch_bound_rows", json_bytes(plan->dispatch_bound_rows));
    json_object_set_new(ret, "reasons", reasons_json(answer));
    add_rows(ret, prediction);
    add_peak(ret, prediction_worst(prediction));
    json_object_set_new(ret, "ranks", report_ranks_json(prediction, -1));
    json_object_set_new(ret, "step", report_step_json(prediction));
    return ret;
}

json_t *report_candidate_json(const struct candidate *candidate)
{
    json_t *ret = json_object();
    json_object_set_new(ret, "layout", choices_layout_json(&candidate->choices));
    json_object_set_new(ret, "primitives", choices_primitives_json(&candidate->choices));
    json_object_set_new(ret, "verdict", json_string(verdict_names[candidate->verdict]));
    add_peak(ret, &candidate->worst);
    json_object_set_new(ret, "step", report_speed_json(&candidate->time));
    return ret;
}

static json_t *candidates_json(const struct answer *answer)
{
    json_t *ret = json_array();
    for (int i = 0; i < answer->candidate_count; i++)
        json_array_append_new(ret, report_candidate_json(&answer->candidates[i]));
    return ret;
}

static json_t *searched_json(const struct answer *answer)
{
    json_t *ret = json_object();
    json_object_set_new(ret, "layouts", json_integer(answer->layouts));
    json_object_set_new(ret, "legal", json_integer(answer->legal));
    json_object_set_new(ret, "fitting", json_integer(answer->fitting));
    json_object_set_new(ret, "seconds", json_number(answer->search_seconds));
    bool searched = answer->derived_over_best >= 0;
    json_object_set_new(ret, "derived_over_best",
                        searched ? json_number(answer->derived_over_best) : json_null());
    json_object_set_new(ret, "policy", json_string(answer->policy));
    return ret;
}

json_t *report_model_of(const struct prediction *prediction)
{
    const struct model *model = &prediction->plan.model;
    json_t *ret = json_pack("{s:s, s:s}", "name", model->name, "title", model->title);
    add_counts(ret, &prediction->sizes.counts);
    json_object_set_new(ret, "params_trained",
                        json_bytes(params_trained(model, &prediction->plan.choices.primitives)));
    return ret;
}

json_t *report_hardware_of(const struct prediction *prediction)
{
    const struct plan *plan = &prediction->plan;
    json_t *ret = json_pack("{s:s, s:s, s:i}", "name", plan->hardware.name, "gpu",
                            plan->hardware.gpu, "gpus", plan->gpus);
    json_object_set_new(ret, "memory_bytes", json_bytes(prediction->memory_bytes));
    return ret;
}

/* Moves one part of the plan's own document into another. */
static void take(json_t *to, json_t *plan_document, const char *key)
{
    json_object_set(to, key, json_object_get(plan_document, key));
}

json_t *report_plan_json(const struct prediction *prediction, const struct answer *answer,
                         const struct diag_list *warnings)
{
    const struct plan *plan = &prediction->plan;
    json_t *ret = json_pack("{s:s, s:s}", "schema", "rankfit.plan/1", "plan_digest", plan->digest);
    json_object_set_new(ret, "model", report_model_of(prediction));
    json_object_set_new(ret, "hardware", report_hardware_of(prediction));
    json_t *document = plan_to_json(plan);
    take(ret, document, "workload");
    take(ret, document, "engine");
    json_decref(document);
    json_object_set_new(ret, "verdict", json_string(verdict_names[prediction->verdict]));
    json_object_set_new(ret, "limit_bytes", json_bytes(prediction->limit_bytes));
    json_object_set_new(ret, "warnings", diags_json(warnings));
    json_object_set_new(ret, "assumptions", report_assumptions_json(prediction));
    json_object_set_new(ret, "binding", binding_json(prediction, answer));
    json_object_set_new(ret, "nearest", report_nearest_json(answer));
    json_object_set_new(ret, "recommended", recommended_json(prediction, answer));
    json_object_set_new(ret, "candidates", candidates_json(answer));
    json_object_set_new(ret, "searched", searched_json(answer));
    return ret;
}

json_t *report_plan_file(const struct prediction *prediction, const struct answer *answer)
{
    json_t *ret = plan_to_json(&prediction->plan);
    json_object_set_new(ret, "verdict", json_string(verdict_names[prediction->verdict]));
    json_object_set_new(ret, "limit_bytes", json_bytes(prediction->limit_bytes));
    json_object_set_new(ret, "assumptions", report_assumptions_json(prediction));
    if (answer) {
        json_object_set_new(ret, "binding", binding_json(prediction, answer));
        json_object_set_new(ret, "nearest", report_nearest_json(answer));
    }
    json_t *recommended = recommended_json(prediction, answer);
    json_object_update_missing(json_object_get(ret, "recommended"), recommended);
    json_decref(recommended);
    return ret;
}

json_t *report_budget_json(const struct prediction *prediction, int rank)
{
    const struct rank_budget *shown =
        rank < 0 ? prediction_worst(prediction) : prediction_rank(prediction, rank);
    const struct plan *plan = &prediction->plan;
    json_t *ret =
        json_pack("{s:s, s:s}", "schema", "rankfit.budget/1", "plan_digest", plan->digest);
    json_object_set_new(ret, "model", report_model_of(prediction));
    json_object_set_new(ret, "hardware", report_hardware_of(prediction));
    json_t *document = plan_to_json(plan);
    take(ret, document, "workload");
    json_decref(document);
    json_object_set_new(ret, "layout", choices_layout_json(&plan->choices));
    json_object_set_new(ret, "primitives", choices_primitives_json(&plan->choices));
    json_object_set_new(ret, "limit_bytes", json_bytes(prediction->limit_bytes));
    add_rows(ret, prediction);
    json_object_set_new(ret, "ranks", report_ranks_json(prediction, rank));
    json_object_set_new(ret, "phases_of_rank", json_integer(rank < 0 ? shown->rank : rank));
    json_object_set_new(ret, "phases", report_phases_json(prediction, shown));
    return ret;
}
