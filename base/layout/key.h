/* key.h - the free keys of --set: one row each feeds parser, range check, plan files, help and
 * `rankfit list keys`. */
#ifndef RANKFIT_BASE_LAYOUT_KEY_H
#define RANKFIT_BASE_LAYOUT_KEY_H

#include "base/diag.h"
#include "base/json.h"
#include "base/layout/layout.h"
#include "base/layout/primitives.h"
#include "base/tree.h"

#include <stddef.h>

/* What a plan decides. Zero in `set` means: derive it. */
struct choices {
    struct layout layout;
    struct primitives primitives;
};

/* KEY_INT and KEY_INT_OR_ALL ("all" is stored as -1) live in an int, KEY_ENUM in an enum, KEY_FLAGS
 * in an unsigned, KEY_BYTES and KEY_COUNT (K and M are 2^10 and 2^20) in a uint64_t, KEY_COUNT_LIST
 * in int[LAYOUT_MAX_STAGES] (unused entries 0). */
enum key_type {
    KEY_INT,
    KEY_ENUM,
    KEY_BYTES,
    KEY_COUNT,
    KEY_COUNT_LIST,
    KEY_FLAGS,
    KEY_INT_OR_ALL
};

struct choice_key {
    const char *key;
    enum key_type type;
    size_t offset; /* in struct choices */
    int64_t min, max;
    const char *const *names; /* KEY_ENUM, KEY_FLAGS */
    int name_count;
    bool in_layout; /* printed under "layout" in plans, else under "primitives" */
    const char *help;
    /* A primitive that plans of an earlier version lack; at its default it stays out of the digest,
     * so that those plans keep theirs. */
    bool younger;
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

/* What a key takes, in words: "a whole number from 1 to 64". */
void choice_key_values(const struct choice_key *key, char *ret, size_t size);
/* Row index, or -1. */
int choice_key_find(const char *key);
bool choice_is_fixed(const struct fixed_choices *fixed, const char *key);

/* Copies every fixed value of `fixed` into *ret. */
void choices_apply(const struct fixed_choices *fixed, struct choices *ret);

/* Where the user said `key`, or a place that is none. fixed may be NULL. */
struct pos choice_pos(const struct fixed_choices *fixed, const char *key);

/* Parses one key=value; unknown keys get the nearest spelling, a second, different value for the
 * same key is an error that shows both. */
int choice_set(struct fixed_choices *fixed, const char *key, const char *value, struct pos at,
               struct diag_list *reterr);

/* Stores the value of row `row` as --set writes it; -1 with what the key takes. */
int choice_parse(struct choices *choices, int row, const char *text, struct pos at,
                 struct diag_list *reterr);

/* One value as text, as --set would take it. */
void choice_format(const struct choices *choices, int row, char *ret, size_t size);

/* Plan files. The layout object also holds what derives from the keys: dp, d_rep, e_dp, e_rep,
 * micro_batches. Reading wants every layout key, leaves absent primitives at their defaults, and
 * checks dp = fsdp * d_rep and e_dp = e_fsdp * e_rep; whether the layout is legal is legality.h's.
 */
struct json *choices_layout_json(const struct choices *choices);
struct json *choices_primitives_json(const struct choices *choices);
/* Takes younger keys at their defaults out of what choices_primitives_json gave. */
void choices_drop_younger(const struct choices *choices, struct json *primitives);
int choices_from_nodes(const struct node *layout, const struct node *primitives,
                       struct choices *ret, struct diag_list *reterr);

#endif
