/* program.h - a program of the executor: one rank of a plan, from the command line to the
 * measurement, whatever it computes on. program.c and the mains are the only files of the executor
 * that print or exit. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_PROGRAM_H
#define RANKFIT_EXECUTOR_RUNTIME_PROGRAM_H

#include "executor/calibrate/calibrate.h"
#include "executor/runtime/record.h"

/* What the ranks compute on and talk through. */
struct machine {
    struct fabric *fabric;
    struct backend *backend;
    struct record_machine record;
};
    struct calibrate_device device; /* zeroed where there is none */

struct program {
    const char *name;    /* "rankfit-host" */
    const char *where;   /* it runs the step, for --help */
    const char *backend; /* "host", as capabilities and measurements name it */
    /* Fills in the backend and the record, and may put another fabric in the place of the one that
     * started the ranks. -1 with a diagnostic. */
    int (*open)(struct machine *machine, struct diag_list *reterr);
    /* Lets go of what open made beside backend and fabric; may be NULL. */
    void (*close)(struct machine *machine);
};

/* Starts MPI, runs, ends it. Returns the exit status. */
int program_main(const struct program *program, int argc, char **argv);

#endif
