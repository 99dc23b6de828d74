/* nccl_move.c - collectives that move device memory without changing it. */
#include "executor/fabric/nccl/nccl_group.h"

static int gather(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                  struct transfer **ret, struct diag_list *reterr)
{
    struct nccl_group *group = nccl_group_of(g);
    struct nccl_call call = { .group = group, .operation = "all_gather", .kind = NCCL_GATHER };

    if (ret)
        *ret = NULL;
    if (group_is_alone(g))
        return nccl_copy(group, recv, send, bytes_per_rank, reterr);
    if (nccl_begin(&call, reterr) != 0)
        return -1;
    ncclResult_t result = ncclAllGather(send, recv, bytes_per_rank, ncclUint8,
                                        group->communicator->comm, group->fabric->communication);
    return nccl_end(&call, result, ret, reterr);
}

int nccl_all_gather(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                    struct diag_list *reterr)
{
    return gather(g, send, recv, bytes_per_rank, NULL, reterr);
}

int nccl_all_gather_start(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                          struct transfer **ret, struct diag_list *reterr)
{
    return gather(g, send, recv, bytes_per_rank, ret, reterr);
}

/* What one member gets and sends; this rank's own rows are copied. */
static ncclResult_t exchange_with(const struct nccl_group *group, int member, const char *send,
                                  uint64_t send_bytes, char *recv, uint64_t recv_bytes)
{
    const struct nccl_fabric *f = group->fabric;
    ncclComm_t comm = group->communicator->comm;
    ncclResult_t result = ncclSuccess;

    if (member == group->base.info.index)
        return cudaMemcpyAsync(recv, send, send_bytes, cudaMemcpyDeviceToDevice,
                               f->communication) == cudaSuccess
                   ? ncclSuccess
                   : ncclUnhandledCudaError;
    if (send_bytes > 0)
        result = ncclSend(send, send_bytes, ncclUint8, member, comm, f->communication);
    if (result == ncclSuccess && recv_bytes > 0)
        result = ncclRecv(recv, recv_bytes, ncclUint8, member, comm, f->communication);
    return result;
}

static ncclResult_t exchange_all(const struct nccl_group *group, const char *send,
                                 const int64_t *send_rows, char *recv, const int64_t *recv_rows,
                                 uint64_t row_bytes)
{
    ncclResult_t result = ncclSuccess;

    for (int i = 0; i < group->base.info.count && result == ncclSuccess; i++) {
        uint64_t send_bytes = (uint64_t)send_rows[i] * row_bytes;
        uint64_t recv_bytes = (uint64_t)recv_rows[i] * row_bytes;
        result = exchange_with(group, i, send, send_bytes, recv, recv_bytes);
        send += send_bytes;
        recv += recv_bytes;
    }
    return result;
}

/* Equal shares, by the copy engines. */
static int exchange_copies(struct nccl_call *call, const void *send, const int64_t *send_rows,
                           void *recv, const int64_t *recv_rows, uint64_t row_bytes,
                           struct transfer **ret, struct diag_list *reterr)
{
    const struct nccl_group *group = call->group;
    int64_t share = nccl_equal_share(group, send_rows, recv_rows, reterr);

    if (share < 0 || nccl_window_open(call->group, reterr) != 0 || nccl_begin(call, reterr) != 0)
        return -1;
    ncclResult_t result = ncclAlltoAll(send, recv, (uint64_t)share * row_bytes, ncclUint8,
                                       group->communicator->comm, group->fabric->communication);
    return nccl_end(call, result, ret, reterr);
}

static int exchange(struct group *g, const void *send, const int64_t *send_rows, void *recv,
                    const int64_t *recv_rows, uint64_t row_bytes, struct transfer **ret,
                    struct diag_list *reterr)
{
    struct nccl_group *group = nccl_group_of(g);
    struct nccl_call call = { .group = group,
                              .operation = "all_to_all_rows",
                              .kind = NCCL_EXCHANGE };

    if (ret)
        *ret = NULL;
    if (group_is_alone(g))
        return nccl_copy(group, recv, send, (uint64_t)send_rows[0] * row_bytes, reterr);
    if (group->communicator->copies)
        return exchange_copies(&call, send, send_rows, recv, recv_rows, row_bytes, ret, reterr);
    if (nccl_begin(&call, reterr) != 0)
        return -1;
    return nccl_end(&call, exchange_all(group, send, send_rows, recv, recv_rows, row_bytes), ret,
                    reterr);
}

int nccl_all_to_all_rows(struct group *g, const void *send, const int64_t *send_rows, void *recv,
                         const int64_t *recv_rows, uint64_t row_bytes, struct diag_list *reterr)
{
    return exchange(g, send, send_rows, recv, recv_rows, row_bytes, NULL, reterr);
}

int nccl_all_to_all_rows_start(struct group *g, const void *send, const int64_t *send_rows,
                               void *recv, const int64_t *recv_rows, uint64_t row_bytes,
                               struct transfer **ret, struct diag_list *reterr)
{
    return exchange(g, send, send_rows, recv, recv_rows, row_bytes, ret, reterr);
}

/* Every block from its member to all, at its place. */
static ncclResult_t spread_blocks(const struct nccl_group *group, const char *send, char *recv,
                                  uint64_t block_bytes, int blocks, const int *places)
{
    ncclResult_t result = ncclSuccess;

    for (int member = 0; member < group->base.info.count; member++)
        for (int i = 0; i < blocks && result == ncclSuccess; i++)
            result = ncclBroadcast(send + (uint64_t)i * block_bytes,
                                   recv + (uint64_t)places[member * blocks + i] * block_bytes,
                                   block_bytes, ncclUint8, member, group->communicator->comm,
                                   group->fabric->communication);
    return result;
}

int nccl_gather_blocks(struct group *g, const void *send, void *recv, uint64_t block_bytes,
                       int blocks, const int *places, struct diag_list *reterr)
{
    struct nccl_group *group = nccl_group_of(g);
    struct nccl_call call = { .group = group, .operation = "gather_blocks", .kind = NCCL_BLOCKS };
    const char *from = send;
    char *to = recv;
    int ret = 0;

    if (!group_is_alone(g)) {
        if (nccl_begin(&call, reterr) != 0)
            return -1;
        return nccl_end(&call, spread_blocks(group, from, to, block_bytes, blocks, places), NULL,
                        reterr);
    }
    for (int i = 0; i < blocks && ret == 0; i++)
        ret = nccl_copy(group, to + (uint64_t)places[i] * block_bytes,
                        from + (uint64_t)i * block_bytes, block_bytes, reterr);
    return ret;
}
