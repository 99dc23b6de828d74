/* nccl_sum.c - collectives that add device memory. */
#include "executor/fabric/nccl/nccl_group.h"

static ncclDataType_t type_of(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? ncclBfloat16 : ncclFloat32;
}

static int scatter(struct group *g, const void *send, void *recv, uint64_t elements_per_rank,
                   enum dtype dtype, struct transfer **ret, struct diag_list *reterr)
{
    struct nccl_group *group = nccl_group_of(g);
    struct nccl_call call = { .group = group, .operation = "reduce_scatter", .kind = NCCL_SCATTER };

    if (ret)
        *ret = NULL;
    if (group_is_alone(g))
        return nccl_copy(group, recv, send, elements_per_rank * dtype_bytes(dtype), reterr);
    if (nccl_begin(&call, reterr) != 0)
        return -1;
    ncclResult_t result =
        ncclReduceScatter(send, recv, elements_per_rank, type_of(dtype), ncclSum,
                          group->communicator->comm, group->fabric->communication);
    return nccl_end(&call, result, ret, reterr);
}

int nccl_reduce_scatter(struct group *g, const void *send, void *recv, uint64_t elements_per_rank,
                        enum dtype dtype, struct diag_list *reterr)
{
    return scatter(g, send, recv, elements_per_rank, dtype, NULL, reterr);
}

int nccl_reduce_scatter_start(struct group *g, const void *send, void *recv,
                              uint64_t elements_per_rank, enum dtype dtype, struct transfer **ret,
                              struct diag_list *reterr)
{
    return scatter(g, send, recv, elements_per_rank, dtype, ret, reterr);
}

int nccl_all_reduce(struct group *g, void *values, uint64_t elements, enum dtype dtype,
                    struct diag_list *reterr)
{
    struct nccl_group *group = nccl_group_of(g);
    struct nccl_call call = { .group = group, .operation = "all_reduce", .kind = NCCL_REDUCE };

    if (group_is_alone(g))
        return 0;
    if (nccl_begin(&call, reterr) != 0)
        return -1;
    ncclResult_t result = ncclAllReduce(values, values, elements, type_of(dtype), ncclSum,
                                        group->communicator->comm, group->fabric->communication);
    return nccl_end(&call, result, NULL, reterr);
}

/* Every block summed to the member that it belongs to. */
static ncclResult_t sum_blocks(const struct nccl_group *group, const char *send, char *recv,
                               uint64_t elements, int blocks, const int *places, enum dtype dtype)
{
    const uint64_t bytes = elements * dtype_bytes(dtype);
    ncclResult_t result = ncclSuccess;

    for (int member = 0; member < group->base.info.count; member++)
        for (int i = 0; i < blocks && result == ncclSuccess; i++)
            result = ncclReduce(send + (uint64_t)places[member * blocks + i] * bytes,
                                recv + (uint64_t)i * bytes, elements, type_of(dtype), ncclSum,
                                member, group->communicator->comm, group->fabric->communication);
    return result;
}

int nccl_reduce_blocks(struct group *g, const void *send, void *recv, uint64_t block_elements,
                       int blocks, const int *places, enum dtype dtype, struct diag_list *reterr)
{
    const uint64_t bytes = block_elements * dtype_bytes(dtype);
    struct nccl_group *group = nccl_group_of(g);
    struct nccl_call call = { .group = group, .operation = "reduce_blocks", .kind = NCCL_BLOCKS };
    const char *from = send;
    char *to = recv;
    int ret = 0;

    if (!group_is_alone(g)) {
        if (nccl_begin(&call, reterr) != 0)
            return -1;
        return nccl_end(&call, sum_blocks(group, from, to, block_elements, blocks, places, dtype),
                        NULL, reterr);
    }
    for (int i = 0; i < blocks && ret == 0; i++)
        ret = nccl_copy(group, to + (uint64_t)i * bytes, from + (uint64_t)places[i] * bytes, bytes,
                        reterr);
    return ret;
}
