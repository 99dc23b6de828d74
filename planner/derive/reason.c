#include "planner/derive/reason.h"
#include "base/text.h"
#include "base/units.h"

#include <string.h>

/* What one reason is written from; `text` is the `because` of the reason being written. */
struct story {
    struct space *space;
    const struct decision *decision;
    const struct candidate *chosen;
    struct degrees degrees;
    struct settings settings;
    struct answer *answer;
    bool given;  /* by the user or by what the backend runs: nothing was decided */
    bool priced; /* there is another value to compare with */
    char *text;
    size_t used;
};

enum { BECAUSE = sizeof((struct reason *)0)->because };

/* A faster layout that the policy leaves aside is told from this gain on. */
#define WORTH_TELLING 0.02

#define SAY(story, ...) text_append((story)->text, BECAUSE, &(story)->used, __VA_ARGS__)
/* A reason only where there was a decision. */
#define TELL(story, ...) ((story)->given ? (void)0 : SAY(story, __VA_ARGS__))

/* True where nothing but one value is open. */
static bool has_no_other(const struct space *space, const char *key)
{
    const struct {
        const char *key;
        bool closed;
    } rows[] = {
        { "tp", !space->open_tp },
        { "pp", !space->open_pp },
        { "cp", !space->open_cp },
        { "ep", !space->open_ep },
        { "etp", !space->open_etp },
        { "sharding", space->sharding.count == 1 },
        { "recompute", space->recompute.count == 1 },
        { "loss", space->loss.count == 1 },
        { "moe", space->chunks.count == 1 },
        { "prefetch_units", !space->open_prefetch },
        { "comm_streams", !space->open_streams },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].key, key))
            return rows[i].closed;
    return false;
}

static bool begin(struct story *s, const char *key, const char *value)
{
    struct answer *answer = s->answer;
    size_t used = 0;

    if (answer->reason_count == ANSWER_MAX_REASONS)
        return false;
    struct reason *reason = &answer->reasons[answer->reason_count++];
    reason->because[0] = '\0';
    text_append(reason->choice, sizeof reason->choice, &used, "%s=%s", key, value);
    s->text = reason->because;
    s->used = 0;
    bool fixed = choice_is_fixed(&s->space->q->fixed, key);
    bool only = !fixed && has_no_other(s->space, key);
    s->given = fixed || only;
    s->priced = !only;
    if (s->given)
        SAY(s, fixed ? "as set" : "the only value that the host backend runs");
    return true;
}

static bool begin_number(struct story *s, const char *key, int value)
{
    char text[16];
    size_t used = 0;
    text_append(text, sizeof text, &used, "%d", value);
    return begin(s, key, text);
}

/* The price against other degrees; nothing when they are illegal. */
static void price_degrees(struct story *s, const struct degrees *degrees, const char *key,
                          int value)
{
    struct candidate other;
    char name[40];
    size_t used = 0;

    if (!s->priced || !alternative(s->space, degrees, &s->settings, &other))
        return;
    text_append(name, sizeof name, &used, "%s=%d", key, value);
    price_append(s->chosen, &other, name, s->text, BECAUSE, &s->used);
}

/* The price against other settings, which differ in one key. */
static void price_settings(struct story *s, const struct settings *settings, const char *key,
                           const char *value)
{
    struct candidate other;
    char name[64];
    size_t used = 0;

    if (!s->priced || !alternative(s->space, &s->degrees, settings, &other))
        return;
    text_append(name, sizeof name, &used, "%s=%s", key, value);
    price_append(s->chosen, &other, name, s->text, BECAUSE, &s->used);
}

static void tell_host(struct story *s)
{
    if (s->space->q->hardware->host && begin(s, "backend", "host"))
        SAY(s,
            "only what the host backend runs is derived, %d ranks share this machine's memory "
            "equally",
            s->space->q->gpus);
}

/* Seconds of one row's two exchanges over the link, over those of its three expert GEMMs:
 * (2 x 2 H / (link x efficiency)) / (6 H f / (peak x efficiency)). Independent of tokens. */
static double exchange_over_experts(const struct question *q, double bytes_per_second)
{
    const struct hardware *h = q->hardware;
    double bytes = 4.0 * q->model->hidden;
    double flops = 6.0 * q->model->hidden * q->model->moe.width;
    double compute = h->bf16_flops_per_second * h->expert_gemm_efficiency;
    return bytes_per_second > 0 && flops > 0 ? bytes / bytes_per_second / (flops / compute) : 0;
}

/* True where the search chose this, which it then says. */
static bool tell_searched(struct story *s)
{
    double gain = s->decision->searched_gain;
    if (gain > 0)
        TELL(s,
             "of all layouts with this cp the fastest, %.0f %% faster than what the decisions in "
             "order give",
             100 * gain);
    return gain > 0;
}

/* What the policy gives up: without groups every layer's experts cross the network whole. */
static void tell_narrow_ep(struct story *s)
{
    struct degrees degrees = s->degrees;
    struct candidate other;

    degrees.ep = 1;
    if (!alternative(s->space, &degrees, &s->settings, &other))
        return;
    double gain = s->chosen->time.seconds / other.time.seconds - 1;
    if (gain > 0.005)
        TELL(s,
             "; ep=1 would be %.0f %% faster if gathers of whole layers across the network hide as "
             "assumed",
             100 * gain);
}

static void tell_ep(struct story *s)
{
    const struct question *q = s->space->q;
    const struct layout *l = &s->chosen->choices.layout;
    int domain = link_domain(s->space);
    bool inside = l->ep * l->etp <= domain;
    char tokens[32];
    struct degrees other = s->degrees;

    if (!s->space->has_moe || !begin_number(s, "ep", l->ep))
        return;
    if (tell_searched(s))
        TELL(s, "; ");
    else if (s->decision->wide_ep && s->space->open_ep)
        TELL(s, "nothing with an expert group inside the domain of %d fits; ", domain);
    else if (s->chosen->verdict == VERDICT_DOES_NOT_FIT)
        TELL(s, "the smallest peak of all; ");
    else if (s->decision->ep_for_speed && l->ep == s->decision->fastest_ep)
        TELL(s, "the fastest inside the domain of %d ranks, by more than 3 %%; ", domain);
    else if (s->decision->ep_for_speed)
        TELL(s, "the widest group within 3 %% of the fastest, ep=%d, which is %.1f %% faster; ",
             s->decision->fastest_ep, 100 * s->decision->ep_behind_fastest);
    else if (l->ep == domain)
        TELL(s, "one expert group per NVLink domain: the all-to-all never leaves it; ");
    else
        TELL(s, "the fastest inside the domain of %d ranks; ", domain);
    TELL(s, "%d of %d experts a rank", q->model->moe.experts / l->ep, q->model->moe.experts);
    double rate = inside ? q->hardware->link_bytes_per_second * q->hardware->exchange_efficiency
                         : q->hardware->network_bytes_per_second * q->hardware->network_efficiency;
    if (rate > 0 && s->space->q->gpus > 1)
        TELL(s, "; exchanging a row %s %.2f times its expert GEMMs",
             l->ep > 1 ? "takes" : "would take", exchange_over_experts(q, rate));
    if (l->ep > 1 && s->space->open_ep && gathers_cross_network(s->space) &&
        !s->decision->ep_for_speed)
        tell_narrow_ep(s);
    if (l->ep == 1 && l->e_fsdp > 1 && s->settings.sharding == SHARDING_FSDP)
        TELL(s, ", gathering experts hides from %s local tokens on",
             units_format_count(tokens, sizeof tokens, s->chosen->time.min_tokens_to_hide_gather));
    other.ep = l->ep > 1 ? l->ep / 2 : 2;
    price_degrees(s, &other, "ep", other.ep);
}

/* How much the leanest settings miss the limit by, with a smaller cp. */
static void tell_smaller_cp(struct story *s, int cp)
{
    struct settings lean = space_leanest(s->space);
    struct degrees degrees = s->degrees;
    struct candidate other;
    char text[32];

    degrees.cp = cp;
    if (!alternative(s->space, &degrees, &lean, &other) || other.verdict == VERDICT_FITS)
        return;
    TELL(s, "; cp %d would need %s more than there is", cp,
         size_text(text, sizeof text, other.worst.peak_upper_bytes - s->space->limit_bytes));
}

/* What keeping to the policy costs, so that the user can leave it. */
static void tell_faster_cp(struct story *s)
{
    const struct answer *answer = s->answer;
    double now = s->chosen->time.seconds;

    for (int i = 0; i < answer->candidate_count; i++) {
        const struct candidate *c = &answer->candidates[i];
        if (c->verdict != VERDICT_FITS || c->time.seconds > now * (1 - WORTH_TELLING))
            return;
        if (c->choices.layout.cp == s->degrees.cp)
            continue;
        TELL(s, "; cp=%d fits too and is %.0f %% faster, outside the policy", c->choices.layout.cp,
             100 * (now / c->time.seconds - 1));
        return;
    }
}

static void tell_cp(struct story *s)
{
    const struct question *q = s->space->q;
    int cp = s->degrees.cp;
    char tokens[32], memory[32];
    struct degrees other = s->degrees;

    if (!begin_number(s, "cp", cp))
        return;
    uint64_t local = q->seq_tokens / (uint64_t)cp;
    units_format_count(tokens, sizeof tokens, local);
    size_text(memory, sizeof memory, q->hardware->memory_bytes);
    bool small = q->hardware->memory_bytes < SMALL_MEMORY_BYTES && !q->hardware->host;
    bool fits = s->chosen->verdict != VERDICT_DOES_NOT_FIT;
    if (!fits)
        TELL(s, "%s local tokens, the smallest peak of all", tokens);
    else if (!small)
        TELL(s, "%s of device memory: the smallest cp that fits, %s local tokens", memory, tokens);
    else if (s->decision->cp_for_speed)
        TELL(s,
             "%s local tokens: their room saves recompute, which is worth more than the exchange "
             "of keys and values costs",
             tokens);
    else if (cp == s->decision->policy_cp && cp > 1)
        TELL(s, "%s local tokens, inside the 16K-32K window for less than 180 GB", tokens);
    else if (local > MOST_LOCAL_SEQUENCE)
        TELL(s, "%s local tokens, above the 16K-32K window: no larger cp is legal or fits", tokens);
    else if (cp > 1)
        TELL(s, "%s local tokens, at most the 16K-32K window", tokens);
    else
        TELL(s, "%s tokens are at most one rank's share of 32K", tokens);
    if (cp > 1 && !s->given)
        tell_smaller_cp(s, cp / 2);
    if (s->chosen->verdict == VERDICT_FITS)
        tell_faster_cp(s);
    other.cp = cp > 1 ? cp / 2 : 2;
    price_degrees(s, &other, "cp", other.cp);
}

static void tell_sharding(struct story *s)
{
    const struct layout *l = &s->chosen->choices.layout;
    const struct step_time *time = &s->chosen->time;
    struct settings other = s->settings;
    char held[32], tokens[32], here[32];

    if (!begin(s, "sharding", sharding_names[s->settings.sharding]))
        return;
    size_text(held, sizeof held, s->chosen->worst.category_bytes[CATEGORY_STATIC]);
    if (s->settings.sharding == SHARDING_REPLICATED)
        TELL(s, "the whole state is %s a rank, nothing is gathered", held);
    else if (layout_dense_shards(l) == 1 && layout_expert_shards(l) == 1)
        TELL(s, "no rank to share the state with: %s", held);
    else
        TELL(s, "%s over %d ranks, experts' over %d: %s a rank",
             s->settings.sharding == SHARDING_FSDP ? "all state" : "master weights and moments",
             layout_dense_shards(l), layout_expert_shards(l) * l->ep, held);
    if (s->settings.sharding == SHARDING_FSDP && layout_dense_shards(l) > 1)
        TELL(
            s, "; a gather hides from %s local tokens on, there are %s",
            units_format_count(tokens, sizeof tokens, time->min_tokens_to_hide_gather),
            units_format_count(here, sizeof here, layout_local_tokens(l, s->space->q->seq_tokens)));
    other.sharding = s->settings.sharding == SHARDING_FSDP ? SHARDING_ZERO1 : SHARDING_FSDP;
    price_settings(s, &other, "sharding", sharding_names[other.sharding]);
}

static void tell_width(struct story *s, const char *key, int width, int copies, int whole)
{
    struct degrees other = s->degrees;

    if (copies == 1 || !begin_number(s, key, width))
        return;
    TELL(s, "%d copies of the state: gathers stay among %d ranks", copies, width);
    if (key[0] == 'e')
        other.e_fsdp = whole;
    else
        other.fsdp = whole;
    price_degrees(s, &other, key, whole);
}

static void tell_widths(struct story *s)
{
    const struct layout *l = &s->chosen->choices.layout;

    if (s->settings.sharding == SHARDING_REPLICATED)
        return;
    tell_width(s, "fsdp", l->fsdp, l->d_rep, layout_dp(l));
    if (s->space->has_moe)
        tell_width(s, "e_fsdp", l->e_fsdp, l->e_rep, layout_e_dp(l));
}

static void tell_pp(struct story *s)
{
    const struct step_time *time = &s->chosen->time;
    struct degrees other = s->degrees;
    double step = time->seconds > 0 ? time->seconds : 1;

    if (!begin_number(s, "pp", s->degrees.pp))
        return;
    if (s->chosen->verdict == VERDICT_DOES_NOT_FIT)
        TELL(s, "the smallest peak of all");
    else if (s->degrees.pp > 1 && tell_searched(s))
        TELL(s, "; bubble %.1f %%", 100 * time->bubble_fraction);
    else if (s->decision->pp_for_speed)
        TELL(s, "gathers did not hide with fewer stages; bubble %.1f %%, exposed gathers %.1f %%",
             100 * time->bubble_fraction, 100 * time->item_seconds[TIME_EXPOSED_GATHER] / step);
    else if (s->degrees.pp > 1)
        TELL(s, "with fewer stages the state does not fit; bubble %.1f %%",
             100 * time->bubble_fraction);
    else
        TELL(s, "the state fits without stages; exposed gathers take %.1f %%",
             100 * time->item_seconds[TIME_EXPOSED_GATHER] / step);
    other.pp = s->degrees.pp > 1 ? s->degrees.pp / 2 : 2;
    price_degrees(s, &other, "pp", other.pp);
}

static void tell_tp(struct story *s)
{
    struct degrees other = s->degrees;

    if (!begin_number(s, "tp", s->degrees.tp))
        return;
    if (s->chosen->verdict == VERDICT_DOES_NOT_FIT)
        TELL(s, "the smallest peak of all");
    else if (s->degrees.tp > 1 && tell_searched(s))
        TELL(s, ", collectives included");
    else if (s->decision->tp_saves_recompute)
        TELL(s, "its room saves recompute, which is worth more than its collectives cost");
    else if (s->decision->tp_for_speed)
        TELL(s, "gathers hide no other way, and splitting tensors takes less than they do");
    else if (s->degrees.tp > 1)
        TELL(s, "nothing fits with fewer parts of a tensor");
    else
        TELL(s, "nothing left that only tp can solve");
    other.tp = s->degrees.tp > 1 ? s->degrees.tp / 2 : 2;
    price_degrees(s, &other, "tp", other.tp);
}

static void tell_etp(struct story *s)
{
    struct degrees other = s->degrees;

    if (!s->space->has_moe || !begin_number(s, "etp", s->degrees.etp))
        return;
    if (s->degrees.etp > 1 && tell_searched(s))
        TELL(s, ", narrower GEMMs included");
    else if (s->degrees.etp > 1)
        TELL(s, s->chosen->verdict == VERDICT_DOES_NOT_FIT ? "the smallest peak of all"
                                                           : "nothing fits with whole experts");
    else
        TELL(s, "split experts mean narrower GEMMs and 2-fold traffic; no skew asks for it");
    other.etp = s->degrees.etp > 1 ? s->degrees.etp / 2 : 2;
    price_degrees(s, &other, "etp", other.etp);
}

static void tell_recompute(struct story *s)
{
    struct settings other = s->settings;

    if (!begin(s, "recompute", recompute_names[s->settings.recompute]))
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
    price_settings(s, &other, "recompute", recompute_names[other.recompute]);
}

static void tell_loss(struct story *s)
{
    const struct question *q = s->space->q;
    const struct layout *l = &s->chosen->choices.layout;
    struct settings other = s->settings;
    char logits[32];
    uint64_t tokens = layout_local_tokens(l, q->seq_tokens);

    if (!begin(s, "loss", loss_names[s->settings.loss]))
        return;
    size_text(logits, sizeof logits,
              tokens * (uint64_t)q->model->vocab * dtype_bytes(s->space->base.logits_dtype) /
                  (uint64_t)l->tp);
    TELL(s,
         s->settings.loss == LOSS_FULL ? "whole logits of %s have room"
                                       : "streamed by tiles, whole logits would be %s",
         logits);
    other.loss = s->settings.loss == LOSS_FULL ? LOSS_LINEAR_CE : LOSS_FULL;
    price_settings(s, &other, "loss", loss_names[other.loss]);
}

static void tell_tiles(struct story *s)
{
    const struct primitives *p = &s->chosen->choices.primitives;

    if (!s->space->open_tile || p->loss == LOSS_RING_DTP ||
        !begin_number(s, "loss_tile_tokens", p->loss_tile_tokens))
        return;
    TELL(s, p->loss_tile_tokens > LOSS_TILE_TOKENS
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
    if (!begin(s, "moe", moe_names[s->chosen->choices.primitives.moe]))
        return;
    if (chunks > 1 && s->degrees.ep > 1)
        TELL(s, "%d chunks of the tokens: one is exchanged while another is computed", chunks);
    else if (chunks > 1)
        TELL(s, "%d chunks of the tokens: expert tensors of one chunk are alive at a time", chunks);
    else
        TELL(s, "every token at once");
    other.chunks = chunks > 1 ? 1 : 2;
    price_settings(s, &other, "moe_chunks", chunks > 1 ? "1" : "2");
}

static void tell_prefetch(struct story *s)
{
    const struct primitives *p = &s->chosen->choices.primitives;
    struct settings other = s->settings;

    if (s->settings.sharding != SHARDING_FSDP ||
        !begin_number(s, "prefetch_units", p->prefetch_units))
        return;
    TELL(s, p->prefetch_units > 0 ? "the next unit is gathered while this one computes"
                                  : "no room for a second unit's weights");
    if (!s->space->open_prefetch)
        return;
    other.ahead = p->prefetch_units > 0 ? AHEAD_NOTHING : AHEAD_GATHERS;
    price_settings(s, &other, "prefetch_units", p->prefetch_units > 0 ? "0" : "1");
}

static void tell_streams(struct story *s)
{
    const struct primitives *p = &s->chosen->choices.primitives;
    struct settings other = s->settings;

    if (s->settings.sharding != SHARDING_FSDP || s->space->q->hardware->host ||
        !begin_number(s, "comm_streams", p->comm_streams))
        return;
    TELL(s, p->comm_streams > 1
                ? "a unit's gradients are reduced while the next unit's backward computes"
                : "no room for a second unit's gradients");
    if (!s->space->open_streams)
        return;
    other.ahead = p->comm_streams > 1 ? AHEAD_GATHERS : AHEAD_BOTH;
    price_settings(s, &other, "comm_streams", p->comm_streams > 1 ? "1" : "2");
}

static void tell_gathering(struct story *s)
{
    const struct model *m = s->space->q->model;
    if (m->mla.kv_rank > 0)
        TELL(s, "%d + %d numbers a token travel, not the keys and values of %d heads",
             m->mla.kv_rank, m->mla.rope_dim, m->gqa.heads);
    else
        TELL(s, "%d of %d heads carry keys and values: gathering them is cheap", m->gqa.kv_heads,
             m->gqa.heads);
}

static void tell_context(struct story *s)
{
    const struct primitives *p = &s->chosen->choices.primitives;
    struct settings other = s->settings;

    if (s->degrees.cp == 1)
        return;
    if (s->space->has_softmax && begin(s, "context", context_names[p->context]) &&
        p->context == CONTEXT_ALLGATHER_KV)
        tell_gathering(s);
    if (!s->space->has_linear ||
        !begin(s, "linear_context", linear_context_names[p->linear_context]))
        return;
    bool split = p->linear_context == LINEAR_CONTEXT_HEAD_SPLIT;
    TELL(s, split ? "each rank runs whole sequences of its share of the heads"
                  : "ranks pass the recurrent state on in sequence order");
    other.linear_context = split ? LINEAR_CONTEXT_STATE_PASS : LINEAR_CONTEXT_HEAD_SPLIT;
    price_settings(s, &other, "linear_context", linear_context_names[other.linear_context]);
}

void reasons_write(struct space *space, const struct decision *decision, struct answer *ret)
{
    static void (*const tellers[])(struct story *) = {
        tell_host,  tell_ep,  tell_cp,       tell_sharding,  tell_widths,
        tell_pp,    tell_tp,  tell_etp,      tell_recompute, tell_loss,
        tell_tiles, tell_moe, tell_prefetch, tell_streams,   tell_context,
    };
    struct story story = {
        .space = space,
        .decision = decision,
        .chosen = &decision->chosen,
        .degrees = decision->degrees,
        .settings = settings_of(&decision->chosen.choices),
        .answer = ret,
    };

    ret->reason_count = 0;
    for (size_t i = 0; i < sizeof tellers / sizeof *tellers; i++)
        tellers[i](&story);
}
