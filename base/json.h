/* json.h - the one way to build JSON. A part that there is no memory for fails the map or list that
 * it is put into, and that one fails what holds it, up to the document: json_view gives the whole
 * document or none. Nothing else in rankfit calls jansson's constructors. */
#ifndef RANKFIT_BASE_JSON_H
#define RANKFIT_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

/* A map or list that is being built. NULL is one that has failed, and is accepted everywhere. */
struct json;
/* jansson's own, for reading. */
typedef struct json_t json_t;

struct json *json_map(void);
struct json *json_list(void);
/* null, where a map or list might stand. */
struct json *json_nothing(void);
/* A map whose first member is its schema. */
struct json *json_document(const char *schema);
/* Of a value of any kind that jansson has read; the reference is taken. NULL has failed. */
struct json *json_of(json_t *value);

/* Members of a map. A key that is there already keeps its place and gets the new value. `value` is
 * taken in every case. */
void json_put(struct json *map, const char *key, struct json *value);
/* NULL is null. Bytes that are not UTF-8 become U+FFFD. */
void json_put_text(struct json *map, const char *key, const char *text);
void json_put_int(struct json *map, const char *key, int64_t value);
/* A value beyond 2^63 - 1, the largest that readers of JSON take here, is written as 2^63 - 1: a
 * size so large has overflowed. */
void json_put_u64(struct json *map, const char *key, uint64_t value);
/* JSON has no NaN and no infinity: null. */
void json_put_number(struct json *map, const char *key, double value);
void json_put_bool(struct json *map, const char *key, bool value);
void json_put_null(struct json *map, const char *key);
/* The members of `from` that the map lacks. `from` is taken. */
void json_merge(struct json *map, struct json *from);
bool json_has(const struct json *map, const char *key);
void json_drop(struct json *map, const char *key);

/* Entries of a list, by the same rules. */
void json_append(struct json *list, struct json *value);
void json_append_text(struct json *list, const char *text);
void json_append_int(struct json *list, int64_t value);
void json_append_u64(struct json *list, uint64_t value);
void json_append_number(struct json *list, double value);

/* How a document is written: in lines indented by two, as in a file; the same with reals of 15
 * digits, which is what a double holds of a decimal, so that 0.99 stays 0.99; without any blanks;
 * and so with sorted keys. Elsewhere keys are in the order in which they were put. */
enum json_form { JSON_FORM_FILE, JSON_FORM_SHOWN, JSON_FORM_BARE, JSON_FORM_SORTED };
/* In a malloc'd string. NULL: out of memory. */
char *json_render(const struct json *json, enum json_form form);

/* What has been built, for reading while `json` lives. NULL: out of memory. */
const json_t *json_view(const struct json *json);
/* Accepts NULL. */
void json_free(struct json *json);

#endif
