/* question.h - whether a plan can be run as it was started: the world's size, what the backend
 * runs, where results are to go. Asked before anything is reserved. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_QUESTION_H
#define RANKFIT_EXECUTOR_RUNTIME_QUESTION_H

#include "base/plan/plan.h"

/* -1 with everything that stands against running `plan` (of file `path`) on the backend of that
 * name with `world` ranks. */
int question_check(const char *backend, const struct plan *plan, const char *path, int world,
                   struct diag_list *reterr);

/* -1 when no file can be made in the folder of `path`: better said before a run than after it. */
int question_check_output(const char *path, struct diag_list *reterr);

#endif
