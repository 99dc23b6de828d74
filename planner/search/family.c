/* family.c - layouts that differ in recompute, tiles of the loss and what runs ahead. Skipped are,
 * each because of what budgets and times are sums of (tests judge every layout and find the same):
 * - a family whose floor exceeds what is of interest: state, communicators, checkpoints, inputs,
 *   the last layer at work and the loss are there whatever is recomputed and gathered ahead;
 * - members whose own floor does, with what their layers save: it falls from member to member;
 * - a family whose fastest members take too long: those which keep as many layers as its floor
 *   lets them and have the largest tiles, whatever runs ahead. A replay adds r and hides at most r
 *   more of a reduction; a larger tile reads the head's weights less often;
 * - in a family the layouts that recompute more than the first that fits: they take no less time.
 */
#include "planner/search/family.h"

/* The first variant whose floor is of interest. */
static int first_variant(struct worker *w, const struct variants *v, int from,
                         const struct bounds *bounds, struct choices *least)
{
    const uint64_t most = worker_most_bytes(w);
    int low = from - 1, high = v->count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        variant_set(v, middle, &least->primitives);
        if (bounds->floor(w->estimator, least) > most)
            low = middle;
        else
            high = middle;
    }
    return high;
}

static bool variant_is_hopeless(struct worker *w, const struct variants *v, int fast, int lean,
                                const struct bounds *bounds, struct choices *least,
                                struct choices *fastest)
{
    variant_set(v, lean, &least->primitives);
    uint64_t floor = bounds->floor(w->estimator, least);
    variant_set(v, fast, &fastest->primitives);
    return worker_is_hopeless(w, bounds->seconds(w->estimator, fastest), floor);
}

/* For a front one after another: what is fast of one and lean of another is no layout. */
bool variants_are_hopeless(struct worker *w, const struct variants *v, int from,
                           const struct bounds *bounds, struct choices *least,
                           struct choices *fastest, int *ret_first)
{
    int first = first_variant(w, v, from, bounds, least), last = v->count - 1;
    *ret_first = first;
    if (first == v->count)
        return true;
    if (!w->shared->front)
        return variant_is_hopeless(w, v, first, last, bounds, least, fastest);
    for (int i = first; i <= last; i++)
        if (!variant_is_hopeless(w, v, i, i, bounds, least, fastest))
            return false;
    return true;
}

struct knob family_tiles(const struct space *space, const struct layout *l, enum loss loss)
{
    static const int sizes[] = { 4096, 2048, 1024, LOSS_TILE_TOKENS };
    uint64_t tokens = space_local_tokens(space, l);
    struct knob knob = { .count = 0 };
    if (!space->open_tile || loss == LOSS_RING_DTP)
        return (struct knob){ .count = 1, .values = { space->base.loss_tile_tokens } };
    for (int i = 0; i < 4; i++)
        if ((uint64_t)sizes[i] <= tokens || sizes[i] == LOSS_TILE_TOKENS)
            knob.values[knob.count++] = sizes[i];
    return knob;
}

/* Nothing is gathered but under fsdp, nothing reduced before the step ends but there and under
 * zero2. */
struct knob family_levels(const struct space *space, enum sharding sharding)
{
    struct knob knob = { .count = 1, .values = { space->ahead.values[0] } };
    if (sharding == SHARDING_FSDP)
        return space->ahead;
    for (int i = 1; sharding == SHARDING_ZERO2 && space->open_streams && i < space->ahead.count;
         i++)
        if (space->ahead.values[i] == AHEAD_GATHERS)
            knob.values[knob.count++] = AHEAD_GATHERS;
    return knob;
}

static void set_member(const struct worker *w, struct family *f, int tile, int level, int variant)
{
    struct primitives *p = &f->choices.primitives;
    p->loss_tile_tokens = f->tiles.values[tile];
    space_set_ahead(&w->space, (enum ahead)f->levels.values[level], p);
    variant_set(&f->variants, variant, p);
}

static double seconds_of_choices(struct estimator *e, const struct choices *choices)
{
    struct step_time time;
    estimator_time(e, choices, &time);
    return time.seconds;
}

static double seconds_of(struct worker *w, const struct choices *choices)
{
    return seconds_of_choices(w->estimator, choices);
}

/* Whether one that is as wanted leaves nothing to ask of those that recompute more. */
static bool first_is_best(const struct worker *w)
{
    const struct shared_search *shared = w->shared;
    return !shared->skip_nothing && !shared->front && shared->goal != GOAL_SMALLEST;
}

/* False when nothing that recomputes more is of interest. */
static bool look(struct worker *w, struct family *f)
{
    uint64_t floor = w->shared->front && !w->shared->skip_nothing
                         ? estimator_floor(w->estimator, &f->choices)
                         : 0;
    w->member++;
    if (worker_is_hopeless(w, 0, floor))
        return true;
    double seconds = seconds_of(w, &f->choices);
    if (worker_is_hopeless(w, seconds, floor))
        return !first_is_best(w);
    return !worker_judge(w, &f->choices, seconds, NULL) || !first_is_best(w);
}

/* The fastest first. */
static void search_members(struct worker *w, struct family *f, int first)
{
    for (int tile = 0; tile < f->tiles.count; tile++)
        for (int level = 0; level < f->levels.count; level++)
            for (int v = first; v < f->variants.count; v++) {
                set_member(w, f, tile, level, v);
                if (!look(w, f))
                    break;
            }
}

/* Where the smallest is sought: the leanest first. A larger tile, and whatever runs ahead, holds no
 * less, so that what exceeds the best without them does with them. */
static void search_lean_members(struct worker *w, struct family *f, int first)
{
    const int leanest = f->levels.count - 1;
    for (int v = f->variants.count - 1; v >= first; v--)
        for (int tile = f->tiles.count - 1; tile >= 0; tile--) {
            uint64_t bytes = 0, least = 0;
            for (int level = leanest; level >= 0 && !worker_is_hopeless(w, 0, least); level--) {
                set_member(w, f, tile, level, v);
                w->member++;
                (void)worker_judge(w, &f->choices, seconds_of(w, &f->choices), &bytes);
                least = level == leanest ? bytes : least;
            }
            if (worker_is_hopeless(w, 0, least))
                break;
        }
}

/* Of the largest tiles, whatever runs ahead. */
static bool family_is_hopeless(struct worker *w, struct family *f, int *ret_first)
{
    static const struct bounds bounds = { estimator_floor, seconds_of_choices };
    struct choices least = f->choices;
    for (int level = 0; level < f->levels.count; level++) {
        set_member(w, f, 0, level, 0);
        if (!variants_are_hopeless(w, &f->variants, 0, &bounds, &least, &f->choices, ret_first))
            return false;
        if (*ret_first == f->variants.count)
            return true;
    }
    return true;
}

/* False when the family has no members or they are illegal. */
static bool open_family(struct worker *w, struct family *f)
{
    const struct space *space = &w->space;
    space_complete(space, &f->degrees, &f->settings, &f->choices);
    variants_init(space, &f->choices.layout, f->settings.offload, w->shared->front, &f->variants);
    f->tiles = family_tiles(space, &f->choices.layout, f->settings.loss);
    f->levels = family_levels(space, f->settings.sharding);
    if (f->variants.count == 0)
        return false;
    set_member(w, f, f->tiles.count - 1, f->levels.count - 1, f->variants.count - 1);
    return true;
}

void family_search(struct worker *w, struct family *f)
{
    int first = 0;
    if (!open_family(w, f))
        return;
    uint64_t floor = w->shared->skip_nothing ? 0 : estimator_floor(w->estimator, &f->choices);
    if (worker_is_hopeless(w, 0, floor) || !space_is_legal(&w->space, &f->choices))
        return;
    w->legal += (uint64_t)f->variants.count * (uint64_t)f->tiles.count * (uint64_t)f->levels.count;
    if (!w->shared->skip_nothing && family_is_hopeless(w, f, &first))
        return;
    if (w->shared->goal == GOAL_SMALLEST && !w->shared->front)
        search_lean_members(w, f, first);
    else
        search_members(w, f, first);
}

void family_probe(struct worker *w, struct family *f)
{
    if (open_family(w, f) && space_is_legal(&w->space, &f->choices))
        (void)worker_judge(w, &f->choices, seconds_of(w, &f->choices), NULL);
}
