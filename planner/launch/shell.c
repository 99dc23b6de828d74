/* shell.c - see shell.h. One pass over the text; words are expanded as they are read, by
 * the assignments above them. */
#include "planner/launch/shell_scan.h"

#include "base/text.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pos scan_here(const struct scan *scan)
{
    return (struct pos){ scan->name, scan->line, (int)(scan->at - scan->line_start) + 1 };
}

void scan_fail(struct scan *scan, struct pos at, const char *problem, const char *hint)
{
    if (!scan->failed) {
        diag_error(scan->reterr, at, "%s", problem);
        diag_hint(scan->reterr, "%s", hint);
    }
    scan->failed = true;
    scan->at = scan->end;
}

void scan_no_memory(struct scan *scan)
{
    if (!scan->failed)
        diag_no_memory(scan->reterr);
    scan->failed = true;
    scan->at = scan->end;
}

char scan_peek(const struct scan *scan, size_t ahead)
{
    return (size_t)(scan->end - scan->at) > ahead ? scan->at[ahead] : '\0';
}

void scan_step(struct scan *scan)
{
    if (scan->at >= scan->end)
        return;
    if (*scan->at++ == '\n') {
        scan->line++;
        scan->line_start = scan->at;
    }
}

void scan_put(struct scan *scan, struct text *text, char c)
{
    if (text->used + 1 >= WORD_BYTES)
        scan_fail(scan, scan_here(scan), "a word of more than 64 KiB", "is this a launch script?");
    else
        text->bytes[text->used++] = c;
}

static void append_word(struct scan *scan, struct shell_word **first, struct shell_word **last,
                        const char *bytes, size_t count, struct pos at)
{
    struct shell_word *word = pool_alloc(&scan->script->pool, sizeof *word);
    if (++scan->words > WORDS_MAX) {
        scan_fail(scan, at, "more than 65,536 words", "is this a launch script?");
        return;
    }
    if (word)
        word->text = pool_copy_text(&scan->script->pool, bytes, count);
    if (!word || !word->text) {
        scan_no_memory(scan);
        return;
    }
    word->at = at;
    if (*last)
        (*last)->next = word;
    else
        *first = word;
    *last = word;
}

struct shell_variable *shell_find_variable(const struct shell_script *script, const char *name)
{
    for (struct shell_variable *v = script->variables; v; v = v->next)
        if (strcmp(v->name, name) == 0)
            return v;
    return NULL;
}

const char *shell_variable(const struct shell_script *script, const char *name)
{
    const struct shell_variable *variable = shell_find_variable(script, name);
    return variable && variable->first ? variable->first->text : NULL;
}

static struct shell_variable *make_variable(struct scan *scan, const char *name)
{
    struct shell_variable *variable = shell_find_variable(scan->script, name);
    if (variable)
        return variable;
    variable = pool_alloc(&scan->script->pool, sizeof *variable);
    if (variable)
        variable->name = pool_copy_text(&scan->script->pool, name, strlen(name));
    if (!variable || !variable->name) {
        scan_no_memory(scan);
        return NULL;
    }
    variable->next = scan->script->variables;
    scan->script->variables = variable;
    return variable;
}

bool is_name_start(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

size_t scan_name_length(const struct scan *scan)
{
    size_t length = 0;
    if (!is_name_start(scan_peek(scan, 0)))
        return 0;
    while (is_name(scan_peek(scan, length)) && length + 1 < NAME_BYTES)
        length++;
    return length;
}

void scan_end_field(struct scan *scan, struct text *text, const struct fields *fields)
{
    if (text->used > 0 || (text->quoted && !text->nothing))
        append_word(scan, fields->first, fields->last, text->bytes, text->used, fields->at);
    text->used = 0;
    text->quoted = text->nothing = false;
}

static void read_double(struct scan *scan, struct text *text, const struct fields *fields)
{
    struct pos at = scan_here(scan);
    text->quoted = true;
    for (scan_step(scan); scan->at < scan->end && *scan->at != '"' && !scan->failed;) {
        char next = scan_peek(scan, 1);
        if (*scan->at == '$') {
            scan_expand(scan, text, fields, true);
            continue;
        }
        if (*scan->at == '\\' && next && strchr("\"\\$`\n", next)) {
            scan_step(scan);
            if (next == '\n') {
                scan_step(scan);
                continue;
            }
        }
        scan_put(scan, text, *scan->at);
        scan_step(scan);
    }
    if (scan->at >= scan->end)
        scan_fail(scan, at, "a double quote is not closed", "add \"");
    scan_step(scan);
}

static void read_single(struct scan *scan, struct text *text)
{
    struct pos at = scan_here(scan);
    text->quoted = true;
    for (scan_step(scan); scan->at < scan->end && *scan->at != '\''; scan_step(scan))
        scan_put(scan, text, *scan->at);
    if (scan->at >= scan->end)
        scan_fail(scan, at, "a single quote is not closed", "add '");
    scan_step(scan);
}

/* One word, which may expand to any number of them. */
static void read_word(struct scan *scan, struct text *text, const struct fields *fields)
{
    text->used = 0;
    text->quoted = text->nothing = false;
    while (scan->at < scan->end && !scan->failed) {
        char c = *scan->at;
        if (isspace((unsigned char)c) || strchr(";&|()<>", c))
            break;
        if (c == '"')
            read_double(scan, text, fields);
        else if (c == '\'')
            read_single(scan, text);
        else if (c == '$')
            scan_expand(scan, text, fields, false);
        else if (c == '\\' && scan_peek(scan, 1) == '\n') {
            scan_step(scan);
            scan_step(scan);
            break;
        } else {
            if (c == '\\')
                scan_step(scan);
            if (scan->at < scan->end)
                scan_put(scan, text, *scan->at);
            scan_step(scan);
        }
    }
    scan_end_field(scan, text, fields);
}

/* Blanks and continued lines; with `lines` also ends of lines and comments. */
static void skip(struct scan *scan, bool lines)
{
    while (scan->at < scan->end) {
        char c = *scan->at;
        if (c == '\\' && scan_peek(scan, 1) == '\n')
            scan_step(scan);
        else if (c == '#' && lines)
            while (scan->at < scan->end && *scan->at != '\n')
                scan->at++;
        else if (c == '\n' ? !lines : !isspace((unsigned char)c))
            return;
        scan_step(scan);
    }
}

/* ( words ), up to the bracket. */
static void read_array(struct scan *scan, struct text *text, const struct fields *fields)
{
    struct pos at = scan_here(scan);
    for (scan_step(scan), skip(scan, true);
         scan->at < scan->end && *scan->at != ')' && !scan->failed; skip(scan, true)) {
        struct fields one = { fields->first, fields->last, scan_here(scan) };
        const char *before = scan->at;
        read_word(scan, text, &one);
        if (scan->at == before)
            scan_step(scan);
    }
    if (scan->at >= scan->end)
        scan_fail(scan, at, "( is not closed", "add )");
    scan_step(scan);
}

/* NAME=, NAME+=: the length of the name and operator; 0: it is no assignment. */
static size_t assignment(const struct scan *scan, size_t *ret_name)
{
    size_t length = scan_name_length(scan);
    *ret_name = length;
    if (length == 0)
        return 0;
    if (scan_peek(scan, length) == '=')
        return length + 1;
    return scan_peek(scan, length) == '+' && scan_peek(scan, length + 1) == '=' ? length + 2 : 0;
}

/* In a condition, only variables that have no value yet are set: it is not known which branch
 * runs. */
static void read_assignment(struct scan *scan, struct text *text, size_t name_bytes, size_t bytes)
{
    char name[NAME_BYTES];
    bool more = bytes == name_bytes + 2;
    struct shell_word *first = NULL, *last = NULL;
    struct fields fields = { &first, &last, scan_here(scan) };
    (void)snprintf(name, sizeof name, "%.*s", (int)name_bytes, scan->at);
    scan->at += bytes;
    if (scan_peek(scan, 0) == '(') {
        read_array(scan, text, &fields);
    } else {
        scan->assigned = true;
        read_word(scan, text, &fields);
        scan->assigned = false;
        if (!first)
            append_word(scan, &first, &last, "", 0, fields.at);
    }
    struct shell_variable *variable = make_variable(scan, name);
    if (!variable || (scan->depth > 0 && variable->first))
        return;
    if (more && variable->last && first)
        variable->last->next = first;
    else
        variable->first = first;
    variable->last = last ? last : more ? variable->last : NULL;
}

static bool is_keyword(const char *word)
{
    static const char *const words[] = { "then", "else", "do",     "if",    "elif",    "while",
                                         "{",    "}",    "export", "local", "declare", "readonly",
                                         "time", "exec", "!",      "eval" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], word) == 0)
            return true;
    return false;
}

static void note_depth(struct scan *scan, const char *word, struct pos at)
{
    bool opens = strcmp(word, "if") == 0 || strcmp(word, "for") == 0 ||
                 strcmp(word, "while") == 0 || strcmp(word, "case") == 0;
    bool closes = strcmp(word, "fi") == 0 || strcmp(word, "done") == 0 || strcmp(word, "esac") == 0;
    if (opens && scan->script->conditional.line == 0)
        scan->script->conditional = at;
    scan->depth += opens ? 1 : closes && scan->depth > 0 ? -1 : 0;
}

/* A redirection: its operator and the word behind it. */
static void skip_redirection(struct scan *scan, struct text *text, const char *command)
{
    struct shell_word *first = NULL, *last = NULL;
    struct fields fields = { &first, &last, scan_here(scan) };
    bool document =
        scan_peek(scan, 0) == '<' && scan_peek(scan, 1) == '<' && scan_peek(scan, 2) != '<';
    while (scan_peek(scan, 0) && strchr("<>&-", scan_peek(scan, 0)))
        scan_step(scan);
    skip(scan, false);
    read_word(scan, text, &fields);
    /* The document of sbatch is a script. */
    if (!document || !first || strcmp(command, "sbatch") == 0 || strcmp(command, "bash") == 0)
        return;
    size_t length = strlen(first->text);
    while (scan->at < scan->end && *scan->at != '\n')
        scan_step(scan);
    while (scan->at < scan->end) {
        scan_step(scan);
        const char *line = scan->at;
        while (scan->at < scan->end && *scan->at != '\n')
            scan_step(scan);
        while (line < scan->at && *line == '\t')
            line++;
        if ((size_t)(scan->at - line) == length && memcmp(line, first->text, length) == 0)
            return;
    }
}

static void add_command(struct scan *scan, struct shell_word *first, struct shell_word *last)
{
    struct shell_command *command = pool_alloc(&scan->script->pool, sizeof *command);
    if (!command) {
        scan_no_memory(scan);
        return;
    }
    command->first = first;
    command->last = last;
    for (const struct shell_word *word = first; word; word = word->next)
        command->count++;
    if (scan->script->last)
        scan->script->last->next = command;
    else
        scan->script->first = command;
    scan->script->last = command;
}

static void read_lines(struct scan *scan, struct text *text);

/* The script of bash -c "...". */
static void read_inner(struct scan *scan, struct text *text, const struct shell_word *word)
{
    struct scan inner = *scan;
    inner.at = inner.line_start = word->text;
    inner.end = word->text + strlen(word->text);
    inner.line = word->at.line;
    if (++inner.nesting > DEPTH_MAX)
        return;
    read_lines(&inner, text);
    scan->failed = inner.failed;
    scan->words = inner.words;
}

/* Up to the end of a command: a line, or ; & | and brackets. */
static void read_command(struct scan *scan, struct text *text)
{
    struct shell_word *first = NULL, *last = NULL;
    for (skip(scan, false); scan->at < scan->end && !scan->failed; skip(scan, false)) {
        size_t name_bytes = 0, bytes = first ? 0 : assignment(scan, &name_bytes);
        struct fields fields = { &first, &last, scan_here(scan) };
        char c = *scan->at;
        if (c == '#' || c == '\n' || strchr(";&|()", c))
            break;
        bool numbered = isdigit((unsigned char)c) && strchr("<>", scan_peek(scan, 1)) != NULL &&
                        scan_peek(scan, 1) != '\0';
        if (c == '<' || c == '>' || numbered) {
            if (numbered)
                scan_step(scan);
            skip_redirection(scan, text, first ? first->text : "");
            continue;
        }
        if (bytes > 0) {
            read_assignment(scan, text, name_bytes, bytes);
            continue;
        }
        bool alone = !first;
        const char *before = scan->at;
        read_word(scan, text, &fields);
        if (scan->at == before)
            scan_step(scan);
        if (alone && first && !first->next) {
            note_depth(scan, first->text, first->at);
            if (is_keyword(first->text))
                first = last = NULL;
        }
    }
    if (first)
        add_command(scan, first, last);
    for (struct shell_word *word = first; word && word->next; word = word->next)
        if (word->text[0] == '-' && strchr(word->text, 'c') && strchr(word->next->text, ' '))
            read_inner(scan, text, word->next);
    if (scan->at < scan->end && *scan->at != '#')
        scan_step(scan);
}

/* #SBATCH --nodes=4 */
static void read_comment(struct scan *scan, struct text *text)
{
    struct shell_word *first = NULL, *last = NULL;
    bool directive = (size_t)(scan->end - scan->at) > 8 && strncmp(scan->at, "#SBATCH ", 8) == 0;
    while (directive && scan->at < scan->end && *scan->at != '\n' && !scan->failed) {
        struct fields fields = { &first, &last, scan_here(scan) };
        const char *before = scan->at;
        read_word(scan, text, &fields);
        if (scan->at == before)
            scan_step(scan);
        while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t'))
            scan_step(scan);
    }
    if (first)
        add_command(scan, first, last);
    while (scan->at < scan->end && *scan->at != '\n')
        scan_step(scan);
}

static void read_lines(struct scan *scan, struct text *text)
{
    while (scan->at < scan->end && !scan->failed) {
        if (*scan->at == '#')
            read_comment(scan, text);
        else
            read_command(scan, text);
    }
}

int shell_read(const char *name, const char *text, size_t bytes, struct shell_script *ret,
               struct diag_list *reterr)
{
    *ret = (struct shell_script){ 0 };
    struct text word = { .bytes = malloc(WORD_BYTES) };
    struct scan scan = { .script = ret,
                         .name = pool_copy_text(&ret->pool, name, strlen(name)),
                         .at = text,
                         .end = text + bytes,
                         .line_start = text,
                         .line = 1,
                         .reterr = reterr };
    if (!word.bytes || !scan.name)
        scan_no_memory(&scan);
    read_lines(&scan, &word);
    free(word.bytes);
    return scan.failed ? -1 : 0;
}

int shell_take(const char *name, const char *const *words, size_t count, struct shell_script *ret,
               struct diag_list *reterr)
{
    *ret = (struct shell_script){ 0 };
    struct scan scan = { .script = ret, .name = name, .reterr = reterr };
    struct shell_word *first = NULL, *last = NULL;
    for (size_t i = 0; i < count; i++) {
        struct pos at = { pool_printf(&ret->pool, "%s, word %zu", name, i + 1), 0, 0 };
        const char *equals = strchr(words[i], '=');
        bool assigns = !first && equals && equals > words[i] && is_name_start(words[i][0]) &&
                       strspn(words[i], "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") ==
                           (size_t)(equals - words[i]);
        if (assigns) {
            char *key = pool_copy_text(&ret->pool, words[i], (size_t)(equals - words[i]));
            struct shell_variable *variable = key ? make_variable(&scan, key) : NULL;
            if (variable)
                append_word(&scan, &variable->first, &variable->last, equals + 1,
                            strlen(equals + 1), at);
        } else {
            append_word(&scan, &first, &last, words[i], strlen(words[i]), at);
        }
    }
    if (first)
        add_command(&scan, first, last);
    return scan.failed ? -1 : 0;
}

void shell_done(struct shell_script *script)
{
    pool_done(&script->pool);
}
