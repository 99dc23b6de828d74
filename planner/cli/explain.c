/* rankfit explain: a key, item, category, rule, primitive, step-time item, machine or model. */
#include "planner/cli/explain.h"

#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/cli/command.h"
#include "planner/cli/output.h"
#include "planner/cli/subject.h"
#include "planner/report/json.h"
#include "planner/report/table.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_NAMES = 512, LABEL_ROOM = 64, VALUE_ROOM = 768 };

static void format_value(const json_t *value, char *ret, size_t size)
{
    ret[0] = '\0';
    if (json_is_string(value))
        (void)snprintf(ret, size, "%s", json_string_value(value));
    else if (json_is_integer(value))
        (void)units_format_count(ret, size, (uint64_t)json_integer_value(value));
    else if (json_is_real(value))
        (void)snprintf(ret, size, "%.6g", json_real_value(value));
    else if (json_is_boolean(value))
        (void)snprintf(ret, size, "%s", json_is_true(value) ? "true" : "false");
}

/* "params_total" becomes "params total". */
static void format_label(const char *key, char *ret, size_t size)
{
    (void)text_copy(ret, size, key);
    for (char *c = ret; *c; c++)
        if (*c == '_')
            *c = ' ';
}

static void print_line(int width, const char *label, const char *value)
{
    char line[VALUE_ROOM + 2 * LABEL_ROOM];
    size_t used = 0;
    text_append(line, sizeof line, &used, "%-*s %s", width, label, value);
    text_wrap("", line, width + 1, stdout);
}

/* An object on one line: "ranks 0-7, bytes at peak 1,024". */
static void print_object_line(int width, json_t *object)
{
    char line[VALUE_ROOM] = "", value[VALUE_ROOM], label[LABEL_ROOM];
    size_t used = 0;
    const char *key;
    json_t *member;
    json_object_foreach(object, key, member)
    {
        format_label(key, label, sizeof label);
        format_value(member, value, sizeof value);
        text_append(line, sizeof line, &used, "%s%s %s", used ? ", " : "", label, value);
    }
    print_line(width, "", line);
}

static void print_array(int width, const char *label, json_t *array)
{
    char line[VALUE_ROOM] = "", value[VALUE_ROOM];
    size_t used = 0, index;
    json_t *member;
    json_array_foreach(array, index, member)
    {
        format_value(member, value, sizeof value);
        text_append(line, sizeof line, &used, "%s%s", used ? ", " : "", value);
    }
    print_line(width, label, line);
    json_array_foreach(array, index, member) if (json_is_object(member))
        print_object_line(width, member);
}

static void print_members(int width, const char *indent, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        char text[VALUE_ROOM], words[LABEL_ROOM], label[2 * LABEL_ROOM];
        if (strcmp(key, "kind") == 0 || strcmp(key, "name") == 0)
            continue;
        format_label(key, words, sizeof words);
        (void)snprintf(label, sizeof label, "%s%s", indent, words);
        format_value(value, text, sizeof text);
        if (json_is_array(value)) {
            print_array(width, label, value);
        } else {
            print_line(width, label, text);
            if (json_is_object(value))
                print_members(width, "  ", value);
        }
    }
}

/* The longest label, those of members of members indented by two. */
static int label_width(json_t *object, int indent)
{
    const char *key;
    json_t *value;
    int width = 0;
    json_object_foreach(object, key, value)
    {
        int length = (int)strlen(key) + indent;
        int inner = json_is_object(value) ? label_width(value, indent + 2) : 0;
        width = length > width ? length : width;
        width = inner > width ? inner : width;
    }
    return width;
}

static void print_entry(json_t *entry, const char *kind)
{
    (void)printf("%s (%s)\n", json_string_value(json_object_get(entry, "name")), kind);
    print_members(label_width(entry, 0), "", entry);
}

static void print_document(const json_t *document)
{
    size_t index;
    json_t *entry, *model = json_object_get(document, "model");
    if (model)
        print_entry(model, "model");
    json_array_foreach(json_object_get(document, "entries"), index, entry)
        print_entry(entry, json_string_value(json_object_get(entry, "kind")));
}

static int show(const struct options *options, const struct json *document,
                struct diag_list *reterr)
{
    if (options_has(options, OPTION_JSON))
        return output_json(document, reterr);
    if (!json_view(document))
        return diag_no_memory(reterr);
    print_document(json_view(document));
    return 0;
}

/* A name of data that ships, or a path; machines and models are files. */
static bool is_data(const char *kind, const char *name, struct diag_list *reterr)
{
    char path[4096];
    struct diag_list faults = { 0 };
    bool ret = file_find_data(kind, name, path, sizeof path, &faults) == 0;
    diag_keep_no_memory(reterr, &faults);
    return ret;
}

/* Whether the file of that name reads as a machine; if not, it is taken for a model. */
static bool is_machine(const char *name, struct diag_list *reterr)
{
    struct hardware hardware = { 0 };
    struct diag_list faults = { 0 };
    bool ret = is_data("hardware", name, reterr) && hardware_load(name, &hardware, &faults) == 0;
    diag_keep_no_memory(reterr, &faults);
    return ret;
}

static bool is_model(const char *name, struct diag_list *reterr)
{
    struct stat info;
    return stat(name, &info) == 0 || strchr(name, '/') || is_data("models", name, reterr);
}

static int explain_model(const char *name, struct json *document, struct diag_list *reterr)
{
    struct model model = { 0 };
    if (model_load(name, &model, reterr) != 0)
        return EXIT_QUESTION;
    json_put(document, "model", report_model_json(&model));
    return EXIT_ANSWERED;
}

static int explain_machine(const char *name, struct json *document, struct diag_list *reterr)
{
    struct hardware hardware = { 0 };
    if (hardware_load(name, &hardware, reterr) != 0)
        return EXIT_QUESTION;
    struct json *entry = json_map(), *entries = json_list();
    json_put_text(entry, "kind", "hardware");
    json_put_text(entry, "name", name);
    json_merge(entry, hardware_to_json(&hardware));
    json_append(entries, entry);
    json_put(document, "entries", entries);
    return EXIT_ANSWERED;
}

struct names {
    struct pool pool;
    size_t count;
    const char *names[MAX_NAMES];
};

static void add_name(const char *name, const char *path, void *context)
{
    struct names *names = context;
    char *copy = pool_copy_text(&names->pool, name, strlen(name));
    (void)path;
    if (copy && names->count < MAX_NAMES)
        names->names[names->count++] = copy;
}

static int unknown_name(const char *name, struct diag_list *reterr)
{
    struct names known = { .count = 0 };
    struct diag_list ignored = { 0 };
    (void)file_list_data("models", add_name, &known, &ignored);
    (void)file_list_data("hardware", add_name, &known, &ignored);
    for (size_t kind = 0; kind < explainer_count; kind++)
        for (size_t i = 0; explainers[kind].name(i) && known.count < MAX_NAMES; i++)
            known.names[known.count++] = explainers[kind].name(i);
    const char *nearest = text_nearest(name, known.names, known.count);
    diag_error(reterr, (struct pos){ 0 }, "nothing is called '%s'", name);
    if (nearest)
        diag_hint(reterr, "did you mean '%s'?", nearest);
    else
        diag_hint(reterr, "rankfit list keys, items, primitives, models or hardware");
    pool_done(&known.pool);
    return EXIT_QUESTION;
}

/* Everything of that name: `fsdp` is a key and a value of another. False when there is nothing. */
static bool explain_words(const char *name, const struct prediction *prediction,
                          struct json *document)
{
    struct json *entries = json_list();
    bool found = false;
    for (size_t i = 0; i < explainer_count; i++) {
        struct json *entry = json_map();
        bool here = explainers[i].explain(name, prediction, entry);
        if (here)
            json_append(entries, entry);
        else
            json_free(entry);
        found = found || here;
    }
    if (found)
        json_put(document, "entries", entries);
    else
        json_free(entries);
    return found;
}

/* EP is ep: the same in lower case, where it then is a name. */
static bool explain_lower(const char *name, const struct prediction *prediction,
                          struct json *document)
{
    char lower[64];
    bool changed = false;
    size_t length = strlen(name);
    if (length >= sizeof lower)
        return false;
    for (size_t i = 0; i <= length; i++) {
        lower[i] = (char)tolower((unsigned char)name[i]);
        changed = changed || lower[i] != name[i];
    }
    return changed && explain_words(lower, prediction, document);
}

static int explain(const char *name, const struct prediction *prediction, struct json *document,
                   struct diag_list *reterr)
{
    if (explain_words(name, prediction, document) || explain_lower(name, prediction, document))
        return EXIT_ANSWERED;
    if (is_machine(name, reterr))
        return explain_machine(name, document, reterr);
    return is_model(name, reterr) ? explain_model(name, document, reterr)
                                  : unknown_name(name, reterr);
}

int command_explain(const struct options *options, struct diag_list *reterr)
{
    struct subject *subject = NULL;
    if (options->argument_count > 1) {
        subject = subject_open_plan(options->argument[1], reterr);
        if (!subject)
            return EXIT_QUESTION;
    }
    struct json *document = json_document("rankfit.explain/1");
    int status =
        explain(options->argument[0], subject ? &subject->prediction : NULL, document, reterr);
    if (status == EXIT_ANSWERED && show(options, document, reterr) != 0)
        status = EXIT_SYSTEM;
    json_free(document);
    subject_free(subject);
    return status;
}
