/* A checkpoint in shards: model.safetensors.index.json says which file holds which tensor. */
#include "base/safetensors/checkpoint.h"

#include "base/tree.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* What a process may usually have open. */
enum { SHARDS_MAX = 1000 };

/* A shard lies beside its index; a name that leads elsewhere is refused. */
static bool is_file_name(const struct node *node)
{
    return node->kind == NODE_TEXT && node->text[0] && !strchr(node->text, '/') &&
           strcmp(node->text, ".") != 0 && strcmp(node->text, "..") != 0;
}

static int compare_texts(const void *a, const void *b)
{
    const char *const *left = a;
    const char *const *right = b;
    return strcmp(*left, *right);
}

/* The distinct file names of a weight map, sorted, in ret (room for all). Returns how many, or -1.
 */
static int shard_names(const struct node *map, const char **ret, struct diag_list *reterr)
{
    size_t count = 0;
    size_t distinct = 0;
    for (const struct node *child = map->child; child; child = child->next) {
        if (!is_file_name(child)) {
            diag_error(reterr, child->at, "the shard of '%.*s' is not a file name",
                       name_shown(child->key), child->key);
            return -1;
        }
        ret[count++] = child->text;
    }
    if (count > 0)
        qsort((void *)ret, count, sizeof *ret, compare_texts);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(ret[i], ret[distinct - 1]) != 0)
            ret[distinct++] = ret[i];
    if (distinct > 0 && distinct <= SHARDS_MAX)
        return (int)distinct;
    diag_error(reterr, map->at, "names %zu shards, not 1 to %d", distinct, SHARDS_MAX);
    return -1;
}

static int open_shards(const char *path, const char *const *names, int count,
                       struct safetensors *ret, struct diag_list *reterr)
{
    const char *slash = strrchr(path, '/');
    int directory = slash ? (int)(slash + 1 - path) : 0;
    int before = reterr->errors;
    ret->files = pool_alloc(&ret->pool, (size_t)count * sizeof *ret->files);
    if (!ret->files)
        return diag_no_memory(reterr);
    for (int i = 0; i < count; i++) {
        char *shard = pool_printf(&ret->pool, "%.*s%s", directory, path, names[i]);
        if (!shard)
            return diag_no_memory(reterr);
        ret->file_count = i + 1;
        if (data_file_open(&ret->pool, shard, &ret->files[i], reterr) == 0)
            sort_by_name(ret->files[i].header.tensors, ret->files[i].header.count);
    }
    return reterr->errors == before ? 0 : -1;
}

/* Takes every tensor of the map out of the header of its shard. */
static int collect(const struct node *map, const char *const *names, struct safetensors *ret,
                   struct diag_list *reterr)
{
    int before = reterr->errors;
    ret->tensors = pool_alloc(&ret->pool, map->count * sizeof *ret->tensors);
    if (!ret->tensors)
        return diag_no_memory(reterr);
    for (const struct node *child = map->child; child; child = child->next) {
        const char *const *name =
            bsearch(&child->text, names, (size_t)ret->file_count, sizeof *names, compare_texts);
        int file = name ? (int)(name - names) : 0;
        const struct header *header = &ret->files[file].header;
        const struct stored_tensor *found = sorted_find(header->tensors, header->count, child->key);
        if (!found) {
            diag_error(reterr, child->at, "'%.60s' has no tensor '%.*s'", child->text,
                       name_shown(child->key), child->key);
            continue;
        }
        ret->tensors[ret->count] = *found;
        ret->tensors[ret->count++].file = file;
    }
    sort_by_name(ret->tensors, ret->count);
    return reterr->errors == before ? 0 : -1;
}

static int read_map(const char *path, const struct node *map, struct safetensors *ret,
                    struct diag_list *reterr)
{
    const char **names = malloc((map->count + 1) * sizeof *names);
    if (!names)
        return diag_no_memory(reterr);
    int count = shard_names(map, names, reterr);
    int status = count < 0 ? -1 : open_shards(path, names, count, ret, reterr);
    if (status == 0)
        status = collect(map, names, ret, reterr);
    free((void *)names);
    return status;
}

int index_open(const char *path, struct safetensors *ret, struct diag_list *reterr)
{
    struct tree tree;
    const struct node *map = NULL;
    int status = tree_read_file(&tree, path, reterr);
    if (status == 0 && tree.root->kind != NODE_MAP)
        status = diag_error(reterr, tree.root->at, "an index is a map");
    if (status == 0) {
        int found = node_map(tree.root, "weight_map", &map, reterr);
        if (found == 0)
            diag_error(reterr, tree.root->at, "an index has the key 'weight_map', this has not");
        status = found == 1 ? read_map(path, map, ret, reterr) : -1;
    }
    tree_done(&tree);
    return status;
}
