/* rankfit budget */
#include "planner/cli/command.h"
#include "planner/cli/output.h"
#include "planner/cli/subject.h"
#include "planner/report/json.h"
#include "planner/report/text.h"

static int show(const struct options *options, const struct subject *subject, int rank,
                struct diag_list *reterr)
{
    int status = EXIT_ANSWERED;
    struct json *document = report_budget_json(&subject->prediction, rank);
    if (output_file(options, document, reterr) != 0)
        status = EXIT_SYSTEM;
    if (options_has(options, OPTION_JSON))
        status = output_json(document, reterr) == 0 ? status : EXIT_SYSTEM;
    else if (report_budget_text(&subject->prediction, rank, output_style()) != 0)
        diag_no_memory(reterr);
    json_free(document);
    return status;
}

int command_budget(const struct options *options, struct diag_list *reterr)
{
    if (output_check(options, reterr) != 0)
        return EXIT_SYSTEM;
    struct subject *subject = subject_open(options, reterr);
    if (!subject)
        return EXIT_QUESTION;
    int rank = (int)option_number(options, OPTION_RANK, -1);
    int gpus = subject->prediction.plan.gpus;
    int status = EXIT_QUESTION;
    if (rank < gpus)
        status = show(options, subject, rank, reterr);
    else
        diag_error(reterr, options->at[OPTION_RANK], "there is no rank %d: the ranks are 0 to %d",
                   rank, gpus - 1);
    subject_free(subject);
    return status;
}
