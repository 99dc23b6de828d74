#include "planner/validate/stages.h"

#include "base/text.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const double giga = 1e9, gibi = 1073741824.0;
static const double most_bytes = 1e16, most_tflops = 1e6;

/* What may be open, and which values it takes. */
struct open_kind {
    const char *name;
    const char *const *values;
    int count;
    size_t offset; /* in struct assumptions, an int */
};
static const char *const unit_values[FIGURE_UNIT_COUNT] = { "GB", "GiB" };
static const char *const metric_values[FIGURE_METRIC_COUNT] = { "allocated", "device" };
static const char *const rank_values[FIGURE_RANK_COUNT] = { "first", "fullest" };
static const char *const shard_values[SHARD_WEIGHTS_COUNT] = { "fp32", "bf16_beside_master" };
static const char *const kept_values[UNITS_KEPT_COUNT] = { "several_stages", "never" };
static const char *const root_values[ROOT_UNIT_COUNT] = { "kept", "given_back" };

#define OPEN(name, values, count, member)                                                          \
    {                                                                                              \
        name, values, count, offsetof(struct assumptions, member)                                  \
    }
static const struct open_kind open_kinds[] = {
    OPEN("unit", unit_values, FIGURE_UNIT_COUNT, unit),
    OPEN("metric", metric_values, FIGURE_METRIC_COUNT, metric),
    OPEN("rank", rank_values, FIGURE_RANK_COUNT, rank),
    OPEN("fsdp2_shards", shard_values, SHARD_WEIGHTS_COUNT, shards),
    OPEN("fsdp2_units_kept", kept_values, UNITS_KEPT_COUNT, units),
    OPEN("fsdp2_root_unit", root_values, ROOT_UNIT_COUNT, root),
    OPEN("fsdp2_unit_gradients", dtype_names, DTYPE_COUNT, unit_gradients),
};
enum { OPEN_KINDS = sizeof open_kinds / sizeof *open_kinds };
_Static_assert(sizeof open_kinds / sizeof *open_kinds <= STAGE_OPEN_MAX, "room for each");
_Static_assert(sizeof(enum figure_unit) == sizeof(int) && sizeof(enum dtype) == sizeof(int),
               "assumptions are written as ints");

static const char *required_text(const struct node *map, const char *key, struct diag_list *reterr)
{
    const char *ret = NULL;
    if (node_text(map, key, &ret, reterr) == 0)
        diag_error(reterr, map->at, "'%s' is missing", key);
    return ret;
}

static int find_value(const struct open_kind *kind, const char *text)
{
    for (int i = 0; i < kind->count; i++)
        if (strcmp(kind->values[i], text) == 0)
            return i;
    return -1;
}

static void bad_value(const struct open_kind *kind, const struct node *node, const char *value,
                      struct diag_list *reterr)
{
    char list[160] = "";
    size_t used = 0;
    for (int i = 0; i < kind->count; i++)
        text_append(list, sizeof list, &used, "%s%s", i ? " or " : "", kind->values[i]);
    diag_error(reterr, node->at, "%s is '%s'", kind->name, value);
    diag_hint(reterr, "%s takes %s", kind->name, list);
}

/* One assumption: {value, because}. */
static void read_open(const struct node *map, const struct open_kind *kind, struct stages *ret,
                      struct diag_list *reterr)
{
    static const char *const known[] = { "value", "because" };
    const struct node *node = NULL;
    if (node_map(map, kind->name, &node, reterr) <= 0) {
        diag_error(reterr, map->at, "'%s' is missing among the assumptions", kind->name);
        return;
    }
    struct open_choice *open = &ret->open[ret->open_count++];
    (void)node_check_keys(node, known, sizeof known / sizeof *known, reterr);
    open->name = kind->name;
    open->value = required_text(node, "value", reterr);
    open->because = required_text(node, "because", reterr);
    int value = open->value ? find_value(kind, open->value) : -1;
    if (open->value && value < 0)
        bad_value(kind, node, open->value, reterr);
    memcpy((char *)&ret->assumptions + kind->offset, &value, sizeof value);
}

static void read_assumptions(const struct node *root, struct stages *ret, struct diag_list *reterr)
{
    const char *known[OPEN_KINDS];
    const struct node *map = NULL;
    if (node_map(root, "assumptions", &map, reterr) <= 0) {
        diag_error(reterr, root->at, "'assumptions' is missing");
        return;
    }
    for (size_t i = 0; i < OPEN_KINDS; i++)
        known[i] = open_kinds[i].name;
    (void)node_check_keys(map, known, OPEN_KINDS, reterr);
    for (size_t i = 0; i < OPEN_KINDS; i++)
        read_open(map, &open_kinds[i], ret, reterr);
}

/* Both ways in which delta nets may take a sequence, and what speaks for each. */
static void read_readings(const struct node *root, struct stages *ret, struct diag_list *reterr)
{
    static const char *const known[DELTA_SHARE_COUNT] = { "shared", "whole" };
    const struct node *map = NULL;
    if (node_map(root, "readings", &map, reterr) <= 0) {
        diag_error(reterr, root->at, "'readings' is missing");
        return;
    }
    (void)node_check_keys(map, known, DELTA_SHARE_COUNT, reterr);
    for (int i = 0; i < DELTA_SHARE_COUNT; i++)
        ret->reading[i] = required_text(map, known[i], reterr);
}

/* KEY, or KEY and KEY_to: a range. */
static void read_range(const struct node *map, const char *key, double factor, double most,
                       struct measured_range *ret, struct diag_list *reterr)
{
    char to[40];
    double low = 0, high = 0;
    (void)snprintf(to, sizeof to, "%s_to", key);
    if (node_real(map, key, 0, most, &low, reterr) == 0)
        diag_error(reterr, map->at, "'%s' is missing", key);
    high = low;
    (void)node_real(map, to, low, most, &high, reterr);
    *ret = (struct measured_range){ low * factor, high * factor };
}

static double unit_bytes(const struct stages *stages)
{
    return stages->assumptions.unit == FIGURE_GIB ? gibi : giga;
}

static void read_run(const struct node *node, struct stages *ret, struct diag_list *reterr)
{
    static const char *const known[] = { "name",   "engine",    "question", "peak", "peak_to",
                                         "tflops", "tflops_to", "source",   "note" };
    if (ret->run_count == STAGES_MAX) {
        diag_error(reterr, node->at, "more than %d runs", STAGES_MAX);
        return;
    }
    if (node->kind != NODE_MAP) {
        diag_error(reterr, node->at, "a run is a map");
        return;
    }
    struct stage_run *run = &ret->run[ret->run_count++];
    (void)node_check_keys(node, known, sizeof known / sizeof *known, reterr);
    run->name = required_text(node, "name", reterr);
    run->engine = required_text(node, "engine", reterr);
    run->source = required_text(node, "source", reterr);
    (void)node_text(node, "note", &run->note, reterr);
    if (node_map(node, "question", &run->question, reterr) == 0)
        diag_error(reterr, node->at, "'question' is missing");
    read_range(node, "peak", unit_bytes(ret), most_bytes / unit_bytes(ret), &run->peak_bytes,
               reterr);
    read_range(node, "tflops", 1, most_tflops, &run->tflops, reterr);
}

/* A layer's experts measured alone: optional. */
static void read_experts(const struct node *root, struct stages *ret, struct diag_list *reterr)
{
    static const char *const known[] = { "tokens", "plain", "chunked", "because" };
    struct measured_range plain = { 0 }, chunked = { 0 };
    const struct node *map = NULL;
    int64_t tokens = 0;
    if (node_map(root, "experts_alone", &map, reterr) <= 0)
        return;
    (void)node_check_keys(map, known, sizeof known / sizeof *known, reterr);
    if (node_int(map, "tokens", 1, (int64_t)1 << 40, &tokens, reterr) == 0)
        diag_error(reterr, map->at, "'tokens' is missing");
    double unit = unit_bytes(ret);
    read_range(map, "plain", unit, most_bytes / unit, &plain, reterr);
    read_range(map, "chunked", unit, most_bytes / unit, &chunked, reterr);
    ret->experts_because = required_text(map, "because", reterr);
    ret->assumptions.experts.tokens = (double)tokens;
    ret->assumptions.experts.plain_bytes = plain.low;
    ret->assumptions.experts.chunked_bytes = chunked.low;
}

static int find_run(const struct stages *stages, const struct node *map, const char *key,
                    struct diag_list *reterr)
{
    const char *name = required_text(map, key, reterr);
    for (int i = 0; name && i < stages->run_count; i++)
        if (stages->run[i].name && strcmp(stages->run[i].name, name) == 0)
            return i;
    if (name)
        diag_error(reterr, map->at, "there is no run '%s'", name);
    return -1;
}

static void read_step(const struct node *node, struct stages *ret, struct diag_list *reterr)
{
    static const char *const known[] = { "from", "to", "change", "within" };
    double change = NAN, within = NAN;
    if (ret->step_count == STAGE_STEPS_MAX || node->kind != NODE_MAP) {
        diag_error(reterr, node->at, "a step is a map, of at most %d", STAGE_STEPS_MAX);
        return;
    }
    struct stage_step *step = &ret->step[ret->step_count++];
    (void)node_check_keys(node, known, sizeof known / sizeof *known, reterr);
    step->from = find_run(ret, node, "from", reterr);
    step->to = find_run(ret, node, "to", reterr);
    if (node_real(node, "change", -most_bytes / giga, most_bytes / giga, &change, reterr) == 0)
        diag_error(reterr, node->at, "'change' is missing");
    if (node_real(node, "within", 0, most_bytes / giga, &within, reterr) == 0)
        diag_error(reterr, node->at, "'within' is missing");
    step->measured_bytes = change * unit_bytes(ret);
    step->within_bytes = within * unit_bytes(ret);
}

static void read_list(const struct node *root, const char *key,
                      void (*read)(const struct node *, struct stages *, struct diag_list *),
                      struct stages *ret, struct diag_list *reterr)
{
    const struct node *list = NULL;
    if (node_list(root, key, &list, reterr) == 0)
        diag_error(reterr, root->at, "'%s' is missing", key);
    for (const struct node *node = list ? list->child : NULL; node; node = node->next)
        read(node, ret, reterr);
}

int stages_read(const struct node *root, struct stages *ret, struct diag_list *reterr)
{
    static const char *const known[] = { "schema",   "title",         "source", "assumptions",
                                         "readings", "experts_alone", "runs",   "steps" };
    int before = reterr->errors;
    memset(ret, 0, sizeof *ret);
    (void)node_check_keys(root, known, sizeof known / sizeof *known, reterr);
    ret->source = required_text(root, "source", reterr);
    read_assumptions(root, ret, reterr);
    read_readings(root, ret, reterr);
    read_experts(root, ret, reterr);
    read_list(root, "runs", read_run, ret, reterr);
    read_list(root, "steps", read_step, ret, reterr);
    return reterr->errors > before ? -1 : 0;
}

/* Sign and size, of engine rankfit and of the other engine with delta nets either way. */
static void judge_step(struct stages *stages, struct stage_step *step)
{
    const struct adjusted *from = &stages->run[step->from].adjusted;
    const struct adjusted *to = &stages->run[step->to].adjusted;
    step->own_bytes = (double)to->peak_bytes - (double)from->peak_bytes;
    step->shared_bytes = (double)to->shared_bytes - (double)from->shared_bytes;
    step->whole_bytes = (double)to->whole_bytes - (double)from->whole_bytes;
    double off[] = { step->own_bytes - step->measured_bytes,
                     step->shared_bytes - step->measured_bytes,
                     step->whole_bytes - step->measured_bytes };
    step->holds = signbit(step->own_bytes) == signbit(step->measured_bytes);
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        step->holds = step->holds && fabs(off[i]) <= step->within_bytes;
}

int stages_judge(struct stages *stages, struct diag_list *reterr)
{
    int before = reterr->errors;
    for (int i = 0; i < stages->run_count; i++) {
        struct stage_run *run = &stages->run[i];
        (void)engine_adjust(run->prediction, &stages->assumptions, run->question->at,
                            &run->adjusted, reterr);
    }
    stages->hold = true;
    for (int i = 0; i < stages->step_count; i++) {
        judge_step(stages, &stages->step[i]);
        stages->hold = stages->hold && stages->step[i].holds;
    }
    return reterr->errors > before ? -1 : 0;
}

double range_distance(const struct measured_range *range, double value)
{
    return value < range->low ? value - range->low : value > range->high ? value - range->high : 0;
}
