/* family.c - the layouts of one factorization. Skipped are, each because of what budgets and times
 * are sums of (tests judge every layout and find the same):
 * - shard widths where nothing is sharded, what runs ahead where nothing is gathered;
 * - a factorization whose layers alone, kept and without any collective of state, take longer than
 *   the best (every other item of a step is at least 0);
 * - a family (one sharding, width, loss, offload) whose fastest members take longer than the best:
 *   those which keep all layers and have the largest tiles, whatever runs ahead. A replay adds r
 *   and hides at most r more of a reduction; a larger tile reads the head's weights less often;
 * - a family whose floor exceeds the limit: state, communicators, checkpoints, inputs and the loss
 *   are there whatever is recomputed and gathered ahead;
 * - layouts whose own floor, with what their layers save, exceeds the limit;
 * - in a family the layouts that recompute more than the first that fits: they take no less time.
 */
#include "planner/search/family.h"

#include <string.h>

enum { FRONT_STEPS = 8 };

int worker_init(struct worker *worker, const struct space *space, struct shared_search *shared)
{
    struct budget_input facts = space_budget_input(space, NULL);
    memset(worker, 0, sizeof *worker);
    worker->shared = shared;
    worker->space = *space;
    worker->estimator = estimator_open(&facts);
    if (!worker->estimator || (shared->front && front_init(&worker->front)))
        return -1;
    return 0;
}

void worker_done(struct worker *worker)
{
    estimator_close(worker->estimator);
    front_done(&worker->front);
}

bool score_better(const struct score *a, const struct score *b)
{
    if (a->first < b->first || a->first > b->first)
        return a->first < b->first;
    if (a->second < b->second || a->second > b->second)
        return a->second < b->second;
    return a->unit != b->unit ? a->unit < b->unit : a->member < b->member;
}

static double bound_of(const struct worker *w)
{
    uint64_t bits = atomic_load_explicit(&w->shared->bound, memory_order_relaxed);
    double bound;
    memcpy(&bound, &bits, sizeof bound);
    return bound;
}

/* Scores are positive, so that their bits are ordered as they are. */
static void lower_bound(struct worker *w, double first)
{
    uint64_t bits, now = atomic_load_explicit(&w->shared->bound, memory_order_relaxed);
    memcpy(&bits, &first, sizeof bits);
    while (bits < now &&
           !atomic_compare_exchange_weak_explicit(&w->shared->bound, &now, bits,
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
}

/* Whether nothing that takes `seconds` and `bytes`, or more of both, is of interest. */
static bool is_hopeless(const struct worker *w, double seconds, uint64_t bytes)
{
    const struct shared_search *shared = w->shared;
    if (shared->skip_nothing)
        return false;
    if (shared->goal != GOAL_SMALLEST && bytes > w->space.limit_bytes)
        return true;
    if (shared->front)
        return front_covers(&w->front, seconds, bytes);
    return (shared->goal == GOAL_SMALLEST ? (double)bytes : seconds) > bound_of(w);
}

static bool is_wanted(const struct worker *w, const struct peaks *peaks)
{
    uint64_t limit = w->space.limit_bytes;
    if (peaks->host_bytes > space_host_room(&w->space))
        return false;
    switch (w->shared->goal) {
    case GOAL_FITS:
        return peaks->peak_upper_bytes <= limit;
    case GOAL_TIGHT:
        return peaks->peak_bytes <= limit;
    case GOAL_SMALLEST:
        break;
    }
    return true;
}

/* Judges one layout; true when it is as wanted. */
static bool judge(struct worker *w, const struct choices *choices, double seconds)
{
    struct peaks peaks;
    struct score score = { .unit = w->unit, .member = w->member };
    w->judged++;
    estimator_peaks(w->estimator, choices, &peaks);
    if (!is_wanted(w, &peaks))
        return false;
    double bytes = (double)peaks.peak_upper_bytes;
    bool smallest = w->shared->goal == GOAL_SMALLEST;
    score.first = smallest ? bytes : seconds;
    score.second = smallest ? seconds : bytes;
    if (w->shared->front)
        front_add(&w->front, w->unit, seconds, peaks.peak_upper_bytes, choices);
    if (w->any && !score_better(&score, &w->best_score))
        return true;
    w->any = true;
    w->best_score = score;
    w->best = *choices;
    lower_bound(w, score.first);
    return true;
}

/* Layers to recompute: none, the first 1 to L - 1, all; the fastest first. For a front only every
 * eighth of the layers. */
struct variants {
    int count, step;
    bool keeps;     /* the first of them recomputes nothing */
    bool all_first; /* under full recompute: as fixed, or all layers */
    int layers;     /* of the largest stage */
};

static struct variants variants_of(const struct worker *w, const struct layout *l, unsigned offload)
{
    const struct space *space = &w->space;
    struct variants v = { .step = 1 };
    bool full = false;
    for (int i = 0; i < space->recompute.count; i++) {
        v.keeps |= space->recompute.values[i] == RECOMPUTE_NONE;
        full |= space->recompute.values[i] == RECOMPUTE_FULL;
    }
    for (int s = 0; s < l->pp && s < LAYOUT_MAX_STAGES; s++)
        v.layers = l->stage_layers[s] > v.layers ? l->stage_layers[s] : v.layers;
    if (full && (offload & OFFLOAD_CHECKPOINTS))
        v.keeps = false; /* none keeps no checkpoints */
    v.all_first = full && !space->open_recompute_layers;
    if (w->shared->front && v.layers > FRONT_STEPS)
        v.step = (v.layers + FRONT_STEPS - 1) / FRONT_STEPS;
    v.count = v.keeps + (!full ? 0 : v.all_first ? 1 : (v.layers + v.step - 1) / v.step);
    return v;
}

static void set_variant(const struct variants *v, int index, struct settings *settings)
{
    int recomputed = (index + (v->keeps ? 0 : 1)) * v->step;
    settings->recompute = recomputed == 0 ? RECOMPUTE_NONE : RECOMPUTE_FULL;
    settings->recompute_layers = v->all_first || recomputed >= v->layers ? 0 : recomputed;
}

/* Tiles of the loss, the fastest first; what is not larger than the tokens of a rank. */
static struct knob tiles_of(const struct space *space, const struct layout *l)
{
    static const int sizes[] = { 4096, 2048, 1024, LOSS_TILE_TOKENS };
    uint64_t tokens = layout_local_tokens(l, space->q->seq_tokens);
    struct knob knob = { .count = 0 };
    for (int i = 0; space->open_tile && i < 4; i++)
        if ((uint64_t)sizes[i] <= tokens || sizes[i] == LOSS_TILE_TOKENS)
            knob.values[knob.count++] = sizes[i];
    return knob.count > 0 ? knob : (struct knob){ .count = 1, .values = { 0 } };
}

struct family {
    struct degrees degrees;
    struct settings settings; /* all but recompute, ahead, tile */
    struct variants variants;
    struct knob tiles;
    int depths; /* of what runs ahead */
};

static double seconds_of(struct worker *w, const struct choices *choices)
{
    struct step_time time;
    estimator_time(w->estimator, choices, &time);
    return time.seconds;
}

static void complete(const struct worker *w, const struct family *f, int tile, int ahead,
                     int variant, struct choices *ret)
{
    struct settings settings = f->settings;
    settings.tile = f->tiles.values[tile];
    settings.ahead = (enum ahead)w->space.ahead.values[ahead];
    set_variant(&f->variants, variant, &settings);
    space_complete(&w->space, &f->degrees, &settings, ret);
}

/* The first member whose floor is within the limit: floors fall from member to member. */
static int first_possible(struct worker *w, const struct family *f, int tile, int ahead)
{
    struct choices choices;
    int low = -1, high = f->variants.count - 1;
    if (w->shared->skip_nothing || w->shared->goal == GOAL_SMALLEST)
        return 0;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        complete(w, f, tile, ahead, middle, &choices);
        if (estimator_floor(w->estimator, &choices) > w->space.limit_bytes)
            low = middle;
        else
            high = middle;
    }
    return low + 1;
}

/* Members that differ in what is recomputed. */
static void search_variants(struct worker *w, const struct family *f, int tile, int ahead,
                            uint64_t floor)
{
    const struct shared_search *shared = w->shared;
    bool all = shared->skip_nothing || shared->front || shared->goal == GOAL_SMALLEST;
    struct choices choices;
    for (int v = first_possible(w, f, tile, ahead); v < f->variants.count; v++) {
        complete(w, f, tile, ahead, v, &choices);
        double seconds = seconds_of(w, &choices);
        w->member++;
        if (is_hopeless(w, seconds, floor)) {
            if (all)
                continue;
            return;
        }
        if (judge(w, &choices, seconds) && !all)
            return;
    }
}

/* Of the members that keep most and have the largest tiles. */
static double least_seconds(struct worker *w, const struct family *f)
{
    double least = 0;
    for (int ahead = 0; ahead < f->depths; ahead++) {
        struct choices choices;
        complete(w, f, 0, ahead, 0, &choices);
        double seconds = seconds_of(w, &choices);
        least = ahead == 0 || seconds < least ? seconds : least;
    }
    return least;
}

static void search_family(struct worker *w, struct family *f)
{
    struct choices choices;
    f->variants = (struct variants){ .count = 1, .step = 1, .keeps = true };
    f->tiles = (struct knob){ .count = 1, .values = { 0 } };
    complete(w, f, 0, 0, 0, &choices);
    f->variants = variants_of(w, &choices.layout, f->settings.offload);
    f->tiles = tiles_of(&w->space, &choices.layout);
    f->depths = f->settings.sharding == SHARDING_FSDP ? w->space.ahead.count : 1;
    uint64_t size = (uint64_t)f->variants.count * (uint64_t)f->tiles.count * (uint64_t)f->depths;
    w->layouts += size;
    if (f->variants.count == 0)
        return;
    complete(w, f, f->tiles.count - 1, f->depths - 1, f->variants.count - 1, &choices);
    if (!space_is_legal(&w->space, &choices))
        return;
    w->legal += size;
    uint64_t floor = estimator_floor(w->estimator, &choices);
    if (is_hopeless(w, 0, floor))
        return;
    if (is_hopeless(w, least_seconds(w, f), floor))
        return;
    for (int tile = 0; tile < f->tiles.count; tile++)
        for (int ahead = 0; ahead < f->depths; ahead++)
            search_variants(w, f, tile, ahead, floor);
}

static void search_offloads(struct worker *w, struct family *f)
{
    unsigned most = w->space.open_offload ? OFFLOAD_CHECKPOINTS | OFFLOAD_OPTIMIZER : 0;
    for (unsigned offload = 0; offload <= most; offload++) {
        f->settings.offload = offload;
        for (int l = 0; l < w->space.loss.count; l++) {
            f->settings.loss = (enum loss)w->space.loss.values[l];
            search_family(w, f);
        }
    }
}

/* Shard widths where state is sharded. */
static void search_widths(struct worker *w, struct family *f)
{
    const struct space *space = &w->space;
    int dense[SPACE_MAX_DIVISORS], expert[SPACE_MAX_DIVISORS];
    int dense_count = space_degree_values(space, DEGREE_FSDP, &f->degrees, dense);
    int expert_count = space_degree_values(space, DEGREE_E_FSDP, &f->degrees, expert);

    for (int s = space->sharding.count - 1; s >= 0; s--) {
        f->settings.sharding = (enum sharding)space->sharding.values[s];
        bool sharded = f->settings.sharding != SHARDING_REPLICATED;
        for (int i = sharded ? 0 : dense_count - 1; i < dense_count; i++)
            for (int j = sharded && space->has_moe ? 0 : expert_count - 1; j < expert_count; j++) {
                f->degrees.fsdp = dense[i];
                f->degrees.e_fsdp = expert[j];
                search_offloads(w, f);
            }
    }
}

/* One schedule of the experts and one linear context. */
static void search_body(struct worker *w, const struct degrees *degrees, int chunks,
                        enum linear_context linear)
{
    struct family family = { .degrees = *degrees };
    struct choices choices;
    family.settings.chunks = chunks;
    family.settings.linear_context = linear;
    family.settings.sharding = (enum sharding)w->space.sharding.values[0];
    family.settings.recompute = (enum recompute)w->space.recompute.values[0];
    family.settings.loss = (enum loss)w->space.loss.values[0];
    family.settings.ahead = (enum ahead)w->space.ahead.values[0];
    space_complete(&w->space, degrees, &family.settings, &choices);
    if (!w->shared->skip_nothing &&
        is_hopeless(w, estimator_least_seconds(w->estimator, &choices), 0))
        return;
    search_widths(w, &family);
}

/* The plainest layout of a factorization: one micro-batch size, no interleaving, all ranks share
 * state. What is illegal in it is so in all. */
static bool is_possible(const struct worker *w, const struct degrees *degrees)
{
    struct settings settings = space_leanest(&w->space);
    struct knob linear = space_linear_contexts(&w->space, degrees->cp);
    struct choices choices;
    for (int c = 0; c < w->space.chunks.count; c++)
        for (int x = 0; x < linear.count; x++) {
            settings.chunks = w->space.chunks.values[c];
            settings.linear_context = (enum linear_context)linear.values[x];
            space_complete(&w->space, degrees, &settings, &choices);
            if (space_is_legal(&w->space, &choices))
                return true;
        }
    return false;
}

void worker_search(struct worker *w, uint64_t unit, const struct degrees *outer)
{
    int sizes[SPACE_MAX_DIVISORS], interleavings[SPACE_MAX_DIVISORS];
    int size_count = space_micro_batch_values(&w->space, outer, sizes);
    int vpp_count = space_vpp_values(&w->space, outer, interleavings);
    struct knob linear = space_linear_contexts(&w->space, outer->cp);
    struct degrees degrees = *outer;

    w->unit = unit;
    w->member = 0;
    degrees.micro_batch = sizes[0];
    degrees.vpp = interleavings[0];
    if (!w->shared->skip_nothing && !is_possible(w, &degrees)) {
        w->layouts++;
        return;
    }
    for (int b = 0; b < size_count; b++)
        for (int v = 0; v < vpp_count; v++)
            for (int c = 0; c < w->space.chunks.count; c++)
                for (int x = 0; x < linear.count; x++) {
                    degrees.micro_batch = sizes[b];
                    degrees.vpp = interleavings[v];
                    search_body(w, &degrees, w->space.chunks.values[c],
                                (enum linear_context)linear.values[x]);
                }
}
