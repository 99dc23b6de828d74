/* rankfit search */
#include "planner/search/search.h"

#include "planner/cli/command.h"
#include "planner/cli/output.h"
#include "planner/cli/progress.h"
#include "planner/cli/subject.h"
#include "planner/report/json.h"
#include "planner/report/search_report.h"

#include <stdlib.h>

struct quest {
    struct subject *subject;
    struct search_options options;
    struct search_result result;
    struct answer derived; /* where it is the same GPUs; of several, on the next fewer */
    struct search_report report;
};

static bool looks_at_worlds(enum objective objective)
{
    return objective == OBJECTIVE_GPUS || objective == OBJECTIVE_GPU_HOURS;
}

/* Where nothing is legal, on any number of GPUs if several were looked at, derivation says what is
 * wrong with the largest. */
static bool tell_illegal(struct quest *quest, struct diag_list *reterr)
{
    const struct search_result *result = &quest->result;
    int before = reterr->errors;
    if (result->any || (looks_at_worlds(quest->options.objective) && result->layouts > 0))
        return false;
    return derive(&quest->subject->question, &quest->derived, reterr) != 0 ||
           reterr->errors > before;
}

static void options_of(const struct options *options, struct search_options *ret)
{
    *ret = (struct search_options){
        .objective = (enum objective)option_row(options, OPTION_OBJECTIVE, OBJECTIVE_THROUGHPUT),
        .threads = (int)option_number(options, OPTION_THREADS, 0),
        .everything = true,
        .settled = true,
        .front = options_has(options, OPTION_PARETO),
    };
}

/* The derived layout first: what fits is no slower than it. */
static void derive_first(struct quest *quest, struct diag_list *reterr)
{
    const struct candidate *derived = &quest->derived.recommended;
    struct diag_list discarded = { .count = 0 };
    int rc = derive(&quest->subject->question, &quest->derived, &discarded);
    diag_keep_no_memory(reterr, &discarded);
    if (rc != 0)
        return;
    quest->report.derived = derived;
    if (derived->verdict == VERDICT_FITS)
        quest->options.worth_seconds = derived->slowest_seconds * (1 + 1e-9);
}

/* Host memory only where it was asked for or nothing fits without; of several numbers of GPUs the
 * fewest with it are told apart. */
static int search(struct quest *quest, struct diag_list *reterr)
{
    const struct question *question = &quest->subject->question;
    bool worlds = looks_at_worlds(quest->options.objective);
    int (*const run_search)(const struct question *, const struct search_options *,
                            struct search_result *, struct diag_list *) =
        worlds ? search_worlds : search_run;
    int rc = run_search(question, &quest->options, &quest->result, reterr);
    bool fits = quest->result.any && quest->result.best.verdict == VERDICT_FITS;
    if (rc != 0 || (!worlds && !quest->result.possible) ||
        choice_is_fixed(&question->fixed, "offload") ||
        (fits && quest->options.objective != OBJECTIVE_GPUS))
        return rc;
    struct search_options options = quest->options;
    struct search_result *with_host = calloc(1, sizeof *with_host);
    struct question fewer = *question;
    if (!with_host)
        return diag_no_memory(reterr);
    options.host_memory = options.fits_only = true;
    options.worth_seconds = 0;
    fewer.gpus = fits ? quest->result.gpus - 1 : question->gpus;
    if (fewer.gpus > 0)
        rc = run_search(&fewer, &options, with_host, reterr);
    if (rc == 0 && with_host->any && fits)
        quest->report.gpus_with_host = with_host->gpus;
    else if (rc == 0 && with_host->any)
        quest->result = *with_host;
    free(with_host);
    return rc;
}

/* That nothing fits is proved soon; the smallest of what does not is what derivation found. */
static void take_derived(struct quest *quest)
{
    if (quest->result.any || !quest->report.derived)
        return;
    quest->result.any = true;
    quest->result.gpus = quest->subject->question.gpus;
    quest->result.best = *quest->report.derived;
}

static int run(struct quest *quest, struct diag_list *reterr)
{
    bool worlds = looks_at_worlds(quest->options.objective);
    struct progress progress;
    int rc;
    quest->report.derived_over_best = -1;
    progress_start(&progress, "searching");
    quest->options.progress = progress_tell;
    quest->options.context = &progress;
    if (!worlds)
        derive_first(quest, reterr);
    quest->options.no_smallest =
        quest->report.derived && quest->options.objective == OBJECTIVE_THROUGHPUT;
    rc = search(quest, reterr);
    if (rc == 0 && !worlds && quest->result.layouts > 0)
        take_derived(quest);
    const struct candidate *derived = quest->report.derived;
    if (rc == 0 && derived && quest->result.fastest_seconds > 0)
        quest->report.derived_over_best = quest->result.fastest_seconds / derived->slowest_seconds;
    progress_end(&progress);
    return reterr->no_memory ? -1 : rc;
}

/* What derivation says of the largest number of GPUs that is too small. */
static void ask_fewer(struct quest *quest, struct diag_list *reterr)
{
    struct question q = quest->subject->question;
    struct diag_list discarded = { .count = 0 };
    q.gpus = quest->result.fewer;
    q.policy = POLICY_ARTICLES; /* which uses no host memory */
    if (quest->options.objective != OBJECTIVE_GPUS || q.gpus == 0)
        return;
    if (derive(&q, &quest->derived, &discarded) == 0 &&
        quest->derived.recommended.verdict != VERDICT_FITS)
        quest->report.fewer = &quest->derived;
    diag_keep_no_memory(reterr, &discarded);
}

static int show(const struct options *options, struct quest *quest, struct diag_list *reterr)
{
    if (!options_has(options, OPTION_JSON)) {
        report_search_text(&quest->report, output_style());
        return 0;
    }
    struct json *document = report_search_json(&quest->report);
    int ret = output_json(document, reterr);
    json_free(document);
    return ret;
}

static int write_plan(const struct options *options, const struct quest *quest,
                      struct diag_list *reterr)
{
    if (!options_has(options, OPTION_OUTPUT) || !quest->result.any)
        return 0;
    struct json *document = report_plan_file(&quest->subject->prediction, NULL);
    int ret = output_file(options, document, reterr);
    json_free(document);
    return ret;
}

static int answer(const struct options *options, struct quest *quest, struct diag_list *reterr)
{
    struct subject *subject = quest->subject;
    const struct search_result *result = &quest->result;
    if (run(quest, reterr) != 0)
        return EXIT_SYSTEM;
    if (tell_illegal(quest, reterr))
        return EXIT_QUESTION;
    if (!result->any && !looks_at_worlds(quest->options.objective))
        return EXIT_NO;
    if (result->any) {
        ask_fewer(quest, reterr);
        subject->question.gpus = result->gpus;
        if (subject_take(subject, &result->best, reterr) != 0 || reterr->no_memory)
            return EXIT_SYSTEM;
    }
    quest->report.prediction = &subject->prediction;
    quest->report.result = result;
    quest->report.objective = quest->options.objective;
    quest->report.tokens = option_amount(options, OPTION_TOKENS_OF_TRAINING, 0);
    if (show(options, quest, reterr) != 0 || write_plan(options, quest, reterr) != 0)
        return EXIT_SYSTEM;
    return result->any && result->best.verdict != VERDICT_DOES_NOT_FIT ? EXIT_ANSWERED : EXIT_NO;
}

/* A micro-batch that was said is no other. */
static void fix_micro_batch(const struct options *options, struct question *question)
{
    struct diag_list ignored = { .count = 0 };
    if (options_has(options, OPTION_MICRO_BATCH) &&
        !choice_is_fixed(&question->fixed, "micro_batch"))
        (void)choice_set(&question->fixed, "micro_batch", options->value[OPTION_MICRO_BATCH],
                         options->at[OPTION_MICRO_BATCH], &ignored);
}

static int check_tokens(const struct options *options, enum objective objective,
                        struct diag_list *reterr)
{
    if (objective != OBJECTIVE_GPU_HOURS || options_has(options, OPTION_TOKENS_OF_TRAINING))
        return 0;
    diag_error(reterr, options->at[OPTION_OBJECTIVE], "objective gpu-hours of how many tokens?");
    return diag_hint(reterr, "--tokens 1e12, or the key tokens of a recipe");
}

int command_search(const struct options *options, struct diag_list *reterr)
{
    if (output_check(options, reterr) != 0)
        return EXIT_SYSTEM;
    struct quest *quest = calloc(1, sizeof *quest);
    if (!quest) {
        diag_no_memory(reterr);
        return EXIT_SYSTEM;
    }
    int status = EXIT_QUESTION;
    options_of(options, &quest->options);
    quest->subject = subject_open_question(options, reterr);
    if (check_tokens(options, quest->options.objective, reterr) == 0 && quest->subject) {
        fix_micro_batch(options, &quest->subject->question);
        status = answer(options, quest, reterr);
    }
    subject_free(quest->subject);
    free(quest);
    return status;
}
