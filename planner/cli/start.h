/* start.h - one plan file carried out once by an executor: which programs, which words, what became
 * of it. Knows nothing of what is predicted or shown. */
#ifndef RANKFIT_PLANNER_CLI_START_H
#define RANKFIT_PLANNER_CLI_START_H

#include "base/layout/capability.h"
#include "planner/cli/launch.h"
#include "planner/cli/options.h"

enum { START_PATH = 4096 };

struct start {
    const struct options *options; /* data, steps and the like are passed on */
    enum backend backend;
    struct outer_launcher outer;
    int ranks;
    bool rehearses; /* one process, without a launcher, plays `rank` of them */
    int rank;
    char executor[START_PATH], mpirun[START_PATH];
    const char *plan, *measurement; /* paths */
    const char *dump;               /* NULL: none is wanted */
    const char *calibrate;          /* no plan: where points of the machine go */
    uint64_t memory_limit;          /* bytes; 0: none */
};

/* Finds the programs; mpirun only where no launcher has started us. */
int start_find(struct start *start, struct diag_list *reterr);

/* Starts the ranks, waits, and returns EXIT_...: 0 and 2 of the executor are passed on, all else is
 * a failed run with a diagnostic. */
int start_and_wait(const struct start *start, struct diag_list *reterr);

/* Files that the options want read must be readable. */
int start_check_files(const struct options *options, struct diag_list *reterr);

/* A directory of our own under $TMPDIR, for START_PATH bytes; a path in it. */
int start_directory(char *ret, struct diag_list *reterr);
/* Removes it with all that is in it: an executor that was killed leaves half-written files too. ""
 * is none. */
void start_remove_directory(const char *directory);
int start_join(char *ret, const char *directory, const char *name, struct diag_list *reterr);

#endif
