/* nccl_copies.c - exchanges on the copy engines: the arena as one block that the members of a group
 * see, and what an exchange must be to go that way. NCCL takes it where buffers lie in symmetric
 * windows and the communicator's policy allows no thread blocks. */
#include "executor/fabric/nccl/nccl_group.h"

#include "base/checked.h"

#include <stdlib.h>

enum { BLOCK_UNIT = 2 << 20 };

/* The largest of every rank's value, through the fabric that started the ranks. */
static int largest(struct nccl_fabric *f, int64_t mine, int64_t *ret, struct diag_list *reterr)
{
    struct group *all = f->host->all;
    size_t count = (size_t)f->base.world;
    int64_t *values = calloc(2 * count, sizeof *values);
    int failed = values ? 0 : nccl_no_memory(f, reterr);

    for (size_t i = 0; i < count && values; i++)
        values[i] = mine;
    if (values)
        failed = f->host->ops->exchange_counts(all, values, values + count, 1, reterr);
    *ret = mine;
    for (size_t i = 0; i < count && values; i++)
        *ret = values[count + i] > *ret ? values[count + i] : *ret;
    free(values);
    return failed;
}

/* All ranks have it, or none: a window is made by all. */
static void *reserve(void *context, uint64_t bytes)
{
    struct nccl_fabric *f = context;
    struct diag_list ignored = { 0 };
    int64_t most = 0, refused = 1;
    void *block = NULL;

    if (bytes > INT64_MAX || largest(f, (int64_t)bytes, &most, &ignored) != 0)
        return NULL;
    f->block_bytes = round_up_to((uint64_t)most, BLOCK_UNIT);
    bool mine = ncclMemAlloc(&block, f->block_bytes) == ncclSuccess;
    if (!mine)
        (void)cudaGetLastError();
    if (largest(f, !mine, &refused, &ignored) == 0 && refused == 0) {
        f->block = block;
        return block;
    }
    if (mine)
        (void)ncclMemFree(block);
    return NULL;
}

static void release(void *context, void *block, uint64_t bytes)
{
    struct nccl_fabric *f = context;
    (void)bytes;
    for (struct communicator *c = f->communicators; c; c = c->next)
        if (c->window)
            (void)ncclCommWindowDeregister(c->comm, c->window);
    f->block = NULL;
    (void)ncclMemFree(block);
}

struct arena_source nccl_window_source(struct fabric *f)
{
    return (struct arena_source){ .reserve = reserve, .release = release, .context = f };
}

int nccl_window_open(struct nccl_group *g, struct diag_list *reterr)
{
    struct nccl_fabric *f = g->fabric;
    struct communicator *c = g->communicator;

    if (c->window || !f->block)
        return 0;
    uint64_t before = nccl_device_free();
    ncclResult_t result = ncclCommWindowRegister(c->comm, f->block, f->block_bytes, &c->window,
                                                 NCCL_WIN_COLL_SYMMETRIC);
    nccl_account(f, before);
    return nccl_check(g, result, "window of the exchange", reterr);
}

int64_t nccl_equal_share(const struct nccl_group *g, const int64_t *send_rows,
                         const int64_t *recv_rows, struct diag_list *reterr)
{
    for (int i = 0; i < g->base.info.count; i++)
        if (send_rows[i] != send_rows[0] || recv_rows[i] != send_rows[0]) {
            diag_error(reterr, (struct pos){ 0 },
                       "rank %d: an exchange on the copy engines moves equal shares, but of %lld "
                       "rows for member 0, member %d gets %lld and gives %lld",
                       g->fabric->base.rank, (long long)send_rows[0], i, (long long)send_rows[i],
                       (long long)recv_rows[i]);
            return diag_hint(reterr, "exchange=sm runs whatever the router chooses");
        }
    return send_rows[0];
}
