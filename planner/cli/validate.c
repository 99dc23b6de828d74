/* rankfit validate: every set under validation/, or one of them, or a file of one's own. */
#include "planner/cli/validate.h"

#include "base/file.h"
#include "base/text.h"
#include "planner/cli/command.h"
#include "planner/cli/output.h"

#include <stdlib.h>
#include <string.h>

static const struct validation_kind kinds[] = {
    { "rankfit.figures/1", validate_figures },
    { "rankfit.stages/1", validate_stages },
    { "rankfit.peaks/1", validate_peaks },
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

/* What is wrong with a question as a whole is wrong at its place in the file. */
static void place_faults(struct pos at, int first, struct diag_list *list)
{
    for (int i = first; i < list->count; i++) {
        struct diag *diag = &list->items[i];
        if (diag->file[0] || diag->line > 0)
            continue;
        (void)text_copy(diag->file, sizeof diag->file, at.file ? at.file : "");
        diag->line = at.line;
        diag->column = at.column;
    }
}

struct posed *posed_open(const struct node *map, struct diag_list *reterr)
{
    struct posed *ret = calloc(1, sizeof *ret);
    const struct node *recipe = NULL;
    int before = reterr->errors, first = reterr->count;
    if (!ret) {
        diag_no_memory(reterr);
        return NULL;
    }
    if (map->kind != NODE_MAP)
        diag_error(reterr, map->at, "a question is a map of option names to values");
    for (const struct node *node = map->child; map->kind == NODE_MAP && node; node = node->next)
        if (strcmp(node->key, "recipe") == 0 && node->kind == NODE_TEXT)
            recipe = node;
        else
            options_read_entry(&ret->options, map->at.file, node, reterr);
    if (recipe)
        (void)options_read_recipe(&ret->options, recipe->text, reterr);
    if (reterr->errors == before)
        options_check_values(&ret->options, FOR_BUDGET, reterr);
    if (reterr->errors == before)
        ret->subject = subject_open(&ret->options, reterr);
    place_faults(map->at, first, reterr);
    if (ret->subject && reterr->errors == before)
        return ret;
    posed_free(ret);
    return NULL;
}

void posed_free(struct posed *posed)
{
    if (!posed)
        return;
    subject_free(posed->subject);
    options_done(&posed->options);
    free(posed);
}

static const struct validation_kind *find_kind(const struct node *root, struct diag_list *reterr)
{
    const char *names[KIND_COUNT], *schema = NULL;
    if (!root || root->kind != NODE_MAP) {
        diag_error(reterr, root ? root->at : (struct pos){ 0 }, "a validation set is a map");
        return NULL;
    }
    if (node_text(root, "schema", &schema, reterr) < 0)
        return NULL;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (schema && strcmp(kinds[i].schema, schema) == 0)
            return &kinds[i];
        names[i] = kinds[i].schema;
    }
    const char *nearest = schema ? text_nearest(schema, names, KIND_COUNT) : NULL;
    if (schema)
        diag_error(reterr, node_get(root, "schema")->at, "schema is '%s', which no set has",
                   schema);
    else
        diag_error(reterr, root->at, "the validation set says no schema");
    diag_hint(reterr, "such as schema: %s", nearest ? nearest : kinds[0].schema);
    return NULL;
}

struct validation {
    FILE *out;
    struct json *sets;
    int count;  /* of sets */
    int status; /* the worst so far: EXIT_... */
    struct diag_list *reterr;
};

static void note(struct validation *validation, int status)
{
    if (status > validation->status)
        validation->status = status;
}

/* The set's verdict, 1, 0 or -1; its text once it is known that there are no faults. */
static int judge_kind(struct validation *v, const struct validation_kind *kind,
                      const struct node *root, const char *name, const char *title,
                      struct json *set)
{
    char *text = NULL;
    size_t bytes = 0;
    if (!v->out)
        return kind->judge(root, NULL, set, v->reterr);
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return diag_no_memory(v->reterr);
    int ret = kind->judge(root, out, set, v->reterr);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed)
        ret = diag_no_memory(v->reterr);
    if (ret >= 0)
        (void)fprintf(v->out, "%s%s: %s\n%s", v->count > 0 ? "\n" : "", name, title, text);
    free(text);
    return ret;
}

static void judge_root(struct validation *v, const char *name, const struct node *root)
{
    const char *title = "";
    const struct validation_kind *kind = find_kind(root, v->reterr);
    if (!kind || node_text(root, "title", &title, v->reterr) < 0) {
        note(v, EXIT_QUESTION);
        return;
    }
    struct json *set = json_map();
    json_put_text(set, "name", name);
    json_put_text(set, "title", title);
    json_put_text(set, "schema", kind->schema);
    int holds = judge_kind(v, kind, root, name, title, set);
    json_put_bool(set, "holds", holds == 1);
    json_append(v->sets, set);
    v->count++;
    note(v, holds < 0 ? EXIT_QUESTION : holds == 0 ? EXIT_NO : EXIT_ANSWERED);
}

static void judge_file(const char *name, const char *path, void *context)
{
    struct validation *v = context;
    struct tree tree = { 0 };
    if (tree_read_file(&tree, path, v->reterr) == 0)
        judge_root(v, name, tree.root);
    else
        note(v, EXIT_QUESTION);
    tree_done(&tree);
}

static int judge_named(struct validation *v, const char *name)
{
    char path[4096];
    if (file_find_data("validation", name, path, sizeof path, v->reterr) != 0)
        return EXIT_QUESTION;
    judge_file(name, path, v);
    return v->status;
}

static int judge_all(struct validation *v)
{
    if (file_list_data("validation", judge_file, v, v->reterr) != 0)
        return EXIT_QUESTION;
    if (v->count > 0 || v->reterr->errors > 0)
        return v->status;
    diag_error(v->reterr, (struct pos){ 0 }, "there is no validation set");
    return EXIT_SYSTEM;
}

int command_validate(const struct options *options, struct diag_list *reterr)
{
    if (output_check(options, reterr) != 0)
        return EXIT_SYSTEM;
    bool as_json = options_has(options, OPTION_JSON);
    struct validation validation = { .out = as_json ? NULL : stdout,
                                     .sets = json_list(),
                                     .reterr = reterr };
    int status = options->argument_count > 0 ? judge_named(&validation, options->argument[0])
                                             : judge_all(&validation);
    struct json *document = json_document("rankfit.validation/1");
    json_put_bool(document, "holds", status == EXIT_ANSWERED);
    json_put(document, "sets", validation.sets);
    if (status <= EXIT_NO && output_file(options, document, reterr) != 0)
        status = EXIT_SYSTEM;
    if (as_json && status <= EXIT_NO && output_json(document, reterr) != 0)
        status = EXIT_SYSTEM;
    json_free(document);
    return status;
}
