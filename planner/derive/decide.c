#include "planner/derive/decide.h"
#include "planner/search/search.h"

#include <stdlib.h>
#include <string.h>

/* Lists that the loops over degrees walk, in the order of preference. */
struct order {
    int count;
    int values[SPACE_MAX_DIVISORS];
};

int link_domain(const struct space *space)
{
    return question_link_domain(space->q);
}

bool gathers_cross_network(const struct space *space)
{
    return space->q->gpus > link_domain(space);
}

static int policy_cp(const struct space *space)
{
    const struct question *q = space->q;
    uint64_t cp = 1;

    if (!q->hardware->host && q->hardware->memory_bytes < SMALL_MEMORY_BYTES)
        while (q->seq_tokens / cp > MOST_LOCAL_SEQUENCE && cp < (uint64_t)q->gpus)
            cp++;
    return (int)cp;
}

/* From the policy's value upwards, then what is below it, largest first. */
static struct order cp_order(const struct space *space, const struct degrees *outer, int policy)
{
    struct order order = { 0 };
    int values[SPACE_MAX_DIVISORS];
    int count = space_degree_values(space, DEGREE_CP, outer, values);

    for (int i = 0; i < count; i++)
        if (values[i] >= policy)
            order.values[order.count++] = values[i];
    for (int i = count - 1; i >= 0; i--)
        if (values[i] < policy)
            order.values[order.count++] = values[i];
    return order;
}

/* Then neither chunks nor contexts help: they move what comes and goes. */
static bool state_alone_exceeds(const struct space *space, const struct rank_budget *worst)
{
    return worst->category_bytes[CATEGORY_STATIC] > space->limit_bytes;
}

/* The leanest member at these degrees; chunking and the linear-attention context have no member
 * that is leanest everywhere, so each is asked. False when none is legal. */
static bool probe(struct space *space, const struct degrees *degrees, struct candidate *ret)
{
    struct settings settings = space_leanest(space);
    struct knob linear = space_linear_contexts(space, degrees->cp);
    const struct knob *chunks = &space->chunks;
    bool any = false;

    for (int x = 0; x < linear.count; x++) {
        settings.linear_context = (enum linear_context)linear.values[x];
        for (int c = chunks->count - 1; c >= 0; c -= chunks->count > 1 ? chunks->count - 1 : 1) {
            struct candidate candidate;
            settings.chunks = chunks->values[c];
            space_complete(space, degrees, &settings, &candidate.choices);
            if (!space_legal(space, &candidate.choices))
                continue;
            space_weigh(space, &candidate);
            if (candidate.verdict == VERDICT_DOES_NOT_FIT)
                space_fill(space, &candidate);
            if (!any || candidate.verdict < ret->verdict ||
                candidate.worst.peak_upper_bytes < ret->worst.peak_upper_bytes)
                *ret = candidate;
            any = true;
            if (ret->verdict == VERDICT_FITS || state_alone_exceeds(space, &candidate.worst))
                return true;
        }
    }
    return any;
}

/* The ep values inside (or beyond) the domain, widest first; or by the time of a plain step at the
 * reference degrees, fastest first. Times order them only where all ranks share one domain: beyond
 * it a narrow group makes every layer's experts cross the network whole and rests on hiding that,
 * while the widest keeps the exchange, and all but 1/ep of the experts, off the network. */
static struct order ep_order(struct space *space, const struct degrees *reference, bool beyond,
                             bool timed)
{
    struct order order = { 0 };
    double seconds[SPACE_MAX_DIVISORS];
    int values[SPACE_MAX_DIVISORS];
    int count = space_degree_values(space, DEGREE_EP, reference, values);
    struct settings settings = space_leanest(space);

    settings.chunks = space->chunks.values[0];
    settings.ahead = (enum ahead)space->ahead.values[0];
    for (int i = count - 1; i >= 0; i--) {
        struct degrees degrees = *reference;
        struct candidate candidate;
        degrees.ep = values[i];
        bool inside = !space->open_ep || values[i] * degrees.etp <= link_domain(space);
        if (inside == beyond)
            continue;
        space_complete(space, &degrees, &settings, &candidate.choices);
        candidate.time.seconds = 0;
        if (timed && count > 1)
            space_time(space, &candidate);
        int at = order.count++;
        for (; at > 0 && seconds[at - 1] > candidate.time.seconds; at--) {
            seconds[at] = seconds[at - 1];
            order.values[at] = order.values[at - 1];
        }
        seconds[at] = candidate.time.seconds;
        order.values[at] = values[i];
    }
    return order;
}

/* The state of the walk over degrees. hopeless: the state alone, divided over all ranks, is too
 * much; no layout holds less of it. */
struct walk {
    struct space *space;
    struct decision *decision;
    bool hopeless;
    bool ordered; /* ep was ordered by time once; later widest first */
    int left;     /* visits allowed */
};

static bool over(const struct walk *walk)
{
    return walk->hopeless || walk->left <= 0;
}

/* Whether every rank holds 1/world of all that can be divided: nothing holds less. Tensor splits
 * repeat norms, stages are at best equal. */
static bool fully_divided(const struct space *space, const struct candidate *c)
{
    return c->choices.primitives.sharding == SHARDING_FSDP && space->open_fsdp &&
           space->open_e_fsdp && c->choices.layout.pp == 1 && c->choices.layout.tp == 1;
}

enum visit { VISIT_ILLEGAL, VISIT_FITS, VISIT_TIGHT, VISIT_DOES_NOT_FIT };

/* Keeps the first candidate of the best verdict, or the smallest; ahead of its turn (early) only
 * what does not fit, so that the order decides among what does. */
static enum visit visit(struct walk *walk, const struct degrees *degrees, bool wide, bool early)
{
    struct decision *d = walk->decision;
    struct candidate candidate;

    walk->left--;
    if (!probe(walk->space, degrees, &candidate))
        return VISIT_ILLEGAL;
    bool smaller = candidate.verdict == VERDICT_DOES_NOT_FIT &&
                   candidate.worst.peak_upper_bytes < d->chosen.worst.peak_upper_bytes;
    bool in_turn = !early || candidate.verdict == VERDICT_DOES_NOT_FIT;
    if (in_turn && (!d->found || candidate.verdict < d->chosen.verdict ||
                    (candidate.verdict == d->chosen.verdict && smaller))) {
        d->chosen = candidate;
        d->degrees = *degrees;
        d->wide_ep = wide;
        d->found = true;
    }
    walk->hopeless |= fully_divided(walk->space, &candidate) &&
                      state_alone_exceeds(walk->space, &candidate.worst);
    return candidate.verdict == VERDICT_FITS    ? VISIT_FITS
           : candidate.verdict == VERDICT_TIGHT ? VISIT_TIGHT
                                                : VISIT_DOES_NOT_FIT;
}

/* A larger cp leaves less on a rank: where the largest legal one does not fit none does. */
static bool largest_cp_fits(struct walk *walk, struct degrees degrees, bool wide)
{
    int cps[SPACE_MAX_DIVISORS];
    int count = space_degree_values(walk->space, DEGREE_CP, &degrees, cps);

    for (int c = count - 1; c >= 0; c--) {
        degrees.cp = cps[c];
        enum visit result = visit(walk, &degrees, wide, true);
        if (result != VISIT_ILLEGAL)
            return result != VISIT_DOES_NOT_FIT;
    }
    return false;
}

/* Takes the ep values from the order that cannot fit. */
static void keep_possible(struct walk *walk, struct degrees degrees, bool wide, struct order *eps)
{
    int kept = 0;
    for (int e = 0; e < eps->count; e++) {
        degrees.ep = eps->values[e];
        if (largest_cp_fits(walk, degrees, wide))
            eps->values[kept++] = degrees.ep;
    }
    eps->count = kept;
}

/* The values of cp in their order; under each, the values of ep in theirs. */
static bool walk_experts(struct walk *walk, struct degrees degrees, bool wide)
{
    struct order cps = cp_order(walk->space, &degrees, walk->decision->policy_cp);
    struct degrees reference = degrees;

    reference.cp = cps.values[0];
    struct order eps = ep_order(walk->space, &reference, wide,
                                !walk->ordered && !gathers_cross_network(walk->space));
    walk->ordered = true;
    for (int c = 0; c < cps.count; c++) {
        if (c == 1)
            keep_possible(walk, degrees, wide, &eps);
        degrees.cp = cps.values[c];
        for (int e = 0; e < eps.count && !over(walk); e++) {
            degrees.ep = eps.values[e];
            if (visit(walk, &degrees, wide, false) == VISIT_FITS)
                return true;
        }
    }
    return false;
}

static bool walk_stages(struct walk *walk, struct degrees degrees, bool wide)
{
    int pps[SPACE_MAX_DIVISORS];
    int count = space_degree_values(walk->space, DEGREE_PP, &degrees, pps);

    for (int p = 0; p < count && !over(walk); p++) {
        degrees.pp = pps[p];
        if (walk_experts(walk, degrees, wide))
            return true;
    }
    return false;
}

/* Whole experts inside the domain, then beyond it, then split experts inside it. */
static bool walk_split(struct walk *walk, struct degrees degrees)
{
    const struct space *space = walk->space;
    bool open = space->open_etp && space->has_moe;

    if (walk_stages(walk, degrees, false) || walk_stages(walk, degrees, true))
        return true;
    for (degrees.etp *= 2; open && degrees.etp <= link_domain(space); degrees.etp *= 2)
        if (walk_stages(walk, degrees, false))
            return true;
    return false;
}

bool decide_degrees(struct space *space, int most_visits, struct decision *ret)
{
    struct walk walk = { space, ret, false, false, most_visits };
    struct degrees degrees = space_fixed_degrees(space);
    int tps[SPACE_MAX_DIVISORS];
    int count = space_degree_values(space, DEGREE_TP, &degrees, tps);

    memset(ret, 0, sizeof *ret);
    ret->policy_cp = policy_cp(space);
    for (int t = 0; t < count && !over(&walk); t++) {
        degrees.tp = tps[t];
        if (walk_split(&walk, degrees))
            break;
    }
    return ret->found;
}

bool decide(struct space *space, struct decision *ret)
{
    if (!decide_degrees(space, DECIDE_MOST_VISITS, ret))
        return false;
    space_fill(space, &ret->chosen);
    decide_settings(space, ret);
    decide_speed(space, ret);
    decide_tiles(space, ret);
    decide_stages(space, ret);
    decide_tiles(space, ret);
    space_fill(space, &ret->chosen);
    return true;
}
