#include "base/tree.h"

#include "base/escape.h"
#include "base/scalar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

enum { DEPTH_MAX = 64, NODES_MAX = 1000000, FILE_MAX = 16 * 1024 * 1024, READ_BYTES = 65536 };

/* One reading of one text. `broken`: a fault after which nothing more can be read was reported. */
struct reader {
    struct tree *tree;
    const char *name;
    struct diag_list *reterr;
    yaml_parser_t parser;
    struct escapes escapes;
    size_t escapes_passed, escapes_line;
    int escapes_shift;
    size_t nodes;
    bool broken;
};

static struct pos whole_file(const char *name)
{
    return (struct pos){ .file = name };
}

static void out_of_memory(struct reader *reader)
{
    if (!reader->broken)
        diag_no_memory(reader->reterr);
    reader->broken = true;
}

/* A mark in the text as the user wrote it. Marks come in rising order, so what was rewritten before
 * one is added up by walking on. */
static struct pos place(struct reader *reader, yaml_mark_t mark)
{
    const struct escapes *escapes = &reader->escapes;
    while (reader->escapes_passed < escapes->count) {
        const struct escape_place *next = &escapes->places[reader->escapes_passed];
        if (next->line > mark.line || (next->line == mark.line && next->column > mark.column))
            break;
        if (next->line != reader->escapes_line)
            reader->escapes_shift = 0;
        reader->escapes_line = next->line;
        reader->escapes_shift += next->shift;
        reader->escapes_passed++;
    }
    int shift = reader->escapes_line == mark.line ? reader->escapes_shift : 0;
    return (struct pos){ reader->name, (int)mark.line + 1, (int)mark.column + shift + 1 };
}

/* The reader of libyaml gives a byte offset and no mark. */
static struct pos place_of_offset(struct reader *reader, const char *text, size_t offset)
{
    yaml_mark_t mark = { .index = offset };
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            mark.line++;
            mark.column = 0;
        } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
            mark.column++;
        }
    }
    return place(reader, mark);
}

/* How libyaml says that a colon came too late: plain and quoted keys of block style. */
static bool key_is_too_long(const yaml_parser_t *parser)
{
    const char *context = parser->context ? parser->context : "";
    bool unfinished = strcmp(context, "while scanning a simple key") == 0;
    bool misplaced = strncmp(parser->problem, "mapping values are not allowed", 30) == 0;
    return (unfinished || misplaced) && parser->problem_mark.column > KEY_CHARACTERS_MAX;
}

/* A key of JSON, which is known before the text is read; nothing is then read. */
static void refuse_long_key(struct reader *reader)
{
    const struct escape_place *at = &reader->escapes.long_key;
    if (reader->escapes.long_key_characters == 0)
        return;
    reader->broken = true;
    const yaml_mark_t mark = { .line = at->line, .column = at->column };
    diag_error(reader->reterr, place(reader, mark), "a key of %zu characters: %d are the most",
               reader->escapes.long_key_characters - 2, KEY_CHARACTERS_MAX - 2);
}

static void syntax_error(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    reader->broken = true;
    if (parser->error == YAML_MEMORY_ERROR) {
        diag_no_memory(reader->reterr);
    } else if (parser->error == YAML_READER_ERROR) {
        const char *text = (const char *)parser->input.string.start;
        size_t bytes = (size_t)(parser->input.string.end - parser->input.string.start);
        size_t offset = parser->problem_offset < bytes ? parser->problem_offset : bytes;
        diag_error(reader->reterr, place_of_offset(reader, text, offset),
                   "not plain UTF-8 text: %s", parser->problem);
    } else if (key_is_too_long(parser)) {
        diag_error(reader->reterr, place(reader, parser->problem_mark),
                   "a key ends within its line and within %d characters", KEY_CHARACTERS_MAX);
    } else {
        diag_error(reader->reterr, place(reader, parser->problem_mark), "%s", parser->problem);
        if (parser->context)
            diag_hint(reader->reterr, "%s begun in line %zu", parser->context,
                      parser->context_mark.line + 1);
    }
}

static bool next_event(struct reader *reader, yaml_event_t *ret)
{
    if (!reader->broken && !yaml_parser_parse(&reader->parser, ret))
        syntax_error(reader);
    return !reader->broken;
}

/* Anchors, aliases and tags are YAML that no data file needs and JSON does not have. */
static void refuse(struct reader *reader, struct pos at, const yaml_char_t *anchor,
                   const yaml_char_t *tag)
{
    if (anchor)
        diag_error(reader->reterr, at, "anchor '&%s' is not supported", (const char *)anchor);
    if (tag)
        diag_error(reader->reterr, at, "tag '%s' is not supported", (const char *)tag);
    if (anchor || tag)
        diag_hint(reader->reterr, "write the value out");
}

static void read_scalar(struct reader *reader, const yaml_event_t *event, struct node *node)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    refuse(reader, node->at, event->data.scalar.anchor, event->data.scalar.tag);
    node->text = pool_copy_text(&reader->tree->pool, text, length);
    if (!node->text) {
        out_of_memory(reader);
        return;
    }
    node->kind = NODE_TEXT;
    if (strlen(node->text) != length)
        diag_error(reader->reterr, node->at, "text with a NUL character in it");
    if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE ||
        scalar_resolve(node->text, node) == 0)
        return;
    if (node->kind == NODE_INT)
        diag_error(reader->reterr, node->at, "%.60s does not fit 64 bits", node->text);
    else
        diag_error(reader->reterr, node->at, "%.60s does not fit a double", node->text);
}

static void read_children(struct reader *reader, struct node *parent, int depth);

/* Fills `node` from the event that begins it, reading on to its end. */
static void read_node(struct reader *reader, const yaml_event_t *event, struct node *node,
                      int depth)
{
    node->at = place(reader, event->start_mark);
    if (event->type == YAML_SCALAR_EVENT) {
        read_scalar(reader, event, node);
    } else if (event->type == YAML_ALIAS_EVENT) {
        diag_error(reader->reterr, node->at, "alias '*%s' is not supported",
                   (const char *)event->data.alias.anchor);
        diag_hint(reader->reterr, "write the value out");
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        refuse(reader, node->at, event->data.sequence_start.anchor, event->data.sequence_start.tag);
        node->kind = NODE_LIST;
        read_children(reader, node, depth + 1);
    } else {
        refuse(reader, node->at, event->data.mapping_start.anchor, event->data.mapping_start.tag);
        node->kind = NODE_MAP;
        read_children(reader, node, depth + 1);
    }
}

static struct node *new_node(struct reader *reader, struct pos at)
{
    if (++reader->nodes > NODES_MAX) {
        diag_error(reader->reterr, at, "more than %d values", NODES_MAX);
        reader->broken = true;
        return NULL;
    }
    struct node *node = pool_alloc(&reader->tree->pool, sizeof *node);
    if (!node)
        out_of_memory(reader);
    return node;
}

static void read_key(struct reader *reader, const yaml_event_t *event, struct node *child)
{
    child->key_at = place(reader, event->start_mark);
    if (event->type != YAML_SCALAR_EVENT) {
        diag_error(reader->reterr, child->key_at, "a key must be a word, not a list, map or alias");
        reader->broken = true;
        return;
    }
    size_t length = event->data.scalar.length;
    refuse(reader, child->key_at, event->data.scalar.anchor, event->data.scalar.tag);
    child->key =
        pool_copy_text(&reader->tree->pool, (const char *)event->data.scalar.value, length);
    if (!child->key)
        out_of_memory(reader);
    else if (strlen(child->key) != length)
        diag_error(reader->reterr, child->key_at, "a key with a NUL character in it");
    else if (length == 0 && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        diag_error(reader->reterr, child->key_at, "a value without a key");
}

static int compare_keys(const void *a, const void *b)
{
    const struct node *const *left = a;
    const struct node *const *right = b;
    int order = strcmp((*left)->key, (*right)->key);
    if (order != 0)
        return order;
    if ((*left)->key_at.line != (*right)->key_at.line)
        return (*left)->key_at.line < (*right)->key_at.line ? -1 : 1;
    return (*left)->key_at.column < (*right)->key_at.column ? -1 : 1;
}

/* Sorting finds duplicates among many keys (a weight index has tens of thousands) in n log n. */
static void check_duplicates(struct reader *reader, const struct node *map)
{
    if (map->count < 2)
        return;
    const struct node **sorted = malloc(map->count * sizeof(const struct node *));
    if (!sorted) {
        out_of_memory(reader);
        return;
    }
    size_t count = 0;
    for (const struct node *child = map->child; child; child = child->next)
        sorted[count++] = child;
    qsort(sorted, count, sizeof(const struct node *), compare_keys);
    for (size_t i = 1; i < count; i++)
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0)
            diag_error(reader->reterr, sorted[i]->key_at,
                       "duplicate key '%.60s': given in line %d and again in line %d",
                       sorted[i]->key, sorted[i - 1]->key_at.line, sorted[i]->key_at.line);
    free(sorted);
}

/* Reads one child of `parent` that begins with `event`. NULL once the reading is broken. */
static struct node *read_child(struct reader *reader, const yaml_event_t *event,
                               const struct node *parent, int depth)
{
    struct node *child = new_node(reader, place(reader, event->start_mark));
    if (!child)
        return NULL;
    if (parent->kind == NODE_LIST) {
        read_node(reader, event, child, depth);
        return reader->broken ? NULL : child;
    }
    read_key(reader, event, child);
    yaml_event_t value;
    if (!next_event(reader, &value))
        return NULL;
    read_node(reader, &value, child, depth);
    yaml_event_delete(&value);
    return reader->broken ? NULL : child;
}

/* Children up to the event that ends `parent`; depth counts the lists and maps around them. */
static void read_children(struct reader *reader, struct node *parent, int depth)
{
    struct node **link = &parent->child;
    yaml_event_t event;
    if (depth > DEPTH_MAX) {
        diag_error(reader->reterr, parent->at, "nested deeper than %d levels", DEPTH_MAX);
        reader->broken = true;
    }
    while (next_event(reader, &event)) {
        bool end = event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        struct node *child = end ? NULL : read_child(reader, &event, parent, depth);
        yaml_event_delete(&event);
        if (end)
            break;
        if (!child)
            return;
        *link = child;
        link = &child->next;
        parent->count++;
    }
    if (!reader->broken && parent->kind == NODE_MAP)
        check_duplicates(reader, parent);
}

/* The one document of a stream: its node, then nothing more. */
static void read_document(struct reader *reader)
{
    yaml_event_t event;
    struct node *root = NULL;
    while (next_event(reader, &event)) {
        yaml_event_type_t type = event.type;
        struct pos at = place(reader, event.start_mark);
        if (type == YAML_DOCUMENT_START_EVENT && root) {
            diag_error(reader->reterr, at, "a second document begins here");
            diag_hint(reader->reterr, "a file holds one document; remove the '---'");
            reader->broken = true;
        } else if (type == YAML_SCALAR_EVENT || type == YAML_ALIAS_EVENT ||
                   type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT) {
            root = new_node(reader, at);
            if (root)
                read_node(reader, &event, root, 0);
        }
        yaml_event_delete(&event);
        if (type == YAML_STREAM_END_EVENT)
            break;
    }
    if (!root && !reader->broken)
        diag_error(reader->reterr, whole_file(reader->name), "the file is empty");
    reader->tree->root = root;
}

static void skip_byte_order_mark(const char **text, size_t *bytes)
{
    if (*bytes >= 3 && memcmp(*text, "\xef\xbb\xbf", 3) == 0) {
        *text += 3;
        *bytes -= 3;
    }
}

/* True where the text is JSON, or flow YAML, whose double-quoted strings look the same. */
static bool begins_like_json(const char *text, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && strchr(" \t\r\n", text[i]) && text[i])
        i++;
    return i < bytes && (text[i] == '{' || text[i] == '[');
}

int tree_read_text(struct tree *tree, const char *name, const char *text, size_t bytes,
                   struct diag_list *reterr)
{
    *tree = (struct tree){ 0 };
    int errors_before = reterr->errors;
    if (bytes > FILE_MAX)
        return diag_error(reterr, whole_file(name), "larger than 16 MiB");
    struct reader reader = { .tree = tree, .reterr = reterr };
    reader.name = pool_copy_text(&tree->pool, name, strlen(name));
    if (!reader.name || !yaml_parser_initialize(&reader.parser))
        return diag_no_memory(reterr);
    skip_byte_order_mark(&text, &bytes);
    if (begins_like_json(text, bytes)) {
        if (escapes_rewrite(text, bytes, &reader.escapes) == 0) {
            text = reader.escapes.text;
            bytes = reader.escapes.bytes;
            refuse_long_key(&reader);
        } else {
            out_of_memory(&reader);
        }
    }
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, bytes);
    read_document(&reader);
    yaml_parser_delete(&reader.parser);
    escapes_done(&reader.escapes);
    if (reterr->errors == errors_before)
        return 0;
    tree->root = NULL;
    return -1;
}

/* Reads to the end or to one byte beyond the limit, into a malloc'd buffer that grows with what is
 * there. NULL with errno. */
static char *read_all(int handle, size_t *ret_bytes)
{
    size_t room = 0;
    size_t used = 0;
    char *text = NULL;
    while (used <= FILE_MAX) {
        if (used == room) {
            room = room ? 2 * room : READ_BYTES;
            char *grown = realloc(text, room);
            if (!grown)
                break;
            text = grown;
        }
        ssize_t got = read(handle, text + used, room - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        used += (size_t)got;
        if (got == 0 || used > FILE_MAX) {
            *ret_bytes = used;
            return text;
        }
    }
    free(text);
    return NULL;
}

static int cannot_read(const char *path, int error, struct diag_list *reterr)
{
    if (error == ENOMEM)
        return diag_no_memory(reterr);
    return diag_error(reterr, whole_file(path), "cannot be read: %s", strerror(error));
}

int tree_read_file(struct tree *tree, const char *path, struct diag_list *reterr)
{
    *tree = (struct tree){ 0 };
    int handle = open(path, O_RDONLY | O_CLOEXEC);
    if (handle < 0)
        return cannot_read(path, errno, reterr);
    size_t bytes = 0;
    char *text = read_all(handle, &bytes);
    if (!text)
        (void)cannot_read(path, errno, reterr);
    (void)close(handle);
    int ret = text ? tree_read_text(tree, path, text, bytes, reterr) : -1;
    free(text);
    return ret;
}

void tree_done(struct tree *tree)
{
    pool_done(&tree->pool);
    tree->root = NULL;
}
