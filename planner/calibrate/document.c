/* document.c - the hardware file as a document: every key of the base file with its source, the
 * measured ones replaced. */
#include "planner/calibrate/calibration.h"

#include "base/text.h"

#include <string.h>

/* A scalar as the base file has it: `detect` and sizes with a unit stay words. */
static json_t *scalar(const struct node *node)
{
    switch (node->kind) {
    case NODE_BOOL:
        return json_boolean(node->boolean);
    case NODE_INT:
        return json_integer(node->integer);
    case NODE_REAL:
        return json_real(node->real);
    case NODE_NULL:
    case NODE_TEXT:
    case NODE_LIST:
    case NODE_MAP:
        break;
    }
    return json_string(node->text ? node->text : "");
}

static json_t *copy_of(const struct node *node)
{
    if (node->kind != NODE_MAP)
        return scalar(node);
    json_t *ret = json_object();
    for (const struct node *child = node->child; child; child = child->next)
        json_object_set_new(ret, child->key, scalar(child));
    return ret;
}

static json_t *sourced(json_t *value, const char *source)
{
    return json_pack("{s:o, s:s, s:s}", "value", value, "source", source, "confidence", "A");
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

static json_t *measured(const struct calibration *calibration, const struct points *points,
                        const struct hardware_key *key, const struct calibration_value *value)
{
    char source[512];
    bool whole = key->type == HARDWARE_BYTES || key->type == HARDWARE_INT;
    source_of(calibration, points, value, source, sizeof source);
    return sourced(whole ? json_integer((json_int_t)value->value) : json_real(value->value),
                   source);
}

json_t *calibration_document(const struct calibration *calibration, const struct points *points,
                             const struct node *base, const char *name)
{
    json_t *ret = json_object();
    for (size_t i = 0; i < hardware_key_count; i++) {
        const struct hardware_key *key = &hardware_keys[i];
        const struct calibration_value *value = calibration_value(calibration, key->key);
        const struct node *was = node_get(base, key->key);
        if (strcmp(key->key, "name") == 0)
            json_object_set_new(ret, key->key, sourced(json_string(name), "this file"));
        else if (value)
            json_object_set_new(ret, key->key, measured(calibration, points, key, value));
        else if (was)
            json_object_set_new(ret, key->key, copy_of(was));
    }
    return ret;
}
