/* The budget as text: per group of equal ranks, item by item, with the formula and its numbers. */
#include "base/item.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/report/rank_json.h"
#include "planner/report/table.h"
#include "planner/report/text.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS_TEXT_MAX = 4096 };

static void print_item(const struct prediction *prediction, const struct rank_budget *rank,
                       enum item item, struct table *table)
{
    char formula[FORMULA_MAX] = "", live[32], most[32];
    budget_formula(prediction->predictor, rank, item, formula, sizeof formula);
    table_cell(table, "%s", item_infos[item].name);
    table_cell(table, "%s", category_names[item_infos[item].category]);
    table_cell(table, "%s", units_format_count(live, sizeof live, rank->item_bytes[item]));
    table_cell(table, "%s", units_format_count(most, sizeof most, rank->item_max_bytes[item]));
    table_cell(table, "%s", basis_names[budget_basis(&prediction->input, item)]);
    table_cell(table, "%s", formula);
}

static void print_items(const struct prediction *prediction, const struct rank_budget *rank,
                        FILE *out)
{
    struct table table = { .columns = 6, .left = 1u | 2u | 1u << 4 | 1u << 5 };
    static const char *const heads[] = { "item",        "category", "bytes at the peak",
                                         "own maximum", "basis",    "formula" };
    char total[32];
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(&table, "%s", heads[i]);
    for (int i = 0; i < ITEM_COUNT; i++)
        if (rank->item_bytes[i] > 0 || rank->item_max_bytes[i] > 0)
            print_item(prediction, rank, (enum item)i, &table);
    table_cell(&table, "peak");
    table_cell(&table, "%s", "");
    table_cell(&table, "%s", units_format_count(total, sizeof total, rank->peak_bytes));
    table_cell(&table, "%s", "");
    table_cell(&table, "%s", "");
    table_cell(&table, "= %s", units_format_gb(total, sizeof total, rank->peak_bytes, 2));
    table_print(&table, "", out);
    table_done(&table);
}

static void print_moment(const struct prediction *prediction, const struct rank_budget *budget,
                         int rank, enum moment moment, const struct rank_peaks *peaks,
                         struct table *table)
{
    char bytes[32], formula[FORMULA_MAX], name[32];
    peaks_formula(prediction->predictor, budget, rank, moment, formula, sizeof formula);
    (void)text_copy(name, sizeof name, moment_names[moment]);
    for (char *c = strchr(name, '_'); c; c = strchr(c, '_'))
        *c = ' ';
    table_cell(table, "%s", name);
    table_cell(table, "%s", units_format_count(bytes, sizeof bytes, peaks->bytes[moment]));
    table_cell(table, "= %s", units_format_gb(bytes, sizeof bytes, peaks->bytes[moment], 2));
    table_cell(table, "%s",
               peaks->host_bytes[moment]
                   ? units_format_count(bytes, sizeof bytes, peaks->host_bytes[moment])
                   : "");
    table_cell(table, "%s", moment == peaks->binding ? "the most" : "");
    table_cell(table, "%s", formula);
}

/* Moments that are not those of the steady step. */
static void print_peaks(const struct prediction *prediction, const struct rank_budget *budget,
                        int rank, FILE *out)
{
    struct table table = { .columns = 6, .left = 1u | 1u << 2 | 1u << 4 | 1u << 5 };
    static const char *const heads[] = { "moment", "bytes", "", "bytes of the host", "", "" };
    struct rank_peaks peaks;
    budget_peaks(prediction->predictor, budget, rank, &peaks);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(&table, "%s", heads[i]);
    for (int i = 0; i < MOMENT_COUNT; i++)
        if (peaks.bytes[i] > 0)
            print_moment(prediction, budget, rank, (enum moment)i, &peaks, &table);
    table_print(&table, "", out);
    table_done(&table);
}

/* The other terms, so that none seems forgotten. */
static void print_zero_items(const struct rank_budget *rank, FILE *out)
{
    char line[512] = "";
    size_t used = 0;
    for (int i = 0; i < ITEM_COUNT; i++)
        if (rank->item_bytes[i] == 0 && rank->item_max_bytes[i] == 0)
            text_append(line, sizeof line, &used, "%s%s", used ? ", " : "0 bytes of ",
                        item_infos[i].name);
    if (used)
        text_wrap("", line, 0, out);
}

static void print_group(const struct prediction *prediction, const struct rank_budget *rank,
                        int shown, const char *ranks, FILE *out)
{
    char phase[64], line[256 + sizeof phase];
    phase_format(&rank->peak_phase, phase, sizeof phase);
    (void)fprintf(out, "\n%s %s, stage %d: peak at %s\n", strpbrk(ranks, "-,") ? "ranks" : "rank",
                  ranks, rank->stage, phase);
    print_items(prediction, rank, out);
    print_zero_items(rank, out);
    print_peaks(prediction, rank, shown, out);
    if (prediction->plan.model.moe.experts == 0)
        return;
    char rows[32], upper[32];
    (void)snprintf(line, sizeof line, "routed rows a layer and micro-batch %s, at most %s",
                   units_format_count(rows, sizeof rows, rank->routed_rows),
                   units_format_count(upper, sizeof upper, rank->routed_rows_upper));
    text_wrap("", line, 0, out);
}

static int print_phases(const struct prediction *prediction, const struct rank_budget *rank,
                        FILE *out)
{
    struct phase_bytes *phases = calloc(REPORT_MAX_PHASES, sizeof *phases);
    struct table table = { .columns = 2, .left = 1u };
    if (!phases)
        return -1;
    size_t count = budget_phases(prediction->predictor, rank->stage, phases, REPORT_MAX_PHASES);
    table_cell(&table, "phase");
    table_cell(&table, "bytes");
    for (size_t i = 0; i < count && i < REPORT_MAX_PHASES; i++) {
        char phase[64], bytes[32];
        phase_format(&phases[i].phase, phase, sizeof phase);
        table_cell(&table, "%s", phase);
        table_cell(&table, "%s",
                   units_format_count(bytes, sizeof bytes,
                                      phases[i].bytes + rank->item_bytes[ITEM_SLACK]));
    }
    (void)fputc('\n', out);
    table_print(&table, "", out);
    table_done(&table);
    free(phases);
    return 0;
}

int report_budget_text(const struct prediction *prediction, int rank, struct text_style style)
{
    char ranks[RANKS_TEXT_MAX];
    report_head_text(prediction, style.out);
    (void)fputc('\n', style.out);
    report_verdict_text(prediction, style);
    if (rank >= 0) {
        const struct rank_budget *group = prediction_rank(prediction, rank);
        (void)snprintf(ranks, sizeof ranks, "%d", rank);
        print_group(prediction, group, rank, ranks, style.out);
        return print_phases(prediction, group, style.out);
    }
    for (int i = 0; i < prediction->budget.count; i++) {
        budget_group_ranks(&prediction->input, &prediction->budget, i, ranks, sizeof ranks);
        print_group(prediction, &prediction->budget.groups[i], prediction->budget.groups[i].rank,
                    ranks, style.out);
    }
    return 0;
}
