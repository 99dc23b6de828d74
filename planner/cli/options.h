/* options.h - what the user asked, as text with positions: from the command line and from a recipe,
 * the command line winning. One table of options feeds parser, help and recipe keys. What a value
 * means is subject.h's matter. */
#ifndef RANKFIT_PLANNER_CLI_OPTIONS_H
#define RANKFIT_PLANNER_CLI_OPTIONS_H

#include "base/diag.h"
#include "base/pool.h"
#include "base/tree.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_id {
    OPTION_MODEL,
    OPTION_HARDWARE,
    OPTION_GPUS,
    OPTION_SEQ,
    OPTION_LENGTHS,
    OPTION_MICRO_BATCH,
    OPTION_GLOBAL_BATCH,
    OPTION_ENGINE,
    OPTION_ROUTING,
    OPTION_HEADROOM,
    OPTION_RESERVE,
    OPTION_RECIPE,
    OPTION_SET,
    OPTION_RANK,
    OPTION_BACKEND,
    OPTION_DATA,
    OPTION_DATA_FORMAT,
    OPTION_STEPS,
    OPTION_SEED,
    OPTION_WEIGHTS,
    OPTION_SAVE,
    OPTION_REPLAY,
    OPTION_REPLAY_ROWS,
    OPTION_TOLERANCE,
    OPTION_TIME_TOLERANCE,
    OPTION_STALL_TIMEOUT,
    OPTION_MEMORY_LIMIT,
    OPTION_TRACE,
    OPTION_ALLOW_ROOT,
    OPTION_CHECK,
    OPTION_TO,
    OPTION_TITLE, /* --name */
    OPTION_POINTS,
    OPTION_QUICK,
    OPTION_OBJECTIVE,
    OPTION_TOKENS_OF_TRAINING, /* --tokens */
    OPTION_PARETO,
    OPTION_POLICY,
    OPTION_EXACT,
    OPTION_WHY,
    OPTION_THREADS,
    OPTION_JSON,
    OPTION_OUTPUT,
    OPTION_HELP,
    OPTION_COUNT
};

/* Bits of option_info.commands, in the order of the command table. */
enum {
    FOR_PLAN = 1 << 0,
    FOR_BUDGET = 1 << 1,
    FOR_RUN = 1 << 2,
    FOR_COMPARE = 1 << 3,
    FOR_EXPLAIN = 1 << 4,
    FOR_LIST = 1 << 5,
    FOR_PAIR = 1 << 6,
    FOR_REHEARSE = 1 << 7,
    FOR_START = FOR_RUN | FOR_PAIR | FOR_REHEARSE, /* what starts an executor */
    FOR_CALIBRATE = 1 << 8,
    FOR_SEARCH = 1 << 9,
    FOR_SWEEP = 1 << 10,
    FOR_GRID = 1 << 11,
    FOR_VALIDATE = 1 << 12,
    FOR_EXPORT = 1 << 13,
    FOR_CHECK = 1 << 14,
    FOR_LAYOUTS = FOR_SEARCH | FOR_SWEEP | FOR_GRID, /* what looks at many layouts */
    /* What asks about a model on machines. */
    FOR_QUESTION = FOR_PLAN | FOR_BUDGET | FOR_START | FOR_LAYOUTS | FOR_CHECK,
    FOR_ALL = (1 << 15) - 1,
};

/* What the text of a value must be. Paths: relative to the recipe that says them; OPTION_DATA_PATH
 * is a name where nothing makes it look like a file. */
enum option_type {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_DATA_PATH,
    OPTION_PATH,
    OPTION_NUMBER,
    OPTION_TOKENS,
    OPTION_BYTES,
    OPTION_FRACTION,
    OPTION_BYTES_OR_DATA, /* a size, or a data file as above */
    OPTION_BYTES_OR_PERCENT,
    OPTION_NAME,
    OPTION_PROFILE, /* of routing */
    OPTION_AMOUNT,  /* of tokens: OPTION_TOKENS, or a number such as 1e12 */
};

struct option_info {
    const char *name;
    const char *value; /* what help calls the value; NULL: a flag */
    unsigned commands; /* FOR_... */
    enum option_type type;
    bool in_recipe;           /* never an option that names a file to write */
    char letter;              /* short form, 0: none */
    int64_t min, max;         /* OPTION_NUMBER, OPTION_TOKENS */
    unsigned lists;           /* FOR_...: commands that take several values, with commas */
    const char *const *names; /* OPTION_NAME, up to a NULL */
    const char *help;
};
extern const struct option_info option_infos[OPTION_COUNT];

struct set_entry {
    const char *key, *value;
    struct pos at;
};
enum { OPTIONS_MAX_SET = 128, OPTIONS_MAX_ARGUMENTS = 4, OPTION_ITEMS_MAX = 256 };

struct model;

struct options {
    const char *value[OPTION_COUNT]; /* NULL: not given; "" for a flag */
    struct pos at[OPTION_COUNT];
    int set_count;
    struct set_entry set[OPTIONS_MAX_SET];
    int argument_count;
    const char *argument[OPTIONS_MAX_ARGUMENTS];
    struct pool pool;
    struct tree recipe;
    bool recipe_failed; /* what it would have said is not known */
    /* Words behind `--`, of commands that take a line; they are not parsed. */
    int line_count;
    const char *const *line;
    const struct model *model; /* in the place of --model; NULL: none */
};

struct command;

/* Parses argv after the subcommand's name, then the recipe it names. -1 when the words make no
 * sense; faulty values and recipes are errors in reterr too, but leave the rest to be judged, so
 * that all faults show at once. Released with options_done in both cases. */
int options_parse(const struct command *command, int argc, char **argv, struct options *ret,
                  struct diag_list *reterr);
void options_done(struct options *options);

/* words.c: an error for every word that is no option of the command. */
int options_check_words(const struct command *command, int argc, char **argv,
                        struct diag_list *reterr);

/* Keys of --set that are options of their own too: --tp 2. */
enum { OPTION_DEGREES = 6 };
extern const char *const option_degrees[OPTION_DEGREES];

/* The usage, options and explanation of one command. */
void options_help(const struct command *command, FILE *out);

/* recipe.c: adds the recipe's options where the command line has none. */
int options_read_recipe(struct options *options, const char *name, struct diag_list *reterr);
/* One key of a recipe's map; relative paths are relative to the file at `path`. */
void options_read_entry(struct options *options, const char *path, const struct node *node,
                        struct diag_list *reterr);

/* Adds key=value; a second, different value for the same key is an error showing both, unless the
 * first came from the command line and this one comes from a recipe. */
int options_add_set(struct options *options, const char *key, const char *value, struct pos at,
                    bool from_recipe, struct diag_list *reterr);

/* Row of option_infos by long name; OPTION_COUNT when there is none. */
enum option_id option_find(const char *name);
/* The nearest option name that these commands take (recipe_only: that a recipe may hold), or NULL.
 */
const char *option_nearest(const char *name, unsigned command_bits, bool recipe_only);

/* values.c: one error for each value that is not of its option's type or range. */
void options_check_values(const struct options *options, unsigned command_bits,
                          struct diag_list *reterr);

/* One option as a value; `otherwise` where it is not given. Values were checked when parsed. */
int64_t option_number(const struct options *options, enum option_id id, int64_t otherwise);
uint64_t option_size(const struct options *options, enum option_id id, uint64_t otherwise);
double option_amount(const struct options *options, enum option_id id, double otherwise);
double option_fraction(const struct options *options, enum option_id id, double otherwise);
/* How many values a list has; at most OPTION_ITEMS_MAX where it was judged to be right. */
int option_count(const struct options *options, enum option_id id);
/* The index-th of an option's values as text; NULL behind the last one. `size` bytes at ret. */
const char *option_item(const struct options *options, enum option_id id, int index, char *ret,
                        size_t size);
/* Index in option_infos[id].names. */
int option_row(const struct options *options, enum option_id id, int otherwise);

static inline bool options_has(const struct options *options, enum option_id id)
{
    return options->value[id] != NULL;
}

#endif
