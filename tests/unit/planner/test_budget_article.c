/* The arithmetic of the long-sequence articles, and what pipeline, context and expert parallelism
 * add, on shapes of real size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget_sample.h"
#include "tests/support/asked.h"
#include "tests/support/near.h"

static struct sample s;
static struct budget budget, other;

/* Widths of Qwen3.5-35B-A3B, four softmax layers. */
static void large(void)
{
    sample_init(&s);
    s.hardware.host = false;
    s.hardware.domain_gpus = 8;
    s.model.layers = 4;
    s.model.hidden = 2048;
    s.model.vocab = 248320;
    s.model.gqa = (struct gqa){ .heads = 16, .kv_heads = 2, .head_dim = 256, .output_gate = true };
    s.model.moe = (struct moe){ .experts = 256, .top_k = 8, .width = 512, .shared_width = 512 };
    memset(s.model.layer_ffn, FFN_MOE, sizeof s.model.layer_ffn);
}

static uint64_t logits_of(int tp, int cp, enum dtype dtype)
{
    large();
    s.choices.layout.tp = tp;
    s.choices.layout.cp = cp;
    s.choices.layout.e_fsdp = tp * cp;
    s.choices.primitives.loss = LOSS_FULL;
    s.choices.primitives.logits_dtype = dtype;
    s.choices.primitives.context = CONTEXT_ALLGATHER_KV;
    budget_compute(asked(sample_input(&s, 131072)), &budget);
    return budget.groups[0].item_max_bytes[ITEM_LOGITS];
}

static void full_logits(void **state)
{
    (void)state;
    assert_int_equal(logits_of(2, 2, DTYPE_FP32), UINT64_C(65536) * 124160 * 4);
    assert_int_equal(logits_of(1, 4, DTYPE_FP32), UINT64_C(32768) * 248320 * 4);
    assert_near(logits_of(1, 4, DTYPE_FP32), 32.55e9, 0.0005, "bytes");
    assert_near(logits_of(1, 2, DTYPE_FP32), 65.10e9, 0.0005, "bytes");
    assert_near(logits_of(2, 2, DTYPE_BF16), 16.27e9, 0.0005, "bytes");
}

/* Two budgets, expert width f and 2f: their difference is the experts' state alone. */
static void expert_difference(enum sharding sharding, int pp, uint64_t *ret)
{
    for (int width = 0; width < 2; width++) {
        large();
        s.model.moe.width = 512 << width;
        s.choices.primitives.sharding = sharding;
        s.choices.layout.pp = pp;
        s.choices.layout.ep = 8;
        s.choices.layout.e_fsdp = 4 / pp * 2;
        s.choices.layout.fsdp = 64 / pp;
        s.choices.layout.micro_batches = 4;
        budget_compute(asked(sample_input(&s, 8192)), width ? &other : &budget);
    }
    for (int i = 0; i < ITEM_COUNT; i++)
        ret[i] = other.groups[0].item_max_bytes[i] - budget.groups[0].item_max_bytes[i];
}

static void state_shares(void **state)
{
    (void)state;
    uint64_t d[ITEM_COUNT], n = UINT64_C(4) * 256 * 3 * 2048 * 512;
    for (int pp = 1; pp <= 2; pp++) {
        uint64_t world = 64, parts = (uint64_t)pp * 8;
        expert_difference(SHARDING_ZERO1, pp, d);
        assert_int_equal(d[ITEM_MASTER] + d[ITEM_MOMENTS], 12 * n / world);
        assert_int_equal(d[ITEM_WEIGHTS] + d[ITEM_GRADIENTS], 6 * n / parts);
        expert_difference(SHARDING_FSDP, pp, d);
        assert_int_equal(d[ITEM_MASTER] + d[ITEM_MOMENTS], 12 * n / world);
        assert_int_equal(d[ITEM_WEIGHTS] + d[ITEM_GRADIENTS], 6 * n / world);
    }
}

/* Stage p of P holds the layer inputs of min(P - p, m) micro-batches. */
static void one_forward_one_backward(void **state)
{
    (void)state;
    uint64_t one = UINT64_C(2) * 4096 * 2048;
    for (int m = 1; m <= 8; m++) {
        large();
        s.choices.layout.pp = 4;
        s.choices.layout.micro_batches = m;
        budget_compute(asked(sample_input(&s, 4096)), &budget);
        assert_int_equal(budget.count, 4);
        for (int p = 0; p < 4; p++) {
            uint64_t held = (uint64_t)(4 - p < m ? 4 - p : m);
            assert_int_equal(budget.groups[p].item_max_bytes[ITEM_CHECKPOINTS], held * one);
            assert_int_equal(budget.groups[p].item_max_bytes[ITEM_PIPELINE_BUFFERS],
                             (p == 0 || p == 3 ? 2 : 4) * one);
            assert_int_equal(budget.groups[p].item_max_bytes[ITEM_INPUTS], held * 8 * 4096);
        }
        assert_true(budget.groups[0].item_max_bytes[ITEM_LOSS_WORKING] == 0);
        assert_true(budget.groups[3].item_max_bytes[ITEM_LOSS_WORKING] > 0);
    }
}

/* K and V of 131,072 tokens x 2 heads x 256, bf16; in backward their fp32 gradients as well. */
static void gathered_keys(void **state)
{
    (void)state;
    large();
    s.choices.layout.cp = 4;
    s.choices.layout.e_fsdp = 4;
    s.choices.primitives.context = CONTEXT_ALLGATHER_KV;
    budget_compute(asked(sample_input(&s, 131072)), &budget);
    uint64_t keys = UINT64_C(131072) * 512;
    assert_int_equal(budget.groups[0].item_max_bytes[ITEM_KV_GATHER], 2 * keys * 2 + 2 * keys * 4);
    /* cuDNN: 256, dQ of half the queries 4 x 4,096 x 16,384, dK and dV at query width 4 x 4,096 x
     * 131,072 and at their own 4 x 512 x 131,072: 2.7 GB, so that the two key heads go one by one
     */
    assert_int_equal(budget.groups[0].item_max_bytes[ITEM_WORKSPACE],
                     4096 + 256 + UINT64_C(2) * (4096 * (16384 + 131072) + 512 * 131072));
}

/* Four chunks of 65,536 rows: while one returns and the last one's return lands, the next arrives,
 * its tokens (computed again) and their gradients; the rows of one chunk are there at a time. */
static void chunks(void **state)
{
    (void)state;
    for (int chunked = 0; chunked < 2; chunked++) {
        large();
        s.choices.layout.ep = s.choices.layout.fsdp = 8;
        s.choices.primitives.moe = chunked ? MOE_CHUNKED : MOE_PLAIN;
        s.choices.primitives.moe_chunks = chunked ? 4 : 1;
        s.choices.primitives.wgrad_delay = 0;
        budget_compute(asked(sample_input(&s, 32768)), chunked ? &other : &budget);
    }
    const uint64_t *plain = budget.groups[0].item_max_bytes;
    const uint64_t *four = other.groups[0].item_max_bytes;
    assert_int_equal(plain[ITEM_DISPATCH_SEND], 262144 * (4096 + 4));
    assert_int_equal(four[ITEM_DISPATCH_SEND], 65536 * (4096 + 4 + 4096 + 2 * (4096 + 4)));
    assert_int_equal(four[ITEM_DISPATCH_RECV], 65536 * (4096 + 4 + 4096 + 4096 + 4));
    /* xe, we, map, h, dy and a of one chunk, and the map that the return before still needs */
    assert_int_equal(four[ITEM_EXPERT_WORKING], 65536 * (4096 + 4 + 2 * 4 + 2048 + 4096 + 1024));
}

/* First communicator with ring and exchange, and nothing else on one group of two. */
static void communicators(void **state)
{
    (void)state;
    large();
    s.hardware.communicator_first_bytes = 574;
    s.hardware.exchange_first_bytes = 62;
    s.hardware.communicator_next_bytes = 196;
    s.hardware.channel_bytes = 12;
    s.hardware.ring_channels = 24;
    s.hardware.exchange_peer_bytes = 384;
    s.choices.layout.ep = s.choices.layout.fsdp = 2;
    budget_compute(asked(sample_input(&s, 1024)), &budget);
    assert_int_equal(budget.groups[0].item_bytes[ITEM_COMMUNICATORS], 574 + 288 + 62 + 384);
    /* eight ranks, experts over four of them: world, four that exchange, two that gather */
    s.choices.layout.fsdp = 8;
    s.choices.layout.ep = 4;
    s.choices.layout.e_fsdp = 2;
    budget_compute(asked(sample_input(&s, 1024)), &budget);
    assert_int_equal(budget.groups[0].item_bytes[ITEM_COMMUNICATORS],
                     574 + 288 + 196 + 3 * 384 + 196 + 288);
    /* by copies: a communicator of its own and its windows, without buffers */
    s.choices.primitives.exchange = EXCHANGE_COPY;
    s.hardware.copy_exchange_bytes = 2;
    budget_compute(asked(sample_input(&s, 1024)), &budget);
    assert_int_equal(budget.groups[0].item_bytes[ITEM_COMMUNICATORS],
                     574 + 288 + 196 + 2 + 196 + 288);
    s.choices.layout.ep = s.choices.layout.fsdp = 2;
    s.choices.layout.e_fsdp = 1;
    budget_compute(asked(sample_input(&s, 1024)), &budget);
    assert_int_equal(budget.groups[0].item_bytes[ITEM_COMMUNICATORS], 574 + 288 + 196 + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_logits),
        cmocka_unit_test(state_shares),
        cmocka_unit_test(one_forward_one_backward),
        cmocka_unit_test(gathered_keys),
        cmocka_unit_test(chunks),
        cmocka_unit_test(communicators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
