/* mpi_move.c - collectives that move data without changing it: gathers and exchanges. */
#include "base/checked.h"
#include "executor/fabric/mpi/mpi_group.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 30, TEXT_TAG = 17 };

int mpi_block_type(const struct mpi_group *g, uint64_t bytes, MPI_Datatype *ret,
                   struct diag_list *reterr)
{
    MPI_Datatype chunk = MPI_DATATYPE_NULL;
    int chunks = (int)(bytes / CHUNK_BYTES), rest = (int)(bytes % CHUNK_BYTES);
    int code = MPI_Type_contiguous(CHUNK_BYTES, MPI_BYTE, &chunk);

    if (code == MPI_SUCCESS) {
        const int lengths[2] = { chunks, rest };
        const MPI_Aint places[2] = { 0, (MPI_Aint)chunks * CHUNK_BYTES };
        const MPI_Datatype types[2] = { chunk, MPI_BYTE };
        code = MPI_Type_create_struct(2, lengths, places, types, ret);
        (void)MPI_Type_free(&chunk);
    }
    if (code == MPI_SUCCESS)
        code = MPI_Type_commit(ret);
    return mpi_check(g, code, "datatype", reterr);
}

/* send when it is not already the slice of recv that it would be copied to. */
static const void *in_place_or(const struct group *g, const void *send, const void *recv,
                               uint64_t bytes_per_rank)
{
    const char *own = (const char *)recv + (uint64_t)g->info.index * bytes_per_rank;
    return send == own ? MPI_IN_PLACE : send;
}

static void copy_alone(void *to, const void *from, uint64_t bytes)
{
    if (to != from && bytes > 0)
        memcpy(to, from, bytes);
}

/* What a gather of bytes_per_rank is to MPI: bytes, or one block where an int cannot count them. */
struct gather {
    MPI_Datatype type;
    int count;
};

static int gather_begin(const struct mpi_group *group, uint64_t bytes_per_rank, struct gather *ret,
                        struct diag_list *reterr)
{
    *ret = (struct gather){ MPI_BYTE, (int)bytes_per_rank };
    if (bytes_per_rank <= INT_MAX)
        return 0;
    ret->count = 1;
    return mpi_block_type(group, bytes_per_rank, &ret->type, reterr);
}

static void gather_end(struct gather *gather)
{
    if (gather->type != MPI_BYTE)
        (void)MPI_Type_free(&gather->type);
}

int mpi_all_gather(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                   struct diag_list *reterr)
{
    struct mpi_group *group = mpi_group_of(g);
    struct gather gather;

    if (group_is_alone(g)) {
        copy_alone(recv, send, bytes_per_rank);
        return 0;
    }
    if (gather_begin(group, bytes_per_rank, &gather, reterr) != 0)
        return -1;
    int code = MPI_Allgather(in_place_or(g, send, recv, bytes_per_rank), gather.count, gather.type,
                             recv, gather.count, gather.type, group->comm);
    gather_end(&gather);
    return mpi_check(group, code, "all_gather", reterr);
}

int mpi_all_gather_start(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                         struct transfer **ret, struct diag_list *reterr)
{
    struct mpi_group *group = mpi_group_of(g);
    struct gather gather;

    *ret = NULL;
    if (group_is_alone(g)) {
        copy_alone(recv, send, bytes_per_rank);
        return 0;
    }
    struct transfer *t = calloc(1, sizeof *t);
    if (!t)
        return diag_error(reterr, (struct pos){ 0 }, "rank %d: all_gather: no memory left",
                          group->world_rank);
    if (gather_begin(group, bytes_per_rank, &gather, reterr) != 0) {
        free(t);
        return -1;
    }
    t->operation = "all_gather";
    *ret = t;
    /* the caller waits, in mpi_transfer_wait */
    /* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
    int code = MPI_Iallgather(in_place_or(g, send, recv, bytes_per_rank), gather.count, gather.type,
                              recv, gather.count, gather.type, group->comm, &t->request);
    gather_end(&gather);
    /* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */
    return mpi_check(group, code, "all_gather", reterr);
}

int mpi_transfer_wait(struct group *g, struct transfer *t, struct diag_list *reterr)
{
    if (!t)
        return 0;
    /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): begun in ..._start */
    int code = MPI_Wait(&t->request, MPI_STATUS_IGNORE);
    const char *operation = t->operation;
    free(t->counts);
    free(t);
    return mpi_check(mpi_group_of(g), code, operation, reterr);
}

/* Block `i` of every member to its place: one gather. */
static int gather_block(struct mpi_group *group, const char *block, void *recv, MPI_Datatype type,
                        const int *counts, int *places, int blocks, const int *all_places)
{
    for (int m = 0; m < group->base.info.count; m++)
        places[m] = all_places[(ptrdiff_t)m * blocks];
    return MPI_Allgatherv(block, 1, type, recv, counts, places, type, group->comm);
}

int mpi_gather_blocks(struct group *g, const void *send, void *recv, uint64_t block_bytes,
                      int blocks, const int *places, struct diag_list *reterr)
{
    struct mpi_group *group = mpi_group_of(g);
    size_t count = (size_t)g->info.count;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    const char *from = send;
    char *to = recv;

    if (group_is_alone(g)) {
        for (int i = 0; i < blocks; i++)
            copy_alone(to + (uint64_t)places[i] * block_bytes, from + (uint64_t)i * block_bytes,
                       block_bytes);
        return 0;
    }
    int *scratch = calloc(2 * count, sizeof *scratch);
    if (!scratch)
        return diag_error(reterr, (struct pos){ 0 }, "rank %d: gather_blocks: no memory left",
                          group->world_rank);
    for (size_t m = 0; m < count; m++)
        scratch[m] = 1;
    int ret = mpi_block_type(group, block_bytes, &type, reterr);
    int code = MPI_SUCCESS;
    for (int i = 0; ret == 0 && code == MPI_SUCCESS && i < blocks; i++)
        code = gather_block(group, from + (uint64_t)i * block_bytes, recv, type, scratch,
                            scratch + count, blocks, places + i);
    if (ret == 0)
        (void)MPI_Type_free(&type);
    free(scratch);
    return ret == 0 ? mpi_check(group, code, "gather_blocks", reterr) : ret;
}

/* Counts and first rows as MPI wants them; -1 when an int cannot say one. */
static int row_counts(const int64_t *rows, int count, int *ret_counts, int *ret_places)
{
    int64_t place = 0;
    for (int i = 0; i < count; i++) {
        if (rows[i] < 0 || rows[i] > INT_MAX || place > INT_MAX)
            return -1;
        ret_counts[i] = (int)rows[i];
        ret_places[i] = (int)place;
        place += rows[i];
    }
    return 0;
}

/* Rows of an exchange as MPI wants them: four lists of a place for each member. */
static int row_lists(const struct mpi_group *group, const int64_t *send_rows,
                     const int64_t *recv_rows, int *ret_lists, struct diag_list *reterr)
{
    int n = group->base.info.count;
    if (row_counts(send_rows, n, ret_lists, ret_lists + n) != 0 ||
        row_counts(recv_rows, n, ret_lists + 2 * (size_t)n, ret_lists + 3 * (size_t)n) != 0)
        return diag_error(reterr, (struct pos){ 0 },
                          "rank %d: all_to_all_rows: more than %d rows in one exchange",
                          group->world_rank, INT_MAX);
    return 0;
}

static int *new_lists(const struct mpi_group *group, struct diag_list *reterr)
{
    int *ret = calloc((size_t)group->base.info.count * 4, sizeof *ret);
    if (!ret)
        diag_error(reterr, (struct pos){ 0 }, "rank %d: all_to_all_rows: no memory left",
                   group->world_rank);
    return ret;
}

int mpi_all_to_all_rows(struct group *g, const void *send, const int64_t *send_rows, void *recv,
                        const int64_t *recv_rows, uint64_t row_bytes, struct diag_list *reterr)
{
    struct mpi_group *group = mpi_group_of(g);
    size_t n = (size_t)g->info.count;

    if (group_is_alone(g)) {
        copy_alone(recv, send, mul_sat((uint64_t)send_rows[0], row_bytes));
        return 0;
    }
    MPI_Datatype row = MPI_DATATYPE_NULL;
    int *lists = new_lists(group, reterr);
    if (!lists)
        return -1;
    int ret = row_lists(group, send_rows, recv_rows, lists, reterr);
    if (ret == 0)
        ret = mpi_block_type(group, row_bytes, &row, reterr);
    if (ret == 0) {
        int code = MPI_Alltoallv(send, lists, lists + n, row, recv, lists + 2 * n, lists + 3 * n,
                                 row, group->comm);
        (void)MPI_Type_free(&row);
        ret = mpi_check(group, code, "all_to_all_rows", reterr);
    }
    free(lists);
    return ret;
}

/* Begins the exchange that `t` is to follow. */
static int begin_exchange(struct mpi_group *group, const void *send, void *recv, uint64_t row_bytes,
                          struct transfer *t, struct diag_list *reterr)
{
    size_t n = (size_t)group->base.info.count;
    const int *lists = t->counts;
    MPI_Datatype row = MPI_DATATYPE_NULL;

    if (mpi_block_type(group, row_bytes, &row, reterr) != 0)
        return -1;
    /* the caller waits, in mpi_transfer_wait */
    /* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
    int code = MPI_Ialltoallv(send, lists, lists + n, row, recv, lists + 2 * n, lists + 3 * n, row,
                              group->comm, &t->request);
    (void)MPI_Type_free(&row);
    /* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */
    return mpi_check(group, code, t->operation, reterr);
}

int mpi_all_to_all_rows_start(struct group *g, const void *send, const int64_t *send_rows,
                              void *recv, const int64_t *recv_rows, uint64_t row_bytes,
                              struct transfer **ret, struct diag_list *reterr)
{
    struct mpi_group *group = mpi_group_of(g);

    *ret = NULL;
    if (group_is_alone(g))
        return mpi_all_to_all_rows(g, send, send_rows, recv, recv_rows, row_bytes, reterr);
    struct transfer *t = calloc(1, sizeof *t);
    if (!t)
        return diag_error(reterr, (struct pos){ 0 }, "rank %d: all_to_all_rows: no memory left",
                          group->world_rank);
    t->operation = "all_to_all_rows";
    t->counts = new_lists(group, reterr);
    if (!t->counts || row_lists(group, send_rows, recv_rows, t->counts, reterr) != 0 ||
        begin_exchange(group, send, recv, row_bytes, t, reterr) != 0) {
        free(t->counts);
        free(t);
        return -1;
    }
    *ret = t;
    return 0;
}

int mpi_exchange_counts(struct group *g, const int64_t *send, int64_t *recv, int per_member,
                        struct diag_list *reterr)
{
    struct mpi_group *group = mpi_group_of(g);

    if (group_is_alone(g)) {
        copy_alone(recv, send, (uint64_t)per_member * sizeof *send);
        return 0;
    }
    return mpi_check(
        group,
        MPI_Alltoall(send, per_member, MPI_INT64_T, recv, per_member, MPI_INT64_T, group->comm),
        "exchange_counts", reterr);
}

static char *copy_text(const char *text, uint64_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (!copy)
        return NULL;
    if (bytes > 0)
        memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}

static int send_text(struct mpi_group *group, const char *text, uint64_t bytes)
{
    int code = MPI_Send(&bytes, 1, MPI_UINT64_T, 0, TEXT_TAG, group->comm);
    for (uint64_t sent = 0; code == MPI_SUCCESS && sent < bytes; sent += CHUNK_BYTES) {
        uint64_t rest = bytes - sent;
        code = MPI_Send(text + sent, (int)(rest < CHUNK_BYTES ? rest : CHUNK_BYTES), MPI_BYTE, 0,
                        TEXT_TAG, group->comm);
    }
    return code;
}

static int receive_text(struct mpi_group *group, int member, char **ret_text, uint64_t *ret_bytes)
{
    uint64_t bytes = 0;
    int code = MPI_Recv(&bytes, 1, MPI_UINT64_T, member, TEXT_TAG, group->comm, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS)
        return code;
    char *room = malloc(bytes + 1);
    if (!room)
        return MPI_ERR_NO_MEM;
    for (uint64_t got = 0; code == MPI_SUCCESS && got < bytes; got += CHUNK_BYTES) {
        uint64_t rest = bytes - got;
        code = MPI_Recv(room + got, (int)(rest < CHUNK_BYTES ? rest : CHUNK_BYTES), MPI_BYTE,
                        member, TEXT_TAG, group->comm, MPI_STATUS_IGNORE);
    }
    room[bytes] = '\0';
    *ret_text = room;
    *ret_bytes = bytes;
    return code;
}

int mpi_gather_text(struct group *g, const char *text, uint64_t bytes, char **ret_texts,
                    uint64_t *ret_bytes, struct diag_list *reterr)
{
    struct mpi_group *group = mpi_group_of(g);

    if (g->info.index != 0)
        return mpi_check(group, send_text(group, text, bytes), "gather_text", reterr);
    for (int i = 0; i < g->info.count; i++)
        ret_texts[i] = NULL;
    ret_texts[0] = copy_text(text, bytes);
    ret_bytes[0] = bytes;
    int code = ret_texts[0] ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    for (int i = 1; code == MPI_SUCCESS && i < g->info.count; i++)
        code = receive_text(group, i, &ret_texts[i], &ret_bytes[i]);
    return mpi_check(group, code, "gather_text", reterr);
}
