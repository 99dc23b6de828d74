#include "planner/derive/story.h"

static void tell_host(struct story *s)
{
    if (s->space->q->hardware->host && story_begin(s, "backend", "host"))
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

static int degree_of(const struct layout *layout, size_t offset)
{
    return *(const int *)(const void *)((const char *)layout + offset);
}

/* What keeping to the policy costs, so that the user can leave it. */
static void tell_faster(struct story *s, const char *key, size_t offset)
{
    const struct answer *answer = s->answer;
    double now = s->chosen->time.seconds;
    int own = degree_of(&s->chosen->choices.layout, offset);

    for (int i = 0; i < answer->candidate_count; i++) {
        const struct candidate *c = &answer->candidates[i];
        if (c->verdict != VERDICT_FITS || c->time.seconds > now * (1 - WORTH_TELLING))
            return;
        int other = degree_of(&c->choices.layout, offset);
        if (other == own)
            continue;
        TELL(s, "; %s=%d fits too and is %.0f %% faster, outside the policy", key, other,
             100 * (now / c->time.seconds - 1));
        return;
    }
}

/* Where ranks span domains: as wide as one of them lets the group be. */
static void tell_wide_ep(struct story *s, int domain)
{
    const struct layout *l = &s->chosen->choices.layout;
    int ranks = l->ep * l->etp;

    if (s->given)
        return;
    if (ranks == domain)
        SAY(s, "one expert group per domain of %d linked GPUs", domain);
    else
        SAY(s, "the widest group inside a domain of %d linked GPUs%s", domain,
            widest_ep(s->space, &s->degrees) == l->ep ? "" : " that fits");
    story_tell_used(s, ranks);
    SAY(s, ": the all-to-all never leaves it; ");
}

static void tell_ep(struct story *s)
{
    const struct question *q = s->space->q;
    const struct layout *l = &s->chosen->choices.layout;
    int domain = link_domain(s->space);
    bool inside = l->ep * l->etp <= domain;
    char tokens[32];
    struct degrees other = s->degrees;

    if (!s->space->has_moe || !story_begin_number(s, "ep", l->ep))
        return;
    if (s->decision->wide_ep && s->space->open_ep)
        TELL(s, "nothing with an expert group inside the domain of %d fits; ", domain);
    else if (s->chosen->verdict == VERDICT_DOES_NOT_FIT)
        TELL(s, "the smallest peak of all; ");
    else if (s->decision->ep_for_speed && gathers_cross_network(s->space))
        TELL(s, "a group as wide as the domain allows, ep=%d, would take %.0f %% more; ",
             s->decision->wider_ep, 100 * s->decision->wider_ep_behind);
    else if (s->decision->ep_for_speed && l->ep == s->decision->fastest_ep)
        TELL(s, "the fastest inside the domain of %d ranks, by more than 3 %%; ", domain);
    else if (s->decision->ep_for_speed)
        TELL(s, "the widest group within 3 %% of the fastest, ep=%d, which is %.1f %% faster; ",
             s->decision->fastest_ep, 100 * s->decision->ep_behind_fastest);
    else if (gathers_cross_network(s->space))
        tell_wide_ep(s, domain);
    else
        TELL(s, "the fastest inside the domain of %d ranks; ", domain);
    SAY(s, "%s%d of %d experts a rank", s->given ? "; " : "", q->model->moe.experts / l->ep,
        q->model->moe.experts);
    if (s->given && l->ep > 1) {
        story_tell_spread(s, l->ep, l->etp);
        if (inside && gathers_cross_network(s->space))
            story_tell_used(s, l->ep * l->etp);
    }
    double rate = inside ? q->hardware->link_bytes_per_second * q->hardware->exchange_efficiency
                         : q->hardware->network_bytes_per_second * q->hardware->network_efficiency;
    if (rate > 0 && s->space->q->gpus > 1)
        TELL(s, "; exchanging a row %s %.2f times its expert GEMMs",
             l->ep > 1 ? "takes" : "would take", exchange_over_experts(q, rate));
    if (s->chosen->verdict == VERDICT_FITS && gathers_cross_network(s->space))
        tell_faster(s, "ep", offsetof(struct layout, ep));
    if (l->ep == 1 && l->e_fsdp > 1 && s->settings.sharding == SHARDING_FSDP)
        TELL(s, ", gathering experts hides from %s local tokens on",
             units_format_count(tokens, sizeof tokens, s->chosen->time.min_tokens_to_hide_gather));
    other.ep = l->ep > 1 ? l->ep / 2 : 2;
    story_price_degrees(s, &other, "ep", other.ep);
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

/* Why this share of a sequence. */
static void tell_share(struct story *s, const char *tokens, uint64_t local)
{
    const struct hardware *h = s->space->q->hardware;
    int cp = s->degrees.cp;
    char memory[32];

    size_text(memory, sizeof memory, h->memory_bytes);
    if (s->chosen->verdict == VERDICT_DOES_NOT_FIT)
        TELL(s, "%s local tokens, the smallest peak of all", tokens);
    else if (h->host || h->memory_bytes >= SMALL_MEMORY_BYTES)
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
    if (s->given)
        SAY(s, "; %s local tokens", tokens);
}

static void tell_cp(struct story *s)
{
    int cp = s->degrees.cp;
    uint64_t local = s->space->q->seq_tokens / (uint64_t)cp;
    struct degrees other = s->degrees;
    char tokens[32];

    if (!story_begin_number(s, "cp", cp))
        return;
    tell_share(s, units_format_count(tokens, sizeof tokens, local), local);
    story_tell_spread(s, cp, s->degrees.tp);
    if (cp > 1 && !s->given)
        tell_smaller_cp(s, cp / 2);
    if (s->chosen->verdict == VERDICT_FITS)
        tell_faster(s, "cp", offsetof(struct layout, cp));
    other.cp = cp > 1 ? cp / 2 : 2;
    story_price_degrees(s, &other, "cp", other.cp);
}

/* A gather takes the same time for any micro-batch: where it does not hide, a larger one, which is
 * the user's, hides more of it. */
static void tell_larger_batch(struct story *s)
{
    const int size = s->chosen->choices.layout.micro_batch;
    double now = s->chosen->time.seconds, best = now * (1 - WORTH_TELLING);
    struct space wider = *s->space;
    struct degrees degrees = s->degrees;
    struct candidate other;
    int found = 0;

    if (!gathers_matter(s->chosen) || choice_is_fixed(&s->space->q->fixed, "micro_batch"))
        return;
    wider.open_micro_batch = true;
    for (degrees.micro_batch = 2 * size; degrees.micro_batch <= 4 * size; degrees.micro_batch *= 2)
        if (alternative(&wider, &degrees, &s->settings, &other) && other.verdict == VERDICT_FITS &&
            other.time.seconds < best) {
            best = other.time.seconds;
            found = degrees.micro_batch;
        }
    if (found > 0)
        SAY(s, "; micro_batch=%d would hide more of them, %.0f %% faster", found,
            100 * (now / best - 1));
}

/* Where one expert's state lies: what a layer gathers of it comes over the network. */
static void tell_expert_shards(struct story *s)
{
    const struct layout *l = &s->chosen->choices.layout;
    int shards = layout_expert_shards(l);
    struct spread spread = story_spread(s, shards, l->etp * l->ep);

    if (s->space->has_moe && s->settings.sharding != SHARDING_REPLICATED && spread.far > 1)
        SAY(s, "; an expert's %d shards lie in %d domains", shards, spread.far);
}

static void tell_sharding(struct story *s)
{
    const struct layout *l = &s->chosen->choices.layout;
    const struct step_time *time = &s->chosen->time;
    struct settings other = s->settings;
    char held[32], tokens[32], here[32];

    if (!story_begin(s, "sharding", sharding_names[s->settings.sharding]))
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
        SAY(s, "; a gather hides from %s local tokens on, there are %s",
            units_format_count(tokens, sizeof tokens, time->min_tokens_to_hide_gather),
            units_format_count(here, sizeof here, layout_local_tokens(l, s->space->q->seq_tokens)));
    if (s->settings.sharding == SHARDING_FSDP)
        tell_larger_batch(s);
    tell_expert_shards(s);
    other.sharding = s->settings.sharding == SHARDING_FSDP ? SHARDING_ZERO1 : SHARDING_FSDP;
    story_price_settings(s, &other, "sharding", sharding_names[other.sharding]);
}

static void tell_width(struct story *s, const char *key, int width, int copies, int whole)
{
    struct degrees other = s->degrees;

    if (copies == 1 || !story_begin_number(s, key, width))
        return;
    const struct layout *l = &s->chosen->choices.layout;
    bool experts = key[0] == 'e';
    int ranks = experts ? width : layout_dense_shards(l);
    SAY(s, "%s%d copies of the %s state, each shared by %d ranks", s->given ? "; " : "", copies,
        experts ? "expert" : "dense", ranks);
    story_tell_spread(s, ranks, experts ? l->etp * l->ep : l->tp);
    if (experts)
        other.e_fsdp = whole;
    else
        other.fsdp = whole;
    story_price_degrees(s, &other, key, whole);
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

    if (!story_begin_number(s, "pp", s->degrees.pp))
        return;
    if (s->chosen->verdict == VERDICT_DOES_NOT_FIT)
        TELL(s, "the smallest peak of all");
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
    story_price_degrees(s, &other, "pp", other.pp);
}

static void tell_tp(struct story *s)
{
    struct degrees other = s->degrees;

    if (!story_begin_number(s, "tp", s->degrees.tp))
        return;
    if (s->chosen->verdict == VERDICT_DOES_NOT_FIT)
        TELL(s, "the smallest peak of all");
    else if (s->decision->tp_saves_recompute)
        TELL(s, "its room saves recompute, which is worth more than its collectives cost");
    else if (s->decision->tp_for_speed)
        TELL(s, "gathers hide no other way, and splitting tensors takes less than they do");
    else if (s->degrees.tp > 1)
        TELL(s, "nothing fits with fewer parts of a tensor");
    else
        TELL(s, "nothing left that only tp can solve");
    if (s->degrees.tp == 1 && s->chosen->verdict == VERDICT_FITS)
        tell_faster(s, "tp", offsetof(struct layout, tp));
    other.tp = s->degrees.tp > 1 ? s->degrees.tp / 2 : 2;
    story_price_degrees(s, &other, "tp", other.tp);
}

static void tell_etp(struct story *s)
{
    struct degrees other = s->degrees;

    if (!s->space->has_moe || !story_begin_number(s, "etp", s->degrees.etp))
        return;
    if (s->degrees.etp > 1)
        TELL(s, s->chosen->verdict == VERDICT_DOES_NOT_FIT ? "the smallest peak of all"
                                                           : "nothing fits with whole experts");
    else
        TELL(s, "split experts mean narrower GEMMs and 2-fold traffic; %s",
             s->space->q->routing.kind == ROUTING_BALANCED
                 ? "no skew asks for it"
                 : "a smaller ep evens out skewed rows without that");
    other.etp = s->degrees.etp > 1 ? s->degrees.etp / 2 : 2;
    story_price_degrees(s, &other, "etp", other.etp);
}

void reasons_of_degrees(struct story *s)
{
    static void (*const tellers[])(struct story *) = {
        tell_host, tell_ep, tell_cp, tell_sharding, tell_widths, tell_pp, tell_tp, tell_etp,
    };
    for (size_t i = 0; i < sizeof tellers / sizeof *tellers; i++)
        tellers[i](s);
}
