/* rankfit run: starts the executor on a plan and shows what it measured beside what was predicted.
 */
#include "base/file.h"
#include "base/layout/capability.h"
#include "base/plan/measurement.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/cli/command.h"
#include "planner/cli/launch.h"
#include "planner/cli/output.h"
#include "planner/cli/subject.h"
#include "planner/compare/compare.h"
#include "planner/report/comparison_text.h"
#include "planner/report/json.h"
#include "planner/report/run_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, MAX_WORDS = 48, RANK_TEXT = 16 };

struct run {
    const struct options *options;
    struct subject *subject;
    struct outer_launcher outer;
    enum backend backend;
    char executor[PATH_ROOM], mpirun[PATH_ROOM];
    char directory[PATH_ROOM]; /* of our temporary files; "" where there is none */
    char plan_path[PATH_ROOM], measurement_path[PATH_ROOM];
    int child_status;
};

static int check_data(const struct options *options, struct diag_list *reterr)
{
    const char *data = options->value[OPTION_DATA];
    if (!data || access(data, R_OK) == 0)
        return 0;
    return diag_error(reterr, options->at[OPTION_DATA], "cannot read '%s': %s", data,
                      strerror(errno));
}

/* The backend, and whether it and the launcher can carry this plan. */
static int check_plan(struct run *run, struct diag_list *reterr)
{
    const struct prediction *prediction = &run->subject->prediction;
    const struct plan *plan = &prediction->plan;
    enum backend usual = plan->hardware.host ? BACKEND_HOST : BACKEND_CUDA;
    run->backend = (enum backend)option_row(run->options, OPTION_BACKEND, (int)usual);
    if (capability_check(run->backend, &plan->model, &plan->choices, reterr) != 0)
        return -1;
    if (run->outer.size > 0 && run->outer.size != plan->gpus) {
        diag_error(reterr, (struct pos){ 0 }, "the plan is for %d ranks, the launcher started %d",
                   plan->gpus, run->outer.size);
        return diag_hint(reterr, "start %d processes, or leave the launcher away", plan->gpus);
    }
    if (prediction->verdict == VERDICT_DOES_NOT_FIT)
        diag_warning(reterr, (struct pos){ 0 },
                     "the plan does not fit by its own prediction; it is tried all the same");
    return 0;
}

static int find_programs(struct run *run, struct diag_list *reterr)
{
    int status = launch_find_executor(backend_names[run->backend], run->executor,
                                      sizeof run->executor, reterr);
    if (!run->outer.present)
        status |= launch_find_mpirun(run->mpirun, sizeof run->mpirun, reterr);
    return status;
}

static int join(char *ret, const char *directory, const char *name, struct diag_list *reterr)
{
    int length = snprintf(ret, PATH_ROOM, "%s/%s", directory, name);
    if (length > 0 && length < PATH_ROOM)
        return 0;
    return diag_error(reterr, (struct pos){ 0 }, "the path of temporary files is too long");
}

/* Our own directory for the plan, where it was derived, and for the measurement. */
static int make_files(struct run *run, struct diag_list *reterr)
{
    const char *temporary = getenv("TMPDIR");
    char pattern[PATH_ROOM];
    if (join(pattern, temporary && temporary[0] ? temporary : "/tmp", "rankfit-XXXXXX", reterr))
        return -1;
    if (!mkdtemp(pattern))
        return diag_error(reterr, (struct pos){ .file = pattern },
                          "cannot make a temporary directory: %s", strerror(errno));
    (void)text_copy(run->directory, sizeof run->directory, pattern);
    if (join(run->measurement_path, pattern, "measurement.json", reterr) != 0)
        return -1;
    if (!run->subject->derived) {
        (void)text_copy(run->plan_path, sizeof run->plan_path, run->options->argument[0]);
        return 0;
    }
    if (join(run->plan_path, pattern, "plan.json", reterr) != 0)
        return -1;
    json_t *document = report_plan_file(&run->subject->prediction, &run->subject->answer);
    int status = file_write_document(run->plan_path, document, reterr);
    json_decref(document);
    return status;
}

static void remove_files(const struct run *run)
{
    if (!run->directory[0])
        return;
    (void)unlink(run->measurement_path);
    if (run->subject->derived)
        (void)unlink(run->plan_path);
    (void)rmdir(run->directory);
}

/* Words are only read by execv, which takes them as if they could be written. */
static void add_word(char **words, int *count, const char *word)
{
    union {
        const char *read;
        char *write;
    } same = { .read = word };
    if (*count < MAX_WORDS)
        words[(*count)++] = same.write;
}

static void add_launcher(const struct run *run, const char *ranks, char **words, int *count)
{
    static const char *const rest[] = { "--oversubscribe", "--bind-to", "none", "-q" };
    add_word(words, count, run->mpirun);
    add_word(words, count, "-np");
    add_word(words, count, ranks);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        add_word(words, count, rest[i]);
}

static int start(struct run *run, struct diag_list *reterr)
{
    static const struct {
        enum option_id id;
        const char *word;
    } passed[] = { { OPTION_DATA, "--data" },
                   { OPTION_DATA_FORMAT, "--data-format" },
                   { OPTION_STEPS, "--steps" },
                   { OPTION_SEED, "--seed" } };
    char *words[MAX_WORDS + 1] = { 0 };
    char ranks[RANK_TEXT];
    int count = 0;
    (void)snprintf(ranks, sizeof ranks, "%d", run->subject->prediction.plan.gpus);
    if (!run->outer.present)
        add_launcher(run, ranks, words, &count);
    add_word(words, &count, run->executor);
    add_word(words, &count, run->plan_path);
    add_word(words, &count, "--measurement");
    add_word(words, &count, run->measurement_path);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        if (options_has(run->options, passed[i].id)) {
            add_word(words, &count, passed[i].word);
            add_word(words, &count, run->options->value[passed[i].id]);
        }
    return launch_and_wait(words, &run->child_status, reterr);
}

/* What the executor says is passed on where it is of the contract; all else is a failed run. */
static int status_of(const struct run *run, struct diag_list *reterr)
{
    if (run->child_status == 0)
        return EXIT_ANSWERED;
    if (run->child_status == EXIT_QUESTION)
        return EXIT_QUESTION;
    if (run->child_status > 128)
        diag_error(reterr, (struct pos){ 0 }, "the run was killed by signal %d",
                   run->child_status - 128);
    else
        diag_error(reterr, (struct pos){ 0 }, "the run failed with status %d", run->child_status);
    return EXIT_SYSTEM;
}

static int show_comparison(const struct run *run, const struct measurement *measurement,
                           struct diag_list *reterr)
{
    struct comparison comparison;
    struct tolerances tolerances = tolerances_default();
    const struct prediction *prediction = &run->subject->prediction;
    if (comparison_compute(prediction, measurement, &tolerances, &comparison, reterr) != 0)
        return -1;
    report_run_text(prediction, measurement, output_style());
    report_comparison_text(&comparison, output_style());
    comparison_done(&comparison);
    return 0;
}

/* Reads the measurement, keeps it where -o says, prints it. */
static int show_measurement(const struct run *run, struct diag_list *reterr)
{
    struct measurement measurement = { 0 };
    int status = measurement_load(run->measurement_path, &measurement, reterr);
    if (status == 0) {
        json_t *document = measurement_to_json(&measurement);
        status = output_file(run->options, document, reterr);
        if (options_has(run->options, OPTION_JSON))
            output_json(document);
        else if (show_comparison(run, &measurement, reterr) != 0)
            status = -1;
        json_decref(document);
    }
    measurement_done(&measurement);
    return status;
}

/* What was noticed beforehand is said before the run, and by one rank only. */
static void tell_warnings(const struct run *run, struct diag_list *list)
{
    if (run->outer.rank == 0)
        diag_list_print(stderr, list);
    *list = (struct diag_list){ 0 };
}

static int run_plan(struct run *run, struct diag_list *reterr)
{
    if (check_plan(run, reterr) != 0)
        return EXIT_QUESTION;
    if (find_programs(run, reterr) != 0)
        return EXIT_SYSTEM;
    if (make_files(run, reterr) != 0)
        return EXIT_SYSTEM;
    tell_warnings(run, reterr);
    if (start(run, reterr) != 0)
        return EXIT_SYSTEM;
    int status = status_of(run, reterr);
    bool first = run->outer.rank == 0;
    if (!first || (status != EXIT_ANSWERED && access(run->measurement_path, R_OK) != 0))
        return status;
    if (show_measurement(run, reterr) != 0)
        return EXIT_SYSTEM;
    return status;
}

int command_run(const struct options *options, struct diag_list *reterr)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return EXIT_SYSTEM;
    run->options = options;
    run->outer = launch_outer();
    int status = output_check(options, reterr) == 0 ? EXIT_QUESTION : EXIT_SYSTEM;
    if (status == EXIT_QUESTION && check_data(options, reterr) == 0)
        run->subject = subject_open(options, reterr);
    if (run->subject) {
        status = run_plan(run, reterr);
        remove_files(run);
        subject_free(run->subject);
    }
    /* Every rank of an outer launcher finds the same fault in the question: one tells. */
    if (status == EXIT_QUESTION && run->outer.rank > 0)
        *reterr = (struct diag_list){ 0 };
    free(run);
    return status;
}
