/* explain and list for the rules of arithmetic and the facts that they are held against. */
#include "planner/cli/explain.h"

#include "base/layout/key.h"
#include "base/text.h"
#include "planner/rules/fact.h"
#include "planner/rules/figure.h"
#include "planner/rules/rule.h"

#include <string.h>

enum { VALUE_ROOM = 64, LINE_ROOM = 256 };

/* The fact behind a symbol, of the plan; false when the plan has no such fact. */
static bool symbol_value(const struct rule_symbol *symbol, const struct prediction *prediction,
                         double *ret)
{
    const char *unit;
    return symbol->fact && fact_value(prediction, symbol->fact, ret, &unit) == 0;
}

/* "pipeline stages P, in stages; pp of a plan, here 8". */
static json_t *symbol_text(const struct rule_symbol *symbol, const struct prediction *prediction)
{
    char line[LINE_ROOM] = "", text[VALUE_ROOM];
    size_t used = 0;
    double value = 0;
    text_append(line, sizeof line, &used, "%s, in %s", symbol->meaning, symbol->unit);
    if (symbol->fact)
        text_append(line, sizeof line, &used, "; the fact %s", symbol->fact);
    if (prediction && symbol_value(symbol, prediction, &value)) {
        figure_format(value, symbol->unit, text, sizeof text);
        text_append(line, sizeof line, &used, ", in this plan %s", text);
    }
    return json_string(line);
}

/* With a plan that has a fact for each symbol, the rule's value. */
static void add_value(json_t *entry, const struct rule *rule, const struct prediction *prediction)
{
    char text[VALUE_ROOM];
    double in[RULE_MAX_SYMBOLS] = { 0 };
    for (size_t i = 0; i < rule_symbols(rule); i++)
        if (!symbol_value(&rule->symbols[i], prediction, &in[i]))
            return;
    figure_format(rule->value(in), rule->unit, text, sizeof text);
    json_object_set_new(entry, "in_this_plan", json_string(text));
}

json_t *explain_arithmetic(const char *name, const struct prediction *prediction)
{
    const struct rule *rule = rule_find(name);
    if (!rule)
        return NULL;
    json_t *symbols = json_object();
    for (size_t i = 0; i < rule_symbols(rule); i++)
        json_object_set_new(symbols, rule->symbols[i].name,
                            symbol_text(&rule->symbols[i], prediction));
    json_t *ret = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:s}", "kind", "arithmetic", "name",
                            rule->name, "meaning", rule->meaning, "formula", rule->formula, "unit",
                            rule->unit, "symbols", symbols, "source", rule->source);
    if (prediction)
        add_value(ret, rule, prediction);
    return ret;
}

const char *name_of_arithmetic(size_t i)
{
    return i < rule_count ? rules[i].name : NULL;
}

/* Facts that are keys are explained as keys. */
json_t *explain_fact(const char *name, const struct prediction *prediction)
{
    for (size_t i = 0; i < fact_count; i++) {
        char text[VALUE_ROOM];
        if (strcmp(facts[i].name, name) != 0 || choice_key_find(name) >= 0)
            continue;
        json_t *ret = json_pack("{s:s, s:s, s:s, s:s}", "kind", "fact", "name", name, "meaning",
                                facts[i].meaning, "unit", facts[i].unit);
        if (prediction) {
            figure_format(facts[i].value(prediction), facts[i].unit, text, sizeof text);
            json_object_set_new(ret, "in_this_plan", json_string(text));
        }
        return ret;
    }
    return NULL;
}

const char *name_of_fact(size_t i)
{
    return i < fact_count ? facts[i].name : NULL;
}
