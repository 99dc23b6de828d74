/* Trained prediction layers in budgets, by hand: hidden 64, 256 tokens, vocabulary 1000, two dense
 * layers and a prediction layer, everything recomputed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget_sample.h"
#include "planner/predict/peaks.h"
#include "tests/support/asked.h"

static struct sample s;

static void last_stage(int pp, bool predicts, unsigned frozen, struct rank_budget *ret)
{
    static struct budget budget;
    sample_init(&s);
    s.choices.primitives.frozen = frozen;
    s.model.mtp_layers = 1;
    s.model.mtp_trained = predicts;
    s.choices.layout.pp = pp;
    s.choices.layout.micro_batches = 4;
    s.choices.primitives.recompute = RECOMPUTE_FULL;
    s.choices.primitives.recompute_layers = RECOMPUTE_ALL_LAYERS;
    s.choices.primitives.loss = LOSS_LINEAR_CE;
    s.choices.primitives.loss_tile_tokens = 256;
    budget_compute(asked(sample_input(&s, 256)), &budget);
    *ret = budget.groups[budget.count - 1];
}

/* A state [256, 64] bf16 is 32,768 B. Loss: 256 x 1000 x (4 + 2) B and three states, beside state
 * 0. Prediction layer: q, k, v, o of 4096 + 2048 + 2048 + 4096, three of 64 x 96, two norms, a join
 * of 64 x 128, three norms: 39,232 weights, 78,464 B, up to 78,592. Embedding: 128,000 B. */
static void check(int pp, uint64_t layers, uint64_t weights)
{
    struct rank_budget with, without;
    last_stage(pp, true, 0, &with);
    last_stage(pp, false, 0, &without);
    assert_int_equal(without.item_max_bytes[ITEM_CHECKPOINTS], layers * 32768);
    assert_int_equal(with.item_max_bytes[ITEM_CHECKPOINTS], (layers + 1) * 32768);
    assert_int_equal(without.item_max_bytes[ITEM_LOSS_WORKING], 3 * 32768 + 1536000);
    assert_int_equal(with.item_max_bytes[ITEM_LOSS_WORKING], 4 * 32768 + 1536000);
    assert_int_equal(without.item_max_bytes[ITEM_INPUTS], 2 * 1024);
    assert_int_equal(with.item_max_bytes[ITEM_INPUTS], 3 * 1024);
    assert_int_equal(with.item_bytes[ITEM_WEIGHTS] - without.item_bytes[ITEM_WEIGHTS], weights);
    assert_true(with.peak_bytes >= without.peak_bytes);
    assert_true(with.peak_upper_bytes >= without.peak_upper_bytes);
}

static void two_stages(void **state)
{
    (void)state;
    check(2, 1, 78592 + 128000);
}

static void one_stage(void **state)
{
    (void)state;
    check(1, 2, 78592);
}

/* A dense layer's backward: dx, x1, o and, as queries, keys and values have 64 + 2 x 32, twice as
 * much for them: 5 x 32,768 B; lse of 4 heads, 4,096; hd [256, 2 x 96], dad [256, 96] and, for the
 * gradient of the down projection, ad again: 98,304 + 2 x 49,152. Where the trunk's MLPs are frozen
 * a layer of it makes no ad; the prediction layer, which is a component of its own, does. */
static void frozen_trunk(void **state)
{
    struct rank_budget with, without;
    (void)state;
    last_stage(1, true, 1U << COMPONENT_DENSE_MLP, &with);
    last_stage(1, false, 1U << COMPONENT_DENSE_MLP, &without);
    assert_int_equal(with.item_max_bytes[ITEM_LAYER_WORKING], 364544);
    assert_int_equal(without.item_max_bytes[ITEM_LAYER_WORKING], 364544 - 49152);
}

/* Vocabulary 10: the unit of the prediction layer is the largest that is saved. One rank copies it
 * out, takes it in again and puts it together: 3 x 2 B x 39,232. */
static void saving(void **state)
{
    (void)state;
    sample_init(&s);
    s.model.vocab = 10;
    s.model.mtp_layers = 1;
    s.model.mtp_trained = true;
    assert_int_equal(save_buffer_bytes(asked(sample_input(&s, 256)), 0), 3 * 2 * 39232);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(two_stages), cmocka_unit_test(one_stage),
                                        cmocka_unit_test(frozen_trunk), cmocka_unit_test(saving) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
