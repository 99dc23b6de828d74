/* rule.h - arithmetic that a person can redo, one formula a rule: what articles and teams reckon
 * with before they plan. Pure functions of a few numbers in base units (bytes, seconds, FLOP,
 * tokens, parameters, fractions); knows nothing of models, machines or plans. */
#ifndef RANKFIT_PLANNER_RULES_RULE_H
#define RANKFIT_PLANNER_RULES_RULE_H

#include <stddef.h>

enum { RULE_MAX_SYMBOLS = 8 };

struct rule_symbol {
    const char *name, *unit, *meaning;
    const char *fact; /* what rankfit itself knows of it: a name of fact.h; NULL: nothing */
};

struct rule {
    const char *name, *meaning, *formula;
    const char *unit; /* of the result */
    const char *source;
    struct rule_symbol symbols[RULE_MAX_SYMBOLS]; /* the arguments, up to a NULL name */
    double (*value)(const double *in);            /* in[i]: of symbols[i] */
};
extern const struct rule rules[];
extern const size_t rule_count;

/* NULL when there is none of that name. */
const struct rule *rule_find(const char *name);
/* How many symbols a rule has; the index of one, -1 when there is none of that name. */
size_t rule_symbols(const struct rule *rule);
int rule_symbol_find(const struct rule *rule, const char *name);

#endif
