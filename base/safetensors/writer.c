#include "base/safetensors/writer.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/safetensors/header.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { DATA_ALIGNMENT = 8 };

struct safetensors_writer {
    struct file_output *output;
    struct pool pool;
    struct pos at;
    struct header header; /* as the reader will see it: in the order of the data */
    uint64_t data_bytes, given;
};

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}; advances *end. */
static json_t *tensor_json(const struct tensor_description *tensor, uint64_t *end)
{
    struct stored_tensor sizes = { .type = tensor->type, .axes = tensor->axes };
    json_t *shape = json_array();
    for (int i = 0; i < tensor->axes; i++) {
        sizes.shape[i] = tensor->shape[i];
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
    }
    (void)stored_tensor_measure(&sizes);
    uint64_t begin = *end;
    *end = add_sat(begin, sizes.bytes);
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", tensor_type_name(tensor->type), "shape",
                     shape, "data_offsets", (json_int_t)begin, (json_int_t)*end);
}

static int add_tensors(const struct safetensors_contents *contents, json_t *root,
                       uint64_t *ret_bytes, struct pos at, struct diag_list *reterr)
{
    for (size_t i = 0; i < contents->count; i++) {
        const struct tensor_description *tensor = &contents->tensors[i];
        if (tensor->axes < 0 || tensor->axes > STORED_MAX_AXES)
            return diag_error(reterr, at, "tensor '%.*s' has %d axes, not 0 to %d",
                              name_shown(tensor->name), tensor->name, tensor->axes,
                              STORED_MAX_AXES);
        if ((unsigned)tensor->type >= TENSOR_TYPE_COUNT)
            return diag_error(reterr, at, "tensor '%.*s' has no dtype", name_shown(tensor->name),
                              tensor->name);
        if (strcmp(tensor->name, "__metadata__") == 0)
            return diag_error(reterr, at, "a tensor cannot be called __metadata__");
        if (json_object_get(root, tensor->name))
            return diag_error(reterr, at, "the name '%.*s' is given twice",
                              name_shown(tensor->name), tensor->name);
        if (json_object_set_new(root, tensor->name, tensor_json(tensor, ret_bytes)) < 0)
            return diag_error(reterr, at, "the name of tensor %zu is not UTF-8 text", i);
    }
    return 0;
}

static json_t *metadata_json(const struct safetensors_contents *contents)
{
    json_t *ret = json_object();
    for (size_t i = 0; ret && i < contents->metadata_count; i++) {
        const struct tensor_metadata *entry = &contents->metadata[i];
        if (json_object_set_new(ret, entry->key, json_string(entry->value)) < 0) {
            json_decref(ret);
            return NULL;
        }
    }
    return ret;
}

/* The header as compact JSON with spaces behind it, in a malloc'd string; NULL with a diagnostic.
 */
static char *render_header(const struct safetensors_contents *contents, struct pos at,
                           uint64_t *ret_data_bytes, struct diag_list *reterr)
{
    json_t *root = json_object();
    json_t *metadata = metadata_json(contents);
    char *ret = NULL;
    *ret_data_bytes = 0;
    if (!root || !metadata)
        diag_error(reterr, at, "metadata is not UTF-8 text");
    else if (json_object_set(root, "__metadata__", metadata) == 0 &&
             add_tensors(contents, root, ret_data_bytes, at, reterr) == 0) {
        if (contents->metadata_count == 0)
            (void)json_object_del(root, "__metadata__");
        char *text = json_dumps(root, JSON_COMPACT);
        size_t length = text ? strlen(text) : 0;
        size_t padded = (size_t)round_up_to(length, DATA_ALIGNMENT);
        ret = text ? realloc(text, padded + 1) : NULL;
        if (ret) {
            memset(ret + length, ' ', padded - length);
            ret[padded] = '\0';
        } else {
            free(text);
            diag_error(reterr, at, "out of memory");
        }
    }
    json_decref(metadata);
    json_decref(root);
    return ret;
}

static int write_header(struct safetensors_writer *writer, const char *text,
                        struct diag_list *reterr)
{
    uint64_t length = strlen(text);
    unsigned char little[HEADER_LENGTH_BYTES];
    if (length > HEADER_MAX_BYTES)
        return diag_error(reterr, writer->at,
                          "a header of %" PRIu64 " bytes is over the limit of %d", length,
                          HEADER_MAX_BYTES);
    /* Read as any reader will: what cannot be read is not written. */
    if (header_read(&writer->pool, writer->at.file, text, (size_t)length, writer->data_bytes,
                    &writer->header, reterr) < 0 ||
        file_output_begin(writer->at.file, &writer->output, reterr) < 0)
        return -1;
    for (int i = 0; i < HEADER_LENGTH_BYTES; i++)
        little[i] = (unsigned char)(length >> (8 * i));
    if (file_output_append(writer->output, little, sizeof little, reterr) < 0)
        return -1;
    return file_output_append(writer->output, text, (size_t)length, reterr);
}

int safetensors_create(const char *path, const struct safetensors_contents *contents,
                       struct safetensors_writer **ret, struct diag_list *reterr)
{
    *ret = NULL;
    struct safetensors_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return diag_error(reterr, (struct pos){ .file = path }, "out of memory");
    writer->at.file = pool_copy_text(&writer->pool, path, strlen(path));
    if (!writer->at.file) {
        diag_error(reterr, (struct pos){ .file = path }, "out of memory");
        safetensors_discard(writer);
        return -1;
    }
    char *text = render_header(contents, writer->at, &writer->data_bytes, reterr);
    int status = text ? write_header(writer, text, reterr) : -1;
    free(text);
    if (status < 0)
        safetensors_discard(writer);
    else
        *ret = writer;
    return status;
}

int safetensors_append(struct safetensors_writer *writer, const void *data, size_t bytes,
                       struct diag_list *reterr)
{
    if (bytes > writer->data_bytes - writer->given)
        return diag_error(reterr, writer->at,
                          "more data than the %" PRIu64 " bytes that its tensors take",
                          writer->data_bytes);
    writer->given += bytes;
    return file_output_append(writer->output, data, bytes, reterr);
}

/* Names the tensor in which the data ends. */
static int incomplete(const struct safetensors_writer *writer, struct diag_list *reterr)
{
    const struct stored_tensor *tensor = writer->header.tensors;
    while (tensor->begin + tensor->bytes <= writer->given)
        tensor++;
    return diag_error(
        reterr, writer->at, "tensor '%.*s' was given %" PRIu64 " of its %" PRIu64 " bytes",
        name_shown(tensor->name), tensor->name, writer->given - tensor->begin, tensor->bytes);
}

int safetensors_commit(struct safetensors_writer *writer, struct diag_list *reterr)
{
    int status = writer->given < writer->data_bytes ? incomplete(writer, reterr) : 0;
    if (status == 0) {
        status = file_output_commit(writer->output, reterr);
        writer->output = NULL;
    }
    safetensors_discard(writer);
    return status;
}

void safetensors_discard(struct safetensors_writer *writer)
{
    if (!writer)
        return;
    file_output_discard(writer->output);
    pool_done(&writer->pool);
    free(writer);
}
