/* fabric_nccl.c - the fabric of GPUs: start, groups, host values, end. */
#include "executor/backend/cuda/streams.h"
#include "executor/fabric/nccl/nccl_group.h"

#include <stdlib.h>
#include <string.h>

static const struct pos nowhere = { NULL, 0, 0 };

static struct nccl_fabric *fabric_of(struct fabric *f)
{
    return (struct nccl_fabric *)f;
}

int nccl_no_memory(const struct nccl_fabric *f, struct diag_list *reterr)
{
    return diag_error(reterr, nowhere, "rank %d: no memory left for a group", f->base.rank);
}

static void group_close(struct fabric *f, struct group *g)
{
    struct nccl_fabric *fabric = fabric_of(f);

    if (!g)
        return;
    communicator_leave(nccl_group_of(g));
    fabric->host->ops->group_close(fabric->host, nccl_group_of(g)->host);
    free(g);
}

static int open_group(struct fabric *f, const int *ranks, int count, bool copies,
                      struct group **ret, struct diag_list *reterr)
{
    struct nccl_fabric *fabric = fabric_of(f);
    struct nccl_group *g = calloc(1, sizeof *g);

    *ret = NULL;
    if (!g)
        return nccl_no_memory(fabric, reterr);
    g->fabric = fabric;
    if (fabric->host->ops->group_open(fabric->host, ranks, count, &g->host, reterr) != 0) {
        free(g);
        return -1;
    }
    g->base.info = *group_info(g->host);
    if (count > 1 && communicator_join(g, ranks, copies, reterr) != 0) {
        group_close(f, &g->base);
        return -1;
    }
    *ret = &g->base;
    return 0;
}

static int group_open(struct fabric *f, const int *ranks, int count, struct group **ret,
                      struct diag_list *reterr)
{
    return open_group(f, ranks, count, false, ret, reterr);
}

static int group_open_copies(struct fabric *f, const int *ranks, int count, struct group **ret,
                             struct diag_list *reterr)
{
    return open_group(f, ranks, count, true, ret, reterr);
}

int nccl_check(const struct nccl_group *g, ncclResult_t result, const char *operation,
               struct diag_list *reterr)
{
    const struct communicator *c = g->communicator;
    ncclResult_t later = ncclSuccess;

    if (result == ncclSuccess && c && ncclCommGetAsyncError(c->comm, &later) == ncclSuccess &&
        later != ncclInProgress)
        result = later;
    if (result == ncclSuccess)
        return 0;
    const char *detail = ncclGetLastError(c ? c->comm : NULL);
    bool memory = detail && (strstr(detail, "memory") || strstr(detail, "alloc"));
    diag_error(reterr, nowhere, "rank %d: %s%s over %d ranks failed: %s", g->fabric->base.rank,
               memory ? "memory for 'communicators': " : "", operation, g->base.info.count,
               ncclGetErrorString(result));
    return detail && detail[0] ? diag_hint(reterr, "%.200s", detail) : -1;
}

int nccl_check_cuda(const struct nccl_fabric *f, cudaError_t status, const char *operation,
                    struct diag_list *reterr)
{
    if (status == cudaSuccess)
        return 0;
    return diag_error(reterr, nowhere, "rank %d: %s: %s", f->base.rank, operation,
                      cudaGetErrorString(status));
}

int nccl_copy(const struct nccl_group *g, void *to, const void *from, uint64_t bytes,
              struct diag_list *reterr)
{
    if (to == from || bytes == 0)
        return 0;
    return nccl_check_cuda(
        g->fabric, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, g->fabric->compute),
        "copy", reterr);
}

int nccl_begin(struct nccl_call *call, struct diag_list *reterr)
{
    struct nccl_fabric *f = call->group->fabric;
    unsigned bit = 1U << call->kind;
    cudaError_t status = cudaEventRecord(f->fork, f->compute);

    if (status == cudaSuccess)
        status = cudaStreamWaitEvent(f->communication, f->fork, 0);
    if (nccl_check_cuda(f, status, call->operation, reterr) != 0)
        return -1;
    call->free_before = call->group->communicator->seen & bit ? 0 : nccl_device_free();
    call->group->communicator->seen |= bit;
    call->interval = interval_begin(&f->intervals, f->communication);
    return nccl_check(call->group, ncclGroupStart(), call->operation, reterr);
}

static struct transfer *new_transfer(struct nccl_fabric *f)
{
    struct transfer *t = f->idle;
    if (t) {
        f->idle = t->next;
        return t;
    }
    t = calloc(1, sizeof *t);
    if (t && cudaEventCreateWithFlags(&t->done, cudaEventDisableTiming) == cudaSuccess)
        return t;
    free(t);
    return NULL;
}

int nccl_transfer_wait(struct group *g, struct transfer *t, struct diag_list *reterr)
{
    struct nccl_fabric *f = nccl_group_of(g)->fabric;
    if (!t)
        return 0;
    cudaError_t status = cudaStreamWaitEvent(f->compute, t->done, 0);
    t->next = f->idle;
    f->idle = t;
    return nccl_check_cuda(f, status, "transfer_wait", reterr);
}

int nccl_end(struct nccl_call *call, ncclResult_t result, struct transfer **ret,
             struct diag_list *reterr)
{
    struct nccl_group *g = call->group;
    struct nccl_fabric *f = g->fabric;
    ncclResult_t ended = ncclGroupEnd();

    if (nccl_check(g, result != ncclSuccess ? result : ended, call->operation, reterr) != 0)
        return -1;
    if (call->free_before > 0)
        nccl_account(f, call->free_before);
    interval_end(call->interval, f->communication);
    struct transfer *t = new_transfer(f);
    if (!t)
        return nccl_no_memory(f, reterr);
    cudaError_t status = cudaEventRecord(t->done, f->communication);
    if (status == cudaSuccess)
        status = pending_add(&f->pending, f->communication, call->operation, g->base.info.count);
    int failed = nccl_check_cuda(f, status, call->operation, reterr);
    if (!ret || failed)
        return nccl_transfer_wait(&g->base, t, reterr) != 0 || failed ? -1 : 0;
    *ret = t;
    return 0;
}

static double busy_seconds(struct fabric *f)
{
    return intervals_sum_seconds(&fabric_of(f)->intervals);
}

/* A communicator's own error comes before what waits because of it. */
static int overdue(struct fabric *f, double seconds, struct diag_list *reterr)
{
    struct nccl_fabric *fabric = fabric_of(f);
    struct pending_call oldest = { 0 };
    bool waits = pending_oldest(&fabric->pending, &oldest);
    ncclResult_t state = ncclSuccess;

    (void)pthread_mutex_lock(&fabric->pending.lock);
    for (struct communicator *c = fabric->communicators; c && state == ncclSuccess; c = c->next)
        if (ncclCommGetAsyncError(c->comm, &state) != ncclSuccess || state == ncclInProgress)
            state = ncclSuccess;
    (void)pthread_mutex_unlock(&fabric->pending.lock);
    if (state != ncclSuccess)
        return diag_error(reterr, nowhere, "rank %d: %s over %d ranks failed: %s", f->rank,
                          waits ? oldest.operation : "a collective",
                          waits ? oldest.members : f->world, ncclGetErrorString(state));
    if (waits && pending_clock() - oldest.begun > seconds)
        return diag_error(reterr, nowhere,
                          "rank %d: %s over %d ranks has not ended in %.0f s: a rank does not take "
                          "part in it",
                          f->rank, oldest.operation, oldest.members, seconds);
    return 0;
}

static int exchange_counts(struct group *g, const int64_t *send, int64_t *recv, int per_member,
                           struct diag_list *reterr)
{
    const struct nccl_group *group = nccl_group_of(g);
    return group->fabric->host->ops->exchange_counts(group->host, send, recv, per_member, reterr);
}

static int sum_doubles(struct group *g, double *values, int count, struct diag_list *reterr)
{
    const struct nccl_group *group = nccl_group_of(g);
    return group->fabric->host->ops->sum_doubles(group->host, values, count, reterr);
}

static int gather_text(struct group *g, const char *text, uint64_t bytes, char **ret_texts,
                       uint64_t *ret_bytes, struct diag_list *reterr)
{
    const struct nccl_group *group = nccl_group_of(g);
    return group->fabric->host->ops->gather_text(group->host, text, bytes, ret_texts, ret_bytes,
                                                 reterr);
}

static int barrier(struct group *g, struct diag_list *reterr)
{
    const struct nccl_group *group = nccl_group_of(g);
    return group->fabric->host->ops->barrier(group->host, reterr);
}

static void abort_all(struct fabric *f, int status)
{
    struct fabric *host = fabric_of(f)->host;
    host->ops->abort(host, status);
}

static void close_fabric(struct fabric *f)
{
    struct nccl_fabric *fabric = fabric_of(f);

    if (!f)
        return;
    free(f->all);
    while (fabric->idle) {
        struct transfer *t = fabric->idle;
        fabric->idle = t->next;
        (void)cudaEventDestroy(t->done);
        free(t);
    }
    if (fabric->fork)
        (void)cudaEventDestroy(fabric->fork);
    pending_close(&fabric->pending);
    intervals_close(&fabric->intervals);
    fabric->host->ops->close(fabric->host);
    free(fabric);
}

static const struct fabric_ops nccl_ops = {
    .name = "nccl",
    .group_open = group_open,
    .group_close = group_close,
    .all_gather = nccl_all_gather,
    .all_gather_start = nccl_all_gather_start,
    .transfer_wait = nccl_transfer_wait,
    .reduce_scatter = nccl_reduce_scatter,
    .all_reduce = nccl_all_reduce,
    .all_to_all_rows = nccl_all_to_all_rows,
    .exchange_counts = exchange_counts,
    .sum_doubles = sum_doubles,
    .gather_text = gather_text,
    .barrier = barrier,
    .abort = abort_all,
    .close = close_fabric,
    .gather_blocks = nccl_gather_blocks,
    .reduce_blocks = nccl_reduce_blocks,
    .all_to_all_rows_start = nccl_all_to_all_rows_start,
    .reduce_scatter_start = nccl_reduce_scatter_start,
    .overdue = overdue,
    .group_open_copies = group_open_copies,
    .window_source = nccl_window_source,
    .busy_seconds = busy_seconds,
};

uint64_t fabric_nccl_device_bytes(const struct fabric *f)
{
    return ((const struct nccl_fabric *)f)->device_bytes;
}

struct fabric *fabric_nccl_open(struct fabric *host, struct backend *cuda, struct diag_list *reterr)
{
    struct nccl_fabric *f = calloc(1, sizeof *f);
    struct nccl_group *all = calloc(1, sizeof *all);

    if (!f || !all) {
        free(f);
        free(all);
        diag_error(reterr, nowhere, "rank %d: no memory left for the fabric", host->rank);
        return NULL;
    }
    f->host = host;
    f->base = *host;
    f->base.ops = &nccl_ops;
    f->base.all = &all->base;
    f->compute = backend_cuda_stream(cuda, STREAM_COMPUTE);
    f->communication = backend_cuda_stream(cuda, STREAM_COMMUNICATION);
    *all = (struct nccl_group){ { *group_info(host->all) }, f, host->all, NULL };
    cudaError_t status = cudaEventCreateWithFlags(&f->fork, cudaEventDisableTiming);
    if (status == cudaSuccess && pending_open(&f->pending) == 0)
        return &f->base;
    (void)nccl_check_cuda(f, status, "fabric", reterr);
    if (status == cudaSuccess) {
        (void)nccl_no_memory(f, reterr);
        (void)cudaEventDestroy(f->fork);
    }
    free(all);
    free(f);
    return NULL;
}
