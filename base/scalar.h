/* scalar.h - what an unquoted YAML scalar is: the core schema of YAML 1.2, plus the bare Infinity
 * and NaN that some JSON writers emit. Shared by the reader and by whoever must quote. */
#ifndef RANKFIT_BASE_SCALAR_H
#define RANKFIT_BASE_SCALAR_H

#include "base/tree.h"

/* The kind of a plain scalar: null, bool, int, real or text. ret: integer, real and boolean are set
 * where they apply. Returns -1 for a number that its type cannot hold. */
int scalar_resolve(const char *text, struct node *ret);

#endif
