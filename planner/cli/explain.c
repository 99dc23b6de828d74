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

#include <inttypes.h>
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

static void print_entry(json_t *entry)
{
    (void)printf("%s (%s)\n", json_string_value(json_object_get(entry, "name")),
                 json_string_value(json_object_get(entry, "kind")));
    print_members(label_width(entry, 0), "", entry);
}

static void print_document(json_t *document, bool as_json)
{
    size_t index;
    json_t *entry;
    if (as_json) {
        output_json(document);
        return;
    }
    json_t *model = json_object_get(document, "model");
    if (model) {
        json_object_set_new(model, "kind", json_string("model"));
        print_entry(model);
    }
    json_array_foreach(json_object_get(document, "entries"), index, entry) print_entry(entry);
}

/* A name of data that ships, or a path; machines and models are files. */
static bool is_data(const char *kind, const char *name)
{
    char path[4096];
    struct diag_list ignored = { 0 };
    return file_find_data(kind, name, path, sizeof path, &ignored) == 0;
}

/* Whether the file of that name reads as a machine; if not, it is taken for a model. */
static bool is_machine(const char *name)
{
    struct hardware hardware = { 0 };
    struct diag_list ignored = { 0 };
    return is_data("hardware", name) && hardware_load(name, &hardware, &ignored) == 0;
}

static bool is_model(const char *name)
{
    struct stat info;
    return stat(name, &info) == 0 || strchr(name, '/') || is_data("models", name);
}

static json_t *explain_model(const char *name, struct diag_list *reterr)
{
    struct model model = { 0 };
    if (model_load(name, &model, reterr) != 0)
        return NULL;
    return json_pack("{s:s, s:o}", "schema", "rankfit.explain/1", "model",
                     report_model_json(&model));
}

static json_t *explain_machine(const char *name, struct diag_list *reterr)
{
    struct hardware hardware = { 0 };
    if (hardware_load(name, &hardware, reterr) != 0)
        return NULL;
    json_t *entry = json_pack("{s:s, s:s}", "kind", "hardware", "name", name);
    json_t *facts = hardware_to_json(&hardware);
    json_object_update_missing(entry, facts);
    json_decref(facts);
    return json_pack("{s:s, s:[o]}", "schema", "rankfit.explain/1", "entries", entry);
}

static void add_name(const char *name, const char *path, void *context)
{
    (void)path;
    json_array_append_new(context, json_string(name));
}

static int unknown_name(const char *name, struct diag_list *reterr)
{
    const char *names[MAX_NAMES];
    size_t count = 0;
    json_t *data = json_array();
    struct diag_list ignored = { 0 };
    (void)file_list_data("models", add_name, data, &ignored);
    (void)file_list_data("hardware", add_name, data, &ignored);
    for (size_t i = 0; i < json_array_size(data) && count < MAX_NAMES; i++)
        names[count++] = json_string_value(json_array_get(data, i));
    for (size_t kind = 0; kind < explainer_count; kind++)
        for (size_t i = 0; explainers[kind].name(i) && count < MAX_NAMES; i++)
            names[count++] = explainers[kind].name(i);
    const char *nearest = text_nearest(name, names, count);
    diag_error(reterr, (struct pos){ 0 }, "nothing is called '%s'", name);
    if (nearest)
        diag_hint(reterr, "did you mean '%s'?", nearest);
    else
        diag_hint(reterr, "rankfit list keys, items, primitives, models or hardware");
    json_decref(data);
    return EXIT_QUESTION;
}

/* Everything of that name: `fsdp` is a key and a value of another. NULL when there is nothing. */
static json_t *explain_words(const char *name, const struct prediction *prediction)
{
    json_t *entries = json_array();
    for (size_t i = 0; i < explainer_count; i++) {
        json_t *entry = explainers[i].explain(name, prediction);
        if (entry)
            json_array_append_new(entries, entry);
    }
    if (json_array_size(entries) == 0) {
        json_decref(entries);
        return NULL;
    }
    return json_pack("{s:s, s:o}", "schema", "rankfit.explain/1", "entries", entries);
}

int command_explain(const struct options *options, struct diag_list *reterr)
{
    const char *name = options->argument[0];
    struct subject *subject = NULL;
    if (options->argument_count > 1) {
        subject = subject_open_plan(options->argument[1], reterr);
        if (!subject)
            return EXIT_QUESTION;
    }
    json_t *document = explain_words(name, subject ? &subject->prediction : NULL);
    if (!document && is_machine(name))
        document = explain_machine(name, reterr);
    else if (!document && is_model(name))
        document = explain_model(name, reterr);
    int status = document ? EXIT_ANSWERED : EXIT_QUESTION;
    if (document)
        print_document(document, options_has(options, OPTION_JSON));
    else if (reterr->errors == 0)
        status = unknown_name(name, reterr);
    json_decref(document);
    subject_free(subject);
    return status;
}
