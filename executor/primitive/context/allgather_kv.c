#include "executor/primitive/context/context.h"

#include <stdlib.h>

/* A block that travels is a run: keys beside values of neighbouring tokens. */
struct blocks {
    int count; /* of one rank */
    uint64_t elements;
    int *places; /* [cp * count] where each rank's blocks lie in sequence order */
};

/* width: elements per token */
static int blocks_open(struct work *w, const struct micro_batch *batch, int64_t width,
                       struct blocks *ret)
{
    struct zigzag order = batch->order;
    int runs = zigzag_runs(&order), chunks = runs * order.cp;

    ret->count = (int)(batch->tokens / zigzag_run_tokens(&order));
    ret->elements = (uint64_t)(zigzag_run_tokens(&order) * width);
    ret->places = calloc((size_t)order.cp * (size_t)ret->count, sizeof *ret->places);
    if (!ret->places) {
        w->failed = true;
        return diag_error(w->errors, (struct pos){ 0 }, "no memory left for places of keys");
    }
    for (order.rank = 0; order.rank < order.cp; order.rank++)
        for (int i = 0; i < ret->count; i++)
            ret->places[order.rank * ret->count + i] =
                i / runs * chunks + zigzag_chunk(&order, i % runs);
    return 0;
}

void context_gather_rows(struct work *w, const struct micro_batch *batch, const void *own,
                         int64_t width, uint64_t element_bytes, void *all)
{
    struct blocks blocks;

    if (!work_runs(w) || blocks_open(w, batch, width, &blocks) != 0)
        return;
    WORK_FABRIC(w, gather_blocks, w->mesh->groups[MESH_CONTEXT], own, all,
                blocks.elements * element_bytes, blocks.count, blocks.places);
    free(blocks.places);
}

void context_reduce_rows(struct work *w, const struct micro_batch *batch, const void *all,
                         int64_t width, void *own)
{
    struct blocks blocks;

    if (!work_runs(w) || blocks_open(w, batch, width, &blocks) != 0)
        return;
    WORK_FABRIC(w, reduce_blocks, w->mesh->groups[MESH_CONTEXT], all, own, blocks.elements,
                blocks.count, blocks.places, DTYPE_FP32);
    free(blocks.places);
}

void allgather_kv_collect(struct work *w, const struct micro_batch *batch,
                          struct context_keys *keys)
{
    const uint64_t bytes = sizeof(bf16);
    int64_t width = keys->width, all = batch->tokens * batch->order.cp;

    struct buffer packed = work_take_tensor(w, OWNER_KV, batch->tokens, 2 * width, bytes);
    WORK_OP(w, copy_rows, batch->tokens, width, keys->k, keys->k_stride, packed.data, 2 * width);
    WORK_OP(w, copy_rows, batch->tokens, width, keys->v, keys->v_stride,
            element_at(packed.data, (uint64_t)width, bytes), 2 * width);
    keys->gathered = work_take_tensor(w, OWNER_KV, all, 2 * width, bytes);
    context_gather_rows(w, batch, packed.data, 2 * width, bytes, keys->gathered.data);
    work_give(w, &packed);
    work_give(w, &keys->own);
    keys->k = keys->gathered.data;
    keys->v = element_at(keys->gathered.data, (uint64_t)width, bytes);
    keys->k_stride = keys->v_stride = 2 * width;
}

void allgather_kv_return(struct work *w, const struct micro_batch *batch, struct context_keys *keys,
                         bf16 *d_kv, int64_t stride)
{
    int64_t width = 2 * keys->width;

    struct buffer own = work_take_tensor(w, OWNER_KV, batch->tokens, width, sizeof(float));
    context_reduce_rows(w, batch, keys->sums.data, width, own.data);
    WORK_OP(w, rows_to_bf16, batch->tokens, width, own.data, width, d_kv, stride);
    work_give(w, &keys->sums);
    work_give(w, &own);
}
