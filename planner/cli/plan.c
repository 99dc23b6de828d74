/* rankfit plan */
#include "planner/cli/command.h"
#include "planner/cli/output.h"
#include "planner/cli/subject.h"
#include "planner/report/json.h"
#include "planner/report/text.h"

static int write_plan(const struct options *options, const struct subject *subject,
                      struct diag_list *reterr)
{
    if (!options_has(options, OPTION_OUTPUT))
        return 0;
    struct json *document = report_plan_file(&subject->prediction, &subject->answer);
    int ret = output_file(options, document, reterr);
    json_free(document);
    return ret;
}

/* Before the report, so that they are read first. */
static void show_warnings(struct diag_list *list)
{
    if (list->errors > 0)
        return;
    diag_list_print(stderr, list);
    list->count = 0;
}

int command_plan(const struct options *options, struct diag_list *reterr)
{
    if (output_check(options, reterr) != 0)
        return EXIT_SYSTEM;
    struct subject *subject = subject_open(options, reterr);
    if (!subject)
        return EXIT_QUESTION;
    const struct prediction *prediction = &subject->prediction;
    int status = prediction->verdict == VERDICT_DOES_NOT_FIT ? EXIT_NO : EXIT_ANSWERED;
    if (write_plan(options, subject, reterr) != 0)
        status = EXIT_SYSTEM;
    if (options_has(options, OPTION_JSON)) {
        struct json *document = report_plan_json(prediction, &subject->answer, reterr);
        if (output_json(document, reterr) != 0)
            status = EXIT_SYSTEM;
        json_free(document);
    } else {
        show_warnings(reterr);
        report_plan_text(prediction, &subject->answer, options_has(options, OPTION_WHY),
                         output_style());
    }
    subject_free(subject);
    return status;
}
