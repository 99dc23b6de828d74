/* Changing one fact of a model by name: `--set model.FIELD=value`. A field is its native key; keys
 * of the vision tower need their section in front ("vision.depth"), others may have it. */
#include "base/model/native.h"
#include "base/text.h"
#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 128, NAME_BYTES = 48 };

static bool field_is(const struct model_field *field, const char *name)
{
    const char *section = section_names[field->section];
    size_t length = strlen(section);
    if (field->section != SECTION_VISION && strcmp(field->key, name) == 0)
        return true;
    return length > 0 && strncmp(name, section, length) == 0 && name[length] == '.' &&
           strcmp(name + length + 1, field->key) == 0;
}

bool model_has_field(const char *name)
{
    for (size_t i = 0; i < model_field_count; i++)
        if (field_is(&model_fields[i], name))
            return true;
    return strcmp(name, "mtp") == 0 || strcmp(name, "vision") == 0;
}

static int unknown_field(const char *name, struct pos at, struct diag_list *reterr)
{
    const char *names[MAX_NAMES] = { "mtp", "vision" };
    char full[MAX_NAMES][NAME_BYTES];
    size_t count = 2;
    for (size_t i = 0; i < model_field_count && count < MAX_NAMES; i++, count++) {
        const struct model_field *field = &model_fields[i];
        size_t used = 0;
        bool dotted = field->section != SECTION_ROOT &&
                      (field->section == SECTION_VISION || strchr(name, '.') != NULL);
        text_append(full[count], NAME_BYTES, &used, "%s%s%s",
                    dotted ? section_names[field->section] : "", dotted ? "." : "", field->key);
        names[count] = full[count];
    }
    const char *nearest = text_nearest(name, names, count);
    diag_error(reterr, at, "model.%s is not a fact of a model", name);
    if (nearest != NULL)
        return diag_hint(reterr, "did you mean model.%s?", nearest);
    return diag_hint(reterr, "rankfit list keys shows the facts too");
}

static int bad_value(const char *field, const char *value, const char *wanted, struct pos at,
                     struct diag_list *reterr)
{
    diag_error(reterr, at, "model.%s cannot be '%s'", field, value);
    return diag_hint(reterr, "%s", wanted);
}

static int continue_pattern(uint8_t *pattern, int from, int to)
{
    int period = pattern_period(pattern, from);
    if (period > 1 && 2 * period > from && to > from)
        return -1;
    for (int i = from; i < to; i++)
        pattern[i] = pattern[i - period];
    for (int i = to; i < from; i++)
        pattern[i] = 0;
    return 0;
}

/* Fewer layers keep the first ones; more continue the pattern if it has been seen twice. */
static int set_layers(struct model *model, int layers, struct pos at, struct diag_list *reterr)
{
    struct model changed = *model;
    if (continue_pattern(changed.layer_mixer, model->layers, layers) != 0 ||
        continue_pattern(changed.layer_ffn, model->layers, layers) != 0) {
        diag_error(reterr, at, "model.layers=%d: the pattern of %d layers does not repeat", layers,
                   model->layers);
        return diag_hint(reterr, "at most %d; a model file can say what further layers are",
                         model->layers);
    }
    changed.layers = layers;
    *model = changed;
    return 0;
}

static int parse_bool(const char *value, double *ret)
{
    if (strcmp(value, "1") == 0 || strcmp(value, "true") == 0)
        *ret = 1;
    else if (strcmp(value, "0") == 0 || strcmp(value, "false") == 0)
        *ret = 0;
    else
        return -1;
    return 0;
}

static int parse_field(const struct model_field *field, const char *value, double *ret)
{
    int64_t whole = 0;
    char *end = NULL;
    if (field->type == FIELD_BOOL)
        return parse_bool(value, ret);
    if (field->type == FIELD_ROPE) {
        *ret = rope_form_find(value);
        return *ret < 0 ? -1 : 0;
    }
    if (field->type == FIELD_REAL) {
        *ret = strtod(value, &end);
        return end == value || *end != '\0' || !isfinite(*ret) || *ret < field->min ||
                       *ret > field->max
                   ? -1
                   : 0;
    }
    if (units_parse_int(value, (int64_t)field->min, (int64_t)field->max, &whole) != 0)
        return -1;
    *ret = (double)whole;
    return 0;
}

static int set_field(struct model *model, const struct model_field *field, const char *value,
                     struct pos at, struct diag_list *reterr)
{
    char wanted[96] = "";
    size_t used = 0;
    double number = 0;
    if (!section_present(model, field->section)) {
        diag_error(reterr, at, "model.%s: %s has no %s", field->key, model->name,
                   section_names[field->section]);
        return diag_hint(reterr, "only what the model has can be resized");
    }
    if (parse_field(field, value, &number) != 0) {
        if (field->type == FIELD_BOOL)
            text_append(wanted, sizeof wanted, &used, "true or false");
        else if (field->type == FIELD_ROPE)
            text_append(wanted, sizeof wanted, &used, "plain, linear, dynamic, llama3 or yarn");
        else
            text_append(wanted, sizeof wanted, &used, "a%s number from %.15g to %.15g",
                        field->type == FIELD_REAL ? "" : " whole", field->min, field->max);
        return bad_value(field->key, value, wanted, at, reterr);
    }
    if (strcmp(field->key, "layers") == 0)
        return set_layers(model, (int)number, at, reterr);
    field_store(model, field, number);
    return 0;
}

static int set_mtp(struct model *model, const char *value, struct pos at, struct diag_list *reterr)
{
    double trained = 0;
    if (parse_bool(value, &trained) != 0)
        return bad_value("mtp", value, "1: the multi-token-prediction layers are trained; 0: not",
                         at, reterr);
    if (trained != 0 && model->mtp_layers == 0) {
        diag_error(reterr, at, "model.mtp=1: %s has no multi-token-prediction layer", model->name);
        return diag_hint(reterr, "leave model.mtp out");
    }
    model->mtp_trained = trained != 0;
    return 0;
}

static int set_vision(struct model *model, const char *value, struct pos at,
                      struct diag_list *reterr)
{
    bool trained = strcmp(value, "trained") == 0;
    if (!trained && strcmp(value, "frozen") != 0)
        return bad_value("vision", value, "frozen or trained", at, reterr);
    if (model->vision.depth == 0) {
        diag_error(reterr, at, "model.vision=%s: %s has no vision tower", value, model->name);
        return diag_hint(reterr, "leave model.vision out");
    }
    model->vision_trained = trained;
    model->vision_frozen = !trained;
    return 0;
}

int model_set(struct model *model, const char *field, const char *value, struct pos at,
              struct diag_list *reterr)
{
    if (strcmp(field, "mtp") == 0)
        return set_mtp(model, value, at, reterr);
    if (strcmp(field, "vision") == 0)
        return set_vision(model, value, at, reterr);
    for (size_t i = 0; i < model_field_count; i++) {
        if (field_is(&model_fields[i], field))
            return set_field(model, &model_fields[i], value, at, reterr);
    }
    return unknown_field(field, at, reterr);
}
