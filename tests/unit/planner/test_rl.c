/* Reinforcement learning: budgets of tokens, the reference model, passes for log-probabilities, by
 * hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/layout/legality.h"
#include "budget_sample.h"
#include "planner/predict/peaks.h"
#include "planner/predict/step_time.h"
#include "tests/support/asked.h"
#include "tests/support/near.h"

static struct sample s;
static struct budget budget;

static void expect_max(enum item item, uint64_t bytes)
{
    if (budget.groups[0].item_max_bytes[item] != bytes)
        fail_msg("%s: %llu bytes, not %llu", item_infos[item].name,
                 (unsigned long long)budget.groups[0].item_max_bytes[item],
                 (unsigned long long)bytes);
}

/* H 64, Q 64, K 32, F 96, V 1000, T 128, two ranks under fsdp: bf16 shards of a layer 30,976 bytes,
 * of the embedding 64,000, of the head 64,256. */
static void two_ranks(unsigned rl)
{
    sample_init(&s);
    s.choices.layout.fsdp = s.choices.layout.e_fsdp = 2;
    s.choices.primitives.rl = rl;
    budget_compute(asked(sample_input(&s, 128)), &budget);
}

static void the_reference_weighs_what_the_policy_does(void **state)
{
    (void)state;
    two_ranks(RL_REFERENCE);
    expect_max(ITEM_REFERENCE_WEIGHTS, UINT64_C(2) * 30976 + 64000 + 64256);
    assert_int_equal(budget.groups[0].host_bytes, 0);
    s.choices.primitives.reference_weights = REFERENCE_HOST;
    budget_compute(asked(&s.in), &budget);
    expect_max(ITEM_REFERENCE_WEIGHTS, 0);
    assert_int_equal(budget.groups[0].host_bytes, 2 * 30976 + 64000 + 64256);
    two_ranks(RL_OLD | RL_ENTROPY);
    expect_max(ITEM_REFERENCE_WEIGHTS, 0);
    /* adapters: the policy without them is the reference */
    two_ranks(RL_REFERENCE);
    s.choices.primitives.lora_rank = 4;
    budget_compute(asked(&s.in), &budget);
    expect_max(ITEM_REFERENCE_WEIGHTS, 0);
}

/* Four bytes a token: ids, targets, advantages, and what each pass gave. */
static void what_a_micro_batch_brings(void **state)
{
    (void)state;
    two_ranks(0);
    expect_max(ITEM_INPUTS, UINT64_C(2) * 512);
    two_ranks(RL_ENTROPY);
    expect_max(ITEM_INPUTS, UINT64_C(3) * 512);
    two_ranks(RL_OLD | RL_REFERENCE);
    expect_max(ITEM_INPUTS, UINT64_C(5) * 512);
}

/* xf, nf, dnf of 128 x 64 bf16; a tile of 128 x 1000 in fp32 and bf16; entropy: in fp32 again. */
static void entropy_has_a_tile_of_its_own(void **state)
{
    (void)state;
    two_ranks(RL_ENTROPY);
    expect_max(ITEM_LOSS_WORKING, UINT64_C(3) * 16384 + 512000 + 256000 + 512000);
    s.choices.primitives.vocab_strip = 100;
    budget_compute(asked(&s.in), &budget);
    /* strips: fp32 and bf16 of 128 x 100, twice fp32; hidden gradient 128 x 64 fp32; lse */
    expect_max(ITEM_LOSS_WORKING, UINT64_C(3) * 16384 + 51200 + 25600 + 51200 + 32768 + 512);
    s.choices.primitives.vocab_strip = 0;
    s.choices.primitives.loss = LOSS_FULL;
    budget_compute(asked(&s.in), &budget);
    expect_max(ITEM_LOGITS, 512000);
    expect_max(ITEM_LOSS_WORKING, UINT64_C(3) * 16384 + 256000 + 512000);
}

static uint64_t logprob_peak(void)
{
    struct rank_peaks peaks;
    budget_peaks(asked(&s.in), &budget.groups[0], 0, &peaks);
    return peaks.bytes[MOMENT_LOGPROB];
}

/* All state: bf16 shards 190,208; master, moments and gradients 16 B x 94,912; the reference
 * 190,208 again. With scratch 4,096 and inputs 5 x 512. */
static const uint64_t staying = 190208 + UINT64_C(16) * 94912 + 190208 + 4096 + 2560;

/* The head's tile is the fullest moment: the head gathered, 2 x 64,128, and nothing ahead of it;
 * nf, of which xf was read; logits 128 x 1000 fp32 and their entropy's; three values a token. */
static void a_pass_that_keeps_nothing(void **state)
{
    (void)state;
    two_ranks(RL_OLD | RL_REFERENCE | RL_ENTROPY);
    assert_int_equal(logprob_peak(),
                     staying + 128256 + 16384 + UINT64_C(2) * 512000 + UINT64_C(3) * 512);
    two_ranks(RL_OLD | RL_REFERENCE);
    assert_int_equal(logprob_peak(), staying + 128256 + 16384 + 512000 + UINT64_C(3) * 512);
    two_ranks(RL_ENTROPY);
    assert_int_equal(logprob_peak(), 0);
}

/* V 10: a layer is fuller. Its input, its own unit and the head fetched ahead; d3 has x1 16,384, hd
 * 49,152 and ad 24,576. Layers 30,848; embedding and head 640 and 704, padded to 640 and 768: bf16
 * shards 2 x 30,976 + 768 + 768, and 2 x 30,848 + 640 + 768 elements over two ranks. */
static void a_layer_at_work(void **state)
{
    (void)state;
    sample_init(&s);
    s.model.vocab = 10;
    s.choices.layout.fsdp = s.choices.layout.e_fsdp = 2;
    s.choices.primitives.rl = RL_OLD;
    budget_compute(asked(sample_input(&s, 128)), &budget);
    uint64_t state_bytes = UINT64_C(2) * 30976 + 768 + 768 + UINT64_C(16) * (30848 + 320 + 384);
    /* first layer: the second one is ahead */
    assert_int_equal(logprob_peak(), state_bytes + 4096 + UINT64_C(4) * 512 + 16384 +
                                         UINT64_C(2) * 2 * 30848 + 16384 + 49152 + 24576);
}

/* From the host the reference's units pass through room for two: of the head's shard twice. */
static void a_reference_on_the_host_passes_through(void **state)
{
    (void)state;
    two_ranks(RL_OLD | RL_REFERENCE);
    uint64_t resident = logprob_peak();
    s.choices.primitives.reference_weights = REFERENCE_HOST;
    budget_compute(asked(&s.in), &budget);
    assert_int_equal(resident - logprob_peak(), 190208 - 2 * 64256);
}

/* Everything at its peak, memory and links free of charge; T 128, two layers of 30,720 MACs and
 * causal attention 4 x 128 x 64 x 64, the head's 64 x 1000. */
static void seconds_of_the_passes(void **state)
{
    struct step_time time;
    (void)state;
    sample_init(&s);
    s.hardware = (struct hardware){ .bf16_flops_per_second = 1e14,
                                    .gemm_efficiency = 0.5,
                                    .expert_gemm_efficiency = 0.5,
                                    .attention_forward_efficiency = 0.5,
                                    .attention_backward_efficiency = 0.5,
                                    .host_link_bytes_per_second = 1e10 };
    double pass = (2 * (2.0 * 128 * 30720 + 4.0 * 128 * 64 * 64) + 2.0 * 128 * 64 * 1000) / 0.5e14;
    s.choices.layout.micro_batches = 3;
    step_time_compute(asked(sample_input(&s, 128)), &time);
    double plain = time.seconds;
    assert_near(time.item_seconds[TIME_LOGPROBS], 0, 0, "s");
    s.choices.primitives.rl = RL_OLD;
    step_time_compute(asked(&s.in), &time);
    assert_near(time.item_seconds[TIME_LOGPROBS], 3 * pass, 1e-12, "s");
    assert_near(time.seconds, plain + 3 * pass, 1e-12, "s");
    s.choices.primitives.rl = RL_OLD | RL_REFERENCE | RL_ENTROPY;
    step_time_compute(asked(&s.in), &time);
    assert_near(time.item_seconds[TIME_LOGPROBS], 6 * pass, 1e-12, "s");
    /* 189,760 weights (one rank pads to 64: 64,064 is a multiple) of 2 B over 1e10 B/s, of which a
     * pass hides its own time */
    s.choices.primitives.reference_weights = REFERENCE_HOST;
    step_time_compute(asked(&s.in), &time);
    assert_near(time.item_seconds[TIME_LOGPROBS], 6 * pass + 3 * (2 * 189760 / 1e10 - pass), 1e-12,
                "s");
}

/* A row of tokens_per_gpu x cp tokens is a sequence of as many, but for its inputs: positions, 64 x
 * 4 B like ids and targets, and the ends of its pieces, up to 256. */
static void a_budget_of_tokens_is_a_row(void **state)
{
    static struct budget plain;
    (void)state;
    sample_init(&s);
    s.choices.layout.cp = 2;
    s.choices.primitives.context = CONTEXT_ALLGATHER_KV;
    budget_compute(asked(sample_input(&s, 128)), &plain);
    s.choices.primitives.tokens_per_gpu = 64;
    budget_compute(asked(&s.in), &budget);
    for (int i = 0; i < ITEM_COUNT; i++)
        if (i != ITEM_INPUTS)
            expect_max((enum item)i, plain.groups[0].item_max_bytes[i]);
    expect_max(ITEM_INPUTS, UINT64_C(3) * 64 * 4 + 256);
    /* twice the tokens: twice the ids and targets, whatever a sequence has */
    s.choices.primitives.tokens_per_gpu = 128;
    budget_compute(asked(&s.in), &budget);
    expect_max(ITEM_INPUTS, UINT64_C(3) * 128 * 4 + 256);
    expect_max(ITEM_CHECKPOINTS, 2 * plain.groups[0].item_max_bytes[ITEM_CHECKPOINTS]);
}

static int micro_batches(int samples, int dp, uint64_t seq, uint64_t tokens_per_gpu)
{
    sample_init(&s);
    s.choices.layout.cp = 2;
    s.choices.layout.fsdp = dp;
    s.choices.layout.micro_batches = samples;
    s.choices.primitives.tokens_per_gpu = tokens_per_gpu;
    struct rows_input in = { &s.choices, seq, NULL };
    return rows_micro_batches(&in);
}

static void samples_fill_rows(void **state)
{
    (void)state;
    /* rows of 2 x 64 tokens: 4 samples of 32 each */
    assert_int_equal(micro_batches(6, 1, 32, 64), 2);
    assert_int_equal(micro_batches(8, 1, 32, 64), 2);
    assert_int_equal(micro_batches(9, 1, 32, 64), 3);
    /* 2 x 9 samples fill 5 rows, 2.5 a rank */
    assert_int_equal(micro_batches(9, 2, 32, 64), 3);
    /* one a row: 50 of 128 tokens twice, 65 once */
    assert_int_equal(micro_batches(6, 1, 50, 64), 3);
    assert_int_equal(micro_batches(6, 1, 66, 64), 6);
    /* a world that is not filled has no samples */
    assert_int_equal(micro_batches(6, 0, 32, 64), 0);
    assert_int_equal(micro_batches(6, 1, 32, 64), 2);
    /* without a budget what the layout says */
    assert_int_equal(micro_batches(6, 1, 32, 0), 6);
    struct rows_input in = { &s.choices, 32, NULL };
    assert_near(rows_step_tokens(&in), 6 * 32, 0, "tokens");
    s.choices.primitives.tokens_per_gpu = 64;
    assert_near(rows_step_tokens(&in), 6 * 32, 0, "tokens");
}

/* 2,048 of prompt and 30,720 of response: 32,768 tokens. 8,192 x 4 hold them, 8,000 x 4 do not. */
static void a_budget_holds_the_longest_sample(void **state)
{
    const struct legality_rule *rule = legality_rules;
    (void)state;
    while (strcmp(rule->name, "token_budget") != 0)
        rule++;
    sample_init(&s);
    s.choices.layout.cp = 4;
    struct legality_input in = { .model = &s.model,
                                 .hardware = &s.hardware,
                                 .choices = &s.choices,
                                 .gpus = 4,
                                 .seq_tokens = 32768 };
    s.choices.primitives.tokens_per_gpu = 8192;
    assert_int_equal(rule->check(&in, NULL), 0);
    s.choices.primitives.tokens_per_gpu = 8000;
    assert_int_equal(rule->check(&in, NULL), 1);
    s.choices.primitives.tokens_per_gpu = 8192;
    s.choices.layout.micro_batch = 2;
    assert_int_equal(rule->check(&in, NULL), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_weighs_what_the_policy_does),
        cmocka_unit_test(what_a_micro_batch_brings),
        cmocka_unit_test(entropy_has_a_tile_of_its_own),
        cmocka_unit_test(a_pass_that_keeps_nothing),
        cmocka_unit_test(a_layer_at_work),
        cmocka_unit_test(a_reference_on_the_host_passes_through),
        cmocka_unit_test(seconds_of_the_passes),
        cmocka_unit_test(a_budget_of_tokens_is_a_row),
        cmocka_unit_test(samples_fill_rows),
        cmocka_unit_test(a_budget_holds_the_longest_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
