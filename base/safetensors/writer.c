#include "base/safetensors/writer.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/safetensors/header.h"
#include "base/text.h"

#include <inttypes.h>
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
static struct json *tensor_json(const struct tensor_description *tensor, uint64_t *end)
{
    struct stored_tensor sizes = { .type = tensor->type, .axes = tensor->axes };
    struct json *ret = json_map(), *shape = json_list(), *offsets = json_list();
    for (int i = 0; i < tensor->axes; i++) {
        sizes.shape[i] = tensor->shape[i];
        json_append_u64(shape, tensor->shape[i]);
    }
    (void)stored_tensor_measure(&sizes);
    json_append_u64(offsets, *end);
    *end = add_sat(*end, sizes.bytes);
    json_append_u64(offsets, *end);
    json_put_text(ret, "dtype", tensor_type_name(tensor->type));
    json_put(ret, "shape", shape);
    json_put(ret, "data_offsets", offsets);
    return ret;
}

static int add_tensors(const struct safetensors_contents *contents, struct json *root,
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
        if (!text_is_utf8(tensor->name))
            return diag_error(reterr, at, "the name of tensor %zu is not UTF-8 text", i);
        if (json_has(root, tensor->name))
            return diag_error(reterr, at, "the name '%.*s' is given twice",
                              name_shown(tensor->name), tensor->name);
        json_put(root, tensor->name, tensor_json(tensor, ret_bytes));
    }
    return 0;
}

static int add_metadata(const struct safetensors_contents *contents, struct json *root,
                        struct pos at, struct diag_list *reterr)
{
    struct json *metadata = contents->metadata_count > 0 ? json_map() : NULL;
    for (size_t i = 0; i < contents->metadata_count; i++) {
        const struct tensor_metadata *entry = &contents->metadata[i];
        if (!text_is_utf8(entry->key) || !text_is_utf8(entry->value)) {
            json_free(metadata);
            return diag_error(reterr, at, "metadata is not UTF-8 text");
        }
        json_put_text(metadata, entry->key, entry->value);
    }
    if (contents->metadata_count > 0)
        json_put(root, "__metadata__", metadata);
    return 0;
}

/* The header as compact JSON with spaces behind it, in a malloc'd string; NULL with a diagnostic.
 */
static char *render_header(const struct safetensors_contents *contents, struct pos at,
                           uint64_t *ret_data_bytes, struct diag_list *reterr)
{
    struct json *root = json_map();
    char *ret = NULL;
    *ret_data_bytes = 0;
    if (add_metadata(contents, root, at, reterr) == 0 &&
        add_tensors(contents, root, ret_data_bytes, at, reterr) == 0) {
        char *text = json_render(root, JSON_FORM_BARE);
        size_t length = text ? strlen(text) : 0;
        size_t padded = (size_t)round_up_to(length, DATA_ALIGNMENT);
        ret = text ? realloc(text, padded + 1) : NULL;
        if (ret) {
            memset(ret + length, ' ', padded - length);
            ret[padded] = '\0';
        } else {
            free(text);
            diag_no_memory(reterr);
        }
    }
    json_free(root);
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
        return diag_no_memory(reterr);
    writer->at.file = pool_copy_text(&writer->pool, path, strlen(path));
    if (!writer->at.file) {
        diag_no_memory(reterr);
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
