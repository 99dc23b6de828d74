#include "executor/backend/cuda/cuda.h"

/* Blocks a multiprocessor that leave partial sums: enough to fill it, few enough to sum. */
enum { BLOCKS_EACH = 4 };

static int no_workspace(const char *operation, struct diag_list *reterr)
{
    return cuda_refuse(reterr, "%s: no workspace is set", operation);
}

void *cuda_panel(struct cuda *c, int panel, struct diag_list *reterr)
{
    if (!c->workspace) {
        (void)no_workspace("GEMM", reterr);
        return NULL;
    }
    return c->workspace + (uint64_t)panel * CUDA_PANEL_BYTES;
}

void *cuda_scratch(struct cuda *c, enum stream s, uint64_t bytes, const char *operation,
                   struct diag_list *reterr)
{
    if (!c->workspace) {
        (void)no_workspace(operation, reterr);
        return NULL;
    }
    if (bytes > CUDA_SCRATCH_BYTES) {
        (void)cuda_refuse(reterr, "%s wants %llu bytes of scratch, %llu there", operation,
                          (unsigned long long)bytes, (unsigned long long)CUDA_SCRATCH_BYTES);
        return NULL;
    }
    return c->workspace + CUDA_PANELS * CUDA_PANEL_BYTES + (uint64_t)s * CUDA_SCRATCH_BYTES;
}

struct cuda_ledger *cuda_ledger(struct cuda *c, enum stream s, const char *operation,
                                struct diag_list *reterr)
{
    if (!c->workspace) {
        (void)no_workspace(operation, reterr);
        return NULL;
    }
    char *first = c->workspace + CUDA_PANELS * CUDA_PANEL_BYTES + STREAM_COUNT * CUDA_SCRATCH_BYTES;
    return (struct cuda_ledger *)(void *)first + s;
}

int cuda_sum_blocks(const struct cuda *c, int64_t width)
{
    int64_t most = (int64_t)CUDA_SCRATCH_BYTES / (4 * width);
    int64_t wanted = (int64_t)BLOCKS_EACH * c->multiprocessors;
    return (int)(wanted < most ? wanted : most > 0 ? most : 1);
}

int cuda_read_back(struct cuda *c, enum stream s, const void *from, uint64_t bytes,
                   struct diag_list *reterr)
{
    if (bytes > CUDA_PINNED_BYTES)
        return cuda_refuse(reterr, "%llu bytes to read back, room for %d",
                           (unsigned long long)bytes, CUDA_PINNED_BYTES);
    if (cuda_check(cudaMemcpyAsync(c->pinned, from, bytes, cudaMemcpyDeviceToHost, c->streams[s]),
                   "cudaMemcpyAsync to the host", reterr) != 0)
        return -1;
    return cuda_check(cudaStreamSynchronize(c->streams[s]), "cudaStreamSynchronize", reterr);
}

int cuda_settle(struct cuda *c, enum stream s, struct diag_list *reterr)
{
    struct cuda_losses *losses = &c->losses[s];
    if (losses->count == 0)
        return cuda_check(cudaStreamSynchronize(c->streams[s]), "cudaStreamSynchronize", reterr);
    const struct cuda_ledger *ledger = cuda_ledger(c, s, "loss", reterr);
    int count = losses->count;
    losses->count = 0;
    if (!ledger || cuda_read_back(c, s, ledger, sizeof *ledger, reterr) != 0)
        return -1;
    const struct cuda_ledger *read = c->pinned;
    for (int i = 0; i < count; i++)
        *losses->to[i] += read->losses[i];
    if (read->bad_target != 0)
        return cuda_refuse(reterr, "target of row %lld of a tile is outside the vocabulary",
                           (long long)(read->bad_target - 1));
    return 0;
}
