/* rankfit list: everything that can be named, one row a thing. */
#include "base/file.h"
#include "base/layout/key.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/cli/command.h"
#include "planner/cli/glossary.h"
#include "planner/cli/output.h"
#include "planner/cli/pair_row.h"
#include "planner/engine/engine.h"
#include "planner/report/table.h"
#include "planner/rules/fact.h"
#include "planner/rules/rule.h"

#include <jansson.h>
#include <string.h>

/* One kind of thing: fills an array of {name, about, ...}. */
struct list_kind {
    const char *name;
    int (*fill)(struct json *ret, struct diag_list *reterr);
    /* Judges a file of one's own; NULL: of this kind there are none. */
    int (*check)(const char *path, struct json *ret, struct diag_list *reterr);
};

static void add_entry(struct json *array, const char *name, const char *about)
{
    struct json *entry = json_map();
    json_put_text(entry, "name", name);
    json_put_text(entry, "about", about);
    json_append(array, entry);
}

struct visit {
    struct json *array;
    struct diag_list *reterr;
};

static void visit_model(const char *name, const char *path, void *context)
{
    struct visit *visit = context;
    struct model model = { 0 };
    struct model_counts counts;
    char about[320], total[32], active[32];
    if (model_load(path, &model, visit->reterr) != 0)
        return;
    model_count(&model, &counts);
    format_params(counts.total, total, sizeof total);
    format_params(counts.active, active, sizeof active);
    (void)snprintf(about, sizeof about, "%s, %s parameters, %s active, %d layers (%s)", model.title,
                   total, active, model.layers, model.architecture);
    add_entry(visit->array, name, about);
}

static int fill_models(struct json *ret, struct diag_list *reterr)
{
    struct visit visit = { ret, reterr };
    int status = file_list_data("models", visit_model, &visit, reterr);
    for (size_t i = 0; i < model_family_count; i++)
        add_entry(ret, model_families[i].architecture, model_families[i].reads);
    return status;
}

static void add_hardware(struct json *array, const char *name, const struct hardware *h)
{
    char about[320], memory[32];
    (void)snprintf(about, sizeof about, "%s, %s, %.4g TFLOP/s dense bf16, %.3g TB/s", h->gpu,
                   units_format_gb(memory, sizeof memory, h->memory_bytes, 1),
                   h->bf16_flops_per_second / 1e12, h->memory_bytes_per_second / 1e12);
    add_entry(array, name, about);
}

static void visit_hardware(const char *name, const char *path, void *context)
{
    struct visit *visit = context;
    struct hardware hardware = { 0 };
    if (hardware_load(path, &hardware, visit->reterr) == 0)
        add_hardware(visit->array, name, &hardware);
}

static int check_hardware(const char *path, struct json *ret, struct diag_list *reterr)
{
    struct hardware hardware = { 0 };
    if (hardware_check(path, &hardware, reterr) != 0)
        return -1;
    add_hardware(ret, hardware.name, &hardware);
    return 0;
}

static int fill_hardware(struct json *ret, struct diag_list *reterr)
{
    struct visit visit = { ret, reterr };
    return file_list_data("hardware", visit_hardware, &visit, reterr);
}

/* The first line of a recipe or validation set is a comment that says what it shows. */
static void visit_recipe(const char *name, const char *path, void *context)
{
    struct visit *visit = context;
    char line[160] = "";
    FILE *file = fopen(path, "r");
    if (file && !fgets(line, sizeof line, file))
        line[0] = '\0';
    if (file)
        (void)fclose(file);
    line[strcspn(line, "\n")] = '\0';
    add_entry(visit->array, name, line[0] == '#' ? line + 1 + (line[1] == ' ') : "");
}

static int fill_recipes(struct json *ret, struct diag_list *reterr)
{
    struct visit visit = { ret, reterr };
    return file_list_data("recipes", visit_recipe, &visit, reterr);
}

static int fill_keys(struct json *ret, struct diag_list *reterr)
{
    (void)reterr;
    for (size_t i = 0; i < choice_key_count; i++)
        add_entry(ret, choice_keys[i].key, choice_keys[i].help);
    add_entry(ret, "model.FIELD",
              "a fact of the model by its key in models/*.yaml, such as "
              "model.layers, model.width; model.mtp, model.vision");
    for (size_t i = 0; i < hardware_key_count; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "hardware.%s", hardware_keys[i].key);
        add_entry(ret, name, hardware_keys[i].meaning);
    }
    return 0;
}

static int fill_items(struct json *ret, struct diag_list *reterr)
{
    (void)reterr;
    for (int i = 0; i < ITEM_COUNT; i++) {
        struct json *entry = json_map();
        json_put_text(entry, "name", item_infos[i].name);
        json_put_text(entry, "about", item_infos[i].meaning);
        json_put_text(entry, "category", category_names[item_infos[i].category]);
        json_append(ret, entry);
    }
    return 0;
}

/* What `rankfit pair` holds a value against: the reference of its key, or another value where it
 * is that itself; NULL where the key has no pair. */
static const char *held_against(const struct primitive_info *info)
{
    const struct pair_row *row = pair_row_find(info->key, strlen(info->key));
    if (!row)
        return NULL;
    return strcmp(row->reference, info->value) == 0 ? row->other : row->reference;
}

static int fill_primitives(struct json *ret, struct diag_list *reterr)
{
    (void)reterr;
    for (size_t i = 0; i < primitive_info_count; i++) {
        const struct primitive_info *info = &primitive_infos[i];
        const char *against = held_against(info);
        struct json *entry = json_map();
        char name[96], pair[96];
        (void)snprintf(name, sizeof name, "%s=%s", info->key, info->value);
        (void)snprintf(pair, sizeof pair, "%s=%s", info->key, against ? against : "");
        json_put_text(entry, "name", name);
        json_put_text(entry, "about", info->meaning);
        if (against)
            json_put_text(entry, "pair", pair);
        json_append(ret, entry);
    }
    return 0;
}

static int fill_rules(struct json *ret, struct diag_list *reterr)
{
    (void)reterr;
    for (size_t i = 0; i < rule_count; i++)
        add_entry(ret, rules[i].name, rules[i].meaning);
    return 0;
}

static int fill_engines(struct json *ret, struct diag_list *reterr)
{
    (void)reterr;
    for (size_t i = 0; i < engine_count; i++)
        add_entry(ret, engines[i].name, engines[i].about);
    return 0;
}

static int fill_facts(struct json *ret, struct diag_list *reterr)
{
    (void)reterr;
    for (size_t i = 0; i < fact_count; i++)
        add_entry(ret, facts[i].name, facts[i].meaning);
    return 0;
}

static int fill_validation(struct json *ret, struct diag_list *reterr)
{
    struct visit visit = { ret, reterr };
    return file_list_data("validation", visit_recipe, &visit, reterr);
}

static const struct list_kind kinds[] = {
    { "models", fill_models, NULL },         { "hardware", fill_hardware, check_hardware },
    { "recipes", fill_recipes, NULL },       { "keys", fill_keys, NULL },
    { "items", fill_items, NULL },           { "primitives", fill_primitives, NULL },
    { "rules", fill_rules, NULL },           { "facts", fill_facts, NULL },
    { "validation", fill_validation, NULL }, { "engines", fill_engines, NULL },
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

static const struct list_kind *find_kind(const char *name, struct diag_list *reterr)
{
    const char *names[KIND_COUNT];
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
        names[i] = kinds[i].name;
    }
    const char *nearest = text_nearest(name, names, KIND_COUNT);
    diag_error(reterr, (struct pos){ 0 }, "rankfit cannot list '%s'", name);
    if (nearest)
        diag_hint(reterr, "did you mean '%s'?", nearest);
    else
        diag_hint(reterr, "models, hardware, recipes, keys, items, primitives, rules, facts, "
                          "validation or engines");
    return NULL;
}

static void print_entries(const json_t *entries)
{
    size_t index;
    json_t *entry;
    size_t width = 0;
    json_array_foreach(entries, index, entry)
    {
        size_t length = strlen(json_string_value(json_object_get(entry, "name")));
        width = length > width ? length : width;
    }
    json_array_foreach(entries, index, entry)
    {
        const char *pair = json_string_value(json_object_get(entry, "pair"));
        (void)printf("%-*s  %s%s%s%s\n", (int)width,
                     json_string_value(json_object_get(entry, "name")),
                     json_string_value(json_object_get(entry, "about")), pair ? " (pair with " : "",
                     pair ? pair : "", pair ? ")" : "");
    }
}

/* Everything of a kind, or the one file that --check names. */
static int fill(const struct list_kind *kind, const struct options *options, struct json *ret,
                struct diag_list *reterr)
{
    if (!options_has(options, OPTION_CHECK))
        return kind->fill(ret, reterr);
    if (kind->check)
        return kind->check(options->value[OPTION_CHECK], ret, reterr);
    diag_error(reterr, options->at[OPTION_CHECK], "rankfit list %s has no file to check",
               kind->name);
    return diag_hint(reterr, "rankfit list hardware --check FILE judges a hardware file");
}

/* Takes the entries. What could be listed without memory is not all there is. */
static int show(const struct options *options, const char *kind, struct json *entries,
                struct diag_list *reterr)
{
    struct json *document = entries;
    int ret = reterr->no_memory || !json_view(entries) ? diag_no_memory(reterr) : 0;
    if (ret == 0 && options_has(options, OPTION_JSON)) {
        document = json_document("rankfit.list/1");
        json_put_text(document, "kind", kind);
        json_put(document, kind, entries);
        ret = output_json(document, reterr);
    } else if (ret == 0) {
        print_entries(json_view(entries));
    }
    json_free(document);
    return ret;
}

int command_list(const struct options *options, struct diag_list *reterr)
{
    const struct list_kind *kind = find_kind(options->argument[0], reterr);
    if (!kind)
        return EXIT_QUESTION;
    struct json *entries = json_list();
    bool filled = fill(kind, options, entries, reterr) == 0 && reterr->errors == 0;
    int status = filled ? EXIT_ANSWERED : EXIT_QUESTION;
    if (show(options, kind->name, entries, reterr) != 0)
        status = EXIT_SYSTEM;
    return status;
}
