/* shell_expand.c - variables, defaults, arrays and arithmetic inside a word. */
#include "base/units.h"
#include "planner/launch/shell_scan.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* A value inside a word; outside of quotes blanks end fields. */
static void put_value(struct scan *scan, struct text *text, const struct fields *fields,
                      const char *value, bool quoted)
{
    for (; *value && !scan->failed; value++) {
        if (!quoted && fields && !scan->assigned && isspace((unsigned char)*value))
            scan_end_field(scan, text, fields);
        else
            scan_put(scan, text, *value);
    }
}

static void put_array(struct scan *scan, struct text *text, const struct fields *fields,
                      const struct shell_variable *variable, bool quoted)
{
    for (const struct shell_word *word = variable->first; word && !scan->failed;
         word = word->next) {
        put_value(scan, text, fields, word->text, quoted);
        if (!word->next)
            break;
        if (fields && !scan->assigned)
            scan_end_field(scan, text, fields);
        else
            scan_put(scan, text, ' ');
    }
}

/* Up to the bracket that closes the one before; nested ones are passed over. */
static const char *closing(const char *at, const char *end, char open, char close)
{
    int depth = 1;
    for (; at < end; at++) {
        if (*at == '\\' && at + 1 < end)
            at++;
        else if (*at == open)
            depth++;
        else if (*at == close && --depth == 0)
            return at;
    }
    return NULL;
}

/* Text of a default or an expression: expanded as if it stood in quotes. */
static void put_nested(struct scan *scan, struct text *text, const struct fields *fields,
                       const char *from, const char *to, bool quoted)
{
    struct scan inner = *scan;
    inner.at = from;
    inner.end = to;
    if (++inner.nesting > DEPTH_MAX) {
        scan_fail(scan, scan_here(scan), "expansions nest too deeply", "write the value out");
        return;
    }
    while (inner.at < inner.end && !inner.failed) {
        char c = scan_peek(&inner, 0);
        if (c == '$')
            scan_expand(&inner, text, fields, quoted);
        else if (c == '"' || c == '\'')
            scan_step(&inner);
        else if (c == '\\' && scan_peek(&inner, 1) == '\n')
            inner.at += 2;
        else {
            char one[2] = { c, '\0' };
            put_value(&inner, text, fields, one, quoted);
            scan_step(&inner);
        }
    }
    scan->failed = scan->failed || inner.failed;
    scan->words = inner.words;
}

/* + - * / % and brackets over whole numbers and names. */
struct sum {
    struct scan *scan;
    const char *at, *end;
    bool known;
    int depth;
};

static int64_t sum_of(struct sum *sum, int level);

static void skip_blanks(struct sum *sum)
{
    while (sum->at < sum->end && isspace((unsigned char)*sum->at))
        sum->at++;
}

static int64_t term_of(struct sum *sum)
{
    char name[NAME_BYTES];
    size_t used = 0;
    int64_t value = 0;
    skip_blanks(sum);
    if (sum->at < sum->end && *sum->at == '(') {
        sum->at++;
        value = ++sum->depth > DEPTH_MAX ? 0 : sum_of(sum, 0);
        skip_blanks(sum);
        sum->known = sum->known && sum->at < sum->end && *sum->at == ')';
        sum->at += sum->at < sum->end;
        return value;
    }
    while (sum->at < sum->end && (*sum->at == '$' || *sum->at == '{' || *sum->at == '}'))
        sum->at++;
    while (sum->at < sum->end && is_name(*sum->at) && used + 1 < sizeof name)
        name[used++] = *sum->at++;
    while (sum->at < sum->end && *sum->at == '}')
        sum->at++;
    name[used] = '\0';
    const char *text = is_name_start(name[0]) ? shell_variable(sum->scan->script, name) : name;
    sum->known = sum->known && text && units_parse_int(text, 0, 1 << 30, &value) == 0;
    return value;
}

/* level 0: sums of products; 1: products of terms. */
static int64_t sum_of(struct sum *sum, int level)
{
    const char *operators = level == 0 ? "+-" : "*/%";
    int64_t value = level == 0 ? sum_of(sum, 1) : term_of(sum);
    for (skip_blanks(sum); sum->known && sum->at < sum->end && strchr(operators, *sum->at);
         skip_blanks(sum)) {
        char operator= * sum->at++;
        int64_t right = level == 0 ? sum_of(sum, 1) : term_of(sum), made = 0;
        bool divides = operator== '/' || operator== '%';
        sum->known = sum->known && (!divides || right != 0);
        if (!sum->known)
            return 0;
        if (operator== '+' ? __builtin_add_overflow(value, right, &made) :
            operator== '-' ? __builtin_sub_overflow(value, right, &made)
            :
            operator== '*' ? __builtin_mul_overflow(value, right, &made)
                           : false)
            sum->known = false;
        value = operator== '/' ? value / right : operator== '%' ? value % right : made;
    }
    return value;
}

/* $(( ... )); false where it is no sum of known numbers. */
static bool put_sum(struct scan *scan, struct text *text, const char *from, const char *to)
{
    char value[32];
    struct sum sum = { scan, from, to, true, 0 };
    int64_t number = sum_of(&sum, 0);
    skip_blanks(&sum);
    if (!sum.known || sum.at != sum.end)
        return false;
    (void)snprintf(value, sizeof value, "%lld", (long long)number);
    put_value(scan, text, NULL, value, true);
    return true;
}

static void put_raw(struct scan *scan, struct text *text, const char *from, const char *to)
{
    for (; from < to && !scan->failed; from++)
        scan_put(scan, text, *from == '\n' ? ' ' : *from);
}

static void move_to(struct scan *scan, const char *to)
{
    while (scan->at < to)
        scan_step(scan);
}

/* $( ... ) and $(( ... )): the former stays as it is written. */
static void expand_command(struct scan *scan, struct text *text)
{
    const char *from = scan->at, *close = closing(from + 2, scan->end, '(', ')');
    if (!close) {
        scan_fail(scan, scan_here(scan), "$( is not closed", "add )");
        return;
    }
    bool sum = from[2] == '(' && close[-1] == ')' && close - from > 4;
    if (!sum || !put_sum(scan, text, from + 3, close - 1))
        put_raw(scan, text, from, close + 1);
    move_to(scan, close + 1);
}

static void note_unset(struct scan *scan, const char *name)
{
    if (scan->script->unset_name)
        return;
    scan->script->unset = scan_here(scan);
    scan->script->unset_name = pool_copy_text(&scan->script->pool, name, strlen(name));
}

/* ${NAME}, ${NAME:-default}, ${NAME[@]} and their like. */
static void expand_braces(struct scan *scan, struct text *text, const struct fields *fields,
                          bool quoted)
{
    const char *from = scan->at, *close = closing(from + 2, scan->end, '{', '}');
    char name[NAME_BYTES];
    if (!close) {
        scan_fail(scan, scan_here(scan), "${ is not closed", "add }");
        return;
    }
    scan->at += 2;
    size_t length = scan_name_length(scan);
    (void)snprintf(name, sizeof name, "%.*s", (int)length, scan->at);
    scan->at -= 2;
    const char *rest = from + 2 + length;
    const struct shell_variable *variable = shell_find_variable(scan->script, name);
    bool array = strncmp(rest, "[@]", 3) == 0 || strncmp(rest, "[*]", 3) == 0;
    rest += array ? 3 : 0;
    bool set = variable && variable->first, filled = set && variable->first->text[0];
    const char *word = rest + (*rest == ':');
    if (length == 0 && (from[2] == '@' || from[2] == '*'))
        text->nothing = true;
    else if (rest == close && variable && (set || array)) {
        text->nothing = !set;
        put_array(scan, text, fields, variable, quoted);
    } else if (rest == close && array) {
        text->nothing = true;
        note_unset(scan, name);
    } else if (word < close && (*word == '-' || *word == '=') && (*rest == ':' ? filled : set))
        put_array(scan, text, fields, variable, quoted);
    else if (word < close && (*word == '-' || *word == '='))
        put_nested(scan, text, fields, word + 1, close, quoted);
    else if (word < close && *word == '+') {
        if (filled)
            put_nested(scan, text, fields, word + 1, close, quoted);
    } else
        put_raw(scan, text, from, close + 1);
    move_to(scan, close + 1);
}

/* At a dollar sign. */
void scan_expand(struct scan *scan, struct text *text, const struct fields *fields, bool quoted)
{
    char next = scan_peek(scan, 1), name[NAME_BYTES];
    if (next == '(') {
        expand_command(scan, text);
        return;
    }
    if (next == '{') {
        expand_braces(scan, text, fields, quoted);
        return;
    }
    if (next == '@' || next == '*') {
        text->nothing = true;
        scan->at += 2;
        return;
    }
    scan->at++;
    size_t length = scan_name_length(scan);
    (void)snprintf(name, sizeof name, "%.*s", (int)length, scan->at);
    const struct shell_variable *variable = shell_find_variable(scan->script, name);
    if (variable && variable->first) {
        put_value(scan, text, fields, variable->first->text, quoted);
    } else {
        scan_put(scan, text, '$');
        put_raw(scan, text, scan->at, scan->at + length);
    }
    scan->at += length;
}
