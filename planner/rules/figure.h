/* figure.h - published figures held against rankfit: a file of rows, each with what was published,
 * the rule behind it, the numbers that were put in, and where rankfit knows these itself. Knows
 * neither how questions are answered nor how a report looks. */
#ifndef RANKFIT_PLANNER_RULES_FIGURE_H
#define RANKFIT_PLANNER_RULES_FIGURE_H

#include "base/tree.h"
#include "planner/report/prediction.h"
#include "planner/rules/rule.h"
#include "planner/rules/unit.h"

#include <stdbool.h>

enum { FIGURES_MAX = 96, FIGURE_MAX_PARTS = 16, FIGURE_NAME_ROOM = 64 };

/* A question of the file with its answer. */
struct answered {
    const char *name;
    const struct prediction *prediction;
};

enum relation { RELATION_IS, RELATION_AT_MOST, RELATION_AT_LEAST };
enum rounding { ROUNDING_NEAREST, ROUNDING_UP, ROUNDING_DOWN };

/* One argument: as published, the same chain carried without rounding between, rankfit's own. */
struct figure_input {
    double rounded, unrounded, own;
    const char *origin; /* where the own one is from: a fact, an earlier figure; NULL: published */
};

/* One part of an itemised figure, base units; a side that does not have it is 0. */
struct figure_part {
    const char *what;
    double published, own;
};

struct figure {
    const char *name, *about, *source, *why; /* why: NULL where nothing needs to be said */
    const struct unit_of *unit;
    const char *published_text; /* NULL: it only follows from what was published */
    double published;           /* base units; NAN */
    enum relation relation;
    int digits;             /* significant ones that were published; 0: as many as are written */
    enum rounding rounding; /* as it was published */
    bool carried;           /* the published digits come from the unrounded chain */
    const struct rule *rule;
    struct figure_input inputs[RULE_MAX_SYMBOLS];
    double rounded, unrounded, own; /* base units; own NAN: rankfit has none */
    const char *own_fact;           /* own comes from this fact; NULL: from the rule */
    const char *question;           /* whose facts; NULL: none */
    bool holds;                     /* the chain gives what was published, if anything */
    bool faulty;                    /* the file says something wrong of it */
    int part_count;
    struct figure_part parts[FIGURE_MAX_PARTS];
};

struct figures {
    int count;
    struct figure rows[FIGURES_MAX];
    bool hold; /* all do */
};

/* Judges the list `figures` of a file. Texts point into the tree and into the questions. -1 with
 * every fault: an unknown rule, symbol, unit, fact, question or earlier figure. */
int figures_judge(const struct node *root, const struct answered *questions, size_t count,
                  struct figures *ret, struct diag_list *reterr);

/* Whether `value` (base units) is what was published, to the digits of the figure, which has some.
 */
bool figure_holds(const struct figure *figure, double value);

/* A number of a base unit as a person writes it: "1.2 GB", "80 %", "78". */
void figure_format(double value, const char *base, char *ret, size_t size);

#endif
