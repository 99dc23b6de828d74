/* The ordered thresholds on questions whose answers follow from the policy or from arithmetic. */
#include "base/layout/capability.h"
#include "test_derive_fixture.h"

#include "tests/support/asked.h"
#include "tests/support/golden.h"
#include "tests/support/near.h"

static struct answer answer;

static void derive_ok(const struct ask *ask)
{
    struct diag_list list = { 0 };
    struct question q = ask->q;
    q.policy = POLICY_ARTICLES;
    assert_int_equal(derive(&q, &answer, &list), 0);
    assert_int_equal(list.errors, 0);
    assert_true(ask_is_legal(ask, &answer.recommended.choices));
}

static const struct layout *layout(void)
{
    return &answer.recommended.choices.layout;
}

static void assert_reason(const char *choice)
{
    for (int i = 0; i < answer.reason_count; i++)
        if (!strcmp(answer.reasons[i].choice, choice))
            return;
    fail_msg("no reason for %s", choice);
}

/* The reasons of the newest answer, one a line. */
static void assert_golden_reasons(const char *title)
{
    FILE *out = golden_begin();
    for (int i = 0; i < answer.reason_count; i++)
        (void)fprintf(out, "%s: %s\n", answer.reasons[i].choice, answer.reasons[i].because);
    if (*answer.binding)
        (void)fprintf(out, "binding: %s\n", answer.binding);
    assert_golden_end(title);
}

/* limit = memory - reserve - headroom; never below zero. */
static void limit_is_memory_less_promises(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "qwen3-0.6b", "h200", 1, 4096);
    ask.hardware.memory_bytes = 100000;
    ask.q.headroom_bytes = 2000;
    ask.q.reserve_bytes = 3000;
    assert_int_equal(question_limit_bytes(&ask.q), 95000);
    ask.q.reserve_bytes = 99000;
    assert_int_equal(question_limit_bytes(&ask.q), 0);
}

/* 64 GB among 4 ranks of one machine: 16 GB each; a GPU keeps its own. */
static void ranks_of_a_host_share_its_memory(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "tiny-moe", "host", 4, 4096);
    ask.hardware.memory_bytes = UINT64_C(64000000000);
    assert_int_equal(question_memory_bytes(&ask.q), UINT64_C(16000000000));
    ask.hardware.gpus_per_node = 2;
    assert_int_equal(question_memory_bytes(&ask.q), UINT64_C(32000000000));
    ask.hardware.host = false;
    assert_int_equal(question_memory_bytes(&ask.q), UINT64_C(64000000000));
}

static void the_headline_question_fits(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "qwen3.5-35b-a3b", "h100-sxm", 32, 131072);
    derive_ok(&ask);
    assert_int_equal(answer.recommended.verdict, VERDICT_FITS);
    assert_true(answer.recommended.worst.peak_upper_bytes <= answer.limit_bytes);
    assert_int_equal(layout()->cp, 4); /* 131,072 / 4 = 32,768 */
    assert_int_equal(layout()->pp, 1);
    assert_int_equal(layout()->tp, 1);
    assert_int_equal(256 % layout()->ep, 0);
    assert_true(layout()->ep <= 8);
    assert_int_equal(layout_world(layout()), 32);
    assert_int_equal(layout()->micro_batches, 4); /* 32 sequences over dp 8 */
    assert_reason("cp=4");
    assert_reason("recompute=full");
    assert_golden_reasons("the headline question");
    assert_in_range(answer.recommended.choices.primitives.recompute_layers, 1, 39);
    assert_true(answer.candidate_count > 0);
    assert_int_equal(answer.nearest_count, 0);
}

/* The policy's window: the fewest ranks whose share of the sequence is at most 32K, or twice as
 * many where that saves recompute; never shares below 16K while others fit. */
static void small_memory_cuts_the_sequence(void **state)
{
    static const struct {
        uint64_t seq;
        int least, most;
    } rows[] = {
        { 8192, 1, 1 }, { 32768, 1, 2 }, { 65536, 2, 4 }, { 131072, 4, 8 }, { 262144, 8, 16 }
    };
    struct ask ask;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ask_init(&ask, "qwen3.5-35b-a3b", "h100-sxm", 32, rows[i].seq);
        derive_ok(&ask);
        assert_in_range(layout()->cp, rows[i].least, rows[i].most);
    }
}

/* At 180e9 bytes the sequence is cut as little as fits: below it 4, at it the smallest that fits,
 * which the search finds by itself when cp is the only thing it may not choose. */
static void large_memory_drops_cp_to_the_smallest(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "qwen3.5-35b-a3b", "h200", 32, 131072);
    ask.hardware.memory_bytes = UINT64_C(179999999999);
    ask_memory_changed(&ask);
    derive_ok(&ask);
    assert_in_range(layout()->cp, 4, 8);
    ask.hardware.memory_bytes = UINT64_C(180000000000);
    ask_memory_changed(&ask);
    derive_ok(&ask);
    int cp = layout()->cp;
    assert_true(cp < 4);
    assert_int_equal(answer.recommended.verdict, VERDICT_FITS);
    if (cp > 1) {
        ask_set(&ask, "cp", cp == 2 ? "1" : "2");
        derive_ok(&ask);
        assert_int_not_equal(answer.recommended.verdict, VERDICT_FITS);
    }
}

static void fixed_choices_are_kept(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "qwen3-30b-a3b", "h100-sxm", 16, 16384);
    ask_set(&ask, "cp", "2");
    ask_set(&ask, "ep", "4");
    ask_set(&ask, "pp", "2");
    ask_set(&ask, "sharding", "zero1");
    ask_set(&ask, "loss", "full");
    ask_set(&ask, "moe_chunks", "3");
    derive_ok(&ask);
    const struct primitives *p = &answer.recommended.choices.primitives;
    assert_int_equal(layout()->cp, 2);
    assert_int_equal(layout()->ep, 4);
    assert_int_equal(layout()->pp, 2);
    assert_int_equal(p->sharding, SHARDING_ZERO1);
    assert_int_equal(p->loss, LOSS_FULL);
    assert_int_equal(p->moe, MOE_CHUNKED);
    assert_int_equal(p->moe_chunks, 3);
    assert_int_equal(p->context, CONTEXT_ALLGATHER_KV);
    assert_reason("loss=full");
    assert_golden_reasons("settings");
}

static void a_list_of_stages_fixes_their_number(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "qwen3-0.6b", "h100-sxm", 4, 8192);
    ask_set(&ask, "stage_layers", "10,18");
    derive_ok(&ask);
    assert_int_equal(layout()->pp, 2);
    assert_int_equal(layout()->stage_layers[0], 10);
    assert_int_equal(layout()->stage_layers[1], 18);
}

/* ep 7 does not divide 128 experts, and pp 3 not 16 GPUs: both are said. */
static void inconsistent_choices_name_every_violation(void **state)
{
    struct ask ask;
    struct diag_list list = { 0 };
    (void)state;
    ask_init(&ask, "qwen3-30b-a3b", "h100-sxm", 16, 16384);
    ask_set(&ask, "ep", "7");
    ask_set(&ask, "pp", "3");
    assert_int_equal(derive(&ask.q, &answer, &list), -1);
    assert_true(list.errors >= 2);
}

static void hybrids_get_both_contexts(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "qwen3.5-35b-a3b", "h100-sxm", 16, 65536);
    derive_ok(&ask);
    assert_true(layout()->cp >= 2);
    assert_int_equal(answer.recommended.choices.primitives.context, CONTEXT_ALLGATHER_KV);
    assert_int_not_equal(answer.recommended.choices.primitives.linear_context, LINEAR_CONTEXT_NONE);
}

static void the_host_gets_what_its_backend_runs(void **state)
{
    static const int worlds[] = { 1, 2, 4 };
    struct ask ask;
    (void)state;
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        struct diag_list list = { 0 };
        ask_init(&ask, "small-moe", "host", worlds[i], 2048);
        derive_ok(&ask);
        assert_int_equal(answer.recommended.verdict, VERDICT_FITS);
        assert_int_equal(
            capability_check(BACKEND_HOST, &ask.model, &answer.recommended.choices, &list), 0);
        assert_reason("backend=host");
        assert_true(answer.derived_over_best > 0.9 && answer.derived_over_best <= 1.02);
        for (int c = 0; c < answer.candidate_count; c++)
            assert_int_equal(
                capability_check(BACKEND_HOST, &ask.model, &answer.candidates[c].choices, &list),
                0);
    }
}

/* What the user fixes stands, even where the host backend does not run it. */
static void the_host_keeps_what_was_set(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "small-moe", "host", 2, 2048);
    ask_set(&ask, "tp", "2");
    derive_ok(&ask);
    assert_int_equal(layout()->tp, 2);
    assert_int_equal(layout()->cp, 1);
}

/* What follows from a loss over shared vocabulary: a group that divides it; and the other way. */
static void keys_that_belong_together_are_derived(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "qwen3-30b-a3b", "h100-sxm", 16, 16384);
    ask_set(&ask, "loss", "ring_dtp");
    derive_ok(&ask);
    assert_true(answer.recommended.choices.primitives.vocab_group >= 2);
    ask_init(&ask, "qwen3-30b-a3b", "h100-sxm", 16, 16384);
    ask_set(&ask, "vocab_group", "2");
    derive_ok(&ask);
    assert_int_equal(answer.recommended.choices.primitives.loss, LOSS_RING_DTP);
    ask_init(&ask, "qwen3-30b-a3b", "h100-sxm", 16, 16384);
    ask_set(&ask, "offload", "checkpoints");
    ask.hardware.host_memory_bytes = UINT64_C(1600000000000);
    ask.hardware.gpus_per_node = 8;
    derive_ok(&ask);
    assert_int_equal(answer.recommended.choices.primitives.sco_host_bytes,
                     UINT64_C(100000000000)); /* 1.6 TB / 8 ranks / 2 */
}

static void runners_up_are_others_and_ordered(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "qwen3-30b-a3b", "h100-sxm", 32, 65536);
    derive_ok(&ask);
    assert_true(answer.candidate_count >= 2);
    for (int i = 0; i < answer.candidate_count; i++) {
        const struct candidate *c = &answer.candidates[i];
        assert_true(ask_is_legal(&ask, &c->choices));
        assert_memory_not_equal(&c->choices.layout, layout(), sizeof(struct layout));
        if (i > 0)
            assert_true(c->verdict >= answer.candidates[i - 1].verdict);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(&c->choices.layout, &answer.candidates[j].choices.layout,
                                    sizeof(struct layout));
    }
}

/* The layout on which the articles' search of this case converged: TP 1, PP 1, EP 8, CP 4, FSDP
 * over all ranks, full recompute, streamed loss, two expert chunks (measured there: 37 to 38 GB).
 * They recompute every layer; the rest is derived. */
static void the_main_case_converges(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "qwen3.5-35b-a3b", "h100-sxm", 32, 131072);
    ask_set(&ask, "recompute", "full");
    ask_set(&ask, "keep_attention", "0");
    derive_ok(&ask);
    const struct primitives *p = &answer.recommended.choices.primitives;
    const struct layout *l = layout();
    assert_int_equal(answer.recommended.verdict, VERDICT_FITS);
    assert_int_equal(l->tp, 1);
    assert_int_equal(l->pp, 1);
    assert_int_equal(l->ep, 8);
    assert_int_equal(l->cp, 4);
    assert_int_equal(layout_dense_shards(l), 32);
    assert_int_equal(p->sharding, SHARDING_FSDP);
    assert_int_equal(p->recompute, RECOMPUTE_FULL);
    assert_int_equal(p->loss, LOSS_LINEAR_CE);
    assert_in_range(p->moe_chunks, 2, 4);
    assert_near((double)answer.recommended.worst.peak_bytes, 37.5e9, 0.1, "bytes");
}

static void what_is_nearest_fits(void **state)
{
    struct ask ask;
    bool gpus = false, tokens = false, set = false;
    (void)state;
    ask_init(&ask, "qwen3-30b-a3b", "h100-sxm", 8, 131072);
    ask_set(&ask, "recompute", "none");
    derive_ok(&ask);
    assert_int_equal(answer.recommended.verdict, VERDICT_DOES_NOT_FIT);
    assert_true(answer.nearest_count > 0);
    for (int i = 0; i < answer.nearest_count; i++) {
        gpus |= answer.nearest[i].gpus > 8;
        tokens |= answer.nearest[i].seq_tokens > 0 && answer.nearest[i].seq_tokens < 131072;
        set |= !strcmp(answer.nearest[i].set, "recompute=full");
        ask_nearest(&ask, &answer.nearest[i]);
    }
    assert_true(gpus && tokens && set);
}

/* A model of 8 billion parameters on one GPU: 8.03e9 x 18 bytes are more than it has. */
static void more_gpus_hold_more_state(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "llama-3.1-8b", "h100-sxm", 1, 4096);
    derive_ok(&ask);
    assert_int_equal(answer.recommended.verdict, VERDICT_DOES_NOT_FIT);
    assert_int_equal(answer.nearest[0].gpus, 2 + 2 * (answer.nearest[0].gpus > 2));
    ask_nearest(&ask, &answer.nearest[0]);
    assert_golden_reasons("state that does not fit");
}

/* The link of an H800 is as slow against its experts as a network: there the widest group takes 23
 * % more than none, which is too much for a policy. */
static void a_policy_that_costs_too_much_gives_way(void **state)
{
    struct ask ask;
    (void)state;
    ask_init(&ask, "qwen3-30b-a3b", "h800", 32, 32768);
    derive_ok(&ask);
    double seconds = answer.recommended.time.seconds;
    assert_int_equal(layout()->ep, 1);
    assert_reason("ep=1");
    assert_golden_reasons("a policy that costs too much");
    ask_set(&ask, "ep", "8");
    derive_ok(&ask);
    assert_true(answer.recommended.time.seconds > 1.15 * seconds);
}

struct tiled {
    uint64_t peak_bytes;
    double seconds;
};

static struct tiled with_tiles(const struct ask *ask, int tokens)
{
    struct choices choices = answer.recommended.choices;
    struct rank_budget worst;
    struct step_time time;
    const struct budget_input in = { .model = ask->q.model,
                                     .sizes = ask->q.sizes,
                                     .hardware = ask->q.hardware,
                                     .choices = &choices,
                                     .gpus = ask->q.gpus,
                                     .seq_tokens = ask->q.seq_tokens,
                                     .routing = ask->q.routing,
                                     .routing_quantile = ask->q.routing_quantile };
    choices.primitives.loss_tile_tokens = tokens;
    budget_worst(asked(&in), &worst);
    step_time_compute(asked(&in), &time);
    return (struct tiled){ worst.peak_bytes, time.seconds };
}

/* The largest tiles that leave the peak where tiles of 512 have it. */
static int free_tiles(const struct ask *ask)
{
    int tokens = 512;
    while (tokens < 4096 && (uint64_t)tokens * 2 <= ask->q.seq_tokens &&
           with_tiles(ask, 2 * tokens).peak_bytes == with_tiles(ask, 512).peak_bytes)
        tokens *= 2;
    return tokens;
}

/* On a device tiles grow up to the local tokens, 4,096, and the peak that 512 leave, beyond it
 * where that saves a hundredth of the step; on the host they do not. */
static void tiles_are_as_large_as_the_peak_allows(void **state)
{
    static const struct {
        const char *model, *hardware;
        uint64_t seq_tokens;
        int least, most;
    } asked[] = { { "qwen3-30b-a3b", "h200", 65536, 1024, 4096 },
                  { "qwen3-0.6b", "h200", 1536, 512, 1024 },
                  { "tiny-moe", "host", 4096, 512, 512 } };
    (void)state;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct ask ask;
        ask_init(&ask, asked[i].model, asked[i].hardware, 1, asked[i].seq_tokens);
        ask_set(&ask, "loss", "linear_ce");
        ask_set(&ask, "recompute", "full");
        if (!strcmp(asked[i].model, "qwen3-30b-a3b"))
            ask.model.layers = 4;
        ask_model_changed(&ask);
        derive_ok(&ask);
        int tokens = answer.recommended.choices.primitives.loss_tile_tokens;
        assert_in_range(tokens, asked[i].least, asked[i].most);
        int least = ask.hardware.host ? 512 : free_tiles(&ask);
        assert_true(tokens >= least);
        if (tokens > least)
            assert_true(with_tiles(&ask, tokens).seconds < 0.99 * with_tiles(&ask, least).seconds);
        for (int larger = 2 * tokens; !ask.hardware.host && larger <= 4096; larger *= 2)
            if ((uint64_t)larger <= asked[i].seq_tokens)
                assert_true(with_tiles(&ask, larger).seconds >
                            0.99 * with_tiles(&ask, least).seconds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limit_is_memory_less_promises),
        cmocka_unit_test(ranks_of_a_host_share_its_memory),
        cmocka_unit_test(the_headline_question_fits),
        cmocka_unit_test(small_memory_cuts_the_sequence),
        cmocka_unit_test(large_memory_drops_cp_to_the_smallest),
        cmocka_unit_test(fixed_choices_are_kept),
        cmocka_unit_test(a_list_of_stages_fixes_their_number),
        cmocka_unit_test(inconsistent_choices_name_every_violation),
        cmocka_unit_test(hybrids_get_both_contexts),
        cmocka_unit_test(the_host_gets_what_its_backend_runs),
        cmocka_unit_test(the_host_keeps_what_was_set),
        cmocka_unit_test(keys_that_belong_together_are_derived),
        cmocka_unit_test(runners_up_are_others_and_ordered),
        cmocka_unit_test(the_main_case_converges),
        cmocka_unit_test(what_is_nearest_fits),
        cmocka_unit_test(more_gpus_hold_more_state),
        cmocka_unit_test(a_policy_that_costs_too_much_gives_way),
        cmocka_unit_test(tiles_are_as_large_as_the_peak_allows),
    };
    return cmocka_run_group_tests_name("derive", tests, NULL, NULL);
}
