/* The choices of a plan as its file holds them. */
#include "base/layout/key.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_TEXT = 1024 }; /* 128 stages of up to 4 digits and their commas */

/* What derives from the keys and is printed beside them; the first three are stored. */
struct derived_member {
    const char *key;
    int (*get)(const struct layout *layout);
    size_t offset; /* of the stored ones, in struct layout */
    int64_t max;
};

static int get_d_rep(const struct layout *layout)
{
    return layout->d_rep;
}

static int get_e_rep(const struct layout *layout)
{
    return layout->e_rep;
}

static int get_micro_batches(const struct layout *layout)
{
    return layout->micro_batches;
}

enum { STORED_MEMBERS = 3, DERIVED_MEMBERS = 5 };
static const struct derived_member derived_members[DERIVED_MEMBERS] = {
    { "d_rep", get_d_rep, offsetof(struct layout, d_rep), LAYOUT_MAX_RANKS },
    { "e_rep", get_e_rep, offsetof(struct layout, e_rep), LAYOUT_MAX_RANKS },
    { "micro_batches", get_micro_batches, offsetof(struct layout, micro_batches), INT32_MAX },
    { "dp", layout_dp, 0, 0 },
    { "e_dp", layout_e_dp, 0, 0 },
};

/* Splits "a,b,c" into a list; numbers become integers. */
static struct json *list_json(char *text, bool numbers)
{
    struct json *list = json_list();
    for (char *item = strsep(&text, ","); item && *item; item = strsep(&text, ","))
        if (numbers)
            json_append_int(list, strtoll(item, NULL, 10));
        else
            json_append_text(list, item);
    return list;
}

static void put_value(struct json *map, const struct choices *choices, int row)
{
    const struct choice_key *key = &choice_keys[row];
    char text[VALUE_TEXT], nothing[] = "";

    choice_format(choices, row, text, sizeof text);
    if (key->type == KEY_COUNT_LIST)
        json_put(map, key->key, list_json(text, true));
    else if (key->type == KEY_FLAGS)
        json_put(map, key->key, list_json(strcmp(text, "none") ? text : nothing, false));
    else if (key->type == KEY_ENUM || (key->type == KEY_INT_OR_ALL && !strcmp(text, "all")))
        json_put_text(map, key->key, text);
    else
        json_put_int(map, key->key, strtoll(text, NULL, 10));
}

static void put_keys(const struct choices *choices, bool in_layout, struct json *ret)
{
    for (size_t row = 0; row < choice_key_count; row++)
        if (choice_keys[row].in_layout == in_layout)
            put_value(ret, choices, (int)row);
}

struct json *choices_layout_json(const struct choices *choices)
{
    struct json *ret = json_map();

    put_keys(choices, true, ret);
    for (int i = 0; i < DERIVED_MEMBERS; i++)
        json_put_int(ret, derived_members[i].key, derived_members[i].get(&choices->layout));
    return ret;
}

struct json *choices_primitives_json(const struct choices *choices)
{
    struct json *ret = json_map();
    put_keys(choices, false, ret);
    return ret;
}

void choices_drop_younger(const struct choices *choices, struct json *primitives)
{
    const struct choices usual = { .primitives = primitives_default() };

    for (size_t row = 0; row < choice_key_count; row++) {
        char text[VALUE_TEXT], standard[VALUE_TEXT];
        if (!choice_keys[row].younger)
            continue;
        choice_format(choices, (int)row, text, sizeof text);
        choice_format(&usual, (int)row, standard, sizeof standard);
        if (!strcmp(text, standard))
            json_drop(primitives, choice_keys[row].key);
    }
}

/* The value as --set would write it: a scalar as it stands, a list joined by commas. */
static int value_text(const struct choice_key *key, const struct node *node, char *ret, size_t size,
                      struct diag_list *reterr)
{
    size_t used = 0;
    bool list = key->type == KEY_COUNT_LIST || key->type == KEY_FLAGS;

    ret[0] = '\0';
    if (node->kind == NODE_MAP || (node->kind == NODE_LIST && !list))
        return diag_error(reterr, node->at, "%s must be a plain value, found %s", key->key,
                          node_kind_name(node->kind));
    if (node->kind != NODE_LIST)
        return text_copy(ret, size, node->text);
    for (const struct node *child = node->child; child; child = child->next) {
        if (!child->text)
            return diag_error(reterr, child->at, "%s must hold plain values", key->key);
        text_append(ret, size, &used, "%s%s", used ? "," : "", child->text);
    }
    if (!used)
        text_append(ret, size, &used, "%s", key->type == KEY_FLAGS ? "none" : "0");
    return 0;
}

static int read_keys(const struct node *map, bool in_layout, struct choices *ret,
                     struct diag_list *reterr)
{
    int rc = 0;
    for (size_t row = 0; row < choice_key_count; row++) {
        const struct choice_key *key = &choice_keys[row];
        char text[VALUE_TEXT];
        if (key->in_layout != in_layout)
            continue;
        const struct node *node = node_get(map, key->key);
        if (!node) {
            if (in_layout)
                rc = diag_error(reterr, map->at, "the layout lacks %s", key->key);
            continue;
        }
        if (value_text(key, node, text, sizeof text, reterr) ||
            choice_parse(ret, (int)row, text, node->at, reterr))
            rc = -1;
    }
    return rc;
}

static int check_keys(const struct node *map, bool in_layout, struct diag_list *reterr)
{
    const char *known[CHOICE_KEYS_MAX + DERIVED_MEMBERS];
    size_t count = 0;

    if (map->kind != NODE_MAP)
        return diag_error(reterr, map->at, "%s must be a map, found %s",
                          in_layout ? "layout" : "primitives", node_kind_name(map->kind));
    for (size_t row = 0; row < choice_key_count; row++)
        if (choice_keys[row].in_layout == in_layout)
            known[count++] = choice_keys[row].key;
    for (int i = 0; in_layout && i < DERIVED_MEMBERS; i++)
        known[count++] = derived_members[i].key;
    return node_check_keys(map, known, count, reterr);
}

static int read_stored(const struct node *map, struct layout *ret, struct diag_list *reterr)
{
    int rc = 0;
    for (int i = 0; i < STORED_MEMBERS; i++) {
        const struct derived_member *member = &derived_members[i];
        int64_t number = 0;
        int found = node_int(map, member->key, 1, member->max, &number, reterr);
        int stored = (int)number;
        if (found == 0)
            diag_error(reterr, map->at, "the layout lacks %s", member->key);
        if (found <= 0)
            rc = -1;
        else
            memcpy((char *)ret + member->offset, &stored, sizeof stored);
    }
    return rc;
}

/* dp = fsdp * d_rep and its expert twin, where the file gives the products. Products are formed in
 * 64 bits: both factors come from the file. */
static int check_product(const struct node *map, const char *key, int64_t shards, int64_t copies,
                         const char *how, struct diag_list *reterr)
{
    int64_t given = 0;
    int found = node_int(map, key, 1, INT32_MAX, &given, reterr);
    if (found < 0)
        return -1;
    if (found == 0 || given == shards * copies)
        return 0;
    return diag_error(reterr, node_get(map, key)->at,
                      "%s is %" PRId64 ", but %s = %" PRId64 " x %" PRId64 " = %" PRId64, key,
                      given, how, shards, copies, shards * copies);
}

int choices_from_nodes(const struct node *layout, const struct node *primitives,
                       struct choices *ret, struct diag_list *reterr)
{
    int faults = 0;
    struct layout *l = &ret->layout;

    memset(ret, 0, sizeof *ret);
    ret->primitives = primitives_default();
    faults += check_keys(layout, true, reterr) != 0;
    if (layout->kind != NODE_MAP)
        return -1;
    faults += read_keys(layout, true, ret, reterr) != 0;
    faults += read_stored(layout, l, reterr) != 0;
    if (!faults) {
        faults += check_product(layout, "dp", l->fsdp, l->d_rep, "fsdp x d_rep", reterr) != 0;
        faults += check_product(layout, "e_dp", l->e_fsdp, l->e_rep, "e_fsdp x e_rep", reterr) != 0;
    }
    if (primitives) {
        faults += check_keys(primitives, false, reterr) != 0;
        faults += read_keys(primitives, false, ret, reterr) != 0;
    }
    return faults ? -1 : 0;
}
