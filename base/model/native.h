/* native.h - the native form of a model (models/NAME.yaml, and models inside plan files): one row a
 * field feeds reading, writing, --set and the spelling hints. Private to base/model. */
#ifndef RANKFIT_BASE_MODEL_NATIVE_H
#define RANKFIT_BASE_MODEL_NATIVE_H

#include "base/model/model.h"

enum field_type { FIELD_INT, FIELD_LONG, FIELD_REAL, FIELD_BOOL, FIELD_ROPE };
enum section {
    SECTION_ROOT,
    SECTION_ATTENTION,
    SECTION_ROPE,
    SECTION_LATENT,
    SECTION_INDEXER,
    SECTION_LINEAR,
    SECTION_LIGHTNING,
    SECTION_MAMBA,
    SECTION_MOE,
    SECTION_VISION,
    SECTION_COUNT
};

/* OPTIONAL: an absent field has the value `absent`. YOUNGER: likewise, and not written at that
 * value, so that plans written before the field was known keep their digests. */
enum presence { OPTIONAL, NEEDED, YOUNGER };

/* One number or truth value of struct model. */
struct model_field {
    enum section section;
    const char *key;
    enum field_type type;
    size_t offset;
    double min, max, absent;
    enum presence presence;
};
extern const struct model_field model_fields[];
extern const size_t model_field_count;
extern const char *const section_names[SECTION_COUNT];

/* The kinds of layers as native files write them. */
extern const char *const mixer_names[MIXER_COUNT];
extern const char *const ffn_names[FFN_COUNT];

/* A FIELD_ROPE's values, by enum rope_form. */
extern const char *const rope_form_names[ROPE_FORM_COUNT];
/* The value of a name, or -1. */
int rope_form_find(const char *name);

/* False for a section that the model has no layer or tower for. */
bool section_present(const struct model *model, enum section section);

/* Stores through the row's type; the value must be in range. */
void field_store(struct model *model, const struct model_field *field, double value);
double field_load(const struct model *model, const struct model_field *field);

/* Reads the native form without judging consistency (model_check does). */
int native_read(const struct node *root, struct model *ret, struct diag_list *reterr);

/* The length of the shortest prefix that, repeated, gives pattern[0..count). */
int pattern_period(const uint8_t *pattern, int count);

#endif
