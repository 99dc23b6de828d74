#include "base/safetensors/checkpoint.h"

#include "base/text.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int compare_names(const void *a, const void *b)
{
    const struct stored_tensor *left = a;
    const struct stored_tensor *right = b;
    return strcmp(left->name, right->name);
}

void sort_by_name(struct stored_tensor *tensors, size_t count)
{
    if (count > 0)
        qsort(tensors, count, sizeof *tensors, compare_names);
}

const struct stored_tensor *sorted_find(const struct stored_tensor *tensors, size_t count,
                                        const char *name)
{
    const struct stored_tensor wanted = { .name = name };
    return count > 0 ? bsearch(&wanted, tensors, count, sizeof wanted, compare_names) : NULL;
}

static int open_single(const char *path, struct safetensors *ret, struct diag_list *reterr)
{
    ret->files = pool_alloc(&ret->pool, sizeof *ret->files);
    if (!ret->files)
        return diag_no_memory(reterr);
    ret->file_count = 1;
    if (data_file_open(&ret->pool, path, ret->files, reterr) < 0)
        return -1;
    ret->tensors = ret->files->header.tensors;
    ret->count = ret->files->header.count;
    sort_by_name(ret->tensors, ret->count);
    return 0;
}

/* The file of a directory that is to be opened, as the format's users name them. */
static int find_in_directory(const char *directory, char *ret, size_t size,
                             struct diag_list *reterr)
{
    static const char *const names[] = { "model.safetensors", "model.safetensors.index.json" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int length = snprintf(ret, size, "%s/%s", directory, names[i]);
        if (length > 0 && (size_t)length < size && access(ret, F_OK) == 0)
            return 0;
    }
    return diag_error(reterr, (struct pos){ .file = directory }, "holds neither %s nor %s",
                      names[0], names[1]);
}

static bool ends_in(const char *text, const char *ending)
{
    size_t length = strlen(text);
    return length >= strlen(ending) && strcmp(text + length - strlen(ending), ending) == 0;
}

int safetensors_open(const char *path, struct safetensors **ret, struct diag_list *reterr)
{
    char found[PATH_MAX];
    struct stat status;
    *ret = NULL;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        if (find_in_directory(path, found, sizeof found, reterr) < 0)
            return -1;
        path = found;
    }
    struct safetensors *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint)
        return diag_no_memory(reterr);
    int opened = ends_in(path, ".json") ? index_open(path, checkpoint, reterr)
                                        : open_single(path, checkpoint, reterr);
    if (opened < 0)
        safetensors_close(checkpoint);
    else
        *ret = checkpoint;
    return opened < 0 ? -1 : 0;
}

void safetensors_close(struct safetensors *checkpoint)
{
    if (!checkpoint)
        return;
    for (int i = 0; i < checkpoint->file_count; i++)
        if (checkpoint->files[i].handle >= 0)
            (void)close(checkpoint->files[i].handle);
    pool_done(&checkpoint->pool);
    free(checkpoint);
}

size_t safetensors_count(const struct safetensors *checkpoint)
{
    return checkpoint->count;
}

const struct stored_tensor *safetensors_at(const struct safetensors *checkpoint, size_t i)
{
    return &checkpoint->tensors[i];
}

const struct stored_tensor *safetensors_find(const struct safetensors *checkpoint, const char *name)
{
    return sorted_find(checkpoint->tensors, checkpoint->count, name);
}

const char *safetensors_metadata(const struct safetensors *checkpoint, const char *key)
{
    for (int i = 0; i < checkpoint->file_count; i++) {
        const struct header *header = &checkpoint->files[i].header;
        for (size_t k = 0; k < header->metadata_count; k++)
            if (strcmp(header->metadata[k].key, key) == 0)
                return header->metadata[k].value;
    }
    return NULL;
}

/* The first missing name gets the nearest spelling; more of them mean another model, and each
 * search looks at every name. */
static int missing(const struct safetensors *checkpoint, const char *name, struct diag_list *reterr)
{
    bool first = reterr->errors == 0;
    diag_error(reterr, (struct pos){ .file = checkpoint->files[0].path }, "has no tensor '%.*s'",
               name_shown(name), name);
    const char **names = first ? malloc((checkpoint->count + 1) * sizeof *names) : NULL;
    if (!names)
        return -1;
    for (size_t i = 0; i < checkpoint->count; i++)
        names[i] = checkpoint->tensors[i].name;
    const char *nearest = text_nearest(name, names, checkpoint->count);
    if (nearest)
        diag_hint(reterr, "did you mean '%s'?", nearest);
    free((void *)names);
    return -1;
}

int safetensors_expect(const struct safetensors *checkpoint,
                       const struct tensor_expectation *expectation,
                       const struct stored_tensor **ret, struct diag_list *reterr)
{
    const struct stored_tensor *tensor = safetensors_find(checkpoint, expectation->name);
    *ret = NULL;
    if (!tensor)
        return missing(checkpoint, expectation->name, reterr);
    struct pos at = { .file = checkpoint->files[tensor->file].path };
    bool type_fits = expectation->type == TENSOR_TYPE_ANY || expectation->type == tensor->type;
    bool shape_fits = expectation->axes == tensor->axes;
    for (int i = 0; i < tensor->axes && shape_fits; i++)
        shape_fits = expectation->shape[i] == tensor->shape[i];
    if (!type_fits)
        diag_error(reterr, at, "tensor '%.*s' is %s, expected %s", name_shown(tensor->name),
                   tensor->name, tensor_type_name(tensor->type),
                   tensor_type_name(expectation->type));
    if (!shape_fits) {
        char has[SHAPE_TEXT_BYTES];
        char wanted[SHAPE_TEXT_BYTES];
        shape_format(tensor->shape, tensor->axes, has, sizeof has);
        shape_format(expectation->shape, expectation->axes, wanted, sizeof wanted);
        diag_error(reterr, at, "tensor '%.*s' has shape %s, expected %s", name_shown(tensor->name),
                   tensor->name, has, wanted);
    }
    if (!type_fits || !shape_fits)
        return -1;
    *ret = tensor;
    return 0;
}
