/* points.c - points files: writing and reading what of a machine was measured. */
#include "base/plan/points.h"
#include "base/text.h"
#include "base/tree.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char points_schema[] = "rankfit.points/1";

const char *const point_kind_names[POINT_KIND_COUNT] = {
    [POINT_GEMM] = "gemm",
    [POINT_EXPERT_GEMM] = "expert_gemm",
    [POINT_ATTENTION_FORWARD] = "attention_forward",
    [POINT_ATTENTION_BACKWARD] = "attention_backward",
    [POINT_COPY] = "copy",
    [POINT_ELEMENTWISE] = "elementwise",
    [POINT_OPTIMIZER] = "optimizer",
    [POINT_TO_DEVICE] = "to_device",
    [POINT_FROM_DEVICE] = "from_device",
    [POINT_BOTH_WAYS] = "both_ways",
    [POINT_ALL_GATHER] = "all_gather",
    [POINT_REDUCE_SCATTER] = "reduce_scatter",
    [POINT_EXCHANGE] = "exchange",
    [POINT_COPY_EXCHANGE] = "copy_exchange",
    [POINT_LAUNCH] = "launch",
    [POINT_HELD] = "held",
    [POINT_SUSTAINED] = "sustained",
    [POINT_ALL_REDUCE] = "all_reduce",
    [POINT_OVERLAP] = "overlap",
    [POINT_COPY_OVERLAP] = "copy_overlap",
    [POINT_DELTA_FORWARD] = "delta_forward",
    [POINT_DELTA_BACKWARD] = "delta_backward",
};

/* The whole numbers and the reals of a point, as the file names them. */
struct field {
    const char *key;
    size_t offset;
};
#define FIELD(name)                                                                                \
    {                                                                                              \
#name, offsetof(struct point, name)                                                        \
    }
static const struct field longs[] = { FIELD(m), FIELD(n), FIELD(k), FIELD(tokens) };
static const struct field ints[] = { FIELD(experts),  FIELD(heads), FIELD(kv_heads),
                                     FIELD(head_dim), FIELD(ranks), FIELD(repeats) };
static const struct field reals[] = { FIELD(bytes), FIELD(flops), FIELD(seconds), FIELD(spread) };
enum {
    LONGS = sizeof longs / sizeof *longs,
    INTS = sizeof ints / sizeof *ints,
    REALS = sizeof reals / sizeof *reals
};

int points_add(struct points *points, const struct point *point, struct diag_list *reterr)
{
    if (points->count == points->room) {
        size_t room = points->room ? 2 * points->room : 64;
        struct point *more = pool_alloc(&points->pool, room * sizeof *more);
        if (!more)
            return diag_no_memory(reterr);
        if (points->count > 0)
            memcpy(more, points->points, points->count * sizeof *more);
        points->points = more;
        points->room = room;
    }
    points->points[points->count++] = *point;
    return 0;
}

static int64_t whole_of(const struct point *point, size_t offset, bool is_int)
{
    const char *at = (const char *)point + offset;
    int64_t wide;
    int narrow;
    if (is_int) {
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, at, sizeof wide);
    return wide;
}

static double real_of(const struct point *point, size_t offset)
{
    double ret;
    memcpy(&ret, (const char *)point + offset, sizeof ret);
    return ret;
}

static void set_whole(struct json *object, const char *key, int64_t value)
{
    if (value != 0)
        json_put_int(object, key, value);
}

static struct json *point_to_json(const struct point *point)
{
    struct json *ret = json_map();
    json_put_text(ret, "kind", point_kind_names[point->kind]);
    json_put_text(ret, "name", point->name);
    for (size_t i = 0; i < LONGS; i++)
        set_whole(ret, longs[i].key, whole_of(point, longs[i].offset, false));
    for (size_t i = 0; i < INTS; i++)
        set_whole(ret, ints[i].key, whole_of(point, ints[i].offset, true));
    for (size_t i = 0; i < REALS; i++)
        if (real_of(point, reals[i].offset) > 0)
            json_put_number(ret, reals[i].key, real_of(point, reals[i].offset));
    return ret;
}

struct json *points_to_json(const struct points *points)
{
    struct json *ret = json_document(points_schema);
    json_put_text(ret, "backend", points->backend);
    json_put_text(ret, "device", points->device);
    json_put_text(ret, "versions", points->versions);
    json_put_text(ret, "date", points->date);
    json_put_int(ret, "ranks", points->ranks);
    json_put_bool(ret, "quick", points->quick);
    json_put_u64(ret, "memory_bytes", points->memory_bytes);
    struct json *list = json_list();
    for (size_t i = 0; i < points->count; i++)
        json_append(list, point_to_json(&points->points[i]));
    json_put(ret, "points", list);
    return ret;
}

static int missing(const struct node *map, const char *key, struct diag_list *reterr)
{
    diag_error(reterr, map->at, "missing key '%s'", key);
    return diag_hint(reterr, "points are written by `rankfit calibrate --points FILE`");
}

static void read_text(const struct node *map, const char *key, char *ret, size_t size,
                      struct diag_list *reterr)
{
    const char *text = NULL;
    int found = node_text(map, key, &text, reterr);
    if (found == 0)
        (void)missing(map, key, reterr);
    if (found == 1 && text_copy(ret, size, text) != 0)
        (void)diag_error(reterr, map->at, "%s is longer than %zu characters", key, size - 1);
}

static void read_kind(const struct node *map, struct point *ret, struct diag_list *reterr)
{
    const char *text = NULL;
    if (node_text(map, "kind", &text, reterr) != 1) {
        (void)missing(map, "kind", reterr);
        return;
    }
    for (int i = 0; i < POINT_KIND_COUNT; i++)
        if (strcmp(text, point_kind_names[i]) == 0) {
            ret->kind = (enum point_kind)i;
            return;
        }
    const char *nearest = text_nearest(text, point_kind_names, POINT_KIND_COUNT);
    (void)diag_error(reterr, node_get(map, "kind")->at, "\"%s\" is no kind of point", text);
    if (nearest)
        (void)diag_hint(reterr, "did you mean %s?", nearest);
}

/* What is measured takes time, and what is held bytes; fits divide by both. */
static void check_point(const struct node *map, const struct point *point, struct diag_list *reterr)
{
    bool timed = point->kind != POINT_HELD;
    if (timed && point->seconds <= 0)
        (void)diag_error(reterr, map->at, "a point of %s without seconds",
                         point_kind_names[point->kind]);
}

static void read_point(const struct node *map, struct point *ret, struct diag_list *reterr)
{
    char *at = (char *)ret;
    int64_t value;
    int before = reterr->errors;
    read_kind(map, ret, reterr);
    read_text(map, "name", ret->name, sizeof ret->name, reterr);
    for (size_t i = 0; i < LONGS; i++)
        if (node_int(map, longs[i].key, 0, INT64_MAX, &value, reterr) == 1)
            memcpy(at + longs[i].offset, &value, sizeof value);
    for (size_t i = 0; i < INTS; i++)
        if (node_int(map, ints[i].key, 0, INT_MAX, &value, reterr) == 1) {
            int narrow = (int)value;
            memcpy(at + ints[i].offset, &narrow, sizeof narrow);
        }
    for (size_t i = 0; i < REALS; i++) {
        double real;
        if (node_real(map, reals[i].key, 0, 1e30, &real, reterr) == 1)
            memcpy(at + reals[i].offset, &real, sizeof real);
    }
    if (reterr->errors == before)
        check_point(map, ret, reterr);
}

static void read_points(const struct node *root, struct points *ret, struct diag_list *reterr)
{
    const struct node *list = NULL;
    if (node_list(root, "points", &list, reterr) != 1) {
        (void)missing(root, "points", reterr);
        return;
    }
    for (const struct node *node = list->child; node; node = node->next) {
        struct point point = { 0 };
        if (node->kind != NODE_MAP) {
            (void)diag_error(reterr, node->at, "a point is a map, found %s",
                             node_kind_name(node->kind));
            continue;
        }
        read_point(node, &point, reterr);
        if (points_add(ret, &point, reterr) != 0)
            return;
    }
}

static int read_root(const struct node *root, struct points *ret, struct diag_list *reterr)
{
    const char *schema = NULL;
    int64_t value = 0;
    int before = reterr->errors;
    if (root->kind != NODE_MAP || node_text(root, "schema", &schema, reterr) != 1 ||
        strcmp(schema, points_schema) != 0) {
        (void)diag_error(reterr, root->at, "not a points file: its schema is not %s",
                         points_schema);
        return diag_hint(reterr, "points are written by `rankfit calibrate --points FILE`");
    }
    read_text(root, "backend", ret->backend, sizeof ret->backend, reterr);
    read_text(root, "device", ret->device, sizeof ret->device, reterr);
    read_text(root, "versions", ret->versions, sizeof ret->versions, reterr);
    read_text(root, "date", ret->date, sizeof ret->date, reterr);
    if (node_int(root, "ranks", 1, INT_MAX, &value, reterr) == 1)
        ret->ranks = (int)value;
    if (node_int(root, "memory_bytes", 0, INT64_MAX, &value, reterr) == 1)
        ret->memory_bytes = (uint64_t)value;
    (void)node_bool(root, "quick", &ret->quick, reterr);
    read_points(root, ret, reterr);
    return reterr->errors == before ? 0 : -1;
}

int points_load(const char *path, struct points *ret, struct diag_list *reterr)
{
    struct tree tree = { 0 };
    *ret = (struct points){ 0 };
    int rc = tree_read_file(&tree, path, reterr);
    if (rc == 0)
        rc = read_root(tree.root, ret, reterr);
    tree_done(&tree);
    return rc;
}

void points_done(struct points *points)
{
    pool_done(&points->pool);
    *points = (struct points){ 0 };
}

char *point_describe(const struct point *p, char *ret, size_t size)
{
    size_t used = 0;
    text_append(ret, size, &used, "%s", p->name);
    if (p->experts > 0)
        text_append(ret, size, &used, " %d experts,", p->experts);
    if (p->m > 0)
        text_append(ret, size, &used, " %lld x %lld", (long long)p->m, (long long)p->n);
    if (p->k > 0)
        text_append(ret, size, &used, " x %lld", (long long)p->k);
    if (p->tokens > 0)
        text_append(ret, size, &used, " %lld tokens, %d/%d x %d", (long long)p->tokens, p->heads,
                    p->kv_heads, p->head_dim);
    if (p->m == 0 && p->tokens == 0 && p->bytes > 0)
        text_append(ret, size, &used, " %.3g MB", p->bytes / 1e6);
    return ret;
}
