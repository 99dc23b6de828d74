/* communicator.c - NCCL's communicators: made once for each distinct set of ranks, shared by the
 * groups that are equal, and what they take of the device. */
#include "executor/fabric/nccl/nccl_group.h"

#include <stdlib.h>
#include <string.h>

static bool same_ranks(const struct communicator *c, const int *ranks, int count)
{
    return !c->copies && c->count == count &&
           memcmp(c->ranks, ranks, (size_t)count * sizeof *ranks) == 0;
}

/* The identifier that member 0 made, at every member. */
static int share_id(const struct nccl_group *g, ncclUniqueId *id, struct diag_list *reterr)
{
    enum { WORDS = sizeof *id / sizeof(int64_t) };
    const struct fabric_ops *host = g->fabric->host->ops;
    size_t count = (size_t)g->base.info.count;
    int64_t *words = calloc(2 * count * WORDS, sizeof *words);
    int ret = 0;

    if (!words) {
        (void)nccl_no_memory(g->fabric, reterr);
        return -1;
    }
    if (g->base.info.index == 0)
        ret = nccl_check(g, ncclGetUniqueId(id), "group_open", reterr);
    for (size_t i = 0; i < count && g->base.info.index == 0; i++)
        memcpy(words + i * WORDS, id, sizeof *id);
    if (host->exchange_counts(g->host, words, words + count * WORDS, WORDS, reterr) != 0)
        ret = -1;
    memcpy(id, words + count * WORDS, sizeof *id);
    free(words);
    return ret;
}

uint64_t nccl_device_free(void)
{
    size_t left = 0, all = 0;
    return cudaMemGetInfo(&left, &all) == cudaSuccess ? left : 0;
}

void nccl_account(struct nccl_fabric *f, uint64_t before)
{
    uint64_t after = nccl_device_free();
    f->device_bytes += before > after ? before - after : 0;
}

static void free_communicator(struct communicator *c)
{
    if (c->comm)
        (void)ncclCommDestroy(c->comm);
    free(c->ranks);
    free(c);
}

static struct communicator *new_communicator(struct nccl_group *g, const int *ranks, bool copies,
                                             struct diag_list *reterr)
{
    struct nccl_fabric *f = g->fabric;
    size_t bytes = (size_t)g->base.info.count * sizeof *ranks;
    struct communicator *c = calloc(1, sizeof *c);
    uint64_t before = nccl_device_free();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;

    if (!c || !(c->ranks = malloc(bytes))) {
        free(c);
        (void)nccl_no_memory(f, reterr);
        return NULL;
    }
    memcpy(c->ranks, ranks, bytes);
    c->count = g->base.info.count;
    c->copies = copies;
    if (copies)
        config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    if (share_id(g, &id, reterr) != 0 ||
        nccl_check(g, ncclCommInitRankConfig(&c->comm, c->count, id, g->base.info.index, &config),
                   "group_open", reterr) != 0) {
        free_communicator(c);
        return NULL;
    }
    nccl_account(f, before);
    (void)pthread_mutex_lock(&f->pending.lock);
    c->next = f->communicators;
    f->communicators = c;
    (void)pthread_mutex_unlock(&f->pending.lock);
    return c;
}

int communicator_join(struct nccl_group *g, const int *ranks, bool copies, struct diag_list *reterr)
{
    struct communicator *c = g->fabric->communicators;

    while (c && (copies || !same_ranks(c, ranks, g->base.info.count)))
        c = c->next;
    if (!c)
        c = new_communicator(g, ranks, copies, reterr);
    if (!c)
        return -1;
    g->communicator = c;
    c->users++;
    return 0;
}

void communicator_leave(struct nccl_group *g)
{
    struct communicator *c = g->communicator, **at = &g->fabric->communicators;

    if (!c || --c->users > 0)
        return;
    (void)pthread_mutex_lock(&g->fabric->pending.lock);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    (void)pthread_mutex_unlock(&g->fabric->pending.lock);
    free_communicator(c);
}
