/* progress.h - a line on the terminal that says how far something is, once it takes more than a
 * second. Nothing elsewhere: standard error must be a terminal. */
#ifndef RANKFIT_PLANNER_CLI_PROGRESS_H
#define RANKFIT_PLANNER_CLI_PROGRESS_H

#include <stdbool.h>

struct progress {
    const char *what; /* "searching" */
    bool terminal, shown;
    double started, last;
};
void progress_start(struct progress *progress, const char *what);
/* share: 0..1. Fits search_options.progress. */
void progress_tell(void *progress, double share);
/* Takes the line away again. */
void progress_end(struct progress *progress);

#endif
