/* Brute force against a second enumeration that skips nothing. */
#include "planner/search/search.h"
#include "test_derive_fixture.h"
#include "tests/support/near.h"

/* Counts everything it looks at and keeps the fastest that fits. */
struct plain {
    const struct ask *ask;
    uint64_t limit;
    double seconds;
    uint64_t smallest;
    long fitting, looked;
    bool everything;
};

static void look(struct plain *plain, const struct choices *choices)
{
    const struct question *q = &plain->ask->q;
    struct rank_budget worst;
    struct step_time time;
    const struct budget_input in = {
        .model = q->model,
        .sizes = q->sizes,
        .hardware = q->hardware,
        .choices = choices,
        .gpus = q->gpus,
        .seq_tokens = q->seq_tokens,
        .routing = q->routing,
        .routing_quantile = q->routing_quantile,
    };

    if (!ask_is_legal(plain->ask, choices))
        return;
    budget_worst(&in, &worst);
    plain->looked++;
    if (worst.peak_upper_bytes < plain->smallest)
        plain->smallest = worst.peak_upper_bytes;
    if (worst.peak_upper_bytes > plain->limit)
        return;
    step_time_compute(&in, &time);
    plain->fitting++;
    if (time.seconds < plain->seconds)
        plain->seconds = time.seconds;
}

/* Recompute of nothing, of the first 1 to all layers; tiles of all sizes. */
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
            look(plain, c);
        }
}

static void look_at_offloads(struct plain *plain, struct choices *c)
{
    struct primitives *p = &c->primitives;
    uint64_t room = plain->ask->hardware.host_memory_bytes / 8 / 2; /* half a GPU's share */
    for (unsigned offload = 0; offload < (plain->everything ? 4U : 1U); offload++) {
        p->offload = offload;
        p->sco_host_bytes = offload & OFFLOAD_CHECKPOINTS ? room : 0;
        look_at_layers(plain, c);
    }
}

static void look_at_primitives(struct plain *plain, struct choices *c)
{
    struct primitives *p = &c->primitives;
    bool moe = plain->ask->model.moe.experts > 0;
    int last_linear = c->layout.cp > 1 ? LINEAR_CONTEXT_STATE_PASS : LINEAR_CONTEXT_NONE;

    p->context = c->layout.cp > 1 ? CONTEXT_ALLGATHER_KV : CONTEXT_NONE;
    for (int bits = 0; bits < 18; bits++)
        for (int chunks = 1; chunks <= (moe ? 4 : 1); chunks++)
            for (int linear = 0; linear <= last_linear; linear++) {
                static const enum sharding shardings[] = { SHARDING_REPLICATED, SHARDING_ZERO1,
                                                           SHARDING_FSDP };
                p->loss = bits & 1 ? LOSS_LINEAR_CE : LOSS_FULL;
                p->prefetch_units = bits / 2 % 3 > 0;
                p->comm_streams = bits / 2 % 3 > 1 ? 2 : 1;
                p->sharding = shardings[bits / 6];
                p->moe = chunks > 1 ? MOE_CHUNKED : MOE_PLAIN;
                p->moe_chunks = chunks;
                p->linear_context = (enum linear_context)linear;
                look_at_offloads(plain, c);
            }
}

/* Micro-batches of one sequence or more, stages in one piece or several. */
static void look_at_batches(struct plain *plain, struct choices *c)
{
    int sequences = c->layout.micro_batches;
    int interleavings = plain->everything && c->layout.pp > 1 ? c->layout.stage_layers[0] : 1;
    for (int size = 1; size <= (plain->everything ? sequences : 1); size *= 2)
        for (int vpp = 1; vpp <= interleavings; vpp++) {
            c->layout.micro_batch = size;
            c->layout.micro_batches = sequences / size;
            c->layout.vpp = vpp;
            look_at_primitives(plain, c);
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
                                         .micro_batches = gpus / dp };
            layout_split_layers(&c->layout, plain->ask->model.layers);
            look_at_batches(plain, c);
        }
}

static void look_at_all(struct plain *plain)
{
    struct choices c = { .primitives = primitives_default() };
    int gpus = plain->ask->q.gpus;

    for (int tp = 1; tp <= gpus; tp++)
        for (int pp = 1; pp <= gpus / tp; pp++)
            for (int cp = 1; cp <= gpus / tp / pp; cp++)
                for (int ep = 1; ep <= gpus / pp; ep++)
                    for (int etp = 1; etp <= gpus / pp / ep; etp++)
                        if (gpus % (tp * pp * cp) == 0 && gpus % (pp * ep * etp) == 0)
                            look_at_widths(plain, &c, tp, pp, cp, ep, etp);
}

/* With and without proofs, on one thread and on two. */
static void compare(const struct ask *ask, bool everything)
{
    struct plain plain = { .ask = ask,
                           .limit = question_limit_bytes(&ask->q),
                           .seconds = 1e300,
                           .smallest = UINT64_MAX,
                           .everything = everything };
    struct search_options options = { .threads = 2, .everything = everything };
    static struct search_result result, whole;
    struct diag_list errors = { 0 };
    const struct candidate *best = &result.best;

    look_at_all(&plain);
    assert_int_equal(search_run(&ask->q, &options, &result, &errors), 0);
    options.threads = 1;
    options.skip_nothing = true;
    assert_int_equal(search_run(&ask->q, &options, &whole, &errors), 0);
    assert_true(result.judged < whole.judged);
    assert_true(ask_is_legal(ask, &best->choices));
    assert_memory_equal(&best->choices, &whole.best.choices, sizeof best->choices);
    if (plain.fitting > 0) {
        assert_int_equal(best->verdict, VERDICT_FITS);
        assert_near(best->time.seconds, plain.seconds, 1e-9, "s");
        assert_true(whole.judged <= (uint64_t)plain.looked);
    } else {
        assert_int_not_equal(best->verdict, VERDICT_FITS);
        if (best->verdict == VERDICT_DOES_NOT_FIT)
            assert_int_equal(best->worst.peak_upper_bytes, plain.smallest);
    }
}

/* From much too little memory to plenty. */
static void compare_over_memory(const char *model, int layers, int gpus, uint64_t seq,
                                bool everything)
{
    static const uint64_t memory_gib[] = { 3, 9, 40 };
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
    compare_over_memory("qwen3-0.6b", 2, 4, 16384, true);
}

static void nothing_better_is_skipped_moe(void **state)
{
    (void)state;
    compare_over_memory("qwen3-30b-a3b", 2, 4, 8192, false);
}

static void nothing_better_is_skipped_hybrid(void **state)
{
    (void)state;
    compare_over_memory("qwen3.5-35b-a3b", 4, 2, 8192, false);
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
        assert_true(c->time.seconds > c[-1].time.seconds);
        assert_true(c->worst.peak_upper_bytes < c[-1].worst.peak_upper_bytes);
    }
    assert_near(result.front[0].time.seconds, result.best.time.seconds, 1e-12, "s");
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
        cmocka_unit_test(nothing_better_is_skipped_moe),
        cmocka_unit_test(nothing_better_is_skipped_hybrid),
        cmocka_unit_test(the_front_covers_all),
        cmocka_unit_test(the_fewest_gpus_are_found),
        cmocka_unit_test(fixed_choices_bind_the_search),
    };
    return cmocka_run_group_tests_name("search", tests, NULL, NULL);
}
