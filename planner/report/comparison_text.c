#include "planner/report/comparison_text.h"

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

static void print_rank(const struct comparison *comparison, const struct compared_rank *rank,
                       FILE *out)
{
    struct table table = { .columns = 6, .left = 1u | 1u << 5 };
    struct scale scale = scale_for(rank->arena.measured_bytes);
    char label[32];
    (void)snprintf(label, sizeof label, "rank %d", rank->rank);
    table_cell(&table, "%s", scale.unit);
    table_cell(&table, "planned");
    table_cell(&table, "predicted");
    table_cell(&table, "measured");
    table_cell(&table, "error");
    table_cell(&table, "%s", "");
    for (int i = 0; i < ITEM_COUNT; i++)
        if (rank->items[i].predicted_bytes > 0 || rank->items[i].measured_bytes > 0)
            print_figure(&table, scale, item_infos[i].name, &rank->items[i]);
    print_figure(&table, scale, "arena at the peak", &rank->arena);
    if (comparison->on_device)
        print_figure(&table, scale, "device", &rank->device);
    table_print(&table, label, out);
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

void report_comparison_text(const struct comparison *comparison, struct text_style style)
{
    FILE *out = style.out;
    for (size_t i = 0; i < comparison->rank_count; i++)
        print_rank(comparison, &comparison->ranks[i], out);
    print_time(comparison, out);
    const char *colour = !style.colour ? "" : comparison->within ? "\033[32m" : "\033[31m";
    (void)fprintf(out, "%s%-*s%s%s", colour, TEXT_MARGIN, "verdict",
                  comparison->within ? "within tolerance" : "out of tolerance",
                  style.colour ? "\033[0m" : "");
    if (comparison->worst_item >= 0)
        (void)fprintf(out, "; worst is %s of rank %d, %+.2f %%",
                      comparison_item_name(comparison->worst_item), comparison->worst_rank,
                      100 * comparison->worst_error);
    (void)fputc('\n', out);
    if (comparison->cause[0])
        text_wrap("cause", comparison->cause, 0, out);
}
