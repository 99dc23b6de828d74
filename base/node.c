#include "base/text.h"
#include "base/tree.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_MAX = 48, PHRASE_MAX = 160 };

const char *node_kind_name(enum node_kind kind)
{
    static const char *const names[] = {
        [NODE_NULL] = "null",     [NODE_BOOL] = "true or false", [NODE_INT] = "a whole number",
        [NODE_REAL] = "a number", [NODE_TEXT] = "text",          [NODE_LIST] = "a list",
        [NODE_MAP] = "a map",
    };
    return names[kind];
}

const struct node *node_get(const struct node *map, const char *key)
{
    if (!map || map->kind != NODE_MAP)
        return NULL;
    for (const struct node *child = map->child; child; child = child->next)
        if (strcmp(child->key, key) == 0)
            return child->kind == NODE_NULL ? NULL : child;
    return NULL;
}

/* Text of a file for a message, cut where it is long. */
static const char *shown(const char *text, char ret[SHOWN_MAX + 4])
{
    size_t used = strnlen(text, SHOWN_MAX);
    memcpy(ret, text, used);
    while (text[used] && used > 0 && ((unsigned char)text[used] & 0xc0) == 0x80)
        used--;
    memcpy(ret + used, text[used] ? "..." : "", text[used] ? 4 : 1);
    return ret;
}

static int wrong(const struct node *node, const char *expected, struct diag_list *reterr)
{
    char key[SHOWN_MAX + 4];
    char value[SHOWN_MAX + 4];
    shown(node->key, key);
    if (node->kind == NODE_LIST || node->kind == NODE_MAP)
        return diag_error(reterr, node->at, "'%s' is %s, expected %s", key,
                          node_kind_name(node->kind), expected);
    shown(node->text, value);
    if (node->kind == NODE_TEXT)
        return diag_error(reterr, node->at, "'%s' is text (\"%s\"), expected %s", key, value,
                          expected);
    return diag_error(reterr, node->at, "'%s' is %s, expected %s", key, value, expected);
}

/* "a whole number from 1 to 512"; a bound at the end of the type is no bound worth telling. */
static void phrase_int(char ret[PHRASE_MAX], int64_t min, int64_t max)
{
    if (min == INT64_MIN && max == INT64_MAX)
        (void)snprintf(ret, PHRASE_MAX, "a whole number");
    else if (max == INT64_MAX)
        (void)snprintf(ret, PHRASE_MAX, "a whole number of at least %" PRId64, min);
    else if (min == INT64_MIN)
        (void)snprintf(ret, PHRASE_MAX, "a whole number of at most %" PRId64, max);
    else
        (void)snprintf(ret, PHRASE_MAX, "a whole number from %" PRId64 " to %" PRId64, min, max);
}

static void phrase_real(char ret[PHRASE_MAX], double min, double max)
{
    if (isinf(min) && isinf(max))
        (void)snprintf(ret, PHRASE_MAX, "a number");
    else if (isinf(max))
        (void)snprintf(ret, PHRASE_MAX, "a number of at least %g", min);
    else if (isinf(min))
        (void)snprintf(ret, PHRASE_MAX, "a number of at most %g", max);
    else
        (void)snprintf(ret, PHRASE_MAX, "a number from %g to %g", min, max);
}

int node_int(const struct node *map, const char *key, int64_t min, int64_t max, int64_t *ret,
             struct diag_list *reterr)
{
    const struct node *node = node_get(map, key);
    char expected[PHRASE_MAX];
    if (!node)
        return 0;
    if (node->kind == NODE_INT && node->integer >= min && node->integer <= max) {
        *ret = node->integer;
        return 1;
    }
    phrase_int(expected, min, max);
    wrong(node, expected, reterr);
    /* 2^53: beyond it a real is no longer sure which whole number was meant. */
    if (node->kind == NODE_REAL && fabs(node->real) <= 0x1p53 && node->real == trunc(node->real))
        diag_hint(reterr, "write it as %.0f", node->real);
    return -1;
}

int node_real(const struct node *map, const char *key, double min, double max, double *ret,
              struct diag_list *reterr)
{
    const struct node *node = node_get(map, key);
    char expected[PHRASE_MAX];
    if (!node)
        return 0;
    bool number = node->kind == NODE_INT || node->kind == NODE_REAL;
    if (number && node->real >= min && node->real <= max) {
        *ret = node->real;
        return 1;
    }
    phrase_real(expected, min, max);
    return wrong(node, expected, reterr);
}

/* The child, when it is of `kind`; ret is untouched when absent. */
static int get_kind(const struct node *map, const char *key, enum node_kind kind,
                    const struct node **ret, struct diag_list *reterr)
{
    const struct node *node = node_get(map, key);
    if (!node)
        return 0;
    if (node->kind != kind)
        return wrong(node, node_kind_name(kind), reterr);
    *ret = node;
    return 1;
}

int node_bool(const struct node *map, const char *key, bool *ret, struct diag_list *reterr)
{
    const struct node *node = NULL;
    int found = get_kind(map, key, NODE_BOOL, &node, reterr);
    if (node)
        *ret = node->boolean;
    return found;
}

int node_text(const struct node *map, const char *key, const char **ret, struct diag_list *reterr)
{
    const struct node *node = NULL;
    int found = get_kind(map, key, NODE_TEXT, &node, reterr);
    if (node) {
        *ret = node->text;
        return found;
    }
    node = found < 0 ? node_get(map, key) : NULL;
    if (node && node->text) {
        char value[SHOWN_MAX + 4];
        diag_hint(reterr, "quote it to make it text: \"%s\"", shown(node->text, value));
    }
    return found;
}

int node_map(const struct node *map, const char *key, const struct node **ret,
             struct diag_list *reterr)
{
    return get_kind(map, key, NODE_MAP, ret, reterr);
}

int node_list(const struct node *map, const char *key, const struct node **ret,
              struct diag_list *reterr)
{
    return get_kind(map, key, NODE_LIST, ret, reterr);
}

static bool is_known(const char *key, const char *const *known, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(key, known[i]) == 0)
            return true;
    return false;
}

int node_check_keys(const struct node *map, const char *const *known, size_t count,
                    struct diag_list *reterr)
{
    int ret = 0;
    for (const struct node *child = map ? map->child : NULL; child; child = child->next) {
        if (!child->key || is_known(child->key, known, count))
            continue;
        char key[SHOWN_MAX + 4];
        const char *nearest = text_nearest(child->key, known, count);
        ret = diag_error(reterr, child->key_at, "unknown key '%s'", shown(child->key, key));
        if (nearest) {
            diag_hint(reterr, "did you mean '%s'?", nearest);
            continue;
        }
        char list[256] = "";
        size_t used = 0;
        for (size_t i = 0; i < count; i++)
            text_append(list, sizeof list, &used, "%s%s", i > 0 ? ", " : "", known[i]);
        diag_hint(reterr, "known here: %s", list);
    }
    return ret;
}
