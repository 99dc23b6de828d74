/* A recipe: a YAML map whose keys are the long option names, and `set:`. It may hold options of any
 * command; each command uses its own. */
#include "base/file.h"
#include "base/text.h"
#include "planner/cli/options.h"

#include <string.h>

/* A name stays a name; what looks like a path (a slash, or the ending of a data file) is relative
 * to the recipe. */
static bool looks_like_path(const char *value)
{
    static const char *const endings[] = { ".yaml", ".yml", ".json", ".txt" };
    size_t length = strlen(value);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t ending = strlen(endings[i]);
        if (length > ending && strcmp(value + length - ending, endings[i]) == 0)
            return true;
    }
    return strchr(value, '/') != NULL;
}

static const char *relative_to(struct pool *pool, const char *recipe_path, const char *value)
{
    const char *slash = strrchr(recipe_path, '/');
    if (value[0] == '/' || !slash)
        return value;
    return pool_printf(pool, "%.*s/%s", (int)(slash - recipe_path), recipe_path, value);
}

static bool is_scalar(const struct node *node)
{
    return node->kind == NODE_BOOL || node->kind == NODE_INT || node->kind == NODE_REAL ||
           node->kind == NODE_TEXT;
}

static const char *no_value(const struct node *node, struct diag_list *reterr)
{
    diag_error(reterr, node->at, "'%s' is %s, not a value", node->key, node_kind_name(node->kind));
    return NULL;
}

/* A scalar as written; a list of scalars joined by commas, as --set takes it. NULL with a
 * diagnostic: neither, or more than a value has room for. */
static const char *value_text(struct options *options, const struct node *node,
                              struct diag_list *reterr)
{
    if (is_scalar(node))
        return node->text;
    if (node->kind != NODE_LIST || node->count == 0)
        return no_value(node, reterr);
    char joined[2048];
    size_t used = 0;
    for (const struct node *child = node->child; child; child = child->next) {
        if (!is_scalar(child))
            return no_value(node, reterr);
        size_t length = strlen(child->text) + (used > 0);
        if (length >= sizeof joined - used) {
            diag_error(reterr, node->at, "'%s' is a list of more than %zu characters", node->key,
                       sizeof joined - 1);
            return NULL;
        }
        text_append(joined, sizeof joined, &used, "%s%s", used ? "," : "", child->text);
    }
    return pool_copy_text(&options->pool, joined, used);
}

static void read_set(struct options *options, const struct node *set, struct diag_list *reterr)
{
    if (set->kind != NODE_MAP) {
        diag_error(reterr, set->at, "'set' is %s, not a map of keys to values",
                   node_kind_name(set->kind));
        return;
    }
    for (const struct node *child = set->child; child; child = child->next) {
        if (child->kind == NODE_NULL)
            continue;
        const char *text = value_text(options, child, reterr);
        if (text)
            (void)options_add_set(options, child->key, text, child->at, true, reterr);
    }
}

static void read_flag(struct options *options, enum option_id id, const struct node *node,
                      struct diag_list *reterr)
{
    if (node->kind != NODE_BOOL) {
        diag_error(reterr, node->at, "'%s' is %s, not true or false", node->key,
                   node_kind_name(node->kind));
        return;
    }
    if (node->boolean && !options_has(options, id)) {
        options->value[id] = "";
        options->at[id] = node->at;
    }
}

void options_read_entry(struct options *options, const char *path, const struct node *node,
                        struct diag_list *reterr)
{
    enum option_id id = option_find(node->key);
    if (id == OPTION_COUNT || !option_infos[id].in_recipe) {
        if (id != OPTION_COUNT && option_infos[id].type == OPTION_PATH) {
            diag_error(reterr, node->key_at, "a recipe cannot name a file to write: '%s'",
                       node->key);
            diag_hint(reterr, "the command line can: --%s FILE", node->key);
            return;
        }
        diag_error(reterr, node->key_at, "unknown key '%s' in a recipe", node->key);
        const char *nearest = option_nearest(node->key, FOR_ALL, true);
        if (nearest)
            diag_hint(reterr, "did you mean '%s'?", nearest);
        else
            diag_hint(reterr, "the keys are the long options of rankfit's commands, and set");
        return;
    }
    if (node->kind == NODE_NULL)
        return;
    if (id == OPTION_SET) {
        read_set(options, node, reterr);
        return;
    }
    if (!option_infos[id].value) {
        read_flag(options, id, node, reterr);
        return;
    }
    const char *text = node->text;
    if (!is_scalar(node) && option_infos[id].lists) {
        text = value_text(options, node, reterr);
    } else if (!is_scalar(node)) {
        diag_error(reterr, node->at, "'%s' is %s, not a single value", node->key,
                   node_kind_name(node->kind));
        return;
    }
    if (!text || options_has(options, id))
        return;
    enum option_type type = option_infos[id].type;
    bool may_be_path = type == OPTION_DATA_PATH || type == OPTION_BYTES_OR_DATA;
    bool is_relative = type == OPTION_PATH || (may_be_path && looks_like_path(text));
    options->value[id] = is_relative ? relative_to(&options->pool, path, text) : text;
    options->at[id] = node->at;
}

int options_read_recipe(struct options *options, const char *name, struct diag_list *reterr)
{
    char path[4096];
    int before = reterr->errors;
    if (file_find_data("recipes", name, path, sizeof path, reterr) != 0 ||
        tree_read_file(&options->recipe, path, reterr) != 0)
        return -1;
    const struct node *root = options->recipe.root;
    if (!root || root->kind != NODE_MAP)
        return diag_error(reterr, (struct pos){ .file = name },
                          "a recipe is a map of option names to values");
    for (const struct node *child = root->child; child; child = child->next)
        options_read_entry(options, path, child, reterr);
    return reterr->errors > before ? -1 : 0;
}
