/* same.h - a parsed tree against the document it should be, as jansson holds it. */
#ifndef RANKFIT_TESTS_SUPPORT_SAME_H
#define RANKFIT_TESTS_SUPPORT_SAME_H

#include "base/tree.h"

#include <jansson.h>
#include <stdbool.h>

/* Same kinds, values (reals to the last bit), order and keys. */
bool same_as_json(const struct node *node, const json_t *want);

#endif
