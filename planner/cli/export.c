/* rankfit export */
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/cli/command.h"
#include "planner/cli/output.h"
#include "planner/cli/subject.h"
#include "planner/launch/launch.h"

#include <stdlib.h>
#include <string.h>

static const struct launch_target *target_of(const struct options *options,
                                             struct diag_list *reterr)
{
    const char *name = options->value[OPTION_TO];
    char names[200];
    launch_names(names, sizeof names);
    if (name)
        return launch_find(name);
    diag_error(reterr, (struct pos){ 0 }, "--to is missing");
    diag_hint(reterr, "--to %s", names);
    return NULL;
}

/* The largest peak of any rank with the choices of the settings in the place of the plan's; 0 where
 * they are illegal or a choice of theirs cannot be read. */
static uint64_t peak_with(const struct subject *subject, const struct launch_settings *settings)
{
    const struct plan *plan = &subject->prediction.plan;
    struct diag_list *faults = calloc(1, sizeof *faults);
    struct answer *answer = calloc(1, sizeof *answer);
    struct question question = subject->question;
    uint64_t ret = 0;
    question.fixed = (struct fixed_choices){ 0 };
    if (faults && answer && launch_fix(settings, &plan->model, &question.fixed, faults) == 0 &&
        derive(&question, answer, faults) == 0)
        ret = answer->recommended.worst.peak_bytes;
    free(faults);
    free(answer);
    return ret;
}

static void describe_gaps(const struct launch_target *target, const struct launch_gaps *gaps,
                          char *text, size_t size, size_t *used)
{
    for (size_t i = 0; i < gaps->count; i++) {
        const struct launch_gap *gap = &gaps->items[i];
        text_append(text, size, used, "%s=%s has no option in %s", gap->key, gap->value,
                    target->title);
        if (gap->instead && gap->instead[0])
            text_append(text, size, used, ", which runs %s=%s", gap->key, gap->instead);
        text_append(text, size, used, ": %s\n", gap->note);
    }
}

/* "rankfit predicts 57.3 GB per rank for the plan and 60.1 GB with these replacements" */
static void describe_cost(const struct subject *subject, const struct launch_settings *settings,
                          const struct launch_gaps *gaps, char *text, size_t size, size_t *used)
{
    char before[32], after[32];
    uint64_t plan = prediction_worst(&subject->prediction)->peak_bytes;
    uint64_t there = gaps->count > 0 ? peak_with(subject, settings) : plan;
    units_format_gb(before, sizeof before, plan, 2);
    units_format_gb(after, sizeof after, there, 2);
    uint64_t limit = subject->prediction.limit_bytes;
    if (gaps->count == 0)
        text_append(text, size, used, "predicted peak %s per rank\n", before);
    else if (there == 0)
        text_append(text, size, used,
                    "predicted peak %s per rank for the plan; with these replacements the layout "
                    "is not legal\n",
                    before);
    else
        text_append(text, size, used,
                    "predicted peak %s per rank for the plan, %s with these replacements\n", before,
                    after);
    if (there <= limit || gaps->count == 0)
        return;
    text_append(text, size, used, "over the limit of %s: plan within the engine's options by",
                units_format_gb(before, sizeof before, limit, 2));
    for (size_t i = 0; i < gaps->count; i++)
        if (choice_key_find(gaps->items[i].key) >= 0 && gaps->items[i].instead)
            text_append(text, size, used, " --set %s=%s", gaps->items[i].key,
                        gaps->items[i].instead);
    text_append(text, size, used, "\n");
}

enum { HEAD_BYTES = 16384 };

/* The comments above the options: the plan, and everything that the target does otherwise. */
static void write_head(const struct launch_target *target, const struct subject *subject,
                       const struct launch_settings *settings, const struct launch_gaps *gaps,
                       char *text, size_t size)
{
    const struct plan *plan = &subject->prediction.plan;
    size_t used = 0;
    text_append(text, size, &used, "%s on %d x %s, plan %s, for %s\n", plan->model.title,
                plan->gpus, plan->hardware.gpu, plan->digest, target->version);
    describe_gaps(target, gaps, text, size, &used);
    describe_cost(subject, settings, gaps, text, size, &used);
}

static struct json *document_of(const struct launch_target *target, const struct launch_gaps *gaps,
                                const char *text)
{
    struct json *document = json_document("rankfit.export/1"), *list = json_list();
    json_put_text(document, "to", target->name);
    json_put_text(document, "version", target->version);
    for (size_t i = 0; i < gaps->count; i++) {
        struct json *gap = json_map();
        json_put_text(gap, "key", gaps->items[i].key);
        json_put_text(gap, "value", gaps->items[i].value);
        json_put_text(gap, "instead", gaps->items[i].instead);
        json_put_text(gap, "note", gaps->items[i].note);
        json_append(list, gap);
    }
    json_put(document, "replaced", list);
    json_put_text(document, "text", text);
    return document;
}

static int show(const struct options *options, const struct launch_target *target,
                const struct launch_gaps *gaps, const char *text, struct diag_list *reterr)
{
    const char *path = options->value[OPTION_OUTPUT];
    if (path && file_write_whole(path, text, strlen(text), reterr) != 0)
        return EXIT_SYSTEM;
    if (!options_has(options, OPTION_JSON)) {
        if (!path)
            (void)fputs(text, stdout);
        return EXIT_ANSWERED;
    }
    struct json *document = document_of(target, gaps, text);
    int status = output_json(document, reterr) == 0 ? EXIT_ANSWERED : EXIT_SYSTEM;
    json_free(document);
    return status;
}

static int export_plan(const struct options *options, const struct launch_target *target,
                       const struct subject *subject, struct diag_list *reterr)
{
    struct launch_settings *settings = calloc(1, sizeof *settings);
    struct launch_gaps gaps;
    char *head = calloc(1, HEAD_BYTES), *text = NULL;
    int status = EXIT_SYSTEM;
    if (settings && head &&
        launch_settings_of_plan(&subject->prediction.plan, settings, reterr) == 0 &&
        launch_replace(target, settings, &gaps, reterr) == 0) {
        write_head(target, subject, settings, &gaps, head, HEAD_BYTES);
        text = launch_write(target, settings, head, options->argument[0]);
    }
    if (text)
        status = show(options, target, &gaps, text, reterr);
    else if (reterr->errors == 0)
        diag_no_memory(reterr);
    if (settings)
        launch_settings_done(settings);
    free(settings);
    free(head);
    free(text);
    return status;
}

int command_export(const struct options *options, struct diag_list *reterr)
{
    const struct launch_target *target = target_of(options, reterr);
    if (!target)
        return EXIT_QUESTION;
    if (output_check(options, reterr) != 0)
        return EXIT_SYSTEM;
    struct subject *subject = subject_open_plan(options->argument[0], reterr);
    if (!subject)
        return EXIT_QUESTION;
    int status = export_plan(options, target, subject, reterr);
    subject_free(subject);
    return status;
}
