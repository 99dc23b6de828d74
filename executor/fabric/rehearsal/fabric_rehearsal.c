/* fabric_rehearsal.c - the collectives of one rank whose peers are not there. */
#include "executor/fabric/rehearsal/fabric_rehearsal.h"
#include "executor/fabric/group.h"
#include "executor/fabric/rehearsal/filler.h"
#include "executor/fabric/rehearsal/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct pos nowhere = { NULL, 0, 0 };

/* What would be one communicator: equal groups share it. */
struct communicator {
    struct communicator *next;
    int *ranks;
    int count, users;
    bool copies;           /* moves equal shares by the copy engines; never shared */
    bool rings, exchanges; /* it has done so once */
};

struct rehearsal {
    struct fabric base;
    struct fabric *host;
    const struct hardware *hardware;
    struct filler *filler;
    struct communicator *communicators;
    int made;
    bool exchanged; /* any of them */
    uint64_t communicator_bytes;
};

struct rehearsal_group {
    struct group base;
    struct rehearsal *fabric;
    struct communicator *communicator; /* NULL for a group of one, and for all ranks */
    struct wire wire;
};

static struct rehearsal *fabric_of(struct fabric *f)
{
    return (struct rehearsal *)f;
}

static struct rehearsal_group *group_of(struct group *g)
{
    return (struct rehearsal_group *)g;
}

static bool is_alone(const struct group *g)
{
    return g->info.count == 1;
}

static int no_memory(const struct rehearsal *f, struct diag_list *reterr)
{
    return diag_error(reterr, nowhere, "rank %d: no memory left for a group", f->base.rank);
}

static int hold(struct rehearsal *f, uint64_t bytes, struct diag_list *reterr)
{
    f->communicator_bytes += bytes;
    return bytes > 0 ? f->filler->ops->hold(f->filler, bytes, reterr) : 0;
}

static struct communicator *new_communicator(struct rehearsal *f, const int *ranks, int count,
                                             bool copies, struct diag_list *reterr)
{
    const struct hardware *h = f->hardware;
    struct communicator *c = calloc(1, sizeof *c);
    size_t bytes = (size_t)count * sizeof *ranks;

    if (!c || !(c->ranks = malloc(bytes))) {
        free(c);
        (void)no_memory(f, reterr);
        return NULL;
    }
    memcpy(c->ranks, ranks, bytes);
    c->count = count;
    c->copies = copies;
    c->next = f->communicators;
    f->communicators = c;
    uint64_t held = f->made++ == 0 ? h->communicator_first_bytes : h->communicator_next_bytes;
    return hold(f, held, reterr) == 0 ? c : NULL;
}

static bool same_ranks(const struct communicator *c, const int *ranks, int count)
{
    return c->count == count && memcmp(c->ranks, ranks, (size_t)count * sizeof *ranks) == 0;
}

static int join(struct rehearsal_group *g, const int *ranks, bool copies, struct diag_list *reterr)
{
    struct communicator *c = copies ? NULL : g->fabric->communicators;
    int count = g->base.info.count;

    while (c && (c->copies || !same_ranks(c, ranks, count)))
        c = c->next;
    if (!c)
        c = new_communicator(g->fabric, ranks, count, copies, reterr);
    if (!c)
        return -1;
    g->communicator = c;
    c->users++;
    return 0;
}

static void leave(struct rehearsal_group *g)
{
    struct communicator *c = g->communicator, **at = &g->fabric->communicators;

    if (!c || --c->users > 0)
        return;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    free(c->ranks);
    free(c);
}

static void group_close(struct fabric *f, struct group *g)
{
    (void)f;
    if (!g)
        return;
    leave(group_of(g));
    free(g);
}

static int open_group(struct fabric *f, const int *ranks, int count, bool copies,
                      struct group **ret, struct diag_list *reterr)
{
    struct rehearsal *fabric = fabric_of(f);
    struct rehearsal_group *g = calloc(1, sizeof *g);

    *ret = NULL;
    if (!g)
        return no_memory(fabric, reterr);
    g->fabric = fabric;
    g->base.info = (struct group_info){ count, -1 };
    g->wire = wire_of(fabric->hardware, ranks, count, f->rank);
    for (int i = 0; i < count; i++)
        if (ranks[i] == f->rank)
            g->base.info.index = i;
    if (g->base.info.index < 0) {
        free(g);
        return diag_error(reterr, nowhere, "rank %d is not in the group it opens", f->rank);
    }
    if (count > 1 && join(g, ranks, copies, reterr) != 0) {
        free(g);
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

/* What a communicator takes at its first ring, and at its first exchange. */
static int begin_ring(struct rehearsal_group *g, struct diag_list *reterr)
{
    const struct hardware *h = g->fabric->hardware;
    struct communicator *c = g->communicator;
    bool first = c && !c->rings;

    if (first)
        c->rings = true;
    if (first && hold(g->fabric, (uint64_t)h->ring_channels * h->channel_bytes, reterr) != 0)
        return -1;
    return g->fabric->filler->ops->begin(g->fabric->filler, reterr);
}

/* Peers at link speed have the measured buffers; across the network NCCL opens two channels to
 * each. Copies write into the peers' own memory. */
static uint64_t exchange_bytes(const struct rehearsal_group *g)
{
    const struct hardware *h = g->fabric->hardware;
    uint64_t near = (uint64_t)g->wire.near - 1, far = (uint64_t)(g->wire.members - g->wire.near);
    uint64_t first = g->fabric->exchanged ? 0 : h->exchange_first_bytes;

    if (g->communicator->copies)
        return h->copy_exchange_bytes;
    return first + near * h->exchange_peer_bytes + far * 2 * h->channel_bytes;
}

static int begin_exchange(struct rehearsal_group *g, struct diag_list *reterr)
{
    struct rehearsal *f = g->fabric;
    struct communicator *c = g->communicator;

    if (!c->exchanges) {
        uint64_t held = exchange_bytes(g);
        c->exchanges = true;
        f->exchanged = f->exchanged || !c->copies;
        if (hold(f, held, reterr) != 0)
            return -1;
    }
    return f->filler->ops->begin(f->filler, reterr);
}

static int copy_alone(struct rehearsal_group *g, void *to, const void *from, uint64_t bytes,
                      struct diag_list *reterr)
{
    struct filler *filler = g->fabric->filler;
    return filler->ops->copy(filler, to, from, bytes, reterr);
}

/* This rank's share again and again: its own is thereby in its place. */
static int gather(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                  struct transfer **ret, struct diag_list *reterr)
{
    struct rehearsal_group *group = group_of(g);
    struct filler *filler = group->fabric->filler;
    uint64_t bytes = bytes_per_rank * (uint64_t)g->info.count;

    if (ret)
        *ret = NULL;
    if (is_alone(g))
        return copy_alone(group, recv, send, bytes_per_rank, reterr);
    if (begin_ring(group, reterr) != 0 ||
        filler->ops->fill(filler, recv, bytes, send, bytes_per_rank,
                          wire_ring_seconds(&group->wire, bytes_per_rank, false), reterr) != 0)
        return -1;
    return filler->ops->end(filler, ret, reterr);
}

static int all_gather(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                      struct diag_list *reterr)
{
    return gather(g, send, recv, bytes_per_rank, NULL, reterr);
}

static int all_gather_start(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                            struct transfer **ret, struct diag_list *reterr)
{
    return gather(g, send, recv, bytes_per_rank, ret, reterr);
}

static int transfer_wait(struct group *g, struct transfer *t, struct diag_list *reterr)
{
    struct filler *filler = group_of(g)->fabric->filler;
    return t ? filler->ops->wait(filler, t, reterr) : 0;
}

static int scatter(struct group *g, const void *send, void *recv, uint64_t elements,
                   enum dtype dtype, struct transfer **ret, struct diag_list *reterr)
{
    struct rehearsal_group *group = group_of(g);
    struct filler *filler = group->fabric->filler;
    uint64_t bytes = elements * dtype_bytes(dtype);

    if (ret)
        *ret = NULL;
    if (is_alone(g))
        return copy_alone(group, recv, send, bytes, reterr);
    if (begin_ring(group, reterr) != 0 ||
        filler->ops->sum(filler, recv, send, elements, g->info.count, dtype,
                         wire_ring_seconds(&group->wire, bytes, true), reterr) != 0)
        return -1;
    return filler->ops->end(filler, ret, reterr);
}

static int reduce_scatter(struct group *g, const void *send, void *recv, uint64_t elements_per_rank,
                          enum dtype dtype, struct diag_list *reterr)
{
    return scatter(g, send, recv, elements_per_rank, dtype, NULL, reterr);
}

static int reduce_scatter_start(struct group *g, const void *send, void *recv,
                                uint64_t elements_per_rank, enum dtype dtype, struct transfer **ret,
                                struct diag_list *reterr)
{
    return scatter(g, send, recv, elements_per_rank, dtype, ret, reterr);
}

/* A ring that adds and one that brings the sums back, each of 1/members. */
static int all_reduce(struct group *g, void *values, uint64_t elements, enum dtype dtype,
                      struct diag_list *reterr)
{
    struct rehearsal_group *group = group_of(g);
    struct filler *filler = group->fabric->filler;
    uint64_t slice = elements * dtype_bytes(dtype) / (uint64_t)g->info.count;

    if (is_alone(g))
        return 0;
    if (begin_ring(group, reterr) != 0 ||
        filler->ops->scale(filler, values, elements, g->info.count, dtype,
                           wire_ring_seconds(&group->wire, slice, true) +
                               wire_ring_seconds(&group->wire, slice, false),
                           reterr) != 0)
        return -1;
    return filler->ops->end(filler, NULL, reterr);
}

/* Rows on the way, as bytes; *ret_own: where this rank's own begin on both sides. */
struct own_rows {
    uint64_t from, to, bytes; /* this rank's, to itself */
    uint64_t sent, received;  /* all */
};

static struct own_rows count_rows(const struct rehearsal_group *group, const int64_t *send_rows,
                                  const int64_t *recv_rows, uint64_t row_bytes,
                                  struct wire_rows *ret_wire)
{
    const struct communicator *c = group->communicator;
    const struct rehearsal *f = group->fabric;
    struct own_rows own = { 0 };

    *ret_wire = (struct wire_rows){ 0 };
    for (int i = 0; i < c->count; i++) {
        uint64_t sent = (uint64_t)send_rows[i] * row_bytes;
        uint64_t received = (uint64_t)recv_rows[i] * row_bytes;
        if (i == group->base.info.index) {
            own.from = own.sent;
            own.to = own.received;
            own.bytes = received;
        } else if (wire_is_near(f->hardware, f->base.rank, c->ranks[i])) {
            ret_wire->near_sent += sent;
            ret_wire->near_received += received;
        } else {
            ret_wire->far_sent += sent;
            ret_wire->far_received += received;
        }
        own.sent += sent;
        own.received += received;
    }
    return own;
}

/* Rows of this rank's again and again; those that it sends to itself are in their place. */
static int exchange(struct group *g, const void *send, const int64_t *send_rows, void *recv,
                    const int64_t *recv_rows, uint64_t row_bytes, struct transfer **ret,
                    struct diag_list *reterr)
{
    struct rehearsal_group *group = group_of(g);
    struct filler *filler = group->fabric->filler;
    struct wire_rows bytes;

    if (ret)
        *ret = NULL;
    if (is_alone(g))
        return copy_alone(group, recv, send, (uint64_t)send_rows[0] * row_bytes, reterr);
    const struct own_rows own = count_rows(group, send_rows, recv_rows, row_bytes, &bytes);
    bool copies = group->communicator->copies;
    double seconds = wire_exchange_seconds(&group->wire, &bytes, copies);
    if (begin_exchange(group, reterr) != 0 ||
        (copies ? filler->ops->carry : filler->ops->fill)(filler, recv, own.received, send,
                                                          own.sent, seconds, reterr) != 0 ||
        filler->ops->copy(filler, (char *)recv + own.to, (const char *)send + own.from, own.bytes,
                          reterr) != 0)
        return -1;
    return filler->ops->end(filler, ret, reterr);
}

static int all_to_all_rows(struct group *g, const void *send, const int64_t *send_rows, void *recv,
                           const int64_t *recv_rows, uint64_t row_bytes, struct diag_list *reterr)
{
    return exchange(g, send, send_rows, recv, recv_rows, row_bytes, NULL, reterr);
}

static int all_to_all_rows_start(struct group *g, const void *send, const int64_t *send_rows,
                                 void *recv, const int64_t *recv_rows, uint64_t row_bytes,
                                 struct transfer **ret, struct diag_list *reterr)
{
    return exchange(g, send, send_rows, recv, recv_rows, row_bytes, ret, reterr);
}

static int place_blocks(struct rehearsal_group *group, const char *send, char *recv,
                        uint64_t block_bytes, int blocks, const int *places,
                        struct diag_list *reterr)
{
    struct filler *filler = group->fabric->filler;
    const int *own = places + (ptrdiff_t)group->base.info.index * blocks;
    int ret = 0;

    for (int i = 0; i < blocks && ret == 0; i++)
        ret = filler->ops->copy(filler, recv + (uint64_t)own[i] * block_bytes,
                                send + (uint64_t)i * block_bytes, block_bytes, reterr);
    return ret;
}

static int gather_blocks(struct group *g, const void *send, void *recv, uint64_t block_bytes,
                         int blocks, const int *places, struct diag_list *reterr)
{
    struct rehearsal_group *group = group_of(g);
    struct filler *filler = group->fabric->filler;
    uint64_t own = block_bytes * (uint64_t)blocks, whole = own * (uint64_t)g->info.count;

    if (is_alone(g))
        return place_blocks(group, send, recv, block_bytes, blocks, places, reterr);
    if (begin_ring(group, reterr) != 0 ||
        filler->ops->fill(filler, recv, whole, send, own,
                          wire_ring_seconds(&group->wire, own, false), reterr) != 0 ||
        place_blocks(group, send, recv, block_bytes, blocks, places, reterr) != 0)
        return -1;
    return filler->ops->end(filler, NULL, reterr);
}

/* As large as the way back is: which of the whole's blocks are added to which does not matter. */
static int reduce_blocks(struct group *g, const void *send, void *recv, uint64_t block_elements,
                         int blocks, const int *places, enum dtype dtype, struct diag_list *reterr)
{
    struct rehearsal_group *group = group_of(g);
    const uint64_t bytes = block_elements * dtype_bytes(dtype);
    int ret = 0;

    if (!is_alone(g))
        return scatter(g, send, recv, block_elements * (uint64_t)blocks, dtype, NULL, reterr);
    for (int i = 0; i < blocks && ret == 0; i++)
        ret = copy_alone(group, (char *)recv + (uint64_t)i * bytes,
                         (const char *)send + (uint64_t)places[i] * bytes, bytes, reterr);
    return ret;
}

/* Every member says what this rank says to itself. */
static int exchange_counts(struct group *g, const int64_t *send, int64_t *recv, int per_member,
                           struct diag_list *reterr)
{
    size_t each = (size_t)per_member * sizeof *recv;

    (void)reterr;
    for (int i = 0; i < g->info.count; i++)
        memcpy(recv + (size_t)i * (size_t)per_member,
               send + (size_t)g->info.index * (size_t)per_member, each);
    return 0;
}

/* Every member has as much as this rank. */
static int sum_doubles(struct group *g, double *values, int count, struct diag_list *reterr)
{
    (void)reterr;
    for (int i = 0; i < count; i++)
        values[i] *= g->info.count;
    return 0;
}

/* Only this rank's own is there, as member 0's; the others are NULL. */
static int gather_text(struct group *g, const char *text, uint64_t bytes, char **ret_texts,
                       uint64_t *ret_bytes, struct diag_list *reterr)
{
    for (int i = 0; i < g->info.count; i++) {
        ret_texts[i] = NULL;
        ret_bytes[i] = 0;
    }
    ret_texts[0] = malloc(bytes + 1);
    if (!ret_texts[0])
        return no_memory(group_of(g)->fabric, reterr);
    if (bytes > 0)
        memcpy(ret_texts[0], text, bytes);
    ret_bytes[0] = bytes;
    return 0;
}

static int barrier(struct group *g, struct diag_list *reterr)
{
    (void)g;
    (void)reterr;
    return 0;
}

static void abort_all(struct fabric *f, int status)
{
    struct fabric *host = fabric_of(f)->host;
    host->ops->abort(host, status);
}

static void close_fabric(struct fabric *f)
{
    if (!f)
        return;
    struct rehearsal *fabric = fabric_of(f);
    group_close(f, f->all);
    fabric->filler->ops->close(fabric->filler);
    fabric->host->ops->close(fabric->host);
    free(fabric);
}

static double busy_seconds(struct fabric *f)
{
    struct filler *filler = fabric_of(f)->filler;
    return filler->ops->busy_seconds(filler);
}

static const struct fabric_ops rehearsal_ops = {
    .name = "rehearsal",
    .group_open = group_open,
    .group_close = group_close,
    .all_gather = all_gather,
    .all_gather_start = all_gather_start,
    .transfer_wait = transfer_wait,
    .reduce_scatter = reduce_scatter,
    .all_reduce = all_reduce,
    .all_to_all_rows = all_to_all_rows,
    .exchange_counts = exchange_counts,
    .sum_doubles = sum_doubles,
    .gather_text = gather_text,
    .barrier = barrier,
    .abort = abort_all,
    .close = close_fabric,
    .gather_blocks = gather_blocks,
    .reduce_blocks = reduce_blocks,
    .all_to_all_rows_start = all_to_all_rows_start,
    .reduce_scatter_start = reduce_scatter_start,
    .group_open_copies = group_open_copies,
    .busy_seconds = busy_seconds,
};

uint64_t fabric_rehearsal_communicator_bytes(const struct fabric *f)
{
    return ((const struct rehearsal *)f)->communicator_bytes;
}

struct fabric *rehearsal_open(struct fabric *host, struct filler *filler,
                              const struct rehearsal_world *world, struct diag_list *reterr)
{
    struct rehearsal *f = calloc(1, sizeof *f);
    struct rehearsal_group *all = calloc(1, sizeof *all);

    if (!f || !all) {
        free(f);
        free(all);
        diag_error(reterr, nowhere, "rank %d: no memory left for the fabric", world->rank);
        return NULL;
    }
    f->base = (struct fabric){ .ops = &rehearsal_ops,
                               .rank = world->rank,
                               .world = world->world,
                               .all = &all->base,
                               .progress = host->progress,
                               .alone = true };
    f->host = host;
    f->hardware = world->hardware;
    f->filler = filler;
    *all = (struct rehearsal_group){ .base.info = { world->world, world->rank }, .fabric = f };
    return &f->base;
}

struct fabric *fabric_rehearsal_open(struct fabric *host, const struct rehearsal_world *world,
                                     struct diag_list *reterr)
{
    struct filler *filler = filler_host_open();
    if (!filler) {
        diag_error(reterr, nowhere, "rank %d: no memory left for the fabric", world->rank);
        return NULL;
    }
    struct fabric *f = rehearsal_open(host, filler, world, reterr);
    if (!f)
        filler->ops->close(filler);
    return f;
}
