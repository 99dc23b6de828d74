/* question.h - whether a plan can be run as it was started: the world's size and what the backend
 * runs. Asked before anything is reserved. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_QUESTION_H
#define RANKFIT_EXECUTOR_RUNTIME_QUESTION_H

#include "base/plan/plan.h"

/* -1 with everything that stands against running `plan` (of file `path`) on the host backend with
 * `world` ranks. */
int question_check_host(const struct plan *plan, const char *path, int world,
                        struct diag_list *reterr);

#endif
