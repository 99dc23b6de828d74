/* glossary.h - what names mean, where no other table says it: the formula of each item, the items
 * of the step time, categories, and what each value of an enumerated key does. For explain and
 * list. */
#ifndef RANKFIT_PLANNER_CLI_GLOSSARY_H
#define RANKFIT_PLANNER_CLI_GLOSSARY_H

#include "base/item.h"
#include "planner/predict/peaks.h"
#include "planner/predict/step_time.h"

#include <stddef.h>

struct item_formula {
    const char *formula, *source;
};
extern const struct item_formula item_formulas[ITEM_COUNT];
/* The letters of item_formulas, in one line each. */
extern const char *const formula_symbols;

extern const char *const category_meanings[CATEGORY_COUNT];
extern const char *const moment_meanings[MOMENT_COUNT];
extern const char *const time_item_meanings[TIME_ITEM_COUNT];

/* One value of an enumerated key: loss = linear_ce. */
struct primitive_info {
    const char *key, *value, *meaning;
};
extern const struct primitive_info primitive_infos[];
extern const size_t primitive_info_count;

#endif
