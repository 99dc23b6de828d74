/* rankfit run: starts the executor on a plan and shows what it measured beside what was predicted.
 */
#include "planner/cli/run.h"
#include "base/file.h"
#include "base/plan/measurement.h"
#include "base/signals.h"
#include "base/text.h"
#include "planner/cli/command.h"
#include "planner/cli/output.h"
#include "planner/cli/start.h"
#include "planner/cli/subject.h"
#include "planner/compare/compare.h"
#include "planner/report/comparison_text.h"
#include "planner/report/json.h"
#include "planner/report/run_text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct run {
    const struct options *options;
    int (*choose)(const struct options *options, const struct prediction *prediction,
                  struct diag_list *reterr); /* NULL: all ranks run */
    struct subject *subject;
    struct start start;
    char plan_path[START_PATH], measurement_path[START_PATH];
};

/* Whether a launcher has started as many of us as the plan wants, or the one that rehearses. */
static int check_launcher(const struct run *run, struct diag_list *reterr)
{
    int size = run->start.outer.size, gpus = run->subject->prediction.plan.gpus;
    if (run->choose && size > 1) {
        diag_error(reterr, (struct pos){ 0 }, "a rehearsal is one process, the launcher started %d",
                   size);
        return diag_hint(reterr, "leave the launcher away");
    }
    if (run->choose || size <= 0 || size == gpus)
        return 0;
    diag_error(reterr, (struct pos){ 0 }, "the plan is for %d ranks, the launcher started %d", gpus,
               size);
    return diag_hint(reterr, "start %d processes, or leave the launcher away", gpus);
}

/* The backend, and whether it and the launcher can carry this plan. */
static int check_plan(struct run *run, struct diag_list *reterr)
{
    const struct prediction *prediction = &run->subject->prediction;
    const struct plan *plan = &prediction->plan;
    enum backend usual = plan->hardware.host ? BACKEND_HOST : BACKEND_CUDA;
    run->start.backend = (enum backend)option_row(run->options, OPTION_BACKEND, (int)usual);
    if (capability_check(run->start.backend, &plan->model, &plan->choices, reterr) != 0)
        return -1;
    if (check_launcher(run, reterr) != 0)
        return -1;
    capability_warn(&plan->model, reterr);
    run->start.rehearses = run->choose != NULL;
    run->start.ranks = plan->gpus;
    if (start_check(&run->start, reterr) != 0)
        return -1;
    if (run->choose)
        run->start.rank = run->choose(run->options, prediction, reterr);
    if (run->start.rank < 0)
        return -1;
    if (prediction->verdict == VERDICT_DOES_NOT_FIT)
        diag_warning(reterr, (struct pos){ 0 },
                     "the plan does not fit by its own prediction; it is tried all the same");
    return 0;
}

/* A pipe gives its contents once, and /dev/fd to this process alone: ranks get a copy. */
static bool can_be_read_again(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && strncmp(path, "/dev/", 5) != 0 &&
           strncmp(path, "/proc/", 6) != 0;
}

/* Our own directory for the measurement, and for the plan where ranks cannot read the given. */
static int make_files(struct run *run, struct diag_list *reterr)
{
    const char *directory = run->start.directory;
    if (start_directory(&run->start, reterr) != 0 ||
        start_join(run->measurement_path, directory, "measurement.json", reterr) != 0)
        return -1;
    const char *given = run->options->argument[0];
    if (!run->subject->derived && can_be_read_again(given)) {
        (void)text_copy(run->plan_path, sizeof run->plan_path, given);
        return 0;
    }
    if (start_join(run->plan_path, directory, "plan.json", reterr) != 0)
        return -1;
    const struct answer *answer = run->subject->derived ? &run->subject->answer : NULL;
    struct json *document = report_plan_file(&run->subject->prediction, answer);
    int status = file_write_document(run->plan_path, document, reterr);
    json_free(document);
    return status;
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
        struct json *document = measurement_to_json(&measurement);
        status = output_file(run->options, document, reterr);
        if (options_has(run->options, OPTION_JSON))
            status |= output_json(document, reterr);
        else
            status |= show_comparison(run, &measurement, reterr);
        json_free(document);
    }
    measurement_done(&measurement);
    return status;
}

/* What was noticed beforehand is said before the run, and by one rank only. */
static void tell_warnings(const struct run *run, struct diag_list *list)
{
    if (run->start.outer.rank == 0)
        diag_list_print(stderr, list);
    *list = (struct diag_list){ 0 };
}

static int run_plan(struct run *run, struct diag_list *reterr)
{
    if (check_plan(run, reterr) != 0)
        return EXIT_QUESTION;
    if (start_find(&run->start, reterr) != 0)
        return EXIT_SYSTEM;
    if (make_files(run, reterr) != 0)
        return EXIT_SYSTEM;
    tell_warnings(run, reterr);
    run->start.plan = run->plan_path;
    run->start.memory_limit = run->subject->memory_limit;
    run->start.measurement = run->measurement_path;
    int status = start_and_wait(&run->start, reterr);
    bool first = run->start.outer.rank == 0;
    if (!first || (status != EXIT_ANSWERED && access(run->measurement_path, R_OK) != 0))
        return status;
    if (show_measurement(run, reterr) != 0)
        return EXIT_SYSTEM;
    return status;
}

int run_once(const struct options *options,
             int (*choose)(const struct options *options, const struct prediction *prediction,
                           struct diag_list *reterr),
             struct diag_list *reterr)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return EXIT_SYSTEM;
    run->choose = choose;
    run->options = run->start.options = options;
    run->start.outer = launch_outer();
    int status = output_check(options, reterr) == 0 ? EXIT_QUESTION : EXIT_SYSTEM;
    if (status == EXIT_QUESTION && start_check_files(options, reterr) == 0)
        run->subject = subject_open(options, reterr);
    if (run->subject && start_check_engine(&run->subject->prediction.plan, options, reterr) != 0) {
        subject_free(run->subject);
        run->subject = NULL;
    }
    if (run->subject) {
        sigset_t before;
        signals_hold(&before);
        status = run_plan(run, reterr);
        start_remove_directory(&run->start);
        signals_release(&before);
        subject_free(run->subject);
    }
    /* Every rank of an outer launcher finds the same fault in the question: one tells. */
    if (status == EXIT_QUESTION && run->start.outer.rank > 0)
        *reterr = (struct diag_list){ 0 };
    free(run);
    return status;
}

int command_run(const struct options *options, struct diag_list *reterr)
{
    return run_once(options, NULL, reterr);
}
