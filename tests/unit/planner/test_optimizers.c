/* State and step time of AdamW in bf16, without master weights, and of Muon: hand calculations for
 * two models, and what must hold of any. */
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

static double seconds_of(enum time_item item, uint64_t seq)
{
    step_time_compute(asked(sample_input(&s, seq)), &time_of);
    return time_of.item_seconds[item];
}

/* Eight ranks share everything: a layer's 218,112,000 are 426,000 times 64 x 8, the others
 * multiples of 512 too, so nothing is padded. */
static void adamw_of_llama(void **state)
{
    (void)state;
    sample_llama(&s);
    s.choices.layout.fsdp = 8;
    compute(4096);
    assert_int_equal(bytes_of(ITEM_WEIGHTS), UINT64_C(2) * 8030261248 / 8);
    assert_int_equal(bytes_of(ITEM_MASTER), UINT64_C(4) * 8030261248 / 8);
    assert_int_equal(bytes_of(ITEM_MOMENTS), UINT64_C(8) * 8030261248 / 8);
    s.choices.primitives.moments_dtype = DTYPE_BF16;
    compute(4096);
    assert_int_equal(bytes_of(ITEM_MOMENTS), UINT64_C(4) * 8030261248 / 8);
    assert_int_equal(bytes_of(ITEM_MASTER), UINT64_C(4) * 8030261248 / 8);
    s.choices.primitives.master = MASTER_NONE;
    compute(4096);
    assert_int_equal(bytes_of(ITEM_MOMENTS), UINT64_C(4) * 8030261248 / 8);
    assert_int_equal(bytes_of(ITEM_MASTER), 0);
    assert_int_equal(bytes_of(ITEM_WEIGHTS), UINT64_C(2) * 8030261248 / 8);
    assert_int_equal(bytes_of(ITEM_GRADIENTS), UINT64_C(4) * 8030261248 / 8);
}

/* A second moment have norms (8192 a layer), embedding and head: 32 x 8192 + 525,336,576 +
 * 525,340,672 = 1,050,939,392. */
static void muon_of_llama(void **state)
{
    (void)state;
    sample_llama(&s);
    s.choices.layout.fsdp = 8;
    s.choices.primitives.optimizer = OPTIMIZER_MUON;
    compute(4096);
    assert_int_equal(bytes_of(ITEM_WEIGHTS), UINT64_C(2) * 8030261248 / 8);
    assert_int_equal(bytes_of(ITEM_GRADIENTS), UINT64_C(4) * 8030261248 / 8);
    assert_int_equal(bytes_of(ITEM_MASTER), UINT64_C(4) * 8030261248 / 8);
    assert_int_equal(bytes_of(ITEM_MOMENTS), 4015130624 + 525469696);
    s.choices.primitives.moments_dtype = DTYPE_BF16;
    compute(4096);
    assert_int_equal(bytes_of(ITEM_MOMENTS), (4015130624 + 525469696) / 2);
    s.choices.primitives.sharding = SHARDING_REPLICATED;
    s.choices.primitives.moments_dtype = DTYPE_FP32;
    compute(4096);
    assert_int_equal(bytes_of(ITEM_MOMENTS), UINT64_C(4) * (8030261248 + 1050939392));
}

/* Experts in eight groups, unsharded beside ep; the dense part over eight ranks. A layer's dense
 * part is padded to 37,385 x 512 = 19,141,120, of which 256 + 262,144 + 4,096 = 266,496, padded to
 * 266,752, are AdamW's; its 16 experts have 75,497,472. */
static void muon_of_qwen(void **state)
{
    (void)state;
    sample_qwen(&s);
    s.choices.layout.ep = s.choices.layout.fsdp = 8;
    s.choices.primitives.optimizer = OPTIMIZER_MUON;
    compute(4096);
    uint64_t layer =
        UINT64_C(4) * (19141120 - 266752) / 8 + UINT64_C(8) * 266752 / 8 + UINT64_C(4) * 75497472;
    assert_int_equal(layer, 311693824);
    assert_int_equal(bytes_of(ITEM_MOMENTS), 48 * layer + 311164928 + 311166976);
    assert_int_equal(bytes_of(ITEM_MOMENTS), 15583635456);
    assert_int_equal(bytes_of(ITEM_MASTER),
                     UINT64_C(48) * (4 * 19141120 / 8 + 4 * UINT64_C(75497472)) +
                         UINT64_C(4) * (311164928 + 311166976) / 8);
}

/* The largest matrix of Llama is 4096 x 14336: X of 117,440,512 B and a square of 33,554,432 B in
 * bf16. Gathered: X and the one behind it; at work: the next X and two squares. A rank that has the
 * momentum whole rounds it into its workspace instead. */
static void newton_schulz_workspace(void **state)
{
    (void)state;
    struct phase_bytes phases[2048];
    sample_llama(&s);
    s.choices.layout.fsdp = 8;
    s.choices.primitives.optimizer = OPTIMIZER_MUON;
    size_t count = budget_phases(asked(sample_input(&s, 128)), 0, phases, 2048);
    uint64_t start = phases[0].bytes, end = phases[count - 1].bytes;
    assert_int_equal(phases[count - 1].phase.kind, PHASE_OPTIMIZER);
    assert_int_equal(end - start, 2 * 117440512 + 117440512 + 2 * 33554432);
    s.choices.primitives.sharding = SHARDING_REPLICATED;
    count = budget_phases(asked(sample_input(&s, 128)), 0, phases, 2048);
    start = phases[0].bytes;
    end = phases[count - 1].bytes;
    assert_int_equal(end - start, 2 * 117440512 + 2 * 33554432);
    s.choices.primitives.optimizer = OPTIMIZER_ADAMW;
    count = budget_phases(asked(sample_input(&s, 128)), 0, phases, 2048);
    assert_int_equal(phases[count - 1].bytes, phases[0].bytes);
}

/* 5 x (4 n m^2 + 2 m^3) FLOPs a matrix: q and o 2,061,584,302,080 each, k and v 96,636,764,160,
 * gate, up and down 5,497,558,138,880; a layer 20,809,116,549,120, 32 layers 665,891,729,571,840.
 */
static void newton_schulz_seconds(void **state)
{
    (void)state;
    sample_llama(&s);
    sample_flops(&s);
    s.choices.primitives.optimizer = OPTIMIZER_MUON;
    assert_near(seconds_of(TIME_OPTIMIZER, 4096), 665891729571840 / 1e14, 1e-9, "s");
    s.choices.layout.fsdp = 8;
    assert_near(seconds_of(TIME_OPTIMIZER, 4096), 665891729571840 / 8.0 / 1e14, 1e-9, "s");
    /* of 1,024 ranks each has one matrix at the most */
    s.choices.layout.fsdp = 1024;
    assert_near(seconds_of(TIME_OPTIMIZER, 4096), 5497558138880 / 1e14, 1e-9, "s");
    s.choices.primitives.sharding = SHARDING_REPLICATED;
    assert_near(seconds_of(TIME_OPTIMIZER, 4096), 665891729571840 / 1e14, 1e-9, "s");
}

/* An expert's three matrices have m = 768, n = 2048: 5 x (4 x 2048 x 768^2 + 2 x 768^3) =
 * 28,689,039,360 FLOPs each; 16 experts a rank and layer. The dense part is dealt among eight
 * ranks: q and o m = 2048, n = 4096, 5 x (4 x 4096 x 2048^2 + 2 x 2048^3) = 429,496,729,600; k and
 * v m = 512, 5 x (4 x 2048 x 512^2 + 2 x 512^3) = 12,079,595,520. */
static void experts_are_orthogonalized_where_they_are(void **state)
{
    (void)state;
    sample_qwen(&s);
    sample_flops(&s);
    s.choices.layout.ep = s.choices.layout.fsdp = 8;
    s.choices.primitives.optimizer = OPTIMIZER_MUON;
    double experts = 48.0 * 16 * 3 * 28689039360;
    double dense = 48 * 2 * (429496729600.0 + 12079595520);
    assert_near(seconds_of(TIME_OPTIMIZER, 4096), (experts + dense / 8) / 1e14, 1e-9, "s");
}

/* Matrices of 32 layers, 6,979,321,856 parameters, go around twice in bf16; all else is reduced as
 * under AdamW. Seven gathers of each of both kinds a layer. */
static void momenta_are_gathered(void **state)
{
    (void)state;
    sample_llama(&s);
    sample_flops(&s);
    s.choices.layout.fsdp = 8;
    double adamw = seconds_of(TIME_REDUCE, 4096);
    s.choices.primitives.optimizer = OPTIMIZER_MUON;
    assert_near(seconds_of(TIME_REDUCE, 4096) - adamw, 2 * 2 * 6979321856.0 * 7 / 8 / 1e11, 1e-9,
                "s");
    s.hardware.collective_latency_seconds = 1e-3;
    s.choices.primitives.optimizer = OPTIMIZER_ADAMW;
    adamw = seconds_of(TIME_REDUCE, 4096);
    s.choices.primitives.optimizer = OPTIMIZER_MUON;
    assert_near(seconds_of(TIME_REDUCE, 4096) - adamw,
                2 * 2 * 6979321856.0 * 7 / 8 / 1e11 + 32 * 7 * 2 * 1e-3, 1e-9, "s");
}

/* Bytes at 1e12 B/s, FLOPs for nothing. AdamW: master and moments read and written 24, gradient
 * read twice 8, weight written 2. */
static void update_bytes(void **state)
{
    double n = 8030261248, second = 1050939392;
    (void)state;
    sample_llama(&s);
    sample_flops(&s);
    s.hardware.memory_bytes_per_second = 1e12;
    s.hardware.bf16_flops_per_second = 1e30;
    assert_near(seconds_of(TIME_OPTIMIZER, 4096), 34 * n / 1e12, 1e-9, "s");
    s.choices.primitives.moments_dtype = DTYPE_BF16;
    assert_near(seconds_of(TIME_OPTIMIZER, 4096), 26 * n / 1e12, 1e-9, "s");
    s.choices.primitives.master = MASTER_NONE; /* 8 of the master less, the weight read: 2 */
    assert_near(seconds_of(TIME_OPTIMIZER, 4096), 20 * n / 1e12, 1e-9, "s");
    s.choices.primitives.moments_dtype = DTYPE_FP32;
    s.choices.primitives.master = MASTER_FP32;
    s.choices.primitives.optimizer = OPTIMIZER_MUON; /* 8 of the second moment less, 6 of X more */
    assert_near(seconds_of(TIME_OPTIMIZER, 4096), (34 * second + 32 * (n - second)) / 1e12, 1e-9,
                "s");
}

/* The host's link is passed in both directions at once, by master and moments alone: 12 bytes an
 * element under AdamW, in bf16 and without a master 4. The device stores two buckets. */
static void offloaded_state(void **state)
{
    double n = 8030261248;
    (void)state;
    sample_llama(&s);
    sample_flops(&s);
    s.hardware.host_link_both_bytes_per_second = 1e10;
    s.choices.primitives.offload = OFFLOAD_OPTIMIZER;
    s.choices.primitives.bucket_params = 1000000;
    assert_near(seconds_of(TIME_OPTIMIZER, 4096), 12 * n / 1e10, 1e-9, "s");
    s.choices.primitives.moments_dtype = DTYPE_BF16;
    s.choices.primitives.master = MASTER_NONE;
    assert_near(seconds_of(TIME_OPTIMIZER, 4096), 4 * n / 1e10, 1e-9, "s");
    compute(4096);
    assert_int_equal(bytes_of(ITEM_MASTER), 0);
    assert_int_equal(bytes_of(ITEM_MOMENTS), 2 * 1000000 * 4);
    assert_int_equal(budget.groups[0].host_bytes, UINT64_C(4) * 8030261248);
}

/* tp 2 x fsdp 4 x d_rep 2: the world, shards, replicas and tp have a communicator each; the eight
 * ranks that share one copy of a matrix one more. Without tp they are the shards'. */
static void one_copy_has_a_communicator(void **state)
{
    (void)state;
    for (int tp = 1; tp <= 2; tp++) {
        sample_llama(&s);
        s.hardware.communicator_next_bytes = 1000;
        s.choices.layout.tp = tp;
        s.choices.layout.fsdp = 4;
        s.choices.layout.d_rep = 2;
        compute(4096);
        uint64_t adamw = bytes_of(ITEM_COMMUNICATORS);
        s.choices.primitives.optimizer = OPTIMIZER_MUON;
        compute(4096);
        assert_int_equal(bytes_of(ITEM_COMMUNICATORS) - adamw, tp == 1 ? 0 : 1000);
    }
}

static uint64_t state_bytes(void)
{
    return bytes_of(ITEM_WEIGHTS) + bytes_of(ITEM_GRADIENTS) + bytes_of(ITEM_MASTER) +
           bytes_of(ITEM_MOMENTS);
}

/* Each of these takes state away, and what is left beside it is as it was. */
static void less_state_is_less(void **state)
{
    uint64_t seed = 11;
    (void)state;
    for (int round = 0; round < 200; round++) {
        sample_draw(&s, &seed);
        struct primitives *p = &s.choices.primitives;
        compute(4096);
        uint64_t all = state_bytes(), peak = budget.groups[0].peak_bytes;
        p->moments_dtype = DTYPE_BF16;
        compute(4096);
        uint64_t half = state_bytes();
        assert_true(half < all);
        assert_int_equal(peak - budget.groups[0].peak_bytes, all - half);
        p->optimizer = OPTIMIZER_MUON;
        compute(4096);
        assert_true(state_bytes() < half);
        p->master = MASTER_NONE;
        uint64_t muon = state_bytes();
        compute(4096);
        assert_true(state_bytes() < muon);
        p->moments_dtype = DTYPE_FP32;
        p->optimizer = OPTIMIZER_ADAMW;
        compute(4096);
        assert_int_equal(state_bytes(), all - (all - half)); /* 4 bytes of either */
    }
}

static void what_no_executor_runs_is_assumed(void **state)
{
    (void)state;
    sample_llama(&s);
    sample_input(&s, 4096);
    assert_int_equal(budget_basis(&s.in, ITEM_MOMENTS), BASIS_ARITHMETIC);
    s.choices.primitives.moments_dtype = DTYPE_BF16;
    assert_int_equal(budget_basis(&s.in, ITEM_MOMENTS), BASIS_ASSUMED);
    assert_int_equal(budget_basis(&s.in, ITEM_WEIGHTS), BASIS_ARITHMETIC);
    s.choices.primitives.moments_dtype = DTYPE_FP32;
    s.choices.primitives.optimizer = OPTIMIZER_MUON;
    assert_int_equal(budget_basis(&s.in, ITEM_WORKSPACE), BASIS_ASSUMED);
    assert_int_equal(budget_basis(&s.in, ITEM_GATHERED_GRADIENTS), BASIS_ASSUMED);
    assert_int_equal(step_time_basis(&s.in, TIME_OPTIMIZER), BASIS_ASSUMED);
    assert_int_equal(step_time_basis(&s.in, TIME_MATMUL), BASIS_MEASURED);
}

static void formulas_have_their_numbers(void **state)
{
    char text[512];
    (void)state;
    sample_llama(&s);
    s.choices.layout.fsdp = 8;
    s.choices.primitives.optimizer = OPTIMIZER_MUON;
    compute(4096);
    budget_formula(asked(&s.in), &budget.groups[0], ITEM_MOMENTS, text, sizeof text);
    assert_golden("formula of moments", text);
    budget_formula(asked(&s.in), &budget.groups[0], ITEM_WORKSPACE, text, sizeof text);
    assert_golden("formula of the workspace", text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_of_llama),
        cmocka_unit_test(muon_of_llama),
        cmocka_unit_test(muon_of_qwen),
        cmocka_unit_test(newton_schulz_workspace),
        cmocka_unit_test(newton_schulz_seconds),
        cmocka_unit_test(experts_are_orthogonalized_where_they_are),
        cmocka_unit_test(momenta_are_gathered),
        cmocka_unit_test(update_bytes),
        cmocka_unit_test(offloaded_state),
        cmocka_unit_test(one_copy_has_a_communicator),
        cmocka_unit_test(less_state_is_less),
        cmocka_unit_test(what_no_executor_runs_is_assumed),
        cmocka_unit_test(formulas_have_their_numbers),
    };
    return cmocka_run_group_tests_name("optimizers", tests, NULL, NULL);
}
