/* Brute force. Three things are skipped, each because of a proof on the budgets and times:
 * - what runs ahead matters only where units are gathered, shard widths only where state is
 * sharded;
 * - recomputing takes longer than keeping and holds no more, gathering ahead holds more and takes
 *   no longer: so the keeping member furthest ahead of a family bounds its time from below, and the
 *   recomputing member not ahead its memory. */
#include "planner/search/space.h"

#include <string.h>

struct search {
    struct space space;
    struct candidate best;
    bool any;
};

static void consider(struct search *search, const struct candidate *candidate)
{
    if (!search->any || candidate_better(candidate, &search->best))
        search->best = *candidate;
    search->any = true;
}

static void judge_and_consider(struct search *search, const struct degrees *degrees,
                               const struct settings *settings)
{
    struct candidate candidate;
    if (!space_try(&search->space, degrees, settings, &candidate))
        return;
    space_time(&search->space, &candidate);
    consider(search, &candidate);
}

/* True when even the fastest member of the family is no faster than the best that fits. */
static bool too_slow(struct search *search, const struct degrees *degrees,
                     const struct settings *family)
{
    struct candidate fastest;
    struct settings settings = *family;

    if (!search->any || search->best.verdict != VERDICT_FITS)
        return false;
    settings.recompute = (enum recompute)search->space.recompute.values[0];
    settings.ahead = (enum ahead)search->space.ahead.values[0];
    space_complete(&search->space, degrees, &settings, &fastest.choices);
    if (!space_legal(&search->space, &fastest.choices))
        return false;
    space_time(&search->space, &fastest);
    return fastest.time.seconds >= search->best.time.seconds;
}

/* Settings that differ only in recompute and in what runs ahead. */
static void search_family(struct search *search, const struct degrees *degrees,
                          const struct settings *family)
{
    const struct space *space = &search->space;
    const struct knob *recompute = &space->recompute, *ahead = &space->ahead;
    int depths = family->sharding == SHARDING_FSDP ? ahead->count : 1;
    struct settings settings = *family;
    struct candidate leanest;

    if (too_slow(search, degrees, family))
        return;
    settings.recompute = (enum recompute)recompute->values[recompute->count - 1];
    settings.ahead = (enum ahead)ahead->values[depths - 1];
    if (!space_try(&search->space, degrees, &settings, &leanest))
        return;
    space_time(space, &leanest);
    consider(search, &leanest);
    if (leanest.verdict == VERDICT_DOES_NOT_FIT)
        return;
    for (int r = 0; r < recompute->count; r++) {
        for (int p = 0; p < depths; p++) {
            if (r == recompute->count - 1 && p == depths - 1)
                continue;
            settings.recompute = (enum recompute)recompute->values[r];
            settings.ahead = (enum ahead)ahead->values[p];
            judge_and_consider(search, degrees, &settings);
        }
    }
}

static void search_families(struct search *search, const struct degrees *degrees,
                            enum sharding sharding)
{
    const struct space *space = &search->space;
    struct knob linear = space_linear_contexts(space, degrees->cp);
    struct settings settings = { .sharding = sharding };

    for (int l = 0; l < space->loss.count; l++) {
        settings.loss = (enum loss)space->loss.values[l];
        for (int c = 0; c < space->chunks.count; c++) {
            settings.chunks = space->chunks.values[c];
            for (int x = 0; x < linear.count; x++) {
                settings.linear_context = (enum linear_context)linear.values[x];
                search_family(search, degrees, &settings);
            }
        }
    }
}

static void search_widths(struct search *search, const struct degrees *outer,
                          enum sharding sharding)
{
    int dense[SPACE_MAX_DIVISORS], expert[SPACE_MAX_DIVISORS];
    int dense_count = space_degree_values(&search->space, DEGREE_FSDP, outer, dense);
    int expert_count = space_degree_values(&search->space, DEGREE_E_FSDP, outer, expert);
    bool sharded = sharding != SHARDING_REPLICATED;
    struct degrees degrees = *outer;

    for (int i = sharded ? 0 : dense_count - 1; i < dense_count; i++) {
        degrees.fsdp = dense[i];
        for (int j = sharded && search->space.has_moe ? 0 : expert_count - 1; j < expert_count;
             j++) {
            degrees.e_fsdp = expert[j];
            search_families(search, &degrees, sharding);
        }
    }
}

static void search_shardings(struct search *search, const struct degrees *degrees)
{
    for (int s = search->space.sharding.count - 1; s >= 0; s--)
        search_widths(search, degrees, (enum sharding)search->space.sharding.values[s]);
}

/* The degrees one after another, outermost first. */
static void search_degree(struct search *search, enum degree degree, struct degrees *degrees)
{
    int values[SPACE_MAX_DIVISORS];
    int count = space_degree_values(&search->space, degree, degrees, values);
    int *const places[] = { &degrees->tp, &degrees->pp, &degrees->cp, &degrees->ep, &degrees->etp };

    for (int i = 0; i < count; i++) {
        *places[degree] = values[i];
        if (degree == DEGREE_ETP)
            search_shardings(search, degrees);
        else
            search_degree(search, (enum degree)(degree + 1), degrees);
    }
}

long search_all(const struct question *q, struct candidate *ret)
{
    struct search search;
    struct degrees degrees;

    memset(&search, 0, sizeof search);
    space_init(&search.space, q);
    degrees = space_fixed_degrees(&search.space);
    search_degree(&search, DEGREE_TP, &degrees);
    *ret = search.best;
    if (!search.any)
        ret->verdict = VERDICT_DOES_NOT_FIT;
    return search.space.layouts;
}
