/* Finding and reading a model: native YAML or a Hugging Face configuration, told apart by whether
 * `architecture` is there. */
#include "base/file.h"
#include "base/model/hf.h"
#include "base/model/native.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_MAX_BYTES = 4096 };

/* Architectures end alike; only what stands before tells them apart. */
static void distinct_part(const char *name, char *ret, size_t size)
{
    const char *end = strstr(name, "For");
    size_t length = end != NULL ? (size_t)(end - name) : strlen(name), used = 0;
    text_append(ret, size, &used, "%.*s", (int)length, name);
}

/* Names that differ in digits only are versions, not misspellings. */
static bool is_other_version(const char *a, const char *b)
{
    for (;; a++, b++) {
        a += strspn(a, "0123456789");
        b += strspn(b, "0123456789");
        if (*a != *b)
            return false;
        if (*a == '\0')
            return true;
    }
}

/* The family whose architecture is spelt nearly so, or NULL. */
static const struct model_family *nearest_family(const char *name)
{
    enum { MAX_FAMILIES = 128, PART_BYTES = 48 };
    char word[PART_BYTES], parts[MAX_FAMILIES][PART_BYTES];
    const char *known[MAX_FAMILIES];
    size_t count = 0;
    distinct_part(name, word, sizeof word);
    for (; count < model_family_count && count < MAX_FAMILIES; count++) {
        distinct_part(model_families[count].architecture, parts[count], PART_BYTES);
        known[count] = parts[count];
    }
    const char *nearest = text_nearest(word, known, count);
    if (nearest == NULL || is_other_version(word, nearest))
        return NULL;
    size_t i = 0;
    while (known[i] != nearest)
        i++;
    return &model_families[i];
}

static int unknown_architecture(struct pos at, const char *what, const char *name,
                                struct diag_list *reterr)
{
    const struct model_family *near =
        strcmp(what, "architecture") == 0 ? nearest_family(name) : NULL;
    diag_error(reterr, at, "%s '%s' is not read; its parameters are not guessed", what, name);
    if (near != NULL)
        return diag_hint(reterr, "did you mean '%s'? `rankfit list models` names all that are read",
                         near->architecture);
    return diag_hint(reterr, "`rankfit list models` names the architectures that are read");
}

static const struct model_family *family_by_type(const char *model_type)
{
    for (size_t i = 0; i < model_family_count; i++) {
        if (strcmp(model_families[i].model_type, model_type) == 0)
            return &model_families[i];
    }
    return NULL;
}

/* The architecture of a Hugging Face file: the one entry of `architectures`, or, in the nested
 * files that lack it, the `model_type`. */
static const struct model_family *hf_family(const struct node *root, struct diag_list *reterr)
{
    const struct node *list = NULL;
    const char *type = NULL;
    const struct model_family *family = NULL;
    if (node_list(root, "architectures", &list, reterr) < 0)
        return NULL;
    if (list != NULL && list->count > 0) {
        const struct node *first = list->child;
        if (list->count > 1 || first->kind != NODE_TEXT) {
            diag_error(reterr, list->at, "'architectures' must name one architecture");
            return NULL;
        }
        family = model_family_find(first->text);
        if (family == NULL)
            unknown_architecture(first->at, "architecture", first->text, reterr);
        return family;
    }
    if (node_text(root, "model_type", &type, reterr) == 1) {
        family = family_by_type(type);
        if (family == NULL)
            unknown_architecture(node_get(root, "model_type")->at, "model_type", type, reterr);
        return family;
    }
    diag_error(reterr, root->at, "neither a model of rankfit nor a Hugging Face configuration");
    diag_hint(reterr, "the first has the key 'architecture', the second 'architectures'");
    return NULL;
}

/* The text model's map, where the file keeps it apart; some older files do not. */
static const struct node *text_of(const struct node *root, const struct model_family *family,
                                  struct diag_list *reterr)
{
    const struct node *text = root;
    if (family->text_key == NULL)
        return root;
    int got = node_map(root, family->text_key, &text, reterr);
    if (got == 0 && family->flat)
        return root;
    if (got == 0)
        diag_error(reterr, root->at, "required key '%s' is missing", family->text_key);
    return got == 1 ? text : NULL;
}

static int hf_read(const struct node *root, struct model *ret, struct diag_list *reterr)
{
    int before = reterr->errors;
    struct hf outer, inner;
    const struct model_family *family = hf_family(root, reterr);
    const struct node *text = family != NULL ? text_of(root, family, reterr) : NULL;
    if (text == NULL)
        return -1;
    text_copy(ret->architecture, sizeof ret->architecture, family->architecture);
    text_copy(ret->name, sizeof ret->name, family->model_type);
    text_copy(ret->title, sizeof ret->title, family->model_type);
    hf_init(&outer, root, NULL, ret, reterr);
    outer.defaults = family->defaults != NULL ? family->defaults : "";
    if (text == root) {
        family->read(&outer);
    } else {
        hf_init(&inner, text, &outer, ret, reterr);
        inner.defaults = outer.defaults;
        hf_note(&outer, family->text_key);
        family->read(&inner);
        hf_refuse_rest(&inner);
    }
    hf_refuse_rest(&outer);
    if (reterr->errors == before)
        hf_say_defaults(&outer);
    return reterr->errors == before ? 0 : -1;
}

static int native_architecture(const struct node *root, struct model *ret, struct diag_list *reterr)
{
    const char *name = NULL;
    if (node_text(root, "architecture", &name, reterr) != 1)
        return -1;
    if (model_family_find(name) == NULL)
        return unknown_architecture(node_get(root, "architecture")->at, "architecture", name,
                                    reterr);
    text_copy(ret->architecture, sizeof ret->architecture, name);
    return 0;
}

int model_from_node(const struct node *root, struct model *ret, struct diag_list *reterr)
{
    int before = reterr->errors;
    memset(ret, 0, sizeof *ret);
    if (root == NULL || root->kind != NODE_MAP)
        return diag_error(reterr, root != NULL ? root->at : (struct pos){ 0 },
                          "a model is a map of keys, not %s",
                          root != NULL ? node_kind_name(root->kind) : "an empty document");
    if (node_get(root, "architecture") != NULL) {
        native_architecture(root, ret, reterr);
        native_read(root, ret, reterr);
    } else {
        hf_read(root, ret, reterr);
    }
    return reterr->errors == before ? model_check(ret, root->at, reterr) : -1;
}

/* A Hugging Face file does not name its model, its place does: the directory that holds
 * config.json, otherwise the file's stem. What mirrors put in front ("org--") is left out. */
static void name_from_path(const char *path, struct model *model)
{
    char stem[PATH_MAX_BYTES];
    text_copy(stem, sizeof stem, path);
    char *slash = strrchr(stem, '/');
    if (slash != NULL && slash != stem && strcmp(slash + 1, "config.json") == 0)
        *slash = '\0';
    slash = strrchr(stem, '/');
    char *base = slash != NULL ? slash + 1 : stem;
    char *org = strstr(base, "--");
    if (org != NULL && org[2] != '\0')
        base = org + 2;
    char *dot = strrchr(base, '.');
    if (dot != NULL && (strcmp(dot, ".json") == 0 || strcmp(dot, ".yaml") == 0))
        *dot = '\0';
    if (base[0] == '\0' || strcmp(base, ".") == 0 || strcmp(base, "config") == 0)
        return;
    text_copy(model->title, sizeof model->title, base);
    text_copy(model->name, sizeof model->name, base);
    for (char *c = model->name; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
}

static bool is_directory(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static int find_path(const char *name, char *ret, size_t size, struct diag_list *reterr)
{
    if (!is_directory(name))
        return file_find_data("models", name, ret, size, reterr);
    size_t length = strlen(name);
    while (length > 1 && name[length - 1] == '/')
        length--;
    if (snprintf(ret, size, "%.*s/config.json", (int)length, name) >= (int)size)
        return diag_error(reterr, (struct pos){ 0 }, "the path of the model is too long");
    if (access(ret, F_OK) == 0)
        return 0;
    if (strchr(name, '/') == NULL)
        return file_find_data("models", name, ret, size, reterr);
    return diag_error(reterr, (struct pos){ name, 0, 0 }, "the directory holds no config.json");
}

int model_load(const char *name_or_path, struct model *ret, struct diag_list *reterr)
{
    char path[PATH_MAX_BYTES];
    struct tree tree = { 0 };
    memset(ret, 0, sizeof *ret);
    if (find_path(name_or_path, path, sizeof path, reterr) != 0)
        return -1;
    int result = tree_read_file(&tree, path, reterr);
    if (result == 0)
        result = model_from_node(tree.root, ret, reterr);
    if (result == 0 && node_get(tree.root, "architecture") == NULL)
        name_from_path(path, ret);
    tree_done(&tree);
    return result;
}
