/* Frozen parts and low-rank adapters: state, activations and step time by hand for two models, and
 * what must hold of any. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/layout/trained.h"
#include "planner/predict/step_time.h"
#include "tests/support/asked.h"
#include "tests/support/golden.h"
#include "tests/support/near.h"
#include "trained_sample.h"

enum { EMBEDDING_AND_HEAD = 1 << COMPONENT_EMBEDDING | 1 << COMPONENT_HEAD };

static struct sample s;
static struct budget budget;
static struct step_time time_of;

static uint64_t bytes_of(enum item item)
{
    return budget.groups[0].item_max_bytes[item];
}

static void compute(uint64_t seq)
{
    budget_compute(asked(sample_input(&s, seq)), &budget);
}

static void time_step(uint64_t seq)
{
    step_time_compute(asked(sample_input(&s, seq)), &time_of);
}

static uint64_t trained(void)
{
    return params_trained(&s.model, &s.choices.primitives);
}

/* Llama: 8,030,261,248 less 2 x 525,336,576. Of a frozen part there are weights alone. */
static void frozen_ends_of_llama(void **state)
{
    uint64_t layers = UINT64_C(32) * 218112000, norm = 4096;
    (void)state;
    sample_llama(&s);
    s.choices.layout.fsdp = 8;
    assert_int_equal(trained(), 8030261248);
    s.choices.primitives.frozen = EMBEDDING_AND_HEAD;
    assert_int_equal(trained(), layers + norm);
    compute(4096);
    assert_int_equal(bytes_of(ITEM_WEIGHTS), UINT64_C(2) * 8030261248 / 8);
    assert_int_equal(bytes_of(ITEM_GRADIENTS), 4 * (layers + norm) / 8);
    assert_int_equal(bytes_of(ITEM_MASTER), 4 * (layers + norm) / 8);
    assert_int_equal(bytes_of(ITEM_MOMENTS), 8 * (layers + norm) / 8);
}

/* Qwen: without experts a layer trains 19,140,864 (padded to 19,141,120), of whose weights a rank
 * has 4,785,280 B, in the arena 4,785,408; its 16 experts of a rank hold 2 x 75,497,472 bytes. */
static void frozen_experts_of_qwen(void **state)
{
    (void)state;
    sample_qwen(&s);
    s.choices.layout.ep = s.choices.layout.fsdp = 8;
    s.choices.primitives.frozen = 1 << COMPONENT_EXPERTS;
    assert_int_equal(trained(), UINT64_C(30532122624) - UINT64_C(48) * 603979776);
    compute(4096);
    uint64_t dense = UINT64_C(48) * 19141120 + 311164928 + 311166976;
    assert_int_equal(bytes_of(ITEM_WEIGHTS), 2 * dense / 8 + UINT64_C(48) * (128 + 2 * 75497472));
    assert_int_equal(bytes_of(ITEM_MASTER), 4 * dense / 8);
    assert_int_equal(bytes_of(ITEM_GRADIENTS), 4 * dense / 8);
    s.choices.primitives.frozen |= 1 << COMPONENT_ROUTER;
    assert_int_equal(trained(), UINT64_C(30532122624) - UINT64_C(48) * (603979776 + 262144));
}

/* 4,096 tokens x 8 = 32,768 rows of 2048: xe, which only the experts' gradients read, is not kept;
 * what is lost of the peak is that much a layer. */
static void frozen_experts_keep_no_rows(void **state)
{
    (void)state;
    sample_qwen(&s);
    s.choices.layout.ep = s.choices.layout.fsdp = 8;
    s.choices.primitives.recompute = RECOMPUTE_NONE;
    compute(4096);
    uint64_t saved = bytes_of(ITEM_LAYER_SAVED);
    s.choices.primitives.frozen = 1 << COMPONENT_EXPERTS;
    compute(4096);
    assert_int_equal(saved - bytes_of(ITEM_LAYER_SAVED), UINT64_C(48) * 2 * 32768 * 2048);
    /* adapters read them again */
    s.choices.primitives.frozen = 0;
    s.choices.primitives.lora_rank = 8;
    compute(4096);
    assert_int_equal(bytes_of(ITEM_LAYER_SAVED), saved);
}

/* Rank 16: q and o 16 (4096 + 4096) = 131,072 each, k and v 16 (4096 + 1024) = 81,920 each, gate,
 * up and down 16 (4096 + 14336) = 294,912 each; 1,310,720 a layer, 41,943,040 in all, which is what
 * PEFT prints for all linear layers of this model. zero1: weights and gradients whole. */
static void adapters_of_llama(void **state)
{
    (void)state;
    sample_llama(&s);
    s.choices.layout.fsdp = 8;
    s.choices.primitives.lora_rank = 16;
    assert_int_equal(trained(), 41943040);
    s.choices.primitives.sharding = SHARDING_ZERO1;
    compute(4096);
    assert_int_equal(bytes_of(ITEM_WEIGHTS), UINT64_C(2) * (8030261248 + 41943040));
    assert_int_equal(bytes_of(ITEM_GRADIENTS), 4 * 41943040);
    assert_int_equal(bytes_of(ITEM_MASTER), 4 * 41943040 / 8);
    assert_int_equal(bytes_of(ITEM_MOMENTS), 8 * 41943040 / 8);
    s.choices.primitives.sharding = SHARDING_FSDP;
    compute(4096);
    assert_int_equal(bytes_of(ITEM_WEIGHTS), UINT64_C(2) * (8030261248 + 41943040) / 8);
    assert_int_equal(bytes_of(ITEM_GRADIENTS), 4 * 41943040 / 8);
    /* a layer's buffer and the shard received; the loss has none */
    assert_int_equal(bytes_of(ITEM_GATHERED_GRADIENTS), 4 * 1310720 + 4 * 1310720 / 8);
    s.choices.primitives.sharding = SHARDING_REPLICATED;
    compute(4096);
    assert_int_equal(bytes_of(ITEM_MOMENTS), 8 * 41943040);
    s.choices.primitives.lora_targets = LORA_ATTENTION;
    assert_int_equal(trained(), 32 * (2 * 131072 + 2 * 81920));
    s.choices.primitives.lora_targets = LORA_MLP;
    assert_int_equal(trained(), 32 * 3 * 294912);
}

/* Rank 16 over tp 2. A projection whose rows are split has B [4096 / 2, 16] and the whole A
 * [16, 4096]: q 98,304, k and v 65,536 + 8,192 each, gate and up 65,536 + 114,688 each; one whose
 * columns are split has half of A and the whole B: o 32,768 + 65,536, down 114,688 + 65,536. */
static void adapters_of_tensor_ranks(void **state)
{
    uint64_t layer = 98304 + 2 * 73728 + 98304 + 3 * 180224;
    (void)state;
    sample_llama(&s);
    s.choices.layout.tp = 2;
    s.choices.primitives.lora_rank = 16;
    compute(4096);
    assert_int_equal(layer, 884736);
    assert_int_equal(bytes_of(ITEM_GRADIENTS), 32 * layer * 4);
    assert_int_equal(bytes_of(ITEM_MOMENTS), 32 * layer * 8);
}

/* Rank 8: attention 8 x (2 x (2048 + 4096) + 2 x (2048 + 512)) = 139,264 a layer; an expert
 * 3 x 8 x (2048 + 768) = 67,584, of which a rank has 16. Over etp 2 an expert's matrix has one half
 * whole and one split: 8 x 2048 + 8 x 384 = 19,456. */
static void adapters_of_qwen(void **state)
{
    (void)state;
    sample_qwen(&s);
    s.choices.layout.ep = s.choices.layout.fsdp = 8;
    s.choices.primitives.lora_rank = 8;
    assert_int_equal(trained(), UINT64_C(48) * (139264 + 128 * 67584));
    compute(4096);
    assert_int_equal(bytes_of(ITEM_MASTER), UINT64_C(48) * 4 * (139264 / 8 + 16 * 67584));
    s.choices.layout.etp = 2;
    s.choices.layout.fsdp = 16;
    compute(4096);
    assert_int_equal(bytes_of(ITEM_MASTER), UINT64_C(48) * 4 * (139264 / 16 + 16 * 3 * 19456));
}

/* One rank of a layer's matmuls, T tokens, nothing replayed: 6 FLOPs a weight and token; frozen 4.
 * An adapter's weights take 6, and x A again 2 x 16 x the widths that are read: six of 4096 and one
 * of 14336, 38,912 together. */
static void seconds_of_llama(void **state)
{
    double t = 4096, layers = 32, weights = 218103808, adapters = 1310720, again = 16 * 38912;
    double head = 4096.0 * 128256;
    (void)state;
    sample_llama(&s);
    sample_flops(&s);
    s.choices.primitives.recompute = RECOMPUTE_NONE;
    time_step(4096);
    assert_near(time_of.item_seconds[TIME_MATMUL], 6 * t * layers * weights / 1e14, 1e-9, "s");
    assert_near(time_of.item_seconds[TIME_LOSS], 6 * t * head / 1e14, 1e-9, "s");
    s.choices.primitives.lora_rank = 16;
    time_step(4096);
    assert_near(time_of.item_seconds[TIME_MATMUL],
                t * layers * (4 * weights + 6 * adapters + 2 * again) / 1e14, 1e-9, "s");
    assert_near(time_of.item_seconds[TIME_LOSS], 4 * t * head / 1e14, 1e-9, "s");
    s.choices.primitives.lora_rank = 0;
    s.choices.primitives.frozen = 1 << COMPONENT_ATTENTION; /* q, k, v, o: 41,943,040 */
    time_step(4096);
    assert_near(time_of.item_seconds[TIME_MATMUL], t * layers * (6 * weights - 2 * 41943040) / 1e14,
                1e-9, "s");
    assert_near(time_of.item_seconds[TIME_LOSS], 6 * t * head / 1e14, 1e-9, "s");
}

/* 32,768 rows of 3 x 2048 x 768; frozen 4 FLOPs a weight and row, adapters of rank 8 of 3 x 8 x
 * (2048 + 768) weights 6, and x A again for 2 x 2048 and 768 columns. */
static void seconds_of_experts(void **state)
{
    double rows = 32768, weights = 4718592, adapters = 67584, again = 8 * (2 * 2048 + 768);
    (void)state;
    sample_qwen(&s);
    sample_flops(&s);
    s.choices.layout.ep = s.choices.layout.fsdp = 8;
    s.choices.primitives.recompute = RECOMPUTE_NONE;
    time_step(4096);
    assert_near(time_of.item_seconds[TIME_EXPERTS], 48 * 6 * rows * weights / 1e14, 1e-9, "s");
    s.choices.primitives.frozen = 1 << COMPONENT_EXPERTS;
    time_step(4096);
    assert_near(time_of.item_seconds[TIME_EXPERTS], 48 * 4 * rows * weights / 1e14, 1e-9, "s");
    s.choices.primitives.frozen = 0;
    s.choices.primitives.lora_rank = 8;
    time_step(4096);
    assert_near(time_of.item_seconds[TIME_EXPERTS],
                48 * rows * (4 * weights + 6 * adapters + 2 * again) / 1e14, 1e-9, "s");
}

/* Model FLOPs leave out gradients that there are not: 2 of 6 a frozen weight. */
static void flops_follow_what_is_trained(void **state)
{
    double matmul = 32 * 218103808.0, head = 4096.0 * 128256;
    double attention = 32 * 6.0 * 4096 * 4096; /* 6 x 2 x heads x dim x seq / 2 */
    (void)state;
    sample_llama(&s);
    sample_flops(&s);
    s.choices.primitives.recompute = RECOMPUTE_NONE;
    time_step(4096);
    assert_near(time_of.model_flops_per_second_per_gpu / time_of.tokens_per_second_per_gpu,
                6 * (matmul + head) + attention, 1e-9, "FLOPs a token");
    s.choices.primitives.lora_rank = 16;
    time_step(4096);
    assert_near(time_of.model_flops_per_second_per_gpu / time_of.tokens_per_second_per_gpu,
                4 * (matmul + head) + 6 * 41943040.0 + attention, 1e-9, "FLOPs a token");
    s.choices.primitives.lora_rank = 0;
    s.choices.primitives.frozen = EMBEDDING_AND_HEAD;
    time_step(4096);
    assert_near(time_of.model_flops_per_second_per_gpu / time_of.tokens_per_second_per_gpu,
                6 * matmul + 4 * head + attention, 1e-9, "FLOPs a token");
}

static void draw_layout(uint64_t *seed)
{
    struct primitives *p = &s.choices.primitives;
    sample_draw(&s, seed);
    sample_flops(&s);
    p->moe = s.model.moe.experts > 0 && sample_pick(seed, 0, 1) ? MOE_CHUNKED : MOE_PLAIN;
    p->moe_chunks = p->moe == MOE_CHUNKED ? 2 : 1;
}

static void compute_both(void)
{
    compute(8192);
    step_time_compute(asked(&s.in), &time_of);
}

/* Freezing one component more never takes more memory or time. */
static void freezing_is_less(void **state)
{
    static const int components[] = { COMPONENT_EMBEDDING, COMPONENT_HEAD, COMPONENT_ATTENTION,
                                      COMPONENT_EXPERTS, COMPONENT_DENSE_MLP };
    uint64_t seed = 3;
    (void)state;
    for (int round = 0; round < 120; round++) {
        draw_layout(&seed);
        compute_both();
        uint64_t peak = budget.groups[0].peak_bytes;
        double seconds = time_of.seconds;
        for (size_t i = 0; i < sizeof components / sizeof *components; i++) {
            s.choices.primitives.frozen |= 1U << components[i];
            compute_both();
            if (budget.groups[0].peak_bytes > peak)
                fail_msg("round %d: %s frozen takes %ju, not %ju bytes", round,
                         component_names[components[i]], (uintmax_t)budget.groups[0].peak_bytes,
                         (uintmax_t)peak);
            assert_true(time_of.seconds <= seconds * (1 + 1e-12));
            peak = budget.groups[0].peak_bytes;
            seconds = time_of.seconds;
        }
    }
}

/* A higher rank and more targets take more; adapters of few ranks take less than training the
 * weights. */
static void adapters_grow_with_their_rank(void **state)
{
    uint64_t seed = 5;
    (void)state;
    for (int round = 0; round < 120; round++) {
        draw_layout(&seed);
        struct primitives *p = &s.choices.primitives;
        compute_both();
        uint64_t whole = budget.groups[0].peak_bytes, before = 0;
        for (int rank = 1; rank <= 16; rank *= 2) {
            uint64_t last = 0;
            p->lora_rank = rank;
            for (unsigned targets = 1; targets < 8; targets = targets * 2 + 1) {
                p->lora_targets = targets;
                compute_both();
                assert_true(budget.groups[0].peak_bytes >= last);
                last = budget.groups[0].peak_bytes;
            }
            assert_true(last > before);
            assert_true(last < whole);
            before = last;
        }
    }
}

static void what_no_executor_runs_is_assumed(void **state)
{
    static const enum item assumed[] = { ITEM_WEIGHTS,       ITEM_GRADIENTS,     ITEM_MASTER,
                                         ITEM_MOMENTS,       ITEM_LAYER_WORKING, ITEM_LAYER_SAVED,
                                         ITEM_EXPERT_WORKING };
    (void)state;
    sample_qwen(&s);
    sample_input(&s, 4096);
    for (int i = 0; i < 2; i++) {
        s.choices.primitives.lora_rank = i ? 8 : 0;
        s.choices.primitives.frozen = i ? 0 : 1 << COMPONENT_ROUTER;
        for (size_t k = 0; k < sizeof assumed / sizeof *assumed; k++)
            assert_int_equal(budget_basis(&s.in, assumed[k]), BASIS_ASSUMED);
        assert_int_equal(budget_basis(&s.in, ITEM_INPUTS), BASIS_ARITHMETIC);
        assert_int_equal(step_time_basis(&s.in, TIME_MATMUL), BASIS_ASSUMED);
    }
}

static void formulas_have_their_numbers(void **state)
{
    char text[512];
    (void)state;
    sample_llama(&s);
    s.choices.layout.fsdp = 8;
    s.choices.primitives.lora_rank = 16;
    compute(4096);
    budget_formula(asked(&s.in), &budget.groups[0], ITEM_GRADIENTS, text, sizeof text);
    assert_golden("formula of gradients", text);
    budget_formula(asked(&s.in), &budget.groups[0], ITEM_WEIGHTS, text, sizeof text);
    assert_golden("formula of weights", text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_ends_of_llama),
        cmocka_unit_test(frozen_experts_of_qwen),
        cmocka_unit_test(frozen_experts_keep_no_rows),
        cmocka_unit_test(adapters_of_llama),
        cmocka_unit_test(adapters_of_tensor_ranks),
        cmocka_unit_test(adapters_of_qwen),
        cmocka_unit_test(seconds_of_llama),
        cmocka_unit_test(seconds_of_experts),
        cmocka_unit_test(flops_follow_what_is_trained),
        cmocka_unit_test(freezing_is_less),
        cmocka_unit_test(adapters_grow_with_their_rank),
        cmocka_unit_test(what_no_executor_runs_is_assumed),
        cmocka_unit_test(formulas_have_their_numbers),
    };
    return cmocka_run_group_tests_name("adapters", tests, NULL, NULL);
}
