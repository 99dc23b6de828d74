/* The cheapest settings at given degrees: shard modes and widths, loss, recompute, chunking.
 * Settings under one sharding and recompute are a family: when its leanest member does not fit it
 * is left out whole. The others are timed, and judged in the order of time until one fits. */
#include "planner/derive/decide.h"

#include <stdlib.h>

/* Two steps this close are equally fast; the one that leaves more memory is taken. */
#define EQUALLY_FAST 0.005

enum {
    MAX_MEMBERS = 960,
    MOST_EQUALS = 10 /* judged among the equally fast */
};

struct member {
    double seconds;
    struct settings settings;
    struct degrees degrees;
    int order; /* leaner members first among the equally fast */
    bool judged;
};

struct settle {
    struct space *space;
    struct decision *decision;
    enum ahead ahead;                   /* of all members */
    enum linear_context linear_context; /* of all members */
    int count;
    struct member members[MAX_MEMBERS];
};

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
    else if (dense != layout_dp(l) && !space->full_widths_only)
        w.dense[w.dense_count++] = dense;
    if (!space->open_e_fsdp)
        w.expert[0] = space->fixed.e_fsdp;
    else if (expert != layout_e_dp(l) && space->has_moe && !space->full_widths_only)
        w.expert[w.expert_count++] = expert;
    return w;
}

static void take(struct settle *s, const struct degrees *degrees, const struct candidate *candidate)
{
    s->decision->chosen = *candidate;
    space_fill(s->space, &s->decision->chosen);
    s->decision->degrees = *degrees;
}

static enum verdict judge(struct settle *s, struct member *member, struct candidate *ret)
{
    member->judged = true;
    space_complete(s->space, &member->degrees, &member->settings, &ret->choices);
    space_weigh(s->space, ret);
    return ret->verdict;
}

/* Whether the leanest member of a family fits; it is kept where nothing does. */
static bool family_fits(struct settle *s, const struct degrees *degrees,
                        const struct settings *settings)
{
    struct settings lean = space_leanest(s->space);
    struct candidate candidate;

    lean.sharding = settings->sharding;
    lean.recompute = settings->recompute;
    lean.keep_attention = settings->keep_attention;
    lean.linear_context = s->linear_context;
    space_complete(s->space, degrees, &lean, &candidate.choices);
    if (!space_legal(s->space, &candidate.choices))
        return true;
    space_weigh(s->space, &candidate);
    if (candidate_better(&candidate, &s->decision->chosen))
        take(s, degrees, &candidate);
    return candidate.verdict != VERDICT_DOES_NOT_FIT;
}

static void add_member(struct settle *s, const struct degrees *degrees,
                       const struct settings *settings, int order)
{
    struct candidate candidate;

    if (s->count == MAX_MEMBERS)
        return;
    space_complete(s->space, degrees, settings, &candidate.choices);
    if (!space_legal(s->space, &candidate.choices))
        return;
    s->members[s->count++] =
        (struct member){ .seconds = space_seconds(s->space, &candidate.choices),
                         .settings = *settings,
                         .degrees = *degrees,
                         .order = order };
}

/* Loss and chunks under one sharding and recompute, with attention kept or not. */
static void add_family(struct settle *s, const struct degrees *degrees, struct settings settings,
                       int order)
{
    const struct space *space = s->space;

    if (!family_fits(s, degrees, &settings))
        return;
    settings.ahead = s->ahead;
    settings.linear_context = s->linear_context;
    for (int l = 0; l < space->loss.count; l++) {
        settings.loss = (enum loss)space->loss.values[l];
        int after_loss = order * 2 + (l < space->loss.count - 1);
        for (int c = 0; c < space->chunks.count; c++) {
            settings.chunks = space->chunks.values[c];
            add_member(s, degrees, &settings, after_loss);
        }
    }
}

/* All kinds of recompute, the leanest first. */
static void add_recompute(struct settle *s, const struct degrees *degrees, struct settings settings,
                          int order)
{
    const struct knob *recompute = &s->space->recompute, *attention = &s->space->attention;
    int more_held = 0;

    for (int r = recompute->count - 1; r >= 0; r--) {
        bool full = recompute->values[r] == RECOMPUTE_FULL;
        settings.recompute = (enum recompute)recompute->values[r];
        for (int a = attention->count - 1; a >= (full ? 0 : attention->count - 1); a--) {
            settings.keep_attention = attention->values[a];
            add_family(s, degrees, settings, order * 3 + more_held++);
        }
    }
}

static void add_sharding(struct settle *s, enum sharding sharding)
{
    struct widths w = shard_widths(s->space, &s->decision->chosen.choices.layout);
    struct degrees degrees = s->decision->degrees;
    struct settings settings = { .sharding = sharding };
    bool sharded = sharding != SHARDING_REPLICATED;

    for (int i = 0; i < (sharded ? w.dense_count : 1); i++)
        for (int j = 0; j < (sharded ? w.expert_count : 1); j++) {
            degrees.fsdp = w.dense[i];
            degrees.e_fsdp = w.expert[j];
            add_recompute(s, &degrees, settings, (int)(SHARDING_FSDP - sharding) * 3 + i + j);
        }
}

static int by_seconds(const void *a, const void *b)
{
    const struct member *x = (const struct member *)a, *y = (const struct member *)b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    return x->order != y->order ? x->order - y->order : x->settings.chunks - y->settings.chunks;
}

/* Index of the first member that fits, or -1; the best of what does not is in the decision. */
static int first_that_fits(struct settle *s)
{
    for (int i = 0; i < s->count; i++) {
        struct member *member = &s->members[i];
        struct candidate candidate;
        enum verdict verdict = judge(s, member, &candidate);
        if (verdict == VERDICT_FITS || candidate_better(&candidate, &s->decision->chosen))
            take(s, &member->degrees, &candidate);
        if (verdict == VERDICT_FITS)
            return i;
    }
    return -1;
}

static int by_order(const void *a, const void *b)
{
    const struct member *x = (const struct member *)a, *y = (const struct member *)b;
    return x->order != y->order ? x->order - y->order : by_seconds(a, b);
}

/* Among members as fast as the first that fits, the one with the smallest peak. */
static void leanest_of_equals(struct settle *s, int first)
{
    double most = s->members[first].seconds * (1 + EQUALLY_FAST);
    int end = first, judged = 0;

    while (end < s->count && s->members[end].seconds <= most)
        end++;
    qsort(s->members + first, (size_t)(end - first), sizeof *s->members, by_order);
    for (int i = first; i < end && judged < MOST_EQUALS; i++) {
        struct member *member = &s->members[i];
        struct candidate candidate;
        if (member->judged)
            continue;
        judged++;
        if (judge(s, member, &candidate) != VERDICT_FITS ||
            candidate.worst.peak_upper_bytes >= s->decision->chosen.worst.peak_upper_bytes)
            continue;
        take(s, &member->degrees, &candidate);
    }
}

/* All shardings with one level of what runs ahead and one linear context; true when something fits.
 */
static bool settle_shardings(struct settle *s, enum ahead ahead, enum linear_context linear)
{
    const struct knob *shardings = &s->space->sharding;

    s->ahead = ahead;
    s->linear_context = linear;
    s->count = 0;
    for (int i = shardings->count - 1; i >= 0; i--)
        add_sharding(s, (enum sharding)shardings->values[i]);
    qsort(s->members, (size_t)s->count, sizeof *s->members, by_seconds);
    int first = first_that_fits(s);
    if (first >= 0)
        leanest_of_equals(s, first);
    return first >= 0;
}

/* The legal linear contexts, the faster one first: what it costs adds to whatever else is chosen.
 */
static struct knob linear_by_seconds(struct space *space, const struct decision *decision)
{
    struct knob all = space_linear_contexts(space, decision->degrees.cp), legal = { .count = 0 };
    double seconds[SPACE_MAX_VALUES];

    for (int i = 0; all.count > 1 && i < all.count; i++) {
        struct candidate candidate = { .choices = decision->chosen.choices };
        candidate.choices.primitives.linear_context = (enum linear_context)all.values[i];
        if (!space_legal(space, &candidate.choices))
            continue;
        candidate.time.seconds = space_seconds(space, &candidate.choices);
        int at = legal.count++;
        for (; at > 0 && seconds[at - 1] > candidate.time.seconds; at--) {
            seconds[at] = seconds[at - 1];
            legal.values[at] = legal.values[at - 1];
        }
        seconds[at] = candidate.time.seconds;
        legal.values[at] = all.values[i];
    }
    return legal.count > 0 ? legal : all;
}

static bool fits(const struct space *space, const struct choices *choices)
{
    struct layout_peaks peaks;
    space_peaks(space, choices, &peaks);
    return peaks.peak_upper_bytes <= space->limit_bytes &&
           peaks.host_bytes <= space_host_room(space);
}

static int largest_stage(const struct layout *l)
{
    int most = 0;
    for (int s = 0; s < l->pp; s++)
        most = l->stage_layers[s] > most ? l->stage_layers[s] : most;
    return most;
}

/* The fewest first layers whose recompute makes these choices fit, found by halving; 0 when even
 * all of them do not. Fewer take less time. */
static int least_recompute(const struct space *space, struct choices *choices)
{
    int *layers = &choices->primitives.recompute_layers;
    int low = 0, high = largest_stage(&choices->layout);

    *layers = RECOMPUTE_ALL_LAYERS;
    if (!fits(space, choices))
        return 0;
    while (high - low > 1) {
        *layers = low + (high - low) / 2;
        if (fits(space, choices))
            high = *layers;
        else
            low = *layers;
    }
    *layers = high;
    return high;
}

static bool is_faster(const struct settle *s, const struct choices *choices)
{
    return space_seconds(s->space, choices) < s->decision->chosen.time.seconds * (1 - EQUALLY_FAST);
}

/* One way to run ahead, to chunk, to shard and to keep attention: taken where it gets faster by
 * keeping some layers. */
static void keep_some(struct settle *s, const struct degrees *degrees,
                      const struct settings *settings)
{
    struct candidate candidate;
    struct space *space = s->space;

    space_complete(space, degrees, settings, &candidate.choices);
    if (!space_legal(space, &candidate.choices))
        return;
    candidate.choices.primitives.recompute_layers = 1;
    if (!is_faster(s, &candidate.choices)) /* nor with more */
        return;
    int layers = least_recompute(space, &candidate.choices);
    if (layers == 0 || layers >= largest_stage(&candidate.choices.layout) ||
        !is_faster(s, &candidate.choices))
        return;
    space_weigh(space, &candidate);
    if (candidate.verdict == VERDICT_FITS)
        take(s, degrees, &candidate);
}

/* Where all layers are recomputed because keeping all does not fit, some may be kept. */
static void keep_what_fits(struct settle *s)
{
    const struct candidate chosen = s->decision->chosen;
    const struct space *space = s->space;
    struct settings settings = settings_of(&chosen.choices);
    struct degrees degrees = s->decision->degrees;
    struct widths w = shard_widths(space, &chosen.choices.layout);

    if (chosen.verdict != VERDICT_FITS || settings.recompute != RECOMPUTE_FULL ||
        !space->open_recompute_layers || space->recompute.count < 2)
        return;
    for (int i = 0; i < w.dense_count * w.expert_count; i++)
        for (int a = 0; a < space->ahead.count; a++)
            for (int c = 0; c < space->chunks.count; c++)
                for (int k = 0; k < space->attention.count; k++) {
                    degrees.fsdp = w.dense[i / w.expert_count];
                    degrees.e_fsdp = w.expert[i % w.expert_count];
                    settings.ahead = (enum ahead)space->ahead.values[a];
                    settings.chunks = space->chunks.values[c];
                    settings.keep_attention = space->attention.values[k];
                    keep_some(s, &degrees, &settings);
                }
}

static void settle_all(struct settle *s, const struct knob *linear)
{
    for (int i = 0; i < s->space->ahead.count; i++)
        for (int x = 0; x < linear->count; x++)
            if (settle_shardings(s, (enum ahead)s->space->ahead.values[i],
                                 (enum linear_context)linear->values[x]))
                return;
}

void decide_settings(struct space *space, struct decision *decision)
{
    struct settle s;
    struct knob linear = linear_by_seconds(space, decision);

    s.space = space;
    s.decision = decision;
    settle_all(&s, &linear);
    keep_what_fits(&s);
}
