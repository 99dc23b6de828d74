/* checkpoint.h - what an open checkpoint is: data files with their headers, and one table of
 * tensors over them. Private to base/safetensors. */
#ifndef RANKFIT_BASE_SAFETENSORS_CHECKPOINT_H
#define RANKFIT_BASE_SAFETENSORS_CHECKPOINT_H

#include "base/safetensors/header.h"

struct data_file {
    const char *path;
    int handle; /* -1: not open */
    uint64_t data_begin;
    struct header header;
};

struct safetensors {
    struct pool pool;
    int file_count;
    struct data_file *files;
    size_t count;
    struct stored_tensor *tensors; /* sorted by name */
};

/* Opens one file and reads its header; ret->handle must be closed in both cases. */
int data_file_open(struct pool *pool, const char *path, struct data_file *ret,
                   struct diag_list *reterr);

/* Fills an empty checkpoint from an index: its shards are opened, and tensors are those of its
 * weight_map. */
int index_open(const char *path, struct safetensors *ret, struct diag_list *reterr);

/* Among `count` tensors sorted by name; NULL when there is none. */
const struct stored_tensor *sorted_find(const struct stored_tensor *tensors, size_t count,
                                        const char *name);
void sort_by_name(struct stored_tensor *tensors, size_t count);

#endif
