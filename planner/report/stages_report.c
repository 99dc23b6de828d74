#include "planner/report/stages_report.h"

#include "planner/report/table.h"

#include <math.h>

static const double giga = 1e9, tera = 1e12;

static void cell_range(struct table *table, const struct measured_range *range, double unit)
{
    if (range->low < range->high)
        table_cell(table, "%.2f-%.2f", range->low / unit, range->high / unit);
    else
        table_cell(table, "%.2f", range->low / unit);
}

static void print_assumptions(const struct stages *stages, FILE *out)
{
    text_wrap("source", stages->source, 0, out);
    (void)fputc('\n', out);
    for (int i = 0; i < stages->open_count; i++) {
        const struct open_choice *open = &stages->open[i];
        char line[1024];
        (void)snprintf(line, sizeof line, "%s %s: %s", open->name, open->value, open->because);
        text_wrap(i == 0 ? "open" : "", line, 2, out);
    }
}

static void print_reading(const char *name, const char *text, FILE *out)
{
    char line[1024];
    (void)snprintf(line, sizeof line, "%s: %s", name, text);
    text_wrap("", line, 2, out);
}

static void print_peaks(const struct stages *stages, FILE *out)
{
    struct table table = { .columns = 8, .left = 3 };
    static const char *const heads[] = { "GB",     "engine", "rankfit", "measured",
                                         "shared", "off",    "whole",   "off" };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(&table, "%s", heads[i]);
    for (int i = 0; i < stages->run_count; i++) {
        const struct stage_run *run = &stages->run[i];
        double shared = (double)run->adjusted.shared_bytes;
        double whole = (double)run->adjusted.whole_bytes;
        table_cell(&table, "%s", run->name);
        table_cell(&table, "%s", run->engine);
        table_cell(&table, "%.2f", (double)run->adjusted.peak_bytes / giga);
        cell_range(&table, &run->peak_bytes, giga);
        table_cell(&table, "%.2f", shared / giga);
        table_cell(&table, "%+.2f", range_distance(&run->peak_bytes, shared) / giga);
        table_cell(&table, "%.2f", whole / giga);
        table_cell(&table, "%+.2f", range_distance(&run->peak_bytes, whole) / giga);
    }
    (void)fputc('\n', out);
    table_print(&table, "peak", out);
    table_done(&table);
    (void)fputc('\n', out);
    print_reading("rankfit", "engine rankfit, the fullest rank, all that the device holds", out);
    print_reading("shared", stages->reading[DELTA_SHARED], out);
    print_reading("whole", stages->reading[DELTA_WHOLE], out);
    if (stages->experts_because)
        print_reading("experts", stages->experts_because, out);
}

static void print_run(const struct stage_run *run, FILE *out)
{
    struct table table = { .columns = 3, .left = 5 };
    const struct adjusted *a = &run->adjusted;
    table_cell(&table, "%s", run->name);
    table_cell(&table, "GB");
    table_cell(&table, "engine %s", run->engine);
    table_cell(&table, "rankfit");
    table_cell(&table, "%.3f", (double)a->peak_bytes / giga);
    table_cell(&table, "fullest rank, all that the device holds");
    for (int i = 0; i < a->count; i++) {
        table_cell(&table, "%s", a->step[i].name);
        table_cell(&table, "%+.3f", (double)a->step[i].bytes / giga);
        table_cell(&table, "%s", a->step[i].mechanism);
        table_cell(&table, "%s", "");
        table_cell(&table, "%s", "");
        table_cell(&table, "%s", a->step[i].formula);
    }
    table_cell(&table, "shared");
    table_cell(&table, "%.3f", (double)a->shared_bytes / giga);
    table_cell(&table, "%.3f whole", (double)a->whole_bytes / giga);
    table_cell(&table, "measured");
    cell_range(&table, &run->peak_bytes, giga);
    table_cell(&table, "%s", "");
    double shared = -range_distance(&run->peak_bytes, (double)a->shared_bytes);
    double whole = -range_distance(&run->peak_bytes, (double)a->whole_bytes);
    table_cell(&table, "unexplained");
    table_cell(&table, "%+.3f", shared / giga);
    table_cell(&table, "%+.3f of whole", whole / giga);
    if (a->experts_bytes != 0) {
        table_cell(&table, "experts alone");
        table_cell(&table, "%+.3f", (double)a->experts_bytes / giga);
        table_cell(&table, "more, by the source's own runs of one layer of them");
    }
    (void)fputc('\n', out);
    table_print(&table, "items", out);
    table_done(&table);
    if (run->note)
        text_wrap("", run->note, 2, out);
}

static double own_tflops(const struct stage_run *run)
{
    return run->prediction->time.model_flops_per_second_per_gpu / tera;
}

static double whole_tflops(const struct stage_run *run)
{
    return own_tflops(run) * run->adjusted.seconds / run->adjusted.whole_seconds;
}

/* Of what was measured, the nearer end of a range. */
static double share_off(const struct measured_range *range, double value)
{
    double off = range_distance(range, value);
    return off / (off < 0 ? range->low : range->high);
}

static void print_speeds(const struct stages *stages, FILE *out)
{
    struct table table = { .columns = 6, .left = 1 };
    static const char *const heads[] = {
        "model TFLOP/s per GPU", "measured", "rankfit", "off", "whole", "off"
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(&table, "%s", heads[i]);
    for (int i = 0; i < stages->run_count; i++) {
        const struct stage_run *run = &stages->run[i];
        table_cell(&table, "%s", run->name);
        cell_range(&table, &run->tflops, 1);
        table_cell(&table, "%.1f", own_tflops(run));
        table_cell(&table, "%+.1f %%", 100 * share_off(&run->tflops, own_tflops(run)));
        table_cell(&table, "%.1f", whole_tflops(run));
        table_cell(&table, "%+.1f %%", 100 * share_off(&run->tflops, whole_tflops(run)));
    }
    (void)fputc('\n', out);
    table_print(&table, "speed", out);
    table_done(&table);
}

static void print_steps(const struct stages *stages, FILE *out)
{
    struct table table = { .columns = 7, .left = 1 | 1 << 6 };
    static const char *const heads[] = { "GB",     "measured", "within", "rankfit",
                                         "shared", "whole",    "" };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(&table, "%s", heads[i]);
    for (int i = 0; i < stages->step_count; i++) {
        const struct stage_step *step = &stages->step[i];
        table_cell(&table, "%s to %s", stages->run[step->from].name, stages->run[step->to].name);
        table_cell(&table, "%+.2f", step->measured_bytes / giga);
        table_cell(&table, "%.2f", step->within_bytes / giga);
        table_cell(&table, "%+.2f", step->own_bytes / giga);
        table_cell(&table, "%+.2f", step->shared_bytes / giga);
        table_cell(&table, "%+.2f", step->whole_bytes / giga);
        table_cell(&table, "%s", step->holds ? "holds" : "does not hold");
    }
    (void)fputc('\n', out);
    table_print(&table, "steps", out);
    table_done(&table);
}

void report_stages_text(const struct stages *stages, FILE *out)
{
    print_assumptions(stages, out);
    print_peaks(stages, out);
    for (int i = 0; i < stages->run_count; i++)
        print_run(&stages->run[i], out);
    print_speeds(stages, out);
    print_steps(stages, out);
}

static void put_bytes(struct json *map, const char *key, double bytes)
{
    json_put_int(map, key, llround(bytes));
}

static struct json *adjustments_json(const struct adjusted *adjusted)
{
    struct json *ret = json_list();
    for (int i = 0; i < adjusted->count; i++) {
        const struct adjustment *step = &adjusted->step[i];
        struct json *entry = json_map();
        json_put_text(entry, "name", step->name);
        json_put_int(entry, "bytes", step->bytes);
        json_put_text(entry, "mechanism", step->mechanism);
        json_put_text(entry, "formula", step->formula);
        json_append(ret, entry);
    }
    return ret;
}

static struct json *run_json(const struct stage_run *run)
{
    const struct adjusted *a = &run->adjusted;
    double shared = (double)a->shared_bytes, whole = (double)a->whole_bytes;
    struct json *ret = json_map(), *bytes = json_list(), *tflops = json_list();
    json_put_text(ret, "name", run->name);
    json_put_text(ret, "engine", run->engine);
    json_put_text(ret, "source", run->source);
    put_bytes(ret, "peak_bytes", (double)a->peak_bytes);
    json_put(ret, "adjustments", adjustments_json(a));
    put_bytes(ret, "engine_peak_bytes", shared);
    put_bytes(ret, "engine_whole_peak_bytes", whole);
    json_append_int(bytes, llround(run->peak_bytes.low));
    json_append_int(bytes, llround(run->peak_bytes.high));
    json_put(ret, "measured_bytes", bytes);
    put_bytes(ret, "unexplained_bytes", -range_distance(&run->peak_bytes, shared));
    put_bytes(ret, "unexplained_whole_bytes", -range_distance(&run->peak_bytes, whole));
    json_put_int(ret, "experts_alone_bytes", a->experts_bytes);
    json_put_number(ret, "model_tflops_per_gpu", own_tflops(run));
    json_put_number(ret, "engine_whole_tflops_per_gpu", whole_tflops(run));
    json_append_number(tflops, run->tflops.low);
    json_append_number(tflops, run->tflops.high);
    json_put(ret, "measured_tflops_per_gpu", tflops);
    if (run->note)
        json_put_text(ret, "note", run->note);
    return ret;
}

static struct json *step_json(const struct stages *stages, const struct stage_step *step)
{
    struct json *ret = json_map();
    json_put_text(ret, "from", stages->run[step->from].name);
    json_put_text(ret, "to", stages->run[step->to].name);
    json_put_bool(ret, "holds", step->holds);
    put_bytes(ret, "bytes", step->own_bytes);
    put_bytes(ret, "engine_bytes", step->shared_bytes);
    put_bytes(ret, "engine_whole_bytes", step->whole_bytes);
    put_bytes(ret, "measured_bytes", step->measured_bytes);
    put_bytes(ret, "within_bytes", step->within_bytes);
    return ret;
}

void stages_add_json(const struct stages *stages, struct json *set)
{
    struct json *open = json_list(), *runs = json_list(), *steps = json_list();
    for (int i = 0; i < stages->open_count; i++) {
        struct json *entry = json_map();
        json_put_text(entry, "name", stages->open[i].name);
        json_put_text(entry, "value", stages->open[i].value);
        json_put_text(entry, "because", stages->open[i].because);
        json_append(open, entry);
    }
    for (int i = 0; i < stages->run_count; i++)
        json_append(runs, run_json(&stages->run[i]));
    for (int i = 0; i < stages->step_count; i++)
        json_append(steps, step_json(stages, &stages->step[i]));
    json_put_text(set, "source", stages->source);
    json_put(set, "assumptions", open);
    json_put(set, "runs", runs);
    json_put(set, "steps", steps);
}
