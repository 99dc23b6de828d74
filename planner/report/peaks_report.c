#include "planner/report/peaks_report.h"

#include "planner/report/table.h"

#include <stdbool.h>
#include <string.h>

static const double giga = 1e9;

static void cell_error(struct table *table, double error)
{
    table_cell(table, "%+.1f %%", 100 * error);
}

/* What the figures by an engine's rules are called: the engine, where there is one. */
static const char *rules_name(const struct peaks *peaks)
{
    return peaks->group_count > 1 ? "rules" : peaks->engine;
}

/* Sets of several engines, or of figures that count differently, say which a row's are. */
static void print_run(const struct peaks *peaks, const struct peak_run *run, struct table *table)
{
    double own = (double)run->own_bytes, engine = (double)run->engine_bytes;
    table_cell(table, "%s", run->name);
    if (peaks->group_count > 1) {
        table_cell(table, "%s", run->engine->name);
        table_cell(table, "%s", peak_metric_name(run->metric));
    }
    table_cell(table, "%.2f", run->measured_bytes / giga);
    table_cell(table, "%.2f", own / giga);
    cell_error(table, peak_error(own, run->measured_bytes));
    table_cell(table, "%.2f", engine / giga);
    cell_error(table, peak_error(engine, run->measured_bytes));
    table_cell(table, "%.2f", (double)run->device_bytes / giga);
}

static void print_runs(const struct peaks *peaks, FILE *out)
{
    bool mixed = peaks->group_count > 1;
    struct table table = { .columns = mixed ? 9 : 7, .left = mixed ? 7 : 1 };
    table_cell(&table, "GB");
    if (mixed) {
        table_cell(&table, "engine");
        table_cell(&table, "counts");
    }
    table_cell(&table, "measured");
    table_cell(&table, "rankfit");
    table_cell(&table, "off");
    table_cell(&table, "%s", rules_name(peaks));
    table_cell(&table, "off");
    table_cell(&table, "device");
    for (int i = 0; i < peaks->count; i++)
        if (!peaks->run[i].ran_out)
            print_run(peaks, &peaks->run[i], &table);
    if (peaks->with_peak > 0) {
        (void)fputc('\n', out);
        table_print(&table, "peak", out);
    }
    table_done(&table);
}

/* Runs that ended without memory: are they predicted above what the device has? */
static void print_ran_out(const struct peaks *peaks, FILE *out)
{
    struct table table = { .columns = 5, .left = 1 };
    table_cell(&table, "GB");
    table_cell(&table, "device has");
    table_cell(&table, "rankfit");
    table_cell(&table, "%s", rules_name(peaks));
    table_cell(&table, "above");
    for (int i = 0; i < peaks->count; i++) {
        const struct peak_run *run = &peaks->run[i];
        if (!run->ran_out)
            continue;
        table_cell(&table, "%s", run->name);
        table_cell(&table, "%.2f", run->measured_bytes / giga);
        table_cell(&table, "%.2f", (double)run->own_bytes / giga);
        table_cell(&table, "%.2f", (double)run->engine_bytes / giga);
        table_cell(&table, "%s", (double)run->engine_bytes > run->measured_bytes ? "yes" : "no");
    }
    if (peaks->with_peak < peaks->count) {
        (void)fputc('\n', out);
        table_print(&table, "ran out", out);
    }
    table_done(&table);
}

/* What was saved of one name, NULL: nothing. */
static const struct saved_item *find_saved(const struct saved *saved, const char *name)
{
    for (int i = 0; i < saved->count; i++)
        if (strcmp(saved->item[i].name, name) == 0)
            return &saved->item[i];
    return NULL;
}

/* Names of all rows of a family, as they come first. */
static int saved_names(const struct peaks *peaks, const char *family, const struct saved_item **ret)
{
    int count = 0;
    for (int i = 0; i < peaks->count; i++) {
        const struct peak_run *run = &peaks->run[i];
        for (int j = 0; strcmp(run->engine->family, family) == 0 && j < run->saved.count; j++) {
            const struct saved_item *item = &run->saved.item[j];
            int known = 0;
            while (known < count && strcmp(ret[known]->name, item->name) != 0)
                known++;
            if (known == count && count < SAVED_ITEMS_MAX)
                ret[count++] = item;
        }
    }
    return count;
}

static void print_items(const struct peak_run *run, const struct saved_item **names, int count,
                        struct table *table)
{
    table_cell(table, "%s", run->name);
    for (int j = 0; j < count; j++) {
        const struct saved_item *item = find_saved(&run->saved, names[j]->name);
        if (item)
            table_cell(table, "%.3f", (double)item->bytes / giga);
        else
            table_cell(table, "%s", "");
    }
}

static void print_saved(const struct peaks *peaks, const struct held_engine *engine, FILE *out)
{
    const struct saved_item *names[SAVED_ITEMS_MAX];
    int count = saved_names(peaks, engine->family, names);
    if (count == 0)
        return;
    struct table table = { .columns = count + 1, .left = 1 };
    table_cell(&table, "%s", engine->whole ? "held, GB" : "kept beside, GB");
    for (int i = 0; i < count; i++)
        table_cell(&table, "%s", names[i]->name);
    for (int i = 0; i < peaks->count; i++)
        if (strcmp(peaks->run[i].engine->family, engine->family) == 0)
            print_items(&peaks->run[i], names, count, &table);
    (void)fputc('\n', out);
    table_print(&table, "items", out);
    table_done(&table);
    (void)fputc('\n', out);
    for (int i = 0; i < count; i++) {
        char line[256];
        (void)snprintf(line, sizeof line, "%s: %s", names[i]->name, names[i]->mechanism);
        text_wrap("", line, 2, out);
    }
}

/* One table a family, in the order of their first runs. */
static void print_families(const struct peaks *peaks, FILE *out)
{
    for (int i = 0; i < peaks->count; i++) {
        int first = 0;
        while (strcmp(peaks->run[first].engine->family, peaks->run[i].engine->family) != 0)
            first++;
        if (first == i)
            print_saved(peaks, peaks->run[i].engine, out);
    }
}

static void print_error_row(const char *name, const struct peak_errors *errors, struct table *table)
{
    table_cell(table, "%s", name);
    cell_error(table, errors->median);
    cell_error(table, errors->least);
    cell_error(table, errors->most);
    table_cell(table, "%.1f %%", 100 * errors->mean_absolute);
}

static void print_errors(const struct peaks *peaks, FILE *out)
{
    struct table table = { .columns = 5, .left = 1 };
    table_cell(&table, "%d rows", peaks->with_peak);
    table_cell(&table, "median");
    table_cell(&table, "least");
    table_cell(&table, "most");
    table_cell(&table, "mean of sizes");
    for (int i = 0; peaks->group_count > 1 && i < peaks->group_count; i++) {
        const struct peak_group *group = &peaks->group[i];
        char name[96];
        (void)snprintf(name, sizeof name, "%s, %s, %d rows: rankfit", group->family,
                       peak_metric_name(group->metric), group->count);
        print_error_row(name, &group->own, &table);
        print_error_row("  rules", &group->engine, &table);
    }
    if (peaks->group_count <= 1) {
        print_error_row("rankfit", &peaks->own, &table);
        print_error_row(rules_name(peaks), &peaks->with_rules, &table);
    }
    if (peaks->with_peak > 0 || peaks->within > 0)
        (void)fputc('\n', out);
    if (peaks->with_peak > 0)
        table_print(&table, "errors", out);
    table_done(&table);
    if (peaks->within > 0)
        (void)fprintf(out, "%*s%s within %.1f %%: %s\n", TEXT_MARGIN, "", rules_name(peaks),
                      100 * peaks->within, peaks->hold ? "holds" : "does not hold");
}

static void print_readings(const struct peaks *peaks, FILE *out)
{
    const char *label = "reading";
    for (int i = 0; i < peaks->count; i++) {
        char line[1024];
        if (!peaks->run[i].reading)
            continue;
        (void)snprintf(line, sizeof line, "%s: %s", peaks->run[i].name, peaks->run[i].reading);
        (void)fputs(label[0] ? "\n" : "", out);
        text_wrap(label, line, 2, out);
        label = "";
    }
}

static void print_left_out(const struct peaks *peaks, FILE *out)
{
    for (int i = 0; i < peaks->left_out_count; i++) {
        char line[1024];
        (void)snprintf(line, sizeof line, "%s: %s", peaks->left_out[i].rows,
                       peaks->left_out[i].because);
        text_wrap(i == 0 ? "without" : "", line, 2, out);
    }
}

void report_peaks_text(const struct peaks *peaks, FILE *out)
{
    text_wrap("source", peaks->source, 0, out);
    print_runs(peaks, out);
    print_ran_out(peaks, out);
    print_families(peaks, out);
    print_errors(peaks, out);
    print_readings(peaks, out);
    (void)fputc('\n', out);
    print_left_out(peaks, out);
}

static struct json *saved_json(const struct saved *saved)
{
    struct json *ret = json_list();
    for (int i = 0; i < saved->count; i++) {
        struct json *entry = json_map();
        json_put_text(entry, "name", saved->item[i].name);
        json_put_u64(entry, "bytes", saved->item[i].bytes);
        json_put_text(entry, "mechanism", saved->item[i].mechanism);
        json_append(ret, entry);
    }
    return ret;
}

static struct json *run_json(const struct peak_run *run)
{
    double own = (double)run->own_bytes, engine = (double)run->engine_bytes;
    struct json *ret = json_map();
    json_put_text(ret, "name", run->name);
    json_put_text(ret, "source", run->source);
    json_put_text(ret, "engine", run->engine->name);
    json_put_text(ret, "metric", peak_metric_name(run->metric));
    json_put_bool(ret, "ran_out", run->ran_out);
    json_put_number(ret, "measured_bytes", run->measured_bytes);
    if (run->reading)
        json_put_text(ret, "reading", run->reading);
    json_put_u64(ret, "arena_bytes", run->own_bytes);
    json_put_u64(ret, "engine_bytes", run->engine_bytes);
    json_put_u64(ret, "device_bytes", run->device_bytes);
    if (!run->ran_out) {
        json_put_number(ret, "error", peak_error(own, run->measured_bytes));
        json_put_number(ret, "engine_error", peak_error(engine, run->measured_bytes));
    }
    json_put(ret, "adjustments", saved_json(&run->saved));
    return ret;
}

static struct json *errors_json(const struct peak_errors *errors)
{
    struct json *ret = json_map();
    json_put_number(ret, "median", errors->median);
    json_put_number(ret, "least", errors->least);
    json_put_number(ret, "most", errors->most);
    json_put_number(ret, "mean_absolute", errors->mean_absolute);
    return ret;
}

static struct json *groups_json(const struct peaks *peaks)
{
    struct json *ret = json_list();
    for (int i = 0; i < peaks->group_count; i++) {
        const struct peak_group *group = &peaks->group[i];
        struct json *one = json_map();
        json_put_text(one, "engine", group->family);
        json_put_text(one, "metric", peak_metric_name(group->metric));
        json_put_int(one, "rows", group->count);
        json_put(one, "errors", errors_json(&group->own));
        json_put(one, "engine_errors", errors_json(&group->engine));
        json_append(ret, one);
    }
    return ret;
}

void peaks_add_json(const struct peaks *peaks, struct json *set)
{
    struct json *runs = json_list(), *left_out = json_list();
    for (int i = 0; i < peaks->count; i++)
        json_append(runs, run_json(&peaks->run[i]));
    for (int i = 0; i < peaks->left_out_count; i++) {
        struct json *entry = json_map();
        json_put_text(entry, "rows", peaks->left_out[i].rows);
        json_put_text(entry, "because", peaks->left_out[i].because);
        json_append(left_out, entry);
    }
    json_put_text(set, "source", peaks->source);
    json_put_text(set, "engine", peaks->engine);
    json_put(set, "runs", runs);
    if (peaks->with_peak > 0) {
        json_put(set, "errors", errors_json(&peaks->own));
        json_put(set, "engine_errors", errors_json(&peaks->with_rules));
    }
    json_put(set, "groups", groups_json(peaks));
    json_put(set, "left_out", left_out);
}
