/* header.h - the JSON header of one safetensors file: read into a table of tensors, every promise
 * of the format checked. Pure: no files. Private to base/safetensors. */
#ifndef RANKFIT_BASE_SAFETENSORS_HEADER_H
#define RANKFIT_BASE_SAFETENSORS_HEADER_H

#include "base/pool.h"
#include "base/safetensors/safetensors.h"

/* LENGTH: of the number in front of the header. MAX: as the format's own library has it. */
enum { HEADER_LENGTH_BYTES = 8, HEADER_MAX_BYTES = 100000000 };

/* In `pool` of the caller; tensors in the order of their data. */
struct header {
    size_t count, metadata_count;
    struct stored_tensor *tensors;
    struct tensor_metadata *metadata;
};

/* name: of the file, in diagnostics. data_bytes: what follows the header. -1 with every fault. */
int header_read(struct pool *pool, const char *name, const char *text, size_t bytes,
                uint64_t data_bytes, struct header *ret, struct diag_list *reterr);

/* Sets elements and bytes from type and shape. Returns NULL, or what is wrong with the size. */
const char *stored_tensor_measure(struct stored_tensor *tensor);

/* How many bytes of a name a message shows, for "%.*s". */
int name_shown(const char *name);

/* "[4, 8]". size: SHAPE_TEXT_BYTES always suffice. */
enum { SHAPE_TEXT_BYTES = 192 };
void shape_format(const uint64_t *shape, int axes, char *ret, size_t size);

#endif
