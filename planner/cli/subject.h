/* subject.h - what a command is about: a plan read from a file, or one derived from options, with
 * the planner's prediction for it. Turns the text of options into values; knows nothing of output.
 */
#ifndef RANKFIT_PLANNER_CLI_SUBJECT_H
#define RANKFIT_PLANNER_CLI_SUBJECT_H

#include "planner/cli/options.h"
#include "planner/derive/derive.h"
#include "planner/report/prediction.h"

struct subject {
    struct prediction prediction;
    bool derived; /* answer is there */
    struct question question;
    struct answer answer;
};

/* From the first argument when there is one (a plan file; options of a question beside it are an
 * error), else from the options. Every fault at once; NULL on errors. Freed with subject_free. */
struct subject *subject_open(const struct options *options, struct diag_list *reterr);
struct subject *subject_open_plan(const char *path, struct diag_list *reterr);
void subject_free(struct subject *subject);

/* values.c: one option as a value. Absent options leave *ret alone and return 0; a wrong value is
 * an error naming option, value and form. */
int option_int(const struct options *options, enum option_id id, int64_t min, int64_t max,
               int64_t *ret, struct diag_list *reterr);
int option_tokens(const struct options *options, enum option_id id, uint64_t max, uint64_t *ret,
                  struct diag_list *reterr);
int option_bytes(const struct options *options, enum option_id id, uint64_t *ret,
                 struct diag_list *reterr);
int option_fraction(const struct options *options, enum option_id id, double *ret,
                    struct diag_list *reterr);
/* One of `names`; *ret its index. */
int option_name(const struct options *options, enum option_id id, const char *const *names,
                size_t count, int *ret, struct diag_list *reterr);

#endif
