/* Brute force against a second enumeration that skips nothing. */
#include "test_derive_fixture.h"
#include "tests/support/near.h"

/* Counts everything it looks at and keeps the fastest that fits. */
struct plain {
    const struct ask *ask;
    uint64_t limit;
    double seconds;
    uint64_t smallest;
    long fitting;
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
    if (worst.peak_upper_bytes < plain->smallest)
        plain->smallest = worst.peak_upper_bytes;
    if (worst.peak_upper_bytes > plain->limit)
        return;
    step_time_compute(&in, &time);
    plain->fitting++;
    if (time.seconds < plain->seconds)
        plain->seconds = time.seconds;
}

static void look_at_primitives(struct plain *plain, struct choices *c)
{
    struct primitives *p = &c->primitives;
    bool moe = plain->ask->model.moe.experts > 0;
    int last_linear = c->layout.cp > 1 ? LINEAR_CONTEXT_STATE_PASS : LINEAR_CONTEXT_NONE;

    p->context = c->layout.cp > 1 ? CONTEXT_ALLGATHER_KV : CONTEXT_NONE;
    for (int bits = 0; bits < 36; bits++)
        for (int chunks = 1; chunks <= (moe ? 4 : 1); chunks++)
            for (int linear = 0; linear <= last_linear; linear++) {
                static const enum sharding shardings[] = { SHARDING_REPLICATED, SHARDING_ZERO1,
                                                           SHARDING_FSDP };
                p->recompute = bits & 1 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
                p->loss = bits & 2 ? LOSS_LINEAR_CE : LOSS_FULL;
                p->prefetch_units = bits / 4 % 3 > 0;
                p->comm_streams = bits / 4 % 3 > 1 ? 2 : 1;
                p->sharding = shardings[bits / 12];
                p->moe = chunks > 1 ? MOE_CHUNKED : MOE_PLAIN;
                p->moe_chunks = chunks;
                p->linear_context = (enum linear_context)linear;
                look(plain, c);
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
            look_at_primitives(plain, c);
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

static void compare(const struct ask *ask)
{
    struct plain plain = { ask, question_limit_bytes(&ask->q), 1e300, UINT64_MAX, 0 };
    struct candidate best;

    look_at_all(&plain);
    long layouts = search_all(&ask->q, &best);
    assert_true(layouts > 0);
    assert_true(ask_is_legal(ask, &best.choices));
    if (plain.fitting > 0) {
        assert_int_equal(best.verdict, VERDICT_FITS);
        assert_near(best.time.seconds, plain.seconds, 1e-9, "s");
    } else {
        assert_int_not_equal(best.verdict, VERDICT_FITS);
        if (best.verdict == VERDICT_DOES_NOT_FIT)
            assert_int_equal(best.worst.peak_upper_bytes, plain.smallest);
    }
}

/* From much too little memory to plenty. */
static void compare_over_memory(const char *model, int gpus, uint64_t seq)
{
    static const uint64_t memory_gib[] = { 2, 10, 40, 79 };
    struct ask ask;

    for (size_t i = 0; i < sizeof memory_gib / sizeof *memory_gib; i++) {
        ask_init(&ask, model, "h100-sxm", gpus, seq);
        ask.hardware.memory_bytes = memory_gib[i] << 30;
        ask_memory_changed(&ask);
        compare(&ask);
    }
}

static void nothing_better_is_skipped_dense(void **state)
{
    (void)state;
    compare_over_memory("qwen3-0.6b", 4, 16384);
}

static void nothing_better_is_skipped_moe(void **state)
{
    (void)state;
    compare_over_memory("qwen3-30b-a3b", 4, 8192);
}

static void nothing_better_is_skipped_hybrid(void **state)
{
    (void)state;
    compare_over_memory("qwen3.5-35b-a3b", 2, 8192);
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
        cmocka_unit_test(fixed_choices_bind_the_search),
    };
    return cmocka_run_group_tests_name("search", tests, NULL, NULL);
}
