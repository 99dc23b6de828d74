/* mpi_sum.c - collectives that add. A reduce-scatter exchanges slices piece by piece through a
 * small fixed buffer and adds them in member order in fp32, so that bf16 is rounded once and a sum
 * does not depend on how MPI would have paired the ranks. */
#include "executor/fabric/mpi/mpi_group.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_ELEMENTS = 1 << 16, SUM_TAG = 18 };

static float bf16_to_float(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float ret;
    memcpy(&ret, &bits, sizeof ret);
    return ret;
}

/* To nearest, ties to even; a NaN stays one. */
static uint16_t float_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value)
        return (uint16_t)((bits >> 16) | 0x40);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static float load(const void *values, uint64_t i, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)values)[i])
                               : ((const float *)values)[i];
}

static void store(void *values, uint64_t i, enum dtype dtype, float value)
{
    if (dtype == DTYPE_BF16)
        ((uint16_t *)values)[i] = float_to_bf16(value);
    else
        ((float *)values)[i] = value;
}

struct scatter {
    struct mpi_group *group;
    const char *send;
    char *pieces;      /* one piece from each member */
    uint64_t elements; /* of one slice */
    int stride;        /* slices of a member in places */
    const int *places; /* member m's slice is number places[m * stride]; NULL: number m */
    enum dtype dtype;
    MPI_Request *requests;
};

static char *piece_of(const struct scatter *s, int member)
{
    return s->pieces + (uint64_t)member * PIECE_ELEMENTS * dtype_bytes(s->dtype);
}

static const char *slice_of(const struct scatter *s, int member, uint64_t first)
{
    int slice = s->places ? s->places[(ptrdiff_t)member * s->stride] : member;
    return s->send + ((uint64_t)slice * s->elements + first) * dtype_bytes(s->dtype);
}

static int exchange_pieces(struct scatter *s, uint64_t first, uint64_t elements)
{
    int count = s->group->base.info.count, me = s->group->base.info.index;
    int bytes = (int)(elements * dtype_bytes(s->dtype));
    int code = MPI_SUCCESS, open = 0;

    memcpy(piece_of(s, me), slice_of(s, me, first), (size_t)bytes);
    for (int i = 0; i < count && code == MPI_SUCCESS; i++)
        if (i != me)
            code = MPI_Irecv(piece_of(s, i), bytes, MPI_BYTE, i, SUM_TAG, s->group->comm,
                             &s->requests[open++]);
    for (int i = 0; i < count && code == MPI_SUCCESS; i++)
        if (i != me)
            code = MPI_Isend(slice_of(s, i, first), bytes, MPI_BYTE, i, SUM_TAG, s->group->comm,
                             &s->requests[open++]);
    return code == MPI_SUCCESS ? MPI_Waitall(open, s->requests, MPI_STATUSES_IGNORE) : code;
}

static void sum_pieces(const struct scatter *s, void *recv, uint64_t first, uint64_t elements)
{
    for (uint64_t i = 0; i < elements; i++) {
        float sum = 0;
        for (int member = 0; member < s->group->base.info.count; member++)
            sum += load(piece_of(s, member), i, s->dtype);
        store(recv, first + i, s->dtype, sum);
    }
}

static int scatter_open(struct scatter *s, struct group *g, const void *send, uint64_t elements,
                        enum dtype dtype)
{
    size_t count = (size_t)g->info.count;
    *s = (struct scatter){ .group = mpi_group_of(g),
                           .send = send,
                           .elements = elements,
                           .dtype = dtype,
                           .pieces = malloc(count * PIECE_ELEMENTS * dtype_bytes(dtype)),
                           .requests = calloc(2 * count, sizeof(MPI_Request)) };
    return s->pieces && s->requests ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

static void scatter_close(struct scatter *s)
{
    free(s->pieces);
    free(s->requests);
}

/* The sum of one slice, piece by piece. */
static int sum_slice(struct scatter *s, void *recv)
{
    int code = MPI_SUCCESS;
    for (uint64_t first = 0; code == MPI_SUCCESS && first < s->elements; first += PIECE_ELEMENTS) {
        uint64_t rest = s->elements - first;
        uint64_t elements = rest < PIECE_ELEMENTS ? rest : PIECE_ELEMENTS;
        code = exchange_pieces(s, first, elements);
        if (code == MPI_SUCCESS)
            sum_pieces(s, recv, first, elements);
    }
    return code;
}

int mpi_reduce_scatter(struct group *g, const void *send, void *recv, uint64_t elements_per_rank,
                       enum dtype dtype, struct diag_list *reterr)
{
    struct scatter s;

    if (group_is_alone(g)) {
        if (recv != send && elements_per_rank > 0)
            memcpy(recv, send, elements_per_rank * dtype_bytes(dtype));
        return 0;
    }
    int code = scatter_open(&s, g, send, elements_per_rank, dtype);
    if (code == MPI_SUCCESS)
        code = sum_slice(&s, recv);
    scatter_close(&s);
    return mpi_check(mpi_group_of(g), code, "reduce_scatter", reterr);
}

/* Piece after piece needs this rank's hands: nothing goes on by itself. */
int mpi_reduce_scatter_start(struct group *g, const void *send, void *recv,
                             uint64_t elements_per_rank, enum dtype dtype, struct transfer **ret,
                             struct diag_list *reterr)
{
    *ret = NULL;
    return mpi_reduce_scatter(g, send, recv, elements_per_rank, dtype, reterr);
}

int mpi_reduce_blocks(struct group *g, const void *send, void *recv, uint64_t block_elements,
                      int blocks, const int *places, enum dtype dtype, struct diag_list *reterr)
{
    const uint64_t bytes = block_elements * dtype_bytes(dtype);
    struct scatter s;
    char *to = recv;

    if (group_is_alone(g)) {
        for (int i = 0; i < blocks && bytes > 0; i++)
            memcpy(to + (uint64_t)i * bytes, (const char *)send + (uint64_t)places[i] * bytes,
                   bytes);
        return 0;
    }
    int code = scatter_open(&s, g, send, block_elements, dtype);
    s.stride = blocks;
    for (int i = 0; code == MPI_SUCCESS && i < blocks; i++) {
        s.places = places + i;
        code = sum_slice(&s, to + (uint64_t)i * bytes);
    }
    scatter_close(&s);
    return mpi_check(mpi_group_of(g), code, "reduce_blocks", reterr);
}

/* One piece: widened, summed, rounded once. */
static int reduce_bf16_piece(struct mpi_group *group, uint16_t *values, float *wide, int elements)
{
    for (int i = 0; i < elements; i++)
        wide[i] = bf16_to_float(values[i]);
    int code = MPI_Allreduce(MPI_IN_PLACE, wide, elements, MPI_FLOAT, MPI_SUM, group->comm);
    for (int i = 0; i < elements; i++)
        values[i] = float_to_bf16(wide[i]);
    return code;
}

int mpi_all_reduce(struct group *g, void *values, uint64_t elements, enum dtype dtype,
                   struct diag_list *reterr)
{
    struct mpi_group *group = mpi_group_of(g);

    if (group_is_alone(g))
        return 0;
    float *wide = malloc(PIECE_ELEMENTS * sizeof *wide);
    int code = wide ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    for (uint64_t first = 0; code == MPI_SUCCESS && first < elements; first += PIECE_ELEMENTS) {
        uint64_t rest = elements - first;
        int count = (int)(rest < PIECE_ELEMENTS ? rest : PIECE_ELEMENTS);
        if (dtype == DTYPE_BF16)
            code = reduce_bf16_piece(group, (uint16_t *)values + first, wide, count);
        else
            code = MPI_Allreduce(MPI_IN_PLACE, (float *)values + first, count, MPI_FLOAT, MPI_SUM,
                                 group->comm);
    }
    free(wide);
    return mpi_check(group, code, "all_reduce", reterr);
}

int mpi_sum_doubles(struct group *g, double *values, int count, struct diag_list *reterr)
{
    struct mpi_group *group = mpi_group_of(g);

    if (group_is_alone(g))
        return 0;
    return mpi_check(group,
                     MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, group->comm),
                     "sum_doubles", reterr);
}
