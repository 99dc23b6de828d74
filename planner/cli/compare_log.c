/* compare_log.c - a plan against the log of another engine: the three figures of its peak, its step
 * time, the allocation that failed. */
#include "planner/cli/compare_log.h"

#include "base/text.h"
#include "base/units.h"
#include "planner/cli/command.h"
#include "planner/cli/output.h"
#include "planner/compare/log.h"
#include "planner/report/table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_BYTES_MAX = 64 * 1024 * 1024, LINE_BYTES = 512 };

struct log_comparison {
    struct log_figures figures;
    uint64_t predicted[LOG_METRICS];
    double error[LOG_METRICS]; /* (predicted - measured) / measured */
    double seconds, predicted_seconds, time_error;
    int item; /* nearest to the allocation that failed; ITEM_COUNT: none */
    uint64_t item_bytes;
    bool within;
};

char *compare_log_load(const char *path, size_t *ret_bytes, struct diag_list *reterr)
{
    FILE *in = fopen(path, "re");
    if (!in) {
        diag_error(reterr, (struct pos){ path, 0, 0 }, "cannot read: %s", strerror(errno));
        return NULL;
    }
    char *text = malloc(LOG_BYTES_MAX + 1);
    size_t bytes = text ? fread(text, 1, LOG_BYTES_MAX + 1, in) : 0;
    bool failed = ferror(in) != 0;
    (void)fclose(in);
    if (text && !failed && bytes <= LOG_BYTES_MAX) {
        *ret_bytes = bytes;
        return text;
    }
    if (!text)
        diag_no_memory(reterr);
    else
        diag_error(reterr, (struct pos){ path, 0, 0 },
                   failed ? "cannot read the file" : "the log has more than 64 MiB");
    free(text);
    return NULL;
}

bool compare_log_is_document(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t'))
        at++;
    return at < bytes &&
           (text[at] == '{' || (at + 7 <= bytes && memcmp(text + at, "schema:", 7) == 0));
}

/* A log that names another model or world is refused. */
static int check_run(const char *path, const struct prediction *prediction,
                     const struct log_figures *figures, struct diag_list *reterr)
{
    const struct plan *plan = &prediction->plan;
    const struct model_counts *counts = &prediction->sizes.counts;
    const struct {
        const char *what;
        uint64_t log, plan;
        double share;
    } facts[] = {
        { "ranks", (uint64_t)figures->world, (uint64_t)plan->gpus, 0 },
        { "layers", (uint64_t)figures->layers, (uint64_t)plan->model.layers, 0 },
        { "of hidden width", (uint64_t)figures->hidden, (uint64_t)plan->model.hidden, 0 },
        { "parameters", figures->params, counts->trained, 0.02 },
    };
    int before = reterr->errors;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        double difference = fabs((double)facts[i].log - (double)facts[i].plan);
        if (facts[i].log == 0 || difference <= facts[i].share * (double)facts[i].plan)
            continue;
        diag_error(reterr, (struct pos){ path, 0, 0 },
                   "the log is of another run: %llu %s, the plan has %llu",
                   (unsigned long long)facts[i].log, facts[i].what,
                   (unsigned long long)facts[i].plan);
        diag_hint(reterr, "rankfit plan for the run that the log is of");
    }
    return reterr->errors > before ? -1 : 0;
}

/* The item whose largest size on the worst rank is nearest to the allocation that failed, within a
 * tenth of it. */
static void find_item(const struct prediction *prediction, struct log_comparison *ret)
{
    const struct rank_budget *worst = prediction_worst(prediction);
    double least = 0.1 * (double)ret->figures.request_bytes;
    ret->item = ITEM_COUNT;
    for (int item = 0; item < ITEM_COUNT; item++) {
        double difference =
            fabs((double)worst->item_max_bytes[item] - (double)ret->figures.request_bytes);
        if (ret->figures.request_bytes == 0 || difference > least)
            continue;
        least = difference;
        ret->item = item;
        ret->item_bytes = worst->item_max_bytes[item];
    }
}

static void compute(const struct prediction *prediction, const struct tolerances *tolerances,
                    struct log_comparison *ret)
{
    const struct rank_budget *worst = prediction_worst(prediction);
    const struct log_figures *f = &ret->figures;
    ret->predicted[LOG_ALLOCATED] = worst->arena_bytes;
    ret->predicted[LOG_RESERVED] = worst->arena_bytes + worst->item_bytes[ITEM_SLACK];
    ret->predicted[LOG_DEVICE] = worst->peak_bytes;
    ret->within = true;
    for (int m = 0; m < LOG_METRICS; m++) {
        if (f->bytes[m] == 0)
            continue;
        ret->error[m] = ((double)ret->predicted[m] - (double)f->bytes[m]) / (double)f->bytes[m];
        ret->within = ret->within && fabs(ret->error[m]) <= tolerances->device;
    }
    /* A run out of memory needed more than it had. */
    if (f->out_of_memory)
        ret->within = prediction->verdict == VERDICT_DOES_NOT_FIT;
    ret->seconds = log_seconds(f);
    ret->predicted_seconds = prediction->time.seconds;
    if (ret->seconds > 0)
        ret->time_error = (ret->predicted_seconds - ret->seconds) / ret->seconds;
    if (ret->seconds > 0 && tolerances->time >= 0)
        ret->within = ret->within && fabs(ret->time_error) <= tolerances->time;
    find_item(prediction, ret);
}

static void print_failure(const struct prediction *prediction, const struct log_comparison *c,
                          FILE *out)
{
    char request[32], size[32], line[LINE_BYTES];
    size_t used = 0;
    const struct log_figures *f = &c->figures;
    if (!f->out_of_memory)
        return;
    units_format_gb(request, sizeof request, f->request_bytes, 2);
    line[0] = '\0';
    text_append(line, sizeof line, &used, "line %d: an allocation of %s failed",
                f->out_of_memory_line, request);
    if (f->bytes[LOG_ALLOCATED] > 0)
        text_append(
            line, sizeof line, &used, ", so that the run needs at least %s of live tensors",
            units_format_gb(size, sizeof size, f->bytes[LOG_ALLOCATED] + f->request_bytes, 2));
    text_append(line, sizeof line, &used, "; the plan says %s", verdict_names[prediction->verdict]);
    text_wrap("failed", line, 4, out);
    if (c->item == ITEM_COUNT)
        text_wrap("", "no item of the plan is of that size", 4, out);
    else {
        (void)snprintf(line, sizeof line, "item %s of the plan is of that size: %s",
                       item_infos[c->item].name,
                       units_format_gb(size, sizeof size, c->item_bytes, 2));
        text_wrap("", line, 4, out);
    }
}

static void print(const struct prediction *prediction, const struct log_comparison *c, FILE *out)
{
    struct table table = { .columns = 5, .left = 1 };
    char predicted[32], measured[32];
    const struct log_figures *f = &c->figures;
    report_head_text(prediction, out);
    (void)fputs(c->within ? "\nwithin tolerance\n" : "\nout of tolerance\n", out);
    print_failure(prediction, c, out);
    table_cell(&table, "%s", "");
    table_cell(&table, "predicted");
    table_cell(&table, "measured");
    table_cell(&table, "error");
    table_cell(&table, "line");
    for (int m = 0; m < LOG_METRICS; m++) {
        if (f->bytes[m] == 0)
            continue;
        table_cell(&table, "%s", log_metric_names[m]);
        table_cell(&table, "%s", units_format_gb(predicted, sizeof predicted, c->predicted[m], 2));
        table_cell(&table, "%s", units_format_gb(measured, sizeof measured, f->bytes[m], 2));
        table_cell(&table, "%+.1f %%", 100 * c->error[m]);
        table_cell(&table, "%d", f->lines[m]);
    }
    if (c->seconds > 0) {
        table_cell(&table, "step time");
        table_cell(&table, "%s",
                   units_format_seconds(predicted, sizeof predicted, c->predicted_seconds));
        table_cell(&table, "%s", units_format_seconds(measured, sizeof measured, c->seconds));
        table_cell(&table, "%+.1f %%", 100 * c->time_error);
        table_cell(&table, "%s", "");
    }
    table_print(&table, "figure", out);
    table_done(&table);
    (void)fprintf(out,
                  "basis   the prediction is of engine %s; the log may be of another engine, which "
                  "stores more\n",
                  prediction->plan.engine);
}

static struct json *document_of(const struct log_comparison *c)
{
    struct json *ret = json_document("rankfit.log_comparison/1"), *figures = json_list();
    for (int m = 0; m < LOG_METRICS; m++) {
        struct json *figure = json_map();
        json_put_text(figure, "metric", log_metric_names[m]);
        json_put_u64(figure, "predicted", c->predicted[m]);
        if (c->figures.bytes[m] > 0) {
            json_put_u64(figure, "measured", c->figures.bytes[m]);
            json_put_number(figure, "error", c->error[m]);
            json_put_int(figure, "line", c->figures.lines[m]);
        }
        json_append(figures, figure);
    }
    json_put(ret, "figures", figures);
    json_put_bool(ret, "out_of_memory", c->figures.out_of_memory);
    if (c->figures.out_of_memory) {
        json_put_u64(ret, "request_bytes", c->figures.request_bytes);
        json_put_text(ret, "item", c->item == ITEM_COUNT ? NULL : item_infos[c->item].name);
    }
    if (c->seconds > 0) {
        json_put_number(ret, "step_seconds", c->seconds);
        json_put_number(ret, "predicted_step_seconds", c->predicted_seconds);
    }
    json_put_text(ret, "verdict", c->within ? "within" : "out_of_tolerance");
    return ret;
}

int compare_log(const struct options *options, const struct subject *subject, const char *text,
                size_t bytes, const struct tolerances *tolerances, struct diag_list *reterr)
{
    const char *path = options->argument[1];
    struct log_comparison *comparison = calloc(1, sizeof *comparison);
    int status = EXIT_QUESTION;
    if (!comparison) {
        diag_no_memory(reterr);
        return EXIT_SYSTEM;
    }
    if (log_read(path, text, bytes, &comparison->figures, reterr) == 0 &&
        check_run(path, &subject->prediction, &comparison->figures, reterr) == 0) {
        compute(&subject->prediction, tolerances, comparison);
        status = comparison->within ? EXIT_ANSWERED : EXIT_NO;
        struct json *document = document_of(comparison);
        if (output_file(options, document, reterr) != 0)
            status = EXIT_SYSTEM;
        if (!options_has(options, OPTION_JSON))
            print(&subject->prediction, comparison, stdout);
        else if (output_json(document, reterr) != 0)
            status = EXIT_SYSTEM;
        json_free(document);
    }
    free(comparison);
    return status;
}
