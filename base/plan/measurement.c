/* measurement.c - measurement files: writing and reading what a run measured. */
#include "base/plan/measurement.h"
#include "base/text.h"
#include "base/tree.h"

#include <string.h>

static const char measurement_schema[] = "rankfit.measurement/1";

const char *const phase_time_names[PHASE_TIME_COUNT] = {
    [PHASE_TIME_FORWARD] = "forward",     [PHASE_TIME_LOSS] = "loss",
    [PHASE_TIME_BACKWARD] = "backward",   [PHASE_TIME_REDUCE] = "reduce",
    [PHASE_TIME_OPTIMIZER] = "optimizer", [PHASE_TIME_COMMUNICATION] = "communication",
};

static struct json *items_to_json(const struct measured_rank *rank)
{
    struct json *items = json_list();
    for (int i = 0; i < ITEM_COUNT; i++) {
        if (rank->item_bytes[i] == 0 && rank->item_max_bytes[i] == 0)
            continue;
        struct json *item = json_map();
        json_put_text(item, "name", item_infos[i].name);
        json_put_u64(item, "bytes", rank->item_bytes[i]);
        json_put_u64(item, "max_bytes", rank->item_max_bytes[i]);
        json_append(items, item);
    }
    return items;
}

static struct json *chunks_to_json(const struct routed_rows *rows)
{
    struct json *list = json_list();
    for (size_t i = 0; i < rows->chunk_count; i++)
        json_append_u64(list, rows->chunk_rows_received[i]);
    return list;
}

static struct json *routed_to_json(const struct measured_rank *rank)
{
    struct json *routed = json_list();
    for (size_t i = 0; i < rank->routed_count; i++) {
        const struct routed_rows *rows = &rank->routed[i];
        struct json *entry = json_map();
        json_put_int(entry, "layer", rows->layer);
        json_put_int(entry, "micro_batch", rows->micro_batch);
        json_put_u64(entry, "rows_sent", rows->rows_sent);
        json_put_u64(entry, "rows_received", rows->rows_received);
        if (rows->chunk_count > 0)
            json_put(entry, "chunk_rows_received", chunks_to_json(rows));
        json_append(routed, entry);
    }
    return routed;
}

static struct json *reals_to_json(const double *values, size_t count)
{
    struct json *list = json_list();
    for (size_t i = 0; i < count; i++)
        json_append_number(list, values[i]);
    return list;
}

static struct json *rank_to_json(const struct measured_rank *rank)
{
    struct json *object = json_map();
    struct json *phases = json_map();

    json_put_int(object, "rank", rank->rank);
    json_put_u64(object, "arena_live_bytes", rank->arena_live_bytes);
    json_put_u64(object, "arena_extent_bytes", rank->arena_extent_bytes);
    if (rank->arena_room_bytes > 0)
        json_put_u64(object, "arena_room_bytes", rank->arena_room_bytes);
    json_put_u64(object, "device_bytes", rank->device_bytes);
    if (rank->modelled_bytes > 0)
        json_put_u64(object, "modelled_bytes", rank->modelled_bytes);
    json_put_u64(object, "rss_bytes", rank->rss_bytes);
    json_put_text(object, "peak_phase", rank->peak_phase);
    json_put(object, "items", items_to_json(rank));
    json_put(object, "routed_rows", routed_to_json(rank));
    json_put(object, "step_seconds", reals_to_json(rank->step_seconds, rank->steps));
    for (int i = 0; i < PHASE_TIME_COUNT; i++)
        json_put_number(phases, phase_time_names[i], rank->phase_seconds[i]);
    json_put(object, "phase_seconds", phases);
    json_put(object, "loss", reals_to_json(rank->loss, rank->steps));
    return object;
}

/* What of a rehearsal is no measurement. */
static struct json *rehearsal_to_json(int world)
{
    static const char *const modelled[] = { "communicators", "communication", "routing of peers",
                                            "loss" };
    struct json *ret = json_map(), *list = json_list();
    for (size_t i = 0; i < sizeof modelled / sizeof *modelled; i++)
        json_append_text(list, modelled[i]);
    json_put_int(ret, "world", world);
    json_put(ret, "modelled", list);
    return ret;
}

struct json *measurement_to_json(const struct measurement *m)
{
    struct json *object = json_document(measurement_schema);
    json_put_text(object, "plan_digest", m->plan_digest);
    json_put_text(object, "backend", m->backend);
    json_put_text(object, "device", m->device);
    json_put_text(object, "versions", m->versions);
    json_put_int(object, "steps", m->steps);
    struct json *ranks = json_list();
    if (m->traced)
        json_put_bool(object, "traced", true);
    if (m->rehearsed_world > 0)
        json_put(object, "rehearsal", rehearsal_to_json(m->rehearsed_world));
    for (size_t i = 0; i < m->rank_count; i++)
        json_append(ranks, rank_to_json(&m->ranks[i]));
    json_put(object, "ranks", ranks);
    return object;
}

static int missing(const struct node *map, const char *key, struct diag_list *reterr)
{
    diag_error(reterr, map->at, "missing key '%s'", key);
    return diag_hint(reterr, "a measurement is written by `rankfit run PLAN -o FILE`");
}

static void read_bytes(const struct node *map, const char *key, uint64_t *ret,
                       struct diag_list *reterr)
{
    int64_t value = 0;
    int found = node_int(map, key, 0, INT64_MAX, &value, reterr);
    if (found == 0)
        missing(map, key, reterr);
    *ret = (uint64_t)value;
}

static void read_int(const struct node *map, const char *key, int *ret, struct diag_list *reterr)
{
    int64_t value = 0;
    if (node_int(map, key, 0, INT32_MAX, &value, reterr) == 0)
        missing(map, key, reterr);
    *ret = (int)value;
}

static void read_name(const struct node *map, const char *key, char *ret, size_t size,
                      struct diag_list *reterr)
{
    const char *text = NULL;
    if (node_text(map, key, &text, reterr) == 0)
        missing(map, key, reterr);
    if (text && text_copy(ret, size, text) != 0)
        diag_error(reterr, node_get(map, key)->at, "'%s' is longer than %zu characters", key,
                   size - 1);
}

/* A required list; NULL with a diagnostic. */
static const struct node *list_of(const struct node *map, const char *key, struct diag_list *reterr)
{
    const struct node *list = NULL;
    if (node_list(map, key, &list, reterr) == 0)
        missing(map, key, reterr);
    return list;
}

static bool is_map(const struct node *node, const char *what, struct diag_list *reterr)
{
    if (node->kind == NODE_MAP)
        return true;
    diag_error(reterr, node->at, "%s is a map, this is %s", what, node_kind_name(node->kind));
    return false;
}

static void read_items(const struct node *map, struct measured_rank *ret, struct diag_list *reterr)
{
    const struct node *list = list_of(map, "items", reterr);
    for (const struct node *entry = list ? list->child : NULL; entry; entry = entry->next) {
        char name[64] = "";
        if (!is_map(entry, "an item", reterr))
            continue;
        read_name(entry, "name", name, sizeof name, reterr);
        enum item item = item_find(name);
        if (item == ITEM_COUNT) {
            diag_error(reterr, entry->at, "unknown item \"%s\"", name);
            diag_hint(reterr, "`rankfit list items` prints the names");
            continue;
        }
        read_bytes(entry, "bytes", &ret->item_bytes[item], reterr);
        read_bytes(entry, "max_bytes", &ret->item_max_bytes[item], reterr);
    }
}

/* Optional: files of plain schedules, and older ones, have none. */
static void read_chunks(struct pool *pool, const struct node *map, struct routed_rows *ret,
                        struct diag_list *reterr)
{
    const struct node *list = NULL;
    if (node_list(map, "chunk_rows_received", &list, reterr) <= 0 || !list || list->count == 0)
        return;
    ret->chunk_rows_received = pool_alloc(pool, list->count * sizeof *ret->chunk_rows_received);
    if (!ret->chunk_rows_received) {
        diag_no_memory(reterr);
        return;
    }
    for (const struct node *entry = list->child; entry; entry = entry->next) {
        if (entry->kind != NODE_INT || entry->integer < 0)
            diag_error(reterr, entry->at, "'chunk_rows_received' holds counts of rows, this is %s",
                       node_kind_name(entry->kind));
        else
            ret->chunk_rows_received[ret->chunk_count++] = (uint64_t)entry->integer;
    }
}

static void read_routed(struct pool *pool, const struct node *map, struct measured_rank *ret,
                        struct diag_list *reterr)
{
    const struct node *list = list_of(map, "routed_rows", reterr);
    if (!list || list->count == 0)
        return;
    ret->routed = pool_alloc(pool, list->count * sizeof *ret->routed);
    if (!ret->routed) {
        diag_no_memory(reterr);
        return;
    }
    for (const struct node *entry = list->child; entry; entry = entry->next) {
        struct routed_rows *rows = &ret->routed[ret->routed_count];
        if (!is_map(entry, "an entry of routed_rows", reterr))
            continue;
        read_int(entry, "layer", &rows->layer, reterr);
        read_int(entry, "micro_batch", &rows->micro_batch, reterr);
        read_bytes(entry, "rows_sent", &rows->rows_sent, reterr);
        read_bytes(entry, "rows_received", &rows->rows_received, reterr);
        read_chunks(pool, entry, rows, reterr);
        ret->routed_count++;
    }
}

/* A list of numbers; null stands for what is not a number. */
static double *read_reals(struct pool *pool, const struct node *map, const char *key,
                          size_t *ret_count, struct diag_list *reterr)
{
    const struct node *list = list_of(map, key, reterr);
    size_t count = 0;

    *ret_count = 0;
    if (!list)
        return NULL;
    double *values = pool_alloc(pool, (list->count + 1) * sizeof *values);
    if (!values) {
        diag_no_memory(reterr);
        return NULL;
    }
    for (const struct node *entry = list->child; entry; entry = entry->next) {
        bool number = entry->kind == NODE_INT || entry->kind == NODE_REAL;
        if (!number && entry->kind != NODE_NULL)
            diag_error(reterr, entry->at, "'%s' holds numbers, this is %s", key,
                       node_kind_name(entry->kind));
        values[count++] = number ? entry->real : __builtin_nan("");
    }
    *ret_count = count;
    return values;
}

static void read_phases(const struct node *map, struct measured_rank *ret, struct diag_list *reterr)
{
    const struct node *phases = NULL;
    if (node_map(map, "phase_seconds", &phases, reterr) == 0)
        missing(map, "phase_seconds", reterr);
    for (int i = 0; phases && i < PHASE_TIME_COUNT; i++)
        (void)node_real(phases, phase_time_names[i], 0, 1e12, &ret->phase_seconds[i], reterr);
}

static void read_rank(struct pool *pool, const struct node *map, struct measured_rank *ret,
                      struct diag_list *reterr)
{
    size_t losses = 0;

    if (!is_map(map, "a rank", reterr))
        return;
    read_int(map, "rank", &ret->rank, reterr);
    read_bytes(map, "arena_live_bytes", &ret->arena_live_bytes, reterr);
    read_bytes(map, "arena_extent_bytes", &ret->arena_extent_bytes, reterr);
    if (node_get(map, "arena_room_bytes"))
        read_bytes(map, "arena_room_bytes", &ret->arena_room_bytes, reterr);
    read_bytes(map, "device_bytes", &ret->device_bytes, reterr);
    if (node_get(map, "modelled_bytes"))
        read_bytes(map, "modelled_bytes", &ret->modelled_bytes, reterr);
    read_bytes(map, "rss_bytes", &ret->rss_bytes, reterr);
    read_name(map, "peak_phase", ret->peak_phase, sizeof ret->peak_phase, reterr);
    read_items(map, ret, reterr);
    read_routed(pool, map, ret, reterr);
    read_phases(map, ret, reterr);
    ret->step_seconds = read_reals(pool, map, "step_seconds", &ret->steps, reterr);
    ret->loss = read_reals(pool, map, "loss", &losses, reterr);
    if (losses != ret->steps)
        diag_error(reterr, map->at, "%zu losses for %zu steps", losses, ret->steps);
}

static int check_schema(const struct node *root, struct diag_list *reterr)
{
    const char *schema = NULL;

    if (!is_map(root, "a measurement", reterr))
        return -1;
    int found = node_text(root, "schema", &schema, reterr);
    if (found == 0)
        return missing(root, "schema", reterr);
    if (found < 0)
        return -1;
    if (strcmp(schema, measurement_schema) == 0)
        return 0;
    diag_error(reterr, node_get(root, "schema")->at, "schema \"%s\" is not a measurement", schema);
    return diag_hint(reterr, "this program reads \"%s\"", measurement_schema);
}

static void read_ranks(const struct node *root, struct measurement *ret, struct diag_list *reterr)
{
    const struct node *list = list_of(root, "ranks", reterr);
    if (!list)
        return;
    ret->ranks = pool_alloc(&ret->pool, (list->count + 1) * sizeof *ret->ranks);
    if (!ret->ranks) {
        diag_no_memory(reterr);
        return;
    }
    for (const struct node *entry = list->child; entry; entry = entry->next)
        read_rank(&ret->pool, entry, &ret->ranks[ret->rank_count++], reterr);
}

/* Only a rehearsal has it. */
static void read_rehearsal(const struct node *root, struct measurement *ret,
                           struct diag_list *reterr)
{
    const struct node *map = NULL;
    if (node_map(root, "rehearsal", &map, reterr) > 0 && map)
        read_int(map, "world", &ret->rehearsed_world, reterr);
}

int measurement_load(const char *path, struct measurement *ret, struct diag_list *reterr)
{
    struct tree tree;
    int errors_before = reterr->errors;

    memset(ret, 0, sizeof *ret);
    if (tree_read_file(&tree, path, reterr) == 0 && check_schema(tree.root, reterr) == 0) {
        const struct node *root = tree.root;
        read_name(root, "plan_digest", ret->plan_digest, sizeof ret->plan_digest, reterr);
        read_name(root, "backend", ret->backend, sizeof ret->backend, reterr);
        read_name(root, "device", ret->device, sizeof ret->device, reterr);
        read_name(root, "versions", ret->versions, sizeof ret->versions, reterr);
        read_int(root, "steps", &ret->steps, reterr);
        read_rehearsal(root, ret, reterr);
        (void)node_bool(root, "traced", &ret->traced, reterr);
        read_ranks(root, ret, reterr);
    }
    tree_done(&tree);
    if (reterr->errors == errors_before)
        return 0;
    measurement_done(ret);
    return -1;
}

void measurement_done(struct measurement *measurement)
{
    pool_done(&measurement->pool);
    memset(measurement, 0, sizeof *measurement);
}
