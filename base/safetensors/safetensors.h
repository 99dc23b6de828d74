/* safetensors.h - reading tensors from a .safetensors file, or from the shards that a
 * model.safetensors.index.json names. Owns the open files; knows names, dtypes and shapes, nothing
 * of models. The format: 8 bytes little-endian length of the header, the header as JSON, the data
 * of the tensors without holes (https://huggingface.co/docs/safetensors). */
#ifndef RANKFIT_BASE_SAFETENSORS_SAFETENSORS_H
#define RANKFIT_BASE_SAFETENSORS_SAFETENSORS_H

#include "base/diag.h"

#include <stddef.h>
#include <stdint.h>

enum tensor_type {
    TENSOR_TYPE_BOOL,
    TENSOR_TYPE_F4,
    TENSOR_TYPE_F6_E2M3,
    TENSOR_TYPE_F6_E3M2,
    TENSOR_TYPE_U8,
    TENSOR_TYPE_I8,
    TENSOR_TYPE_F8_E5M2,
    TENSOR_TYPE_F8_E4M3,
    TENSOR_TYPE_F8_E8M0,
    TENSOR_TYPE_I16,
    TENSOR_TYPE_U16,
    TENSOR_TYPE_F16,
    TENSOR_TYPE_BF16,
    TENSOR_TYPE_I32,
    TENSOR_TYPE_U32,
    TENSOR_TYPE_F32,
    TENSOR_TYPE_C64,
    TENSOR_TYPE_F64,
    TENSOR_TYPE_I64,
    TENSOR_TYPE_U64,
    TENSOR_TYPE_COUNT,
    TENSOR_TYPE_ANY = TENSOR_TYPE_COUNT /* of an expectation: whatever it is */
};
/* As the header writes it; bits of one element (a tensor of F4 or F6 must fill whole bytes). */
const char *tensor_type_name(enum tensor_type type);
unsigned tensor_type_bits(enum tensor_type type);

enum { STORED_MAX_AXES = 8 };

/* One tensor as a file holds it. Lives as long as what it was found in. */
struct stored_tensor {
    const char *name;
    enum tensor_type type;
    int axes; /* 0: a scalar */
    uint64_t shape[STORED_MAX_AXES];
    uint64_t elements, bytes;
    uint64_t begin; /* in the data of its file */
    int file;       /* which file of a sharded checkpoint */
};

struct tensor_metadata {
    const char *key, *value;
};

struct safetensors;

/* FILE.safetensors, an index (.json), or a directory that holds model.safetensors or, if not,
 * model.safetensors.index.json. Everything but the data is read and validated. On failure *ret is
 * NULL and every fault is told; a fault inside the JSON text by its byte offset in the file. */
int safetensors_open(const char *path, struct safetensors **ret, struct diag_list *reterr);

/* Accepts NULL. */
void safetensors_close(struct safetensors *checkpoint);

/* All tensors, sorted by name (bytes). Of a sharded checkpoint those that the index names. */
size_t safetensors_count(const struct safetensors *checkpoint);
const struct stored_tensor *safetensors_at(const struct safetensors *checkpoint, size_t i);

/* NULL when there is none. */
const struct stored_tensor *safetensors_find(const struct safetensors *checkpoint,
                                             const char *name);

/* A value of a file's __metadata__ (of the first shard that has the key), or NULL. */
const char *safetensors_metadata(const struct safetensors *checkpoint, const char *key);

struct tensor_expectation {
    const char *name;
    enum tensor_type type; /* TENSOR_TYPE_ANY: not judged */
    int axes;
    const uint64_t *shape;
};

/* Finds a tensor that must be there with this type and shape; *ret is NULL on failure. */
int safetensors_expect(const struct safetensors *checkpoint,
                       const struct tensor_expectation *expectation,
                       const struct stored_tensor **ret, struct diag_list *reterr);

/* Elements first .. first + count - 1 of a tensor, in row-major order. */
struct tensor_range {
    const struct stored_tensor *tensor;
    uint64_t first, count;
};

/* Reads a range as `type` into ret: as stored, or between BF16 (round to nearest even) and F32;
 * other conversions are refused, as is a range outside the tensor or one that begins or ends inside
 * a byte. Reads by offset, so several threads may read at once. */
int safetensors_read(const struct safetensors *checkpoint, struct tensor_range range,
                     enum tensor_type type, void *ret, struct diag_list *reterr);

/* The whole tensor. ret: elements of `type`. */
int safetensors_read_all(const struct safetensors *checkpoint, const struct stored_tensor *tensor,
                         enum tensor_type type, void *ret, struct diag_list *reterr);

#endif
