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

int first_variant(struct worker *w, const struct variants *v, int from, struct choices *choices,
                  floor_of_choices *floor, uint64_t most)
{
    int low = from - 1, high = v->count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        variant_set(v, middle, &choices->primitives);
        if (floor(w->estimator, choices) > most)
            low = middle;
        else
            high = middle;
    }
    return high;
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

static double seconds_of(struct worker *w, const struct choices *choices)
{
    struct step_time time;
    estimator_time(w->estimator, choices, &time);
    return time.seconds;
}

/* Whether one that is as wanted leaves nothing to ask of those that recompute more. */
static bool first_is_best(const struct worker *w)
{
    const struct shared_search *shared = w->shared;
    return !shared->skip_nothing && !shared->front && shared->goal != GOAL_SMALLEST;
}

/* False when nothing that recomputes more is of interest. */
static bool look(struct worker *w, struct family *f, bool floors)
{
    uint64_t floor = floors ? estimator_floor(w->estimator, &f->choices) : 0;
    w->member++;
    if (worker_is_hopeless(w, 0, floor))
        return true;
    double seconds = seconds_of(w, &f->choices);
    if (worker_is_hopeless(w, seconds, floor))
        return !first_is_best(w);
    return !worker_judge(w, &f->choices, seconds) || !first_is_best(w);
}

/* The fastest first; where the smallest is sought, the leanest. */
static void search_members(struct worker *w, struct family *f, int first)
{
    bool lean = w->shared->goal == GOAL_SMALLEST;
    bool floors = !w->shared->skip_nothing && !first_is_best(w);
    int tiles = f->tiles.count, levels = f->levels.count, variants = f->variants.count;
    for (int t = 0; t < tiles; t++)
        for (int a = 0; a < levels; a++)
            for (int v = lean ? 0 : first; v < (lean ? variants - first : variants); v++) {
                set_member(w, f, lean ? tiles - 1 - t : t, lean ? levels - 1 - a : a,
                           lean ? variants - 1 - v : v);
                if (!look(w, f, floors))
                    break;
            }
}

static double least_seconds(struct worker *w, struct family *f, int first)
{
    double least = 0;
    for (int level = 0; level < f->levels.count; level++) {
        set_member(w, f, 0, level, first);
        double seconds = seconds_of(w, &f->choices);
        least = level == 0 || seconds < least ? seconds : least;
    }
    return least;
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
    if (!w->shared->skip_nothing) {
        first =
            first_variant(w, &f->variants, 0, &f->choices, estimator_floor, worker_most_bytes(w));
        if (first == f->variants.count || worker_is_hopeless(w, least_seconds(w, f, first), floor))
            return;
    }
    search_members(w, f, first);
}

void family_probe(struct worker *w, struct family *f)
{
    if (open_family(w, f) && space_is_legal(&w->space, &f->choices))
        (void)worker_judge(w, &f->choices, seconds_of(w, &f->choices));
}
