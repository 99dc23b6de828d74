/* rankfit pair: a primitive and its reference on the same small job, held against each other. */
#include "base/file.h"
#include "base/signals.h"
#include "base/text.h"
#include "planner/cli/command.h"
#include "planner/cli/output.h"
#include "planner/cli/pair_row.h"
#include "planner/cli/start.h"
#include "planner/cli/subject.h"
#include "planner/report/json.h"
#include "planner/report/pair_report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The job where nothing is said: seconds on any machine. */
static const struct {
    enum option_id id;
    const char *value;
} usual[] = { { OPTION_MODEL, "tiny-moe" },
              { OPTION_HARDWARE, "host" },
              { OPTION_GPUS, "2" },
              { OPTION_SEQ, "128" } };

enum { SETTING_BYTES = 96 };

struct side {
    struct options options; /* the user's, with what this side needs */
    struct subject *subject;
    char setting[SETTING_BYTES];
    char plan_path[START_PATH], measurement_path[START_PATH], dump_path[START_PATH];
    struct measurement measurement;
};

struct pair {
    struct pool pool; /* of pinned values */
    const struct options *options;
    const struct pair_row *row;
    struct start start;
    struct side primitive, reference;
};

static const struct pos here = { .file = "rankfit pair", .line = 0, .column = 0 };

static struct set_entry *find_set(struct options *options, const char *key)
{
    for (int i = 0; i < options->set_count; i++)
        if (strcmp(options->set[i].key, key) == 0)
            return &options->set[i];
    return NULL;
}

/* What a side must have stands, whatever the user or the other side has. */
static void put(struct options *options, const char *key, const char *value,
                struct diag_list *reterr)
{
    struct set_entry *old = find_set(options, key);
    if (old)
        *old = (struct set_entry){ key, value, here };
    else
        (void)options_add_set(options, key, value, here, false, reterr);
}

/* What a side needs of other keys: the user's word goes first where both may say it. */
static void need(struct options *options, const struct pair_setting *settings, bool firmly,
                 struct diag_list *reterr)
{
    for (int i = 0; i < PAIR_MAX_WITH && settings[i].key; i++)
        if (firmly || !find_set(options, settings[i].key))
            put(options, settings[i].key, settings[i].value, reterr);
}

static void begin_side(const struct pair *pair, struct side *side)
{
    side->options = *pair->options;
    side->options.argument_count = 0;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (!options_has(&side->options, usual[i].id))
            side->options.value[usual[i].id] = usual[i].value;
}

static void set_value(const struct pair *pair, struct side *side, const char *value,
                      struct diag_list *reterr)
{
    (void)snprintf(side->setting, sizeof side->setting, "%s=%s", pair->row->key, value);
    put(&side->options, pair->row->key, value, reterr);
}

/* Ranks are shared out anew on the two sides of a pair that moves them. */
static bool is_derived_again(const struct pair_row *row, const char *key)
{
    static const char *const widths[] = { "fsdp", "e_fsdp" };
    for (size_t i = 0; row->moves && i < sizeof widths / sizeof *widths; i++)
        if (strcmp(key, widths[i]) == 0)
            return true;
    return false;
}

/* Everything else as the other side has it, so that the pair differs by the primitive alone. */
static void pin_choices(struct pair *pair, const struct side *from, struct side *to,
                        struct diag_list *reterr)
{
    const struct choices *choices = &from->subject->prediction.plan.choices;
    for (size_t i = 0; i < choice_key_count; i++) {
        const char *key = choice_keys[i].key;
        char value[1024];
        if (is_derived_again(pair->row, key))
            continue;
        choice_format(choices, (int)i, value, sizeof value);
        put(&to->options, key, pool_copy_text(&pair->pool, value, strlen(value)), reterr);
    }
}

static int derive_side(const struct pair *pair, struct side *side, struct diag_list *reterr)
{
    if (reterr->errors > 0)
        return -1;
    side->subject = subject_open(&side->options, reterr);
    if (!side->subject)
        return -1;
    const struct plan *plan = &side->subject->prediction.plan;
    if (start_check_engine(plan, &side->options, reterr) != 0)
        return -1;
    capability_warn(&plan->model, reterr);
    return capability_check(pair->start.backend, &plan->model, &plan->choices, reterr);
}

/* Warnings were heard of the first side; of the second they would be about what was pinned. */
static int derive_second(const struct pair *pair, struct side *side, struct diag_list *reterr)
{
    struct diag_list found = { 0 };
    int status = derive_side(pair, side, &found);
    if (status != 0)
        diag_append(reterr, &found);
    return status;
}

/* The side with the primitive that has needs goes first; the reference follows it in all else. */
static int derive_sides(struct pair *pair, const char *value, struct diag_list *reterr)
{
    const struct pair_row *row = pair->row;
    bool swapped = strcmp(value, row->reference) == 0;
    struct side *first = swapped ? &pair->reference : &pair->primitive;
    struct side *second = swapped ? &pair->primitive : &pair->reference;

    begin_side(pair, first);
    begin_side(pair, second);
    set_value(pair, first, swapped ? row->other : value, reterr);
    need(&first->options, row->with_other, false, reterr);
    if (derive_side(pair, first, reterr) != 0)
        return -1;
    pin_choices(pair, first, second, reterr);
    need(&second->options, row->with_reference, true, reterr);
    set_value(pair, second, row->reference, reterr);
    if (derive_second(pair, second, reterr) != 0)
        return -1;
    pair->start.ranks = first->subject->prediction.plan.gpus;
    return start_check(&pair->start, reterr);
}

static int write_side(const struct pair *pair, struct side *side, const char *name,
                      struct diag_list *reterr)
{
    char file[64];
    (void)snprintf(file, sizeof file, "%s-plan.json", name);
    int status = start_join(side->plan_path, pair->start.directory, file, reterr);
    (void)snprintf(file, sizeof file, "%s-measurement.json", name);
    status |= start_join(side->measurement_path, pair->start.directory, file, reterr);
    (void)snprintf(file, sizeof file, "%s.safetensors", name);
    status |= start_join(side->dump_path, pair->start.directory, file, reterr);
    if (status != 0)
        return -1;
    struct json *document = report_plan_file(&side->subject->prediction, &side->subject->answer);
    status = file_write_document(side->plan_path, document, reterr);
    json_free(document);
    return status;
}

static int run_side(struct pair *pair, struct side *side, struct diag_list *reterr)
{
    pair->start.options = &side->options;
    pair->start.ranks = side->subject->prediction.plan.gpus;
    pair->start.plan = side->plan_path;
    pair->start.measurement = side->measurement_path;
    pair->start.dump = side->dump_path;
    int status = start_and_wait(&pair->start, reterr);
    if (status == EXIT_ANSWERED &&
        measurement_load(side->measurement_path, &side->measurement, reterr) != 0)
        status = EXIT_SYSTEM;
    return status;
}

static int show(const struct pair *pair, const struct difference *difference,
                struct diag_list *reterr)
{
    const struct pair_report report = {
        .kind = pair->row->kind,
        .primitive = { pair->primitive.setting, &pair->primitive.subject->prediction.plan },
        .reference = { pair->reference.setting, &pair->reference.subject->prediction.plan },
        .difference = difference,
    };
    struct json *document = report_pair_json(&report);
    int status = difference->within ? EXIT_ANSWERED : EXIT_NO;
    if (output_file(pair->options, document, reterr) != 0)
        status = EXIT_SYSTEM;
    if (!options_has(pair->options, OPTION_JSON))
        report_pair_text(&report, output_style());
    else if (output_json(document, reterr) != 0)
        status = EXIT_SYSTEM;
    json_free(document);
    return status;
}

static int compare_sides(const struct pair *pair, struct diag_list *reterr)
{
    const struct difference_input primitive = { pair->primitive.dump_path,
                                                &pair->primitive.measurement };
    const struct difference_input reference = { pair->reference.dump_path,
                                                &pair->reference.measurement };
    struct difference difference;
    int status = EXIT_SYSTEM;

    if (difference_compute(&primitive, &reference, pair->row->agreement, &difference, reterr) == 0)
        status = show(pair, &difference, reterr);
    difference_done(&difference);
    return status;
}

static int run_pair(struct pair *pair, struct diag_list *reterr)
{
    if (start_find(&pair->start, reterr) != 0 || start_directory(&pair->start, reterr) != 0 ||
        write_side(pair, &pair->primitive, "primitive", reterr) != 0 ||
        write_side(pair, &pair->reference, "reference", reterr) != 0)
        return EXIT_SYSTEM;
    int status = run_side(pair, &pair->primitive, reterr);
    if (status == EXIT_ANSWERED)
        status = run_side(pair, &pair->reference, reterr);
    return status == EXIT_ANSWERED ? compare_sides(pair, reterr) : status;
}

static void finish_side(struct side *side)
{
    measurement_done(&side->measurement);
    subject_free(side->subject);
}

static void finish(struct pair *pair)
{
    finish_side(&pair->primitive);
    finish_side(&pair->reference);
    start_remove_directory(&pair->start);
    pool_done(&pair->pool);
    free(pair);
}

static int check_launcher(const struct pair *pair, struct diag_list *reterr)
{
    if (!pair->start.outer.present)
        return 0;
    diag_error(reterr, (struct pos){ 0 }, "rankfit pair starts its two runs itself");
    return diag_hint(reterr, "leave the launcher away");
}

int command_pair(const struct options *options, struct diag_list *reterr)
{
    struct pair *pair = calloc(1, sizeof *pair);
    const char *value = NULL;
    if (!pair)
        return EXIT_SYSTEM;
    sigset_t before;
    signals_hold(&before);
    pair->options = pair->start.options = options;
    pair->start.outer = launch_outer();
    pair->start.backend = (enum backend)option_row(options, OPTION_BACKEND, BACKEND_HOST);
    pair->row = pair_row_of(options->argument[0], &value, reterr);
    int status = output_check(options, reterr) == 0 ? EXIT_QUESTION : EXIT_SYSTEM;
    if (status == EXIT_QUESTION && pair->row && check_launcher(pair, reterr) == 0 &&
        start_check_files(options, reterr) == 0 && derive_sides(pair, value, reterr) == 0)
        status = run_pair(pair, reterr);
    finish(pair);
    signals_release(&before);
    return status;
}
