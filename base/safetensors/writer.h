/* writer.h - writing a .safetensors file: what it will hold is said first, then the data of all
 * tensors is given in that order, in pieces of any size. The file appears when all of it is there,
 * or not at all. */
#ifndef RANKFIT_BASE_SAFETENSORS_WRITER_H
#define RANKFIT_BASE_SAFETENSORS_WRITER_H

#include "base/safetensors/safetensors.h"

struct tensor_description {
    const char *name;
    enum tensor_type type;
    int axes;
    const uint64_t *shape;
};

struct safetensors_contents {
    size_t count, metadata_count;
    const struct tensor_description *tensors;
    const struct tensor_metadata *metadata; /* keys all different */
};

struct safetensors_writer;

/* Writes the header, padded with spaces so that the data begins at a multiple of 8 bytes. Refuses
 * what the reader would: equal names, text that is not UTF-8, sizes beyond 64 bits. */
int safetensors_create(const char *path, const struct safetensors_contents *contents,
                       struct safetensors_writer **ret, struct diag_list *reterr);

/* The next bytes of the data. After a failure only discard remains. */
int safetensors_append(struct safetensors_writer *writer, const void *data, size_t bytes,
                       struct diag_list *reterr);

/* Puts the file in its place; fails, leaving nothing, when data is missing. Ends the writer. */
int safetensors_commit(struct safetensors_writer *writer, struct diag_list *reterr);

/* Ends the writer without a file. Accepts NULL. */
void safetensors_discard(struct safetensors_writer *writer);

#endif
