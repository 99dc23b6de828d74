/* units.h - factorizations of the world one after another, in room that does not depend on how many
 * there are. Internal to planner/search. */
#ifndef RANKFIT_PLANNER_SEARCH_UNITS_H
#define RANKFIT_PLANNER_SEARCH_UNITS_H

#include "planner/search/space.h"

enum { UNIT_DEGREES = DEGREE_ETP + 1 };

/* Of each degree, outermost first, the values that those outside it leave, and which is next. */
struct units {
    const struct space *space;
    struct degrees degrees;
    uint64_t next; /* how many have been given out */
    int depth;     /* degrees that have a value; -1: there are no more */
    int at[UNIT_DEGREES], count[UNIT_DEGREES];
    int values[UNIT_DEGREES][SPACE_MAX_DIVISORS];
};

void units_init(const struct space *space, struct units *ret);
/* False: that was the last. *ret_index: of the order of the space. */
bool units_next(struct units *units, struct degrees *ret, uint64_t *ret_index);
uint64_t units_count(const struct space *space);

#endif
