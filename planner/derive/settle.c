/* The cheapest settings at given degrees: shard modes and widths, loss, recompute, chunking. */
#include "planner/derive/decide.h"

/* A stage or a tensor split must save this share of the step before it is taken for speed. */
#define WORTH_A_DEGREE 0.02
/* Below this share of the step no gather is worth a degree of its own. */
#define GATHER_SHARE_THAT_MATTERS 0.02

/* The widest shard group of `width` ranks, `inner` ranks apart, that stays inside the domain. */
static int width_in_domain(const struct space *space, int width, int inner)
{
    int most = link_domain(space) / inner;
    for (int w = most < width ? most : width; w > 1; w--)
        if (width % w == 0)
            return w;
    return 1;
}

struct widths {
    int dense[2], expert[2];
    int dense_count, expert_count;
};

/* The full width first, then the one inside the domain where that is another. */
static struct widths shard_widths(const struct space *space, const struct layout *l)
{
    struct widths w = { .dense = { 0 }, .expert = { 0 }, .dense_count = 1, .expert_count = 1 };
    int dense = width_in_domain(space, layout_dp(l), l->tp * l->cp);
    int expert = width_in_domain(space, layout_e_dp(l), l->etp * l->ep);

    if (!space->open_fsdp)
        w.dense[0] = space->fixed.fsdp;
    else if (dense != layout_dp(l))
        w.dense[w.dense_count++] = dense;
    if (!space->open_e_fsdp)
        w.expert[0] = space->fixed.e_fsdp;
    else if (expert != layout_e_dp(l) && space->has_moe)
        w.expert[w.expert_count++] = expert;
    return w;
}

static bool faster_than_chosen(struct space *space, const struct degrees *degrees,
                               const struct settings *settings, struct decision *d,
                               struct candidate *ret)
{
    space_complete(space, degrees, settings, &ret->choices);
    if (!space_legal(space, &ret->choices))
        return false;
    space_time(space, ret);
    return d->chosen.verdict != VERDICT_FITS || ret->time.seconds < d->chosen.time.seconds;
}

static void take_if_better(struct space *space, const struct degrees *degrees,
                           const struct settings *settings, struct decision *d)
{
    struct candidate candidate;

    if (!faster_than_chosen(space, degrees, settings, d, &candidate))
        return;
    space_judge(space, &candidate);
    if (candidate_better(&candidate, &d->chosen)) {
        d->chosen = candidate;
        d->degrees = *degrees;
    }
}

/* Loss and chunking under one recompute; skipped when not even the leanest of them fits. */
static void settle_rest(struct space *space, const struct degrees *degrees,
                        struct settings settings, struct decision *d)
{
    const struct knob *loss = &space->loss, *chunks = &space->chunks;
    struct settings lean = settings;
    struct candidate candidate;

    lean.loss = (enum loss)loss->values[loss->count - 1];
    lean.chunks = chunks->values[chunks->count - 1];
    bool legal = space_try(space, degrees, &lean, &candidate);
    if (legal && candidate.verdict == VERDICT_DOES_NOT_FIT) {
        if (d->chosen.verdict != VERDICT_DOES_NOT_FIT)
            return;
        space_time(space, &candidate);
        if (candidate_better(&candidate, &d->chosen)) {
            d->chosen = candidate;
            d->degrees = *degrees;
        }
        return;
    }
    for (int l = 0; l < loss->count; l++) {
        settings.loss = (enum loss)loss->values[l];
        for (int c = 0; c < chunks->count; c++) {
            settings.chunks = chunks->values[c];
            take_if_better(space, degrees, &settings, d);
        }
    }
}

static void settle_recompute(struct space *space, const struct degrees *degrees,
                             struct settings settings, struct decision *d)
{
    struct knob linear = space_linear_contexts(space, degrees->cp);
    int depths = settings.sharding == SHARDING_FSDP ? space->prefetch.count : 1;

    for (int x = 0; x < linear.count; x++) {
        settings.linear_context = (enum linear_context)linear.values[x];
        for (int p = 0; p < depths; p++) {
            if (p > 0 && d->chosen.verdict == VERDICT_FITS)
                break;
            settings.prefetch = space->prefetch.values[p];
            for (int r = 0; r < space->recompute.count; r++) {
                settings.recompute = (enum recompute)space->recompute.values[r];
                settle_rest(space, degrees, settings, d);
            }
        }
    }
}

void decide_sharding(struct space *space, enum sharding sharding, struct decision *d)
{
    struct widths w = shard_widths(space, &d->chosen.choices.layout);
    struct degrees degrees = d->degrees;
    struct settings settings = { .sharding = sharding };
    bool sharded = sharding != SHARDING_REPLICATED;

    for (int i = 0; i < (sharded ? w.dense_count : 1); i++) {
        degrees.fsdp = w.dense[i];
        for (int j = 0; j < (sharded ? w.expert_count : 1); j++) {
            degrees.e_fsdp = w.expert[j];
            settle_recompute(space, &degrees, settings, d);
        }
    }
}

void decide_settings(struct space *space, struct decision *decision)
{
    for (int s = space->sharding.count - 1; s >= 0; s--)
        decide_sharding(space, (enum sharding)space->sharding.values[s], decision);
}

static double gather_share(const struct candidate *c)
{
    double gather = c->time.item_seconds[TIME_EXPOSED_GATHER];
    return c->time.seconds > 0 ? gather / c->time.seconds : 0;
}

/* The same decision with one other degree, settled anew; false when that is illegal. */
static bool settle_other(struct space *space, const struct decision *from, int tp, int pp,
                         struct decision *ret)
{
    struct settings lean = space_leanest(space);

    *ret = *from;
    ret->degrees.tp = tp;
    ret->degrees.pp = pp;
    ret->degrees.fsdp = space->open_fsdp ? 0 : space->fixed.fsdp;
    ret->degrees.e_fsdp = space->open_e_fsdp ? 0 : space->fixed.e_fsdp;
    lean.linear_context =
        (enum linear_context)space_linear_contexts(space, ret->degrees.cp).values[0];
    if (!space_try(space, &ret->degrees, &lean, &ret->chosen))
        return false;
    space_time(space, &ret->chosen);
    decide_settings(space, ret);
    return true;
}

static bool worth_it(const struct decision *other, const struct decision *now)
{
    return other->chosen.verdict == now->chosen.verdict &&
           other->chosen.time.seconds < now->chosen.time.seconds * (1 - WORTH_A_DEGREE);
}

void decide_speed(struct space *space, struct decision *decision)
{
    struct decision other;

    if (decision->chosen.verdict != VERDICT_FITS)
        return;
    for (int pp = decision->degrees.pp * 2; space->open_pp && pp <= 8; pp *= 2) {
        if (gather_share(&decision->chosen) < GATHER_SHARE_THAT_MATTERS)
            return;
        if (!settle_other(space, decision, decision->degrees.tp, pp, &other) ||
            !worth_it(&other, decision))
            break;
        *decision = other;
        decision->pp_for_speed = true;
    }
    for (int tp = decision->degrees.tp * 2; space->open_tp && tp <= link_domain(space); tp *= 2) {
        if (gather_share(&decision->chosen) < GATHER_SHARE_THAT_MATTERS)
            return;
        if (!settle_other(space, decision, tp, decision->degrees.pp, &other) ||
            !worth_it(&other, decision))
            break;
        *decision = other;
        decision->tp_for_speed = true;
    }
}
