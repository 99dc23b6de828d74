#include "planner/report/validation_report.h"

#include "base/text.h"
#include "planner/report/table.h"

#include <math.h>
#include <string.h>

enum { CELL_ROOM = 64, LINE_ROOM = 2048 };

static double shown(const struct figure *f, double base_units)
{
    return base_units / f->unit->factor;
}

static void cell_value(struct table *table, const struct figure *f, double base_units)
{
    if (isnan(base_units))
        table_cell(table, "-");
    else
        table_cell(table, "%.6g", shown(f, base_units));
}

static const char *relation_sign(const struct figure *f)
{
    return f->relation == RELATION_AT_MOST ? "<= " : f->relation == RELATION_AT_LEAST ? ">= " : "";
}

static void print_row(struct table *table, const struct figure *f)
{
    table_cell(table, "%s", f->name);
    table_cell(table, "%s%s", relation_sign(f), f->published_text ? f->published_text : "-");
    cell_value(table, f, f->rounded);
    cell_value(table, f, f->unrounded);
    cell_value(table, f, f->own);
    table_cell(table, "%s", f->unit->name);
    double off = f->own / (f->published_text ? f->published : f->rounded) - 1;
    if (isnan(off) || f->relation != RELATION_IS)
        table_cell(table, "-");
    else
        table_cell(table, "%+.1f %%", 100 * off);
    table_cell(table, "%s", f->holds ? "" : "NO");
}

static bool differs(double a, double b)
{
    return fabs(a - b) > 1e-9 * fabs(a);
}

/* What stands in for the published inputs: "ep 64 -> 8"; or the fact that does for all. */
static void tell_own(const struct figure *f, char *line, size_t *used)
{
    char before[CELL_ROOM], after[CELL_ROOM];
    if (f->own_fact && !isnan(f->own))
        text_append(line, LINE_ROOM, used, "; rankfit: %s", f->own_fact);
    if (f->own_fact && !isnan(f->own) && f->question)
        text_append(line, LINE_ROOM, used, " of %s", f->question);
    for (size_t i = 0; !f->own_fact && i < rule_symbols(f->rule); i++) {
        const struct figure_input *input = &f->inputs[i];
        const struct rule_symbol *symbol = &f->rule->symbols[i];
        if (!input->origin || !differs(input->unrounded, input->own))
            continue;
        figure_format(input->unrounded, symbol->unit, before, sizeof before);
        figure_format(input->own, symbol->unit, after, sizeof after);
        text_append(line, LINE_ROOM, used, "; %s %s -> %s", symbol->name, before, after);
    }
}

static void print_note(const struct figure *f, FILE *out)
{
    char line[LINE_ROOM] = "";
    size_t used = 0;
    text_append(line, sizeof line, &used, "%s", f->about);
    tell_own(f, line, &used);
    if (f->why)
        text_append(line, sizeof line, &used, "; %s", f->why);
    (void)fprintf(out, "%s = %s\n", f->name, f->rule->formula);
    text_wrap("", line, 0, out);
}

static void print_part(struct table *table, const struct figure *f, const char *what,
                       double published, double own)
{
    table_cell(table, "%s", what);
    table_cell(table, "%.3f", shown(f, published));
    table_cell(table, "%.3f", shown(f, own));
    table_cell(table, "%+.3f", shown(f, own - published));
}

static const double least_shown = 0.0005; /* of the three decimals of a part */

static void print_parts(const struct figure *f, FILE *out)
{
    struct table table = { .columns = 4, .left = 1u };
    double published = 0, own = 0;
    if (f->part_count == 0)
        return;
    table_cell(&table, "%s, %s", f->name, f->unit->name);
    table_cell(&table, "published");
    table_cell(&table, "rankfit");
    table_cell(&table, "difference");
    for (int i = 0; i < f->part_count; i++) {
        print_part(&table, f, f->parts[i].what, f->parts[i].published, f->parts[i].own);
        published += f->parts[i].published;
        own += f->parts[i].own;
    }
    if (fabs(shown(f, f->rounded - published)) > least_shown ||
        fabs(shown(f, f->own - own)) > least_shown)
        print_part(&table, f, "the rest", f->rounded - published, f->own - own);
    print_part(&table, f, "together", f->rounded, f->own);
    (void)fputc('\n', out);
    table_print(&table, "parts", out);
    table_done(&table);
}

void report_figures_text(const struct figures *figures, FILE *out)
{
    struct table table = { .columns = 8, .left = 1u | 1u << 5 };
    static const char *const heads[] = { "figure",  "published", "as printed", "unrounded",
                                         "rankfit", "",          "off",        "" };
    int held = 0, published = 0;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(&table, "%s", heads[i]);
    for (int i = 0; i < figures->count; i++) {
        print_row(&table, &figures->rows[i]);
        published += figures->rows[i].published_text != NULL;
        held += figures->rows[i].published_text && figures->rows[i].holds;
    }
    table_print(&table, "", out);
    table_done(&table);
    (void)fputc('\n', out);
    for (int i = 0; i < figures->count; i++)
        print_note(&figures->rows[i], out);
    for (int i = 0; i < figures->count; i++)
        print_parts(&figures->rows[i], out);
    (void)fprintf(out, "\n%-*s%d of %d published figures follow from their inputs\n", TEXT_MARGIN,
                  "holds", held, published);
}

static struct json *inputs_json(const struct figure *f)
{
    struct json *ret = json_list();
    for (size_t i = 0; i < rule_symbols(f->rule); i++) {
        const struct figure_input *input = &f->inputs[i];
        struct json *entry = json_map();
        json_put_text(entry, "name", f->rule->symbols[i].name);
        json_put_text(entry, "unit", f->rule->symbols[i].unit);
        json_put_number(entry, "published", input->rounded);
        json_put_number(entry, "unrounded", input->unrounded);
        json_put_number(entry, "rankfit", input->own);
        if (input->origin)
            json_put_text(entry, "origin", input->origin);
        json_append(ret, entry);
    }
    return ret;
}

static struct json *parts_json(const struct figure *f)
{
    struct json *ret = json_list();
    for (int i = 0; i < f->part_count; i++) {
        struct json *entry = json_map();
        json_put_text(entry, "what", f->parts[i].what);
        json_put_number(entry, "published", shown(f, f->parts[i].published));
        json_put_number(entry, "rankfit", shown(f, f->parts[i].own));
        json_append(ret, entry);
    }
    return ret;
}

static struct json *figure_json(const struct figure *f)
{
    static const char *const relations[] = { "is", "at_most", "at_least" };
    struct json *ret = json_map();
    json_put_text(ret, "name", f->name);
    json_put_text(ret, "about", f->about);
    json_put_text(ret, "unit", f->unit->name);
    json_put_text(ret, "relation", relations[f->relation]);
    json_put_number(ret, "published", shown(f, f->published));
    json_put_number(ret, "as_printed", shown(f, f->rounded));
    json_put_number(ret, "unrounded", shown(f, f->unrounded));
    json_put_number(ret, "rankfit", shown(f, f->own));
    json_put_bool(ret, "holds", f->holds);
    json_put_text(ret, "source", f->source);
    json_put_text(ret, "rule", f->rule->name);
    json_put_text(ret, "formula", f->rule->formula);
    json_put(ret, "inputs", inputs_json(f));
    if (f->own_fact)
        json_put_text(ret, "fact", f->own_fact);
    if (f->question)
        json_put_text(ret, "question", f->question);
    if (f->why)
        json_put_text(ret, "why", f->why);
    if (f->part_count > 0)
        json_put(ret, "parts", parts_json(f));
    return ret;
}

struct json *figures_to_json(const struct figures *figures)
{
    struct json *ret = json_list();
    for (int i = 0; i < figures->count; i++)
        json_append(ret, figure_json(&figures->rows[i]));
    return ret;
}
