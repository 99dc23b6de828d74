#include "base/model/native.h"

#include "base/model/hf.h"
#include "base/text.h"

#include <stddef.h>
#include <string.h>

#define AT(member) offsetof(struct model, member)

const struct model_field model_fields[] = {
    { SECTION_ROOT, "layers", FIELD_INT, AT(layers), 1, MODEL_MAX_LAYERS, 0, true },
    { SECTION_ROOT, "hidden", FIELD_INT, AT(hidden), 1, HF_MAX_SIZE, 0, true },
    { SECTION_ROOT, "vocab", FIELD_LONG, AT(vocab), 1, HF_MAX_SIZE, 0, true },
    { SECTION_ROOT, "tied", FIELD_BOOL, AT(tied), 0, 1, 0, true },
    { SECTION_ROOT, "norm_eps", FIELD_REAL, AT(norm_eps), 1e-12, 1, 1e-6, true },
    { SECTION_ROOT, "norm_zero_centred", FIELD_BOOL, AT(norm_zero_centred), 0, 1, 0, false },
    { SECTION_ROOT, "context_tokens", FIELD_LONG, AT(context_tokens), 0, 1e12, 0, false },
    { SECTION_ROOT, "dense_width", FIELD_INT, AT(dense_width), 0, HF_MAX_SIZE, 0, false },
    { SECTION_ROOT, "mtp_layers", FIELD_INT, AT(mtp_layers), 0, 16, 0, false },
    { SECTION_ROOT, "mtp_trained", FIELD_BOOL, AT(mtp_trained), 0, 1, 0, false },
    { SECTION_ROOT, "vision_trained", FIELD_BOOL, AT(vision_trained), 0, 1, 0, false },
    { SECTION_ATTENTION, "heads", FIELD_INT, AT(gqa.heads), 1, HF_MAX_SIZE, 0, true },
    { SECTION_ATTENTION, "kv_heads", FIELD_INT, AT(gqa.kv_heads), 1, HF_MAX_SIZE, 0, true },
    { SECTION_ATTENTION, "head_dim", FIELD_INT, AT(gqa.head_dim), 1, HF_MAX_SIZE, 0, true },
    { SECTION_ATTENTION, "qk_norm", FIELD_BOOL, AT(gqa.qk_norm), 0, 1, 0, true },
    { SECTION_ATTENTION, "output_gate", FIELD_BOOL, AT(gqa.output_gate), 0, 1, 0, false },
    { SECTION_ATTENTION, "qkv_bias", FIELD_BOOL, AT(gqa.qkv_bias), 0, 1, 0, false },
    { SECTION_ATTENTION, "rotary_fraction", FIELD_REAL, AT(gqa.rotary_fraction), 0, 1, 1, false },
    { SECTION_ATTENTION, "rope_theta", FIELD_REAL, AT(gqa.rope_theta), 1, 1e12, 0, true },
    { SECTION_ATTENTION, "window_tokens", FIELD_INT, AT(gqa.window_tokens), 0, HF_MAX_SIZE, 0,
      false },
    { SECTION_LINEAR, "key_heads", FIELD_INT, AT(gdn.key_heads), 1, HF_MAX_SIZE, 0, true },
    { SECTION_LINEAR, "value_heads", FIELD_INT, AT(gdn.value_heads), 1, HF_MAX_SIZE, 0, true },
    { SECTION_LINEAR, "key_dim", FIELD_INT, AT(gdn.key_dim), 1, HF_MAX_SIZE, 0, true },
    { SECTION_LINEAR, "value_dim", FIELD_INT, AT(gdn.value_dim), 1, HF_MAX_SIZE, 0, true },
    { SECTION_LINEAR, "conv_width", FIELD_INT, AT(gdn.conv_width), 1, 1024, 0, true },
    { SECTION_MOE, "experts", FIELD_INT, AT(moe.experts), 1, HF_MAX_SIZE, 0, true },
    { SECTION_MOE, "top_k", FIELD_INT, AT(moe.top_k), 1, HF_MAX_SIZE, 0, true },
    { SECTION_MOE, "width", FIELD_INT, AT(moe.width), 1, HF_MAX_SIZE, 0, true },
    { SECTION_MOE, "shared_width", FIELD_INT, AT(moe.shared_width), 0, HF_MAX_SIZE, 0, false },
    { SECTION_MOE, "shared_gate", FIELD_BOOL, AT(moe.shared_gate), 0, 1, 0, false },
    { SECTION_MOE, "normalize_top_k", FIELD_BOOL, AT(moe.normalize_top_k), 0, 1, 0, true },
    { SECTION_VISION, "depth", FIELD_INT, AT(vision.depth), 1, MODEL_MAX_LAYERS, 0, true },
    { SECTION_VISION, "width", FIELD_INT, AT(vision.width), 1, HF_MAX_SIZE, 0, true },
    { SECTION_VISION, "mlp_width", FIELD_INT, AT(vision.mlp_width), 1, HF_MAX_SIZE, 0, true },
    { SECTION_VISION, "heads", FIELD_INT, AT(vision.heads), 1, HF_MAX_SIZE, 0, true },
    { SECTION_VISION, "patch", FIELD_INT, AT(vision.patch), 1, 1024, 0, true },
    { SECTION_VISION, "temporal_patch", FIELD_INT, AT(vision.temporal_patch), 1, 64, 0, true },
    { SECTION_VISION, "merge", FIELD_INT, AT(vision.merge), 1, 64, 0, true },
    { SECTION_VISION, "in_channels", FIELD_INT, AT(vision.in_channels), 1, 64, 0, true },
    { SECTION_VISION, "positions", FIELD_INT, AT(vision.positions), 1, HF_MAX_SIZE, 0, true },
};
const size_t model_field_count = sizeof model_fields / sizeof model_fields[0];

const char *const section_names[SECTION_COUNT] = { "", "attention", "linear_attention", "moe",
                                                   "vision" };

/* Keys that are no field rows: texts, patterns, sections. "source" says where values are from. */
static const char *const other_root_keys[] = {
    "schema",           "name", "title",  "architecture", "source", "mixers", "ffns", "attention",
    "linear_attention", "moe",  "vision",
};
static const char *const mixer_names[MIXER_COUNT] = { "gqa", "gdn" };
static const char *const ffn_names[FFN_COUNT] = { "dense", "moe" };

enum { MAX_KEYS = 40 };

bool section_present(const struct model *model, enum section section)
{
    switch (section) {
    case SECTION_LINEAR:
        return model->gdn.key_heads > 0;
    case SECTION_MOE:
        return model->moe.experts > 0;
    case SECTION_VISION:
        return model->vision.depth > 0;
    case SECTION_ROOT:
    case SECTION_ATTENTION:
    case SECTION_COUNT:
        break;
    }
    return true;
}

void field_store(struct model *model, const struct model_field *field, double value)
{
    char *at = (char *)model + field->offset;
    switch (field->type) {
    case FIELD_INT:
        memcpy(at, &(int){ (int)value }, sizeof(int));
        break;
    case FIELD_LONG:
        memcpy(at, &(int64_t){ (int64_t)value }, sizeof(int64_t));
        break;
    case FIELD_REAL:
        memcpy(at, &value, sizeof value);
        break;
    case FIELD_BOOL:
        memcpy(at, &(bool){ value != 0.0 }, sizeof(bool));
        break;
    }
}

double field_load(const struct model *model, const struct model_field *field)
{
    const char *at = (const char *)model + field->offset;
    int whole = 0;
    int64_t number = 0;
    double real = 0;
    bool truth = false;
    switch (field->type) {
    case FIELD_INT:
        memcpy(&whole, at, sizeof whole);
        return whole;
    case FIELD_LONG:
        memcpy(&number, at, sizeof number);
        return (double)number;
    case FIELD_REAL:
        memcpy(&real, at, sizeof real);
        return real;
    case FIELD_BOOL:
        memcpy(&truth, at, sizeof truth);
        return truth;
    }
    return 0;
}

static int missing_key(const struct node *map, const char *key, struct diag_list *reterr)
{
    diag_error(reterr, map->at, "required key '%s' is missing", key);
    return diag_hint(reterr, "see `models/qwen3-30b-a3b.yaml` for a complete one");
}

static int read_field(const struct node *map, const struct model_field *field, struct model *ret,
                      struct diag_list *reterr)
{
    int64_t whole = 0;
    double real = field->absent;
    bool truth = false;
    int got;
    if (field->type == FIELD_REAL) {
        got = node_real(map, field->key, field->min, field->max, &real, reterr);
    } else if (field->type == FIELD_BOOL) {
        got = node_bool(map, field->key, &truth, reterr);
        real = got == 1 ? truth : field->absent;
    } else {
        got = node_int(map, field->key, (int64_t)field->min, (int64_t)field->max, &whole, reterr);
        real = got == 1 ? (double)whole : field->absent;
    }
    if (got >= 0)
        field_store(ret, field, real);
    return got == 0 && field->needed ? missing_key(map, field->key, reterr) : got;
}

static void read_section(const struct node *map, enum section section, struct model *ret,
                         struct diag_list *reterr)
{
    const char *known[MAX_KEYS] = { "source" };
    size_t count = 1;
    if (section == SECTION_ROOT) {
        count = sizeof other_root_keys / sizeof other_root_keys[0];
        memcpy(known, other_root_keys, sizeof other_root_keys);
    }
    for (size_t i = 0; i < model_field_count; i++) {
        if (model_fields[i].section != section)
            continue;
        known[count++] = model_fields[i].key;
        read_field(map, &model_fields[i], ret, reterr);
    }
    node_check_keys(map, known, count, reterr);
}

static int kind_of(const struct node *node, const char *const *names, size_t count,
                   struct diag_list *reterr)
{
    for (size_t i = 0; i < count && node->kind == NODE_TEXT; i++) {
        if (strcmp(node->text, names[i]) == 0)
            return (int)i;
    }
    diag_error(reterr, node->at, "'%s' is not a kind of layer",
               node->kind == NODE_TEXT ? node->text : node_kind_name(node->kind));
    return diag_hint(reterr, "one of %s, %s", names[0], names[1]);
}

/* A list of kinds, repeated until every layer has one. Absent: all layers are `absent`. */
static void read_pattern(const struct node *root, const char *key, const char *const *names,
                         uint8_t absent, int layers, uint8_t *ret, struct diag_list *reterr)
{
    const struct node *list = NULL;
    memset(ret, absent, (size_t)layers);
    if (node_list(root, key, &list, reterr) != 1 || layers == 0)
        return;
    if (list->count == 0 || list->count > (size_t)layers) {
        diag_error(reterr, list->at, "'%s' has %zu entries for %d layers", key, list->count,
                   layers);
        diag_hint(reterr, "1 to %d entries; they repeat", layers);
        return;
    }
    int period = 0;
    for (const struct node *n = list->child; n != NULL; n = n->next, period++) {
        int kind = kind_of(n, names, 2, reterr);
        ret[period] = (uint8_t)(kind < 0 ? absent : kind);
    }
    for (int i = period; i < layers; i++)
        ret[i] = ret[i - period];
}

static void read_text(const struct node *root, const char *key, char *ret, size_t size,
                      struct diag_list *reterr)
{
    const char *text = NULL;
    int got = node_text(root, key, &text, reterr);
    if (got == 0)
        missing_key(root, key, reterr);
    else if (got == 1 && text_copy(ret, size, text) != 0)
        diag_error(reterr, node_get(root, key)->at, "'%s' is longer than %zu characters", key,
                   size - 1);
}

int native_read(const struct node *root, struct model *ret, struct diag_list *reterr)
{
    int before = reterr->errors;
    const struct node *map = NULL;
    read_text(root, "name", ret->name, sizeof ret->name, reterr);
    read_text(root, "title", ret->title, sizeof ret->title, reterr);
    read_section(root, SECTION_ROOT, ret, reterr);
    for (enum section s = SECTION_ATTENTION; s < SECTION_COUNT; s++) {
        int got = node_map(root, section_names[s], &map, reterr);
        if (got == 1)
            read_section(map, s, ret, reterr);
        else if (got == 0 && s == SECTION_ATTENTION)
            missing_key(root, section_names[s], reterr);
    }
    read_pattern(root, "mixers", mixer_names, MIXER_GQA, ret->layers, ret->layer_mixer, reterr);
    read_pattern(root, "ffns", ffn_names, ret->moe.experts > 0 ? FFN_MOE : FFN_DENSE, ret->layers,
                 ret->layer_ffn, reterr);
    return reterr->errors == before ? 0 : -1;
}

int pattern_period(const uint8_t *pattern, int count)
{
    for (int period = 1; period < count; period++) {
        if (memcmp(pattern, pattern + period, (size_t)(count - period)) == 0)
            return period;
    }
    return count;
}

static json_t *field_json(const struct model *model, const struct model_field *field)
{
    double value = field_load(model, field);
    if (field->type == FIELD_BOOL)
        return json_boolean(value != 0.0);
    return field->type == FIELD_REAL ? json_real(value) : json_integer((json_int_t)value);
}

static void put_section(json_t *map, const struct model *model, enum section section)
{
    for (size_t i = 0; i < model_field_count; i++) {
        if (model_fields[i].section == section)
            json_object_set_new(map, model_fields[i].key, field_json(model, &model_fields[i]));
    }
}

static json_t *pattern_json(const uint8_t *pattern, int layers, const char *const *names)
{
    json_t *list = json_array();
    int period = pattern_period(pattern, layers);
    for (int i = 0; i < period; i++)
        json_array_append_new(list, json_string(names[pattern[i]]));
    return list;
}

json_t *model_to_json(const struct model *model)
{
    json_t *root = json_object();
    json_object_set_new(root, "schema", json_string("rankfit.model/1"));
    json_object_set_new(root, "name", json_string(model->name));
    json_object_set_new(root, "title", json_string(model->title));
    json_object_set_new(root, "architecture", json_string(model->architecture));
    put_section(root, model, SECTION_ROOT);
    json_object_set_new(root, "mixers",
                        pattern_json(model->layer_mixer, model->layers, mixer_names));
    json_object_set_new(root, "ffns", pattern_json(model->layer_ffn, model->layers, ffn_names));
    for (enum section s = SECTION_ATTENTION; s < SECTION_COUNT; s++) {
        if (!section_present(model, s))
            continue;
        json_t *map = json_object();
        put_section(map, model, s);
        json_object_set_new(root, section_names[s], map);
    }
    return root;
}
