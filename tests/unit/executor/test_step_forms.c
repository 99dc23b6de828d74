/* The same step in another form: which layers recompute is not to be seen in any bit; the forms of
 * the loss agree; gradients in bf16 stay near those in fp32 under every sharding. */
#include "tests/unit/executor/step_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 3 };

struct form {
    const char *name;
    enum recompute recompute;
    int recompute_layers, keep_attention;
    enum loss loss;
    enum dtype logits, gradient;
    int strip;
};

#define PLAIN RECOMPUTE_FULL, RECOMPUTE_ALL_LAYERS, 0
static const struct form usual = { "usual", PLAIN, LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_FP32, 0 };

/* Shared out over all ranks there are, experts too. */
static struct step_layout shared(enum sharding sharding, bool experts)
{
    int world = step_fabric->world;
    return (struct step_layout){ .fsdp = world,
                                 .ep = experts ? world : 1,
                                 .e_fsdp = experts ? 1 : world,
                                 .micro_batch = 1,
                                 .micro_batches = 2,
                                 .sharding = sharding,
                                 .prefetch_units = 1,
                                 .comm_streams = 2 };
}

static void run(const struct model *model, struct step_layout layout, const struct form *form,
                struct fabric *fabric, struct step_run *ret)
{
    struct plan *plan = calloc(1, sizeof *plan);

    assert_non_null(plan);
    step_plan(plan, model, &layout, "80:4");
    struct primitives *p = &plan->choices.primitives;
    p->recompute = form->recompute;
    p->recompute_layers = form->recompute_layers;
    p->keep_attention = form->keep_attention;
    p->loss = form->loss;
    p->logits_dtype = form->logits;
    p->grad_dtype = form->gradient;
    p->vocab_strip = form->strip;
    step_run(fabric, plan, STEPS, ret);
    free(plan);
}

/* RMS of the difference over RMS of `want`, of the tensor that is furthest off. */
static double furthest(const struct step_run *got, const struct step_run *want)
{
    double worst = 0;

    assert_int_equal(got->dump.count, want->dump.count);
    for (size_t t = 0; t < want->dump.count; t++) {
        const struct dump_tensor *expected = &want->dump.tensors[t];
        const struct dump_tensor *tensor = dump_find(&got->dump, expected->name);
        double square = 0, size = 0;
        assert_non_null(tensor);
        assert_int_equal(tensor->elements, expected->elements);
        for (uint64_t i = 0; i < expected->elements; i++) {
            double value = (double)expected->values[i];
            square += pow((double)tensor->values[i] - value, 2);
            size += value * value;
        }
        assert_true(size > 0);
        worst = sqrt(square / size) > worst ? sqrt(square / size) : worst;
    }
    return worst;
}

static bool same_bits(const struct step_run *got, const struct step_run *want)
{
    for (int step = 0; step < STEPS; step++)
        if (got->loss[step] != want->loss[step] || got->norm[step] != want->norm[step])
            return false;
    for (size_t t = 0; t < want->dump.count; t++) {
        const struct dump_tensor *expected = &want->dump.tensors[t];
        const struct dump_tensor *tensor = dump_find(&got->dump, expected->name);
        if (!tensor || memcmp(tensor->values, expected->values,
                              expected->elements * sizeof *expected->values) != 0)
            return false;
    }
    return got->dump.count == want->dump.count;
}

/* What attention made in one layer: outputs in bf16, log-sum-exps in fp32, each rounded up to 256
 * bytes. */
static uint64_t attention_bytes(const struct model *model)
{
    uint64_t heads = (uint64_t)model->gqa.heads, tokens = SEQ_TOKENS;
    uint64_t outputs = 2 * tokens * heads * (uint64_t)model->gqa.head_dim;
    uint64_t sums = 4 * tokens * heads;
    return (outputs + 255) / 256 * 256 + (sums + 255) / 256 * 256;
}

static void compare_recompute(const struct model *model, bool experts)
{
    enum { NONE, FIRST, NO_LAYER, KEEPING, FIRST_KEEPING, OTHERS };
#define LAST LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_FP32, 0
    static const struct form others[OTHERS] = {
        [NONE] = { "none", RECOMPUTE_NONE, RECOMPUTE_ALL_LAYERS, 0, LAST },
        [FIRST] = { "first layer", RECOMPUTE_FULL, 1, 0, LAST },
        [NO_LAYER] = { "no layer", RECOMPUTE_FULL, 0, 0, LAST },
        [KEEPING] = { "all but attention", RECOMPUTE_FULL, RECOMPUTE_ALL_LAYERS, 1, LAST },
        [FIRST_KEEPING] = { "first layer but its attention", RECOMPUTE_FULL, 1, 1, LAST },
    };
#undef LAST
    const struct step_layout layout = shared(SHARDING_FSDP, experts);
    struct step_run all, other;
    uint64_t saved[OTHERS], kept = attention_bytes(model);

    run(model, layout, &usual, step_fabric, &all);
    assert_int_equal(all.memory.item_max[ITEM_LAYER_SAVED], 0);
    for (int i = 0; i < OTHERS; i++) {
        run(model, layout, &others[i], step_fabric, &other);
        saved[i] = other.memory.item_max[ITEM_LAYER_SAVED];
        if (step_fabric->rank == 0 && !same_bits(&other, &all))
            fail_msg("recompute of %s differs", others[i].name);
        dump_done(&other.dump);
    }
    assert_int_equal(saved[NONE], saved[NO_LAYER]);
    if (!experts) /* both layers hold the same */
        assert_int_equal(saved[NONE], 2 * saved[FIRST]);
    assert_int_equal(saved[KEEPING], 2 * kept);
    assert_int_equal(saved[FIRST_KEEPING], saved[FIRST] + kept);
    dump_done(&all.dump);
}

static void test_recompute(void **state)
{
    struct model model;
    (void)state;
    step_moe_model(&model);
    compare_recompute(&model, false);
    compare_recompute(&model, true);
    step_dense_model(&model);
    compare_recompute(&model, false);
}

/* A delta net and then attention: which of them recomputes is not to be seen either; only attention
 * has what keep_attention keeps. */
static void test_hybrid_recompute(void **state)
{
#define LAST LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_FP32, 0
    static const struct form others[] = {
        { "none", RECOMPUTE_NONE, RECOMPUTE_ALL_LAYERS, 0, LAST },
        { "first layer", RECOMPUTE_FULL, 1, 0, LAST },
        { "all but attention", RECOMPUTE_FULL, RECOMPUTE_ALL_LAYERS, 1, LAST },
    };
#undef LAST
    const struct step_layout layout = shared(SHARDING_FSDP, true);
    struct step_run all, other;
    uint64_t saved = 0;
    struct model model;

    (void)state;
    step_hybrid_model(&model, HYBRID_QWEN3_5_MOE);
    run(&model, layout, &usual, step_fabric, &all);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        run(&model, layout, &others[i], step_fabric, &other);
        saved = other.memory.item_max[ITEM_LAYER_SAVED];
        if (step_fabric->rank == 0 && !same_bits(&other, &all))
            fail_msg("recompute of %s differs", others[i].name);
        dump_done(&other.dump);
    }
    assert_int_equal(saved, attention_bytes(&model));
    dump_done(&all.dump);
}

static void compare_forms(const struct model *model, const struct form *others, int count,
                          double tolerance)
{
    const struct step_layout layout = shared(SHARDING_FSDP, false);
    struct step_run want, got;

    run(model, layout, &usual, step_fabric, &want);
    for (int i = 0; i < count; i++) {
        run(model, layout, &others[i], step_fabric, &got);
        if (step_fabric->rank == 0) {
            double error = furthest(&got, &want);
            print_message("%s: worst tensor differs by %.2g, loss by %.1g\n", others[i].name, error,
                          got.loss[0] / want.loss[0] - 1);
            assert_true(error <= tolerance);
            assert_true(fabs(got.loss[0] / want.loss[0] - 1) <= 1e-4);
            assert_true(fabs(got.loss[STEPS - 1] / want.loss[STEPS - 1] - 1) <= 1e-3);
        }
        dump_done(&got.dump);
    }
    dump_done(&want.dump);
}

static void test_losses(void **state)
{
    static const struct form exact[] = {
        { "full", PLAIN, LOSS_FULL, DTYPE_FP32, DTYPE_FP32, 0 },
        { "strips of 7", PLAIN, LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_FP32, 7 },
        { "one strip", PLAIN, LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_FP32, 61 },
    };
    static const struct form rounded[] = {
        { "full, bf16 logits", PLAIN, LOSS_FULL, DTYPE_BF16, DTYPE_FP32, 0 },
    };
    struct model model;
    (void)state;
    step_moe_model(&model);
    compare_forms(&model, exact, 3, 4 * 0x1p-8);
    compare_forms(&model, rounded, 1, 4 * 0x1p-8);
    step_dense_model(&model);
    compare_forms(&model, exact, 3, 4 * 0x1p-8);
    compare_forms(&model, rounded, 1, 4 * 0x1p-8);
}

/* bf16 gradients, rounded once a micro-batch and once a reduction, against fp32 on one rank. */
static void test_narrow_gradients(void **state)
{
    static const enum sharding shardings[] = { SHARDING_REPLICATED, SHARDING_ZERO1, SHARDING_FSDP };
    struct form narrow = usual;
    struct fabric *alone = step_alone(step_fabric);
    struct step_layout single = { .micro_batch = 1,
                                  .micro_batches = 2 * step_fabric->world,
                                  .sharding = SHARDING_FSDP };
    struct step_run want, got;
    struct model model;
    (void)state;

    narrow.gradient = DTYPE_BF16;
    step_moe_model(&model);
    run(&model, single, &usual, alone, &want);
    for (int i = 0; i < 3; i++) {
        run(&model, shared(shardings[i], true), &narrow, step_fabric, &got);
        if (step_fabric->rank == 0) {
            double error = furthest(&got, &want);
            print_message("bf16 gradients, %s: worst tensor differs by %.2g\n",
                          sharding_names[shardings[i]], error);
            assert_true(error <= 4 * 0x1p-8);
            assert_true(error > 0);
            assert_true(fabs(got.loss[STEPS - 1] / want.loss[STEPS - 1] - 1) <= 1e-3);
        }
        dump_done(&got.dump);
    }
    dump_done(&want.dump);
    step_alone_close(alone);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_hybrid_recompute),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_narrow_gradients),
    };
    return step_main(argc, argv, "step_forms", tests, sizeof tests / sizeof *tests);
}
