/* fault.h - faults on request, for tests of how a run ends. The environment's RANKFIT_FAULT is
 *
 *     KIND:PHASE[:rank=R][:step=S]    or    alloc:N[:rank=R]
 *
 * and strikes rank R (0) when it enters PHASE of step S (1); unset or empty, nothing happens.
 *
 *     kind    what happens                      phase      entered
 *     kill    the rank gets SIGKILL             start      before anything is reserved (no step)
 *     segv    ... SIGSEGV                       forward    at each micro-batch
 *     term    ... SIGTERM                       loss       at each micro-batch
 *     fail    the phase fails with an error     backward   at each micro-batch
 *     stall   the rank does nothing any more    reduce     once a step
 *     alloc   its Nth take from the arena is    optimizer  once a step
 *             refused, counted from the dry     save       before results are written, after each
 *             pass on                                      step; weights of --save: one step on
 */
#ifndef RANKFIT_EXECUTOR_RUNTIME_FAULT_H
#define RANKFIT_EXECUTOR_RUNTIME_FAULT_H

#include "base/diag.h"
#include "executor/fabric/progress.h"

#include <stdint.h>

enum fault_kind {
    FAULT_NONE,
    FAULT_KILL,
    FAULT_SEGV,
    FAULT_TERM,
    FAULT_FAIL,
    FAULT_STALL,
    FAULT_ALLOC,
    FAULT_KIND_COUNT
};

struct fault {
    enum fault_kind kind;
    enum run_phase phase;
    int64_t rank, step;
    int64_t take; /* FAULT_ALLOC: which, from 1 */
};

/* text: as above; NULL or empty is no fault. -1 with a diagnostic of what can be said. */
int fault_parse(const char *text, struct fault *ret, struct diag_list *reterr);

/* Strikes when this is the place. -1 with a diagnostic for FAULT_FAIL, else 0, or no return. */
int fault_strike(const struct fault *fault, int rank, enum run_phase phase, int step,
                 struct diag_list *reterr);

#endif
