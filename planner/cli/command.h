/* command.h - the subcommands of rankfit: one row each feeds dispatch, help and the option table.
 * A subcommand fills an outcome; only main.c prints diagnostics and exits. */
#ifndef RANKFIT_PLANNER_CLI_COMMAND_H
#define RANKFIT_PLANNER_CLI_COMMAND_H

#include "base/diag.h"
#include "planner/cli/options.h"

/* The exit statuses of the contract. */
enum {
    EXIT_ANSWERED = 0, /* answered: fits or tight, within tolerance, ran */
    EXIT_NO = 1,       /* the answer is no */
    EXIT_QUESTION = 2, /* the question is wrong */
    EXIT_SYSTEM = 3,   /* the run or the system failed */
};

struct command {
    const char *name;
    const char *arguments; /* of the usage line, "PLAN|options" */
    int min_arguments, max_arguments;
    const char *summary; /* one line for `rankfit --help` */
    const char *about;   /* the paragraph of `rankfit NAME --help` */
    /* Writes the result to stdout; diagnostics, warnings too, go to reterr. Returns EXIT_.... */
    int (*run)(const struct options *options, struct diag_list *reterr);
    bool takes_line; /* words behind `--` are the command line of another program */
};
extern const struct command commands[];
extern const size_t command_count;

/* NULL when there is none of that name. */
const struct command *command_find(const char *name);
/* The bit of a command in option_info.commands. */
unsigned command_bit(const struct command *command);

int command_plan(const struct options *options, struct diag_list *reterr);
int command_budget(const struct options *options, struct diag_list *reterr);
int command_run(const struct options *options, struct diag_list *reterr);
int command_compare(const struct options *options, struct diag_list *reterr);
int command_explain(const struct options *options, struct diag_list *reterr);
int command_pair(const struct options *options, struct diag_list *reterr);
int command_calibrate(const struct options *options, struct diag_list *reterr);
int command_list(const struct options *options, struct diag_list *reterr);
int command_rehearse(const struct options *options, struct diag_list *reterr);
int command_search(const struct options *options, struct diag_list *reterr);
int command_sweep(const struct options *options, struct diag_list *reterr);
int command_grid(const struct options *options, struct diag_list *reterr);
int command_check(const struct options *options, struct diag_list *reterr);
int command_export(const struct options *options, struct diag_list *reterr);
int command_validate(const struct options *options, struct diag_list *reterr);

#endif
