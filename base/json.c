#include "base/json.h"

#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct json {
    json_t *value; /* NULL: failed */
};

static void fail(struct json *json)
{
    if (!json)
        return;
    json_decref(json->value);
    json->value = NULL;
}

struct json *json_of(json_t *value)
{
    struct json *ret = value ? malloc(sizeof *ret) : NULL;
    if (ret)
        ret->value = value;
    else
        json_decref(value);
    return ret;
}

struct json *json_map(void)
{
    return json_of(json_object());
}

struct json *json_list(void)
{
    return json_of(json_array());
}

struct json *json_nothing(void)
{
    return json_of(json_null());
}

struct json *json_document(const char *schema)
{
    struct json *ret = json_map();
    json_put_text(ret, "schema", schema);
    return ret;
}

const json_t *json_view(const struct json *json)
{
    return json ? json->value : NULL;
}

void json_free(struct json *json)
{
    fail(json);
    free(json);
}

/* What is in the wrapping, which goes; NULL where it has failed. */
static json_t *unwrap(struct json *json)
{
    json_t *ret = json ? json->value : NULL;
    free(json);
    return ret;
}

/* jansson takes the value in every case, and refuses NULL. */
static void put(struct json *map, const char *key, json_t *value)
{
    if (!map || !map->value)
        json_decref(value);
    else if (json_object_set_new(map->value, key, value) != 0)
        fail(map);
}

static void append(struct json *list, json_t *value)
{
    if (!list || !list->value)
        json_decref(value);
    else if (json_array_append_new(list->value, value) != 0)
        fail(list);
}

/* The text with U+FFFD in the place of each byte that begins no character. */
static json_t *repaired(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t left = strlen(text), used = 0;
    char *copy = malloc(left * (sizeof replacement - 1) + 1);
    if (!copy)
        return NULL;
    while (left > 0) {
        size_t bytes = text_character_bytes(text, left);
        size_t written = bytes > 0 ? bytes : sizeof replacement - 1;
        memcpy(copy + used, bytes > 0 ? text : replacement, written);
        used += written;
        bytes += bytes == 0;
        text += bytes;
        left -= bytes;
    }
    json_t *ret = json_stringn(copy, used);
    free(copy);
    return ret;
}

static json_t *text_value(const char *text)
{
    if (!text)
        return json_null();
    return text_is_utf8(text) ? json_string(text) : repaired(text);
}

static json_t *u64_value(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *number_value(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void json_put(struct json *map, const char *key, struct json *value)
{
    put(map, key, unwrap(value));
}

void json_put_text(struct json *map, const char *key, const char *text)
{
    put(map, key, text_value(text));
}

void json_put_int(struct json *map, const char *key, int64_t value)
{
    put(map, key, json_integer(value));
}

void json_put_u64(struct json *map, const char *key, uint64_t value)
{
    put(map, key, u64_value(value));
}

void json_put_number(struct json *map, const char *key, double value)
{
    put(map, key, number_value(value));
}

void json_put_bool(struct json *map, const char *key, bool value)
{
    put(map, key, json_boolean(value));
}

void json_put_null(struct json *map, const char *key)
{
    put(map, key, json_null());
}

void json_merge(struct json *map, struct json *from)
{
    json_t *members = unwrap(from), *value;
    const char *key;
    if (!members)
        fail(map);
    /* jansson's own update does not say that it failed. */
    json_object_foreach(members, key, value) if (!json_has(map, key))
        put(map, key, json_incref(value));
    json_decref(members);
}

bool json_has(const struct json *map, const char *key)
{
    return map && json_object_get(map->value, key);
}

void json_drop(struct json *map, const char *key)
{
    if (map)
        (void)json_object_del(map->value, key);
}

void json_append(struct json *list, struct json *value)
{
    append(list, unwrap(value));
}

void json_append_text(struct json *list, const char *text)
{
    append(list, text_value(text));
}

void json_append_int(struct json *list, int64_t value)
{
    append(list, json_integer(value));
}

void json_append_u64(struct json *list, uint64_t value)
{
    append(list, u64_value(value));
}

void json_append_number(struct json *list, double value)
{
    append(list, number_value(value));
}

/* Text that grows. jansson does not look at every failure of its callback: this remembers. */
struct rendering {
    char *text;
    size_t bytes, room;
    bool failed;
};

static int add_text(const char *text, size_t bytes, void *context)
{
    struct rendering *r = context;
    if (!r->failed && r->bytes + bytes >= r->room) {
        size_t room = 2 * (r->room + bytes) + 1024;
        char *grown = realloc(r->text, room);
        r->failed = !grown;
        r->text = grown ? grown : r->text;
        r->room = grown ? room : r->room;
    }
    if (r->failed)
        return -1;
    memcpy(r->text + r->bytes, text, bytes);
    r->bytes += bytes;
    r->text[r->bytes] = '\0';
    return 0;
}

char *json_render(const struct json *json, enum json_form form)
{
    static const size_t flags[] = {
        [JSON_FORM_FILE] = JSON_INDENT(2),
        [JSON_FORM_SHOWN] = JSON_INDENT(2) | JSON_REAL_PRECISION(15),
        [JSON_FORM_BARE] = JSON_COMPACT,
        [JSON_FORM_SORTED] = JSON_COMPACT | JSON_SORT_KEYS,
    };
    struct rendering r = { .text = NULL };
    int status = json_dump_callback(json_view(json), add_text, &r, flags[form] | JSON_ENCODE_ANY);
    if (status == 0 && !r.failed)
        return r.text;
    free(r.text);
    return NULL;
}
