#include "planner/report/pair_report.h"

#include "base/units.h"
#include "planner/report/json.h"
#include "planner/report/table.h"

#include <string.h>

static void print_side(const char *label, const struct pair_side *side, FILE *out)
{
    char degrees[256], primitives[256];
    format_degrees(&side->plan->choices.layout, "  ", degrees, sizeof degrees);
    format_primitives(&side->plan->model, &side->plan->choices.primitives, primitives,
                      sizeof primitives);
    (void)fprintf(out, "%-*s%s    %s    %s\n", TEXT_MARGIN, label, side->setting, degrees,
                  primitives);
}

/* A row of four cells: what, primitive, reference, difference; and what is allowed. */
static void judged_cells(struct table *table, double error, double allowed)
{
    table_cell(table, "%.2g", error);
    table_cell(table, "%.2g", allowed);
    table_cell(table, "%s", error <= allowed ? "within" : "OUT");
}

static void value_cells(struct table *table, const char *name, double primitive, double reference)
{
    table_cell(table, "%s", name);
    table_cell(table, "%.7g", primitive);
    table_cell(table, "%.7g", reference);
}

static void plain_cells(struct table *table, const char *name, const char *primitive,
                        const char *reference)
{
    table_cell(table, "%s", name);
    table_cell(table, "%s", primitive);
    table_cell(table, "%s", reference);
}

static void empty_cells(struct table *table, int count)
{
    for (int i = 0; i < count; i++)
        table_cell(table, "%s", "");
}

static void print_figures(const struct pair_report *report, FILE *out)
{
    const struct difference *d = report->difference;
    const struct agreement_info *allowed = &agreement_infos[d->agreement];
    struct table table = { .columns = 6, .left = 1 | 1 << 5 };
    char left[32], right[32];

    plain_cells(&table, "", report->primitive.setting, report->reference.setting);
    table_cell(&table, "%s", "difference");
    table_cell(&table, "%s", "allowed");
    empty_cells(&table, 1);
    value_cells(&table, "loss", d->primitive.loss, d->reference.loss);
    judged_cells(&table, d->loss_error, allowed->loss);
    plain_cells(&table, "final hidden", "", "");
    judged_cells(&table, d->hidden_error, allowed->hidden);
    value_cells(&table, "gradient norm", d->primitive.gradient_norm, d->reference.gradient_norm);
    judged_cells(&table, d->norm_error, allowed->gradient);
    plain_cells(&table, "worst gradient", "", "");
    judged_cells(&table, d->worst ? d->worst->error : 0, allowed->gradient);
    struct scale scale = scale_for(d->reference.peak_bytes);
    table_cell(&table, "peak, %s", scale.unit);
    table_cell(&table, "%.*f", scale.decimals, scaled(scale, d->primitive.peak_bytes));
    table_cell(&table, "%.*f", scale.decimals, scaled(scale, d->reference.peak_bytes));
    double peak = (double)d->primitive.peak_bytes / (double)d->reference.peak_bytes - 1;
    table_cell(&table, "%+.1f %%", 100 * peak);
    empty_cells(&table, 2);
    plain_cells(&table, "time of a step",
                units_format_seconds(left, sizeof left, d->primitive.seconds),
                units_format_seconds(right, sizeof right, d->reference.seconds));
    table_cell(&table, "%+.1f %%", 100 * (d->primitive.seconds / d->reference.seconds - 1));
    empty_cells(&table, 2);
    table_print(&table, "", out);
    table_done(&table);
}

void report_pair_text(const struct pair_report *report, struct text_style style)
{
    const struct difference *d = report->difference;
    const struct agreement_info *info = &agreement_infos[d->agreement];
    const struct plan *plan = report->primitive.plan;

    (void)fprintf(style.out, "%s    %d ranks    %llu tokens    %lld sequences a step\n\n",
                  plan->model.title, plan->gpus, (unsigned long long)plan->seq_tokens,
                  (long long)plan->global_batch);
    print_side("pair", &report->primitive, style.out);
    print_side("with", &report->reference, style.out);
    (void)fputc('\n', style.out);
    print_figures(report, style.out);
    if (d->worst)
        (void)fprintf(style.out, "\n%-*s%s, of %zu tensors\n", TEXT_MARGIN, "worst", d->worst->name,
                      d->count);
    (void)fprintf(style.out, "%-*s%s (%s)\n", TEXT_MARGIN, "agree", info->name, info->meaning);
    (void)fprintf(style.out, "%-*s%s\n", TEXT_MARGIN, "verdict",
                  d->within ? "within tolerance" : "out of tolerance");
}

static json_t *side_json(const struct pair_side *side, const struct difference_side *figures)
{
    return json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "setting", side->setting, "plan_digest",
        side->plan->digest, "layout", choices_layout_json(&side->plan->choices), "primitives",
        choices_primitives_json(&side->plan->choices), "loss", json_number(figures->loss),
        "gradient_norm", json_number(figures->gradient_norm), "peak_bytes",
        json_bytes(figures->peak_bytes), "seconds", json_number(figures->seconds));
}

static json_t *tensor_json(const struct tensor_difference *tensor)
{
    return json_pack("{s:s, s:o, s:o}", "name", tensor->name, "rms", json_number(tensor->rms),
                     "error", json_number(tensor->error));
}

json_t *report_pair_json(const struct pair_report *report)
{
    const struct difference *d = report->difference;
    const struct agreement_info *info = &agreement_infos[d->agreement];
    json_t *gradients = json_array();

    for (size_t i = 0; i < d->count; i++)
        json_array_append_new(gradients, tensor_json(&d->tensors[i]));
    json_t *tolerances = json_pack(
        "{s:s, s:o, s:o, s:o}", "agreement", info->name, "loss", json_number(info->loss),
        "final_hidden", json_number(info->hidden), "gradient", json_number(info->gradient));
    json_t *errors =
        json_pack("{s:o, s:o, s:o, s:o}", "loss", json_number(d->loss_error), "final_hidden",
                  json_number(d->hidden_error), "gradient_norm", json_number(d->norm_error),
                  "gradient", json_number(d->worst ? d->worst->error : 0));
    json_t *worst = d->worst ? tensor_json(d->worst) : json_null();
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "schema",
                     "rankfit.pair/1", "name", report->primitive.setting, "kind", report->kind,
                     "tolerances", tolerances, "primitive",
                     side_json(&report->primitive, &d->primitive), "reference",
                     side_json(&report->reference, &d->reference), "errors", errors, "gradients",
                     gradients, "worst", worst, "verdict", d->within ? "within" : "out");
}
