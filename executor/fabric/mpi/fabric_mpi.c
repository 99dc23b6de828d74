/* fabric_mpi.c - the fabric of local and remote processes over MPI 3: start, groups, end. */
#include "executor/fabric/mpi/mpi_group.h"

#include <stdlib.h>

int mpi_check(const struct mpi_group *g, int code, const char *operation, struct diag_list *reterr)
{
    char words[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    if (code == MPI_SUCCESS)
        return 0;
    if (MPI_Error_string(code, words, &length) != MPI_SUCCESS)
        words[0] = '\0';
    return diag_error(reterr, (struct pos){ 0 }, "rank %d: %s over %d ranks failed: %s",
                      g->world_rank, operation, g->base.info.count, words);
}

static struct mpi_group *new_group(int count, int world_rank, struct diag_list *reterr)
{
    struct mpi_group *g = calloc(1, sizeof *g);
    if (!g) {
        diag_error(reterr, (struct pos){ 0 }, "rank %d: no memory left for a group", world_rank);
        return NULL;
    }
    g->base.info.count = count;
    g->comm = MPI_COMM_NULL;
    g->world_rank = world_rank;
    return g;
}

static int open_communicator(struct mpi_group *g, const int *ranks, struct diag_list *reterr)
{
    MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    int ret = mpi_check(g, MPI_Comm_group(MPI_COMM_WORLD, &world), "group_open", reterr);

    if (ret == 0)
        ret = mpi_check(g, MPI_Group_incl(world, g->base.info.count, ranks, &members), "group_open",
                        reterr);
    if (ret == 0)
        ret = mpi_check(g, MPI_Comm_create_group(MPI_COMM_WORLD, members, 0, &g->comm),
                        "group_open", reterr);
    if (ret == 0)
        ret =
            mpi_check(g, MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN), "group_open", reterr);
    if (members != MPI_GROUP_NULL)
        (void)MPI_Group_free(&members);
    if (world != MPI_GROUP_NULL)
        (void)MPI_Group_free(&world);
    return ret;
}

static int group_open(struct fabric *f, const int *ranks, int count, struct group **ret,
                      struct diag_list *reterr)
{
    struct mpi_group *g = new_group(count, f->rank, reterr);
    *ret = NULL;
    if (!g)
        return -1;
    g->base.info.index = -1;
    for (int i = 0; i < count; i++)
        if (ranks[i] == f->rank)
            g->base.info.index = i;
    if (g->base.info.index < 0) {
        free(g);
        return diag_error(reterr, (struct pos){ 0 }, "rank %d is not in the group it opens",
                          f->rank);
    }
    if (count > 1 && open_communicator(g, ranks, reterr) != 0) {
        free(g);
        return -1;
    }
    *ret = &g->base;
    return 0;
}

static void group_close(struct fabric *f, struct group *g)
{
    (void)f;
    if (!g)
        return;
    struct mpi_group *group = mpi_group_of(g);
    if (group->comm != MPI_COMM_NULL && group->comm != MPI_COMM_WORLD)
        (void)MPI_Comm_free(&group->comm);
    free(group);
}

static int barrier(struct group *g, struct diag_list *reterr)
{
    struct mpi_group *group = mpi_group_of(g);
    return group_is_alone(g) ? 0 : mpi_check(group, MPI_Barrier(group->comm), "barrier", reterr);
}

static void abort_all(struct fabric *f, int status)
{
    (void)f;
    (void)MPI_Abort(MPI_COMM_WORLD, status);
}

struct mpi_fabric {
    struct fabric base;
    struct mpi_share share;
};

static void close_fabric(struct fabric *f)
{
    if (!f)
        return;
    mpi_share_close(&((struct mpi_fabric *)f)->share);
    group_close(f, f->all);
    free(f);
    (void)MPI_Finalize();
}

static const struct fabric_ops mpi_ops = {
    .name = "mpi",
    .group_open = group_open,
    .group_close = group_close,
    .all_gather = mpi_all_gather,
    .all_gather_start = mpi_all_gather_start,
    .transfer_wait = mpi_transfer_wait,
    .reduce_scatter = mpi_reduce_scatter,
    .all_reduce = mpi_all_reduce,
    .all_to_all_rows = mpi_all_to_all_rows,
    .all_to_all_rows_start = mpi_all_to_all_rows_start,
    .exchange_counts = mpi_exchange_counts,
    .sum_doubles = mpi_sum_doubles,
    .gather_text = mpi_gather_text,
    .barrier = barrier,
    .abort = abort_all,
    .close = close_fabric,
    .gather_blocks = mpi_gather_blocks,
    .reduce_blocks = mpi_reduce_blocks,
    .reduce_scatter_start = mpi_reduce_scatter_start,
};

/* Ranks that wait give the core to those that compute: worlds wider than the machine's cores run
 * at all only so. An environment that says otherwise is left alone. */
static int start_mpi(int *argc, char ***argv, struct diag_list *reterr)
{
    int given = MPI_THREAD_SINGLE;

    if (setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0) != 0)
        return diag_error(reterr, (struct pos){ 0 }, "the environment cannot be extended");
    if (MPI_Init_thread(argc, argv, MPI_THREAD_SINGLE, &given) != MPI_SUCCESS)
        return diag_error(reterr, (struct pos){ 0 }, "MPI does not start");
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return 0;
}

static struct mpi_group *open_world(struct mpi_fabric *own, struct diag_list *reterr)
{
    const struct fabric *f = &own->base;
    struct mpi_group *all = new_group(f->world, f->rank, reterr);
    if (!all)
        return NULL;
    all->base.info.index = f->rank;
    all->comm = MPI_COMM_WORLD;
    int code = mpi_share_open(&own->share, f->rank, f->world);
    if (mpi_check(all, code, "memory shared on this machine", reterr) == 0)
        return all;
    free(all);
    return NULL;
}

struct fabric *fabric_mpi_open(int *argc, char ***argv, struct diag_list *reterr)
{
    if (start_mpi(argc, argv, reterr) != 0)
        return NULL;
    struct mpi_fabric *own = calloc(1, sizeof *own);
    if (!own) {
        diag_error(reterr, (struct pos){ 0 }, "no memory left for the fabric");
        return NULL;
    }
    struct fabric *f = &own->base;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &f->rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &f->world);
    f->ops = &mpi_ops;
    struct mpi_group *all = open_world(own, reterr);
    if (!all) {
        free(own);
        return NULL;
    }
    f->all = &all->base;
    f->progress = &own->share.progress;
    return f;
}
