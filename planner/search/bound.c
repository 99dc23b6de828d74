/* bound.c - which bodies may be of interest, by floors of bytes and of seconds. Skipped are
 * - a context that holds too much whatever its families are: the state over all ranks there are,
 *   checkpoints on the host, the optimizer there or not, nothing gathered, no communicator, no
 *   loss; or whose layers, the fastest loss and the update of that state take longer than the best,
 *   with as many layers recomputed as that floor asks for: without any collective of state, in a
 *   plain schedule, of whose exchange only what the most chunks leave exposed;
 * - likewise one schedule and exchange, with its last layer at work and its own exchanges;
 * - likewise one sharding and its widths, with its own state, gathered units and communicators. */
#include "planner/search/body.h"

enum place place_of(const struct space *space, unsigned offload)
{
    unsigned chosen = space->open_offload ? offload : space->base.offload;
    return chosen & OFFLOAD_OPTIMIZER ? ON_HOST : ON_DEVICE;
}

unsigned offload_least(const struct space *space)
{
    return space->open_offload && space->only_offload ? 1 : 0;
}

unsigned offload_most(const struct space *space)
{
    return space->open_offload ? OFFLOAD_CHECKPOINTS | OFFLOAD_OPTIMIZER : 0;
}

/* The settings of which nothing at a place holds less but for the sharding and what belongs to it.
 */
static void leanest(const struct worker *w, const struct body *body, enum place place,
                    struct settings *ret)
{
    *ret = body->settings;
    ret->sharding = SHARDING_FSDP;
    ret->recompute = RECOMPUTE_FULL;
    ret->loss = (enum loss)w->space.loss.values[w->space.loss.count > 1 ? 1 : 0];
    ret->ahead = AHEAD_NOTHING;
    ret->offload = offload_most(&w->space);
    if (place == ON_DEVICE)
        ret->offload &= ~(unsigned)OFFLOAD_OPTIMIZER;
}

/* The choices of which nothing that the body's families are holds less. */
static void bound_choices(const struct worker *w, const struct body *body, enum place place,
                          struct choices *ret)
{
    struct settings settings;
    struct degrees degrees = body->degrees;
    degrees.fsdp = degrees.e_fsdp = 0;
    leanest(w, body, place, &settings);
    space_complete(&w->space, &degrees, &settings, ret);
}

/* Too slow whatever it holds, asked before any liveness table is made. */
static bool is_slow(struct worker *w, const struct ladder *l)
{
    if (w->shared->goal == GOAL_SMALLEST)
        return false;
    variant_set(l->variants, l->from, &l->fastest->primitives);
    return worker_is_slow(w, w->shared->step_count - 1,
                          l->bounds->seconds(w->slowest, l->fastest, l->seconds));
}

static bool is_hopeless(struct worker *w, struct ladder *l)
{
    return is_slow(w, l) || !ladder_init(w, l) || ladder_is_hopeless(w, l);
}

static bool any(const struct body *body)
{
    return body->open[ON_DEVICE] || body->open[ON_HOST];
}

static void make_plain(struct primitives *p)
{
    p->moe = MOE_PLAIN;
    p->moe_chunks = 1;
    p->moe_cap_tokens = 0;
    p->exchange = EXCHANGE_SM;
}

/* Chunks keep no less than a plain schedule, a cap that makes more of them keeps less, and both
 * take no less time. */
static bool context_is_hopeless(struct worker *w, const struct body *body, enum place place,
                                bool capped, const struct bounds *bounds,
                                const struct least_seconds *seconds)
{
    struct body lean = *body;
    struct choices plain, least;
    bound_choices(w, body, place, &plain);
    make_plain(&plain.primitives);
    least = plain;
    lean.settings.capped = true;
    lean.settings.chunks = w->space.chunks.values[w->space.chunks.count - 1];
    if (capped)
        bound_choices(w, &lean, place, &least);
    struct ladder ladder = { &body->variants, bounds, &least, &plain, seconds, 0, 0, 0 };
    return is_hopeless(w, &ladder);
}

bool bound_context(struct worker *w, struct body *body, bool capped)
{
    static const struct bounds bounds = { predictor_saved_floor, predictor_relaxed_seconds };
    for (int place = 0; place < PLACES && !w->shared->skip_nothing; place++)
        if (body->open[place])
            body->open[place] = !context_is_hopeless(w, body, (enum place)place, capped, &bounds,
                                                     &body->least[place]);
    return any(body);
}

/* A first stage of more layers has these and others. */
bool first_is_hopeless(struct worker *w, const struct body *body, bool capped)
{
    static const struct bounds bounds = { predictor_first_floor, predictor_first_seconds };
    for (int place = 0; place < PLACES; place++)
        if (body->open[place] &&
            (w->shared->skip_nothing || !context_is_hopeless(w, body, (enum place)place, capped,
                                                             &bounds, &body->first_least[place])))
            return false;
    return true;
}

bool bound_body(struct worker *w, struct body *body)
{
    static const struct bounds bounds = { predictor_body_floor, predictor_layer_seconds };
    for (int place = 0; place < PLACES && !w->shared->skip_nothing; place++) {
        struct choices choices;
        if (!body->open[place])
            continue;
        bound_choices(w, body, (enum place)place, &choices);
        struct ladder ladder = { &body->variants,     &bounds, &choices, &choices,
                                 &body->least[place], 0,       0,        0 };
        body->open[place] = !is_hopeless(w, &ladder);
        body->first[place] = ladder.first;
    }
    return any(body);
}

bool bound_widths(struct worker *w, struct body *body, const struct family *f)
{
    static const struct bounds bounds = { predictor_state_floor, predictor_layer_seconds };
    for (int place = 0; place < PLACES && !w->shared->skip_nothing; place++) {
        struct settings settings;
        struct choices choices;
        if (!body->open[place])
            continue;
        leanest(w, body, (enum place)place, &settings);
        settings.sharding = f->settings.sharding;
        space_complete(&w->space, &f->degrees, &settings, &choices);
        struct ladder ladder = {
            &body->variants,    &bounds, &choices, &choices, &body->least[place],
            body->first[place], 0,       0
        };
        body->open[place] = !is_hopeless(w, &ladder);
    }
    return any(body);
}

/* The fastest loss in its largest tiles. */
static double least_loss(struct worker *w, const struct choices *plain)
{
    const struct space *space = &w->space;
    struct choices choices = *plain;
    struct primitives *p = &choices.primitives;
    int groups[SPACE_MAX_DIVISORS];
    int group_count = space_vocab_groups(space, &choices.layout, groups);
    double least = -1;
    for (int i = 0; i < space->loss.count; i++) {
        p->loss = (enum loss)space->loss.values[i];
        p->loss_tile_tokens = family_tiles(space, &choices.layout, p->loss).values[0];
        bool ring = p->loss == LOSS_RING_DTP;
        for (int g = 0; g < (ring ? group_count : 1); g++) {
            p->vocab_group = ring ? groups[g] : plain->primitives.vocab_group;
            double seconds = predictor_loss_seconds(w->slowest, &choices);
            least = least < 0 || seconds < least ? seconds : least;
        }
    }
    return least > 0 ? least : 0;
}

void least_seconds_init(struct worker *w, const struct degrees *degrees,
                        struct least_seconds ret[PLACES], struct least_seconds ret_first[PLACES])
{
    struct body body = { .degrees = *degrees, .settings = { .chunks = 1 } };
    for (int place = 0; place < PLACES; place++) {
        struct choices choices;
        ret[place] = ret_first[place] = (struct least_seconds){ 0, 0 };
        if (w->shared->skip_nothing || w->shared->goal == GOAL_SMALLEST)
            continue;
        bound_choices(w, &body, (enum place)place, &choices);
        make_plain(&choices.primitives);
        ret[place].loss = least_loss(w, &choices);
        ret[place].end = predictor_update_seconds(w->slowest, &choices, false);
        ret_first[place].end = predictor_update_seconds(w->slowest, &choices, true);
    }
}
