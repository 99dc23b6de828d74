/* compare_log.h - rankfit compare with the log of another engine in the place of a measurement. */
#ifndef RANKFIT_PLANNER_CLI_COMPARE_LOG_H
#define RANKFIT_PLANNER_CLI_COMPARE_LOG_H

#include "planner/cli/subject.h"
#include "planner/compare/compare.h"

/* The text of a file; NULL with an error. Freed by the caller. */
char *compare_log_load(const char *path, size_t *ret_bytes, struct diag_list *reterr);
/* Whether the text is a document of rankfit's rather than a log. */
bool compare_log_is_document(const char *text, size_t bytes);

/* Compares and shows; the exit status. */
int compare_log(const struct options *options, const struct subject *subject, const char *text,
                size_t bytes, const struct tolerances *tolerances, struct diag_list *reterr);

#endif
