/* check_report.c - a judgement of a launch as text and as JSON. */
#include "base/text.h"
#include "base/units.h"
#include "planner/cli/check.h"
#include "planner/report/json.h"
#include "planner/report/table.h"

#include <string.h>

enum { LINE_BYTES = 1024, OPTIONS_SHOWN = 12 };

static void print_place(struct pos at, char *ret, size_t size)
{
    if (at.line > 0)
        (void)snprintf(ret, size, "line %d", at.line);
    else
        (void)snprintf(ret, size, "%s", at.file ? at.file : "");
}

static void print_illegal(const struct check *check, FILE *out)
{
    const struct diag_list *list = &check->illegal;
    for (int i = 0; i < list->count; i++) {
        const struct diag *diag = &list->items[i];
        char line[LINE_BYTES] = "", place[300];
        size_t used = 0;
        if (diag->severity != SEVERITY_ERROR)
            continue;
        print_place((struct pos){ diag->file, diag->line, 0 }, place, sizeof place);
        text_append(line, sizeof line, &used, "%s%s%s", diag->what, place[0] ? " - " : "", place);
        text_wrap("illegal", line, 2, out);
        if (diag->hint[0])
            text_wrap("", diag->hint, 2, out);
    }
}

static void print_step(const struct check *check, FILE *out)
{
    const struct prediction *prediction = &check->subject->prediction;
    char seconds[32];
    units_format_seconds(seconds, sizeof seconds, prediction->time.seconds);
    (void)fprintf(out, "step    %s, MFU %.1f %%\n", seconds, 100 * prediction->time.mfu);
}

static void print_nearest(const struct check *check, FILE *out)
{
    const struct answer *answer = &check->subject->answer;
    const char *label = "nearest";
    char size[32], line[LINE_BYTES];
    for (int i = 0; check->judged && i < answer->nearest_count; i++) {
        units_format_gb(size, sizeof size, answer->nearest[i].peak_bytes, 1);
        (void)snprintf(line, sizeof line, "%s (%s)", answer->nearest[i].change, size);
        text_wrap(label, line, 4, out);
        label = "";
    }
    if (!check->has_other)
        return;
    char degrees[256], primitives[256];
    const struct plan *plan = &check->subject->prediction.plan;
    format_degrees(&check->other.choices.layout, "  ", degrees, sizeof degrees);
    format_primitives(&plan->model, &check->other.choices.primitives, primitives,
                      sizeof primitives);
    units_format_gb(size, sizeof size, check->other.worst.peak_bytes, 1);
    (void)snprintf(line, sizeof line, "%s    %s (%s)", degrees, primitives, size);
    text_wrap(label, line, 4, out);
}

static void print_savings(const struct check *check, FILE *out)
{
    for (int i = 0; i < check->saving_count; i++) {
        const struct saving *saving = &check->savings[i];
        char line[LINE_BYTES], size[32];
        units_format_gb(size, sizeof size, saving->peak_bytes, 1);
        (void)snprintf(line, sizeof line, "%s fits too (%s), with a step %.0f %% shorter",
                       saving->change, size, 100 * saving->share);
        text_wrap(i == 0 ? "waste" : "", line, 4, out);
    }
}

static void print_notes(const struct launch_file *file, FILE *out)
{
    for (size_t i = 0; i < file->note_count; i++) {
        char line[LINE_BYTES], place[300];
        print_place(file->notes[i].at, place, sizeof place);
        (void)snprintf(line, sizeof line, "%s: %s - %s", file->notes[i].option, file->notes[i].text,
                       place);
        text_wrap(i == 0 ? "note" : "", line, 4, out);
    }
}

static void print_unknown(const struct launch_file *file, FILE *out)
{
    for (size_t i = 0; i < file->unknown_count; i++) {
        char line[LINE_BYTES], place[300];
        print_place(file->unknown[i]->at, place, sizeof place);
        (void)snprintf(line, sizeof line, "%s%s%s - %s", file->unknown[i]->written,
                       file->unknown[i]->value[0] ? " " : "", file->unknown[i]->value, place);
        text_wrap(i == 0 ? "unknown" : "", line, 4, out);
    }
}

/* Switches of the engine whose absence changes the memory. */
static const char *caution(const struct check *check)
{
    const struct launch_settings *settings = &check->file->settings;
    const char *split = launch_get(settings, "sequence_parallel");
    const char *dtype = launch_get(settings, "dtype");
    if (dtype && strcmp(dtype, "bf16") != 0)
        return "the launch does not train in bf16; it is judged as if it did";
    if (split && strcmp(split, "0") == 0 && launch_number(settings, "tp", 1) > 1)
        return "without sequence parallelism each rank of tp stores the activations between "
               "matmuls unsharded; they are judged as split";
    return NULL;
}

static void print_basis(const struct check *check, FILE *out)
{
    const struct launch_file *file = check->file;
    const char *engine = check->subject->prediction.plan.engine;
    char line[LINE_BYTES];
    size_t used = 0;
    if (caution(check))
        text_wrap("caution", caution(check), 4, out);
    if (file->target->form == LAUNCH_SCHEDULER)
        return;
    line[0] = '\0';
    text_append(line, sizeof line, &used, "options as in %s", file->target->version);
    if (strcmp(engine, file->target->engine) != 0)
        text_append(line, sizeof line, &used,
                    "; memory and time are those of engine %s, and %s may store more", engine,
                    file->target->title);
    if (file->neutral_count > 0)
        text_append(line, sizeof line, &used, "; %zu options have no influence on either",
                    file->neutral_count);
    text_wrap("basis", line, 4, out);
}

void check_print(const struct check *check, struct text_style style)
{
    FILE *out = style.out;
    const struct launch_file *file = check->file;
    char place[300];
    print_place(file->at, place, sizeof place);
    (void)fprintf(out, "%s, %s%s%s\n", file->target->title, file->name,
                  file->at.line > 0 ? ", " : "", file->at.line > 0 ? place : "");
    report_head_text(&check->subject->prediction, out);
    (void)fputc('\n', out);
    if (check->judged)
        report_verdict_text(&check->subject->prediction, style);
    if (check->judged)
        print_step(check, out);
    else
        print_illegal(check, out);
    print_nearest(check, out);
    print_savings(check, out);
    print_notes(file, out);
    print_unknown(file, out);
    print_basis(check, out);
}

static void put_place(struct json *map, struct pos at)
{
    json_put_text(map, "file", at.file);
    json_put_int(map, "line", at.line);
}

static struct json *illegal_json(const struct check *check)
{
    struct json *list = json_list();
    for (int i = 0; i < check->illegal.count; i++) {
        const struct diag *diag = &check->illegal.items[i];
        struct json *entry = json_map();
        if (diag->severity != SEVERITY_ERROR) {
            json_free(entry);
            continue;
        }
        put_place(entry, (struct pos){ diag->file, diag->line, 0 });
        json_put_text(entry, "what", diag->what);
        json_put_text(entry, "hint", diag->hint);
        json_append(list, entry);
    }
    return list;
}

static struct json *options_json(const struct launch_file *file)
{
    struct json *list = json_list();
    for (size_t i = 0; i < file->unknown_count; i++) {
        struct json *entry = json_map();
        json_put_text(entry, "option", file->unknown[i]->written);
        json_put_text(entry, "value", file->unknown[i]->value);
        put_place(entry, file->unknown[i]->at);
        json_append(list, entry);
    }
    return list;
}

static struct json *notes_json(const struct launch_file *file)
{
    struct json *list = json_list();
    for (size_t i = 0; i < file->note_count; i++) {
        struct json *entry = json_map();
        json_put_text(entry, "option", file->notes[i].option);
        json_put_text(entry, "note", file->notes[i].text);
        put_place(entry, file->notes[i].at);
        json_append(list, entry);
    }
    return list;
}

static struct json *settings_json(const struct launch_file *file)
{
    struct json *map = json_map();
    for (size_t i = 0; i < file->settings.count; i++)
        if (launch_applies(&file->settings, file->settings.items[i].key))
            json_put_text(map, file->settings.items[i].key, file->settings.items[i].value);
    return map;
}

static struct json *savings_json(const struct check *check)
{
    struct json *list = json_list();
    for (int i = 0; i < check->saving_count; i++) {
        struct json *entry = json_map();
        json_put_text(entry, "change", check->savings[i].change);
        json_put_number(entry, "share_of_step", check->savings[i].share);
        json_put_u64(entry, "peak_bytes", check->savings[i].peak_bytes);
        json_append(list, entry);
    }
    return list;
}

struct json *check_json(const struct check *check)
{
    const struct launch_file *file = check->file;
    const struct prediction *prediction = &check->subject->prediction;
    struct json *ret = json_document("rankfit.check/1");
    json_put_text(ret, "launch", file->target->name);
    put_place(ret, file->at);
    json_put_text(ret, "version", file->target->version);
    json_put_text(ret, "engine", prediction->plan.engine);
    json_put_text(ret, "verdict", check->judged ? verdict_names[prediction->verdict] : "illegal");
    json_put(ret, "illegal", illegal_json(check));
    json_put(ret, "settings", settings_json(file));
    if (check->judged) {
        const struct rank_budget *worst = prediction_worst(prediction);
        json_put_u64(ret, "peak_bytes", worst->peak_bytes);
        json_put_u64(ret, "peak_upper_bytes", worst->peak_upper_bytes);
        json_put_int(ret, "peak_rank", worst->rank);
        json_put_number(ret, "step_seconds", prediction->time.seconds);
    }
    json_put_u64(ret, "limit_bytes", prediction->limit_bytes);
    json_put(ret, "nearest",
             check->judged ? report_nearest_json(&check->subject->answer) : json_list());
    json_put(ret, "wasteful", savings_json(check));
    json_put(ret, "notes", notes_json(file));
    json_put(ret, "unknown", options_json(file));
    json_put_int(ret, "neutral", (int64_t)file->neutral_count);
    return ret;
}
