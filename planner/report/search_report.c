#include "planner/report/search_report.h"

#include "base/text.h"
#include "base/units.h"
#include "planner/report/assumptions.h"
#include "planner/report/json.h"
#include "planner/report/table.h"

#include <math.h>
#include <string.h>

enum { LINE_BYTES = 512 };

static void print_hours(const struct search_report *report, FILE *out)
{
    const struct search_result *r = report->result;
    double rate = r->best.time.tokens_per_second_per_gpu;
    char hours[32], gpu_hours[32];
    if (report->tokens <= 0 || rate <= 0)
        return;
    double spent = report->tokens / rate / 3600;
    units_format_count(gpu_hours, sizeof gpu_hours, (uint64_t)llround(spent));
    units_format_count(hours, sizeof hours, (uint64_t)llround(spent / r->gpus));
    (void)fprintf(out, "%-*s%g tokens take %s hours on %d GPUs, %s GPU-hours\n", TEXT_MARGIN,
                  "hours", report->tokens, hours, r->gpus, gpu_hours);
}

static void print_candidate(const struct model *model, const struct candidate *c,
                            struct table *table)
{
    char degrees[LINE_BYTES], primitives[LINE_BYTES], size[32], seconds[32], rate[32];
    format_degrees(&c->choices.layout, " ", degrees, sizeof degrees);
    format_primitives(model, &c->choices.primitives, primitives, sizeof primitives);
    units_format_count(rate, sizeof rate, (uint64_t)llround(c->time.tokens_per_second_per_gpu));
    table_cell(table, "%s", units_format_seconds(seconds, sizeof seconds, c->time.seconds));
    table_cell(table, "%s", rate);
    table_cell(table, "%s", units_format_gb(size, sizeof size, c->worst.peak_upper_bytes, 1));
    table_cell(table, "%s", degrees);
    table_cell(table, "%s", primitives);
}

static void print_front(const struct search_report *report, FILE *out)
{
    const struct search_result *r = report->result;
    struct table table = { .columns = 5, .left = 1u << 3 | 1u << 4 };
    if (r->front_count == 0)
        return;
    table_cell(&table, "step");
    table_cell(&table, "tokens/s a GPU");
    table_cell(&table, "upper bound");
    table_cell(&table, "%s", "");
    table_cell(&table, "%s", "");
    for (int i = 0; i < r->front_count; i++)
        print_candidate(&report->prediction->plan.model, &r->front[i], &table);
    table_print(&table, "pareto", out);
    table_done(&table);
}

static void print_derived(const struct search_report *report, FILE *out)
{
    const struct candidate *d = report->derived;
    char degrees[LINE_BYTES], line[2 * LINE_BYTES];
    if (!d)
        return;
    format_degrees(&d->choices.layout, " ", degrees, sizeof degrees);
    size_t used = 0;
    text_append(line, sizeof line, &used, "rankfit plan takes %s", degrees);
    if (d->verdict == VERDICT_DOES_NOT_FIT)
        text_append(line, sizeof line, &used, ", which does not fit%s",
                    report->result->best.verdict == VERDICT_DOES_NOT_FIT ? ", nor does any other"
                                                                         : "");
    else if (report->derived_over_best >= 0)
        text_append(line, sizeof line, &used,
                    ", whose step is at worst %.1f %% longer than the shortest: it opens no "
                    "interleaving, larger micro-batches, caps, ring loss and copy engines, which "
                    "are left to --set",
                    100 * (1 / report->derived_over_best - 1));
    text_wrap("derived", line, 0, out);
}

/* "4 GPUs do not fit: static memory of ...; there would: offload=optimizer ..." */
static void print_fewer(const struct search_report *report, FILE *out)
{
    const struct answer *fewer = report->fewer;
    char line[4 * LINE_BYTES];
    size_t used = 0;
    if (report->gpus_with_host > 0) {
        text_append(line, sizeof line, &used, "%d GPUs with state or layer inputs in host memory",
                    report->gpus_with_host);
        text_wrap("host", line, 0, out);
        used = 0;
    }
    if (!fewer)
        return;
    text_append(line, sizeof line, &used, "%d GPUs do not fit: %s", report->result->fewer,
                fewer->binding);
    for (int i = 0; i < fewer->nearest_count; i++)
        text_append(line, sizeof line, &used, "%s%s",
                    i > 0 ? "; " : "; would fit: ", fewer->nearest[i].change);
    text_wrap("fewer", line, 0, out);
}

static void print_step(const struct step_time *time, FILE *out)
{
    char seconds[32], tokens[32];
    units_format_seconds(seconds, sizeof seconds, time->seconds);
    units_format_count(tokens, sizeof tokens, (uint64_t)llround(time->tokens_per_second_per_gpu));
    (void)fprintf(out, "%-*s%s   MFU %.1f %%, HFU %.1f %%   %s tokens/s per GPU\n", TEXT_MARGIN,
                  "step", seconds, 100 * time->mfu, 100 * time->hfu, tokens);
}

static void print_searched(const struct search_result *r, FILE *out)
{
    char layouts[32], judged[32];
    units_format_count(layouts, sizeof layouts, r->layouts);
    units_format_count(judged, sizeof judged, r->judged);
    (void)fprintf(out,
                  "%-*sat %s layouts in %.2f s: %s judged, the others proved to be no better, too "
                  "large or illegal\n",
                  TEXT_MARGIN, "looked", layouts, r->seconds, judged);
}

void report_search_text(const struct search_report *report, struct text_style style)
{
    FILE *out = style.out;
    report_head_text(report->prediction, out);
    (void)fputc('\n', out);
    if (report->result->any) {
        report_verdict_text(report->prediction, style);
        print_step(&report->prediction->time, out);
        print_hours(report, out);
        print_derived(report, out);
        print_fewer(report, out);
        print_front(report, out);
    } else {
        (void)fprintf(out, "nothing fits on any number of GPUs up to %d\n",
                      report->prediction->plan.gpus);
    }
    print_searched(report->result, out);
}

static struct json *searched_json(const struct search_report *report)
{
    const struct search_result *r = report->result;
    struct json *ret = json_map();
    json_put_u64(ret, "layouts", r->layouts);
    json_put_u64(ret, "legal", r->legal);
    json_put_u64(ret, "judged", r->judged);
    json_put_number(ret, "seconds", r->seconds);
    bool known = report->derived_over_best >= 0 && report->derived;
    json_put_number(ret, "derived_over_best", known ? report->derived_over_best : (double)NAN);
    return ret;
}

static struct json *fewer_json(const struct search_report *report)
{
    const struct answer *fewer = report->fewer;
    if (!fewer)
        return json_nothing();
    struct json *ret = json_map();
    json_put_int(ret, "gpus", report->result->fewer);
    json_put_text(ret, "binding", fewer->binding);
    json_put_u64(ret, "peak_bytes", fewer->recommended.worst.peak_bytes);
    json_put(ret, "nearest", report_nearest_json(fewer));
    return ret;
}

static struct json *training_json(const struct search_report *report)
{
    double rate = report->result->best.time.tokens_per_second_per_gpu;
    if (report->tokens <= 0 || !report->result->any || rate <= 0)
        return json_nothing();
    double gpu_hours = report->tokens / rate / 3600;
    struct json *ret = json_map();
    json_put_number(ret, "tokens", report->tokens);
    json_put_number(ret, "hours", gpu_hours / report->result->gpus);
    json_put_number(ret, "gpu_hours", gpu_hours);
    return ret;
}

struct json *report_search_json(const struct search_report *report)
{
    const struct search_result *r = report->result;
    struct json *ret = json_document("rankfit.search/1"), *front = json_list();
    json_put(ret, "model", report_model_of(report->prediction));
    json_put(ret, "hardware", report_hardware_of(report->prediction));
    json_put_u64(ret, "seq_tokens", report->prediction->plan.seq_tokens);
    json_put_text(ret, "objective", objective_names[report->objective]);
    const char *verdict = verdict_names[r->any ? r->best.verdict : VERDICT_DOES_NOT_FIT];
    json_put_text(ret, "verdict", verdict);
    json_put_u64(ret, "limit_bytes", report->prediction->limit_bytes);
    if (r->any)
        json_put_int(ret, "gpus", r->gpus);
    else
        json_put_null(ret, "gpus");
    if (report->gpus_with_host > 0)
        json_put_int(ret, "gpus_with_host_memory", report->gpus_with_host);
    else
        json_put_null(ret, "gpus_with_host_memory");
    json_put(ret, "fewer", fewer_json(report));
    json_put(ret, "best", r->any ? report_candidate_json(&r->best) : json_nothing());
    json_put(ret, "derived",
             report->derived ? report_candidate_json(report->derived) : json_nothing());
    json_put(ret, "training", training_json(report));
    if (r->any)
        json_put(ret, "assumptions", report_assumptions_json(report->prediction));
    for (int i = 0; i < r->front_count; i++)
        json_append(front, report_candidate_json(&r->front[i]));
    json_put(ret, "pareto", front);
    json_put(ret, "searched", searched_json(report));
    return ret;
}

static void print_cell(const struct sweep *sweep, const struct sweep_cell *cell,
                       struct table *table)
{
    static const char *const verdicts[] = { "fits", "tight", "does not fit" };
    const struct candidate *c = &cell->candidate;
    char tokens[32], size[32], text[LINE_BYTES];
    table_cell(table, "%d", cell->gpus);
    table_cell(table, "%s", units_format_count(tokens, sizeof tokens, cell->seq_tokens));
    if (!cell->legal) {
        table_cell(table, "not legal");
        for (int i = 3; i < table->columns - 1; i++)
            table_cell(table, "%s", "");
        table_cell(table, "%s", cell->fault);
        return;
    }
    table_cell(table, "%s", verdicts[c->verdict]);
    table_cell(table, "%s",
               units_format_gb(size, sizeof size, c->worst.category_bytes[CATEGORY_STATIC], 1));
    table_cell(table, "%s", units_format_gb(size, sizeof size, c->worst.peak_bytes, 1));
    table_cell(table, "%.0f", c->time.tokens_per_second_per_gpu);
    table_cell(table, "%.1f %%", 100 * c->time.mfu);
    format_degrees(&c->choices.layout, " ", text, sizeof text);
    table_cell(table, "%s", text);
    format_primitives(&sweep->prediction->plan.model, &c->choices.primitives, text, sizeof text);
    table_cell(table, "%s", text);
}

void report_sweep_text(const struct sweep *sweep, struct text_style style)
{
    static const char *const heads[] = { "GPUs",           "sequence", "verdict", "state", "peak",
                                         "tokens/s a GPU", "MFU",      "",        "" };
    const struct plan *plan = &sweep->prediction->plan;
    struct table table = { .columns = 9, .left = 1u << 2 | 1u << 7 | 1u << 8 };
    char total[32], limit[32];
    format_params(sweep->prediction->sizes.counts.total, total, sizeof total);
    units_format_gb(limit, sizeof limit, sweep->prediction->limit_bytes, 1);
    (void)fprintf(style.out, "%s, %s parameters, on %s; limit %s a GPU\n\n",
                  plan->model.title[0] ? plan->model.title : plan->model.name, total,
                  plan->hardware.gpu[0] ? plan->hardware.gpu : plan->hardware.name, limit);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(&table, "%s", heads[i]);
    for (int i = 0; i < sweep->count; i++)
        print_cell(sweep, &sweep->cells[i], &table);
    table_print(&table, "", style.out);
    table_done(&table);
}

static struct json *cell_json(const struct sweep_cell *cell)
{
    struct json *ret = json_map();
    json_put_int(ret, "gpus", cell->gpus);
    json_put_u64(ret, "seq_tokens", cell->seq_tokens);
    json_put_bool(ret, "legal", cell->legal);
    json_put_u64(ret, "limit_bytes", cell->limit_bytes);
    if (!cell->legal) {
        json_put_text(ret, "fault", cell->fault);
        return ret;
    }
    json_merge(ret, report_candidate_json(&cell->candidate));
    return ret;
}

struct json *report_sweep_json(const struct sweep *sweep)
{
    struct json *ret = json_document("rankfit.sweep/1"), *cells = json_list();
    struct json *hardware = report_hardware_of(sweep->prediction);
    json_drop(hardware, "gpus");
    json_put(ret, "model", report_model_of(sweep->prediction));
    json_put(ret, "hardware", hardware);
    for (int i = 0; i < sweep->count; i++)
        json_append(cells, cell_json(&sweep->cells[i]));
    json_put(ret, "cells", cells);
    return ret;
}
