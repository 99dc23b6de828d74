/* Degrees taken for speed, where memory does not ask for them: a larger cp or a tensor split that
 * makes room for what would be computed twice, another ep, stages or a tensor split where gathers
 * do not hide. */
#include "planner/derive/decide.h"

/* A degree must save this share of the step before it is taken for speed. */
#define WORTH_A_DEGREE 0.02
/* Below this share of the step no gather is worth a degree of its own. */
#define GATHER_SHARE_THAT_MATTERS 0.02

static bool gathers_matter(const struct candidate *c)
{
    double gather = c->time.item_seconds[TIME_EXPOSED_GATHER];
    return gather > GATHER_SHARE_THAT_MATTERS * c->time.seconds;
}

/* The same decision with one other degree, settled anew; false when that is illegal. */
static bool settle_other(struct space *space, const struct decision *from,
                         const struct degrees *degrees, struct decision *ret)
{
    struct settings lean = space_leanest(space);

    *ret = *from;
    ret->degrees = *degrees;
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

static bool faster(const struct decision *other, const struct decision *now)
{
    return other->chosen.verdict == now->chosen.verdict &&
           other->chosen.time.seconds < now->chosen.time.seconds * (1 - WORTH_A_DEGREE);
}

/* Whether anything fits at these degrees that computes nothing twice. */
static bool keeping_fits(struct space *space, struct degrees degrees)
{
    struct settings lean = space_leanest(space);
    struct candidate candidate;

    degrees.fsdp = space->open_fsdp ? 0 : space->fixed.fsdp;
    degrees.e_fsdp = space->open_e_fsdp ? 0 : space->fixed.e_fsdp;
    lean.recompute = (enum recompute)space->recompute.values[0];
    lean.linear_context = (enum linear_context)space_linear_contexts(space, degrees.cp).values[0];
    return space_try(space, &degrees, &lean, &candidate) && candidate.verdict == VERDICT_FITS;
}

/* Inside the window of the small-memory policy only: where memory is large cp is the smallest that
 * fits. */
static void raise_cp(struct space *space, struct decision *decision)
{
    const struct question *q = space->q;
    struct degrees degrees = decision->degrees;
    struct decision other;

    degrees.cp *= 2;
    if (!space->open_cp || q->hardware->memory_bytes >= SMALL_MEMORY_BYTES ||
        q->seq_tokens / (uint64_t)degrees.cp < LEAST_LOCAL_SEQUENCE ||
        decision->chosen.choices.primitives.recompute != RECOMPUTE_FULL)
        return;
    if (!keeping_fits(space, degrees) || !settle_other(space, decision, &degrees, &other) ||
        !faster(&other, decision))
        return;
    *decision = other;
    decision->cp_for_speed = true;
}

/* Whether other degrees could be faster if their gathers and reductions cost nothing: what sharding
 * can do at most. */
static bool promising(struct space *space, const struct decision *decision,
                      const struct degrees *degrees)
{
    struct settings settings = settings_of(&decision->chosen.choices);
    double most = decision->chosen.time.seconds * (1 - WORTH_A_DEGREE);

    for (int i = 0; i < 2; i++) {
        struct candidate c;
        settings.chunks = space->chunks.values[i == 0 ? 0 : space->chunks.count - 1];
        space_complete(space, degrees, &settings, &c.choices);
        if (!space_legal(space, &c.choices))
            continue;
        space_time(space, &c);
        if (c.time.seconds - c.time.item_seconds[TIME_EXPOSED_GATHER] -
                c.time.item_seconds[TIME_REDUCE] <
            most)
            return true;
    }
    return false;
}

static bool saves_recompute(struct space *space, const struct decision *decision,
                            const struct degrees *degrees)
{
    return decision->chosen.choices.primitives.recompute == RECOMPUTE_FULL &&
           keeping_fits(space, *degrees);
}

/* Another ep of the domain: what the plain reference step saw as slower is not, once settings are
 * chosen. */
static void other_ep(struct space *space, struct decision *decision)
{
    struct decision best = *decision, other;
    int values[SPACE_MAX_DIVISORS];
    int count = space_degree_values(space, DEGREE_EP, &decision->degrees, values);

    for (int i = 0; i < count; i++) {
        struct degrees degrees = decision->degrees;
        degrees.ep = values[i];
        if (values[i] == decision->degrees.ep || values[i] * degrees.etp > link_domain(space))
            continue;
        bool hopeful = !gathers_cross_network(space) && gathers_matter(&decision->chosen) &&
                       promising(space, decision, &degrees);
        if (!hopeful && !saves_recompute(space, decision, &degrees))
            continue;
        if (settle_other(space, decision, &degrees, &other) && faster(&other, &best))
            best = other;
    }
    *decision = best;
}

static void raise_pp(struct space *space, struct decision *decision)
{
    struct degrees degrees = decision->degrees;
    struct decision other;

    for (degrees.pp *= 2; space->open_pp && degrees.pp <= 8; degrees.pp *= 2) {
        if (!gathers_matter(&decision->chosen) ||
            !settle_other(space, decision, &degrees, &other) || !faster(&other, decision))
            return;
        *decision = other;
        decision->pp_for_speed = true;
    }
}

/* The widest expert group inside the domain. */
static int widest_ep(const struct space *space, const struct degrees *degrees)
{
    int values[SPACE_MAX_DIVISORS], widest = degrees->ep;
    int count = space_degree_values(space, DEGREE_EP, degrees, values);

    for (int i = 0; i < count; i++)
        if (values[i] > widest && values[i] * degrees->etp <= link_domain(space))
            widest = values[i];
    return widest;
}

/* False when these degrees are not faster. */
static bool take_tp(struct space *space, struct decision *decision, const struct degrees *degrees)
{
    struct decision other;
    bool saves = saves_recompute(space, decision, degrees);

    if ((!saves && !gathers_matter(&decision->chosen)) ||
        !settle_other(space, decision, degrees, &other) || !faster(&other, decision))
        return false;
    *decision = other;
    decision->tp_for_speed = true;
    decision->tp_saves_recompute |= saves;
    return true;
}

/* Split tensors hold less of everything: gathers shrink, and what is kept may fit; where it does
 * not, it may beside fewer experts a rank. */
static void raise_tp(struct space *space, struct decision *decision)
{
    struct degrees degrees = decision->degrees;

    for (degrees.tp *= 2; space->open_tp && degrees.tp <= link_domain(space); degrees.tp *= 2) {
        struct degrees wide = degrees;
        wide.ep = widest_ep(space, &degrees);
        if (take_tp(space, decision, &degrees) || wide.ep == degrees.ep)
            continue;
        if (take_tp(space, decision, &wide))
            degrees.ep = wide.ep;
    }
}

void decide_speed(struct space *space, struct decision *decision)
{
    if (decision->chosen.verdict != VERDICT_FITS)
        return;
    other_ep(space, decision);
    raise_cp(space, decision);
    raise_pp(space, decision);
    raise_tp(space, decision);
    other_ep(space, decision);
}
