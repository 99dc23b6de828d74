#include "base/model/native.h"

#include "base/model/hf.h"
#include "base/model/tensor.h"
#include "base/text.h"
#include "base/units.h"

#include <stddef.h>
#include <string.h>

#define AT(member) offsetof(struct model, member)

/* A key without its section means the first that has it. */
const struct model_field model_fields[] = {
    { SECTION_ROOT, "layers", FIELD_INT, AT(layers), 1, MODEL_MAX_LAYERS, 0, NEEDED },
    { SECTION_ROOT, "hidden", FIELD_INT, AT(hidden), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_ROOT, "vocab", FIELD_LONG, AT(vocab), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_ROOT, "tied", FIELD_BOOL, AT(tied), 0, 1, 0, NEEDED },
    { SECTION_ROOT, "norm_eps", FIELD_REAL, AT(norm_eps), 1e-12, 1, 1e-6, NEEDED },
    { SECTION_ROOT, "norm_zero_centred", FIELD_BOOL, AT(norm_zero_centred), 0, 1, 0, OPTIONAL },
    { SECTION_ROOT, "context_tokens", FIELD_LONG, AT(context_tokens), 0, 1e12, 0, OPTIONAL },
    { SECTION_ROOT, "dense_width", FIELD_INT, AT(dense_width), 0, HF_MAX_SIZE, 0, OPTIONAL },
    { SECTION_ROOT, "mlp_ungated", FIELD_BOOL, AT(mlp_ungated), 0, 1, 0, YOUNGER },
    { SECTION_ROOT, "mlp_bias", FIELD_BOOL, AT(mlp_bias), 0, 1, 0, YOUNGER },
    { SECTION_ROOT, "mtp_layers", FIELD_INT, AT(mtp_layers), 0, 16, 0, OPTIONAL },
    { SECTION_ROOT, "mtp_trained", FIELD_BOOL, AT(mtp_trained), 0, 1, 0, OPTIONAL },
    { SECTION_ROOT, "vision_trained", FIELD_BOOL, AT(vision_trained), 0, 1, 0, OPTIONAL },
    { SECTION_ROOT, "vision_frozen", FIELD_BOOL, AT(vision_frozen), 0, 1, 0, YOUNGER },
    { SECTION_ATTENTION, "heads", FIELD_INT, AT(gqa.heads), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_ATTENTION, "kv_heads", FIELD_INT, AT(gqa.kv_heads), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_ATTENTION, "head_dim", FIELD_INT, AT(gqa.head_dim), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_ATTENTION, "qk_norm", FIELD_BOOL, AT(gqa.qk_norm), 0, 1, 0, NEEDED },
    { SECTION_ATTENTION, "qk_norm_wide", FIELD_BOOL, AT(gqa.qk_norm_wide), 0, 1, 0, YOUNGER },
    { SECTION_ATTENTION, "output_gate", FIELD_BOOL, AT(gqa.output_gate), 0, 1, 0, OPTIONAL },
    { SECTION_ATTENTION, "qkv_bias", FIELD_BOOL, AT(gqa.qkv_bias), 0, 1, 0, OPTIONAL },
    { SECTION_ATTENTION, "output_bias", FIELD_BOOL, AT(gqa.output_bias), 0, 1, 0, YOUNGER },
    { SECTION_ATTENTION, "sinks", FIELD_BOOL, AT(gqa.sinks), 0, 1, 0, YOUNGER },
    { SECTION_ATTENTION, "rotary_fraction", FIELD_REAL, AT(gqa.rotary_fraction), 0, 1, 1,
      OPTIONAL },
    { SECTION_ATTENTION, "rope_theta", FIELD_REAL, AT(gqa.rope_theta), 1, 1e12, 0, NEEDED },
    { SECTION_ATTENTION, "window_tokens", FIELD_INT, AT(gqa.window_tokens), 0, HF_MAX_SIZE, 0,
      OPTIONAL },
    { SECTION_ATTENTION, "local_tokens", FIELD_INT, AT(gqa.local_tokens), 0, HF_MAX_SIZE, 0,
      YOUNGER },
    { SECTION_ATTENTION, "local_chunked", FIELD_BOOL, AT(gqa.local_chunked), 0, 1, 0, YOUNGER },
    { SECTION_ATTENTION, "rope_adjacent", FIELD_BOOL, AT(gqa.rope_adjacent), 0, 1, 0, YOUNGER },
    { SECTION_ROPE, "form", FIELD_ROPE, AT(gqa.rope.form), 0, ROPE_FORM_COUNT - 1, 0, NEEDED },
    { SECTION_ROPE, "factor", FIELD_REAL, AT(gqa.rope.factor), 1e-3, 1e6, 1, OPTIONAL },
    { SECTION_ROPE, "original_tokens", FIELD_LONG, AT(gqa.rope.original_tokens), 0, 1e12, 0,
      OPTIONAL },
    { SECTION_ROPE, "low", FIELD_REAL, AT(gqa.rope.low), 0, 1e6, 0, OPTIONAL },
    { SECTION_ROPE, "high", FIELD_REAL, AT(gqa.rope.high), 0, 1e6, 0, OPTIONAL },
    { SECTION_ROPE, "unrounded", FIELD_BOOL, AT(gqa.rope.unrounded), 0, 1, 0, YOUNGER },
    { SECTION_ROPE, "rotation_factor", FIELD_REAL, AT(gqa.rope.rotation_factor), 0, 1e3, 0,
      YOUNGER },
    { SECTION_ROPE, "score_factor", FIELD_REAL, AT(gqa.rope.score_factor), 0, 1e3, 0, YOUNGER },
    { SECTION_LINEAR, "key_heads", FIELD_INT, AT(gdn.key_heads), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_LINEAR, "value_heads", FIELD_INT, AT(gdn.value_heads), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_LINEAR, "key_dim", FIELD_INT, AT(gdn.key_dim), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_LINEAR, "value_dim", FIELD_INT, AT(gdn.value_dim), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_LINEAR, "conv_width", FIELD_INT, AT(gdn.conv_width), 1, 1024, 0, NEEDED },
    { SECTION_MOE, "experts", FIELD_INT, AT(moe.experts), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_MOE, "top_k", FIELD_INT, AT(moe.top_k), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_MOE, "width", FIELD_INT, AT(moe.width), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_MOE, "shared_width", FIELD_INT, AT(moe.shared_width), 0, HF_MAX_SIZE, 0, OPTIONAL },
    { SECTION_MOE, "shared_gate", FIELD_BOOL, AT(moe.shared_gate), 0, 1, 0, OPTIONAL },
    { SECTION_MOE, "normalize_top_k", FIELD_BOOL, AT(moe.normalize_top_k), 0, 1, 0, NEEDED },
    { SECTION_MOE, "latent", FIELD_INT, AT(moe.latent), 0, HF_MAX_SIZE, 0, YOUNGER },
    { SECTION_MOE, "router_bias", FIELD_BOOL, AT(moe.router_bias), 0, 1, 0, YOUNGER },
    { SECTION_MOE, "expert_bias", FIELD_BOOL, AT(moe.expert_bias), 0, 1, 0, YOUNGER },
    { SECTION_MOE, "sigmoid", FIELD_BOOL, AT(moe.sigmoid), 0, 1, 0, YOUNGER },
    { SECTION_MOE, "groups", FIELD_INT, AT(moe.groups), 0, HF_MAX_SIZE, 0, YOUNGER },
    { SECTION_MOE, "group_limit", FIELD_INT, AT(moe.group_limit), 0, HF_MAX_SIZE, 0, YOUNGER },
    { SECTION_MOE, "scaling", FIELD_REAL, AT(moe.scaling), 0, 1e6, 0, YOUNGER },
    { SECTION_LATENT, "q_rank", FIELD_INT, AT(mla.q_rank), 0, HF_MAX_SIZE, 0, OPTIONAL },
    { SECTION_LATENT, "kv_rank", FIELD_INT, AT(mla.kv_rank), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_LATENT, "nope_dim", FIELD_INT, AT(mla.nope_dim), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_LATENT, "rope_dim", FIELD_INT, AT(mla.rope_dim), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_LATENT, "value_dim", FIELD_INT, AT(mla.value_dim), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_INDEXER, "heads", FIELD_INT, AT(indexer.heads), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_INDEXER, "dim", FIELD_INT, AT(indexer.dim), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_INDEXER, "top_k", FIELD_INT, AT(indexer.top_k), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_LIGHTNING, "heads", FIELD_INT, AT(lightning.heads), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_LIGHTNING, "head_dim", FIELD_INT, AT(lightning.head_dim), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_MAMBA, "heads", FIELD_INT, AT(mamba.heads), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_MAMBA, "head_dim", FIELD_INT, AT(mamba.head_dim), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_MAMBA, "state", FIELD_INT, AT(mamba.state), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_MAMBA, "groups", FIELD_INT, AT(mamba.groups), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_MAMBA, "conv_width", FIELD_INT, AT(mamba.conv_width), 1, 1024, 0, NEEDED },
    { SECTION_MAMBA, "chunk_tokens", FIELD_INT, AT(mamba.chunk_tokens), 1, HF_MAX_SIZE, 128,
      OPTIONAL },
    { SECTION_VISION, "depth", FIELD_INT, AT(vision.depth), 1, MODEL_MAX_LAYERS, 0, NEEDED },
    { SECTION_VISION, "width", FIELD_INT, AT(vision.width), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_VISION, "mlp_width", FIELD_INT, AT(vision.mlp_width), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_VISION, "heads", FIELD_INT, AT(vision.heads), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_VISION, "patch", FIELD_INT, AT(vision.patch), 1, 1024, 0, NEEDED },
    { SECTION_VISION, "temporal_patch", FIELD_INT, AT(vision.temporal_patch), 1, 64, 0, NEEDED },
    { SECTION_VISION, "merge", FIELD_INT, AT(vision.merge), 1, 64, 0, NEEDED },
    { SECTION_VISION, "in_channels", FIELD_INT, AT(vision.in_channels), 1, 64, 0, NEEDED },
    { SECTION_VISION, "positions", FIELD_INT, AT(vision.positions), 1, HF_MAX_SIZE, 0, NEEDED },
    { SECTION_VISION, "deepstack", FIELD_INT, AT(vision.deepstack), 0, 64, 0, YOUNGER },
    { SECTION_VISION, "adapter_in", FIELD_INT, AT(vision.adapter_in), 0, HF_MAX_SIZE, 0, YOUNGER },
    { SECTION_VISION, "adapter_out", FIELD_INT, AT(vision.adapter_out), 0, HF_MAX_SIZE, 0,
      YOUNGER },
    { SECTION_VISION, "final_norm", FIELD_BOOL, AT(vision.final_norm), 0, 1, 0, YOUNGER },
    { SECTION_VISION, "listed", FIELD_BOOL, AT(vision.listed), 0, 1, 0, YOUNGER },
};
const size_t model_field_count = sizeof model_fields / sizeof model_fields[0];

const char *const section_names[SECTION_COUNT] = {
    "",          "attention", "rope", "latent", "indexer", "linear_attention",
    "lightning", "mamba",     "moe",  "vision",
};

/* Keys that are no field rows: texts, patterns, sections. "source" says where values are from. */
static const char *const other_root_keys[] = {
    "schema", "name", "title", "architecture", "source",
    "mixers", "ffns", "parts", "unplanned",    "unrun",
};
const char *const mixer_names[MIXER_COUNT] = {
    [MIXER_GQA] = "gqa",
    [MIXER_GDN] = "gdn",
    [MIXER_LOCAL] = "local",
    [MIXER_MLA] = "mla",
    [MIXER_DSA] = "dsa",
    [MIXER_DSA_SHARED] = "dsa_shared",
    [MIXER_LIGHTNING] = "lightning",
    [MIXER_MAMBA] = "mamba",
    [MIXER_NONE] = "none",
    [MIXER_OTHER] = "other",
};
const char *const ffn_names[FFN_COUNT] = {
    [FFN_DENSE] = "dense", [FFN_MOE] = "moe", [FFN_NONE] = "none", [FFN_OTHER] = "other"
};

const char *const rope_form_names[ROPE_FORM_COUNT] = {
    [ROPE_PLAIN] = "plain",   [ROPE_LINEAR] = "linear", [ROPE_DYNAMIC] = "dynamic",
    [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn",     [ROPE_OTHER] = "other"
};

int rope_form_find(const char *name)
{
    for (int i = 0; i < ROPE_FORM_COUNT; i++)
        if (strcmp(rope_form_names[i], name) == 0)
            return i;
    return -1;
}

enum { MAX_KEYS = 48, PLAIN_PATTERN = 16 };

bool section_present(const struct model *model, enum section section)
{
    switch (section) {
    case SECTION_ROPE:
        return model->gqa.rope.form != ROPE_PLAIN;
    case SECTION_LATENT:
        return model->mla.kv_rank > 0;
    case SECTION_INDEXER:
        return model->indexer.heads > 0;
    case SECTION_LINEAR:
        return model->gdn.key_heads > 0;
    case SECTION_LIGHTNING:
        return model->lightning.heads > 0;
    case SECTION_MAMBA:
        return model->mamba.heads > 0;
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
    case FIELD_ROPE:
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
    case FIELD_ROPE:
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

static int read_rope_form(const struct node *map, const char *key, double *ret,
                          struct diag_list *reterr)
{
    const char *text = NULL;
    int got = node_text(map, key, &text, reterr);
    if (got != 1)
        return got;
    *ret = rope_form_find(text);
    if (*ret >= 0)
        return 1;
    diag_error(reterr, node_get(map, key)->at, "'%s' is not a form of rope", text);
    diag_hint(reterr, "one of plain, linear, dynamic, llama3, yarn, other");
    return -1;
}

static int read_field(const struct node *map, const struct model_field *field, struct model *ret,
                      struct diag_list *reterr)
{
    int64_t whole = 0;
    double real = field->absent;
    bool truth = false;
    int got;
    if (field->type == FIELD_ROPE) {
        got = read_rope_form(map, field->key, &real, reterr);
    } else if (field->type == FIELD_REAL) {
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
    return got == 0 && field->presence == NEEDED ? missing_key(map, field->key, reterr) : got;
}

static void read_section(const struct node *map, enum section section, struct model *ret,
                         struct diag_list *reterr)
{
    const char *known[MAX_KEYS] = { "source" };
    size_t count = 1;
    if (section == SECTION_ROOT) {
        count = sizeof other_root_keys / sizeof other_root_keys[0];
        memcpy(known, other_root_keys, sizeof other_root_keys);
        for (enum section s = SECTION_ATTENTION; s < SECTION_COUNT; s++)
            known[count++] = section_names[s];
    }
    for (size_t i = 0; i < model_field_count; i++) {
        if (model_fields[i].section != section)
            continue;
        known[count++] = model_fields[i].key;
        read_field(map, &model_fields[i], ret, reterr);
    }
    node_check_keys(map, known, count, reterr);
}

struct kinds {
    const char *const *names;
    int count;
    uint8_t absent; /* of every layer when the pattern is not given */
};

/* "moe*58": a kind and how many layers in a row have it; without a number one. Returns the kind, or
 * -1. */
static int kind_of(const struct node *node, const struct kinds *kinds, int *ret_times,
                   struct diag_list *reterr)
{
    char hint[160] = "one of ", name[16] = "";
    size_t used = strlen(hint);
    int64_t times = 1;
    const char *text = node->kind == NODE_TEXT ? node->text : "";
    size_t length = strcspn(text, "*");
    if (length < sizeof name)
        memcpy(name, text, length);
    bool counted = text[length] == '\0' ||
                   units_parse_int(text + length + 1, 1, MODEL_MAX_LAYERS, &times) == 0;
    *ret_times = (int)times;
    for (int i = 0; i < kinds->count; i++) {
        if (counted && strcmp(name, kinds->names[i]) == 0)
            return i;
        text_append(hint, sizeof hint, &used, "%s%s", i > 0 ? ", " : "", kinds->names[i]);
    }
    diag_error(reterr, node->at, "'%s' is not a kind of layer",
               node->kind == NODE_TEXT ? node->text : node_kind_name(node->kind));
    return diag_hint(reterr, "%s; moe*58 stands for 58 in a row", hint);
}

/* A list of kinds, repeated until every layer has one. */
static void read_pattern(const struct node *root, const char *key, const struct kinds *kinds,
                         int layers, uint8_t *ret, struct diag_list *reterr)
{
    const struct node *list = NULL;
    int period = 0, times = 1;
    memset(ret, kinds->absent, (size_t)layers);
    if (node_list(root, key, &list, reterr) != 1 || layers == 0)
        return;
    for (const struct node *n = list->child; n != NULL; n = n->next, period += times) {
        int kind = kind_of(n, kinds, &times, reterr);
        for (int i = period; kind >= 0 && i < period + times && i < layers; i++)
            ret[i] = (uint8_t)kind;
    }
    if (period == 0 || period > layers) {
        diag_error(reterr, list->at, "'%s' has %d entries for %d layers", key, period, layers);
        diag_hint(reterr, "1 to %d entries; they repeat", layers);
        return;
    }
    for (int i = period; i < layers; i++)
        ret[i] = ret[i - period];
}

static void read_text(const struct node *root, const char *key, enum presence presence, char *ret,
                      size_t size, struct diag_list *reterr)
{
    const char *text = NULL;
    int got = node_text(root, key, &text, reterr);
    if (got == 0 && presence == NEEDED)
        missing_key(root, key, reterr);
    else if (got == 1 && text_copy(ret, size, text) != 0)
        diag_error(reterr, node_get(root, key)->at, "'%s' is longer than %zu characters", key,
                   size - 1);
}

static void read_part(const struct node *map, struct model_part *ret, struct diag_list *reterr)
{
    static const char *const keys[] = { "name", "component", "times", "params", "lookup" };
    int64_t times = 1, params = 0;
    const char *component = "";
    if (node_check_keys(map, keys, sizeof keys / sizeof keys[0], reterr) != 0)
        return;
    read_text(map, "name", NEEDED, ret->name, sizeof ret->name, reterr);
    (void)node_bool(map, "lookup", &ret->lookup, reterr);
    (void)node_int(map, "times", 1, HF_MAX_SIZE, &times, reterr);
    if (node_int(map, "params", 1, INT64_MAX, &params, reterr) == 0)
        missing_key(map, "params", reterr);
    if (node_text(map, "component", &component, reterr) == 0)
        missing_key(map, "component", reterr);
    ret->times = (int)times;
    ret->params = (uint64_t)params;
    while (ret->component < COMPONENT_COUNT &&
           strcmp(component_names[ret->component], component) != 0)
        ret->component++;
    if (ret->component < COMPONENT_COUNT)
        return;
    diag_error(reterr, map->at, "'%s' is not a component", component);
    diag_hint(reterr, "such as attention, norms or vision");
    ret->component = 0;
}

static void read_parts(const struct node *root, struct model *ret, struct diag_list *reterr)
{
    const struct node *list = NULL;
    if (node_list(root, "parts", &list, reterr) != 1)
        return;
    if (list->count > MODEL_MAX_PARTS)
        diag_error(reterr, list->at, "%zu parts; at most %d are read", list->count,
                   MODEL_MAX_PARTS);
    for (const struct node *n = list->child; n != NULL && ret->part_count < MODEL_MAX_PARTS;
         n = n->next) {
        if (n->kind == NODE_MAP)
            read_part(n, &ret->parts[ret->part_count++], reterr);
        else
            diag_error(reterr, n->at, "a part is a map of keys, not %s", node_kind_name(n->kind));
    }
}

int native_read(const struct node *root, struct model *ret, struct diag_list *reterr)
{
    int before = reterr->errors;
    const struct node *map = NULL;
    read_text(root, "name", NEEDED, ret->name, sizeof ret->name, reterr);
    read_text(root, "title", NEEDED, ret->title, sizeof ret->title, reterr);
    read_text(root, "unplanned", OPTIONAL, ret->unplanned, sizeof ret->unplanned, reterr);
    read_text(root, "unrun", OPTIONAL, ret->unrun, sizeof ret->unrun, reterr);
    read_parts(root, ret, reterr);
    read_section(root, SECTION_ROOT, ret, reterr);
    for (enum section s = SECTION_ATTENTION; s < SECTION_COUNT; s++) {
        int got = node_map(root, section_names[s], &map, reterr);
        if (got == 1)
            read_section(map, s, ret, reterr);
        else if (got == 0 && s == SECTION_ATTENTION)
            missing_key(root, section_names[s], reterr);
    }
    const struct kinds mixers = { mixer_names, MIXER_COUNT, MIXER_GQA };
    const struct kinds ffns = { ffn_names, FFN_COUNT, ret->moe.experts > 0 ? FFN_MOE : FFN_DENSE };
    read_pattern(root, "mixers", &mixers, ret->layers, ret->layer_mixer, reterr);
    read_pattern(root, "ffns", &ffns, ret->layers, ret->layer_ffn, reterr);
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

static void put_field(struct json *map, const struct model *model, const struct model_field *field)
{
    double value = field_load(model, field);
    if (field->type == FIELD_ROPE)
        json_put_text(map, field->key, rope_form_names[(int)value]);
    else if (field->type == FIELD_BOOL)
        json_put_bool(map, field->key, value != 0.0);
    else if (field->type == FIELD_REAL)
        json_put_number(map, field->key, value);
    else
        json_put_int(map, field->key, (int64_t)value);
}

static void put_section(struct json *map, const struct model *model, enum section section)
{
    for (size_t i = 0; i < model_field_count; i++) {
        const struct model_field *field = &model_fields[i];
        if (field->section != section)
            continue;
        if (field->presence == YOUNGER && field_load(model, field) == field->absent)
            continue;
        put_field(map, model, field);
    }
}

/* Entry by entry where a pattern is short, else in runs: "moe*58". */
static struct json *pattern_json(const uint8_t *pattern, int layers, const char *const *names)
{
    struct json *list = json_list();
    int period = pattern_period(pattern, layers), times = 1;
    for (int i = 0; i < period; i += times) {
        for (times = 1; period > PLAIN_PATTERN && i + times < period; times++)
            if (pattern[i + times] != pattern[i])
                break;
        char run[64];
        (void)snprintf(run, sizeof run, times > 1 ? "%s*%d" : "%s", names[pattern[i]], times);
        json_append_text(list, run);
    }
    return list;
}

static struct json *parts_json(const struct model *model)
{
    struct json *list = json_list();
    for (int i = 0; i < model->part_count; i++) {
        const struct model_part *part = &model->parts[i];
        struct json *map = json_map();
        json_put_text(map, "name", part->name);
        json_put_text(map, "component", component_names[part->component]);
        json_put_int(map, "times", part->times);
        json_put_int(map, "params", (int64_t)part->params);
        if (part->lookup)
            json_put_bool(map, "lookup", true);
        json_append(list, map);
    }
    return list;
}

struct json *model_to_json(const struct model *model)
{
    struct json *root = json_document("rankfit.model/1");
    json_put_text(root, "name", model->name);
    json_put_text(root, "title", model->title);
    json_put_text(root, "architecture", model->architecture);
    put_section(root, model, SECTION_ROOT);
    json_put(root, "mixers", pattern_json(model->layer_mixer, model->layers, mixer_names));
    json_put(root, "ffns", pattern_json(model->layer_ffn, model->layers, ffn_names));
    for (enum section s = SECTION_ATTENTION; s < SECTION_COUNT; s++) {
        if (!section_present(model, s))
            continue;
        struct json *map = json_map();
        put_section(map, model, s);
        json_put(root, section_names[s], map);
    }
    if (model->part_count > 0)
        json_put(root, "parts", parts_json(model));
    if (model->unplanned[0] != '\0')
        json_put_text(root, "unplanned", model->unplanned);
    if (model->unrun[0] != '\0')
        json_put_text(root, "unrun", model->unrun);
    return root;
}
