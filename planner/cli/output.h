/* output.h - where results go: standard output, and the file of -o. Knows nothing of what is
 * written. */
#ifndef RANKFIT_PLANNER_CLI_OUTPUT_H
#define RANKFIT_PLANNER_CLI_OUTPUT_H

#include "base/json.h"
#include "planner/cli/options.h"
#include "planner/report/text.h"

/* Called before long work: -1 when the file of -o could not be written (its directory is missing or
 * closed to us, or it is something else than a file). 0 without -o. */
int output_check(const struct options *options, struct diag_list *reterr);
/* The same for another option that names a file to write. */
int output_check_option(const struct options *options, enum option_id id, struct diag_list *reterr);

/* Writes the document to the file of -o, whole or not at all; 0 without -o. */
int output_file(const struct options *options, const struct json *document,
                struct diag_list *reterr);

/* Writes the document to standard output, indented, key order kept; nothing of one that could not
 * be built whole. */
int output_json(const struct json *document, struct diag_list *reterr);

struct text_style output_style(void);

#endif
