/* calibration.h - the executor's other errand: no plan is run, the machine is measured, and rank
 * 0's points become a file. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_CALIBRATION_H
#define RANKFIT_EXECUTOR_RUNTIME_CALIBRATION_H

#include "executor/runtime/program.h"

/* backend: "host" or "cuda". tell: what is measured next, or NULL. Called by all ranks; -1 with a
 * diagnostic, and no file. */
int calibration_run(const struct machine *machine, const char *backend, const char *path,
                    bool quick, void (*tell)(const char *what), struct diag_list *reterr);

#endif
