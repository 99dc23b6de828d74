/* Every item of a tiny model, worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget_sample.h"
#include "tests/support/asked.h"

static struct sample s;
static struct budget budget;

static void expect_max(enum item item, uint64_t bytes)
{
    if (budget.groups[0].item_max_bytes[item] != bytes)
        fail_msg("%s: %llu bytes, not %llu", item_infos[item].name,
                 (unsigned long long)budget.groups[0].item_max_bytes[item],
                 (unsigned long long)bytes);
}

/* H 64, Q 64, K 32, F 96, V 1000, T 128, two ranks under fsdp. A layer: norms 128, qkv 64 x 128,
 * o 64 x 64, MLP 3 x 64 x 96: 30,848 = 241 x 128. Embedding 64,000 = 500 x 128. Head 64,064, padded
 * to 501 x 128 = 64,128. */
static void dense_state(void **state)
{
    (void)state;
    sample_init(&s);
    s.choices.layout.fsdp = s.choices.layout.e_fsdp = 2;
    budget_compute(asked(sample_input(&s, 128)), &budget);
    /* halves of 30,848, 64,000, 64,128; bf16 shards round up to 30,976, 64,000, 64,256 */
    expect_max(ITEM_WEIGHTS, UINT64_C(2) * 30976 + 64000 + 64256);
    expect_max(ITEM_MASTER, UINT64_C(4) * (2 * 15424 + 32000 + 32064));
    expect_max(ITEM_GRADIENTS, UINT64_C(4) * (2 * 15424 + 32000 + 32064));
    expect_max(ITEM_MOMENTS, UINT64_C(8) * (2 * 15424 + 32000 + 32064));
}

static void dense_units(void **state)
{
    (void)state;
    /* head and the layer fetched ahead of it: 2 x (64,128 + 30,848) */
    expect_max(ITEM_GATHERED_WEIGHTS, 189952);
    /* the head's fp32 gradient and the half that is received */
    expect_max(ITEM_GATHERED_GRADIENTS, UINT64_C(4) * 64128 + UINT64_C(4) * 32064);
    /* two layer inputs of 2 x 128 x 64; ids and targets */
    expect_max(ITEM_CHECKPOINTS, UINT64_C(2) * 16384);
    expect_max(ITEM_INPUTS, UINT64_C(2) * 512);
}

static void dense_working(void **state)
{
    (void)state;
    /* dx 16,384, qkv 32,768, o 16,384, lse 2,048, x1 16,384, hd 49,152, ad and dad 24,576 each */
    expect_max(ITEM_LAYER_WORKING, 182272);
    /* xf, nf, dnf; a tile of 128 tokens in fp32 and bf16 */
    expect_max(ITEM_LOSS_WORKING, UINT64_C(3) * 16384 + 512000 + 256000);
    expect_max(ITEM_LOGITS, 0);
    /* GEMM scratch and fp32 dK, dV of one key head: 8 x 128 x 16 */
    expect_max(ITEM_WORKSPACE, 4096 + 16384);
    expect_max(ITEM_DISPATCH_SEND, 0);
    expect_max(ITEM_LAYER_SAVED, 0);
}

/* 4 experts of width 32, 2 a token, two ranks of one expert group: S = R = 256. */
static void expert_rows(void **state)
{
    (void)state;
    sample_init(&s);
    sample_moe(&s.model, 4, 2);
    s.choices.layout.fsdp = 2;
    s.choices.layout.ep = 2;
    budget_compute(asked(sample_input(&s, 128)), &budget);
    /* rows of 2 x 64 B and a weight of 4 B */
    expect_max(ITEM_DISPATCH_SEND, UINT64_C(256) * 128 + UINT64_C(256) * 4);
    expect_max(ITEM_DISPATCH_RECV, UINT64_C(256) * 128 + UINT64_C(256) * 4);
    /* xe, h (2f = 64) and dy of 256 x 128 B, a of 256 x 64 B, weights and map 4 B a row */
    expect_max(ITEM_EXPERT_WORKING, UINT64_C(3) * 32768 + 16384 + UINT64_C(2) * 1024);
    assert_int_equal(budget.groups[0].routed_rows, 256);
    /* two sources could each send both choices of 128 tokens: the host's bound */
    assert_int_equal(budget.dispatch_bound_rows, 512);
    /* experts are never gathered: 2 local experts of 3 x 64 x 32 stay whole; a dense part of a
     * layer is 128 + 8,192 + 4,096 + 64 x 4 = 12,672 = 99 x 128, the halves round to 12,800 */
    expect_max(ITEM_WEIGHTS, UINT64_C(2) * (12800 + 2 * 2 * 6144) + 64000 + 64256);
}

/* Nothing recomputed: a layer keeps qkv, o, lse, x1, hd. */
static void saved_layers(void **state)
{
    (void)state;
    sample_init(&s);
    s.choices.primitives.recompute = RECOMPUTE_NONE;
    budget_compute(asked(sample_input(&s, 128)), &budget);
    expect_max(ITEM_LAYER_SAVED, UINT64_C(2) * (32768 + 16384 + 2048 + 16384 + 49152));
    /* one rank: nothing is gathered, nothing received */
    expect_max(ITEM_GATHERED_WEIGHTS, 0);
    expect_max(ITEM_GATHERED_GRADIENTS, 0);
}

/* zero1 over two ranks: whole weights and gradients; the reduction receives half of the head. */
static void zero1_state(void **state)
{
    (void)state;
    sample_init(&s);
    s.choices.primitives.sharding = SHARDING_ZERO1;
    s.choices.layout.fsdp = s.choices.layout.e_fsdp = 2;
    budget_compute(asked(sample_input(&s, 128)), &budget);
    expect_max(ITEM_WEIGHTS, UINT64_C(2) * (2 * 30848 + 64000) + 128256);
    expect_max(ITEM_GRADIENTS, UINT64_C(4) * (2 * 30848 + 64000 + 64128));
    expect_max(ITEM_MASTER, UINT64_C(4) * (2 * 15424 + 32000 + 32064));
    expect_max(ITEM_GATHERED_GRADIENTS, UINT64_C(4) * 32064);
    expect_max(ITEM_GATHERED_WEIGHTS, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_state),   cmocka_unit_test(dense_units),
        cmocka_unit_test(dense_working), cmocka_unit_test(expert_rows),
        cmocka_unit_test(saved_layers),  cmocka_unit_test(zero1_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
