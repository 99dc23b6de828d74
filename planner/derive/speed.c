/* Stages and tensor parallelism taken for speed, where memory does not ask for them. */
#include "planner/derive/decide.h"

/* A stage or a tensor split must save this share of the step before it is taken for speed. */
#define WORTH_A_DEGREE 0.02
/* Below this share of the step no gather is worth a degree of its own. */
#define GATHER_SHARE_THAT_MATTERS 0.02

static bool gathers_matter(const struct candidate *c)
{
    double gather = c->time.item_seconds[TIME_EXPOSED_GATHER];
    return gather > GATHER_SHARE_THAT_MATTERS * c->time.seconds;
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
        if (!gathers_matter(&decision->chosen) ||
            !settle_other(space, decision, decision->degrees.tp, pp, &other) ||
            !worth_it(&other, decision))
            break;
        *decision = other;
        decision->pp_for_speed = true;
    }
    for (int tp = decision->degrees.tp * 2; space->open_tp && tp <= link_domain(space); tp *= 2) {
        if (!gathers_matter(&decision->chosen) ||
            !settle_other(space, decision, tp, decision->degrees.pp, &other) ||
            !worth_it(&other, decision))
            break;
        *decision = other;
        decision->tp_for_speed = true;
    }
}
