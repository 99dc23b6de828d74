/* Opening one data file, and bytes out of it: raw, or converted between bf16 and fp32. */
#include "base/safetensors/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are stored little-endian");
_Static_assert(sizeof(off_t) == 8, "offsets beyond 4 GiB");

enum { CHUNK_ELEMENTS = 8192 };

static int read_bytes(const struct data_file *file, uint64_t offset, void *ret, uint64_t bytes,
                      struct diag_list *reterr)
{
    struct pos at = { .file = file->path };
    unsigned char *to = ret;
    while (bytes > 0) {
        size_t wanted = bytes < SSIZE_MAX ? (size_t)bytes : SSIZE_MAX;
        ssize_t got = pread(file->handle, to, wanted, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return diag_error(reterr, at, "cannot be read: %s", strerror(errno));
        if (got == 0)
            return diag_error(reterr, at, "ends at byte %" PRIu64 ": it was cut short since",
                              offset);
        to += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return 0;
}

/* The header's length after it was judged against the file's, or -1. */
static int read_header_length(const struct data_file *file, uint64_t file_bytes, size_t *ret,
                              struct diag_list *reterr)
{
    struct pos at = { .file = file->path };
    unsigned char little[HEADER_LENGTH_BYTES];
    uint64_t length = 0;
    if (file_bytes < HEADER_LENGTH_BYTES)
        return diag_error(reterr, at, "%" PRIu64 " bytes are too short for a safetensors file",
                          file_bytes);
    if (read_bytes(file, 0, little, sizeof little, reterr) < 0)
        return -1;
    for (int i = HEADER_LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | little[i];
    if (length > HEADER_MAX_BYTES) {
        diag_error(reterr, at, "a header of %" PRIu64 " bytes is over the limit of %d", length,
                   HEADER_MAX_BYTES);
        return diag_hint(reterr, "is this a safetensors file?");
    }
    if (length > file_bytes - HEADER_LENGTH_BYTES)
        return diag_error(reterr, at,
                          "cut short: a header of %" PRIu64 " bytes in a file of %" PRIu64, length,
                          file_bytes);
    *ret = (size_t)length;
    return 0;
}

static int read_header(struct pool *pool, uint64_t file_bytes, struct data_file *file,
                       struct diag_list *reterr)
{
    size_t length = 0;
    if (read_header_length(file, file_bytes, &length, reterr) < 0)
        return -1;
    char *text = malloc(length + 1);
    if (!text)
        return diag_no_memory(reterr);
    file->data_begin = HEADER_LENGTH_BYTES + length;
    int status = read_bytes(file, HEADER_LENGTH_BYTES, text, length, reterr);
    if (status == 0)
        status = header_read(pool, file->path, text, length, file_bytes - file->data_begin,
                             &file->header, reterr);
    free(text);
    return status;
}

int data_file_open(struct pool *pool, const char *path, struct data_file *ret,
                   struct diag_list *reterr)
{
    struct pos at = { .file = path };
    struct stat status;
    *ret = (struct data_file){ .path = pool_copy_text(pool, path, strlen(path)), .handle = -1 };
    if (!ret->path)
        return diag_no_memory(reterr);
    /* O_NONBLOCK: a pipe must not make us wait for its writer. */
    ret->handle = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (ret->handle < 0 || fstat(ret->handle, &status) < 0)
        return diag_error(reterr, at, "cannot be read: %s", strerror(errno));
    if (!S_ISREG(status.st_mode))
        return diag_error(reterr, at, "is not a regular file");
    return read_header(pool, (uint64_t)status.st_size, ret, reterr);
}

static void widen(const uint16_t *from, float *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

/* Rounds to nearest, ties to even; a NaN stays one (quiet). */
static void narrow(const float *from, uint16_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        uint32_t nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
        to[i] = (uint16_t)(is_nan ? bits >> 16 | 0x40 : nearest);
    }
}

/* Through a buffer of fixed size. offset: of the first element in the file. */
static int read_converted(const struct data_file *file, uint64_t offset, uint64_t count,
                          enum tensor_type type, void *ret, struct diag_list *reterr)
{
    union {
        uint16_t narrow[CHUNK_ELEMENTS];
        float wide[CHUNK_ELEMENTS];
    } chunk = { { 0 } };
    size_t width = type == TENSOR_TYPE_F32 ? sizeof *chunk.narrow : sizeof *chunk.wide;
    for (uint64_t done = 0; done < count;) {
        size_t now = count - done < CHUNK_ELEMENTS ? (size_t)(count - done) : CHUNK_ELEMENTS;
        if (read_bytes(file, offset + done * width, &chunk, now * width, reterr) < 0)
            return -1;
        if (type == TENSOR_TYPE_F32)
            widen(chunk.narrow, (float *)ret + done, now);
        else
            narrow(chunk.wide, (uint16_t *)ret + done, now);
        done += now;
    }
    return 0;
}

static bool converts(enum tensor_type from, enum tensor_type to)
{
    return (from == TENSOR_TYPE_BF16 && to == TENSOR_TYPE_F32) ||
           (from == TENSOR_TYPE_F32 && to == TENSOR_TYPE_BF16);
}

int safetensors_read(const struct safetensors *checkpoint, struct tensor_range range,
                     enum tensor_type type, void *ret, struct diag_list *reterr)
{
    const struct stored_tensor *tensor = range.tensor;
    const struct data_file *file = &checkpoint->files[tensor->file];
    struct pos at = { .file = file->path };
    unsigned bits = tensor_type_bits(tensor->type);
    if (range.first > tensor->elements || range.count > tensor->elements - range.first)
        return diag_error(
            reterr, at,
            "tensor '%.*s' has %" PRIu64 " elements, asked were %" PRIu64 " from %" PRIu64,
            name_shown(tensor->name), tensor->name, tensor->elements, range.count, range.first);
    if (range.first * bits % 8 != 0 || range.count * bits % 8 != 0)
        return diag_error(reterr, at, "tensor '%.*s' of %s is not read from inside a byte",
                          name_shown(tensor->name), tensor->name, tensor_type_name(tensor->type));
    uint64_t offset = file->data_begin + tensor->begin + range.first * bits / 8;
    if (type == tensor->type)
        return read_bytes(file, offset, ret, range.count * bits / 8, reterr);
    if (converts(tensor->type, type))
        return read_converted(file, offset, range.count, type, ret, reterr);
    return diag_error(reterr, at, "tensor '%.*s' is %s, which is not read as %s",
                      name_shown(tensor->name), tensor->name, tensor_type_name(tensor->type),
                      type < TENSOR_TYPE_COUNT ? tensor_type_name(type) : "any type");
}

int safetensors_read_all(const struct safetensors *checkpoint, const struct stored_tensor *tensor,
                         enum tensor_type type, void *ret, struct diag_list *reterr)
{
    const struct tensor_range whole = { tensor, 0, tensor->elements };
    return safetensors_read(checkpoint, whole, type, ret, reterr);
}
