/* pair_row.h - which primitives have a reference, and what must hold for the two to be comparable:
 * one row a key of --set. Knows nothing of running. */
#ifndef RANKFIT_PLANNER_CLI_PAIR_ROW_H
#define RANKFIT_PLANNER_CLI_PAIR_ROW_H

#include "base/diag.h"
#include "planner/compare/difference.h"

#include <stddef.h>

struct pair_setting {
    const char *key, *value;
};

enum { PAIR_MAX_WITH = 3 };

struct pair_row {
    const char *kind; /* of primitive: loss, moe, state, ... */
    const char *key;
    const char *reference; /* the value that the others are held against */
    const char *other;     /* what the reference itself is held against, and an example */
    enum agreement agreement;
    bool moves; /* the two sides divide the ranks differently */
    /* What else each side needs; a key that both need stands in both. */
    struct pair_setting with_other[PAIR_MAX_WITH], with_reference[PAIR_MAX_WITH];
};
extern const struct pair_row pair_rows[];
extern const size_t pair_row_count;

/* The row of a key, or NULL. */
const struct pair_row *pair_row_find(const char *key, size_t length);
/* The row that NAME ("moe=chunked") is about, its value in *ret_value; NULL with the nearest name
 * and the list. */
const struct pair_row *pair_row_of(const char *name, const char **ret_value,
                                   struct diag_list *reterr);

#endif
