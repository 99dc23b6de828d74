/* options.h - the command line of an executor: PLAN --measurement FILE and what may follow. Options
 * are never abbreviated; `rankfit run` writes this command line, people seldom do. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_OPTIONS_H
#define RANKFIT_EXECUTOR_RUNTIME_OPTIONS_H

#include "base/diag.h"
#include "executor/runtime/data.h"

#include <stdbool.h>

struct run_options {
    const char *plan, *measurement, *data, *dump, *weights, *save, *replay, *replay_rows, *trace;
    enum data_format data_format;
    int64_t steps, seed, stall_seconds;
    int64_t rank; /* to rehearse; -1: none */
    int64_t
        memory_limit; /* bytes of a device; of a `host`, for all ranks of the machine; 0: none */
    const char *calibrate; /* where points go; NULL: a plan is run */
    bool quick;
    bool help;
};

/* -1 with a diagnostic for every fault. Texts point into argv. */
int run_options_parse(int argc, char *const *argv, struct run_options *ret,
                      struct diag_list *reterr);

/* What follows the program's name, and what each option means. */
extern const char run_options_synopsis[], run_options_usage[];

#endif
