#include "planner/derive/decide.h"

#include <string.h>

/* Lists that the loops over degrees walk, in the order of preference. */
struct order {
    int count;
    int values[SPACE_MAX_DIVISORS];
};

int link_domain(const struct space *space)
{
    int domain = space->q->hardware->domain_gpus;
    return domain > 0 && domain < space->q->gpus ? domain : space->q->gpus;
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
            if (!space_try(space, degrees, &settings, &candidate))
                continue;
            if (!any || candidate.verdict < ret->verdict ||
                candidate.worst.peak_upper_bytes < ret->worst.peak_upper_bytes)
                *ret = candidate;
            any = true;
            if (ret->verdict == VERDICT_FITS)
                return true;
        }
    }
    return any;
}

/* Sorts the ep values inside (or beyond) the domain by the time of a plain step at the reference
 * degrees, fastest first, wider first where equal. */
static struct order ep_order(struct space *space, const struct degrees *reference, bool beyond)
{
    struct order order = { 0 };
    double seconds[SPACE_MAX_DIVISORS];
    int values[SPACE_MAX_DIVISORS];
    int count = space_degree_values(space, DEGREE_EP, reference, values);
    struct settings settings = space_leanest(space);

    settings.chunks = space->chunks.values[0];
    settings.prefetch = space->prefetch.values[0];
    for (int i = count - 1; i >= 0; i--) {
        struct degrees degrees = *reference;
        struct candidate candidate;
        degrees.ep = values[i];
        bool inside = !space->open_ep || values[i] * degrees.etp <= link_domain(space);
        if (inside == beyond)
            continue;
        space_complete(space, &degrees, &settings, &candidate.choices);
        candidate.time.seconds = 0;
        if (count > 1)
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

/* The state of the walk over degrees. */
struct walk {
    struct space *space;
    struct decision *decision;
};

/* Keeps the first candidate of the best verdict, or the smallest; true when it fits. */
static bool visit(struct walk *walk, const struct degrees *degrees, bool wide)
{
    struct decision *d = walk->decision;
    struct candidate candidate;

    if (!probe(walk->space, degrees, &candidate))
        return false;
    bool smaller = candidate.verdict == VERDICT_DOES_NOT_FIT &&
                   candidate.worst.peak_upper_bytes < d->chosen.worst.peak_upper_bytes;
    if (!d->found || candidate.verdict < d->chosen.verdict ||
        (candidate.verdict == d->chosen.verdict && smaller)) {
        d->chosen = candidate;
        d->degrees = *degrees;
        d->wide_ep = wide;
    }
    d->found = true;
    return candidate.verdict == VERDICT_FITS;
}

static bool walk_experts(struct walk *walk, struct degrees degrees, bool wide)
{
    struct order cps = cp_order(walk->space, &degrees, walk->decision->policy_cp);
    struct degrees reference = degrees;

    reference.cp = cps.values[0];
    struct order eps = ep_order(walk->space, &reference, wide);
    if (walk->decision->fastest_ep == 0 && eps.count > 0)
        walk->decision->fastest_ep = eps.values[0];
    for (int c = 0; c < cps.count; c++) {
        degrees.cp = cps.values[c];
        for (int e = 0; e < eps.count; e++) {
            degrees.ep = eps.values[e];
            if (visit(walk, &degrees, wide))
                return true;
        }
    }
    return false;
}

static bool walk_stages(struct walk *walk, struct degrees degrees)
{
    int pps[SPACE_MAX_DIVISORS];
    int count = space_degree_values(walk->space, DEGREE_PP, &degrees, pps);

    for (int wide = 0; wide <= 1; wide++)
        for (int p = 0; p < count; p++) {
            degrees.pp = pps[p];
            if (walk_experts(walk, degrees, wide != 0))
                return true;
        }
    return false;
}

bool decide_degrees(struct space *space, struct decision *ret)
{
    struct walk walk = { space, ret };
    struct degrees degrees = space_fixed_degrees(space);
    int tps[SPACE_MAX_DIVISORS];
    int count = space_degree_values(space, DEGREE_TP, &degrees, tps);

    memset(ret, 0, sizeof *ret);
    ret->policy_cp = policy_cp(space);
    for (int t = 0; t < count; t++) {
        degrees.tp = tps[t];
        if (walk_stages(&walk, degrees))
            break;
    }
    return ret->found;
}

bool decide(struct space *space, struct decision *ret)
{
    if (!decide_degrees(space, ret))
        return false;
    space_time(space, &ret->chosen);
    decide_settings(space, ret);
    decide_speed(space, ret);
    return true;
}
