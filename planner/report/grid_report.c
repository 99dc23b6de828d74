/* The grid: rows of tp and cp, columns of pp and ep. */
#include "planner/report/search_report.h"

#include "base/text.h"
#include "planner/report/json.h"
#include "planner/report/table.h"

#include <string.h>

enum { COLUMNS_MAX = 128, ROW_LABEL = 14, WIDTH = 3 };

/* Columns that some legal cell is in, pp outer, in ascending order. */
struct columns {
    int count;
    struct {
        int pp, ep;
    } items[COLUMNS_MAX];
};

static void add_column(struct columns *columns, int pp, int ep)
{
    int at = columns->count;
    for (int i = 0; i < columns->count; i++)
        if (columns->items[i].pp == pp && columns->items[i].ep == ep)
            return;
    if (at == COLUMNS_MAX)
        return;
    for (; at > 0 && (columns->items[at - 1].pp > pp ||
                      (columns->items[at - 1].pp == pp && columns->items[at - 1].ep > ep));
         at--)
        columns->items[at] = columns->items[at - 1];
    columns->items[at].pp = pp;
    columns->items[at].ep = ep;
    columns->count++;
}

static char mark_of(const struct grid_cell *cell)
{
    if (!cell->legal)
        return ' ';
    return cell->keeps ? '#' : cell->recomputes ? '+' : '.';
}

static void print_heads(const struct columns *columns, FILE *out)
{
    (void)fprintf(out, "%*s%-*s", TEXT_MARGIN, "", ROW_LABEL, "pp");
    for (int i = 0; i < columns->count; i++)
        if (i == 0 || columns->items[i].pp != columns->items[i - 1].pp)
            (void)fprintf(out, "%*d", WIDTH + 1, columns->items[i].pp);
        else
            (void)fprintf(out, "%*s", WIDTH, "");
    (void)fprintf(out, "\n%*s%-*s", TEXT_MARGIN, "", ROW_LABEL, "ep");
    for (int i = 0; i < columns->count; i++)
        (void)fprintf(out, "%s%*d",
                      i == 0 || columns->items[i].pp != columns->items[i - 1].pp ? " " : "", WIDTH,
                      columns->items[i].ep);
    (void)fputc('\n', out);
}

/* The cells of one tp and cp, from `first` on; returns the next row's first. */
static int print_row(const struct grid *grid, const struct columns *columns, int first, FILE *out)
{
    const struct grid_cell *head = &grid->cells[first];
    char line[ROW_LABEL + COLUMNS_MAX * (WIDTH + 1) + 1] = "", label[32];
    bool any = false;
    int next = first;
    size_t used = 0;
    while (next < grid->count && grid->cells[next].tp == head->tp &&
           grid->cells[next].cp == head->cp)
        next++;
    for (int i = 0; i < columns->count; i++) {
        bool gap = i == 0 || columns->items[i].pp != columns->items[i - 1].pp;
        char mark = ' ';
        for (int c = first; c < next; c++)
            if (grid->cells[c].pp == columns->items[i].pp &&
                grid->cells[c].ep == columns->items[i].ep)
                mark = mark_of(&grid->cells[c]);
        any = any || mark != ' ';
        text_append(line, sizeof line, &used, "%s%*c", gap ? " " : "", WIDTH, mark);
    }
    while (used > 0 && line[used - 1] == ' ')
        line[--used] = '\0';
    (void)snprintf(label, sizeof label, "tp %d cp %d", head->tp, head->cp);
    if (any)
        (void)fprintf(out, "%*s%-*s%s\n", TEXT_MARGIN, "", ROW_LABEL, label, line);
    return next;
}

void report_grid_text(const struct grid *grid, struct text_style style)
{
    struct columns columns = { .count = 0 };
    FILE *out = style.out;
    for (int i = 0; i < grid->count; i++)
        if (grid->cells[i].legal)
            add_column(&columns, grid->cells[i].pp, grid->cells[i].ep);
    report_head_text(grid->prediction, out);
    (void)fputc('\n', out);
    print_heads(&columns, out);
    for (int i = 0; i < grid->count;)
        i = print_row(grid, &columns, i, out);
    (void)fprintf(out,
                  "\n%*s# fits with everything kept   + fits with recompute   . does not fit   "
                  "blank: not legal\n",
                  TEXT_MARGIN, "");
}

static struct json *side_json(bool fits, const struct candidate *candidate)
{
    struct json *ret = report_candidate_json(candidate);
    json_put_bool(ret, "fits", fits);
    return ret;
}

struct json *report_grid_json(const struct grid *grid)
{
    struct json *ret = json_document("rankfit.grid/1"), *cells = json_list();
    json_put(ret, "model", report_model_of(grid->prediction));
    json_put(ret, "hardware", report_hardware_of(grid->prediction));
    json_put_u64(ret, "seq_tokens", grid->prediction->plan.seq_tokens);
    json_put_u64(ret, "limit_bytes", grid->prediction->limit_bytes);
    for (int i = 0; i < grid->count; i++) {
        const struct grid_cell *cell = &grid->cells[i];
        if (!cell->legal)
            continue;
        struct json *entry = json_map();
        json_put_int(entry, "tp", cell->tp);
        json_put_int(entry, "cp", cell->cp);
        json_put_int(entry, "pp", cell->pp);
        json_put_int(entry, "ep", cell->ep);
        json_put(entry, "none", side_json(cell->keeps, &cell->kept));
        json_put(entry, "full", side_json(cell->recomputes, &cell->recomputed));
        json_append(cells, entry);
    }
    json_put(ret, "cells", cells);
    return ret;
}
