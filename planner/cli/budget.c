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
    json_t *document = report_budget_json(&subject->prediction, rank);
    if (output_file(options, document, reterr) != 0)
        status = EXIT_SYSTEM;
    if (options_has(options, OPTION_JSON))
        output_json(document);
    else
        report_budget_text(&subject->prediction, rank, output_style());
    json_decref(document);
    return status;
}

int command_budget(const struct options *options, struct diag_list *reterr)
{
    if (output_check(options, reterr) != 0)
        return EXIT_SYSTEM;
    struct subject *subject = subject_open(options, reterr);
    if (!subject)
        return EXIT_QUESTION;
    int64_t rank = -1;
    int status = EXIT_QUESTION;
    if (option_int(options, OPTION_RANK, 0, subject->prediction.plan.gpus - 1, &rank, reterr) == 0)
        status = show(options, subject, (int)rank, reterr);
    subject_free(subject);
    return status;
}
