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

#include "base/checked.h"

struct knob family_tiles(const struct space *space, const struct layout *l, enum loss loss)
{
    struct knob knob = space_wider_tiles(space, l, loss, LOSS_TILE_TOKENS);
    bool open = space->open_tile && loss != LOSS_RING_DTP;
    knob.values[knob.count++] = open ? LOSS_TILE_TOKENS : space->base.loss_tile_tokens;
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

static double seconds_of(struct predictor *slowest, const struct choices *choices,
                         const struct least_seconds *least)
{
    (void)least;
    return predictor_slowest_seconds(slowest, choices);
}

static const struct bounds member_bounds = { predictor_floor, seconds_of };

/* The step of fewest bytes that a variant may be on. */
static int step_of(struct worker *w, const struct ladder *ladder, int variant)
{
    if (w->shared->step_count == 1)
        return 0;
    variant_set(ladder->variants, variant, &ladder->least->primitives);
    return worker_step(w, predictor_floor(w->predictor, ladder->least));
}

static bool judge(struct worker *w, const struct choices *choices, double seconds)
{
    if (w->shared->goal == GOAL_EXPECTED)
        return seconds <= w->shared->most_seconds && worker_expect(w, choices);
    return worker_judge(w, choices, seconds);
}

/* Of one tile and level, those that recompute the least, which are the fastest, first. What is too
 * slow for the steps that a variant may be on is so of all up to the first that may be on a step of
 * fewer bytes; of the first that is on all steps the rest is no better. */
static void search_variants(struct worker *w, struct family *f, const struct ladder *ladder,
                            int tile, int level)
{
    int variant = ladder->first;
    while (variant < f->variants.count) {
        int step = step_of(w, ladder, variant);
        set_member(w, f, tile, level, variant);
        w->member++;
        double seconds = worker_seconds(w, &f->choices);
        if (worker_is_slow(w, step, seconds)) {
            if (step >= ladder->last_step)
                return;
            variant = ladder_first_on(w, ladder, step + 1, variant + 1);
        } else if (judge(w, &f->choices, seconds) && !w->shared->skip_nothing) {
            return;
        } else {
            variant++;
        }
    }
}

/* Of one tile and level the variants from `from` on whose seconds are of interest: up to which.
 * More recompute takes no less time. */
static int last_in_time(struct worker *w, struct family *f, int tile, int level, int from)
{
    int low = from - 1, high = f->variants.count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        set_member(w, f, tile, level, middle);
        if (worker_seconds(w, &f->choices) > w->shared->most_seconds ||
            worker_expected(w, &f->choices) > w->shared->most_expected)
            high = middle;
        else
            low = middle;
    }
    return low;
}

/* From the last of these, which recomputes the most: those that recompute less hold no less than
 * their floor, which rises from one to the next; of those that take as many units of memory the one
 * that recomputes the least is the fastest. */
static void search_room(struct worker *w, struct family *f, const struct ladder *ladder, int tile,
                        int level)
{
    const uint64_t same = w->shared->same_bytes;
    int last = last_in_time(w, f, tile, level, ladder->first);
    uint64_t least = div_up(worker_most_bytes(w, 0), same);
    for (int v = last; v >= ladder->first; v--) {
        if (!w->shared->skip_nothing && div_up(ladder_floor(w, ladder, v), same) > least)
            break;
        set_member(w, f, tile, level, v);
        uint64_t units = worker_room(w, &f->choices);
        if (units == 0 || units > least)
            continue;
        least = units;
        w->member++;
        worker_take_room(w, &f->choices, units);
    }
}

static void search_members(struct worker *w, struct family *f, const struct ladder *ladder)
{
    for (int tile = 0; tile < f->tiles.count; tile++)
        for (int level = 0; level < f->levels.count; level++)
            if (w->shared->goal == GOAL_ROOMIEST)
                search_room(w, f, ladder, tile, level);
            else
                search_variants(w, f, ladder, tile, level);
}

/* Where the smallest is sought: the leanest first. A larger tile, and whatever runs ahead, holds no
 * less, so that what exceeds the best without them does with them. */
static void search_lean_members(struct worker *w, struct family *f)
{
    const int leanest = f->levels.count - 1;
    for (int v = f->variants.count - 1; v >= 0; v--)
        for (int tile = f->tiles.count - 1; tile >= 0; tile--) {
            uint64_t least = 0;
            for (int level = leanest; level >= 0 && worker_step(w, least) >= 0; level--) {
                set_member(w, f, tile, level, v);
                w->member++;
                uint64_t bytes = worker_weigh(w, &f->choices);
                least = level == leanest ? bytes : least;
            }
            if (worker_step(w, least) < 0)
                break;
        }
}

/* Of the largest tiles, whatever runs ahead. */
static bool family_is_slow(struct worker *w, struct family *f, const struct ladder *ladder)
{
    for (int level = 0; level < f->levels.count; level++) {
        set_member(w, f, 0, level, 0);
        if (!ladder_is_hopeless(w, ladder))
            return false;
    }
    return true;
}

/* False when the family has no members or they are illegal. */
static bool open_family(struct worker *w, struct family *f)
{
    const struct space *space = &w->space;
    space_complete(space, &f->degrees, &f->settings, &f->choices);
    variants_init(space, &f->choices.layout, &f->settings, &f->variants);
    f->tiles = family_tiles(space, &f->choices.layout, f->settings.loss);
    f->levels = family_levels(space, f->settings.sharding);
    if (f->variants.count == 0)
        return false;
    set_member(w, f, f->tiles.count - 1, f->levels.count - 1, f->variants.count - 1);
    return true;
}

void family_search(struct worker *w, struct family *f)
{
    struct choices least;
    if (!open_family(w, f))
        return;
    least = f->choices;
    struct ladder ladder = { &f->variants, &member_bounds, &least, &f->choices, NULL, 0, 0, 0 };
    if (!ladder_init(w, &ladder) || !space_is_legal(&w->space, &f->choices))
        return;
    w->legal += (uint64_t)f->variants.count * (uint64_t)f->tiles.count * (uint64_t)f->levels.count;
    if (w->shared->goal == GOAL_SMALLEST)
        search_lean_members(w, f);
    else if (!family_is_slow(w, f, &ladder))
        search_members(w, f, &ladder);
}

void family_probe(struct worker *w, struct family *f)
{
    if (open_family(w, f) && space_is_legal(&w->space, &f->choices))
        (void)worker_weigh(w, &f->choices);
}
