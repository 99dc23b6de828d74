/* nccl_group.h - a group of ranks over NCCL, its communicator, and how calls are put on streams.
 * For fabric/nccl only. */
#ifndef RANKFIT_EXECUTOR_FABRIC_NCCL_NCCL_GROUP_H
#define RANKFIT_EXECUTOR_FABRIC_NCCL_NCCL_GROUP_H

#include "executor/fabric/group.h"
#include "executor/fabric/nccl/fabric_nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>

/* One for each distinct set of ranks, shared by the groups that are equal. */
struct communicator {
    struct communicator *next;
    ncclComm_t comm;
    int *ranks;
    int count, users;
    unsigned seen;       /* operations that have run once: bit of enum nccl_operation */
    bool copies;         /* of a group that moves equal shares by the copy engines; never shared */
    ncclWindow_t window; /* the fabric's block as the members see it, from the first exchange on */
};

/* Which first calls make NCCL set up connections of their own. */
enum nccl_operation { NCCL_GATHER, NCCL_SCATTER, NCCL_REDUCE, NCCL_EXCHANGE, NCCL_BLOCKS };

/* A collective under way: `done` is behind it on the communication stream. */
struct transfer {
    struct transfer *next; /* in the list of idle ones */
    cudaEvent_t done;
};

/* What has been put on the communication stream and not been seen to end, oldest first. Written by
 * the rank's thread, read by who watches. */
enum { PENDING_ROOM = 256 };
struct pending {
    pthread_mutex_t lock;
    unsigned first, count;
    struct pending_call {
        cudaEvent_t done;
        const char *operation;
        int members;
        double begun; /* seconds of a clock that only moves forward */
    } calls[PENDING_ROOM];
};
int pending_open(struct pending *pending);
void pending_close(struct pending *pending);
/* A call has been put on the stream. Beyond the room it is not watched. */
cudaError_t pending_add(struct pending *pending, cudaStream_t stream, const char *operation,
                        int members);
/* Fills *ret with the oldest call that has not ended; false: there is none. */
bool pending_oldest(struct pending *pending, struct pending_call *ret);
double pending_clock(void);

/* How long calls were at work on the communication stream: intervals.c. */
struct interval {
    struct interval *next;
    cudaEvent_t begin, end;
};
struct intervals {
    struct interval *used, *idle;
};
/* The next interval begins here; NULL without memory, which is no error: it goes untimed. */
struct interval *interval_begin(struct intervals *all, cudaStream_t stream);
void interval_end(struct interval *interval, cudaStream_t stream);
/* Sum over the intervals since the last call, all of which must have ended. */
double intervals_sum_seconds(struct intervals *all);
void intervals_close(struct intervals *all);

struct nccl_fabric {
    struct fabric base;
    struct fabric *host;
    cudaStream_t compute, communication;
    cudaEvent_t fork;
    struct communicator *communicators;
    struct transfer *idle;
    struct intervals intervals;
    struct pending pending; /* its lock is that of the list of communicators too */
    uint64_t device_bytes;
    void *block; /* of window_source */
    uint64_t block_bytes;
};

struct nccl_group {
    struct group base;
    struct nccl_fabric *fabric;
    struct group *host;
    struct communicator *communicator; /* NULL for a group of one */
};

static inline struct nccl_group *nccl_group_of(struct group *g)
{
    return (struct nccl_group *)g;
}

static inline bool group_is_alone(const struct group *g)
{
    return g->info.count == 1;
}

/* communicator.c: joined by the groups of the same ranks, but for one whose policy is copies. */
int communicator_join(struct nccl_group *g, const int *ranks, bool copies,
                      struct diag_list *reterr);
void communicator_leave(struct nccl_group *g);
uint64_t nccl_device_free(void);
/* What the device has less of than `before` is the communicators'. */
void nccl_account(struct nccl_fabric *f, uint64_t before);

/* nccl_copies.c */
struct arena_source nccl_window_source(struct fabric *f);
/* The group's share of the block, made known to its members at the first call. */
int nccl_window_open(struct nccl_group *g, struct diag_list *reterr);
/* Rows that every member sends to every other, or -1 with who breaks the rule. */
int64_t nccl_equal_share(const struct nccl_group *g, const int64_t *send_rows,
                         const int64_t *recv_rows, struct diag_list *reterr);

int nccl_no_memory(const struct nccl_fabric *f, struct diag_list *reterr);
/* 0, or -1 with rank, operation and the library's own words. */
int nccl_check(const struct nccl_group *g, ncclResult_t result, const char *operation,
               struct diag_list *reterr);
int nccl_check_cuda(const struct nccl_fabric *f, cudaError_t status, const char *operation,
                    struct diag_list *reterr);

/* A call on a group of more than one: it begins behind what the compute stream has been given.
 * Between the two the calls of NCCL are made, on the communication stream, as one group. */
struct nccl_call {
    struct nccl_group *group;
    const char *operation;
    enum nccl_operation kind;
    size_t free_before; /* device memory at a first call; 0: not asked */
    struct interval *interval;
};
int nccl_begin(struct nccl_call *call, struct diag_list *reterr);
/* result: the first that was not ncclSuccess. ret NULL: the compute stream waits; else whoever
 * calls nccl_transfer_wait. */
int nccl_end(struct nccl_call *call, ncclResult_t result, struct transfer **ret,
             struct diag_list *reterr);
int nccl_transfer_wait(struct group *g, struct transfer *t, struct diag_list *reterr);

/* Within the arena on the compute stream, for a group of one. */
int nccl_copy(const struct nccl_group *g, void *to, const void *from, uint64_t bytes,
              struct diag_list *reterr);

int nccl_all_gather(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                    struct diag_list *reterr);
int nccl_all_gather_start(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                          struct transfer **ret, struct diag_list *reterr);
int nccl_all_to_all_rows(struct group *g, const void *send, const int64_t *send_rows, void *recv,
                         const int64_t *recv_rows, uint64_t row_bytes, struct diag_list *reterr);
int nccl_all_to_all_rows_start(struct group *g, const void *send, const int64_t *send_rows,
                               void *recv, const int64_t *recv_rows, uint64_t row_bytes,
                               struct transfer **ret, struct diag_list *reterr);
int nccl_gather_blocks(struct group *g, const void *send, void *recv, uint64_t block_bytes,
                       int blocks, const int *places, struct diag_list *reterr);

int nccl_reduce_scatter(struct group *g, const void *send, void *recv, uint64_t elements_per_rank,
                        enum dtype dtype, struct diag_list *reterr);
int nccl_reduce_scatter_start(struct group *g, const void *send, void *recv,
                              uint64_t elements_per_rank, enum dtype dtype, struct transfer **ret,
                              struct diag_list *reterr);
int nccl_all_reduce(struct group *g, void *values, uint64_t elements, enum dtype dtype,
                    struct diag_list *reterr);
int nccl_reduce_blocks(struct group *g, const void *send, void *recv, uint64_t block_elements,
                       int blocks, const int *places, enum dtype dtype, struct diag_list *reterr);

#endif
