/* program.h - a program of the executor: one rank of a plan, from the command line to the
 * measurement, whatever it computes on. program.c and the mains are the only files of the executor
 * that print or exit. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_PROGRAM_H
#define RANKFIT_EXECUTOR_RUNTIME_PROGRAM_H

#include "executor/calibrate/calibrate.h"
#include "executor/fabric/rehearsal/fabric_rehearsal.h"
#include "executor/runtime/record.h"
#include "executor/trace/trace.h"

/* What the ranks compute on and talk through. */
struct machine {
    struct fabric *fabric;
    struct backend *backend;
    struct record_machine record;
    struct observers observers;              /* of the steps */
    const struct rehearsal_world *rehearsal; /* NULL: all ranks are there */
    struct calibrate_device device;          /* zeroed where there is none */
    uint64_t memory_limit;                   /* of this rank; 0: none */
    uint64_t live_limit; /* out of open: what this rank's tensors may hold; 0: no limit */
};

struct program {
    const char *name;    /* "rankfit-host" */
    const char *where;   /* it runs the step, for --help */
    const char *backend; /* "host", as capabilities and measurements name it */
    /* Fills in the backend and the record, and may put another fabric in the place of the one that
     * started the ranks. -1 with a diagnostic. */
    int (*open)(struct machine *machine, struct diag_list *reterr);
    /* From here on what runs on the device is noted; until here it was, and belongs to the trace.
     * NULL where the rank's thread does everything itself. */
    int (*trace_begin)(struct machine *machine, struct trace *trace, struct diag_list *reterr);
    int (*trace_end)(struct machine *machine, struct trace *trace, struct diag_list *reterr);
    /* When `errors` may come of a lack of memory: who holds what of it, in words of at most `size`
     * bytes. May be NULL. */
    bool (*tell_memory)(const struct machine *machine, const struct diag_list *errors,
                        uint64_t arena_bytes, char *ret, size_t size);
    /* Lets go of what open made beside backend and fabric; may be NULL. */
    void (*close)(struct machine *machine);
};

/* Starts MPI, runs, ends it. Returns the exit status. */
int program_main(const struct program *program, int argc, char **argv);

#endif
