/* communicators.c - device memory of communicators, from the measured keys of the hardware file:
 * what one takes at init, what its ring channels take at the first collective, what an exchange
 * takes for each peer. One communicator for each distinct group of more than one rank. */
#include "planner/predict/parts.h"

#include "base/checked.h"
#include "base/text.h"

enum { MAX_AXES = 5, MAX_GROUPS = 16, NETWORK_CHANNELS = 2 };

/* What a communicator is for; one that serves several uses carries all their bits. */
enum use {
    USE_WORLD,
    USE_SHARDS,
    USE_D_REP,
    USE_TP,
    USE_CP,
    USE_PP,
    USE_EP,
    USE_EP_COPIES,
    USE_ETP,
    USE_E_FSDP,
    USE_E_REP,
    USE_MUON,
    USE_E_MUON,
    USE_COUNT
};
static const char *const use_names[USE_COUNT] = {
    [USE_WORLD] = "world",
    [USE_SHARDS] = "fsdp x cp",
    [USE_D_REP] = "d_rep",
    [USE_TP] = "tp",
    [USE_CP] = "cp",
    [USE_PP] = "pp",
    [USE_EP] = "ep",
    [USE_EP_COPIES] = "ep by copies",
    [USE_ETP] = "etp",
    [USE_E_FSDP] = "e_fsdp",
    [USE_E_REP] = "e_rep",
    [USE_MUON] = "one copy of a matrix",
    [USE_E_MUON] = "one copy of an expert's",
};

/* A group as strides and degrees, innermost first, neighbours merged: equal groups look equal. */
struct group {
    unsigned uses;          /* bits 1 << use */
    int count, size, peers; /* peers: of an exchange; 0: none */
    bool ring;
    bool apart; /* a communicator of its own, whatever the others' ranks are */
    int stride[MAX_AXES], degree[MAX_AXES];
};

struct groups {
    int count;
    struct group items[MAX_GROUPS];
};

static void group_add_axis(struct group *g, int stride, int degree)
{
    if (degree == 1)
        return;
    g->size *= degree;
    if (g->count > 0 && g->stride[g->count - 1] * g->degree[g->count - 1] == stride) {
        g->degree[g->count - 1] *= degree;
        return;
    }
    g->stride[g->count] = stride;
    g->degree[g->count++] = degree;
}

static bool same_ranks(const struct group *a, const struct group *b)
{
    if (a->count != b->count || a->apart || b->apart)
        return false;
    for (int i = 0; i < a->count; i++)
        if (a->stride[i] != b->stride[i] || a->degree[i] != b->degree[i])
            return false;
    return true;
}

static struct group group_of(const int *degrees, unsigned axes)
{
    struct group g = { .size = 1 };
    int stride = 1;
    for (int i = 0; i < MAX_AXES; stride *= degrees[i], i++)
        if (axes & (1U << i))
            group_add_axis(&g, stride, degrees[i]);
    return g;
}

/* Adds the group of `axes` (bits from the first of `degrees`), or its use to an equal one. */
static void use(struct groups *all, enum use what, const int *degrees, unsigned axes, bool ring,
                int peers)
{
    struct group g = group_of(degrees, axes);
    if (g.size == 1)
        return;
    g.uses = 1u << what;
    g.ring = ring;
    g.peers = peers < 0 ? g.size - 1 : peers;
    for (int i = 0; i < all->count; i++) {
        struct group *old = &all->items[i];
        if (same_ranks(old, &g)) {
            old->uses |= g.uses;
            old->ring = old->ring || g.ring;
            old->peers = old->peers > g.peers ? old->peers : g.peers;
            return;
        }
    }
    if (all->count < MAX_GROUPS)
        all->items[all->count++] = g;
}

enum { D_TP = 1, D_CP = 2, D_FSDP = 4, D_REP = 8, D_PP = 16 };
enum { E_ETP = 1, E_EP = 2, E_FSDP = 4, E_REP = 8 };

/* Exchanges on the copy engines write into the peers' arenas: no buffers, but a communicator whose
 * policy the other collectives of the same ranks do not share. */
static void use_copies(struct groups *all, const int *expert)
{
    struct group g = group_of(expert, E_EP);
    g.apart = true;
    g.uses = 1u << USE_EP_COPIES;
    if (g.size > 1 && all->count < MAX_GROUPS)
        all->items[all->count++] = g;
}

static void collect(const struct budget_input *in, struct groups *ret)
{
    const struct layout *l = &in->choices->layout;
    const struct primitives *p = &in->choices->primitives;
    const int dense[MAX_AXES] = { l->tp, l->cp, l->fsdp, l->d_rep, l->pp };
    const int expert[MAX_AXES] = { l->etp, l->ep, l->e_fsdp, l->e_rep, l->pp };
    bool heads = p->context == CONTEXT_ULYSSES || p->context == CONTEXT_HIERARCHICAL ||
                 p->linear_context == LINEAR_CONTEXT_HEAD_SPLIT;
    bool gathers = p->context == CONTEXT_ALLGATHER_KV ||
                   p->linear_context == LINEAR_CONTEXT_STATE_PASS; /* of states and halos */
    ret->count = 0;
    use(ret, USE_WORLD, dense, D_TP | D_CP | D_FSDP | D_REP | D_PP, true, 0);
    use(ret, USE_SHARDS, dense, D_CP | D_FSDP, true, 0);
    use(ret, USE_D_REP, dense, D_REP, true, 0);
    use(ret, USE_TP, dense, D_TP, true, 0);
    use(ret, USE_CP, dense, D_CP, gathers, heads ? -1 : p->context == CONTEXT_RING ? 2 : 0);
    use(ret, USE_PP, dense, D_PP, false, l->pp > 2 ? 2 : 1);
    if (p->optimizer == OPTIMIZER_MUON)
        use(ret, USE_MUON, dense, D_TP | D_CP | D_FSDP, true, 0);
    if (in->model->moe.experts == 0)
        return;
    if (p->exchange == EXCHANGE_COPY)
        use_copies(ret, expert);
    else
        use(ret, USE_EP, expert, E_EP, false, -1);
    use(ret, USE_ETP, expert, E_ETP, true, 0);
    use(ret, USE_E_FSDP, expert, E_FSDP, true, 0);
    use(ret, USE_E_REP, expert, E_REP, true, 0);
    if (p->optimizer == OPTIMIZER_MUON)
        use(ret, USE_E_MUON, expert, E_ETP | E_FSDP, true, 0);
}

/* Peers at link speed take the measured buffers, peers across the network two channels each. */
static uint64_t exchange_bytes(const struct hardware *h, const struct group *g)
{
    int span = 1;
    for (int i = 0; i < g->count; i++)
        span += g->stride[i] * (g->degree[i] - 1);
    int near = g->peers;
    if (h->domain_gpus > 0 && span > h->domain_gpus) {
        int inside = h->domain_gpus / (g->count > 0 ? g->stride[0] : 1);
        inside = inside > 1 ? inside - 1 : 0;
        near = near < inside ? near : inside;
    }
    return add_sat(mul_sat((uint64_t)near, h->exchange_peer_bytes),
                   mul3_sat((uint64_t)(g->peers - near), NETWORK_CHANNELS, h->channel_bytes));
}

int communicator_count(const struct budget_input *in)
{
    struct groups all;
    collect(in, &all);
    return all.count;
}

void communicator_list(const struct budget_input *in, char *ret, size_t size)
{
    struct groups all;
    size_t used = 0;
    collect(in, &all);
    ret[0] = '\0';
    for (int i = 0; i < all.count; i++) {
        text_append(ret, size, &used, "%s", i > 0 ? ", " : "");
        for (int what = 0, named = 0; what < USE_COUNT; what++)
            if (all.items[i].uses & (1u << what))
                text_append(ret, size, &used, "%s%s", named++ ? " = " : "", use_names[what]);
        text_append(ret, size, &used, " of %d", all.items[i].size);
    }
}

uint64_t communicator_bytes(const struct budget_input *in)
{
    const struct hardware *h = in->hardware;
    struct groups all;
    uint64_t total = 0;
    collect(in, &all);
    for (int i = 0; i < all.count; i++) {
        const struct group *g = &all.items[i];
        total = add_sat(total, i == 0 ? h->communicator_first_bytes : h->communicator_next_bytes);
        if (g->apart)
            total = add_sat(total, h->copy_exchange_bytes);
        if (g->ring)
            total = add_sat(total, mul_sat((uint64_t)h->ring_channels, h->channel_bytes));
        if (g->peers > 0)
            total = add_sat(total, exchange_bytes(h, g));
        if (g->peers > 0 && i == 0)
            total = add_sat(total, h->exchange_first_bytes);
    }
    return total;
}
