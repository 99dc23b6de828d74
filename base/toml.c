#include "base/toml.h"

#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 4 * 1024 * 1024, DEPTH_MAX = 32, SCALAR_MAX = 8192 };

struct reader {
    struct tree *tree;
    const char *name;
    const char *at, *end, *line_start;
    int line, depth;
    struct diag_list *reterr;
};

static struct pos here(const struct reader *r)
{
    return (struct pos){ r->name, r->line, (int)(r->at - r->line_start) + 1 };
}

static int fail(const struct reader *r, const char *problem, const char *hint)
{
    diag_error(r->reterr, here(r), "%s", problem);
    return diag_hint(r->reterr, "%s", hint);
}

static char peek(const struct reader *r)
{
    return r->at < r->end ? *r->at : '\0';
}

static void step(struct reader *r)
{
    if (r->at < r->end && *r->at++ == '\n') {
        r->line++;
        r->line_start = r->at;
    }
}

/* Blanks and comments; with `lines` ends of lines too. */
static void skip(struct reader *r, bool lines)
{
    while (r->at < r->end) {
        char c = *r->at;
        if (c == '#')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n'))
            step(r);
        else
            return;
    }
}

static struct node *make_node(struct reader *r, enum node_kind kind)
{
    struct node *node = pool_alloc(&r->tree->pool, sizeof *node);
    if (!node) {
        diag_no_memory(r->reterr);
        return NULL;
    }
    node->kind = kind;
    node->at = here(r);
    return node;
}

static void append(struct node *parent, struct node *child)
{
    struct node **at = &parent->child;
    while (*at)
        at = &(*at)->next;
    *at = child;
    parent->count++;
}

static struct node *find(struct node *map, const char *key)
{
    for (struct node *child = map->child; child; child = child->next)
        if (strcmp(child->key, key) == 0)
            return child;
    return NULL;
}

/* One part of a key: bare or quoted. NULL with an error. */
static const char *read_key(struct reader *r)
{
    const char *from = r->at;
    char quote = peek(r);
    if (quote == '"' || quote == '\'') {
        from++;
        for (step(r); r->at < r->end && *r->at != quote && *r->at != '\n'; step(r))
            ;
        if (peek(r) != quote) {
            (void)fail(r, "a quoted key is not closed", "close it on the same line");
            return NULL;
        }
    } else {
        while (isalnum((unsigned char)peek(r)) || peek(r) == '_' || peek(r) == '-')
            step(r);
        if (r->at == from) {
            (void)fail(r, "a key is missing", "as in seq_len = 4096");
            return NULL;
        }
    }
    char *key = pool_copy_text(&r->tree->pool, from, (size_t)(r->at - from));
    if (quote == '"' || quote == '\'')
        step(r);
    if (!key)
        diag_no_memory(r->reterr);
    else if (!text_is_utf8(key)) {
        (void)fail(r, "a key is not UTF-8", "save the file as UTF-8");
        return NULL;
    }
    return key;
}

/* The map under `key`, made where it is not there. */
static struct node *open_map(struct reader *r, struct node *map, const char *key, struct pos at)
{
    struct node *child = find(map, key);
    if (child && child->kind != NODE_MAP) {
        diag_error(r->reterr, at, "'%s' is a value and a table", key);
        diag_hint(r->reterr, "the value is in line %d", child->at.line);
        return NULL;
    }
    if (child)
        return child;
    child = make_node(r, NODE_MAP);
    if (child) {
        child->key = key;
        child->key_at = at;
        append(map, child);
    }
    return child;
}

/* a.b.c: the map that holds the last part. */
static struct node *read_path(struct reader *r, struct node *map, const char **ret_key,
                              struct pos *ret_at)
{
    for (int depth = 0; map; depth++) {
        *ret_at = here(r);
        *ret_key = read_key(r);
        if (!*ret_key)
            return NULL;
        skip(r, false);
        if (peek(r) != '.')
            return map;
        step(r);
        skip(r, false);
        if (depth == DEPTH_MAX) {
            (void)fail(r, "keys nest too deeply", "at most 32 parts");
            return NULL;
        }
        map = open_map(r, map, *ret_key, *ret_at);
    }
    return NULL;
}

static int put_escape(struct reader *r, char *text, size_t *used)
{
    static const char from[] = "\"\\nrtbf", to[] = "\"\\\n\r\t\b\f";
    const char *found = peek(r) ? strchr(from, peek(r)) : NULL;
    if (!found)
        return fail(r, "an escape that is not read here",
                    "\\\" \\\\ \\n \\r \\t \\b and \\f are; write other characters as they are");
    text[(*used)++] = to[found - from];
    return 0;
}

static struct node *read_string(struct reader *r)
{
    struct node *node = make_node(r, NODE_TEXT);
    char quote = peek(r), text[SCALAR_MAX];
    size_t used = 0;
    if (!node)
        return NULL;
    if (r->end - r->at >= 3 && r->at[1] == quote && r->at[2] == quote) {
        (void)fail(r, "a string over several lines", "write it in one line");
        return NULL;
    }
    for (step(r); r->at < r->end && *r->at != quote && *r->at != '\n' && used + 1 < sizeof text;
         step(r)) {
        if (*r->at == '\\' && quote == '"') {
            step(r);
            if (put_escape(r, text, &used) != 0)
                return NULL;
        } else {
            text[used++] = *r->at;
        }
    }
    if (peek(r) != quote) {
        (void)fail(r, "a string is not closed", "close it on the same line, within 8 KiB");
        return NULL;
    }
    step(r);
    node->text = pool_copy_text(&r->tree->pool, text, used);
    if (!node->text) {
        diag_no_memory(r->reterr);
        return NULL;
    }
    if (strlen(node->text) != used || !text_is_utf8(node->text)) {
        (void)fail(r, "a string is not UTF-8 text", "save the file as UTF-8");
        return NULL;
    }
    return node;
}

/* 4_096, -1, 3e-4, inf; anything else is no number. */
static int read_number(struct node *node, const char *text)
{
    char plain[SCALAR_MAX], *end;
    size_t used = 0;
    for (const char *at = text; *at; at++)
        if (*at != '_')
            plain[used++] = *at;
    plain[used] = '\0';
    if (!isdigit((unsigned char)plain[0]) && !strchr("+-", plain[0]))
        return -1;
    if (strspn(plain, "+-0123456789") == used) {
        node->kind = NODE_INT;
        node->integer = strtoimax(plain, &end, 10);
        node->real = (double)node->integer;
        return *end || end == plain || node->integer == INTMAX_MAX || node->integer == INTMAX_MIN
                   ? -1
                   : 0;
    }
    node->kind = NODE_REAL;
    node->real = strtod(plain, &end);
    return *end || strpbrk(plain, "xXpPnN") ? -1 : 0;
}

static struct node *read_scalar(struct reader *r)
{
    struct node *node = make_node(r, NODE_TEXT);
    const char *from = r->at;
    while (r->at < r->end && !isspace((unsigned char)*r->at) && !strchr(",]}#", *r->at))
        r->at++;
    size_t length = (size_t)(r->at - from);
    if (!node || length == 0 || length >= SCALAR_MAX) {
        r->at = from;
        if (node)
            (void)fail(r, "a value is missing",
                       "a number, true, false, a \"string\", [ ... ] or { ... }");
        return NULL;
    }
    char *text = pool_copy_text(&r->tree->pool, from, length);
    if (!text) {
        diag_no_memory(r->reterr);
        return NULL;
    }
    node->text = text;
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        node->kind = NODE_BOOL;
        node->boolean = text[0] == 't';
    } else if (read_number(node, text) != 0) {
        r->at = from;
        (void)fail(r, "a value that is neither number, boolean nor string",
                   "put text in quotes; dates are not read");
        return NULL;
    }
    return node;
}

static struct node *read_value(struct reader *r);
static int read_pair(struct reader *r, struct node *map);

/* [ a, b ] or { k = v }. */
static struct node *read_group(struct reader *r, enum node_kind kind)
{
    struct node *node = make_node(r, kind);
    char close = kind == NODE_LIST ? ']' : '}';
    bool lines = kind == NODE_LIST;
    if (!node)
        return NULL;
    if (++r->depth > DEPTH_MAX) {
        (void)fail(r, "values nest too deeply", "at most 32 levels");
        return NULL;
    }
    step(r);
    for (skip(r, lines); peek(r) != close; skip(r, lines)) {
        if (kind == NODE_MAP) {
            if (read_pair(r, node) != 0)
                return NULL;
        } else {
            struct node *child = read_value(r);
            if (!child)
                return NULL;
            append(node, child);
        }
        skip(r, lines);
        if (peek(r) == ',')
            step(r);
        else if (peek(r) != close) {
            (void)fail(
                r, kind == NODE_LIST ? "an array is not closed" : "an inline table is not closed",
                kind == NODE_LIST ? "add , or ]" : "add , or }, in the same line");
            return NULL;
        }
    }
    step(r);
    r->depth--;
    return node;
}

static struct node *read_value(struct reader *r)
{
    char c = peek(r);
    if (c == '"' || c == '\'')
        return read_string(r);
    if (c == '[')
        return read_group(r, NODE_LIST);
    return c == '{' ? read_group(r, NODE_MAP) : read_scalar(r);
}

static int read_pair(struct reader *r, struct node *map)
{
    const char *key;
    struct pos at;
    struct node *parent = read_path(r, map, &key, &at);
    if (!parent)
        return -1;
    if (peek(r) != '=')
        return fail(r, "= is missing behind a key", "as in seq_len = 4096");
    step(r);
    skip(r, false);
    struct node *before = find(parent, key), *value = read_value(r);
    if (!value)
        return -1;
    if (before) {
        diag_error(r->reterr, at, "'%s' is given twice", key);
        return diag_hint(r->reterr, "first in line %d", before->at.line);
    }
    value->key = key;
    value->key_at = at;
    append(parent, value);
    return 0;
}

/* [a.b] */
static struct node *read_header(struct reader *r)
{
    const char *key;
    struct pos at;
    step(r);
    if (peek(r) == '[') {
        (void)fail(r, "an array of tables", "only plain [tables] are read");
        return NULL;
    }
    skip(r, false);
    struct node *parent = read_path(r, r->tree->root, &key, &at);
    struct node *map = parent ? open_map(r, parent, key, at) : NULL;
    if (!map)
        return NULL;
    skip(r, false);
    if (peek(r) != ']') {
        (void)fail(r, "a table's name is not closed", "add ]");
        return NULL;
    }
    step(r);
    return map;
}

static int read_lines(struct reader *r)
{
    struct node *map = r->tree->root;
    for (skip(r, true); r->at < r->end; skip(r, true)) {
        if (peek(r) == '[') {
            map = read_header(r);
            if (!map)
                return -1;
        } else if (read_pair(r, map) != 0) {
            return -1;
        }
        skip(r, false);
        if (r->at < r->end && *r->at != '\n')
            return fail(r, "more than one thing in a line", "begin a new line");
    }
    return 0;
}

int toml_read_text(struct tree *tree, const char *name, const char *text, size_t bytes,
                   struct diag_list *reterr)
{
    *tree = (struct tree){ 0 };
    char *copy = pool_copy_text(&tree->pool, name, strlen(name));
    struct reader r = {
        .tree = tree, .name = copy, .at = text, .end = text + bytes, .line_start = text, .line = 1
    };
    r.reterr = reterr;
    if (!copy)
        return diag_no_memory(reterr);
    if (bytes > FILE_MAX)
        return diag_error(reterr, (struct pos){ copy, 0, 0 }, "the file has more than 4 MiB");
    tree->root = make_node(&r, NODE_MAP);
    return tree->root ? read_lines(&r) : -1;
}
