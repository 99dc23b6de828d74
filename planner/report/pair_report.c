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

static struct json *side_json(const struct pair_side *side, const struct difference_side *figures)
{
    struct json *ret = json_map();
    json_put_text(ret, "setting", side->setting);
    json_put_text(ret, "plan_digest", side->plan->digest);
    json_put(ret, "layout", choices_layout_json(&side->plan->choices));
    json_put(ret, "primitives", choices_primitives_json(&side->plan->choices));
    json_put_number(ret, "loss", figures->loss);
    json_put_number(ret, "gradient_norm", figures->gradient_norm);
    json_put_u64(ret, "peak_bytes", figures->peak_bytes);
    json_put_number(ret, "seconds", figures->seconds);
    return ret;
}

static struct json *tensor_json(const struct tensor_difference *tensor)
{
    struct json *ret = json_map();
    json_put_text(ret, "name", tensor->name);
    json_put_number(ret, "rms", tensor->rms);
    json_put_number(ret, "error", tensor->error);
    return ret;
}

struct json *report_pair_json(const struct pair_report *report)
{
    const struct difference *d = report->difference;
    const struct agreement_info *info = &agreement_infos[d->agreement];
    struct json *gradients = json_list();

    for (size_t i = 0; i < d->count; i++)
        json_append(gradients, tensor_json(&d->tensors[i]));
    struct json *tolerances = json_map();
    json_put_text(tolerances, "agreement", info->name);
    json_put_number(tolerances, "loss", info->loss);
    json_put_number(tolerances, "final_hidden", info->hidden);
    json_put_number(tolerances, "gradient", info->gradient);
    struct json *errors = json_map();
    json_put_number(errors, "loss", d->loss_error);
    json_put_number(errors, "final_hidden", d->hidden_error);
    json_put_number(errors, "gradient_norm", d->norm_error);
    json_put_number(errors, "gradient", d->worst ? d->worst->error : 0);
    struct json *ret = json_document("rankfit.pair/1");
    json_put_text(ret, "name", report->primitive.setting);
    json_put_text(ret, "kind", report->kind);
    json_put(ret, "tolerances", tolerances);
    json_put(ret, "primitive", side_json(&report->primitive, &d->primitive));
    json_put(ret, "reference", side_json(&report->reference, &d->reference));
    json_put(ret, "errors", errors);
    json_put(ret, "gradients", gradients);
    json_put(ret, "worst", d->worst ? tensor_json(d->worst) : json_nothing());
    json_put_text(ret, "verdict", d->within ? "within" : "out");
    return ret;
}
