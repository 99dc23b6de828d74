/* key.h - the free keys of --set: one row each feeds parser, range check, plan files, help and
 * `rankfit list keys`. */
#ifndef RANKFIT_BASE_LAYOUT_KEY_H
#define RANKFIT_BASE_LAYOUT_KEY_H

#include "base/diag.h"
#include "base/layout/layout.h"
#include "base/layout/primitives.h"
#include "base/tree.h"

#include <jansson.h>
#include <stddef.h>

/* What a plan decides. Zero in `set` means: derive it. */
struct choices {
    struct layout layout;
    struct primitives primitives;
};

enum key_type { KEY_INT, KEY_ENUM, KEY_BYTES, KEY_COUNT_LIST, KEY_FLAGS, KEY_INT_OR_ALL };

struct choice_key {
    const char *key;
    enum key_type type;
    size_t offset; /* in struct choices */
    int64_t min, max;
    const char *const *names; /* KEY_ENUM, KEY_FLAGS */
    int name_count;
    bool in_layout; /* printed under "layout" in plans, else under "primitives" */
    const char *help;
};
extern const struct choice_key choice_keys[];
extern const size_t choice_key_count;

/* Which keys the user fixed: bit i for choice_keys[i], and where each was said. */
enum { CHOICE_KEYS_MAX = 48 };
struct fixed_choices {
    uint64_t set;
    struct choices values;
    struct pos at[CHOICE_KEYS_MAX];
};

/* Row index, or -1. */
int choice_key_find(const char *key);
bool choice_is_fixed(const struct fixed_choices *fixed, const char *key);

/* Parses one key=value; unknown keys get the nearest spelling, a second, different value for the
 * same key is an error that shows both. */
int choice_set(struct fixed_choices *fixed, const char *key, const char *value, struct pos at,
               struct diag_list *reterr);

/* One value as text, as --set would take it. */
void choice_format(const struct choices *choices, int row, char *ret, size_t size);

/* Plan files. */
json_t *choices_layout_json(const struct choices *choices);
json_t *choices_primitives_json(const struct choices *choices);
int choices_from_nodes(const struct node *layout, const struct node *primitives,
                       struct choices *ret, struct diag_list *reterr);

#endif
