/* loss.c - final norm, head and loss, forward and backward in one pass. */
#include "tests/simulator/rank.h"

enum { LOSS_HELD = 12 };

struct tiles {
    int count;
    struct held held[LOSS_HELD];
};

static void add(struct rank *s, struct tiles *t, enum item item, uint64_t bytes)
{
    t->held[t->count++] = make(s, item, bytes);
}

/* Entropy needs the probabilities of a tile in one piece. */
static void add_entropy(struct rank *s, struct tiles *t, uint64_t elements)
{
    if (s->p->rl & RL_ENTROPY)
        add(s, t, ITEM_LOSS_WORKING, 4 * elements);
}

static void streamed(struct rank *s, struct tiles *t, uint64_t tile, uint64_t vocab)
{
    uint64_t strip = (uint64_t)s->p->vocab_strip, w = strip > 0 && strip < vocab ? strip : vocab;
    if (strip > 0)
        add(s, t, ITEM_LOSS_WORKING, 4 * s->T);
    add(s, t, ITEM_LOSS_WORKING, 4 * tile * w);
    add(s, t, ITEM_LOSS_WORKING, 2 * tile * w);
    add_entropy(s, t, tile * w);
    if (strip > 0)
        add(s, t, ITEM_LOSS_WORKING, 4 * tile * s->H);
}

static void whole(struct rank *s, struct tiles *t, uint64_t tile, uint64_t vocab)
{
    bool fp32 = s->p->logits_dtype == DTYPE_FP32;
    add(s, t, ITEM_LOGITS, (fp32 ? 4U : 2U) * s->T * vocab);
    if (fp32)
        add(s, t, ITEM_LOSS_WORKING, 2 * tile * vocab);
    add_entropy(s, t, tile * vocab);
}

/* One shard of the matrix and of its gradient at work, one of each arriving; three numbers a token.
 */
static void circulating(struct rank *s, struct tiles *t, uint64_t tile, uint64_t vocab)
{
    uint64_t shard = split((int)vocab, (uint64_t)s->p->vocab_group);
    uint64_t grad = s->p->grad_dtype == DTYPE_BF16 ? 2 : 4;
    for (int i = 0; i < 3; i++)
        add(s, t, ITEM_LOSS_WORKING, 4 * s->T);
    for (int i = 0; i < 2; i++) {
        add(s, t, ITEM_LOSS_WORKING, 2 * shard * s->H);
        add(s, t, ITEM_LOSS_WORKING, grad * shard * s->H);
    }
    add(s, t, ITEM_LOSS_WORKING, 4 * tile * shard);
    add(s, t, ITEM_LOSS_WORKING, 2 * tile * shard);
    add_entropy(s, t, tile * shard);
}

/* The state is there. */
static void tiles(struct rank *s)
{
    struct tiles t = { .count = 0 };
    uint64_t most = (uint64_t)s->p->loss_tile_tokens, tile = s->T < most ? s->T : most;
    if (s->p->loss == LOSS_FULL)
        whole(s, &t, tile, sim_vocab(s));
    else if (s->p->loss == LOSS_LINEAR_CE)
        streamed(s, &t, tile, sim_vocab(s));
    else
        circulating(s, &t, tile, sim_vocab(s));
    for (int i = 0; i < t.count; i++)
        drop(s, &t.held[i]);
}

struct unit_gradients open_head(struct rank *s)
{
    if (s->p->loss == LOSS_RING_DTP)
        return (struct unit_gradients){ 0 };
    return open_gradients(s, &s->head, s->m->tied ? &s->embedding : NULL);
}

void play_loss(struct rank *s, struct pass *pass, struct held *state)
{
    uint64_t bytes = 2 * s->N * s->H, gathered = s->tp > 1 ? 2 * s->T * s->H : 0;
    struct held nf = make(s, ITEM_LOSS_WORKING, bytes), dnf = make(s, ITEM_LOSS_WORKING, bytes);
    struct held all = make(s, ITEM_LOSS_WORKING, gathered);
    struct held sum = make(s, ITEM_LOSS_WORKING, gathered);
    tiles(s);
    drop(s, &all);
    drop(s, &sum);
    if (pass->dx.bytes == 0)
        pass->dx = make(s, ITEM_LAYER_WORKING, bytes);
    drop(s, state);
    drop(s, &nf);
    drop(s, &dnf);
}

/* As much of the logits as the loss has at a time; of each token three results. */
static void logits_alone(struct rank *s, struct tiles *t)
{
    uint64_t most = (uint64_t)s->p->loss_tile_tokens, tile = s->T < most ? s->T : most;
    uint64_t vocab = sim_vocab(s), strip = (uint64_t)s->p->vocab_strip;
    uint64_t shard = split((int)vocab, (uint64_t)s->p->vocab_group);
    uint64_t w = strip > 0 && strip < vocab ? strip : vocab;
    for (int i = 0; i < 3; i++)
        add(s, t, ITEM_LOSS_WORKING, 4 * s->T);
    if (s->p->loss == LOSS_RING_DTP) {
        w = shard;
        for (int i = 0; i < 2; i++)
            add(s, t, ITEM_LOSS_WORKING, 2 * shard * s->H);
    }
    if (s->p->loss == LOSS_FULL) {
        w = vocab;
        add(s, t, ITEM_LOGITS, (s->p->logits_dtype == DTYPE_FP32 ? 4U : 2U) * s->T * vocab);
    } else
        add(s, t, ITEM_LOSS_WORKING, 4 * tile * w);
    add_entropy(s, t, tile * w);
}

void play_log_probabilities(struct rank *s, struct held *state)
{
    struct tiles t = { .count = 0 };
    struct held nf = make(s, ITEM_LOSS_WORKING, 2 * s->N * s->H);
    struct held all = make(s, ITEM_LOSS_WORKING, s->tp > 1 ? 2 * s->T * s->H : 0);
    drop(s, state);
    logits_alone(s, &t);
    for (int i = 0; i < t.count; i++)
        drop(s, &t.held[i]);
    drop(s, &all);
    drop(s, &nf);
}
