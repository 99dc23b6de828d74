#include "planner/report/json.h"

#include "base/item.h"
#include "base/layout/trained.h"
#include "planner/report/assumptions.h"
#include "planner/report/rank_json.h"
#include "planner/report/workload.h"

#include <math.h>
#include <string.h>

static struct json *counts_json(const struct model_counts *counts)
{
    struct json *ret = json_map();
    for (int i = 0; i < COMPONENT_COUNT; i++)
        json_put_u64(ret, component_names[i], counts->by_component[i]);
    return ret;
}

static void add_counts(struct json *object, const struct model_counts *counts)
{
    json_put_u64(object, "params_total", counts->total);
    json_put_u64(object, "params_active", counts->active);
    json_put_u64(object, "params_active_all", counts->active_all);
    json_put_u64(object, "params_active_core", counts->active_core);
    json_put_u64(object, "params_trained", counts->trained);
    json_put(object, "params_by_component", counts_json(counts));
}

struct json *report_model_json(const struct model *model)
{
    struct model_counts counts;
    model_count(model, &counts);
    struct json *ret = json_map();
    json_put_text(ret, "name", model->name);
    add_counts(ret, &counts);
    json_merge(ret, model_to_json(model));
    return ret;
}

static struct json *diags_json(const struct diag_list *list)
{
    struct json *ret = json_list();
    for (int i = 0; list && i < list->count; i++)
        if (list->items[i].severity == SEVERITY_WARNING)
            json_append_text(ret, list->items[i].what);
    return ret;
}

struct json *report_nearest_json(const struct answer *answer)
{
    struct json *ret = json_list();
    for (int i = 0; answer && i < answer->nearest_count; i++) {
        const struct nearest *nearest = &answer->nearest[i];
        struct json *entry = json_map();
        json_put_text(entry, "change", nearest->change);
        if (nearest->gpus)
            json_put_int(entry, "gpus", nearest->gpus);
        if (nearest->seq_tokens)
            json_put_u64(entry, "seq_tokens", nearest->seq_tokens);
        if (nearest->set[0])
            json_put_text(entry, "set", nearest->set);
        json_put_u64(entry, "peak_bytes", nearest->peak_bytes);
        json_append(ret, entry);
    }
    return ret;
}

static void add_binding(struct json *object, const struct prediction *prediction,
                        const struct answer *answer)
{
    char text[BINDING_TEXT];
    prediction_binding(prediction, answer->binding, text, sizeof text);
    json_put_text(object, "binding", text);
}

static struct json *reasons_json(const struct answer *answer)
{
    struct json *ret = json_list();
    for (int i = 0; answer && i < answer->reason_count; i++) {
        struct json *entry = json_map();
        json_put_text(entry, "choice", answer->reasons[i].choice);
        json_put_text(entry, "because", answer->reasons[i].because);
        json_append(ret, entry);
    }
    return ret;
}

static uint64_t metric_bytes(const struct rank_budget *rank, bool reserved)
{
    return rank->arena_bytes + (reserved ? rank->item_bytes[ITEM_SLACK] : 0);
}

static void add_peak(struct json *object, const struct rank_budget *worst)
{
    json_put_u64(object, "peak_bytes", worst->peak_bytes);
    json_put_u64(object, "peak_upper_bytes", worst->peak_upper_bytes);
    json_put_u64(object, "static_bytes", worst->category_bytes[CATEGORY_STATIC]);
    json_put_int(object, "peak_rank", worst->rank);
    json_put(object, "peak_phase", json_phase(&worst->peak_phase));
    struct json *metrics = json_map();
    json_put_u64(metrics, "allocated", metric_bytes(worst, false));
    json_put_u64(metrics, "reserved", metric_bytes(worst, true));
    json_put_u64(metrics, "device", worst->peak_bytes);
    json_put(object, "peak_by_metric", metrics);
}

/* "recommended": layout and primitives as the plan file has them, then what is predicted. */
static struct json *recommended_json(const struct prediction *prediction,
                                     const struct answer *answer)
{
    const struct plan *plan = &prediction->plan;
    struct json *ret = json_map();
    json_put(ret, "layout", choices_layout_json(&plan->choices));
    json_put(ret, "primitives", choices_primitives_json(&plan->choices));
    json_put_u64(ret, "dispatch_bound_rows", plan->dispatch_bound_rows);
    json_put(ret, "reasons", reasons_json(answer));
    report_add_rows(ret, prediction);
    add_peak(ret, prediction_worst(prediction));
    json_put(ret, "ranks", report_ranks_json(prediction, -1));
    json_put(ret, "step", report_step_json(prediction));
    return ret;
}

struct json *report_candidate_json(const struct candidate *candidate)
{
    struct json *ret = json_map();
    json_put(ret, "layout", choices_layout_json(&candidate->choices));
    json_put(ret, "primitives", choices_primitives_json(&candidate->choices));
    json_put_text(ret, "verdict", verdict_names[candidate->verdict]);
    add_peak(ret, &candidate->worst);
    json_put(ret, "step", report_speed_json(&candidate->time));
    json_put_number(ret, "slowest_seconds",
                    candidate->slowest_seconds > 0 ? candidate->slowest_seconds : (double)NAN);
    return ret;
}

static struct json *candidates_json(const struct answer *answer)
{
    struct json *ret = json_list();
    for (int i = 0; i < answer->candidate_count; i++)
        json_append(ret, report_candidate_json(&answer->candidates[i]));
    return ret;
}

static struct json *searched_json(const struct answer *answer)
{
    struct json *ret = json_map();
    json_put_int(ret, "layouts", answer->layouts);
    json_put_int(ret, "legal", answer->legal);
    json_put_int(ret, "fitting", answer->fitting);
    json_put_number(ret, "seconds", answer->search_seconds);
    bool searched = answer->derived_over_best >= 0;
    json_put_number(ret, "derived_over_best", searched ? answer->derived_over_best : (double)NAN);
    json_put_text(ret, "policy", policy_names[answer->policy]);
    return ret;
}

struct json *report_model_of(const struct prediction *prediction)
{
    const struct model *model = &prediction->plan.model;
    struct json *ret = json_map();
    json_put_text(ret, "name", model->name);
    json_put_text(ret, "title", model->title);
    add_counts(ret, &prediction->sizes.counts);
    json_put_u64(ret, "params_trained",
                 params_trained(model, &prediction->plan.choices.primitives));
    return ret;
}

struct json *report_hardware_of(const struct prediction *prediction)
{
    const struct plan *plan = &prediction->plan;
    struct json *ret = json_map();
    json_put_text(ret, "name", plan->hardware.name);
    json_put_text(ret, "gpu", plan->hardware.gpu);
    json_put_int(ret, "gpus", plan->gpus);
    json_put_u64(ret, "memory_bytes", prediction->memory_bytes);
    return ret;
}

struct json *report_plan_json(const struct prediction *prediction, const struct answer *answer,
                              const struct diag_list *warnings)
{
    const struct plan *plan = &prediction->plan;
    struct json *ret = json_document("rankfit.plan/1");
    json_put_text(ret, "plan_digest", plan->digest);
    json_put(ret, "model", report_model_of(prediction));
    json_put(ret, "hardware", report_hardware_of(prediction));
    json_put(ret, "workload", plan_workload_json(plan));
    json_put(ret, "engine", plan_engine_json(plan));
    json_put_text(ret, "verdict", verdict_names[prediction->verdict]);
    json_put_u64(ret, "limit_bytes", prediction->limit_bytes);
    json_put(ret, "warnings", diags_json(warnings));
    json_put(ret, "assumptions", report_assumptions_json(prediction));
    add_binding(ret, prediction, answer);
    json_put(ret, "nearest", report_nearest_json(answer));
    json_put(ret, "recommended", recommended_json(prediction, answer));
    json_put(ret, "candidates", candidates_json(answer));
    json_put(ret, "searched", searched_json(answer));
    return ret;
}

struct json *report_plan_file(const struct prediction *prediction, const struct answer *answer)
{
    struct json *ret = plan_to_json(&prediction->plan);
    json_put_text(ret, "verdict", verdict_names[prediction->verdict]);
    json_put_u64(ret, "limit_bytes", prediction->limit_bytes);
    json_put(ret, "assumptions", report_assumptions_json(prediction));
    if (answer) {
        add_binding(ret, prediction, answer);
        json_put(ret, "nearest", report_nearest_json(answer));
    }
    json_put(ret, "recommended", recommended_json(prediction, answer));
    return ret;
}

struct json *report_budget_json(const struct prediction *prediction, int rank)
{
    const struct rank_budget *shown =
        rank < 0 ? prediction_worst(prediction) : prediction_rank(prediction, rank);
    const struct plan *plan = &prediction->plan;
    struct json *ret = json_document("rankfit.budget/1");
    json_put_text(ret, "plan_digest", plan->digest);
    json_put(ret, "model", report_model_of(prediction));
    json_put(ret, "hardware", report_hardware_of(prediction));
    json_put(ret, "workload", plan_workload_json(plan));
    json_put(ret, "layout", choices_layout_json(&plan->choices));
    json_put(ret, "primitives", choices_primitives_json(&plan->choices));
    json_put_u64(ret, "limit_bytes", prediction->limit_bytes);
    report_add_rows(ret, prediction);
    json_put(ret, "ranks", report_ranks_json(prediction, rank));
    json_put_int(ret, "phases_of_rank", rank < 0 ? shown->rank : rank);
    json_put(ret, "phases", report_phases_json(prediction, shown));
    return ret;
}
