/* rankfit check */
#include "planner/cli/check.h"

#include "base/text.h"
#include "planner/cli/command.h"
#include "planner/cli/output.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A key of the launch as an option of rankfit, where the command line has none. */
static void take_option(const struct launch_settings *settings, const char *key, enum option_id id,
                        struct options *ret)
{
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, key) == 0 && !options_has(ret, id)) {
            ret->value[id] = settings->items[i].value;
            ret->at[id] = settings->items[i].at;
        }
}

/* --gpus and its like of rankfit stand in the place of the launch's own. */
static int give_option(const struct options *options, enum option_id id, const char *key,
                       struct launch_settings *settings, struct diag_list *reterr)
{
    char text[32];
    if (!options_has(options, id))
        return 0;
    (void)snprintf(text, sizeof text, "%lld", (long long)option_number(options, id, 0));
    return launch_put(settings, key, text, options->at[id], reterr);
}

static const char *set_value(const struct options *options, const char *key)
{
    for (int i = 0; i < options->set_count; i++)
        if (strcmp(options->set[i].key, key) == 0)
            return options->set[i].value;
    return NULL;
}

/* "/models/Qwen3-30B-A3B-Base/" is the architecture of qwen3-30b-a3b. */
static int take_checkpoint(struct launch_settings *settings, struct diag_list *reterr)
{
    static const char *const endings[] = { "-Base", "-Instruct", "-Chat",     "-Thinking", "-2507",
                                           "-FP8",  "-base",     "-instruct", "-chat",     "-it" };
    const char *path = launch_get(settings, "checkpoint");
    char name[256];
    if (!path || launch_get(settings, "model_name"))
        return 0;
    (void)text_copy(name, sizeof name, path);
    size_t length = strlen(name);
    while (length > 1 && name[length - 1] == '/')
        name[--length] = '\0';
    char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
            size_t bytes = strlen(base), cut = strlen(endings[i]);
            if (bytes > cut && strcmp(base + bytes - cut, endings[i]) == 0)
                base[bytes - cut] = '\0';
        }
    for (char *at = base; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, "checkpoint") == 0)
            return launch_put(settings, "model_name", base, settings->items[i].at, reterr);
    return 0;
}

/* The options of a job that is the launch. -1: they are in error. */
static int compose(const struct options *options, struct launch_file *file, struct model *model,
                   struct options *ret, struct diag_list *reterr)
{
    const char *vocab = set_value(options, "model.vocab");
    struct launch_settings *settings = &file->settings;
    *ret = *options;
    ret->argument_count = 0;
    if (vocab && !launch_get(settings, "model.vocab") &&
        launch_put(settings, "model.vocab", vocab, file->at, reterr) != 0)
        return -1;
    int given = options_has(options, OPTION_MODEL) ? 0 : launch_model(file, model, reterr);
    if (given < 0)
        return -1;
    ret->model = given ? model : NULL;
    if (!given && take_checkpoint(settings, reterr) != 0)
        return -1;
    if (!given)
        take_option(settings, "model_name", OPTION_MODEL, ret);
    if (give_option(options, OPTION_GPUS, "gpus", settings, reterr) != 0 ||
        give_option(options, OPTION_MICRO_BATCH, "micro_batch", settings, reterr) != 0 ||
        give_option(options, OPTION_GLOBAL_BATCH, "global_batch", settings, reterr) != 0 ||
        launch_complete(settings, 0, reterr) != 0)
        return -1;
    take_option(settings, "gpus", OPTION_GPUS, ret);
    take_option(settings, "seq", OPTION_SEQ, ret);
    take_option(settings, "micro_batch", OPTION_MICRO_BATCH, ret);
    take_option(settings, "global_batch", OPTION_GLOBAL_BATCH, ret);
    options_check_values(ret, FOR_CHECK, reterr);
    return reterr->errors > 0 ? -1 : 0;
}

/* Rules of the engine's own parser, and layers that it does not split unevenly by itself. */
static void check_engine(const struct launch_file *file, const struct model *model,
                         struct diag_list *ret)
{
    const struct launch_settings *settings = &file->settings;
    int pp = launch_number(settings, "pp", 1), vpp = launch_number(settings, "vpp", 1);
    for (int i = 0; i < file->clash_count; i++) {
        diag_error(ret, file->clash_at[i], "%s", file->clashes[i]->why);
        diag_hint(ret, "%s", file->clashes[i]->hint);
    }
    bool splits = strcmp(file->target->engine, "megatron") != 0;
    if (splits || launch_get(settings, "stage_layers") || pp < 1 || vpp < 1 ||
        model->layers % ((int64_t)pp * vpp) == 0)
        return;
    diag_error(ret, file->at,
               "%d layers are not a multiple of pp %d x vpp %d: %s splits layers "
               "evenly",
               model->layers, pp, vpp, file->target->title);
    diag_hint(ret, "decoder-first-pipeline-num-layers and decoder-last-pipeline-num-layers, or "
                   "pipeline-model-parallel-layout");
}

/* The layout of the launch, or its violations in check->illegal. */
static int judge(struct check *check, struct diag_list *reterr)
{
    struct subject *subject = check->subject;
    struct question *question = &subject->question;
    struct launch_settings *settings = (struct launch_settings *)(uintptr_t)&check->file->settings;
    const struct model *model = &subject->prediction.plan.model;
    if (launch_complete(settings, model->layers, reterr) != 0 ||
        launch_fix(settings, model, &question->fixed, reterr) != 0)
        return -1;
    question->micro_batch = launch_number(settings, "micro_batch", question->micro_batch);
    if (question->global_batch == 0)
        question->global_batch = launch_number(settings, "global_batch", 0);
    check_engine(check->file, model, &check->illegal);
    struct diag_list *rules = calloc(1, sizeof *rules);
    if (!rules)
        return diag_no_memory(reterr);
    int status = derive(question, &subject->answer, rules);
    if (status != 0)
        diag_append(&check->illegal, rules);
    else
        diag_append(reterr, rules);
    diag_keep_no_memory(reterr, rules);
    free(rules);
    if (check->illegal.errors > 0 || status != 0)
        return 0;
    struct candidate candidate = subject->answer.recommended;
    if (subject_take(subject, &candidate, reterr) != 0)
        return -1;
    check->judged = true;
    return 0;
}

/* Choices that are given up together to look for a better layout. */
static const struct {
    const char *keys[6];
} groups[] = {
    { { "recompute", "recompute_layers" } },
    { { "tp" } },
    { { "tp", "etp" } },
    { { "pp", "vpp", "stage_layers" } },
    { { "cp", "context", "linear_context" } },
    { { "ep", "etp", "e_fsdp" } },
    { { "offload", "bucket_params", "slots" } },
};

static void give_up(struct question *question, const char *key)
{
    int row = choice_key_find(key);
    if (row >= 0)
        question->fixed.set &= ~(UINT64_C(1) << row);
}

/* A value that the launch's engine has an option for. */
static bool expresses(const struct launch_target *target, const char *key, const char *value)
{
    const struct launch_row *row;
    bool known = false;
    for (size_t i = 0; (row = launch_row_at(target, i)); i++) {
        if (strcmp(row->key, key) != 0)
            continue;
        known = true;
        if (!row->value || strcmp(row->value, value) == 0 || row->value[0] == '@')
            return !row->instead;
    }
    return !known;
}

/* "tp=1 instead of 2, etp=1 instead of 2"; false where a value cannot be expressed. */
static bool describe_change(const struct check *check, const struct choices *before,
                            const struct choices *after, size_t group, char *ret, size_t size)
{
    size_t used = 0;
    ret[0] = '\0';
    for (int i = 0; i < 6 && groups[group].keys[i]; i++) {
        const char *key = groups[group].keys[i];
        int row = choice_key_find(key);
        char was[256], is[256];
        bool follows = strcmp(key, "stage_layers") == 0 || strcmp(key, "e_fsdp") == 0 ||
                       strcmp(key, "bucket_params") == 0 || strcmp(key, "slots") == 0;
        choice_format(before, row, was, sizeof was);
        choice_format(after, row, is, sizeof is);
        if (strcmp(was, is) == 0 || follows)
            continue;
        if (!expresses(check->file->target, key, is))
            return false;
        text_append(ret, size, &used, "%s%s=%s instead of %s", used > 0 ? ", " : "", key, is, was);
    }
    return used > 0;
}

/* Changes of one group each that still fit and save at least 3 % of the step, once each. */
static void find_savings(struct check *check)
{
    static const double worth = 0.03;
    const struct subject *subject = check->subject;
    struct answer *answer = calloc(1, sizeof *answer);
    struct diag_list *ignored = calloc(1, sizeof *ignored);
    double seconds = subject->prediction.time.seconds;
    for (size_t g = 0; answer && ignored && g < sizeof groups / sizeof *groups; g++) {
        struct question question = subject->question;
        struct saving *saving = &check->savings[check->saving_count];
        bool known = false;
        for (int i = 0; i < 6 && groups[g].keys[i]; i++)
            give_up(&question, groups[g].keys[i]);
        ignored->count = ignored->errors = ignored->dropped = 0;
        if (derive(&question, answer, ignored) != 0 ||
            answer->recommended.verdict != VERDICT_FITS ||
            answer->recommended.time.seconds > (1 - worth) * seconds ||
            !describe_change(check, &subject->prediction.plan.choices, &answer->recommended.choices,
                             g, saving->change, sizeof saving->change))
            continue;
        for (int i = 0; i < check->saving_count; i++)
            known = known || strcmp(check->savings[i].change, saving->change) == 0;
        saving->share = 1 - answer->recommended.time.seconds / seconds;
        saving->peak_bytes = answer->recommended.worst.peak_bytes;
        check->saving_count += !known && check->saving_count + 1 < CHECK_SAVINGS;
    }
    free(answer);
    free(ignored);
}

/* The best layout with every degree, the sharding and recompute open: the settings that the engine
 * cannot express stay as they are. */
static void find_other(struct check *check)
{
    static const char *const open[] = { "tp",           "pp",
                                        "vpp",          "cp",
                                        "ep",           "etp",
                                        "fsdp",         "e_fsdp",
                                        "context",      "sharding",
                                        "recompute",    "recompute_layers",
                                        "stage_layers", "linear_context" };
    struct answer *answer = calloc(1, sizeof *answer);
    struct diag_list *ignored = calloc(1, sizeof *ignored);
    struct question question = check->subject->question;
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        give_up(&question, open[i]);
    if (answer && ignored && derive(&question, answer, ignored) == 0 &&
        answer->recommended.verdict != VERDICT_DOES_NOT_FIT) {
        check->has_other = true;
        check->other = answer->recommended;
    }
    free(answer);
    free(ignored);
}

/* Of the changes that would fit, those that the engine has an option for. */
static void keep_expressible(struct check *check)
{
    struct answer *answer = &check->subject->answer;
    int kept = 0;
    for (int i = 0; i < answer->nearest_count; i++) {
        char key[96];
        (void)text_copy(key, sizeof key, answer->nearest[i].set);
        char *equals = strchr(key, '=');
        if (equals)
            *equals = '\0';
        if (!equals || expresses(check->file->target, key, equals + 1))
            answer->nearest[kept++] = answer->nearest[i];
    }
    answer->nearest_count = kept;
}

int check_status(const struct check *check)
{
    return check->judged && check->subject->prediction.verdict != VERDICT_DOES_NOT_FIT
               ? EXIT_ANSWERED
               : EXIT_NO;
}

static int show(const struct options *options, const struct check *check, struct diag_list *reterr)
{
    int status = check_status(check);
    struct json *document = check_json(check);
    if (output_file(options, document, reterr) != 0)
        status = EXIT_SYSTEM;
    if (!options_has(options, OPTION_JSON))
        check_print(check, output_style());
    else if (output_json(document, reterr) != 0)
        status = EXIT_SYSTEM;
    json_free(document);
    return status;
}

/* `rankfit run PLAN` under a scheduler: the plan, and as many ranks as it has. */
static int open_plan(const struct options *options, struct check *check, struct diag_list *reterr)
{
    const struct launch_file *file = check->file;
    check->subject = subject_open_plan(file->plan_path, reterr);
    if (!check->subject)
        return EXIT_QUESTION;
    int ranks = file->gpus > 0        ? file->gpus
                : file->node_gpus > 0 ? file->node_gpus * (file->nodes > 0 ? file->nodes : 1)
                                      : 0;
    int gpus = check->subject->prediction.plan.gpus;
    check->judged = ranks == gpus;
    if (!check->judged) {
        diag_error(&check->illegal, file->at, "the launch starts %d ranks, the plan %s has %d",
                   ranks, file->plan_path, gpus);
        diag_hint(&check->illegal, "rankfit export %s --to %s writes the launch", file->plan_path,
                  file->target->name);
    }
    return show(options, check, reterr);
}

static int judge_file(const struct options *options, struct launch_file *file, struct check *check,
                      struct diag_list *reterr)
{
    struct model *model = calloc(1, sizeof *model);
    struct options *asked = calloc(1, sizeof *asked);
    int status = EXIT_QUESTION;
    check->file = file;
    if (file->plan_path) {
        status = open_plan(options, check, reterr);
    } else if (!model || !asked) {
        diag_no_memory(reterr);
    } else if (compose(options, file, model, asked, reterr) == 0 &&
               (check->subject = subject_open_question(asked, reterr)) != NULL &&
               judge(check, reterr) == 0) {
        if (check->judged && check_status(check) == EXIT_ANSWERED)
            find_savings(check);
        else
            find_other(check);
        keep_expressible(check);
        status = show(options, check, reterr);
    }
    free(model);
    free(asked);
    return status;
}

static int read_launch(const struct options *options, struct launch_file *file,
                       struct diag_list *reterr)
{
    if (options->line && options->argument_count == 0)
        return launch_read_words(options->line, (size_t)options->line_count, file, reterr);
    if (!options->line && options->argument_count == 1)
        return launch_read_file(options->argument[0], file, reterr);
    diag_error(reterr, (struct pos){ 0 },
               "rankfit check takes a file or, behind --, a command line");
    return diag_hint(reterr, "rankfit check pretrain.sh --hardware h100-sxm");
}

int command_check(const struct options *options, struct diag_list *reterr)
{
    if (output_check(options, reterr) != 0)
        return EXIT_SYSTEM;
    struct launch_file *file = calloc(1, sizeof *file);
    struct check *check = calloc(1, sizeof *check);
    int status = EXIT_QUESTION;
    if (!file || !check)
        diag_no_memory(reterr);
    else if (read_launch(options, file, reterr) == 0)
        status = judge_file(options, file, check, reterr);
    if (file)
        launch_done(file);
    if (check)
        subject_free(check->subject);
    free(file);
    free(check);
    return status;
}
