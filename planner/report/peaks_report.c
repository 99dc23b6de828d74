#include "planner/report/peaks_report.h"

#include "planner/report/table.h"

#include <string.h>

static const double giga = 1e9;

static void cell_error(struct table *table, double error)
{
    table_cell(table, "%+.1f %%", 100 * error);
}

static void print_runs(const struct peaks *peaks, FILE *out)
{
    struct table table = { .columns = 7, .left = 1 };
    table_cell(&table, "GB");
    table_cell(&table, "measured");
    table_cell(&table, "rankfit");
    table_cell(&table, "off");
    table_cell(&table, "%s", peaks->engine);
    table_cell(&table, "off");
    table_cell(&table, "device");
    for (int i = 0; i < peaks->count; i++) {
        const struct peak_run *run = &peaks->run[i];
        double own = (double)run->own_bytes, engine = (double)run->engine_bytes;
        table_cell(&table, "%s", run->name);
        table_cell(&table, "%.2f", run->measured_bytes / giga);
        table_cell(&table, "%.2f", own / giga);
        cell_error(&table, peak_error(own, run->measured_bytes));
        table_cell(&table, "%.2f", engine / giga);
        cell_error(&table, peak_error(engine, run->measured_bytes));
        table_cell(&table, "%.2f", (double)run->device_bytes / giga);
    }
    (void)fputc('\n', out);
    table_print(&table, "peak", out);
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

/* Names of all rows, as they come first. */
static int saved_names(const struct peaks *peaks, const struct saved_item **ret)
{
    int count = 0;
    for (int i = 0; i < peaks->count; i++)
        for (int j = 0; j < peaks->run[i].saved.count; j++) {
            const struct saved_item *item = &peaks->run[i].saved.item[j];
            int known = 0;
            while (known < count && strcmp(ret[known]->name, item->name) != 0)
                known++;
            if (known == count && count < SAVED_ITEMS_MAX)
                ret[count++] = item;
        }
    return count;
}

static void print_saved(const struct peaks *peaks, FILE *out)
{
    const struct saved_item *names[SAVED_ITEMS_MAX];
    int count = saved_names(peaks, names);
    struct table table = { .columns = count + 1, .left = 1 };
    table_cell(&table, "kept beside, GB");
    for (int i = 0; i < count; i++)
        table_cell(&table, "%s", names[i]->name);
    for (int i = 0; i < peaks->count; i++) {
        table_cell(&table, "%s", peaks->run[i].name);
        for (int j = 0; j < count; j++) {
            const struct saved_item *item = find_saved(&peaks->run[i].saved, names[j]->name);
            if (item)
                table_cell(&table, "%.3f", (double)item->bytes / giga);
            else
                table_cell(&table, "%s", "");
        }
    }
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

static void print_errors(const struct peaks *peaks, FILE *out)
{
    struct table table = { .columns = 5, .left = 1 };
    const struct peak_errors *rows[] = { &peaks->own, &peaks->with_saved };
    const char *names[] = { "rankfit", peaks->engine };
    table_cell(&table, "%d rows", peaks->count);
    table_cell(&table, "median");
    table_cell(&table, "least");
    table_cell(&table, "most");
    table_cell(&table, "mean of sizes");
    for (int i = 0; i < 2; i++) {
        table_cell(&table, "%s", names[i]);
        cell_error(&table, rows[i]->median);
        cell_error(&table, rows[i]->least);
        cell_error(&table, rows[i]->most);
        table_cell(&table, "%.1f %%", 100 * rows[i]->mean_absolute);
    }
    (void)fputc('\n', out);
    table_print(&table, "errors", out);
    table_done(&table);
    if (peaks->within > 0)
        (void)fprintf(out, "%*s%s within %.1f %%: %s\n", TEXT_MARGIN, "", peaks->engine,
                      100 * peaks->within, peaks->hold ? "holds" : "does not hold");
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
    print_saved(peaks, out);
    print_errors(peaks, out);
    (void)fputc('\n', out);
    print_left_out(peaks, out);
}

static json_t *saved_json(const struct saved *saved)
{
    json_t *ret = json_array();
    for (int i = 0; i < saved->count; i++)
        json_array_append_new(ret, json_pack("{s:s, s:I, s:s}", "name", saved->item[i].name,
                                             "bytes", (json_int_t)saved->item[i].bytes, "mechanism",
                                             saved->item[i].mechanism));
    return ret;
}

static json_t *run_json(const struct peak_run *run)
{
    double own = (double)run->own_bytes, engine = (double)run->engine_bytes;
    json_t *ret = json_pack("{s:s, s:s, s:f}", "name", run->name, "source", run->source,
                            "measured_bytes", run->measured_bytes);
    json_object_set_new(ret, "arena_bytes", json_integer((json_int_t)run->own_bytes));
    json_object_set_new(ret, "engine_bytes", json_integer((json_int_t)run->engine_bytes));
    json_object_set_new(ret, "device_bytes", json_integer((json_int_t)run->device_bytes));
    json_object_set_new(ret, "error", json_real(peak_error(own, run->measured_bytes)));
    json_object_set_new(ret, "engine_error", json_real(peak_error(engine, run->measured_bytes)));
    json_object_set_new(ret, "adjustments", saved_json(&run->saved));
    return ret;
}

static json_t *errors_json(const struct peak_errors *errors)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "median", errors->median, "least", errors->least,
                     "most", errors->most, "mean_absolute", errors->mean_absolute);
}

void peaks_add_json(const struct peaks *peaks, json_t *set)
{
    json_t *runs = json_array(), *left_out = json_array();
    for (int i = 0; i < peaks->count; i++)
        json_array_append_new(runs, run_json(&peaks->run[i]));
    for (int i = 0; i < peaks->left_out_count; i++)
        json_array_append_new(left_out, json_pack("{s:s, s:s}", "rows", peaks->left_out[i].rows,
                                                  "because", peaks->left_out[i].because));
    json_object_set_new(set, "source", json_string(peaks->source));
    json_object_set_new(set, "engine", json_string(peaks->engine));
    json_object_set_new(set, "runs", runs);
    json_object_set_new(set, "errors", errors_json(&peaks->own));
    json_object_set_new(set, "engine_errors", errors_json(&peaks->with_saved));
    json_object_set_new(set, "left_out", left_out);
}
