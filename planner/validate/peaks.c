#include "planner/validate/peaks.h"

#include "base/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double giga = 1e9, gibi = 1073741824.0;
static const double most_units = 1e7;

static const char *required_text(const struct node *map, const char *key, struct diag_list *reterr)
{
    const char *ret = NULL;
    if (node_text(map, key, &ret, reterr) == 0)
        diag_error(reterr, map->at, "'%s' is missing", key);
    return ret;
}

/* GB or GiB, said for the whole file. */
static double read_unit(const struct node *root, struct diag_list *reterr)
{
    const char *unit = required_text(root, "unit", reterr);
    if (unit && strcmp(unit, "GB") != 0 && strcmp(unit, "GiB") != 0) {
        diag_error(reterr, node_get(root, "unit")->at, "unit is '%s'", unit);
        diag_hint(reterr, "unit takes GB or GiB");
    }
    return unit && strcmp(unit, "GiB") == 0 ? gibi : giga;
}

static const char *const metrics[PEAK_METRIC_COUNT] = { "allocated", "active", "reserved" };

const char *peak_metric_name(enum peak_metric metric)
{
    return metrics[metric];
}

static void read_metric(const struct node *node, struct peak_run *ret, struct diag_list *reterr)
{
    const char *text = NULL;
    if (node_text(node, "metric", &text, reterr) <= 0)
        return;
    for (int i = 0; i < PEAK_METRIC_COUNT; i++) {
        ret->metric = (enum peak_metric)i;
        if (strcmp(text, metrics[i]) == 0)
            return;
    }
    diag_error(reterr, node_get(node, "metric")->at, "metric is '%s'", text);
    diag_hint(reterr, "metric takes allocated, active or reserved");
}

/* The engine that a run says, or else the file's. */
static void read_engine(const struct node *node, const struct held_engine *of_file,
                        struct peak_run *ret, struct diag_list *reterr)
{
    const char *text = NULL;
    ret->engine = of_file;
    if (node_text(node, "engine", &text, reterr) > 0)
        ret->engine = held_engine_find(text, node_get(node, "engine")->at, reterr);
}

/* A peak, or what the device has where a run ended without memory. */
static void read_peak(const struct node *node, double unit, struct peak_run *ret,
                      struct diag_list *reterr)
{
    double size = 0;
    ret->ran_out = node_get(node, "ran_out") != NULL;
    if (ret->ran_out && node_get(node, "peak"))
        diag_error(reterr, node->at, "a run that ran out of memory has no 'peak'");
    const char *key = ret->ran_out ? "ran_out" : "peak";
    if (node_real(node, key, 1e-3, most_units, &size, reterr) == 0)
        diag_error(reterr, node->at, "'%s' is missing", key);
    ret->measured_bytes = size * unit;
}

static void read_run(const struct node *node, const struct held_engine *of_file, double unit,
                     struct peaks *ret, struct diag_list *reterr)
{
    static const char *const known[] = { "name",   "question", "peak",    "source",
                                         "engine", "metric",   "reading", "ran_out" };
    if (ret->count == PEAKS_MAX || node->kind != NODE_MAP) {
        diag_error(reterr, node->at, "a run is a map, of at most %d", PEAKS_MAX);
        return;
    }
    struct peak_run *run = &ret->run[ret->count++];
    (void)node_check_keys(node, known, sizeof known / sizeof *known, reterr);
    run->name = required_text(node, "name", reterr);
    run->source = required_text(node, "source", reterr);
    (void)node_text(node, "reading", &run->reading, reterr);
    read_metric(node, run, reterr);
    read_engine(node, of_file, run, reterr);
    if (node_map(node, "question", &run->question, reterr) == 0)
        diag_error(reterr, node->at, "'question' is missing");
    read_peak(node, unit, run, reterr);
}

static void read_left_out(const struct node *node, struct peaks *ret, struct diag_list *reterr)
{
    static const char *const known[] = { "rows", "because" };
    if (ret->left_out_count == PEAKS_LEFT_OUT_MAX || node->kind != NODE_MAP) {
        diag_error(reterr, node->at, "what is left out is a map, of at most %d",
                   PEAKS_LEFT_OUT_MAX);
        return;
    }
    struct left_out *out = &ret->left_out[ret->left_out_count++];
    (void)node_check_keys(node, known, sizeof known / sizeof *known, reterr);
    out->rows = required_text(node, "rows", reterr);
    out->because = required_text(node, "because", reterr);
}

int peaks_read(const struct node *root, struct peaks *ret, struct diag_list *reterr)
{
    static const char *const known[] = { "schema", "title",  "source", "engine",
                                         "unit",   "within", "runs",   "left_out" };
    const struct node *runs = NULL, *left_out = NULL;
    int before = reterr->errors;
    memset(ret, 0, sizeof *ret);
    (void)node_check_keys(root, known, sizeof known / sizeof *known, reterr);
    ret->source = required_text(root, "source", reterr);
    ret->engine = required_text(root, "engine", reterr);
    const struct held_engine *engine =
        ret->engine ? held_engine_find(ret->engine, node_get(root, "engine")->at, reterr) : NULL;
    double unit = read_unit(root, reterr);
    (void)node_real(root, "within", 0, 10, &ret->within, reterr);
    if (node_list(root, "runs", &runs, reterr) == 0 || (runs && !runs->child))
        diag_error(reterr, root->at, "'runs' is missing");
    (void)node_list(root, "left_out", &left_out, reterr);
    for (const struct node *node = runs ? runs->child : NULL; node; node = node->next)
        read_run(node, engine, unit, ret, reterr);
    for (const struct node *node = left_out ? left_out->child : NULL; node; node = node->next)
        read_left_out(node, ret, reterr);
    return reterr->errors > before ? -1 : 0;
}

double peak_error(double predicted_bytes, double measured_bytes)
{
    return predicted_bytes / measured_bytes - 1;
}

/* What torch's allocator would have counted, on the rank where it is most. */
static int judge_run(struct peak_run *run, struct diag_list *reterr)
{
    const struct budget *budget = &run->prediction->budget;
    const struct held_engine *engine = run->engine;
    for (int i = 0; i < budget->count; i++) {
        const struct rank_budget *rank = &budget->groups[i];
        struct saved saved;
        if (engine->hold(run->prediction, rank, run->question->at, &saved, reterr) != 0)
            return -1;
        uint64_t bytes = engine->whole ? saved.bytes : add_sat(rank->arena_bytes, saved.bytes);
        if (rank->arena_bytes > run->own_bytes)
            run->own_bytes = rank->arena_bytes;
        if (bytes <= run->engine_bytes)
            continue;
        run->engine_bytes = bytes;
        run->saved = saved;
    }
    run->device_bytes = prediction_worst(run->prediction)->peak_bytes;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct peak_errors errors_of(double *errors, int count)
{
    struct peak_errors ret = { 0 };
    if (count == 0)
        return ret;
    qsort(errors, (size_t)count, sizeof *errors, by_value);
    for (int i = 0; i < count; i++)
        ret.mean_absolute += fabs(errors[i]) / count;
    ret.least = errors[0];
    ret.most = errors[count - 1];
    ret.median = (errors[(count - 1) / 2] + errors[count / 2]) / 2;
    return ret;
}

static bool same_group(const struct peak_run *run, const struct peak_group *group)
{
    return !run->ran_out && run->metric == group->metric &&
           strcmp(run->engine->family, group->family) == 0;
}

static void group_errors(const struct peaks *peaks, struct peak_group *ret)
{
    double own[PEAKS_MAX], engine[PEAKS_MAX];
    for (int i = 0; i < peaks->count; i++) {
        const struct peak_run *run = &peaks->run[i];
        if (!same_group(run, ret))
            continue;
        own[ret->count] = peak_error((double)run->own_bytes, run->measured_bytes);
        engine[ret->count++] = peak_error((double)run->engine_bytes, run->measured_bytes);
    }
    ret->own = errors_of(own, ret->count);
    ret->engine = errors_of(engine, ret->count);
}

/* Groups in the order of their first runs. */
static void make_groups(struct peaks *peaks)
{
    for (int i = 0; i < peaks->count; i++) {
        const struct peak_run *run = &peaks->run[i];
        int known = 0;
        if (run->ran_out)
            continue;
        while (known < peaks->group_count && !same_group(run, &peaks->group[known]))
            known++;
        if (known < peaks->group_count || known == PEAKS_GROUPS_MAX)
            continue;
        struct peak_group *group = &peaks->group[peaks->group_count++];
        *group = (struct peak_group){ .family = run->engine->family, .metric = run->metric };
        group_errors(peaks, group);
    }
}

/* Where memory ran out the prediction must not lie below what the device has by more than that. */
static bool stays_within(const struct peak_run *run, double within)
{
    double error = peak_error((double)run->engine_bytes, run->measured_bytes);
    return run->ran_out ? error >= -within : fabs(error) <= within;
}

int peaks_judge(struct peaks *peaks, struct diag_list *reterr)
{
    double own[PEAKS_MAX], engine[PEAKS_MAX];
    int before = reterr->errors;
    peaks->hold = true;
    for (int i = 0; i < peaks->count; i++) {
        struct peak_run *run = &peaks->run[i];
        if (judge_run(run, reterr) != 0)
            continue;
        peaks->hold = peaks->hold && (peaks->within <= 0 || stays_within(run, peaks->within));
        if (run->ran_out)
            continue;
        int n = peaks->with_peak++;
        own[n] = peak_error((double)run->own_bytes, run->measured_bytes);
        engine[n] = peak_error((double)run->engine_bytes, run->measured_bytes);
    }
    peaks->own = errors_of(own, peaks->with_peak);
    peaks->with_rules = errors_of(engine, peaks->with_peak);
    make_groups(peaks);
    return reterr->errors > before ? -1 : 0;
}
