/* plan_text.c - the report of `rankfit plan` for a person, in at most 25 lines: verdict, changes
 * that would fit, memory, step, why, others, next. At length every reason and price. */
#include "planner/report/text.h"

#include "base/text.h"
#include "base/units.h"
#include "planner/predict/range.h"
#include "planner/report/table.h"

#include <math.h>
#include <string.h>

enum {
    LINE_MAX_BYTES = 600,
    RANKS_SHOWN_MAX = 48,
    GROUPS_SHOWN = 3, /* of ranks */
    OTHERS_SHOWN = 2,
    REASONS_SHOWN = 6,
    NEAREST_SHOWN = 5,
    CHOICE_WIDTH = 6,
    CHOICE_WIDTH_MAX = 16
};

/* "ep=8" becomes "ep 8", padded so that the reasons line up. */
static void print_reason(const struct reason *reason, int width, bool first, bool why, FILE *out)
{
    char choice[64], line[LINE_MAX_BYTES];
    (void)text_copy(choice, sizeof choice, reason->choice);
    char *equals = strchr(choice, '=');
    if (equals)
        *equals = ' ';
    (void)snprintf(line, sizeof line, "%-*s %s", width, choice,
                   why ? reason->because : reason->brief);
    text_wrap(first ? "why" : "", line, width + 1, out);
}

static void print_reasons(const struct answer *answer, bool why, FILE *out)
{
    int width = CHOICE_WIDTH, shown = 0;
    for (int i = 0; i < answer->reason_count; i++) {
        int length = (int)strlen(answer->reasons[i].choice);
        if ((why || answer->reasons[i].decides) && length > width && length <= CHOICE_WIDTH_MAX)
            width = length;
    }
    for (int i = 0; i < answer->reason_count; i++)
        if (why || (answer->reasons[i].decides && shown < REASONS_SHOWN))
            print_reason(&answer->reasons[i], width, shown++ == 0, why, out);
}

static void print_nearest(const struct answer *answer, FILE *out)
{
    for (int i = 0; i < answer->nearest_count && i < NEAREST_SHOWN; i++) {
        const struct nearest *nearest = &answer->nearest[i];
        char line[LINE_MAX_BYTES], size[32];
        units_format_gb(size, sizeof size, nearest->peak_bytes, 1);
        (void)snprintf(line, sizeof line, "%s (%s)", nearest->change, size);
        text_wrap(i == 0 ? "change" : "", line, 4, out);
    }
}

/* A list of ranks too long for a line says how many there are instead. */
static void format_ranks(const struct prediction *prediction, int group, char *ret, size_t size)
{
    char ranks[4096];
    budget_group_ranks(&prediction->input, &prediction->budget, group, ranks, sizeof ranks);
    if (strlen(ranks) <= RANKS_SHOWN_MAX)
        (void)snprintf(ret, size, "rank%s %s", strpbrk(ranks, "-,") ? "s" : "", ranks);
    else
        (void)snprintf(ret, size, "ranks %.*s...", RANKS_SHOWN_MAX - 8, ranks);
}

static void add_group(const struct prediction *prediction, int group, struct scale scale,
                      struct table *table)
{
    const struct rank_budget *rank = &prediction->budget.groups[group];
    char ranks[64];
    format_ranks(prediction, group, ranks, sizeof ranks);
    table_cell(table, "%s", ranks);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        table_cell(table, "%.*f", scale.decimals, scaled(scale, rank->category_bytes[i]));
    table_cell(table, "%.*f", scale.decimals, scaled(scale, rank->peak_bytes));
}

/* The fullest ranks first; the others in their order. */
static void print_memory(const struct prediction *prediction, bool why, FILE *out)
{
    const struct budget *budget = &prediction->budget;
    struct scale scale = scale_for(prediction_worst(prediction)->peak_upper_bytes);
    struct table table = { .columns = CATEGORY_COUNT + 2, .left = 1u };
    int most = why || budget->count <= GROUPS_SHOWN ? budget->count : GROUPS_SHOWN, shown = 1;
    table_cell(&table, "%-18s", scale.unit);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        table_cell(&table, "%s", category_names[i]);
    table_cell(&table, "%7s", "peak");
    add_group(prediction, budget->worst, scale, &table);
    for (int group = 0; group < budget->count && shown < most; group++)
        if (group != budget->worst) {
            add_group(prediction, group, scale, &table);
            shown++;
        }
    table_print(&table, "memory", out);
    table_done(&table);
    if (shown < budget->count)
        (void)fprintf(out, "%*s%d more kinds of ranks: --why\n", TEXT_MARGIN, "",
                      budget->count - shown);
}

static double percent_of(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* The sequences of a step, without which its seconds mean little. */
static void print_batch(const struct plan *plan, FILE *out)
{
    char sequences[32];
    units_format_count(sequences, sizeof sequences, (uint64_t)plan->global_batch);
    (void)fprintf(out, "   batch %s sequence%s\n", sequences, plan->global_batch == 1 ? "" : "s");
}

static void print_step(const struct prediction *prediction, FILE *out)
{
    const struct step_time *time = &prediction->time;
    char seconds[32], fastest[32], slowest[32], tokens[32];
    double bubble = time->item_seconds[TIME_BUBBLE];
    double optimizer = time->item_seconds[TIME_OPTIMIZER];
    double exposed = time->exposed_communication_seconds;
    units_format_count(tokens, sizeof tokens, (uint64_t)llround(time->tokens_per_second_per_gpu));
    (void)fprintf(out, "%-*s%s (%s to %s)   %s tokens/s per GPU", TEXT_MARGIN, "step",
                  units_format_seconds(seconds, sizeof seconds, time->seconds),
                  units_format_seconds(fastest, sizeof fastest, prediction->range.fastest),
                  units_format_seconds(slowest, sizeof slowest, prediction->range.slowest), tokens);
    print_batch(&prediction->plan, out);
    (void)fprintf(out, "%*s%.3g model TFLOP/s per GPU, MFU %.1f %%, HFU %.1f %%\n", TEXT_MARGIN, "",
                  time->model_flops_per_second_per_gpu / 1e12, 100 * time->mfu, 100 * time->hfu);
    (void)fprintf(out,
                  "%*scompute %.0f %%, exposed communication %.0f %%, pipeline bubble %.0f %%, "
                  "optimizer %.0f %%\n",
                  TEXT_MARGIN, "",
                  percent_of(time->seconds - exposed - bubble - optimizer, time->seconds),
                  percent_of(exposed, time->seconds), percent_of(bubble, time->seconds),
                  percent_of(optimizer, time->seconds));
}

/* "between 310 ms and 640 ms: expert exchanges hidden -210 ms, ..." */
static void print_range(const struct prediction *prediction, FILE *out)
{
    const struct time_range *range = &prediction->range;
    char line[LINE_MAX_BYTES], text[2][32];
    size_t used = 0;
    if (range->count == 0)
        return;
    text_append(line, sizeof line, &used,
                "between %s and %s:", units_format_seconds(text[0], sizeof text[0], range->fastest),
                units_format_seconds(text[1], sizeof text[1], range->slowest));
    for (int i = 0; i < range->count; i++) {
        double seconds = range->causes[i].seconds;
        text_append(line, sizeof line, &used, "%s %s %s%s", i > 0 ? "," : "", range->causes[i].what,
                    seconds < 0 ? "-" : "+",
                    units_format_seconds(text[0], sizeof text[0], fabs(seconds)));
    }
    text_wrap("", line, 0, out);
}

/* "3.1 % more time", "12.0 % less time": the upper ends of both steps. */
static void format_time(const struct candidate *other, const struct candidate *own, char *ret,
                        size_t size)
{
    double percent =
        percent_of(other->slowest_seconds - own->slowest_seconds, own->slowest_seconds);
    if (fabs(percent) < 0.05)
        (void)snprintf(ret, size, "the same time");
    else
        (void)snprintf(ret, size, "%.1f %% %s time", fabs(percent), percent < 0 ? "less" : "more");
}

/* Layout, peak, and the time against the recommended one at the upper end of both ranges. */
static void add_other(const struct candidate *best, const struct candidate *other, const char *note,
                      struct table *table)
{
    char degrees[LINE_MAX_BYTES], size[32], time[40];
    format_degrees(&other->choices.layout, "  ", degrees, sizeof degrees);
    format_time(other, best, time, sizeof time);
    table_cell(table, "%s", degrees);
    table_cell(table, "%s", units_format_gb(size, sizeof size, other->worst.peak_bytes, 1));
    table_cell(table, "%s", time);
    table_cell(table, "%s", note);
}

static void print_others(const struct prediction *prediction, const struct answer *answer, bool why,
                         FILE *out)
{
    struct table table = { .columns = 4, .left = 1u | 1u << 3 };
    const struct candidate *best = &answer->recommended;
    char primitives[LINE_MAX_BYTES], offloads[64];
    for (int i = 0; i < answer->candidate_count && (why || i < OTHERS_SHOWN); i++) {
        const struct candidate *other = &answer->candidates[i];
        format_primitives(&prediction->plan.model, &other->choices.primitives, primitives,
                          sizeof primitives);
        add_other(best, other, why ? primitives : "", &table);
    }
    if (answer->has_offloaded) {
        choice_format(&answer->offloaded.choices, choice_key_find("offload"), offloads,
                      sizeof offloads);
        (void)snprintf(primitives, sizeof primitives, "%s in host memory", offloads);
        add_other(best, &answer->offloaded, primitives, &table);
    }
    if (table.cell_count > 0)
        table_print(&table, "others", out);
    table_done(&table);
}

/* By how much the two policies differ. */
static void print_policy(const struct answer *answer, FILE *out)
{
    const struct candidate *own = &answer->recommended, *other = &answer->other;
    char degrees[LINE_MAX_BYTES], line[2 * LINE_MAX_BYTES], size[32], time[40];
    size_t used = 0;
    if (!answer->has_other)
        return;
    format_degrees(&other->choices.layout, " ", degrees, sizeof degrees);
    format_time(other, own, time, sizeof time);
    uint64_t mine = own->worst.peak_upper_bytes, its = other->worst.peak_upper_bytes;
    if (!memcmp(&own->choices.layout, &other->choices.layout, sizeof own->choices.layout) &&
        mine == its)
        return;
    text_append(line, sizeof line, &used, "%s %s",
                answer->policy == POLICY_BEST ? "--policy articles gives" : "--policy best gives",
                degrees);
    if (other->verdict == VERDICT_DOES_NOT_FIT)
        text_append(line, sizeof line, &used, ", which does not fit");
    else
        text_append(line, sizeof line, &used, ": %s, %s %s", time,
                    units_format_gb(size, sizeof size, its > mine ? its - mine : mine - its, 1),
                    its > mine ? "more" : "less");
    text_wrap("policy", line, 0, out);
}

/* Routed rows: the estimate, the bound that memory is planned for, and the room of the executor. */
static void print_rows(const struct prediction *prediction, FILE *out)
{
    const struct plan *plan = &prediction->plan;
    const struct rank_budget *worst = prediction_worst(prediction);
    char line[LINE_MAX_BYTES], rows[32], upper[32], room[32], routing[64];
    size_t used = 0;
    bool natural = plan->routing.kind == ROUTING_NATURAL;
    if (plan->model.moe.experts == 0 || plan->choices.layout.ep == 1)
        return;
    routing_format(&plan->routing, routing, sizeof routing);
    text_append(line, sizeof line, &used,
                "%s routed rows per rank, layer and micro-batch under %s routing, at most %s (",
                units_format_count(rows, sizeof rows, worst->routed_rows), routing,
                units_format_count(upper, sizeof upper, worst->routed_rows_upper));
    if (natural)
        text_append(line, sizeof line, &used, "the most that any router can send)");
    else
        text_append(line, sizeof line, &used, "quantile %g)", plan->routing_quantile);
    if (plan->dispatch_bound_rows > worst->routed_rows_upper)
        text_append(line, sizeof line, &used, "; a run stops above %s",
                    units_format_count(room, sizeof room, plan->dispatch_bound_rows));
    text_wrap("rows", line, 0, out);
}

/* Of a layout that was set in part, the part that was not. */
static void print_chosen(const struct answer *answer, FILE *out)
{
    char line[LINE_MAX_BYTES];
    if (!answer->chosen[0])
        return;
    (void)snprintf(line, sizeof line, "not set, chosen here: %s (--exact: 1 or off)",
                   answer->chosen);
    text_wrap("", line, 0, out);
}

/* Of layouts that fit alone. */
static void print_speed(const struct prediction *prediction, const struct answer *answer, bool why,
                        FILE *out)
{
    print_step(prediction, out);
    if (why)
        print_range(prediction, out);
    print_reasons(answer, why, out);
    print_policy(answer, out);
    print_others(prediction, answer, why, out);
}

void report_plan_text(const struct prediction *prediction, const struct answer *answer, bool why,
                      struct text_style style)
{
    FILE *out = style.out;
    const bool fits = prediction->verdict != VERDICT_DOES_NOT_FIT;
    char binding[BINDING_TEXT];
    report_head_text(prediction, out);
    (void)fputc('\n', out);
    report_verdict_text(prediction, style);
    print_chosen(answer, out);
    prediction_binding(prediction, answer->binding, binding, sizeof binding);
    if (answer->binding[0] && prediction->verdict != VERDICT_FITS)
        text_wrap("limit", binding, 0, out);
    print_nearest(answer, out);
    print_memory(prediction, why, out);
    print_rows(prediction, out);
    if (fits)
        print_speed(prediction, answer, why, out);
    else if (why)
        print_reasons(answer, why, out);
    (void)fprintf(out, "%-*srankfit plan ... -o plan.yaml; rankfit budget plan.yaml%s%s\n",
                  TEXT_MARGIN, "next",
                  fits && !prediction->input.engine ? "; rankfit run plan.yaml" : "",
                  why ? "" : "; --why");
}
