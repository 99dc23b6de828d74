#include "base/safetensors/header.h"

#include "base/checked.h"
#include "base/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Names of any length leave room for what is wrong with them. */
enum { NAME_SHOWN = 120 };

static const struct {
    const char *name;
    unsigned bits;
} types[TENSOR_TYPE_COUNT] = {
    [TENSOR_TYPE_BOOL] = { "BOOL", 8 },       [TENSOR_TYPE_F4] = { "F4", 4 },
    [TENSOR_TYPE_F6_E2M3] = { "F6_E2M3", 6 }, [TENSOR_TYPE_F6_E3M2] = { "F6_E3M2", 6 },
    [TENSOR_TYPE_U8] = { "U8", 8 },           [TENSOR_TYPE_I8] = { "I8", 8 },
    [TENSOR_TYPE_F8_E5M2] = { "F8_E5M2", 8 }, [TENSOR_TYPE_F8_E4M3] = { "F8_E4M3", 8 },
    [TENSOR_TYPE_F8_E8M0] = { "F8_E8M0", 8 }, [TENSOR_TYPE_I16] = { "I16", 16 },
    [TENSOR_TYPE_U16] = { "U16", 16 },        [TENSOR_TYPE_F16] = { "F16", 16 },
    [TENSOR_TYPE_BF16] = { "BF16", 16 },      [TENSOR_TYPE_I32] = { "I32", 32 },
    [TENSOR_TYPE_U32] = { "U32", 32 },        [TENSOR_TYPE_F32] = { "F32", 32 },
    [TENSOR_TYPE_C64] = { "C64", 64 },        [TENSOR_TYPE_F64] = { "F64", 64 },
    [TENSOR_TYPE_I64] = { "I64", 64 },        [TENSOR_TYPE_U64] = { "U64", 64 },
};

/* One header being read. */
struct reading {
    struct pool *pool;
    struct pos at;
    uint64_t data_bytes;
    struct diag_list *reterr;
};

const char *tensor_type_name(enum tensor_type type)
{
    return types[type].name;
}

unsigned tensor_type_bits(enum tensor_type type)
{
    return types[type].bits;
}

int name_shown(const char *name)
{
    size_t length = strlen(name);
    if (length <= NAME_SHOWN)
        return (int)length;
    length = NAME_SHOWN;
    while (length > 0 && ((unsigned char)name[length] & 0xc0) == 0x80)
        length--;
    return (int)length;
}

void shape_format(const uint64_t *shape, int axes, char *ret, size_t size)
{
    size_t used = 0;
    text_append(ret, size, &used, "[");
    for (int i = 0; i < axes; i++)
        text_append(ret, size, &used, "%s%" PRIu64, i == 0 ? "" : ", ", shape[i]);
    text_append(ret, size, &used, "]");
}

const char *stored_tensor_measure(struct stored_tensor *tensor)
{
    tensor->elements = 1;
    for (int i = 0; i < tensor->axes; i++)
        tensor->elements = mul_sat(tensor->elements, tensor->shape[i]);
    uint64_t bits = mul_sat(tensor->elements, tensor_type_bits(tensor->type));
    tensor->bytes = bits / 8;
    if (bytes_overflowed(bits))
        return "is larger than 64 bits can say";
    return bits % 8 == 0 ? NULL : "does not fill whole bytes";
}

static bool read_count(const json_t *value, uint64_t *ret)
{
    json_int_t count = json_integer_value(value);
    *ret = (uint64_t)count;
    return json_is_integer(value) && count >= 0;
}

static int fault(const struct reading *reading, const struct stored_tensor *tensor,
                 const char *what)
{
    return diag_error(reading->reterr, reading->at, "tensor '%.*s' %s", name_shown(tensor->name),
                      tensor->name, what);
}

static int read_type(const struct reading *reading, const json_t *value, struct stored_tensor *ret)
{
    const char *text = json_string_value(value);
    const char *names[TENSOR_TYPE_COUNT];
    if (!text)
        return fault(reading, ret, "has no dtype");
    for (int i = 0; i < TENSOR_TYPE_COUNT; i++) {
        names[i] = types[i].name;
        ret->type = (enum tensor_type)i;
        if (strcmp(text, names[i]) == 0)
            return 0;
    }
    diag_error(reading->reterr, reading->at, "tensor '%.*s' has the unknown dtype '%.40s'",
               name_shown(ret->name), ret->name, text);
    const char *nearest = text_nearest(text, names, TENSOR_TYPE_COUNT);
    if (nearest)
        diag_hint(reading->reterr, "did you mean '%s'?", nearest);
    return -1;
}

static int read_shape(const struct reading *reading, const json_t *value, struct stored_tensor *ret)
{
    size_t axes = json_array_size(value);
    if (!json_is_array(value))
        return fault(reading, ret, "has no shape");
    if (axes > STORED_MAX_AXES)
        return diag_error(reading->reterr, reading->at,
                          "tensor '%.*s' has %zu axes, more than the %d that are read",
                          name_shown(ret->name), ret->name, axes, STORED_MAX_AXES);
    ret->axes = (int)axes;
    for (size_t i = 0; i < axes; i++)
        if (!read_count(json_array_get(value, i), &ret->shape[i]))
            return fault(reading, ret, "has a shape that is not a list of whole numbers");
    return 0;
}

static int read_offsets(const struct reading *reading, const json_t *value,
                        struct stored_tensor *ret)
{
    uint64_t end = 0;
    if (json_array_size(value) != 2 || !read_count(json_array_get(value, 0), &ret->begin) ||
        !read_count(json_array_get(value, 1), &end))
        return fault(reading, ret, "has no data_offsets of two whole numbers");
    if (end < ret->begin)
        return fault(reading, ret, "has data_offsets that end before they begin");
    if (end > reading->data_bytes) {
        diag_error(reading->reterr, reading->at,
                   "tensor '%.*s' has data_offsets [%" PRIu64 ", %" PRIu64 "], outside the %" PRIu64
                   " bytes of data",
                   name_shown(ret->name), ret->name, ret->begin, end, reading->data_bytes);
        return diag_hint(reading->reterr, "the file is cut short or its header is damaged");
    }
    ret->bytes = end - ret->begin;
    return 0;
}

/* What the shape says against what the offsets say. */
static int check_size(const struct reading *reading, struct stored_tensor *tensor)
{
    char shape[SHAPE_TEXT_BYTES];
    uint64_t stored = tensor->bytes;
    shape_format(tensor->shape, tensor->axes, shape, sizeof shape);
    const char *wrong = stored_tensor_measure(tensor);
    if (wrong)
        return diag_error(reading->reterr, reading->at, "tensor '%.*s' of %s %s %s",
                          name_shown(tensor->name), tensor->name, tensor_type_name(tensor->type),
                          shape, wrong);
    if (stored == tensor->bytes)
        return 0;
    return diag_error(reading->reterr, reading->at,
                      "tensor '%.*s' of %s %s takes %" PRIu64
                      " bytes, its data_offsets span %" PRIu64,
                      name_shown(tensor->name), tensor->name, tensor_type_name(tensor->type), shape,
                      tensor->bytes, stored);
}

static int read_tensor(const struct reading *reading, const char *name, const json_t *value,
                       struct stored_tensor *ret)
{
    *ret = (struct stored_tensor){ .name = name };
    if (!json_is_object(value))
        return fault(reading, ret, "is not a map of dtype, shape and data_offsets");
    int type = read_type(reading, json_object_get(value, "dtype"), ret);
    int shape = read_shape(reading, json_object_get(value, "shape"), ret);
    int offsets = read_offsets(reading, json_object_get(value, "data_offsets"), ret);
    return type == 0 && shape == 0 && offsets == 0 ? check_size(reading, ret) : -1;
}

static int read_metadata(const struct reading *reading, json_t *map, struct header *ret)
{
    const char *key;
    json_t *value;
    if (!json_is_object(map))
        return diag_error(reading->reterr, reading->at, "__metadata__ is not a map");
    ret->metadata = pool_alloc(reading->pool, json_object_size(map) * sizeof *ret->metadata);
    if (!ret->metadata)
        return diag_no_memory(reading->reterr);
    json_object_foreach(map, key, value)
    {
        const char *text = json_string_value(value);
        if (!text)
            return diag_error(reading->reterr, reading->at,
                              "the value of '%.*s' in __metadata__ is not text", name_shown(key),
                              key);
        struct tensor_metadata *entry = &ret->metadata[ret->metadata_count++];
        entry->key = pool_copy_text(reading->pool, key, strlen(key));
        entry->value = pool_copy_text(reading->pool, text, strlen(text));
        if (!entry->key || !entry->value)
            return diag_no_memory(reading->reterr);
    }
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    const struct stored_tensor *left = a;
    const struct stored_tensor *right = b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    if (left->bytes != right->bytes)
        return left->bytes < right->bytes ? -1 : 1;
    return strcmp(left->name, right->name);
}

/* Tensors lie one behind the other and fill the data. `tensors` is sorted by place. */
static void check_places(const struct reading *reading, const struct header *header)
{
    const struct stored_tensor *before = NULL;
    uint64_t filled = 0;
    for (size_t i = 0; i < header->count; i++) {
        const struct stored_tensor *tensor = &header->tensors[i];
        if (tensor->begin < filled)
            diag_error(reading->reterr, reading->at,
                       "tensor '%.*s' begins at byte %" PRIu64
                       " of the data, inside tensor '%.*s' that ends at %" PRIu64,
                       name_shown(tensor->name), tensor->name, tensor->begin,
                       name_shown(before->name), before->name, filled);
        else if (tensor->begin > filled)
            diag_error(reading->reterr, reading->at,
                       "bytes %" PRIu64 " to %" PRIu64 " of the data, before '%.*s', "
                       "belong to no tensor",
                       filled, tensor->begin, name_shown(tensor->name), tensor->name);
        if (tensor->begin + tensor->bytes >= filled) {
            filled = tensor->begin + tensor->bytes;
            before = tensor;
        }
    }
    if (filled < reading->data_bytes)
        diag_error(reading->reterr, reading->at,
                   "bytes %" PRIu64 " to %" PRIu64 " of the data, at its end, belong to no tensor",
                   filled, reading->data_bytes);
}

static int read_root(const struct reading *reading, json_t *root, struct header *ret)
{
    const char *name;
    json_t *value;
    int before = reading->reterr->errors;
    ret->tensors = pool_alloc(reading->pool, json_object_size(root) * sizeof *ret->tensors);
    if (!ret->tensors)
        return diag_no_memory(reading->reterr);
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, "__metadata__") == 0) {
            (void)read_metadata(reading, value, ret);
            continue;
        }
        char *copy = pool_copy_text(reading->pool, name, strlen(name));
        if (!copy)
            return diag_no_memory(reading->reterr);
        (void)read_tensor(reading, copy, value, &ret->tensors[ret->count++]);
    }
    if (reading->reterr->errors == before) {
        qsort(ret->tensors, ret->count, sizeof *ret->tensors, compare_places);
        check_places(reading, ret);
    }
    return reading->reterr->errors == before ? 0 : -1;
}

int header_read(struct pool *pool, const char *name, const char *text, size_t bytes,
                uint64_t data_bytes, struct header *ret, struct diag_list *reterr)
{
    const struct reading reading = { pool, { .file = name }, data_bytes, reterr };
    json_error_t error;
    *ret = (struct header){ 0 };
    if (bytes == 0 || text[0] != '{') {
        diag_error(reterr, reading.at, "the header does not begin with '{'");
        return diag_hint(reterr, "is this a safetensors file?");
    }
    const char *nul = memchr(text, '\0', bytes);
    if (nul)
        return diag_error(reterr, reading.at, "the header is not text: a NUL at byte %td",
                          HEADER_LENGTH_BYTES + (nul - text));
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root && json_error_code(&error) == json_error_out_of_memory)
        return diag_no_memory(reterr);
    if (!root)
        return diag_error(reterr, reading.at, "the header is not valid: %s, at byte %d", error.text,
                          HEADER_LENGTH_BYTES + error.position);
    int status = read_root(&reading, root, ret);
    json_decref(root);
    return status;
}
