#include "base/model/hf.h"

#include <string.h>

void hf_init(struct hf *hf, const struct node *map, struct hf *root, struct model *model,
             struct diag_list *errors)
{
    *hf = (struct hf){ .map = map, .root = root != NULL ? root : hf, .model = model };
    hf->errors = errors;
}

static bool is_asked(const struct hf *hf, const char *key)
{
    for (size_t i = 0; i < hf->asked_count; i++)
        if (strcmp(hf->asked[i], key) == 0)
            return true;
    return false;
}

void hf_note(struct hf *hf, const char *key)
{
    if (hf->asked_count < HF_MAX_ASKED && !is_asked(hf, key))
        hf->asked[hf->asked_count++] = key;
}

void hf_notes(struct hf *hf, const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hf_note(hf, keys[i]);
}

void hf_note_all(struct hf *hf)
{
    for (const struct node *n = hf->map->child; n != NULL; n = n->next)
        hf_note(hf, n->key);
}

int hf_int(struct hf *hf, const char *key, int64_t min, int *ret)
{
    int64_t value = 0;
    hf_note(hf, key);
    int got = node_int(hf->map, key, min, HF_MAX_SIZE, &value, hf->errors);
    if (got == 1)
        *ret = (int)value;
    return got;
}

int hf_need(struct hf *hf, const char *key, int64_t min, int *ret)
{
    int got = hf_int(hf, key, min, ret);
    if (got == 0) {
        diag_error(hf->errors, hf->map->at, "required key '%s' is missing", key);
        diag_hint(hf->errors, "a config.json as published holds it; nothing is assumed");
    }
    return got;
}

int hf_real(struct hf *hf, const char *key, double min, double max, double *ret)
{
    hf_note(hf, key);
    return node_real(hf->map, key, min, max, ret, hf->errors);
}

int hf_bool(struct hf *hf, const char *key, bool *ret)
{
    hf_note(hf, key);
    return node_bool(hf->map, key, ret, hf->errors);
}

int hf_text(struct hf *hf, const char *key, const char **ret)
{
    hf_note(hf, key);
    return node_text(hf->map, key, ret, hf->errors);
}

int hf_list(struct hf *hf, const char *key, const struct node **ret)
{
    hf_note(hf, key);
    return node_list(hf->map, key, ret, hf->errors);
}

void hf_fields(struct hf *hf, const struct hf_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int value = 0;
        int got = fields[i].need ? hf_need(hf, fields[i].key, fields[i].min, &value)
                                 : hf_int(hf, fields[i].key, fields[i].min, &value);
        if (got == 1)
            memcpy((char *)hf->model + fields[i].offset, &value, sizeof value);
    }
}

int hf_expect_text(struct hf *hf, const char *key, const char *value)
{
    const char *text = NULL;
    int got = hf_text(hf, key, &text);
    if (got != 1 || strcmp(text, value) == 0)
        return got < 0 ? -1 : 0;
    diag_error(hf->errors, node_get(hf->map, key)->at, "'%s' is '%s', which is not read", key,
               text);
    return diag_hint(hf->errors, "only '%s' is", value);
}

int hf_expect_int(struct hf *hf, const char *key, int64_t value)
{
    int found = 0;
    int got = hf_int(hf, key, 0, &found);
    if (got != 1 || found == value)
        return got < 0 ? -1 : 0;
    diag_error(hf->errors, node_get(hf->map, key)->at, "'%s' is %d, which is not read", key, found);
    return diag_hint(hf->errors, "only %lld is", (long long)value);
}

int hf_expect_bool(struct hf *hf, const char *key, bool value)
{
    bool found = value;
    int got = hf_bool(hf, key, &found);
    if (got != 1 || found == value)
        return got < 0 ? -1 : 0;
    diag_error(hf->errors, node_get(hf->map, key)->at, "'%s' is %s, which is not read", key,
               found ? "true" : "false");
    return diag_hint(hf->errors, "only %s is", value ? "true" : "false");
}

static bool is_neutral(const struct node *value)
{
    switch (value->kind) {
    case NODE_NULL:
        return true;
    case NODE_BOOL:
        return !value->boolean;
    case NODE_INT:
    case NODE_REAL:
        return value->real == 0.0 && value->integer == 0;
    case NODE_TEXT:
        return value->text[0] == '\0';
    case NODE_LIST:
    case NODE_MAP:
        return value->count == 0;
    }
    return false;
}

void hf_refuse_rest(struct hf *hf)
{
    for (const struct node *n = hf->map->child; n != NULL; n = n->next) {
        if (is_neutral(n) || is_asked(hf, n->key) || hf_key_is_irrelevant(n->key))
            continue;
        if (!hf_key_is_structural(n->key)) {
            diag_warning(hf->errors, n->at, "'%.60s' is not known, and left out", n->key);
            continue;
        }
        diag_error(hf->errors, n->at,
                   "'%.60s' is set, which this architecture's reader does not understand", n->key);
        diag_hint(hf->errors, "it may change the parameters or the arithmetic, so counting without "
                              "it would be a guess");
    }
}

int hf_layer_list(struct hf *hf, const char *key, int layers, int (*kind_of)(const struct node *),
                  uint8_t *ret)
{
    const struct node *list = NULL;
    int got = hf_list(hf, key, &list);
    if (got != 1)
        return got;
    if (list->count != (size_t)layers)
        return diag_error(hf->errors, list->at, "'%s' names %zu layers, 'num_hidden_layers' %d",
                          key, list->count, layers);
    int layer = 0, result = 1;
    for (const struct node *n = list->child; n != NULL; n = n->next, layer++) {
        int kind = kind_of(n);
        if (kind >= 0) {
            ret[layer] = (uint8_t)kind;
            continue;
        }
        result = diag_error(hf->errors, n->at,
                            "'%s': layer type '%.40s' is not read by this "
                            "architecture",
                            key, n->text != NULL ? n->text : node_kind_name(n->kind));
    }
    return result;
}

int hf_layer_letters(struct hf *hf, const char *key, int layers, int (*kind_of)(char letter),
                     uint8_t *ret)
{
    const char *text = NULL;
    int got = hf_text(hf, key, &text), result = 1;
    if (got != 1)
        return got;
    struct pos at = node_get(hf->map, key)->at;
    if (strlen(text) != (size_t)layers)
        return diag_error(hf->errors, at, "'%s' names %zu layers of %d", key, strlen(text), layers);
    for (int layer = 0; layer < layers; layer++) {
        int kind = kind_of(text[layer]);
        if (kind < 0)
            result = diag_error(hf->errors, at,
                                "'%s': letter '%c' of layer %d is not read by this architecture",
                                key, text[layer], layer);
        else
            ret[layer] = (uint8_t)kind;
    }
    return result;
}
