/* fabric.h - how ranks exchange data: groups and collectives, as one table a fabric fills. MPI on
 * the host; NCCL and the rehearsal fit the same table. Pointers are arena memory unless said
 * otherwise; calls complete before returning, except those that end in _start. 0 or -1 with a
 * diagnostic that names rank and operation. */
#ifndef RANKFIT_EXECUTOR_FABRIC_FABRIC_H
#define RANKFIT_EXECUTOR_FABRIC_FABRIC_H

#include "base/diag.h"
#include "base/layout/primitives.h"
#include "executor/memory/arena.h"

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct progress;
struct group; /* an ordered set of ranks; a group of one costs nothing and all its calls are copies
               */

struct transfer; /* a collective under way */

struct fabric_ops {
    const char *name;
    int (*group_open)(struct fabric *f, const int *ranks, int count, struct group **ret,
                      struct diag_list *reterr);
    void (*group_close)(struct fabric *f, struct group *g);

    /* recv[count * bytes_per_rank]; send may be recv's own slice. */
    int (*all_gather)(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                      struct diag_list *reterr);
    int (*all_gather_start)(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                            struct transfer **ret, struct diag_list *reterr);
    int (*transfer_wait)(struct group *g, struct transfer *t, struct diag_list *reterr);
    /* send[count * elements_per_rank] summed over the group; this rank's slice lands in recv. bf16
     * is summed in fp32. */
    int (*reduce_scatter)(struct group *g, const void *send, void *recv, uint64_t elements_per_rank,
                          enum dtype dtype, struct diag_list *reterr);
    int (*all_reduce)(struct group *g, void *values, uint64_t elements, enum dtype dtype,
                      struct diag_list *reterr);
    /* Rows to and from each member, in member order; counts in host memory. */
    int (*all_to_all_rows)(struct group *g, const void *send, const int64_t *send_rows, void *recv,
                           const int64_t *recv_rows, uint64_t row_bytes, struct diag_list *reterr);
    /* Host values: counts[count * per_member] to each member; sums of doubles; gathers of small
     * records. */
    int (*exchange_counts)(struct group *g, const int64_t *send, int64_t *recv, int per_member,
                           struct diag_list *reterr);
    int (*sum_doubles)(struct group *g, double *values, int count, struct diag_list *reterr);
    int (*gather_text)(struct group *g, const char *text, uint64_t bytes, char **ret_texts,
                       uint64_t *ret_bytes,
                       struct diag_list *reterr); /* at member 0; arrays of count */
    int (*barrier)(struct group *g, struct diag_list *reterr);
    void (*abort)(struct fabric *f, int status); /* ends every rank */
    void (*close)(struct fabric *f);

    /* Each member holds `blocks` blocks of the whole, one after another in send; block i of member
     * m is block places[m * blocks + i] of recv. places: host memory, the same at every member. */
    int (*gather_blocks)(struct group *g, const void *send, void *recv, uint64_t block_bytes,
                         int blocks, const int *places, struct diag_list *reterr);
    /* The way back, summed: of the whole in every member's send, this member's blocks land in recv,
     * one after another, added over the group in member order in fp32. */
    int (*reduce_blocks)(struct group *g, const void *send, void *recv, uint64_t block_elements,
                         int blocks, const int *places, enum dtype dtype, struct diag_list *reterr);

    /* all_to_all_rows, complete when transfer_wait returns; until then send and recv are the
     * fabric's. The lists of counts are the caller's again at once. */
    int (*all_to_all_rows_start)(struct group *g, const void *send, const int64_t *send_rows,
                                 void *recv, const int64_t *recv_rows, uint64_t row_bytes,
                                 struct transfer **ret, struct diag_list *reterr);
    /* reduce_scatter, complete when transfer_wait returns; *ret NULL: it is complete already. */
    int (*reduce_scatter_start)(struct group *g, const void *send, void *recv,
                                uint64_t elements_per_rank, enum dtype dtype, struct transfer **ret,
                                struct diag_list *reterr);

    /* -1 with a diagnostic when a transfer of this rank has failed by itself or been under way for
     * more than `seconds`. For another thread than that of all other calls. NULL where calls end
     * with what they do. */
    int (*overdue)(struct fabric *f, double seconds, struct diag_list *reterr);

    /* A group whose all_to_all_rows moves equal shares, the same to and from every member, by
     * copies from memory to memory; not joined with any other of the same ranks. Its send and recv
     * lie in the block of window_source, at the same offsets at every member. NULL: group_open
     * serves. */
    int (*group_open_copies)(struct fabric *f, const int *ranks, int count, struct group **ret,
                             struct diag_list *reterr);
    /* Where the arena comes from when there are such groups: opened before, and closed after it.
     * Every rank reserves at the same time; the block is as large as the largest that one asks. */
    struct arena_source (*window_source)(struct fabric *f);

    /* What transfers took since this was last asked, waiting for each other included, with none
     * under way. NULL where the caller's clock tells, since calls end with what they do. */
    double (*busy_seconds)(struct fabric *f);
};

struct fabric {
    const struct fabric_ops *ops;
    int rank, world;
    struct group *all;
    struct progress *progress; /* of the ranks of this machine; NULL: nobody watches */
    bool alone; /* a rehearsal: of the world only this rank is there, whichever it is */
};

struct group_info {
    int count, index; /* members, and this rank's place among them */
};
const struct group_info *group_info(const struct group *g);

/* MPI_Init and the world; ranks that wait yield the core. */
struct fabric *fabric_mpi_open(int *argc, char ***argv, struct diag_list *reterr);

#endif
