/* mpi_group.h - a group of ranks over MPI, and how its calls report. For fabric/mpi only. */
#ifndef RANKFIT_EXECUTOR_FABRIC_MPI_MPI_GROUP_H
#define RANKFIT_EXECUTOR_FABRIC_MPI_MPI_GROUP_H

#include "executor/fabric/group.h"
#include "executor/fabric/progress.h"

#include <mpi.h>
#include <stdbool.h>

struct mpi_group {
    struct group base;
    MPI_Comm comm; /* MPI_COMM_NULL for a group of one */
    int world_rank;
};

/* What the ranks of this machine tell each other beside MPI. */
struct mpi_share {
    MPI_Comm comm; /* MPI_COMM_NULL and MPI_WIN_NULL in a world of one */
    MPI_Win window;
    struct progress progress;
};

/* An MPI error code. Called by all ranks, closing too. */
int mpi_share_open(struct mpi_share *share, int rank, int world);
void mpi_share_close(struct mpi_share *share);

struct transfer {
    MPI_Request request;
    const char *operation;
    int *counts; /* of an exchange, which MPI reads until it is over */
};

static inline struct mpi_group *mpi_group_of(struct group *g)
{
    return (struct mpi_group *)g;
}

static inline bool group_is_alone(const struct group *g)
{
    return g->info.count == 1;
}

/* 0 for MPI_SUCCESS; else -1 with the rank, the operation and MPI's own words. */
int mpi_check(const struct mpi_group *g, int code, const char *operation, struct diag_list *reterr);

/* A datatype of exactly `bytes` bytes, so that one count reaches beyond what an int can say. */
int mpi_block_type(const struct mpi_group *g, uint64_t bytes, MPI_Datatype *ret,
                   struct diag_list *reterr);

int mpi_all_gather(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                   struct diag_list *reterr);
int mpi_all_gather_start(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                         struct transfer **ret, struct diag_list *reterr);
int mpi_transfer_wait(struct group *g, struct transfer *t, struct diag_list *reterr);
int mpi_gather_blocks(struct group *g, const void *send, void *recv, uint64_t block_bytes,
                      int blocks, const int *places, struct diag_list *reterr);
int mpi_all_to_all_rows(struct group *g, const void *send, const int64_t *send_rows, void *recv,
                        const int64_t *recv_rows, uint64_t row_bytes, struct diag_list *reterr);
int mpi_all_to_all_rows_start(struct group *g, const void *send, const int64_t *send_rows,
                              void *recv, const int64_t *recv_rows, uint64_t row_bytes,
                              struct transfer **ret, struct diag_list *reterr);
int mpi_exchange_counts(struct group *g, const int64_t *send, int64_t *recv, int per_member,
                        struct diag_list *reterr);
int mpi_gather_text(struct group *g, const char *text, uint64_t bytes, char **ret_texts,
                    uint64_t *ret_bytes, struct diag_list *reterr);

int mpi_reduce_scatter(struct group *g, const void *send, void *recv, uint64_t elements_per_rank,
                       enum dtype dtype, struct diag_list *reterr);
int mpi_reduce_scatter_start(struct group *g, const void *send, void *recv,
                             uint64_t elements_per_rank, enum dtype dtype, struct transfer **ret,
                             struct diag_list *reterr);
int mpi_reduce_blocks(struct group *g, const void *send, void *recv, uint64_t block_elements,
                      int blocks, const int *places, enum dtype dtype, struct diag_list *reterr);
int mpi_all_reduce(struct group *g, void *values, uint64_t elements, enum dtype dtype,
                   struct diag_list *reterr);
int mpi_sum_doubles(struct group *g, double *values, int count, struct diag_list *reterr);

#endif
