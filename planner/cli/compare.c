/* rankfit compare */
#include "planner/compare/compare.h"
#include "planner/cli/command.h"
#include "planner/cli/compare_log.h"
#include "planner/cli/output.h"
#include "planner/cli/subject.h"
#include "planner/report/comparison_text.h"

#include <stdlib.h>

/* --tolerance widens or narrows arena and device; items stay at 5 % or follow a wider one. */
static struct tolerances read_tolerances(const struct options *options)
{
    struct tolerances ret = tolerances_default();
    if (options_has(options, OPTION_TOLERANCE)) {
        double peak = option_fraction(options, OPTION_TOLERANCE, ret.arena);
        ret.arena = ret.device = peak;
        ret.item = peak > ret.item ? peak : ret.item;
    }
    ret.time = option_fraction(options, OPTION_TIME_TOLERANCE, ret.time);
    return ret;
}

static int show(const struct options *options, const struct comparison *comparison,
                struct diag_list *reterr)
{
    int status = comparison->within ? EXIT_ANSWERED : EXIT_NO;
    struct json *document = comparison_to_json(comparison);
    if (output_file(options, document, reterr) != 0)
        status = EXIT_SYSTEM;
    if (!options_has(options, OPTION_JSON))
        report_comparison_text(comparison, output_style());
    else if (output_json(document, reterr) != 0)
        status = EXIT_SYSTEM;
    json_free(document);
    return status;
}

static int compare_measurement(const struct options *options, const struct subject *subject,
                               const struct tolerances *tolerances, struct diag_list *reterr)
{
    struct measurement measurement = { 0 };
    struct comparison comparison;
    int status = EXIT_QUESTION;
    if (measurement_load(options->argument[1], &measurement, reterr) == 0 &&
        comparison_compute(&subject->prediction, &measurement, tolerances, &comparison, reterr) ==
            0) {
        status = show(options, &comparison, reterr);
        comparison_done(&comparison);
    }
    measurement_done(&measurement);
    return status;
}

/* A measurement of rankfit's, or the log of another engine. */
static int compare_with(const struct options *options, const struct subject *subject,
                        const struct tolerances *tolerances, struct diag_list *reterr)
{
    size_t bytes = 0;
    char *text = compare_log_load(options->argument[1], &bytes, reterr);
    if (!text)
        return EXIT_QUESTION;
    int status = compare_log_is_document(text, bytes)
                     ? compare_measurement(options, subject, tolerances, reterr)
                     : compare_log(options, subject, text, bytes, tolerances, reterr);
    free(text);
    return status;
}

int command_compare(const struct options *options, struct diag_list *reterr)
{
    struct tolerances tolerances = read_tolerances(options);
    if (output_check(options, reterr) != 0)
        return EXIT_SYSTEM;
    struct subject *subject = subject_open_plan(options->argument[0], reterr);
    if (!subject)
        return EXIT_QUESTION;
    int status = compare_with(options, subject, &tolerances, reterr);
    subject_free(subject);
    return status;
}
