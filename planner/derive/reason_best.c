/* reason_best.c - degrees that a search chose: the share of a rank, and the time of the best other
 * value, the bytes that it lacks, or the rule that refuses it. */
#include "planner/derive/neighbour.h"
#include "planner/derive/story.h"

#include <math.h>
#include <string.h>

/* Of the other values of a key the fastest that fits, or the one that lacks the fewest bytes; NULL:
 * all are illegal. */
static const struct neighbour *best_of(const struct neighbours *all, const char *key)
{
    const struct neighbour *best = NULL;
    for (int i = 0; i < all->count; i++) {
        const struct neighbour *n = &all->items[i];
        if (strcmp(n->key, key) != 0 || n->standing == NEIGHBOUR_ILLEGAL)
            continue;
        bool better = !best || n->standing > best->standing;
        if (best && n->standing == best->standing)
            better = n->standing == NEIGHBOUR_FITS
                         ? n->candidate.slowest_seconds < best->candidate.slowest_seconds
                         : n->missing_bytes < best->missing_bytes;
        best = better ? n : best;
    }
    return best;
}

/* The largest value below the chosen one that a rule refuses. */
static const struct neighbour *refused_of(const struct neighbours *all, const char *key, int value)
{
    const struct neighbour *found = NULL;
    for (int i = 0; i < all->count; i++) {
        const struct neighbour *n = &all->items[i];
        if (!strcmp(n->key, key) && n->standing == NEIGHBOUR_ILLEGAL && n->value < value &&
            (!found || n->value > found->value))
            found = n;
    }
    return found;
}

static void tell_neighbour(struct story *s, const struct neighbour *n)
{
    char bytes[32];
    if (n->standing == NEIGHBOUR_TOO_LARGE)
        SAY(s, "; %s needs %s more than there is", n->name,
            size_text(bytes, sizeof bytes, n->missing_bytes));
    else
        story_tell_against(s, &n->candidate, n->name);
}

/* "; cp 2 needs 48.2 GB more than there is", "; pp 1 is not legal: ..." */
static void tell_neighbours(struct story *s, const char *key, int value)
{
    const struct neighbour *best = best_of(s->neighbours, key);
    const struct neighbour *refused = refused_of(s->neighbours, key, value);
    if (best && !s->given)
        tell_neighbour(s, best);
    if (refused && !s->given && (!best || best->value > value))
        SAY(s, "; %s is not legal: %s", refused->name, refused->rule);
}

static void tell_experts(struct story *s)
{
    const struct layout *l = &s->chosen->choices.layout;
    const int experts = s->space->q->model->moe.experts;
    if (!s->space->has_moe || !story_begin_number(s, "ep", l->ep))
        return;
    SAY(s, "%s%d of %d experts per rank", s->given ? "; " : "", experts / l->ep, experts);
    if (l->ep > 1 && l->ep * l->etp <= link_domain(s->space))
        SAY(s, ", the all-to-all inside one NVLink domain");
    else if (l->ep > 1)
        SAY(s, ", the all-to-all leaves the NVLink domain");
    tell_neighbours(s, "ep", l->ep);
}

static void tell_sequence(struct story *s)
{
    const int cp = s->degrees.cp;
    char tokens[32];
    if (!story_begin_number(s, "cp", cp))
        return;
    units_format_count(tokens, sizeof tokens, s->space->q->seq_tokens / (uint64_t)cp);
    SAY(s, "%s%s tokens per rank", s->given ? "; " : "", tokens);
    story_tell_spread(s, cp, s->degrees.tp);
    tell_neighbours(s, "cp", cp);
}

static void tell_state(struct story *s)
{
    const struct layout *l = &s->chosen->choices.layout;
    const struct primitives *p = &s->chosen->choices.primitives;
    char held[32];
    if (!story_begin(s, "sharding", sharding_names[p->sharding]))
        return;
    size_text(held, sizeof held, s->chosen->worst.category_bytes[CATEGORY_STATIC]);
    SAY(s, "%s%s of state per rank", s->given ? "; " : "", held);
    if (p->sharding != SHARDING_REPLICATED && s->space->has_moe)
        SAY(s, ", dense over %d ranks, experts over %d", layout_dense_shards(l),
            layout_expert_shards(l) * l->ep);
    else if (p->sharding != SHARDING_REPLICATED)
        SAY(s, ", shared by %d ranks", layout_dense_shards(l));
    tell_neighbours(s, "sharding", 0);
}

static void tell_stages(struct story *s)
{
    const int pp = s->degrees.pp;
    if (!story_begin_number(s, "pp", pp))
        return;
    if (pp > 1)
        SAY(s, "%sbubble %.1f %%", s->given ? "; " : "", 100 * s->chosen->time.bubble_fraction);
    else
        SAY(s, "%sno bubble", s->given ? "; " : "");
    tell_neighbours(s, "pp", pp);
}

static void tell_tensors(struct story *s)
{
    const int tp = s->degrees.tp;
    if (!story_begin_number(s, "tp", tp))
        return;
    if (tp > 1)
        SAY(s, "%seach tensor over %d ranks", s->given ? "; " : "", tp);
    else
        SAY(s, "%swhole tensors, no collectives inside a layer", s->given ? "; " : "");
    tell_neighbours(s, "tp", tp);
}

static void tell_split_experts(struct story *s)
{
    const int etp = s->degrees.etp;
    if (!s->space->has_moe || !story_begin_number(s, "etp", etp))
        return;
    if (etp > 1)
        SAY(s, "%seach expert over %d ranks", s->given ? "; " : "", etp);
    else
        SAY(s, "%swhole experts", s->given ? "; " : "");
    tell_neighbours(s, "etp", etp);
}

void reasons_of_search(struct story *s)
{
    static void (*const tellers[])(struct story *) = {
        tell_experts, tell_sequence, tell_state, tell_stages, tell_tensors, tell_split_experts,
    };
    for (size_t i = 0; i < sizeof tellers / sizeof *tellers; i++)
        tellers[i](s);
}
