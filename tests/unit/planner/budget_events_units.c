#include "budget_events_step.h"

struct tensor_alive make(struct step *s, enum item item, uint64_t bytes)
{
    struct played *g = s->ledger;
    uint64_t rounded = (bytes + 255) / 256 * 256;
    g->live[item] += rounded;
    g->total += rounded;
    if (g->live[item] > g->max[item])
        g->max[item] = g->live[item];
    if (g->total > g->peak) {
        g->peak = g->total;
        memcpy(g->at_peak, g->live, sizeof g->live);
    }
    return (struct tensor_alive){ item, rounded };
}

void drop(struct step *s, struct tensor_alive *t)
{
    assert(s->ledger->live[t->item] >= t->bytes);
    s->ledger->live[t->item] -= t->bytes;
    s->ledger->total -= t->bytes;
    t->bytes = 0;
}

static uint64_t pad(uint64_t n, int shards)
{
    uint64_t to = 64u * (uint64_t)shards;
    return (n + to - 1) / to * to;
}

int dense_shards(const struct step *s)
{
    return s->l->fsdp * s->l->cp;
}

uint64_t layer_dense(const struct step *s, int layer)
{
    const struct model *m = s->m;
    uint64_t h = s->H, norms = 2 * h + (m->gqa.qk_norm ? 2u * (uint64_t)m->gqa.head_dim : 0);
    uint64_t n = norms + h * (s->Q + s->G + 2 * s->K) + s->Q * h;
    if (m->layer_ffn[layer] == FFN_DENSE)
        return pad(n + 3 * h * (uint64_t)m->dense_width, dense_shards(s));
    n += h * (uint64_t)m->moe.experts + 3 * h * (uint64_t)m->moe.shared_width;
    n += m->moe.shared_width && m->moe.shared_gate ? h : 0;
    return pad(n, dense_shards(s));
}

uint64_t layer_expert(const struct step *s, int layer)
{
    const struct model *m = s->m;
    if (m->layer_ffn[layer] == FFN_DENSE)
        return 0;
    uint64_t local = (uint64_t)(m->moe.experts / s->l->ep);
    return pad(local * 3 * s->H * (uint64_t)m->moe.width, s->l->e_fsdp);
}

uint64_t embedding_dense(const struct step *s)
{
    return pad((uint64_t)s->m->vocab * s->H, dense_shards(s));
}

uint64_t head_dense(const struct step *s)
{
    return pad(s->H + (s->m->tied ? 0 : (uint64_t)s->m->vocab * s->H), dense_shards(s));
}

static void keep_state(struct step *s, uint64_t n, int shards)
{
    uint64_t k = (uint64_t)shards, grad = s->p->grad_dtype == DTYPE_BF16 ? 2 : 4;
    bool fsdp = s->p->sharding == SHARDING_FSDP, whole = s->p->sharding == SHARDING_REPLICATED;
    make(s, ITEM_WEIGHTS, 2 * (fsdp ? n / k : n));
    make(s, ITEM_GRADIENTS, grad * (fsdp ? n / k : n));
    make(s, ITEM_MASTER, 4 * (whole ? n : n / k));
    make(s, ITEM_MOMENTS, 8 * (whole ? n : n / k));
}

void play_state(struct step *s)
{
    keep_state(s, embedding_dense(s), dense_shards(s));
    for (int i = 0; i < s->m->layers; i++) {
        keep_state(s, layer_dense(s, i), dense_shards(s));
        if (layer_expert(s, i))
            keep_state(s, layer_expert(s, i), s->l->e_fsdp);
    }
    keep_state(s, head_dense(s), dense_shards(s));
}

/* Order of use: 0 embedding, 1..L layers, L+1 head, L+2..2L+1 layers backwards. */
static int layer_of_use(const struct step *s, int use)
{
    int layers = s->m->layers;
    return use <= layers ? use - 1 : 2 * layers + 1 - use;
}

static void gather(struct step *s, int use)
{
    int layers = s->m->layers, n = 0;
    bool dense = dense_shards(s) > 1, head = use == layers + 1;
    struct tensor_alive *to = s->gathered[use];
    memset(to, 0, sizeof s->gathered[use]);
    if (use == 0 || (head && s->m->tied))
        if (dense)
            to[n++] = make(s, ITEM_GATHERED_WEIGHTS, 2 * embedding_dense(s));
    if (head && dense)
        to[n++] = make(s, ITEM_GATHERED_WEIGHTS, 2 * head_dense(s));
    if (use == 0 || head)
        return;
    int layer = layer_of_use(s, use);
    if (dense)
        to[n++] = make(s, ITEM_GATHERED_WEIGHTS, 2 * layer_dense(s, layer));
    if (s->l->e_fsdp > 1 && layer_expert(s, layer))
        to[n] = make(s, ITEM_GATHERED_WEIGHTS, 2 * layer_expert(s, layer));
}

void begin_use(struct step *s, int use)
{
    if (s->p->sharding != SHARDING_FSDP)
        return;
    for (int i = use; i <= use + s->p->prefetch_units && i < 2 * s->m->layers + 2; i++) {
        if (!s->issued[i])
            gather(s, i);
        s->issued[i] = true;
    }
}

void end_use(struct step *s, int use)
{
    if (s->p->sharding == SHARDING_FSDP)
        for (int i = 0; i < 4; i++)
            drop(s, &s->gathered[use][i]);
}

uint64_t grad_bytes(const struct step *s)
{
    return s->p->grad_dtype == DTYPE_BF16 ? 2 : 4;
}

void open_gradients(struct step *s, const uint64_t *parts, const int *shards, int count)
{
    memset(s->full, 0, sizeof s->full);
    for (int i = 0; i < count; i++)
        if (s->p->sharding == SHARDING_FSDP && shards[i] > 1 && parts[i])
            s->full[i] = make(s, ITEM_GATHERED_GRADIENTS, grad_bytes(s) * parts[i]);
}

void drop_old(struct step *s)
{
    for (int i = 0; i < 4; i++) {
        drop(s, &s->old[i]);
        drop(s, &s->old_receive[i]);
    }
}

void close_gradients(struct step *s, const uint64_t *parts, const int *shards, int count)
{
    bool later = s->p->comm_streams == 2;
    if (later)
        drop_old(s);
    for (int i = 0; i < count; i++) {
        if (s->full[i].bytes == 0)
            continue;
        struct tensor_alive receive =
            make(s, ITEM_GATHERED_GRADIENTS, grad_bytes(s) * parts[i] / (uint64_t)shards[i]);
        if (later) {
            s->old[i] = s->full[i];
            s->old_receive[i] = receive;
        } else {
            drop(s, &receive);
            drop(s, &s->full[i]);
        }
    }
}
