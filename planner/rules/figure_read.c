/* figure_read.c - a file of figures, row by row: each sees the questions' answers and the rows
 * before it. */
#include "planner/rules/figure.h"

#include "base/text.h"
#include "planner/rules/fact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const relation_names[] = {
    [RELATION_IS] = "is",
    [RELATION_AT_MOST] = "at_most",
    [RELATION_AT_LEAST] = "at_least",
};
static const char *const rounding_names[] = {
    [ROUNDING_NEAREST] = "nearest",
    [ROUNDING_UP] = "up",
    [ROUNDING_DOWN] = "down",
};
enum { RELATION_COUNT = 3, ROUNDING_COUNT = 3 };

struct reader {
    const struct answered *questions;
    size_t question_count;
    struct figures *figures;
    struct figure *row; /* being read: figures->rows[figures->count] */
    struct diag_list *reterr;
};

static bool is_scalar(const struct node *node)
{
    return node->kind == NODE_INT || node->kind == NODE_REAL || node->kind == NODE_TEXT;
}

/* A word of a list or map; what is none has been told. */
static bool is_word(const struct reader *r, const struct node *node)
{
    if (is_scalar(node))
        return true;
    diag_error(r->reterr, node->at, "%s, where a name is expected", node_kind_name(node->kind));
    return false;
}

static const struct figure *earlier(const struct reader *r, const char *name)
{
    for (int i = 0; i < r->figures->count; i++)
        if (strcmp(r->figures->rows[i].name, name) == 0)
            return &r->figures->rows[i];
    return NULL;
}

static const struct figure *find_earlier(const struct reader *r, const struct node *node)
{
    if (!is_word(r, node))
        return NULL;
    const struct figure *ret = earlier(r, node->text);
    if (ret)
        return ret->faulty ? NULL : ret; /* what is wrong with it has been said */
    const char *names[FIGURES_MAX];
    for (int i = 0; i < r->figures->count; i++)
        names[i] = r->figures->rows[i].name;
    const char *nearest = text_nearest(node->text, names, (size_t)r->figures->count);
    diag_error(r->reterr, node->at, "no figure before this one is called '%s'", node->text);
    if (nearest)
        diag_hint(r->reterr, "did you mean '%s'?", nearest);
    return NULL;
}

static const struct prediction *find_question(const struct reader *r, const char *name,
                                              size_t length, struct pos at)
{
    const char *names[FIGURES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < r->question_count; i++) {
        if (strlen(r->questions[i].name) == length &&
            strncmp(r->questions[i].name, name, length) == 0)
            return r->questions[i].prediction;
        if (count < FIGURES_MAX)
            names[count++] = r->questions[i].name;
    }
    char word[FIGURE_NAME_ROOM];
    (void)snprintf(word, sizeof word, "%.*s", (int)length, name);
    const char *nearest = text_nearest(word, names, count);
    diag_error(r->reterr, at, "no question is called '%s'", word);
    if (nearest)
        diag_hint(r->reterr, "did you mean '%s'?", nearest);
    return NULL;
}

/* "FACT" of the row's question, or "QUESTION/FACT". unit "any": whatever it is given in. */
static int read_fact(const struct reader *r, const struct node *node, const char *unit, double *ret)
{
    if (!is_word(r, node))
        return -1;
    const char *slash = strchr(node->text, '/');
    bool named = slash && strcmp(slash, "/token") != 0;
    const char *question = named ? node->text : r->row->question;
    const char *fact = named ? slash + 1 : node->text;
    const char *given = "";
    if (!question) {
        diag_error(r->reterr, node->at, "'%s' is a fact of no question", node->text);
        return diag_hint(r->reterr, "name one: question: NAME, or NAME/%s", node->text);
    }
    size_t length = named ? (size_t)(slash - node->text) : strlen(question);
    const struct prediction *prediction = find_question(r, question, length, node->at);
    if (!prediction)
        return -1;
    if (fact_value(prediction, fact, ret, &given) != 0) {
        const char *nearest = fact_nearest(fact);
        diag_error(r->reterr, node->at, "rankfit knows no fact called '%s'", fact);
        return nearest ? diag_hint(r->reterr, "did you mean '%s'?", nearest) : -1;
    }
    if (strcmp(unit, "any") == 0 || !*given || strcmp(unit, given) == 0)
        return 0;
    return diag_error(r->reterr, node->at, "'%s' is in %s, and this is in %s", fact, given, unit);
}

/* 78, 2.5e15 or "27 ms". */
static int read_number(const struct reader *r, const struct node *node, const char *unit,
                       double *ret)
{
    const char *base = unit;
    if (!is_scalar(node))
        return diag_error(r->reterr, node->at, "'%s' is %s, not a number", node->key,
                          node_kind_name(node->kind));
    if (figure_unit_parse(node->text, base, ret) == 0)
        return 0;
    diag_error(r->reterr, node->at, "'%s' is no number of %s", node->text, unit);
    return diag_hint(r->reterr, "a bare number, or one with a unit, such as 27 ms");
}

/* What rankfit knows of a symbol by itself. */
static int default_own(const struct reader *r, const struct rule_symbol *symbol, struct pos at,
                       struct figure_input *ret)
{
    ret->own = ret->unrounded;
    if (!r->row->question || !symbol->fact)
        return 0;
    struct node fact = { .kind = NODE_TEXT, .at = at, .text = symbol->fact };
    ret->origin = symbol->fact;
    return read_fact(r, &fact, symbol->unit, &ret->own);
}

static int read_own(const struct reader *r, const struct rule_symbol *symbol,
                    const struct node *node, struct figure_input *ret)
{
    ret->origin = node->text;
    if (node->kind == NODE_TEXT && !strchr("0123456789.", node->text[0]))
        return read_fact(r, node, symbol->unit, &ret->own);
    return read_number(r, node, symbol->unit, &ret->own);
}

/* {published, chain: an earlier figure, own: a fact or number}. */
static int read_input_map(const struct reader *r, const struct rule_symbol *symbol,
                          const struct node *map, struct figure_input *ret)
{
    static const char *const known[] = { "published", "chain", "own" };
    const struct node *published = node_get(map, "published"), *chain = node_get(map, "chain");
    const struct node *own = node_get(map, "own");
    if (node_check_keys(map, known, sizeof known / sizeof *known, r->reterr) != 0)
        return -1;
    const struct figure *from = chain ? find_earlier(r, chain) : NULL;
    if (chain && !from)
        return -1;
    if (!published && !from) {
        diag_error(r->reterr, map->at, "'%s' has neither 'published' nor 'chain'", map->key);
        return diag_hint(r->reterr, "a number as published, or the name of an earlier figure");
    }
    if (published && read_number(r, published, symbol->unit, &ret->rounded) != 0)
        return -1;
    if (!published)
        ret->rounded = from->rounded;
    ret->unrounded = from ? from->unrounded : ret->rounded;
    if (own)
        return read_own(r, symbol, own, ret);
    if (!from)
        return default_own(r, symbol, map->at, ret);
    ret->own = from->own;
    ret->origin = from->name;
    return 0;
}

static int read_input(const struct reader *r, const struct rule_symbol *symbol,
                      const struct node *node, struct figure_input *ret)
{
    if (node->kind == NODE_MAP)
        return read_input_map(r, symbol, node, ret);
    if (read_number(r, node, symbol->unit, &ret->rounded) != 0)
        return -1;
    ret->unrounded = ret->rounded;
    return default_own(r, symbol, node->at, ret);
}

static int unknown_symbol(const struct reader *r, const struct node *node)
{
    const char *names[RULE_MAX_SYMBOLS];
    size_t count = rule_symbols(r->row->rule);
    for (size_t i = 0; i < count; i++)
        names[i] = r->row->rule->symbols[i].name;
    const char *nearest = text_nearest(node->key, names, count);
    diag_error(r->reterr, node->key_at, "rule %s has no symbol '%s'", r->row->rule->name,
               node->key);
    if (nearest)
        return diag_hint(r->reterr, "did you mean '%s'?", nearest);
    return diag_hint(r->reterr, "rankfit explain %s shows them", r->row->rule->name);
}

static int read_inputs(const struct reader *r, const struct node *row)
{
    const struct rule *rule = r->row->rule;
    const struct node *inputs = node_get(row, "inputs");
    int before = r->reterr->errors;
    if (!inputs || inputs->kind != NODE_MAP)
        return diag_error(r->reterr, inputs ? inputs->at : row->at,
                          "the figure needs 'inputs', a map of the rule's symbols");
    for (const struct node *node = inputs->child; node; node = node->next)
        if (rule_symbol_find(rule, node->key) < 0)
            (void)unknown_symbol(r, node);
    for (size_t i = 0; i < rule_symbols(rule); i++) {
        const struct node *node = node_get(inputs, rule->symbols[i].name);
        if (node)
            (void)read_input(r, &rule->symbols[i], node, &r->row->inputs[i]);
        else
            diag_error(r->reterr, inputs->at, "input '%s' of rule %s is missing",
                       rule->symbols[i].name, rule->name);
    }
    return r->reterr->errors > before ? -1 : 0;
}

static int read_rule(const struct reader *r, const struct node *row)
{
    const struct node *node = node_get(row, "rule");
    if (!node || node->kind != NODE_TEXT)
        return diag_error(r->reterr, node ? node->at : row->at, "the figure names no rule");
    r->row->rule = rule_find(node->text);
    if (r->row->rule)
        return 0;
    const char *names[FIGURES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < rule_count && count < FIGURES_MAX; i++)
        names[count++] = rules[i].name;
    const char *nearest = text_nearest(node->text, names, count);
    diag_error(r->reterr, node->at, "unknown rule '%s'", node->text);
    if (nearest)
        return diag_hint(r->reterr, "did you mean '%s'?", nearest);
    return diag_hint(r->reterr, "rankfit list rules");
}

static int unknown_unit(const struct reader *r, const struct node *node)
{
    const char *names[32];
    size_t count = 0;
    for (size_t i = 0; i < figure_unit_count && count < sizeof names / sizeof *names; i++)
        names[count++] = figure_units[i].name;
    const char *nearest = text_nearest(node->text, names, count);
    diag_error(r->reterr, node->at, "unknown unit '%s'", node->text);
    return nearest ? diag_hint(r->reterr, "did you mean '%s'?", nearest) : -1;
}

/* The published number, if there is one, and its unit, which must be one of what the rule gives. */
static int read_published(const struct reader *r, const struct node *row)
{
    struct figure *f = r->row;
    const struct node *number = node_get(row, "published"), *unit = node_get(row, "unit");
    if (number && number->kind != NODE_INT && number->kind != NODE_REAL)
        return diag_error(r->reterr, number->at, "'published' is %s, not a number",
                          node_kind_name(number->kind));
    if (!unit || !is_scalar(unit))
        return diag_error(r->reterr, unit ? unit->at : row->at, "the figure needs a 'unit'");
    f->unit = figure_unit_find(unit->text);
    if (!f->unit)
        return unknown_unit(r, unit);
    if (strcmp(f->unit->base, f->rule->unit) != 0)
        return diag_error(r->reterr, unit->at, "rule %s gives %s, which %s is no unit of",
                          f->rule->name, f->rule->unit, f->unit->name);
    f->published_text = number ? number->text : NULL;
    f->published = number ? number->real * f->unit->factor : NAN;
    return 0;
}

/* Which of the words a key says; the first where it is not there. */
static int read_word(const struct reader *r, const struct node *row, const char *key,
                     const char *const *words, int count)
{
    const char *word = words[0];
    if (node_text(row, key, &word, r->reterr) < 0)
        return 0;
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    diag_error(r->reterr, node_get(row, key)->at, "%s is '%s', not %s, %s or %s", key, word,
               words[0], words[1], words[2]);
    return 0;
}

static int read_texts(const struct reader *r, const struct node *row)
{
    static const char *const known[] = { "name",   "about",    "published", "unit",   "relation",
                                         "digits", "rounding", "carried",   "source", "rule",
                                         "inputs", "own",      "question",  "why",    "parts" };
    struct figure *f = r->row;
    int before = r->reterr->errors;
    int64_t digits = 0;
    (void)node_check_keys(row, known, sizeof known / sizeof *known, r->reterr);
    if (node_text(row, "name", &f->name, r->reterr) == 0 ||
        node_text(row, "about", &f->about, r->reterr) == 0 ||
        node_text(row, "source", &f->source, r->reterr) == 0)
        return diag_error(r->reterr, row->at, "the figure needs 'name', 'about' and 'source'");
    (void)node_text(row, "why", &f->why, r->reterr);
    (void)node_text(row, "question", &f->question, r->reterr);
    (void)node_bool(row, "carried", &f->carried, r->reterr);
    (void)node_int(row, "digits", 1, 15, &digits, r->reterr);
    f->digits = (int)digits;
    f->relation = (enum relation)read_word(r, row, "relation", relation_names, RELATION_COUNT);
    f->rounding = (enum rounding)read_word(r, row, "rounding", rounding_names, ROUNDING_COUNT);
    if (f->name && earlier(r, f->name))
        return diag_error(r->reterr, row->at, "two figures are called '%s'", f->name);
    return r->reterr->errors > before ? -1 : 0;
}

/* Facts of a part, added up. */
static int read_part_own(const struct reader *r, const struct node *list, double *ret)
{
    for (const struct node *node = list ? list->child : NULL; node; node = node->next) {
        double value = 0;
        if (read_fact(r, node, r->row->unit->base, &value) != 0)
            return -1;
        *ret += value;
    }
    return 0;
}

/* Earlier figures of a part, added up; those of a token for the tokens of a rank. */
static int read_part_published(const struct reader *r, const struct node *list, double *ret)
{
    for (const struct node *node = list ? list->child : NULL; node; node = node->next) {
        const struct figure *from = find_earlier(r, node);
        double tokens = 1;
        if (!from)
            return -1;
        struct node fact = { .kind = NODE_TEXT, .at = node->at, .text = "local_tokens" };
        if (strcmp(from->unit->base, "bytes/token") == 0 &&
            read_fact(r, &fact, "any", &tokens) != 0)
            return -1;
        *ret += (from->published_text ? from->published : from->rounded) * tokens;
    }
    return 0;
}

static int read_part(const struct reader *r, const struct node *node)
{
    static const char *const known[] = { "what", "published", "own" };
    struct figure_part part = { 0 };
    const struct node *published = NULL, *own = NULL;
    if (node->kind != NODE_MAP || r->row->part_count == FIGURE_MAX_PARTS)
        return diag_error(r->reterr, node->at, "a part is a map, of at most %d", FIGURE_MAX_PARTS);
    if (node_check_keys(node, known, sizeof known / sizeof *known, r->reterr) != 0 ||
        node_text(node, "what", &part.what, r->reterr) < 0 ||
        node_list(node, "published", &published, r->reterr) < 0 ||
        node_list(node, "own", &own, r->reterr) < 0)
        return -1;
    if (!part.what)
        return diag_error(r->reterr, node->at, "the part needs 'what'");
    if (read_part_published(r, published, &part.published) != 0 ||
        read_part_own(r, own, &part.own) != 0)
        return -1;
    r->row->parts[r->row->part_count++] = part;
    return 0;
}

static int read_parts(const struct reader *r, const struct node *row)
{
    const struct node *parts = NULL;
    if (node_list(row, "parts", &parts, r->reterr) < 0)
        return -1;
    for (const struct node *node = parts ? parts->child : NULL; node; node = node->next)
        if (read_part(r, node) != 0)
            return -1;
    return 0;
}

/* The rule's value of one side of the inputs. */
static double evaluate(const struct figure *f, size_t offset)
{
    double in[RULE_MAX_SYMBOLS] = { 0 };
    for (size_t i = 0; i < rule_symbols(f->rule); i++)
        memcpy(&in[i], (const char *)&f->inputs[i] + offset, sizeof in[i]);
    return f->rule->value(in);
}

/* Whether rankfit knows anything of the row: some input is its own. */
static bool has_own(const struct figure *f)
{
    for (size_t i = 0; i < rule_symbols(f->rule); i++)
        if (f->inputs[i].origin)
            return true;
    return false;
}

static int compute_row(const struct reader *r, const struct node *row)
{
    struct figure *f = r->row;
    const struct node *own = node_get(row, "own");
    f->rounded = evaluate(f, offsetof(struct figure_input, rounded));
    f->unrounded = evaluate(f, offsetof(struct figure_input, unrounded));
    f->own = has_own(f) ? evaluate(f, offsetof(struct figure_input, own)) : NAN;
    if (own) {
        f->own_fact = own->text;
        if (read_fact(r, own, f->rule->unit, &f->own) != 0)
            return -1;
    }
    f->holds = !f->published_text || figure_holds(f, f->carried ? f->unrounded : f->rounded);
    return 0;
}

static int read_row(struct reader *r, const struct node *row)
{
    if (row->kind != NODE_MAP)
        return diag_error(r->reterr, row->at, "a figure is a map, not %s",
                          node_kind_name(row->kind));
    if (r->figures->count == FIGURES_MAX)
        return diag_error(r->reterr, row->at, "more than %d figures", FIGURES_MAX);
    r->row = &r->figures->rows[r->figures->count];
    *r->row = (struct figure){ 0 };
    r->row->faulty = read_texts(r, row) != 0 || read_rule(r, row) != 0 ||
                     read_published(r, row) != 0 || read_inputs(r, row) != 0 ||
                     compute_row(r, row) != 0 || read_parts(r, row) != 0;
    r->figures->hold = r->figures->hold && r->row->holds;
    if (r->row->name)
        r->figures->count++;
    return r->row->faulty ? -1 : 0;
}

int figures_judge(const struct node *root, const struct answered *questions, size_t count,
                  struct figures *ret, struct diag_list *reterr)
{
    struct reader reader = { questions, count, ret, NULL, reterr };
    const struct node *rows = NULL;
    int before = reterr->errors;
    ret->count = 0;
    ret->hold = true;
    if (node_list(root, "figures", &rows, reterr) < 0)
        return -1;
    if (!rows || rows->count == 0)
        return diag_error(reterr, root->at, "the file needs 'figures', a list of them");
    for (const struct node *row = rows->child; row; row = row->next)
        (void)read_row(&reader, row);
    return reterr->errors > before ? -1 : 0;
}
