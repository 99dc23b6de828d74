/* run.h - a plan carried out once, by all its ranks or by one that is rehearsed, with what was
 * measured beside what was predicted. */
#ifndef RANKFIT_PLANNER_CLI_RUN_H
#define RANKFIT_PLANNER_CLI_RUN_H

#include "planner/cli/options.h"
#include "planner/cli/subject.h"

/* choose: which rank of the plan is rehearsed, -1 with a diagnostic; NULL: all run. EXIT_... */
int run_once(const struct options *options,
             int (*choose)(const struct options *options, const struct prediction *prediction,
                           struct diag_list *reterr),
             struct diag_list *reterr);

#endif
