#include "tests/support/same.h"

#include <math.h>
#include <string.h>

static bool same_list(const struct node *node, const json_t *want)
{
    const struct node *child = node->child;
    if (node->kind != NODE_LIST || node->count != json_array_size(want))
        return false;
    for (size_t i = 0; i < json_array_size(want); i++, child = child->next)
        if (!child || child->key || !same_as_json(child, json_array_get(want, i)))
            return false;
    return child == NULL;
}

static bool same_map(const struct node *node, json_t *want)
{
    const struct node *child = node->child;
    const char *key;
    json_t *value;
    if (node->kind != NODE_MAP || node->count != json_object_size(want))
        return false;
    json_object_foreach(want, key, value)
    {
        if (!child || strcmp(child->key, key) != 0 || !same_as_json(child, value))
            return false;
        child = child->next;
    }
    return child == NULL;
}

bool same_as_json(const struct node *node, const json_t *want)
{
    double real = json_real_value(want);
    switch (json_typeof(want)) {
    case JSON_OBJECT:
        return same_map(node, (json_t *)(uintptr_t)want);
    case JSON_ARRAY:
        return same_list(node, want);
    case JSON_STRING:
        return node->kind == NODE_TEXT && strcmp(node->text, json_string_value(want)) == 0;
    case JSON_INTEGER:
        return node->kind == NODE_INT && node->integer == json_integer_value(want);
    case JSON_REAL:
        return node->kind == NODE_REAL && node->real == real &&
               !signbit(node->real) == !signbit(real);
    case JSON_TRUE:
    case JSON_FALSE:
        return node->kind == NODE_BOOL && node->boolean == json_is_true(want);
    case JSON_NULL:
        return node->kind == NODE_NULL;
    }
    return false;
}
