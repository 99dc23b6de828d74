/* launch.h - launch files of other engines and of schedulers, written and read. One table of rows
 * per engine maps rankfit's keys to that engine's options and is used in both directions, so that
 * they cannot disagree. Knows nothing of memory, time or legality. */
#ifndef RANKFIT_PLANNER_LAUNCH_LAUNCH_H
#define RANKFIT_PLANNER_LAUNCH_LAUNCH_H

#include "base/diag.h"
#include "base/plan/plan.h"
#include "base/pool.h"

#include <stdbool.h>
#include <stddef.h>

enum { LAUNCH_SAYS = 4, LAUNCH_TABLES = 4 };

/* One value of one key. `value` NULL stands for any value, which replaces `#` in `says`; "@KEY" is
 * the value of another key. */
struct launch_row {
    const char *key; /* of --set; or seq, gpus, global_batch, d_rep, e_rep, model.X */
    const char *value;
    const char
        *says[LAUNCH_SAYS]; /* options of the engine, NAME or NAME=VALUE; none: its default */
    const char *instead;    /* the value that the engine takes because it lacks this one */
    const char *note;       /* the reason for `instead`, in words */
};

/* Another spelling of an option: an older name, or that of a target that wraps the engine. */
struct launch_name {
    const char *option, *here;
};

/* Options that the engine's own parser or start-up rejects together. Conditions are "NAME",
 * "NAME=VALUE", "NAME>N" or, with a leading "!", their absence. */
struct launch_clash {
    const char *when[3];
    const char *why, *hint;
};

enum launch_form { LAUNCH_ARGUMENTS, LAUNCH_TOML, LAUNCH_OVERRIDES, LAUNCH_SCHEDULER };
/* How many processes start: by torchrun, by NPROC_PER_NODE, or by options of the program. */
enum launch_starter { START_TORCHRUN, START_ENVIRONMENT, START_OPTIONS };

struct launch_target {
    const char *name, *title;
    const char *version; /* of the engine whose options the rows were taken from */
    const char *engine;  /* of --engine, that has this target's memory */
    enum launch_form form;
    enum launch_starter starter;
    const char *program;  /* the command that is written in front of the options */
    const char *signs[4]; /* words by which a command is recognized as this target's */
    bool underscores;     /* options are spelled with underscores */
    bool values;          /* flags take true or false */
    const char *prefix;   /* in front of options without an entry of `names` */
    const struct launch_row *tables[LAUNCH_TABLES]; /* each up to an empty row */
    const struct launch_name *names;                /* up to an empty entry; NULL: none */
    const struct launch_name *older;                /* former spellings of the rows' options */
    const struct launch_clash *clashes;             /* up to an empty entry */
    const char *const *neutral;  /* options without influence on memory or time; PREFIX* */
    const char *const *unjudged; /* options with influence that no row expresses, and the effect */
    const char *const *more_neutral, *const *more_unjudged; /* second lists; NULL: none */
};
extern const struct launch_target launch_targets[];
extern const size_t launch_target_count;

/* NULL: none has that name. */
const struct launch_target *launch_find(const char *name);
/* "a, b or c" */
void launch_names(char *ret, size_t size);

/* Walks the rows of all tables of a target: the index-th, or NULL behind the last. */
const struct launch_row *launch_row_at(const struct launch_target *target, size_t index);
/* The option as the target spells it: "tensor-model-parallel-size" as
 * "model.tensor_model_parallel_size". */
void launch_spell(const struct launch_target *target, const char *option, char *ret, size_t size);

/* A key with its value as text, and its place in a launch file. */
struct launch_setting {
    const char *key, *value;
    struct pos at;
};
enum { LAUNCH_SETTINGS_MAX = 160 };
struct launch_settings {
    struct pool pool;
    size_t count;
    struct launch_setting items[LAUNCH_SETTINGS_MAX];
};

/* The value of a key; NULL: not there. */
const char *launch_get(const struct launch_settings *settings, const char *key);
/* Sets a key, or replaces its value. -1: out of memory. */
int launch_put(struct launch_settings *settings, const char *key, const char *value, struct pos at,
               struct diag_list *reterr);
void launch_settings_done(struct launch_settings *settings);

/* Everything that a plan says, as settings; keys without influence on the plan are left out. */
int launch_settings_of_plan(const struct plan *plan, struct launch_settings *ret,
                            struct diag_list *reterr);
/* Whether a key has influence, given the others: context only with cp above 1. */
bool launch_applies(const struct launch_settings *settings, const char *key);

/* write.c: a key that the target cannot express, and the behavior of its engine instead. */
struct launch_gap {
    const char *key, *value, *instead, *note;
};
enum { LAUNCH_GAPS_MAX = 48 };
struct launch_gaps {
    size_t count;
    struct launch_gap items[LAUNCH_GAPS_MAX];
};

/* The settings as the target's engine will carry them out: each value that it lacks is replaced,
 * and listed in `ret`. */
int launch_replace(const struct launch_target *target, struct launch_settings *settings,
                   struct launch_gaps *ret, struct diag_list *reterr);

/* A number of the settings; `otherwise` where it is not there or no number. */
int launch_number(const struct launch_settings *settings, const char *key, int otherwise);
/* Fixes every choice that the settings state and the model has a use for; errors carry the places
 * of the settings. */
int launch_fix(const struct launch_settings *settings, const struct model *model,
               struct fixed_choices *ret, struct diag_list *reterr);

/* The launch file of settings that have been through launch_replace. `head` is written above it as
 * comments, one line each (NULL: none); `plan_path` is the plan that a scheduler's script runs.
 * Returns a malloc'd text, or NULL without memory. */
char *launch_write(const struct launch_target *target, const struct launch_settings *settings,
                   const char *head, const char *plan_path);

#endif
