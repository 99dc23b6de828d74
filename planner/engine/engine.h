/* engine.h - the engines that a plan can be for, a row each: how they count memory, which choices
 * are theirs, which of their parts are described. */
#ifndef RANKFIT_PLANNER_ENGINE_ENGINE_H
#define RANKFIT_PLANNER_ENGINE_ENGINE_H

#include "planner/predict/methods.h"

/* A key that the engine leaves no choice in, or that has a default of its own. */
struct engine_choice {
    const char *key, *value;
    bool only; /* the engine has no other value */
};
enum { ENGINE_CHOICES_MAX = 12, ENGINE_IGNORED_MAX = 6 };

struct engine {
    const char *name, *about, *described, *not_described;
    const struct engine_methods *methods; /* NULL: engine rankfit */
    struct engine_choice choices[ENGINE_CHOICES_MAX];
    const char *ignored[ENGINE_IGNORED_MAX]; /* keys without a counterpart in the engine */
    /* -1 with an error at `at` for each part of the model, or the layout, that is not described. */
    int (*describes)(const struct model *model, int gpus, struct pos at, struct diag_list *reterr);
    int (*check)(const struct choices *choices, struct pos at, struct diag_list *reterr);
};

/* Rows in the order in which they are listed; the first is rankfit. */
extern const struct engine engines[];
extern const size_t engine_count;
enum { ENGINES_MAX = 8 };

/* NULL: no engine of that name. */
const struct engine *engine_find(const char *name);
/* NULL for engine rankfit and for names that are unknown. */
const struct engine_methods *engine_methods_of(const char *name);

/* Fixes the engine's own choices where the user said nothing; an error where another value was. */
int engine_fix(const struct engine *engine, struct fixed_choices *fixed, struct pos at,
               struct diag_list *reterr);

#endif
