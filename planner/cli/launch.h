/* launch.h - starting the executor: which program, through which launcher, and what became of it.
 * Knows nothing of plans. */
#ifndef RANKFIT_PLANNER_CLI_LAUNCH_H
#define RANKFIT_PLANNER_CLI_LAUNCH_H

#include "base/diag.h"

#include <stdbool.h>
#include <stddef.h>

/* The launcher that started this very process (mpirun, srun), if any. size 0: it does not say. */
struct outer_launcher {
    bool present;
    int rank, size;
};
struct outer_launcher launch_outer(void);

/* The path of rankfit-BACKEND: $RANKFIT_LIBEXEC, beside this program, the installed libexecdir. */
int launch_find_executor(const char *backend, char *ret, size_t size, struct diag_list *reterr);
/* The path of mpirun on $PATH. */
int launch_find_mpirun(char *ret, size_t size, struct diag_list *reterr);

/* Where Open MPI puts its files, so that none is left where it is killed (NULL: where it likes),
 * and whether it may run as root. */
struct launch_place {
    const char *session, *shared_memory; /* directories */
    bool allow_root;
};

/* Runs argv (NULL at its end, argv[0] a path) with its standard output joined to our standard
 * error, waits, and passes requests to end (base/signals.h, which the caller holds) on; a child
 * that they do not end is killed. -1 when it could not be started. */
struct launch_end {
    int status;       /* exit status, 128 + signal when it was killed */
    int interruption; /* the first signal passed on, 0: none */
};
int launch_and_wait(char *const *argv, const struct launch_place *place, struct launch_end *ret,
                    struct diag_list *reterr);

#endif
