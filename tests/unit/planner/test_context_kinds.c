/* What context parallelism holds beside the tables, for latents, chosen keys and states, by hand:
 * 512 tokens over cp 2, T = 256; hidden 64. Latents: 4 heads of 8 + 4 for queries and keys and 6
 * for values, latent 16. Lightning: 4 heads of 16. Mamba-2: 8 heads of 8, state 16, 2 groups,
 * conv 4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget_sample.h"
#include "planner/predict/parts.h"

static struct sample s;

static struct context_bytes bytes_of(enum mixer mixer, enum context context,
                                     enum linear_context linear)
{
    struct context_bytes ret;
    sample_init(&s);
    s.model.gqa = (struct gqa){ .heads = 4, .kv_heads = 4, .head_dim = 12 };
    s.model.mla = (struct mla){ 24, 16, 8, 4, 6 };
    s.model.indexer = (struct indexer){ 2, 8, 32 };
    s.model.lightning = (struct lightning){ 4, 16 };
    s.model.mamba = (struct mamba){ 8, 8, 16, 2, 4, 64 };
    s.hardware.host = false;
    s.choices.layout.cp = 2;
    s.choices.primitives.context = context;
    s.choices.primitives.linear_context = linear;
    context_bytes(sample_input(&s, 512), mixer, &ret);
    return ret;
}

static void assert_bytes(const struct context_bytes *got, uint64_t forward, uint64_t backward)
{
    assert_int_equal(got->forward, forward);
    assert_int_equal(got->backward, backward);
}

/* Ulysses: q of 48, k of 48, v of 24 and o of 24 once more. Ring: two blocks of latents of 20, the
 * 26 numbers that a head's keys and values are made of for 4 heads, outputs and a sum in fp32;
 * backward their gradients. */
static void expanded(void **state)
{
    (void)state;
    struct context_bytes b = bytes_of(MIXER_MLA, CONTEXT_ULYSSES, LINEAR_CONTEXT_NONE);
    const uint64_t T = 256, qkv = 2 * T * (48 + 48 + 24), o = 2 * T * 24;
    assert_bytes(&b, qkv + o, 2 * qkv + 2 * o);
    b = bytes_of(MIXER_MLA, CONTEXT_RING, LINEAR_CONTEXT_NONE);
    const uint64_t block = T * 2 * 20, made = T * 2 * 4 * 26;
    assert_bytes(&b, 2 * block + T * 4 * (24 + 4) + made,
                 2 * block + 4 * block + T * 4 * 48 + 2 * made);
    b = bytes_of(MIXER_MLA, CONTEXT_ALLGATHER_KV, LINEAR_CONTEXT_NONE);
    assert_bytes(&b, 0, 0);
    /* fp32 gradients of half of the queries, keys and values of all 512 tokens, bf16 */
    assert_int_equal(b.workspace, T * 2 * 48 + 256 + T * 2 * 2 * 4 * 18);
}

static uint64_t block_workspace(int cp, enum context context, int head_dim, uint64_t seq)
{
    struct context_bytes ret;
    sample_init(&s);
    s.model.gqa = (struct gqa){ .heads = 32, .kv_heads = 4, .head_dim = head_dim };
    s.hardware.host = false;
    s.choices.layout.cp = cp;
    s.choices.primitives.context = context;
    s.choices.primitives.attention_deterministic = 1;
    context_bytes(sample_input(&s, seq), MIXER_GQA, &ret);
    return ret.workspace;
}

/* Blocks of 2,048 queries by 4,096 keys at 12 bytes, fp32 dQ of 2,048 rows, dK and dV of a key head
 * in fp32; gathered keys have sums. Short sequences have smaller blocks, of whole eights of keys;
 * two ranks have runs of a quarter. */
static void blocks_in_order(void **state)
{
    (void)state;
    assert_int_equal(block_workspace(1, CONTEXT_NONE, 128, 16384), 100663296 + 1048576 + 16777216);
    assert_int_equal(block_workspace(2, CONTEXT_ALLGATHER_KV, 128, 16384), 100663296 + 1048576);
    assert_int_equal(block_workspace(2, CONTEXT_ALLGATHER_KV, 64, 4096),
                     12 * 1024 * 4096 + 4 * 1024 * 64);
    assert_int_equal(block_workspace(1, CONTEXT_NONE, 64, 37),
                     12 * 37 * 40 + 4 * 37 * 64 + 8 * 37 * 64);
    assert_int_equal(block_workspace(1, CONTEXT_NONE, 256, 3000), UINT64_C(12) * 2048 * 3000 +
                                                                      UINT64_C(4) * 2048 * 256 +
                                                                      UINT64_C(8) * 3000 * 256);
}

/* Absorbed queries of 4 x 20 and outputs of 4 x 16; one key head of 20 whose values are its first
 * 16, once for each of two ranks, and the 32 keys that each of 512 tokens chose. */
static void absorbed(void **state)
{
    (void)state;
    const uint64_t T = 256, qkv = 2 * T * (80 + 2 * (20 + 16)), o = 2 * T * 64;
    struct context_bytes b = bytes_of(MIXER_DSA, CONTEXT_ULYSSES, LINEAR_CONTEXT_NONE);
    const uint64_t chosen = T * 4 * 2 * 32;
    assert_bytes(&b, qkv + o + chosen, 2 * qkv + 2 * o + chosen);
    assert_int_equal(b.workspace, 0);
    b = bytes_of(MIXER_DSA_SHARED, CONTEXT_ALLGATHER_KV, LINEAR_CONTEXT_NONE);
    assert_bytes(&b, 0, 0);
}

/* head_split: q, k, v of 64 each in, 64 out, bf16; state_pass: states of 4 x 16 x 16 and a decay a
 * head (16 bytes, which take 256), in and out, and hidden states twice. */
static void lightning(void **state)
{
    (void)state;
    const uint64_t T = 256, split = 2 * T * (3 * 64 + 64);
    const uint64_t pass = 2 * (UINT64_C(4) * 4 * 16 * 16 + 256) + T * 4 * 64;
    struct context_bytes b =
        bytes_of(MIXER_LIGHTNING, CONTEXT_ALLGATHER_KV, LINEAR_CONTEXT_HEAD_SPLIT);
    assert_bytes(&b, split, 2 * split);
    b = bytes_of(MIXER_LIGHTNING, CONTEXT_ALLGATHER_KV, LINEAR_CONTEXT_STATE_PASS);
    assert_bytes(&b, pass, 2 * pass);
}

/* Channels 64 + 2 x 2 x 16 = 128 in, dt a head in fp32, 64 out; states 64 x 16; the convolution
 * sees 4 tokens of 128. */
static void mamba(void **state)
{
    (void)state;
    const uint64_t T = 256, split = T * (2 * 128 + 4 * 8 + 2 * 64);
    const uint64_t pass = 2 * (UINT64_C(4) * 64 * 16 + 256) + UINT64_C(2) * 4 * 128 + T * 4 * 64;
    struct context_bytes b = bytes_of(MIXER_MAMBA, CONTEXT_ALLGATHER_KV, LINEAR_CONTEXT_HEAD_SPLIT);
    assert_bytes(&b, split, 2 * split);
    b = bytes_of(MIXER_MAMBA, CONTEXT_ALLGATHER_KV, LINEAR_CONTEXT_STATE_PASS);
    assert_bytes(&b, pass, 2 * pass);
    b = bytes_of(MIXER_NONE, CONTEXT_ALLGATHER_KV, LINEAR_CONTEXT_STATE_PASS);
    assert_bytes(&b, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expanded),  cmocka_unit_test(absorbed), cmocka_unit_test(blocks_in_order),
        cmocka_unit_test(lightning), cmocka_unit_test(mamba),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
