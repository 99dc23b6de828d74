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
    uint64_t memory_limit; /* that stands for memory_bytes; 0: none is asked for */
};

/* From the first argument when there is one (a plan file; options of a question beside it are an
 * error), else from the options. Every fault at once; NULL on errors. Freed with subject_free. */
struct subject *subject_open(const struct options *options, struct diag_list *reterr);
struct subject *subject_open_plan(const char *path, struct diag_list *reterr);
/* The question alone: nothing is derived yet. */
struct subject *subject_open_question(const struct options *options, struct diag_list *reterr);
/* Makes a candidate for the question's GPUs the answer, with its prediction. */
int subject_take(struct subject *subject, const struct candidate *candidate,
                 struct diag_list *reterr);
void subject_free(struct subject *subject);

#endif
