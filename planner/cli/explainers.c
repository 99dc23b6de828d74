#include "planner/cli/explain.h"

#include "base/item.h"
#include "base/layout/key.h"
#include "base/layout/legality.h"
#include "base/text.h"
#include "planner/cli/glossary.h"
#include "planner/cli/topics.h"
#include "planner/engine/engine.h"
#include "planner/report/json.h"
#include "planner/report/rank_json.h"

#include <jansson.h>
#include <string.h>

enum { TEXT_ROOM = 512 };

static void begin(struct json *entry, const char *kind, const char *name, const char *meaning)
{
    json_put_text(entry, "kind", kind);
    json_put_text(entry, "name", name);
    json_put_text(entry, "meaning", meaning);
}

static bool explain_key(const char *name, const struct prediction *prediction, struct json *ret)
{
    char text[TEXT_ROOM];
    int row = choice_key_find(name);
    if (row < 0)
        return false;
    begin(ret, "key", name, choice_keys[row].help);
    choice_key_values(&choice_keys[row], text, sizeof text);
    json_put_text(ret, "values", text);
    json_put_text(ret, "set_by", "--set KEY=VALUE or set: in a recipe; derived where not set");
    if (prediction) {
        choice_format(&prediction->plan.choices, row, text, sizeof text);
        json_put_text(ret, "in_this_plan", text);
    }
    return true;
}

static const char *name_of_key(size_t i)
{
    return i < choice_key_count ? choice_keys[i].key : NULL;
}

/* "in_this_plan", where the plan's machine has the key. */
static void put_hardware_value(struct json *entry, const struct hardware *hardware, const char *key)
{
    struct json *facts = hardware_to_json(hardware);
    const json_t *all = json_view(facts);
    if (!all || json_object_get(all, key))
        json_put(entry, "in_this_plan", json_of(json_incref(json_object_get(all, key))));
    json_free(facts);
}

static bool explain_hardware_key(const char *name, const struct prediction *prediction,
                                 struct json *ret)
{
    static const char prefix[] = "hardware.";
    const char *key =
        strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : name;
    for (size_t i = 0; i < hardware_key_count; i++) {
        if (strcmp(hardware_keys[i].key, key) != 0)
            continue;
        begin(ret, "hardware key", hardware_keys[i].key, hardware_keys[i].meaning);
        if (hardware_keys[i].unit)
            json_put_text(ret, "unit", hardware_keys[i].unit);
        json_put_text(ret, "source",
                      "hardware/NAME.yaml, which gives source and confidence of each value");
        if (prediction)
            put_hardware_value(ret, &prediction->plan.hardware, key);
        return true;
    }
    return false;
}

static const char *name_of_hardware_key(size_t i)
{
    return i < hardware_key_count ? hardware_keys[i].key : NULL;
}

/* What a line says of one group of equal ranks; `which` item, category or moment. */
typedef void say_of_group(const struct prediction *prediction, int group, int which,
                          struct json *line);

/* "in_this_plan": a line for each group. */
static void add_by_ranks(struct json *entry, const struct prediction *prediction, say_of_group *say,
                         int which)
{
    struct json *lines = json_list();
    for (int group = 0; group < prediction->budget.count; group++) {
        char ranks[TEXT_ROOM];
        budget_group_ranks(&prediction->input, &prediction->budget, group, ranks, sizeof ranks);
        struct json *line = json_map();
        json_put_text(line, "ranks", ranks);
        say(prediction, group, which, line);
        json_append(lines, line);
    }
    json_put(entry, "in_this_plan", lines);
}

static void say_item(const struct prediction *prediction, int group, int item, struct json *line)
{
    const struct rank_budget *rank = &prediction->budget.groups[group];
    char formula[FORMULA_MAX] = "";
    budget_formula(prediction->predictor, rank, (enum item)item, formula, sizeof formula);
    json_put_u64(line, "bytes_at_peak", rank->item_bytes[item]);
    json_put_u64(line, "max_bytes", rank->item_max_bytes[item]);
    json_put_text(line, "formula", formula);
}

static bool explain_item(const char *name, const struct prediction *prediction, struct json *ret)
{
    enum item item = item_find(name);
    if (item == ITEM_COUNT)
        return false;
    begin(ret, "item", name, item_infos[item].meaning);
    json_put_text(ret, "category", category_names[item_infos[item].category]);
    json_put_text(ret, "formula", item_formulas[item].formula);
    json_put_text(ret, "symbols", formula_symbols);
    json_put_text(ret, "source", item_formulas[item].source);
    if (prediction) {
        json_put_text(ret, "basis", basis_names[budget_basis(&prediction->input, item)]);
        add_by_ranks(ret, prediction, say_item, (int)item);
    }
    return true;
}

static const char *name_of_item(size_t i)
{
    return i < ITEM_COUNT ? item_infos[i].name : NULL;
}

static void say_category(const struct prediction *prediction, int group, int category,
                         struct json *line)
{
    json_put_u64(line, "bytes_at_peak", prediction->budget.groups[group].category_bytes[category]);
}

static bool explain_category(const char *name, const struct prediction *prediction,
                             struct json *ret)
{
    for (int i = 0; i < CATEGORY_COUNT; i++) {
        if (strcmp(category_names[i], name) != 0)
            continue;
        begin(ret, "category", name, category_meanings[i]);
        if (prediction)
            add_by_ranks(ret, prediction, say_category, i);
        return true;
    }
    return false;
}

static const char *name_of_category(size_t i)
{
    return i < CATEGORY_COUNT ? category_names[i] : NULL;
}

static void say_moment(const struct prediction *prediction, int group, int moment,
                       struct json *line)
{
    const struct rank_budget *rank = &prediction->budget.groups[group];
    char formula[FORMULA_MAX];
    struct rank_peaks peaks;
    budget_peaks(prediction->predictor, rank, rank->rank, &peaks);
    peaks_formula(prediction->predictor, rank, rank->rank, (enum moment)moment, formula,
                  sizeof formula);
    json_put_u64(line, "bytes", peaks.bytes[moment]);
    json_put_u64(line, "host_bytes", peaks.host_bytes[moment]);
    json_put_text(line, "formula", formula);
}

static bool explain_moment(const char *name, const struct prediction *prediction, struct json *ret)
{
    for (int i = 0; i < MOMENT_COUNT; i++) {
        if (strcmp(moment_names[i], name) != 0)
            continue;
        begin(ret, "moment", name, moment_meanings[i]);
        if (prediction)
            add_by_ranks(ret, prediction, say_moment, i);
        return true;
    }
    return false;
}

static const char *name_of_moment(size_t i)
{
    return i < MOMENT_COUNT ? moment_names[i] : NULL;
}

static bool explain_rule(const char *name, const struct prediction *prediction, struct json *ret)
{
    for (size_t i = 0; i < legality_rule_count; i++) {
        const struct legality_rule *rule = &legality_rules[i];
        if (strcmp(rule->name, name) != 0)
            continue;
        begin(ret, "rule", name, rule->meaning);
        json_put_text(ret, "severity", rule->severity == SEVERITY_ERROR ? "error" : "warning");
        if (prediction) {
            const struct plan *plan = &prediction->plan;
            const struct legality_input input = {
                .model = &plan->model,
                .hardware = &plan->hardware,
                .choices = &plan->choices,
                .gpus = plan->gpus,
                .seq_tokens = plan->seq_tokens,
                .global_batch = plan->global_batch,
                .lengths = &plan->lengths,
            };
            json_put_text(ret, "in_this_plan", rule->check(&input, NULL) ? "violated" : "holds");
        }
        return true;
    }
    return false;
}

static const char *name_of_rule(size_t i)
{
    return i < legality_rule_count ? legality_rules[i].name : NULL;
}

/* "linear_ce" or "loss=linear_ce". */
static bool explain_primitive(const char *name, const struct prediction *prediction,
                              struct json *ret)
{
    for (size_t i = 0; i < primitive_info_count; i++) {
        const struct primitive_info *info = &primitive_infos[i];
        char full[96], chosen[TEXT_ROOM];
        (void)snprintf(full, sizeof full, "%s=%s", info->key, info->value);
        if (strcmp(full, name) != 0 && strcmp(info->value, name) != 0)
            continue;
        begin(ret, "primitive", full, info->meaning);
        int row = choice_key_find(info->key);
        if (prediction && row >= 0) {
            choice_format(&prediction->plan.choices, row, chosen, sizeof chosen);
            (void)snprintf(full, sizeof full, "%s=%.64s", info->key, chosen);
            json_put_text(ret, "in_this_plan", full);
        }
        return true;
    }
    return false;
}

static const char *name_of_primitive(size_t i)
{
    return i < primitive_info_count ? primitive_infos[i].value : NULL;
}

static bool explain_time_item(const char *name, const struct prediction *prediction,
                              struct json *ret)
{
    for (int i = 0; i < TIME_ITEM_COUNT; i++) {
        enum time_item item = (enum time_item)i;
        char formula[FORMULA_MAX] = "";
        if (strcmp(time_item_names[i], name) != 0)
            continue;
        begin(ret, "step-time item", name, time_item_meanings[i]);
        json_put_text(ret, "source",
                      "a roofline: work over the peak times the efficiency of the "
                      "hardware file");
        if (prediction) {
            step_time_formula(&prediction->input, &prediction->time, item, formula, sizeof formula);
            json_put_number(ret, "seconds", prediction->time.item_seconds[i]);
            json_put_text(ret, "formula", formula);
        }
        return true;
    }
    return false;
}

static const char *name_of_time_item(size_t i)
{
    return i < TIME_ITEM_COUNT ? time_item_names[i] : NULL;
}

static bool explain_topic(const char *name, const struct prediction *prediction, struct json *ret)
{
    return topic_explain(name, prediction, ret);
}

static bool explain_engine(const char *name, const struct prediction *prediction, struct json *ret)
{
    const struct engine *engine = engine_find(name);
    (void)prediction;
    if (!engine)
        return false;
    begin(ret, "engine", name, engine->about);
    json_put_text(ret, "described", engine->described);
    if (engine->not_described)
        json_put_text(ret, "not_described", engine->not_described);
    struct json *choices = json_list();
    for (int i = 0; i < ENGINE_CHOICES_MAX && engine->choices[i].key; i++) {
        char text[TEXT_ROOM];
        (void)snprintf(text, sizeof text, "%s=%s", engine->choices[i].key,
                       engine->choices[i].value);
        json_append_text(choices, text);
    }
    if (engine->methods)
        json_put(ret, "choices", choices);
    else
        json_free(choices);
    json_put_text(ret, "used_by",
                  engine->methods ? "--engine in plan, budget, search, sweep, grid"
                                  : "every command");
    return true;
}

static const char *name_of_engine(size_t i)
{
    return i < engine_count ? engines[i].name : NULL;
}

const struct explainer explainers[] = {
    { "key", explain_key, name_of_key },
    { "item", explain_item, name_of_item },
    { "category", explain_category, name_of_category },
    { "moment", explain_moment, name_of_moment },
    { "rule", explain_rule, name_of_rule },
    { "primitive", explain_primitive, name_of_primitive },
    { "step-time item", explain_time_item, name_of_time_item },
    { "hardware key", explain_hardware_key, name_of_hardware_key },
    { "arithmetic", explain_arithmetic, name_of_arithmetic },
    { "fact", explain_fact, name_of_fact },
    { "option of other engines", explain_option, explain_option_name },
    { "engine", explain_engine, name_of_engine },
    { "topic", explain_topic, topic_name },
};
const size_t explainer_count = sizeof explainers / sizeof *explainers;
