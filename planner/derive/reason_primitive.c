#include "planner/derive/story.h"

static void tell_recompute(struct story *s)
{
    struct settings other = s->settings;

    if (!story_begin(s, "recompute", recompute_names[s->settings.recompute]))
        return;
    if (s->settings.recompute_layers > 0 && s->space->open_recompute_layers)
        TELL(s,
             "the first %d layers of a stage run forward again in backward, the others' tensors "
             "fit",
             s->settings.recompute_layers);
    else if (s->settings.recompute == RECOMPUTE_FULL)
        TELL(s, "only each layer's input is kept, forward runs again in backward");
    else
        TELL(s, "what the forward made is kept: nothing runs twice");
    other.recompute = s->settings.recompute == RECOMPUTE_NONE ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    story_price_settings(s, &other, "recompute", recompute_names[other.recompute]);
}

static void tell_attention(struct story *s)
{
    struct settings other = s->settings;
    int kept = s->chosen->choices.primitives.keep_attention;

    if (s->settings.recompute != RECOMPUTE_FULL || s->space->attention.count < 2 ||
        !story_begin_number(s, "keep_attention", kept))
        return;
    TELL(s, kept ? "recomputed layers keep what attention made: a replay does not attend again"
                 : "a replay attends again: nothing of it is kept");
    other.keep_attention = !kept;
    story_price_settings(s, &other, "keep_attention", kept ? "0" : "1");
}

static void tell_loss(struct story *s)
{
    const struct question *q = s->space->q;
    const struct layout *l = &s->chosen->choices.layout;
    struct settings other = s->settings;
    char logits[32];
    uint64_t tokens = layout_local_tokens(l, q->seq_tokens);

    if (!story_begin(s, "loss", loss_names[s->settings.loss]))
        return;
    size_text(logits, sizeof logits,
              tokens * (uint64_t)q->model->vocab * dtype_bytes(s->space->base.logits_dtype) /
                  (uint64_t)l->tp);
    TELL(s,
         s->settings.loss == LOSS_FULL ? "whole logits of %s have room"
                                       : "streamed by tiles, whole logits would be %s",
         logits);
    other.loss = s->settings.loss == LOSS_FULL ? LOSS_LINEAR_CE : LOSS_FULL;
    story_price_settings(s, &other, "loss", loss_names[other.loss]);
}

static void tell_tiles(struct story *s)
{
    const struct primitives *p = &s->chosen->choices.primitives;

    if (!s->space->open_tile || p->loss == LOSS_RING_DTP ||
        !story_begin_number(s, "loss_tile_tokens", p->loss_tile_tokens))
        return;
    if (s->decision->tile_gain > 0)
        TELL(s,
             "%.0f %% faster than the largest tiles that leave the peak as it is: the head's "
             "gradient is read and written once a tile",
             100 * s->decision->tile_gain);
    else
        TELL(
            s,
            p->loss_tile_tokens > LOSS_TILE_TOKENS
                ? "the largest tiles that leave the peak as it is: the head's gradient is read and "
                  "written once a tile"
                : "larger tiles would raise the peak");
}

static void tell_moe(struct story *s)
{
    struct settings other = s->settings;
    int chunks = s->settings.chunks;

    if (!s->space->has_moe)
        return;
    if (!story_begin(s, "moe", moe_names[s->chosen->choices.primitives.moe]))
        return;
    if (chunks > 1 && s->degrees.ep > 1)
        TELL(s, "%d chunks of the tokens: one is exchanged while another is computed", chunks);
    else if (chunks > 1)
        TELL(s, "%d chunks of the tokens: expert tensors of one chunk are alive at a time", chunks);
    else
        TELL(s, "every token at once");
    other.chunks = chunks > 1 ? 1 : 2;
    story_price_settings(s, &other, "moe_chunks", chunks > 1 ? "1" : "2");
}

static void tell_prefetch(struct story *s)
{
    const struct primitives *p = &s->chosen->choices.primitives;
    struct settings other = s->settings;

    if (s->settings.sharding != SHARDING_FSDP ||
        !story_begin_number(s, "prefetch_units", p->prefetch_units))
        return;
    TELL(s, p->prefetch_units > 0 ? "the next unit is gathered while this one computes"
                                  : "no room for a second unit's weights");
    if (!s->space->open_prefetch)
        return;
    other.ahead = p->prefetch_units > 0 ? AHEAD_NOTHING : AHEAD_GATHERS;
    story_price_settings(s, &other, "prefetch_units", p->prefetch_units > 0 ? "0" : "1");
}

static void tell_streams(struct story *s)
{
    const struct primitives *p = &s->chosen->choices.primitives;
    struct settings other = s->settings;

    if (s->settings.sharding != SHARDING_FSDP || s->space->q->hardware->host ||
        !story_begin_number(s, "comm_streams", p->comm_streams))
        return;
    TELL(s, p->comm_streams > 1
                ? "a unit's gradients are reduced while the next unit's backward computes"
                : "no room for a second unit's gradients");
    if (!s->space->open_streams)
        return;
    other.ahead = p->comm_streams > 1 ? AHEAD_GATHERS : AHEAD_BOTH;
    story_price_settings(s, &other, "comm_streams", p->comm_streams > 1 ? "1" : "2");
}

static void tell_gathering(struct story *s)
{
    const struct model *m = s->space->q->model;
    if (m->mla.kv_rank > 0)
        TELL(s, "%d + %d numbers a token travel%s, not the keys and values of %d heads",
             m->mla.kv_rank, m->mla.rope_dim, m->indexer.heads > 0 ? ", and index keys" : "",
             m->gqa.heads);
    else
        TELL(s, "%d of %d heads carry keys and values: gathering them is cheap", m->gqa.kv_heads,
             m->gqa.heads);
}

/* Numbers a token and layer that gathered keys and values have. */
static uint64_t gathered_width(const struct story *s)
{
    const struct model *m = s->space->q->model;
    uint64_t index_key = m->indexer.heads > 0 ? (uint64_t)m->indexer.dim : 0;
    if (m->mla.kv_rank > 0)
        return (uint64_t)m->mla.kv_rank + (uint64_t)m->mla.rope_dim + index_key;
    return 2 * (uint64_t)m->gqa.kv_heads * (uint64_t)m->gqa.head_dim / (uint64_t)s->degrees.tp;
}

/* Over several domains each rank gets from every other domain the part of one of its ranks, through
 * its own adapter: (far - 1) / cp of the whole; what its domain has got so goes around by links. */
static void tell_two_dimensions(struct story *s)
{
    const struct question *q = s->space->q;
    struct spread spread = story_spread(s, s->degrees.cp, s->degrees.tp);
    uint64_t whole =
        2 * gathered_width(s) * q->seq_tokens * (uint64_t)s->chosen->choices.layout.micro_batch;
    char all[32], part[32];

    if (spread.far == 1 || spread.near == 1)
        return;
    size_text(all, sizeof all, whole);
    size_text(part, sizeof part, whole / (uint64_t)s->degrees.cp * (uint64_t)(spread.far - 1));
    SAY(s,
        "; in two dimensions: of %s a layer a rank receives %s over the network, the rest by links",
        all, part);
}

static void tell_context(struct story *s)
{
    const struct primitives *p = &s->chosen->choices.primitives;
    struct settings other = s->settings;

    if (s->degrees.cp == 1)
        return;
    if (s->space->has_softmax && story_begin(s, "context", context_names[p->context]) &&
        p->context == CONTEXT_ALLGATHER_KV) {
        tell_gathering(s);
        tell_two_dimensions(s);
    }
    if (!s->space->has_linear ||
        !story_begin(s, "linear_context", linear_context_names[p->linear_context]))
        return;
    bool split = p->linear_context == LINEAR_CONTEXT_HEAD_SPLIT;
    TELL(s, split ? "each rank runs whole sequences of its share of the heads"
                  : "ranks pass the recurrent state on in sequence order");
    other.linear_context = split ? LINEAR_CONTEXT_STATE_PASS : LINEAR_CONTEXT_HEAD_SPLIT;
    story_price_settings(s, &other, "linear_context", linear_context_names[other.linear_context]);
}

void reasons_of_primitives(struct story *s)
{
    static void (*const tellers[])(struct story *) = {
        tell_recompute, tell_attention, tell_loss,    tell_tiles,
        tell_moe,       tell_prefetch,  tell_streams, tell_context,
    };
    for (size_t i = 0; i < sizeof tellers / sizeof *tellers; i++)
        tellers[i](s);
}
