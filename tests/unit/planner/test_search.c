/* Brute force against a second enumeration that skips nothing. */
#include "planner/predict/predictor.h"
#include "planner/predict/range.h"
#include "planner/search/search.h"
#include "planner/search/space.h"
#include "test_derive_fixture.h"
#include "tests/support/near.h"

#include <stdlib.h>

enum { POINTS = 4096 };

/* A layout that fits. */
struct layout_seen {
    double slowest, expected; /* seconds: the upper end of the range, the point estimate */
    uint64_t bytes;
    int complexity;
};

/* What no other layout that fits beats in both. */
struct point {
    double seconds;
    uint64_t bytes;
};

/* Counts everything it looks at and keeps the fastest that fits, the smallest and the front. */
struct plain {
    const struct ask *ask;
    struct predictor *predictor, *slowest;
    uint64_t limit;
    size_t seen_count, seen_room;
    struct layout_seen *seen;
    double seconds;    /* of the fastest */
    uint64_t smallest; /* and how fast what is as small is: */
    double smallest_seconds;
    long fitting, looked;
    bool everything;
    int points;
    struct point front[POINTS]; /* in no order */
};

static bool beats(const struct point *a, const struct point *b)
{
    return a->seconds <= b->seconds && a->bytes <= b->bytes;
}

static void add_point(struct plain *plain, struct point point)
{
    int kept = 0;
    for (int i = 0; i < plain->points; i++)
        if (beats(&plain->front[i], &point))
            return;
    for (int i = 0; i < plain->points; i++)
        if (!beats(&point, &plain->front[i]))
            plain->front[kept++] = plain->front[i];
    assert_true(kept < POINTS);
    plain->front[kept++] = point;
    plain->points = kept;
}

static void see(struct plain *plain, struct layout_seen seen)
{
    if (plain->seen_count == plain->seen_room) {
        plain->seen_room = plain->seen_room ? 2 * plain->seen_room : 1024;
        plain->seen = realloc(plain->seen, plain->seen_room * sizeof *plain->seen);
        assert_non_null(plain->seen);
    }
    plain->seen[plain->seen_count++] = seen;
}

static void look(struct plain *plain, const struct choices *choices)
{
    const struct question *q = &plain->ask->q;
    struct rank_budget worst;
    struct step_time time;
    if (!ask_is_legal(plain->ask, choices))
        return;
    predictor_choose(plain->predictor, choices, NULL);
    budget_worst(plain->predictor, &worst);
    plain->looked++;
    if (worst.host_bytes > question_host_room(q))
        return;
    if (worst.peak_upper_bytes > plain->smallest && worst.peak_upper_bytes > plain->limit)
        return;
    step_time_compute(plain->predictor, &time);
    double seconds = predictor_slowest_seconds(plain->slowest, choices);
    if (worst.peak_upper_bytes < plain->smallest)
        plain->smallest_seconds = 1e300;
    if (worst.peak_upper_bytes <= plain->smallest) {
        plain->smallest = worst.peak_upper_bytes;
        if (seconds < plain->smallest_seconds)
            plain->smallest_seconds = seconds;
    }
    if (worst.peak_upper_bytes > plain->limit)
        return;
    plain->fitting++;
    add_point(plain, (struct point){ seconds, worst.peak_upper_bytes });
    see(plain, (struct layout_seen){ seconds, time.seconds, worst.peak_upper_bytes,
                                     choices_complexity(choices) });
    if (seconds < plain->seconds)
        plain->seconds = seconds;
}

/* Recompute of nothing, of the first 1 to all layers, of all or of all but attention; tiles of all
 * sizes. */
static void look_at_layers(struct plain *plain, struct choices *c)
{
    struct primitives *p = &c->primitives;
    static const int tiles[] = { 512, 1024, 2048, 4096 };
    int layers = plain->ask->model.layers;
    for (int n = 0; n <= layers; n++)
        for (int t = 0; t < 4; t++) {
            if (n > c->layout.stage_layers[0] && n < layers)
                continue;
            if (tiles[t] > 512 &&
                (uint64_t)tiles[t] > layout_local_tokens(&c->layout, plain->ask->q.seq_tokens))
                continue;
            p->recompute = n > 0 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
            p->recompute_layers = n == 0 || n == layers ? RECOMPUTE_ALL_LAYERS : n;
            p->loss_tile_tokens = tiles[t];
            for (p->keep_attention = 0; p->keep_attention <= (n > 0); p->keep_attention++)
                look(plain, c);
            p->keep_attention = 0;
        }
}

static void look_at_offloads(struct plain *plain, struct choices *c)
{
    struct primitives *p = &c->primitives;
    uint64_t half = plain->ask->hardware.host_memory_bytes / 8 / 2; /* of a GPU's share */
    for (unsigned offload = 0; offload < (plain->everything ? 4U : 1U); offload++) {
        p->offload = offload;
        p->sco_host_bytes = !(offload & OFFLOAD_CHECKPOINTS) ? 0
                            : offload & OFFLOAD_OPTIMIZER    ? half / 2
                                                             : half;
        look_at_layers(plain, c);
    }
}

/* Losses, with every group that may share a vocabulary; legality judges. */
static void look_at_losses(struct plain *plain, struct choices *c)
{
    struct primitives *p = &c->primitives;
    for (int loss = 0; loss < (plain->everything ? LOSS_COUNT : LOSS_RING_DTP); loss++)
        for (int group = 1; group <= (loss == LOSS_RING_DTP ? plain->ask->q.gpus : 1); group++) {
            p->loss = (enum loss)loss;
            p->vocab_group = group;
            look_at_offloads(plain, c);
        }
    p->vocab_group = 1;
}

/* Sharding, gathers of the next unit, a stream for reductions. */
static void look_at_state(struct plain *plain, struct choices *c)
{
    struct primitives *p = &c->primitives;
    for (int sharding = 0; sharding < SHARDING_COUNT; sharding++)
        for (int ahead = 0; ahead < 4; ahead++) {
            p->sharding = (enum sharding)sharding;
            p->prefetch_units = ahead & 1;
            p->comm_streams = 1 + ahead / 2;
            bool only_wider = p->sharding == SHARDING_ZERO2 || (ahead == 2);
            if (only_wider && !plain->everything)
                continue;
            look_at_losses(plain, c);
        }
}

/* Plain, in chunks, and under the cap that makes as many chunks. */
static void look_at_schedules(struct plain *plain, struct choices *c)
{
    static const int chunks[] = { 1, 2, 3, 4, 5, 6, 8, 12, 16 };
    struct primitives *p = &c->primitives;
    uint64_t tokens =
        layout_local_tokens(&c->layout, plain->ask->q.seq_tokens) / (uint64_t)c->layout.tp;
    bool fixed = choice_is_fixed(&plain->ask->q.fixed, "moe_chunks");
    int most = plain->ask->model.moe.experts == 0 ? 1 : plain->everything ? 9 : 4;
    for (int i = 0; i < most; i++)
        for (int moe = 0; moe < (plain->everything ? MOE_COUNT : MOE_CAPPED); moe++) {
            uint64_t n = (uint64_t)chunks[i];
            if (fixed && chunks[i] != plain->ask->q.fixed.values.primitives.moe_chunks)
                continue;
            p->moe = (enum moe_schedule)moe;
            p->moe_chunks = chunks[i];
            p->moe_cap_tokens = moe == MOE_CAPPED ? (tokens + n - 1) / n : 0;
            for (int copy = 0; copy < (plain->everything ? EXCHANGE_COUNT : 1); copy++) {
                p->exchange = (enum exchange)copy;
                look_at_state(plain, c);
            }
        }
}

static void look_at_contexts(struct plain *plain, struct choices *c)
{
    struct primitives *p = &c->primitives;
    bool linear = c->layout.cp > 1;
    int most = plain->everything ? CONTEXT_COUNT : CONTEXT_ULYSSES;

    for (int context = 0; context < most; context++)
        for (int l = 0; l < (linear ? LINEAR_CONTEXT_COUNT : 1); l++) {
            p->context = (enum context)context;
            p->linear_context = (enum linear_context)l;
            p->recompute = RECOMPUTE_FULL;
            p->loss = LOSS_LINEAR_CE;
            p->moe = MOE_PLAIN;
            p->moe_chunks = 1;
            p->moe_cap_tokens = 0;
            p->exchange = EXCHANGE_SM;
            p->offload = 0;
            p->sco_host_bytes = 0;
            p->loss_tile_tokens = LOSS_TILE_TOKENS;
            p->recompute_layers = RECOMPUTE_ALL_LAYERS;
            if (ask_is_legal(plain->ask, c)) /* what is illegal so far is so in all */
                look_at_schedules(plain, c);
        }
}

/* The last of stages in one piece with any number of layers up to its even share, of which the
 * others have the rest. */
static void look_at_ends(struct plain *plain, struct choices *c)
{
    struct layout *l = &c->layout;
    int layers = plain->ask->model.layers, others = l->pp - 1;
    look_at_contexts(plain, c);
    for (int last = l->stage_layers[others] - 1; others > 0 && l->vpp == 1 && last > 0; last--) {
        for (int stage = 0; stage < others; stage++)
            l->stage_layers[stage] = (layers - last) / others + (stage < (layers - last) % others);
        l->stage_layers[others] = last;
        look_at_contexts(plain, c);
    }
    layout_split_layers(l, layers);
}

/* Micro-batches of one sequence or more, stages in one piece or several. */
static void look_at_batches(struct plain *plain, struct choices *c)
{
    int sequences = c->layout.micro_batches;
    int interleavings = plain->everything && c->layout.pp > 1 ? c->layout.stage_layers[0] : 1;
    for (int size = 1; size <= (plain->everything ? sequences : 1); size++)
        for (int vpp = 1; vpp <= interleavings; vpp++) {
            c->layout.micro_batch = size;
            c->layout.micro_batches = sequences / size;
            c->layout.vpp = vpp;
            if (sequences % size == 0)
                look_at_ends(plain, c);
        }
}

/* Every pair of shard widths of one set of degrees; 1 to world in all places, legality judges. */
static void look_at_widths(struct plain *plain, struct choices *c, int tp, int pp, int cp, int ep,
                           int etp)
{
    int gpus = plain->ask->q.gpus;
    int dp = gpus / (tp * pp * cp), e_dp = gpus / (pp * ep * etp);

    for (int fsdp = 1; fsdp <= dp; fsdp++)
        for (int e_fsdp = 1; e_fsdp <= e_dp; e_fsdp++) {
            if (dp % fsdp || e_dp % e_fsdp)
                continue;
            c->layout = (struct layout){ .tp = tp,
                                         .pp = pp,
                                         .vpp = 1,
                                         .cp = cp,
                                         .ep = ep,
                                         .etp = etp,
                                         .fsdp = fsdp,
                                         .d_rep = dp / fsdp,
                                         .e_fsdp = e_fsdp,
                                         .e_rep = e_dp / e_fsdp,
                                         .micro_batch = 1,
                                         .micro_batches =
                                             (int)(question_global_batch(&plain->ask->q) / dp) };
            layout_split_layers(&c->layout, plain->ask->model.layers);
            look_at_batches(plain, c);
        }
}

static void look_at_all(struct plain *plain)
{
    struct choices c = { .primitives = primitives_default() };
    const struct question *q = &plain->ask->q;
    int gpus = q->gpus, fixed = q->fixed.values.layout.pp; /* or 0 */
    const struct budget_input facts = {
        .model = q->model,
        .sizes = q->sizes,
        .hardware = q->hardware,
        .gpus = q->gpus,
        .seq_tokens = q->seq_tokens,
        .routing = q->routing,
        .routing_quantile = q->routing_quantile,
    };

    plain->predictor = predictor_open(&facts, PREDICTOR_MANY_LAYOUTS);
    plain->slowest = predictor_open_slowest(&facts, PREDICTOR_MANY_LAYOUTS);
    assert_non_null(plain->predictor);
    assert_non_null(plain->slowest);
    plain->seen_count = 0;
    plain->limit = question_limit_bytes(&plain->ask->q);
    plain->seconds = plain->smallest_seconds = 1e300;
    plain->smallest = UINT64_MAX;
    plain->fitting = plain->looked = plain->points = 0;
    for (int tp = 1; tp <= gpus; tp++)
        for (int pp = fixed > 0 ? fixed : 1; pp <= (fixed > 0 ? fixed : gpus / tp); pp++)
            for (int cp = 1; cp <= gpus / tp / pp; cp++)
                for (int ep = 1; ep <= gpus / pp; ep++)
                    for (int etp = 1; etp <= gpus / pp / ep; etp++)
                        if (gpus % (tp * pp * cp) == 0 && gpus % (pp * ep * etp) == 0)
                            look_at_widths(plain, &c, tp, pp, cp, ep, etp);
    predictor_close(plain->predictor);
    predictor_close(plain->slowest);
}

/* The best by its definition, pass by pass: within `share` of the shortest step, of these within it
 * of the shortest expected; the most memory to spare in hundredths of the limit, the simplest, the
 * shortest expected. */
static struct layout_seen best_seen(const struct plain *plain, double share)
{
    double expected = 1e300;
    struct layout_seen best = { .bytes = UINT64_MAX };
    uint64_t unit = plain->limit / 100 + 1, units = UINT64_MAX;
    for (size_t i = 0; i < plain->seen_count; i++)
        if (plain->seen[i].slowest <= plain->seconds * (1 + share) &&
            plain->seen[i].expected < expected)
            expected = plain->seen[i].expected;
    for (size_t i = 0; i < plain->seen_count; i++) {
        struct layout_seen s = plain->seen[i];
        uint64_t own = (s.bytes + unit - 1) / unit;
        if (s.slowest > plain->seconds * (1 + share) || s.expected > expected * (1 + share) ||
            own > units)
            continue;
        if (own < units || s.complexity < best.complexity ||
            (s.complexity == best.complexity && s.expected < best.expected))
            best = s;
        units = own;
    }
    return best;
}

/* The upper end of the range as the report prints it, by code that the search does not use. */
static double printed_upper_end(const struct ask *ask, const struct choices *choices)
{
    const struct budget_input facts = {
        .model = ask->q.model,
        .sizes = ask->q.sizes,
        .hardware = ask->q.hardware,
        .choices = choices,
        .gpus = ask->q.gpus,
        .seq_tokens = ask->q.seq_tokens,
        .routing = ask->q.routing,
        .routing_quantile = ask->q.routing_quantile,
    };
    struct predictor *predictor = predictor_open(&facts, PREDICTOR_ONE_LAYOUT);
    struct step_time time;
    struct time_range range;
    assert_non_null(predictor);
    predictor_choose(predictor, choices, NULL);
    step_time_compute(predictor, &time);
    assert_int_equal(step_time_range(predictor, &time, &range), 0);
    predictor_close(predictor);
    return range.slowest;
}

static void compare_best(const struct ask *ask, const struct plain *plain, double share,
                         const struct candidate *best)
{
    struct layout_seen expected = best_seen(plain, share);
    uint64_t unit = plain->limit / 100 + 1;
    assert_int_equal(best->verdict, VERDICT_FITS);
    assert_int_equal((best->worst.peak_upper_bytes + unit - 1) / unit,
                     (expected.bytes + unit - 1) / unit);
    assert_int_equal(choices_complexity(&best->choices), expected.complexity);
    assert_near(best->time.seconds, expected.expected, 1e-9, "s");
    assert_near(best->slowest_seconds, printed_upper_end(ask, &best->choices), 1e-9, "s");
}

/* With and without proofs, on one thread and on two. */
static void search_both(const struct ask *ask, struct search_options options,
                        struct search_result *ret)
{
    static struct search_result whole;
    struct diag_list errors = { 0 };

    options.threads = 2;
    assert_int_equal(search_run(&ask->q, &options, ret, &errors), 0);
    options.threads = 1;
    options.skip_nothing = true;
    assert_int_equal(search_run(&ask->q, &options, &whole, &errors), 0);
    assert_true(ret->judged < whole.judged);
    assert_int_equal(ret->layouts, whole.layouts);
    assert_true(ask_is_legal(ask, &ret->best.choices));
    assert_memory_equal(&ret->best.choices, &whole.best.choices, sizeof whole.best.choices);
}

static const struct point *fastest_of(const struct plain *plain, uint64_t bytes)
{
    const struct point *fastest = NULL;
    for (int i = 0; i < plain->points; i++)
        if (plain->front[i].bytes <= bytes &&
            (!fastest || plain->front[i].seconds < fastest->seconds))
            fastest = &plain->front[i];
    return fastest;
}

/* Every member: between the ends, at fifteen even steps of bytes, the fastest that needs no more.
 */
static void compare_front(const struct ask *ask, const struct plain *plain)
{
    static struct search_result result;
    const struct search_options options = { .threads = 2,
                                            .everything = plain->everything,
                                            .host_memory = plain->everything,
                                            .front = true };
    const struct point *last = NULL;
    struct diag_list errors = { 0 };
    int members = 0;
    uint64_t most = fastest_of(plain, UINT64_MAX)->bytes, least = plain->smallest;
    assert_int_equal(search_run(&ask->q, &options, &result, &errors), 0);
    for (uint64_t i = 0; i <= 15; i++) {
        const struct point *point = fastest_of(plain, most - (most - least) * i / 15);
        if (point == last)
            continue;
        assert_true(members < result.front_count);
        const struct candidate *member = &result.front[members++];
        assert_near(member->slowest_seconds, point->seconds, 1e-9, "s");
        assert_int_equal(member->worst.peak_upper_bytes, point->bytes);
        last = point;
    }
    assert_int_equal(members, result.front_count);
    assert_true(members > 1);
}

static void compare(const struct ask *ask, bool everything)
{
    static struct search_result result;
    static struct plain plain;
    plain.ask = ask;
    plain.everything = everything;
    struct search_options options = { .everything = everything, .host_memory = everything };
    const struct candidate *best = &result.best;

    look_at_all(&plain);
    search_both(ask, options, &result);
    assert_true(result.judged <= (uint64_t)plain.looked);
    if (plain.fitting > 0) {
        assert_near(result.fastest_seconds, plain.seconds, 1e-9, "s");
        compare_best(ask, &plain, SEARCH_EQUALLY_FAST, best);
    } else {
        assert_int_not_equal(best->verdict, VERDICT_FITS);
        if (best->verdict == VERDICT_DOES_NOT_FIT)
            assert_int_equal(best->worst.peak_upper_bytes, plain.smallest);
    }
    options.objective = OBJECTIVE_HEADROOM;
    search_both(ask, options, &result);
    if (plain.fitting > 0) {
        compare_best(ask, &plain, SEARCH_HEADROOM, best);
        compare_front(ask, &plain);
    }
    free(plain.seen);
    plain.seen = NULL;
    plain.seen_room = 0;
}

/* From too little memory, in GiB, to enough. */
static void compare_over_memory(const char *model, int layers, int gpus, uint64_t seq,
                                bool everything, uint64_t little, uint64_t enough)
{
    const uint64_t memory_gib[] = { little, enough };
    static struct ask ask;

    for (size_t i = 0; i < sizeof memory_gib / sizeof *memory_gib; i++) {
        ask_init(&ask, model, "h100-sxm", gpus, seq);
        ask.model.layers = layers;
        ask_model_changed(&ask);
        ask.hardware.memory_bytes = memory_gib[i] << 30;
        ask_memory_changed(&ask);
        compare(&ask, everything);
    }
}

static void nothing_better_is_skipped_dense(void **state)
{
    (void)state;
    compare_over_memory("qwen3-0.6b", 2, 4, 2048, true, 2, 4);
}

/* Of a pipeline alone, whose last stage has a vocabulary that weighs as much as its layers. */
static void nothing_better_is_skipped_of_uneven_stages(void **state)
{
    static struct ask ask;
    static struct search_result result;
    const struct search_options options = { .everything = true, .host_memory = true };
    struct diag_list errors = { 0 };
    (void)state;
    ask_init(&ask, "qwen3-0.6b", "h100-sxm", 2, 8192);
    ask.model.layers = 7;
    ask_model_changed(&ask);
    ask.q.global_batch = 8;
    ask.hardware.memory_bytes = UINT64_C(24) << 30;
    ask_memory_changed(&ask);
    ask_set(&ask, "pp", "2");
    compare(&ask, true);
    assert_int_equal(search_run(&ask.q, &options, &result, &errors), 0);
    assert_true(result.best.choices.layout.stage_layers[1] < 3);
}

static void nothing_better_is_skipped_moe(void **state)
{
    (void)state;
    compare_over_memory("qwen3-30b-a3b", 2, 4, 8192, false, 3, 40);
}

static void nothing_better_is_skipped_hybrid(void **state)
{
    (void)state;
    compare_over_memory("qwen3.5-35b-a3b", 4, 2, 8192, false, 3, 9);
}

/* Two GPUs, every kind there is; chunks in twos alone, so that it ends. */
static void nothing_better_is_skipped_of_all_kinds(void **state)
{
    static const char *const models[] = { "qwen3.5-35b-a3b", "deepseek-v3.2" };
    static struct ask ask;
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        ask_init(&ask, models[i], "h100-sxm", 2, 1024);
        ask.model.layers = 2;
        ask.model.moe.experts = 8;
        ask.model.moe.top_k = 2;
        for (int layer = 0; layer < 2; layer++)
            ask.model.layer_ffn[layer] = FFN_MOE;
        if (i == 0)
            ask.model.layer_mixer[1] = MIXER_GQA;
        ask_model_changed(&ask);
        ask.hardware.memory_bytes = UINT64_C(16) << 30;
        ask_memory_changed(&ask);
        ask_set(&ask, "moe_chunks", "2");
        compare(&ask, true);
    }
}

/* Worlds of 1, 2 and 4 GPUs, each enumerated: the fewest on which something fits, and those on
 * which a token costs the least. */
static void objectives_over_worlds_are_those_of_brute_force(void **state)
{
    static struct ask ask;
    static struct search_result result;
    struct search_options options = { .threads = 2, .everything = true, .host_memory = true };
    struct diag_list errors = { 0 };
    int fewest = 0, cheapest = 0;
    double least = 1e300;
    (void)state;
    ask_init(&ask, "qwen3-0.6b", "h100-sxm", 4, 2048);
    ask.model.layers = 2;
    ask_model_changed(&ask);
    ask.hardware.memory_bytes = UINT64_C(4) << 30;
    ask_memory_changed(&ask);
    for (int gpus = 1; gpus <= 4; gpus *= 2) {
        static struct plain plain;
        plain.ask = &ask;
        plain.everything = true;
        ask.q.gpus = gpus;
        look_at_all(&plain);
        if (plain.fitting == 0)
            continue;
        double seconds = plain.seconds * gpus / (double)question_global_batch(&ask.q);
        fewest = fewest ? fewest : gpus;
        cheapest = seconds < least ? gpus : cheapest;
        least = seconds < least ? seconds : least;
    }
    assert_true(fewest > 1);
    ask.q.gpus = 4;
    options.objective = OBJECTIVE_GPUS;
    assert_int_equal(search_worlds(&ask.q, &options, &result, &errors), 0);
    assert_int_equal(result.gpus, fewest);
    options.objective = OBJECTIVE_GPU_HOURS;
    assert_int_equal(search_worlds(&ask.q, &options, &result, &errors), 0);
    assert_int_equal(result.gpus, cheapest);
    ask.q.gpus = result.gpus;
    assert_near(result.fastest_seconds * result.gpus / (double)question_global_batch(&ask.q), least,
                1e-9, "s");
}

/* The front: nothing on it is beaten, the fastest of it is the best, and every layout of a small
 * space is covered by some point. */
static void the_front_covers_all(void **state)
{
    static struct ask ask;
    static struct search_result result, whole;
    struct search_options options = { .threads = 2, .front = true };
    struct diag_list errors = { 0 };
    (void)state;

    ask_init(&ask, "qwen3-30b-a3b", "h100-sxm", 4, 8192);
    ask.model.layers = 4;
    ask_model_changed(&ask);
    assert_int_equal(search_run(&ask.q, &options, &result, &errors), 0);
    options.threads = 1;
    options.skip_nothing = true;
    assert_int_equal(search_run(&ask.q, &options, &whole, &errors), 0);
    assert_true(result.front_count > 2);
    assert_int_equal(result.front_count, whole.front_count);
    for (int i = 0; i < result.front_count; i++) {
        const struct candidate *c = &result.front[i], *d = &whole.front[i];
        assert_memory_equal(&c->choices, &d->choices, sizeof c->choices);
        if (i == 0)
            continue;
        assert_true(c->slowest_seconds > c[-1].slowest_seconds);
        assert_true(c->worst.peak_upper_bytes < c[-1].worst.peak_upper_bytes);
    }
    assert_near(result.front[0].slowest_seconds, result.fastest_seconds, 1e-12, "s");
    assert_true(result.best.slowest_seconds <= result.fastest_seconds * (1 + SEARCH_EQUALLY_FAST));
}

/* The fewest GPUs: nothing fits on fewer, asked one by one. */
static void the_fewest_gpus_are_found(void **state)
{
    static struct ask ask;
    static struct search_result result, one;
    struct search_options options = { .threads = 1, .objective = OBJECTIVE_GPUS };
    struct diag_list errors = { 0 };
    (void)state;

    ask_init(&ask, "qwen3-30b-a3b", "h100-sxm", 32, 8192);
    assert_int_equal(search_worlds(&ask.q, &options, &result, &errors), 0);
    assert_true(result.any && result.gpus > 1);
    options.objective = OBJECTIVE_THROUGHPUT;
    for (ask.q.gpus = 1; ask.q.gpus < result.gpus; ask.q.gpus++) {
        if (8 % ask.q.gpus != 0 && ask.q.gpus % 8 != 0)
            continue;
        assert_int_equal(search_run(&ask.q, &options, &one, &errors), 0);
        assert_int_not_equal(one.best.verdict, VERDICT_FITS);
    }
}

static void fixed_choices_bind_the_search(void **state)
{
    struct ask ask;
    struct candidate best;
    (void)state;
    ask_init(&ask, "qwen3-30b-a3b", "h100-sxm", 8, 8192);
    ask_set(&ask, "ep", "2");
    ask_set(&ask, "cp", "2");
    ask_set(&ask, "sharding", "fsdp");
    ask_set(&ask, "fsdp", "2");
    ask_set(&ask, "recompute", "full");
    search_all(&ask.q, &best);
    assert_int_equal(best.choices.layout.ep, 2);
    assert_int_equal(best.choices.layout.cp, 2);
    assert_int_equal(best.choices.layout.fsdp, 2);
    assert_int_equal(best.choices.primitives.sharding, SHARDING_FSDP);
    assert_int_equal(best.choices.primitives.recompute, RECOMPUTE_FULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_better_is_skipped_dense),
        cmocka_unit_test(nothing_better_is_skipped_of_uneven_stages),
        cmocka_unit_test(nothing_better_is_skipped_moe),
        cmocka_unit_test(nothing_better_is_skipped_hybrid),
        cmocka_unit_test(nothing_better_is_skipped_of_all_kinds),
        cmocka_unit_test(objectives_over_worlds_are_those_of_brute_force),
        cmocka_unit_test(the_front_covers_all),
        cmocka_unit_test(the_fewest_gpus_are_found),
        cmocka_unit_test(fixed_choices_bind_the_search),
    };
    return cmocka_run_group_tests_name("search", tests, NULL, NULL);
}
