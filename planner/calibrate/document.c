/* document.c - the hardware file as a document: every key of the base file with its source, the
 * measured ones replaced. */
#include "planner/calibrate/calibration.h"

#include "base/text.h"

#include <string.h>

/* A scalar as the base file has it: `detect` and sizes with a unit stay words. */
static void put_scalar(struct json *map, const char *key, const struct node *node)
{
    switch (node->kind) {
    case NODE_BOOL:
        json_put_bool(map, key, node->boolean);
        return;
    case NODE_INT:
        json_put_int(map, key, node->integer);
        return;
    case NODE_REAL:
        json_put_number(map, key, node->real);
        return;
    case NODE_NULL:
    case NODE_TEXT:
    case NODE_LIST:
    case NODE_MAP:
        break;
    }
    json_put_text(map, key, node->text ? node->text : "");
}

static void put_copy(struct json *map, const char *key, const struct node *node)
{
    if (node->kind != NODE_MAP) {
        put_scalar(map, key, node);
        return;
    }
    struct json *copy = json_map();
    for (const struct node *child = node->child; child; child = child->next)
        put_scalar(copy, child->key, child);
    json_put(map, key, copy);
}

/* Behind the value of a key. */
static void put_source(struct json *map, const char *source)
{
    json_put_text(map, "source", source);
    json_put_text(map, "confidence", "A");
}

/* "measured by rankfit calibrate, 2026-11-29, NVIDIA H200, driver 580..., 45 points, residual 4.1 %
 * RMS, 9.8 % at worst" */
static void source_of(const struct calibration *calibration, const struct points *points,
                      const struct calibration_value *value, char *ret, size_t size)
{
    size_t used = 0;
    text_append(ret, size, &used, "measured by rankfit calibrate, %s, %s, %s", points->date,
                points->device, points->versions);
    if (value->points > 1)
        text_append(ret, size, &used, ", %zu points", value->points);
    if (value->fit < 0)
        return;
    const struct calibration_fit *fit = &calibration->fits[value->fit];
    text_append(ret, size, &used, ", residual %.1f %% RMS, %.1f %% at worst (%s)", 100 * fit->rms,
                100 * fit->worst, fit->worst_point);
}

static struct json *measured(const struct calibration *calibration, const struct points *points,
                             const struct hardware_key *key, const struct calibration_value *value)
{
    char source[512];
    struct json *ret = json_map();
    source_of(calibration, points, value, source, sizeof source);
    if (key->type == HARDWARE_BYTES || key->type == HARDWARE_INT)
        json_put_int(ret, "value", (int64_t)value->value);
    else
        json_put_number(ret, "value", value->value);
    put_source(ret, source);
    return ret;
}

static struct json *named(const char *name)
{
    struct json *ret = json_map();
    json_put_text(ret, "value", name);
    put_source(ret, "this file");
    return ret;
}

struct json *calibration_document(const struct calibration *calibration,
                                  const struct points *points, const struct node *base,
                                  const char *name)
{
    struct json *ret = json_map();
    for (size_t i = 0; i < hardware_key_count; i++) {
        const struct hardware_key *key = &hardware_keys[i];
        const struct calibration_value *value = calibration_value(calibration, key->key);
        const struct node *was = node_get(base, key->key);
        if (strcmp(key->key, "name") == 0)
            json_put(ret, key->key, named(name));
        else if (value)
            json_put(ret, key->key, measured(calibration, points, key, value));
        else if (was)
            put_copy(ret, key->key, was);
    }
    return ret;
}
