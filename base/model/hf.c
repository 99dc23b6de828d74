#include "base/model/hf.h"

#include "base/checked.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hf_init(struct hf *hf, const struct node *map, struct hf *root, struct model *model,
             struct diag_list *errors)
{
    *hf = (struct hf){ .map = map, .root = root != NULL ? root : hf, .model = model };
    hf->errors = errors;
    hf->place = hf->defaults = "";
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

/* Keys that different classes, or versions of the library, use for one and the same number. */
static const char *const synonyms[][5] = {
    { "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts" },
    { "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k" },
    { "n_shared_experts", "num_shared_experts" },
    { "norm_topk_prob", "moe_renormalize" },
    { "num_nextn_predict_layers", "num_mtp_layers" },
    { "num_key_value_heads", "num_attention_groups" },
    { "max_position_embeddings", "model_max_length" },
    { "layers_block_type", "layer_types" },
    /* of towers */
    { "hidden_size", "vt_hidden_size", "width" },
    { "intermediate_size", "vt_intermediate_size" },
    { "num_hidden_layers", "vt_num_hidden_layers", "layers" },
    { "num_attention_heads", "vt_num_attention_heads", "heads" },
    { "init_pos_emb_height", "pos_emb_height" },
    { "init_pos_emb_width", "pos_emb_width" },
    { "init_pos_emb_time", "pos_emb_time" },
};
enum { SYNONYMS = sizeof synonyms / sizeof synonyms[0], TEXT_SYNONYMS = 8, SPELLINGS = 5 };

static bool holds(const char *const names[SPELLINGS], const char *key)
{
    for (int i = 0; i < SPELLINGS && names[i] != NULL; i++)
        if (strcmp(names[i], key) == 0)
            return true;
    return false;
}

/* Two spellings with different numbers: the reader's own is read. */
static void warn_of_other(const struct hf *hf, const struct node *own, const struct node *other)
{
    if (own->kind == NODE_INT && other->kind == NODE_INT && own->integer != other->integer)
        diag_warning(hf->errors, other->at, "'%s' is %s and '%s' is %s; the latter is read",
                     other->key, other->text, own->key, own->text);
}

/* The spelling under which the file has the key: `key` itself where it has none. */
static const char *spelt(struct hf *hf, const char *key)
{
    const struct node *own = node_get(hf->map, key);
    const char *found = NULL;
    hf_note(hf, key);
    for (int i = 0; i < SYNONYMS; i++) {
        if (!holds(synonyms[i], key))
            continue;
        for (int j = 0; j < SPELLINGS && synonyms[i][j] != NULL; j++) {
            const struct node *other = node_get(hf->map, synonyms[i][j]);
            if (other == NULL || other == own)
                continue;
            hf_note(hf, synonyms[i][j]);
            found = synonyms[i][j];
            if (own != NULL)
                warn_of_other(hf, own, other);
        }
    }
    return own == NULL && found != NULL ? found : key;
}

static bool is_there(const struct node *map, const char *key)
{
    for (const struct node *n = map->child; n != NULL; n = n->next)
        if (strcmp(n->key, key) == 0)
            return true;
    return false;
}

static void note_taken(struct hf *hf, const char *key, const char *value)
{
    struct hf *root = hf->root;
    text_append(root->taken, sizeof root->taken, &root->taken_used, "%s%s%s %s",
                root->taken_used > 0 ? ", " : "", hf->place, key, value);
}

void hf_taken(struct hf *hf, const char *key, const char *value)
{
    if (!is_there(hf->map, key))
        note_taken(hf, key, value);
}

/* The class's default of a key that the file does not have, null included; noted for the one line
 * that prints them, unless it is neutral: 0, or false. */
static bool default_of(struct hf *hf, const char *key, bool truth, double *ret)
{
    size_t length = strlen(key);
    const char *at = hf->defaults;
    while (*at != '\0' && !(strncmp(at, key, length) == 0 && at[length] == ' ')) {
        at += strcspn(at, ",");
        at += strspn(at, ", ");
    }
    if (*at == '\0' || is_there(hf->map, key))
        return false;
    *ret = strtod(at + length, NULL);
    char number[32];
    (void)snprintf(number, sizeof number, "%.15g", *ret);
    if (*ret != 0)
        note_taken(hf, key, truth ? "true" : number);
    return true;
}

void hf_say_defaults(const struct hf *root)
{
    if (root->taken_used > 0)
        diag_warning(root->errors, root->map->at,
                     "keys that are not there have the defaults of their class: %s", root->taken);
}

int hf_int(struct hf *hf, const char *key, int64_t min, int *ret)
{
    int64_t value = 0;
    double standard = 0;
    const char *name = spelt(hf, key);
    int got = node_int(hf->map, name, min, HF_MAX_SIZE, &value, hf->errors);
    if (got == 1)
        *ret = (int)value;
    if (got != 0 || !default_of(hf, key, false, &standard))
        return got;
    *ret = (int)standard;
    return 1;
}

/* The other spellings of the key, where there are any; those of towers only in a tower. */
static void hint_missing(struct hf *hf, const char *key)
{
    char others[160] = "";
    size_t used = 0;
    int rows = hf->place[0] != '\0' ? SYNONYMS : TEXT_SYNONYMS;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < SPELLINGS && holds(synonyms[i], key) && synonyms[i][j] != NULL; j++)
            if (strcmp(synonyms[i][j], key) != 0)
                text_append(others, sizeof others, &used, "%s%s", used > 0 ? ", " : "",
                            synonyms[i][j]);
    diag_hint(hf->errors, "a config.json as published holds it%s%s; nothing is assumed",
              used > 0 ? ", or under one of the names " : "", others);
}

int hf_need(struct hf *hf, const char *key, int64_t min, int *ret)
{
    int got = hf_int(hf, key, min, ret);
    if (got == 0) {
        diag_error(hf->errors, hf->map->at, "required key '%s%s' is missing", hf->place, key);
        hint_missing(hf, key);
    }
    return got;
}

int hf_real(struct hf *hf, const char *key, double min, double max, double *ret)
{
    const char *name = spelt(hf, key);
    int got = node_real(hf->map, name, min, max, ret, hf->errors);
    return got == 0 && default_of(hf, key, false, ret) ? 1 : got;
}

int hf_bool(struct hf *hf, const char *key, bool *ret)
{
    double standard = 0;
    const char *name = spelt(hf, key);
    int got = node_bool(hf->map, name, ret, hf->errors);
    if (got != 0 || !default_of(hf, key, true, &standard))
        return got;
    *ret = standard != 0;
    return 1;
}

int hf_text(struct hf *hf, const char *key, const char **ret)
{
    hf_note(hf, key);
    return node_text(hf->map, key, ret, hf->errors);
}

int hf_list(struct hf *hf, const char *key, const struct node **ret)
{
    const char *name = spelt(hf, key);
    return node_list(hf->map, name, ret, hf->errors);
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

struct pos hf_place(const struct hf *hf, const char *key)
{
    const struct node *node = node_get(hf->map, key);
    return node != NULL ? node->at : hf->map->at;
}

int hf_expect_text(struct hf *hf, const char *key, const char *value)
{
    const char *text = NULL;
    int got = hf_text(hf, key, &text);
    if (got != 1 || strcmp(text, value) == 0)
        return got < 0 ? -1 : 0;
    diag_error(hf->errors, hf_place(hf, key), "'%s' is '%s', which is not read", key, text);
    return diag_hint(hf->errors, "only '%s' is", value);
}

int hf_expect_int(struct hf *hf, const char *key, int64_t value)
{
    int found = 0;
    int got = hf_int(hf, key, 0, &found);
    if (got != 1 || found == value)
        return got < 0 ? -1 : 0;
    diag_error(hf->errors, hf_place(hf, key), "'%s' is %d, which is not read", key, found);
    return diag_hint(hf->errors, "only %lld is", (long long)value);
}

int hf_expect_bool(struct hf *hf, const char *key, bool value)
{
    bool found = value;
    int got = hf_bool(hf, key, &found);
    if (got != 1 || found == value)
        return got < 0 ? -1 : 0;
    diag_error(hf->errors, hf_place(hf, key), "'%s' is %s, which is not read", key,
               found ? "true" : "false");
    return diag_hint(hf->errors, "only %s is", value ? "true" : "false");
}

void hf_activation(struct hf *hf, const char *key)
{
    const char *text = "silu";
    (void)hf_text(hf, key, &text);
    if (strcmp(text, "silu") != 0 && strcmp(text, "swish") != 0)
        hf_unrun(hf, "activations other than silu");
}

/* "a" becomes "a, b"; words that are there already are not added again. */
static void add_words(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    if (strstr(text, more) == NULL)
        text_append(text, size, &used, "%s%s", used > 0 ? ", " : "", more);
}

void hf_unplanned(struct hf *hf, const char *what)
{
    add_words(hf->model->unplanned, sizeof hf->model->unplanned, what);
}

void hf_unrun(struct hf *hf, const char *what)
{
    add_words(hf->model->unrun, sizeof hf->model->unrun, what);
}

void hf_warn_prediction(struct hf *hf)
{
    int layers = 0;
    if (hf_int(hf, "num_nextn_predict_layers", 0, &layers) == 1 && layers > 0)
        diag_warning(hf->errors, hf_place(hf, "num_nextn_predict_layers"),
                     "'num_nextn_predict_layers' is %d: MTP layers of this family are not "
                     "counted",
                     layers);
}

static void add_part(struct hf *hf, const struct model_part *part)
{
    struct model *model = hf->model;
    if (part->times == 0 || part->params == 0)
        return;
    if (model->part_count < MODEL_MAX_PARTS)
        model->parts[model->part_count++] = *part;
    else
        diag_error(hf->errors, hf->map->at, "more than %d kinds of parts", MODEL_MAX_PARTS);
}

void hf_part(struct hf *hf, enum component component, const char *name, int times, uint64_t params)
{
    struct model_part part = { .component = (uint8_t)component, .times = times, .params = params };
    (void)text_copy(part.name, sizeof part.name, name);
    add_part(hf, &part);
}

void hf_lookup(struct hf *hf, enum component component, const char *name, uint64_t params)
{
    struct model_part part = { .component = (uint8_t)component, .times = 1, .params = params };
    part.lookup = true;
    (void)text_copy(part.name, sizeof part.name, name);
    add_part(hf, &part);
}

uint64_t linear_params(int64_t in, int64_t out, bool bias)
{
    return add_sat(mul_sat((uint64_t)in, (uint64_t)out), bias ? (uint64_t)out : 0);
}

uint64_t norm_params(int64_t width, bool bias)
{
    return mul_sat((uint64_t)width, bias ? 2 : 1);
}

int hf_times(int a, int b)
{
    return a > 0 && b > HF_MAX_SIZE / a ? HF_MAX_SIZE : a * b;
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
    struct pos at = hf_place(hf, key);
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
