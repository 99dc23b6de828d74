#include "planner/report/comparison_text.h"

#include "base/text.h"
#include "base/units.h"
#include "planner/report/table.h"

#include <math.h>

static void cell_error(struct table *table, double error)
{
    if (isnan(error))
        table_cell(table, "-");
    else
        table_cell(table, "%+.2f %%", 100 * error);
}

static void print_figure(struct table *table, struct scale scale, const char *name,
                         const struct figure *figure)
{
    table_cell(table, "%s", name);
    table_cell(table, "%.*f", scale.decimals, scaled(scale, figure->planned_bytes));
    table_cell(table, "%.*f", scale.decimals, scaled(scale, figure->predicted_bytes));
    table_cell(table, "%.*f", scale.decimals, scaled(scale, figure->measured_bytes));
    cell_error(table, figure->error);
    table_cell(table, "%s", !figure->judged ? "" : figure->within ? "within" : "OUT");
}

static bool same_figure(const struct figure *a, const struct figure *b)
{
    return a->planned_bytes == b->planned_bytes && a->predicted_bytes == b->predicted_bytes &&
           a->measured_bytes == b->measured_bytes;
}

static bool same_figures(const struct compared_rank *a, const struct compared_rank *b)
{
    for (int i = 0; i < ITEM_COUNT; i++)
        if (!same_figure(&a->items[i], &b->items[i]))
            return false;
    return same_figure(&a->arena, &b->arena) && same_figure(&a->device, &b->device);
}

/* The first rank with these very figures; itself when there is none before it. */
static size_t first_alike(const struct comparison *comparison, size_t index)
{
    size_t first = 0;
    while (!same_figures(&comparison->ranks[first], &comparison->ranks[index]))
        first++;
    return first;
}

/* "rank 2", or "ranks 0-1,3" where several have the same figures. */
static void print_ranks(const struct comparison *comparison, size_t first, FILE *out)
{
    char text[TEXT_WIDTH];
    size_t used = 0;
    int count = 0, last = 0;
    bool run = false;
    for (size_t i = first; i < comparison->rank_count; i++) {
        int rank = comparison->ranks[i].rank;
        if (first_alike(comparison, i) != first)
            continue;
        bool next = count > 0 && rank == last + 1;
        if (run && !next)
            text_append(text, sizeof text, &used, "-%d", last);
        if (!next)
            text_append(text, sizeof text, &used, "%s%d", count > 0 ? "," : "", rank);
        run = next;
        last = rank;
        count++;
    }
    if (run)
        text_append(text, sizeof text, &used, "-%d", last);
    (void)fprintf(out, "%s %s\n", count > 1 ? "ranks" : "rank", text);
}

static void print_rank(const struct comparison *comparison, const struct compared_rank *rank,
                       FILE *out)
{
    struct table table = { .columns = 6, .left = 1u | 1u << 5 };
    struct scale scale = scale_for(rank->arena.measured_bytes);
    static const char *const heads[] = { "planned", "predicted", "measured", "error", "" };
    table_cell(&table, "%s", scale.unit);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(&table, "%s", heads[i]);
    for (int i = 0; i < ITEM_COUNT; i++)
        if (rank->items[i].predicted_bytes > 0 || rank->items[i].measured_bytes > 0)
            print_figure(&table, scale, item_infos[i].name, &rank->items[i]);
    print_figure(&table, scale, "arena at the peak", &rank->arena);
    if (comparison->on_device)
        print_figure(&table, scale, "device", &rank->device);
    if (rank->modelled_bytes > 0) {
        table_cell(&table, "of it modelled");
        for (int i = 0; i < 2; i++)
            table_cell(&table, "%s", "");
        table_cell(&table, "%.*f", scale.decimals, scaled(scale, rank->modelled_bytes));
        for (int i = 0; i < 2; i++)
            table_cell(&table, "%s", "");
    }
    table_print(&table, "", out);
    table_done(&table);
}

static void print_time(const struct comparison *comparison, FILE *out)
{
    char predicted[32], measured[32];
    (void)fprintf(out, "%-*spredicted %s, measured %s", TEXT_MARGIN, "step",
                  units_format_seconds(predicted, sizeof predicted, comparison->predicted_seconds),
                  units_format_seconds(measured, sizeof measured, comparison->measured_seconds));
    if (!isnan(comparison->time_error))
        (void)fprintf(out, " (%+.0f %%)", 100 * comparison->time_error);
    (void)fputs(comparison->tolerances.time < 0 ? ", not judged\n" : "\n", out);
}

/* The rank that passed the plan's own upper bound by the most. */
static void print_passed(const struct comparison *comparison, FILE *out)
{
    const struct compared_rank *worst = NULL;
    uint64_t most = 0;
    char line[256], measured[32], upper[32];
    for (size_t i = 0; i < comparison->rank_count; i++) {
        const struct compared_rank *rank = &comparison->ranks[i];
        uint64_t bytes =
            comparison->on_device ? rank->device.measured_bytes : rank->arena.measured_bytes;
        if (!rank->passed || bytes - rank->upper_bytes <= most)
            continue;
        most = bytes - rank->upper_bytes;
        worst = rank;
    }
    if (!worst)
        return;
    (void)snprintf(line, sizeof line,
                   "rank %d measured %s, more than the upper bound of %s that the plan printed",
                   worst->rank,
                   units_format_gb(measured, sizeof measured, worst->upper_bytes + most, 3),
                   units_format_gb(upper, sizeof upper, worst->upper_bytes, 3));
    text_wrap("bound", line, 0, out);
}

void report_comparison_text(const struct comparison *comparison, struct text_style style)
{
    FILE *out = style.out;
    for (size_t i = 0; i < comparison->rank_count; i++) {
        if (first_alike(comparison, i) != i)
            continue;
        print_ranks(comparison, i, out);
        print_rank(comparison, &comparison->ranks[i], out);
    }
    print_time(comparison, out);
    if (comparison->traced)
        (void)fprintf(out, "%-*sthe trace's own time and buffers are part of what was measured\n",
                      TEXT_MARGIN, "traced");
    const char *colour = !style.colour ? "" : comparison->within ? "\033[32m" : "\033[31m";
    (void)fprintf(out, "%s%-*s%s%s", colour, TEXT_MARGIN, "verdict",
                  comparison->within ? "within tolerance" : "out of tolerance",
                  style.colour ? "\033[0m" : "");
    if (comparison->worst_item >= 0)
        (void)fprintf(out, "; worst is %s of rank %d, ",
                      comparison_item_name(comparison->worst_item), comparison->worst_rank);
    if (comparison->worst_item >= 0 && isnan(comparison->worst_error))
        (void)fputs("of which nothing was measured", out);
    else if (comparison->worst_item >= 0)
        (void)fprintf(out, "%+.2f %%", 100 * comparison->worst_error);
    (void)fputc('\n', out);
    print_passed(comparison, out);
    if (comparison->cause[0])
        text_wrap(comparison->within ? "note" : "cause", comparison->cause, 0, out);
}
