#include "executor/runtime/whole.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(struct work *w)
{
    w->failed = true;
    return diag_error(w->errors, (struct pos){ 0 }, "no memory left to gather the state");
}

char **whole_texts(struct work *w, const void *host, uint64_t bytes)
{
    struct fabric *f = w->mesh->fabric;
    char **texts = calloc((size_t)f->world, sizeof *texts);
    uint64_t *sizes = calloc((size_t)f->world, sizeof *sizes);

    if (!texts || !sizes) {
        no_memory(w);
    } else {
        progress_wait(w->progress, "gather_text");
        work_note(w, f->ops->gather_text(f->all, host, bytes, texts, sizes, w->errors));
        progress_waited(w->progress);
    }
    free(sizes);
    return texts;
}

void whole_texts_free(struct work *w, char **texts)
{
    for (int i = 0; texts && i < w->mesh->fabric->world; i++)
        free(texts[i]);
    free(texts);
}

/* Index of `rank` among the ranks that share its state. */
static int shard_index(const struct layout *l, enum mesh mesh, int rank)
{
    if (mesh == MESH_EXPERT)
        return layout_coordinate(l, AXIS_E_FSDP, rank);
    return layout_coordinate(l, AXIS_CP, rank) + l->cp * layout_coordinate(l, AXIS_FSDP, rank);
}

static int spread_of(const struct work *w, enum mesh mesh)
{
    return mesh == MESH_EXPERT ? w->mesh->layout->ep : 1;
}

static char *assemble(struct work *w, const struct state_part *part, enum mesh mesh,
                      char *const *texts, uint64_t element_bytes)
{
    const struct layout *l = w->mesh->layout;
    uint64_t bytes = part->padded * element_bytes, slice = part->slice * element_bytes;
    char *whole = calloc((size_t)spread_of(w, mesh), bytes);

    if (!whole) {
        no_memory(w);
        return NULL;
    }
    for (int rank = 0; rank < w->mesh->fabric->world; rank++) {
        uint64_t ep = mesh == MESH_EXPERT ? (uint64_t)layout_coordinate(l, AXIS_EP, rank) : 0;
        uint64_t index = part->shards > 1 ? (uint64_t)shard_index(l, mesh, rank) : 0;
        memcpy(whole + ep * bytes + index * slice, texts[rank], slice);
    }
    return whole;
}

void *whole_gather(struct work *w, const struct state_part *part, enum mesh mesh, const void *slice,
                   uint64_t element_bytes)
{
    uint64_t bytes = part->slice * element_bytes;
    char *host = malloc(bytes + 1), *whole = NULL;

    if (!host) {
        no_memory(w);
        return NULL;
    }
    WORK_OP(w, download, host, slice, bytes);
    work_sync(w);
    char **texts = w->failed ? NULL : whole_texts(w, host, bytes);
    if (!w->failed && w->mesh->fabric->rank == 0)
        whole = assemble(w, part, mesh, texts, element_bytes);
    whole_texts_free(w, texts);
    free(host);
    return whole;
}

static int each_copy(struct work *w, const struct state_tensor *tensor, struct whole_copy copy,
                     uint64_t part_bytes, uint64_t element_bytes,
                     int (*visit)(void *context, const struct whole_copy *copy), void *context)
{
    const char *whole = copy.values;
    struct state_tensor first = *tensor;
    char name[128];
    int stop = 0;

    first.first_copy = 0;
    copy.name = name;
    for (int c = 0; c < spread_of(w, tensor->mesh) * tensor->copies && stop == 0; c++) {
        uint64_t at = tensor->offset + (uint64_t)(c % tensor->copies) * tensor->stride;
        copy.index = c;
        state_tensor_name(&first, c, name, sizeof name);
        if (whole)
            copy.values = whole + (uint64_t)(c / tensor->copies) * part_bytes + at * element_bytes;
        stop = visit(context, &copy);
    }
    return stop;
}

int whole_each(struct work *w, const struct state_unit *unit, enum mesh mesh, const void *whole,
               uint64_t element_bytes, int (*visit)(void *context, const struct whole_copy *copy),
               void *context)
{
    int stop = 0;
    for (int i = 0; i < unit->tensor_count && stop == 0; i++) {
        const struct state_tensor *tensor = &unit->tensors[i];
        const struct whole_copy copy = { .tensor = tensor, .values = whole };
        if (tensor->mesh == mesh)
            stop = each_copy(w, tensor, copy, unit->parts[mesh].padded * element_bytes,
                             element_bytes, visit, context);
    }
    return stop;
}
