/* loss.c - the loss side: whole logits, the streamed loss by tiles and by strips, the ring over
 * vocabulary shards. */
#include "planner/predict/parts.h"

#include "base/checked.h"

struct widths {
    uint64_t tokens, tile, hidden, vocab, state; /* state: one [T / tp, H] tensor */
    uint64_t gathered;                           /* tp: the gathered input, and the partial sum */
};

static struct widths widths_of(const struct budget_input *in)
{
    struct widths w = { .tokens = local_tokens(in), .hidden = (uint64_t)in->model->hidden };
    uint64_t tp = (uint64_t)in->choices->layout.tp;
    uint64_t tile = (uint64_t)in->choices->primitives.loss_tile_tokens;
    w.tile = w.tokens < tile ? w.tokens : tile;
    w.vocab = vocab_rows(in);
    w.state = arena_bytes(mul_sat(norm_tokens(in), w.hidden), 2);
    w.gathered = tp > 1 ? arena_bytes(mul_sat(w.tokens, w.hidden), 2) : 0;
    return w;
}

static uint64_t tile_bytes(const struct widths *w, uint64_t vocab, uint64_t bytes)
{
    return arena_bytes(mul_sat(w->tile, vocab), bytes);
}

/* Logits of local tokens x vocab / tp once: the gradient overwrites them; a bf16 tile of the
 * gradient where they are fp32. */
static void full(const struct budget_input *in, const struct widths *w, struct loss_bytes *ret)
{
    enum dtype dtype = in->choices->primitives.logits_dtype;
    ret->logits = arena_bytes(mul_sat(w->tokens, w->vocab), dtype_bytes(dtype));
    if (dtype == DTYPE_FP32)
        ret->tiles = add_sat(ret->tiles, tile_bytes(w, w->vocab, 2));
}

/* Tiles of t tokens: their logits in fp32 and the gradient in bf16. In strips of w entries: per
 * tile the same of [t, w] and the hidden gradient fp32 [t, H]; the log-sum-exp fp32 [T] of all
 * tiles. */
static void linear_ce(const struct budget_input *in, const struct widths *w, struct loss_bytes *ret)
{
    uint64_t strip = (uint64_t)in->choices->primitives.vocab_strip;
    uint64_t width = strip > 0 && strip < w->vocab ? strip : w->vocab;
    uint64_t tile = add_sat(tile_bytes(w, width, 4), tile_bytes(w, width, 2));
    if (strip > 0)
        tile = add_sat(tile, add_sat(tile_bytes(w, w->hidden, 4), arena_bytes(w->tokens, 4)));
    ret->tiles = add_sat(ret->tiles, tile);
}

/* Vocabulary shards of H x V / g circulate with their gradients: one of each at work, one arriving;
 * per token a running maximum, sum and target logit. */
static void ring_dtp(const struct budget_input *in, const struct widths *w, struct loss_bytes *ret)
{
    const struct primitives *p = &in->choices->primitives;
    uint64_t group = p->vocab_group > 0 ? (uint64_t)p->vocab_group : 1;
    uint64_t shard = div_up(w->vocab, group);
    uint64_t weights = arena_bytes(mul_sat(shard, w->hidden), 2);
    uint64_t gradients = arena_bytes(mul_sat(shard, w->hidden), dtype_bytes(p->grad_dtype));
    uint64_t strip = add_sat(tile_bytes(w, shard, 4), tile_bytes(w, shard, 2));
    uint64_t statistics = mul_sat(3, arena_bytes(w->tokens, 4));
    ret->tiles = add_sat(
        ret->tiles, add_sat(add_sat(strip, statistics), mul_sat(2, add_sat(weights, gradients))));
}

/* Entries of the vocabulary at work at a time. */
static uint64_t entries_at_work(const struct budget_input *in, const struct widths *w)
{
    const struct primitives *p = &in->choices->primitives;
    uint64_t strip = (uint64_t)p->vocab_strip;
    if (p->loss == LOSS_RING_DTP)
        return div_up(w->vocab, p->vocab_group > 0 ? (uint64_t)p->vocab_group : 1);
    return p->loss == LOSS_LINEAR_CE && strip > 0 && strip < w->vocab ? strip : w->vocab;
}

/* Entropy over the whole vocabulary: lse - sum of p z, of each tile's probabilities in fp32, which
 * the backward weighs once more; one tile beside that of the logits. */
static uint64_t entropy_bytes(const struct budget_input *in, const struct widths *w)
{
    bool asked = (in->choices->primitives.rl & RL_ENTROPY) != 0;
    return asked ? tile_bytes(w, entries_at_work(in, w), 4) : 0;
}

/* Final hidden states and their norm; then, beside the norm, the logits whole in their dtype, or a
 * tile, strip or shard of them in fp32; log-sum-exp, target's logit and entropy of every token,
 * fp32. No gradient. */
void logprob_bytes(const struct budget_input *in, struct loss_bytes *ret)
{
    const struct primitives *p = &in->choices->primitives;
    struct widths w = widths_of(in);
    uint64_t entries = entries_at_work(in, &w), logits = 0, tile = tile_bytes(&w, entries, 4);
    uint64_t results = mul_sat(3, arena_bytes(w.tokens, 4));
    uint64_t normed = add_sat(w.state, w.gathered);
    if (p->loss == LOSS_FULL) {
        logits = arena_bytes(mul_sat(w.tokens, w.vocab), dtype_bytes(p->logits_dtype));
        tile = 0;
    }
    if (p->loss == LOSS_RING_DTP) /* one shard at work, one arriving */
        tile = add_sat(tile, mul_sat(2, arena_bytes(mul_sat(entries, w.hidden), 2)));
    uint64_t working = add_sat(add_sat(tile, entropy_bytes(in, &w)), results);
    *ret = (struct loss_bytes){ .normed = add_sat(normed, w.state),
                                .tiles = add_sat(normed, working),
                                .logits = logits };
}

void loss_bytes(const struct budget_input *in, struct loss_bytes *ret)
{
    struct widths w = widths_of(in);
    ret->logits = 0;
    ret->normed = add_sat(mul_sat(2, w.state), w.gathered);
    ret->tiles = add_sat(mul_sat(3, w.state), mul_sat(2, w.gathered));
    ret->stream = mul_sat(3, w.state);
    switch (in->choices->primitives.loss) {
    case LOSS_FULL:
        full(in, &w, ret);
        break;
    case LOSS_RING_DTP:
        ring_dtp(in, &w, ret);
        break;
    case LOSS_LINEAR_CE:
    case LOSS_COUNT:
        linear_ce(in, &w, ret);
        break;
    }
    ret->tiles = add_sat(ret->tiles, entropy_bytes(in, &w));
}
