/* shell.h - the commands of a shell script as words, after the expansions that need no shell:
 * quotes, line continuations, variables with defaults, arrays and whole-number arithmetic. Runs
 * nothing: the output of a command stays as it is written, and both branches of a condition are
 * read. */
#ifndef RANKFIT_PLANNER_LAUNCH_SHELL_H
#define RANKFIT_PLANNER_LAUNCH_SHELL_H

#include "base/diag.h"
#include "base/pool.h"

#include <stddef.h>

struct shell_word {
    const char *text;
    struct pos at;
    struct shell_word *next;
};

/* Words of one command. `#SBATCH` lines are commands whose first word is that. */
struct shell_command {
    size_t count;
    struct shell_word *first, *last;
    struct shell_command *next;
};

struct shell_variable {
    const char *name;
    struct shell_word *first, *last; /* several in an array */
    struct shell_variable *next;
};

struct shell_script {
    struct pool pool;
    struct shell_command *first, *last;
    struct shell_variable *variables;
    struct pos conditional; /* of the first condition; line 0: none */
    struct pos unset;       /* of the first array that the file uses and does not set */
    const char *unset_name;
};

/* 0, or -1 with an error (an open quote or bracket, no memory). Released with shell_done in both
 * cases. `name` appears in positions. */
int shell_read(const char *name, const char *text, size_t bytes, struct shell_script *ret,
               struct diag_list *reterr);
/* The same for the words of one command line, which the shell has expanded already. */
int shell_take(const char *name, const char *const *words, size_t count, struct shell_script *ret,
               struct diag_list *reterr);
void shell_done(struct shell_script *script);

/* The text of a variable's first word; NULL: it is not set. */
const char *shell_variable(const struct shell_script *script, const char *name);

#endif
