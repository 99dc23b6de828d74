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
static void put_symbol(struct json *symbols, const struct rule_symbol *symbol,
                       const struct prediction *prediction)
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
    json_put_text(symbols, symbol->name, line);
}

/* With a plan that has a fact for each symbol, the rule's value. */
static void add_value(struct json *entry, const struct rule *rule,
                      const struct prediction *prediction)
{
    char text[VALUE_ROOM];
    double in[RULE_MAX_SYMBOLS] = { 0 };
    for (size_t i = 0; i < rule_symbols(rule); i++)
        if (!symbol_value(&rule->symbols[i], prediction, &in[i]))
            return;
    figure_format(rule->value(in), rule->unit, text, sizeof text);
    json_put_text(entry, "in_this_plan", text);
}

bool explain_arithmetic(const char *name, const struct prediction *prediction, struct json *ret)
{
    const struct rule *rule = rule_find(name);
    if (!rule)
        return false;
    struct json *symbols = json_map();
    for (size_t i = 0; i < rule_symbols(rule); i++)
        put_symbol(symbols, &rule->symbols[i], prediction);
    json_put_text(ret, "kind", "arithmetic");
    json_put_text(ret, "name", rule->name);
    json_put_text(ret, "meaning", rule->meaning);
    json_put_text(ret, "formula", rule->formula);
    json_put_text(ret, "unit", rule->unit);
    json_put(ret, "symbols", symbols);
    json_put_text(ret, "source", rule->source);
    if (prediction)
        add_value(ret, rule, prediction);
    return true;
}

const char *name_of_arithmetic(size_t i)
{
    return i < rule_count ? rules[i].name : NULL;
}

/* Facts that are keys are explained as keys. */
bool explain_fact(const char *name, const struct prediction *prediction, struct json *ret)
{
    for (size_t i = 0; i < fact_count; i++) {
        char text[VALUE_ROOM];
        if (strcmp(facts[i].name, name) != 0 || choice_key_find(name) >= 0)
            continue;
        json_put_text(ret, "kind", "fact");
        json_put_text(ret, "name", name);
        json_put_text(ret, "meaning", facts[i].meaning);
        json_put_text(ret, "unit", facts[i].unit);
        if (prediction) {
            figure_format(facts[i].value(prediction), facts[i].unit, text, sizeof text);
            json_put_text(ret, "in_this_plan", text);
        }
        return true;
    }
    return false;
}

const char *name_of_fact(size_t i)
{
    return i < fact_count ? facts[i].name : NULL;
}
