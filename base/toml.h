/* toml.h - TOML files read into the positioned tree of tree.h: tables, dotted keys, strings,
 * numbers, booleans, arrays and inline tables. Dates, strings over several lines and arrays of
 * tables are errors that say so: configurations of training jobs have none. */
#ifndef RANKFIT_BASE_TOML_H
#define RANKFIT_BASE_TOML_H

#include "base/tree.h"

/* As tree_read_text: -1 with the first fault; released with tree_done in both cases. */
int toml_read_text(struct tree *tree, const char *name, const char *text, size_t bytes,
                   struct diag_list *reterr);

#endif
