/* mpi_share.c - memory that the ranks of one machine share, for their progress. */
#include "executor/fabric/mpi/mpi_group.h"

#include <stdlib.h>
#include <string.h>

/* A rank alone needs no window. */
static int share_alone(struct mpi_share *share)
{
    share->progress.slots = calloc(1, sizeof *share->progress.slots);
    share->progress.count = 1;
    return share->progress.slots ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

/* The slots lie side by side: each rank asks for one of a contiguous window. */
static int open_window(struct mpi_share *share)
{
    struct progress_slot *own = NULL;
    MPI_Aint bytes = 0;
    int unit = 0;
    int code = MPI_Win_allocate_shared(sizeof *own, (int)sizeof *own, MPI_INFO_NULL, share->comm,
                                       &own, &share->window);
    if (code != MPI_SUCCESS)
        return code;
    memset(own, 0, sizeof *own);
    return MPI_Win_shared_query(share->window, 0, &bytes, &unit, &share->progress.slots);
}

static int share_machine(struct mpi_share *share, int rank)
{
    int code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL,
                                   &share->comm);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(share->comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(share->comm, &share->progress.count);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_rank(share->comm, &share->progress.own);
    return code == MPI_SUCCESS ? open_window(share) : code;
}

int mpi_share_open(struct mpi_share *share, int rank, int world)
{
    *share = (struct mpi_share){ .comm = MPI_COMM_NULL, .window = MPI_WIN_NULL };
    share->progress.world = world;
    int code = world == 1 ? share_alone(share) : share_machine(share, rank);
    if (code != MPI_SUCCESS)
        return code;
    progress_begin(&share->progress, rank);
    return world == 1 ? MPI_SUCCESS : MPI_Barrier(share->comm);
}

void mpi_share_close(struct mpi_share *share)
{
    progress_done(&share->progress);
    if (share->window != MPI_WIN_NULL)
        (void)MPI_Win_free(&share->window);
    else
        free(share->progress.slots);
    if (share->comm != MPI_COMM_NULL)
        (void)MPI_Comm_free(&share->comm);
}
