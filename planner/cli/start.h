/* start.h - one plan file carried out once by an executor: which programs, which words, what became
 * of it. Knows nothing of what is predicted or shown. */
#ifndef RANKFIT_PLANNER_CLI_START_H
#define RANKFIT_PLANNER_CLI_START_H

#include "base/layout/capability.h"
#include "base/plan/plan.h"
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
    /* Of our own, for temporary files and for Open MPI's; "" where there is none. */
    char directory[START_PATH], shared_memory[START_PATH];
};

/* Finds the programs; mpirun only where no launcher has started us. */
int start_find(struct start *start, struct diag_list *reterr);

/* Whether as many ranks, and as this user, may be started here: a diagnostic where not. Needs
 * options, outer, rehearses and ranks. */
int start_check(const struct start *start, struct diag_list *reterr);

/* Starts the ranks, waits, and returns EXIT_...: 0 and 2 of the executor are passed on, all else is
 * a failed run with a diagnostic. */
int start_and_wait(const struct start *start, struct diag_list *reterr);

/* A plan for another engine is refused: executors run engine rankfit. */
int start_check_engine(const struct plan *plan, const struct options *options,
                       struct diag_list *reterr);

/* Files that the options want read must be readable. */
int start_check_files(const struct options *options, struct diag_list *reterr);

/* Makes start->directory under $TMPDIR, and start->shared_memory where there is a /dev/shm. Those
 * of runs that were killed are removed on the way. */
int start_directory(struct start *start, struct diag_list *reterr);
/* Removes both with all that is in them, and temporary files of a killed executor next to its
 * outputs. */
void start_remove_directory(const struct start *start);
/* A path of START_PATH bytes. */
int start_join(char *ret, const char *directory, const char *name, struct diag_list *reterr);

#endif
