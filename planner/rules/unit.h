/* unit.h - the units that people write figures in, and what they are of a base unit. */
#ifndef RANKFIT_PLANNER_RULES_UNIT_H
#define RANKFIT_PLANNER_RULES_UNIT_H

#include <stddef.h>

struct unit_of {
    const char *name; /* "MB/token" */
    const char *base; /* "bytes/token", as rules and facts say it */
    double factor;    /* base units in one */
};
extern const struct unit_of figure_units[];
extern const size_t figure_unit_count;

/* NULL when there is none of that name. */
const struct unit_of *figure_unit_find(const char *name);

/* "1200 MB", or a bare number of base units. -1 when it is neither, or not of that base; base
 * "any": of whichever. */
int figure_unit_parse(const char *text, const char *base, double *ret);

#endif
