/* Moments beside the steady step, by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget_sample.h"
#include "planner/predict/peaks.h"
#include "tests/support/asked.h"
#include "tests/support/golden.h"

static struct sample s;
static struct budget budget;
static struct rank_peaks peaks;

static void compute(uint64_t seq, int rank)
{
    budget_compute(asked(sample_input(&s, seq)), &budget);
    int group = budget_group_of(&s.in, &budget, rank);
    budget_peaks(asked(&s.in), &budget.groups[group], rank, &peaks);
}

/* A device of two ranks; H 64, F 96, V 1000. A layer has 30,848 parameters, the embedding 64,000,
 * the head 64,064, padded to 64,128: 189,824 in all, 94,912 a rank. */
static void device(void)
{
    sample_init(&s);
    s.hardware.host = false;
    s.hardware.context_bytes = 500000;
    s.hardware.modules_bytes = 20000;
    s.choices.layout.fsdp = s.choices.layout.e_fsdp = 2;
}

/* Moments are 8 B x 94,912 = 759,296; all else of a first step is that of every other. */
static void moments_come_with_the_first_optimizer_step(void **state)
{
    (void)state;
    device();
    compute(4096, 0);
    assert_int_equal(peaks.bytes[MOMENT_STEADY], budget.groups[0].peak_bytes);
    assert_int_equal(peaks.bytes[MOMENT_STEADY] - peaks.bytes[MOMENT_FIRST_STEP], 759296);
    assert_int_equal(peaks.binding, MOMENT_STEADY);
}

/* Where a step makes almost nothing, the optimizer's phase is the peak, with the moments. */
static void the_optimizer_has_its_moments(void **state)
{
    (void)state;
    device();
    s.choices.primitives.sharding = SHARDING_REPLICATED;
    s.choices.primitives.loss_tile_tokens = 1;
    compute(2, 0);
    /* weights 2, gradients 4, master 4, moments 8 of 189,824 (padded whether or not it is split),
     * and what runs: context, modules, scratch of 4,096 */
    uint64_t idle = UINT64_C(18) * 189824 + 500000 + 20000 + 4096;
    assert_int_equal(peaks.bytes[MOMENT_SAVE], idle);
    assert_int_equal(peaks.bytes[MOMENT_RESUME], idle);
    assert_int_equal(peaks.bytes[MOMENT_FIRST_STEP], idle);
    assert_true(peaks.bytes[MOMENT_STEADY] > idle);
}

/* fsdp over two: shards rounded up to 256 B in bf16: 30,976, 64,000, 64,256 (as in the budget by
 * hand); fp32 12 B a master and moments, 4 B a gradient. Rank 0 gathers the head, 64,128 elements:
 * its own slice of 32,064, two more that arrive, and the whole. */
static void saving_gathers_the_largest_unit(void **state)
{
    (void)state;
    device();
    compute(4096, 0);
    uint64_t idle =
        UINT64_C(2) * 30976 + 64000 + 64256 + UINT64_C(16) * 94912 + 500000 + 20000 + 4096;
    assert_int_equal(peaks.bytes[MOMENT_SAVE], idle);
    assert_int_equal(peaks.bytes[MOMENT_RESUME], idle);
    assert_int_equal(peaks.host_bytes[MOMENT_SAVE], 2 * (32064 * (1 + 2) + 64128));
    assert_int_equal(peaks.host_bytes[MOMENT_RESUME], 65536 * 4);
    /* another rank copies its slice out and sends it */
    compute(4096, 1);
    assert_int_equal(peaks.host_bytes[MOMENT_SAVE], 2 * 32064);
}

/* Where the ranks live in the host's memory, the buffers are the rank's. 4 experts of width 32 on
 * two ranks: 2 x 3 x 64 x 32 = 12,288 here, a smaller part than the head. Replicated, each rank
 * sends all of it: 64,128 x (1 + 2) + 64,128. */
static void on_the_host_copies_are_the_ranks(void **state)
{
    (void)state;
    sample_init(&s);
    sample_moe(&s.model, 4, 2);
    s.choices.layout.ep = s.choices.layout.fsdp = 2;
    s.choices.primitives.sharding = SHARDING_REPLICATED;
    compute(128, 0);
    assert_int_equal(save_buffer_bytes(asked(&s.in), 0), 2 * 4 * 64128);
    assert_int_equal(save_buffer_bytes(asked(&s.in), 1), 2 * 64128);
    assert_int_equal(peaks.bytes[MOMENT_SAVE] - peaks.bytes[MOMENT_RESUME],
                     2 * 4 * 64128 - 65536 * 4);
    assert_int_equal(peaks.host_bytes[MOMENT_SAVE], 0);
}

/* Eight ranks with all experts apart: what comes to rank 0 is 8 x 24,576 elements of each layer's
 * part (4 experts a rank would be 24,576), and the whole is 8 of them. */
static void experts_come_from_all_ranks(void **state)
{
    (void)state;
    sample_init(&s);
    sample_moe(&s.model, 32, 2);
    s.model.vocab = 10;
    s.choices.layout.ep = s.choices.layout.fsdp = 8;
    compute(128, 0);
    /* 32 x 3 x 64 x 32 / 8 = 24,576 */
    assert_int_equal(save_buffer_bytes(asked(&s.in), 0), 2 * (24576 * (1 + 8) + 8 * 24576));
}

/* A save may take more than a step: a long vocabulary, a short sequence. */
static void saving_may_bind(void **state)
{
    (void)state;
    sample_init(&s);
    s.model.vocab = 20000;
    s.choices.layout.fsdp = 4;
    s.choices.primitives.sharding = SHARDING_REPLICATED;
    s.choices.primitives.loss_tile_tokens = 1;
    compute(8, 0);
    assert_int_equal(peaks.binding, MOMENT_SAVE);
    assert_true(peaks.bytes[MOMENT_SAVE] > peaks.bytes[MOMENT_STEADY]);
    char text[200];
    peaks_formula(asked(&s.in), &budget.groups[0], 0, MOMENT_SAVE, text, sizeof text);
    assert_golden("formula of the save", text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_come_with_the_first_optimizer_step),
        cmocka_unit_test(the_optimizer_has_its_moments),
        cmocka_unit_test(saving_gathers_the_largest_unit),
        cmocka_unit_test(on_the_host_copies_are_the_ranks),
        cmocka_unit_test(experts_come_from_all_ranks),
        cmocka_unit_test(saving_may_bind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
