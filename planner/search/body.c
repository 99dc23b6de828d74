/* body.c - the layouts of one factorization: micro-batches and interleavings, and of each all
 * bodies (contexts, schedules of the experts, exchanges) with all their families. Left out are
 * shard widths where nothing is sharded and exchanges where ep is 1; bound.c says what is skipped.
 */
#include "planner/search/body.h"

/* Families of one sharding and its widths: offloads x losses. */
static void each_family(struct worker *w, struct family *f, const bool *open,
                        void (*visit)(struct worker *, struct family *))
{
    const struct space *space = &w->space;
    int groups[SPACE_MAX_DIVISORS];
    struct choices choices;
    space_complete(space, &f->degrees, &f->settings, &choices);
    int group_count = space_vocab_groups(space, &choices.layout, groups);
    for (unsigned offload = offload_least(space); offload <= offload_most(space); offload++)
        for (int l = 0; l < space->loss.count && open[place_of(space, offload)]; l++) {
            f->settings.offload = offload;
            f->settings.loss = (enum loss)space->loss.values[l];
            bool ring = f->settings.loss == LOSS_RING_DTP;
            for (int g = 0; g < (ring ? group_count : 1); g++) {
                f->settings.vocab_group = ring ? groups[g] : 0;
                visit(w, f);
            }
        }
}

/* Shard widths where state is sharded, the widest first. */
static void search_widths(struct worker *w, const struct body *body)
{
    const struct space *space = &w->space;
    int dense[SPACE_MAX_DIVISORS], expert[SPACE_MAX_DIVISORS];
    int dense_count = space_degree_values(space, DEGREE_FSDP, &body->degrees, dense);
    int expert_count = space_degree_values(space, DEGREE_E_FSDP, &body->degrees, expert);
    struct family f = { .degrees = body->degrees, .settings = body->settings };

    for (int s = space->sharding.count - 1; s >= 0; s--) {
        f.settings.sharding = (enum sharding)space->sharding.values[s];
        bool sharded = f.settings.sharding != SHARDING_REPLICATED;
        for (int i = dense_count - 1; i >= (sharded ? 0 : dense_count - 1); i--)
            for (int j = expert_count - 1; j >= (sharded && space->has_moe ? 0 : expert_count - 1);
                 j--) {
                f.degrees.fsdp = dense[i];
                f.degrees.e_fsdp = expert[j];
                struct body open = *body;
                if (bound_widths(w, &open, &f))
                    each_family(w, &f, open.open, family_search);
            }
    }
}

/* Asked of its plainest family: what is illegal in it is so in all. */
static bool body_is_legal(const struct worker *w, const struct body *body)
{
    const struct space *space = &w->space;
    struct settings settings = body->settings;
    struct choices choices;
    int groups[SPACE_MAX_DIVISORS];
    settings.sharding = (enum sharding)space->sharding.values[space->sharding.count - 1];
    settings.recompute = (enum recompute)space->recompute.values[space->recompute.count - 1];
    settings.loss = (enum loss)space->loss.values[0];
    space_complete(space, &body->degrees, &settings, &choices);
    if (settings.loss == LOSS_RING_DTP && space_vocab_groups(space, &choices.layout, groups) > 0)
        choices.primitives.vocab_group = groups[0];
    return space_is_legal(space, &choices);
}

static void search_body(struct worker *w, const struct body *body)
{
    struct body open = *body;
    if (body_is_legal(w, body) && bound_body(w, &open))
        search_widths(w, &open);
}

/* Schedules of the experts: so many chunks, side by side or under a cap. */
static int schedules_of(const struct space *space, struct settings *ret)
{
    int count = 0;
    for (int c = 0; c < space->chunks.count; c++)
        for (int k = 0; k < space->capped.count; k++) {
            bool capped = space->capped.values[k] != 0;
            if (capped && space->chunks.values[c] == 1)
                continue;
            ret[count++] = (struct settings){ .chunks = space->chunks.values[c], .capped = capped };
        }
    return count;
}

struct kinds {
    struct knob linear, context, exchange, attention;
    int schedule_count;
    struct settings schedules[2 * SPACE_MAX_VALUES];
};

static void kinds_init(const struct space *space, const struct degrees *d, struct kinds *ret)
{
    ret->linear = space_linear_contexts(space, d->cp);
    ret->context = space_contexts(space, d->cp);
    ret->exchange = space_exchanges(space, d->ep);
    ret->attention = space->attention;
    ret->schedule_count = schedules_of(space, ret->schedules);
}

/* Layouts of one body: what its families have, whatever is skipped. */
static uint64_t body_layouts(const struct worker *w, const struct body *body)
{
    const struct space *space = &w->space;
    struct degrees degrees = body->degrees;
    struct choices choices;
    int values[SPACE_MAX_DIVISORS];
    uint64_t tiles = 0, members = 0, widths = 0;
    uint64_t dense = (uint64_t)space_degree_values(space, DEGREE_FSDP, &degrees, values);
    uint64_t expert = (uint64_t)space_degree_values(space, DEGREE_E_FSDP, &degrees, values);
    space_complete(space, &degrees, &body->settings, &choices);
    for (int l = 0; l < space->loss.count; l++) {
        enum loss loss = (enum loss)space->loss.values[l];
        bool ring = loss == LOSS_RING_DTP;
        tiles += ring ? (uint64_t)space_vocab_groups(space, &choices.layout, values)
                      : (uint64_t)family_tiles(space, &choices.layout, loss).count;
    }
    struct settings settings = body->settings;
    for (settings.offload = 0; settings.offload <= offload_most(space); settings.offload++)
        for (int a = 0; a < space->attention.count; a++) {
            struct variants variants;
            settings.keep_attention = space->attention.values[a];
            variants_init(space, &choices.layout, &settings, &variants);
            members += (uint64_t)variants.count;
        }
    for (int s = 0; s < space->sharding.count; s++) {
        enum sharding sharding = (enum sharding)space->sharding.values[s];
        uint64_t levels = (uint64_t)family_levels(space, sharding).count;
        bool sharded = sharding != SHARDING_REPLICATED;
        widths += levels * (sharded ? dense * (space->has_moe ? expert : 1) : 1);
    }
    return tiles * members * widths;
}

static void each_schedule(struct worker *w, const struct body *context, const struct kinds *kinds,
                          bool capped)
{
    struct body body = *context;
    for (int c = 0; c < kinds->schedule_count; c++)
        for (int e = 0; e < kinds->exchange.count; e++) {
            if (kinds->schedules[c].capped != capped)
                continue;
            body.settings = kinds->schedules[c];
            body.settings.linear_context = context->settings.linear_context;
            body.settings.context = context->settings.context;
            body.settings.keep_attention = context->settings.keep_attention;
            body.settings.exchange = (enum exchange)kinds->exchange.values[e];
            search_body(w, &body);
        }
}

/* False when a first stage of more layers is of no interest either. */
static bool each_cap(struct worker *w, const struct body *context, const struct kinds *kinds)
{
    bool more = false;
    for (int k = 0; k < w->space.capped.count; k++) {
        bool capped = w->space.capped.values[k] != 0;
        struct body open = *context;
        bool any = bound_context(w, &open, capped);
        if (any)
            each_schedule(w, &open, kinds, capped);
        more = more || any || !first_is_hopeless(w, context, capped);
    }
    return more;
}

/* What recomputed layers keep of attention. */
static bool each_attention(struct worker *w, struct body *body, const struct layout *layout,
                           const struct kinds *kinds)
{
    bool more = false;
    for (int a = 0; a < kinds->attention.count; a++) {
        body->settings.keep_attention = kinds->attention.values[a];
        variants_init(&w->space, layout, &body->settings, &body->variants);
        if (body->variants.count > 0)
            more = each_cap(w, body, kinds) || more;
    }
    return more;
}

/* One micro-batch, interleaving and last stage: every body. */
static bool each_body(struct worker *w, const struct degrees *degrees, const struct kinds *kinds)
{
    const struct space *space = &w->space;
    struct least_seconds least[PLACES], first[PLACES];
    struct body body = { .degrees = *degrees, .least = least, .first_least = first };
    struct choices choices;
    bool more = false;
    space_complete(space, degrees, &body.settings, &choices);
    least_seconds_init(w, degrees, least, first);
    for (unsigned offload = offload_least(space); offload <= offload_most(space); offload++)
        body.open[place_of(space, offload)] = true;
    for (int l = 0; l < kinds->linear.count; l++)
        for (int x = 0; x < kinds->context.count; x++) {
            body.settings = kinds->schedules[0];
            body.settings.linear_context = (enum linear_context)kinds->linear.values[l];
            body.settings.context = (enum context)kinds->context.values[x];
            body.settings.exchange = (enum exchange)kinds->exchange.values[0];
            if (body_is_legal(w, &body))
                more = each_attention(w, &body, &choices.layout, kinds) || more;
        }
    return more;
}

static void count_bodies(struct worker *w, const struct degrees *degrees, const struct kinds *kinds)
{
    struct body body = { .degrees = *degrees, .settings = kinds->schedules[0] };
    uint64_t bodies = (uint64_t)kinds->schedule_count * (uint64_t)kinds->linear.count *
                      (uint64_t)kinds->context.count * (uint64_t)kinds->exchange.count;
    w->layouts += bodies * body_layouts(w, &body);
}

/* Whether the plainest batch of a factorization is legal in any context: what is illegal in it is
 * so in all. */
static bool is_possible(const struct worker *w, const struct degrees *degrees,
                        const struct kinds *kinds)
{
    struct body body = { .degrees = *degrees };
    for (int l = 0; l < kinds->linear.count; l++)
        for (int x = 0; x < kinds->context.count; x++) {
            body.settings = kinds->schedules[0];
            body.settings.linear_context = (enum linear_context)kinds->linear.values[l];
            body.settings.context = (enum context)kinds->context.values[x];
            body.settings.exchange = (enum exchange)kinds->exchange.values[0];
            if (body_is_legal(w, &body))
                return true;
        }
    return false;
}

/* The last stage as even as it can be, and lighter, until the first one has too many layers. */
static void each_end(struct worker *w, const struct degrees *outer, const struct kinds *kinds)
{
    int values[MODEL_MAX_LAYERS];
    int count = space_lighter_values(&w->space, outer, values);
    struct degrees degrees = *outer;
    bool more = true;
    for (int i = 0; i < count; i++) {
        degrees.lighter = values[i];
        count_bodies(w, &degrees, kinds);
        more = more && each_body(w, &degrees, kinds);
    }
}

void worker_search(struct worker *w, uint64_t unit, const struct degrees *outer)
{
    int sizes[SPACE_MAX_DIVISORS], interleavings[SPACE_MAX_DIVISORS];
    int size_count = space_micro_batch_values(&w->space, outer, sizes);
    int vpp_count = space_vpp_values(&w->space, outer, interleavings);
    struct degrees degrees = *outer;
    struct kinds kinds;
    kinds_init(&w->space, outer, &kinds);
    w->unit = unit;
    w->member = 0;
    degrees.micro_batch = sizes[0];
    degrees.vpp = interleavings[0];
    if (!is_possible(w, &degrees, &kinds))
        return;
    w->possible = true;
    for (int b = 0; b < size_count; b++)
        for (int v = 0; v < vpp_count; v++) {
            degrees.micro_batch = sizes[b];
            degrees.vpp = interleavings[v];
            each_end(w, &degrees, &kinds);
        }
}

/* The smallest micro-batch, a stage in one piece, experts in the most chunks, the state over all
 * ranks: a member of each family. */
void worker_probe(struct worker *w, uint64_t unit, const struct degrees *outer)
{
    static const bool all[PLACES] = { true, true };
    const struct space *space = &w->space;
    int values[SPACE_MAX_DIVISORS];
    struct family f = { .degrees = *outer };
    struct kinds kinds;
    kinds_init(space, outer, &kinds);
    w->unit = unit;
    w->member = UINT64_MAX; /* of equals what the search finds itself comes first */
    (void)space_micro_batch_values(space, outer, values);
    f.degrees.micro_batch = values[0];
    (void)space_vpp_values(space, outer, values);
    f.degrees.vpp = values[0];
    if (!is_possible(w, &f.degrees, &kinds))
        return;
    for (int l = 0; l < kinds.linear.count; l++)
        for (int x = 0; x < kinds.context.count; x++) {
            f.settings = kinds.schedules[kinds.schedule_count - 1];
            f.settings.linear_context = (enum linear_context)kinds.linear.values[l];
            f.settings.context = (enum context)kinds.context.values[x];
            f.settings.exchange = (enum exchange)kinds.exchange.values[0];
            f.settings.sharding = (enum sharding)space->sharding.values[space->sharding.count - 1];
            each_family(w, &f, all, family_probe);
        }
}
