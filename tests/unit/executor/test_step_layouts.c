/* One rank against as many as there are: the same model, the same global batch, the same routing;
 * loss, final hidden states and every gradient tensor, under every way of sharding and expert
 * parallelism that the world allows. */
#include "tests/unit/executor/step_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct layout_case {
    int world;
    struct step_layout layout;
    const char *routing;
};

/* Columns: fsdp, d_rep, ep, e_fsdp, e_rep, micro-batch, micro-batches, sharding, prefetch, streams,
 * cp, chunks of the experts, delay of their weight gradients. */
static const struct layout_case cases[] = {
    { 1, { 1, 1, 1, 1, 1, 2, 2, SHARDING_FSDP, 1, 1, 1, 0, 0 }, "80:4" },
    { 1, { 1, 1, 1, 1, 1, 4, 1, SHARDING_REPLICATED, 0, 2, 1, 0, 0 }, "balanced" },
    { 2, { 2, 1, 1, 2, 1, 1, 2, SHARDING_FSDP, 0, 1, 1, 0, 0 }, "balanced" },
    { 2, { 2, 1, 2, 1, 1, 2, 1, SHARDING_FSDP, 2, 2, 1, 0, 0 }, "80:4" },
    { 2, { 2, 1, 2, 1, 1, 1, 2, SHARDING_ZERO1, 1, 1, 1, 0, 0 }, "natural" },
    { 2, { 2, 1, 1, 2, 1, 1, 2, SHARDING_REPLICATED, 1, 1, 1, 0, 0 }, "80:4" },
    { 2, { 1, 2, 1, 1, 2, 1, 2, SHARDING_FSDP, 1, 1, 1, 0, 0 }, "balanced" },
    { 2, { 1, 1, 1, 2, 1, 2, 2, SHARDING_FSDP, 1, 1, 2, 0, 0 }, "80:4" },
    { 2, { 1, 1, 2, 1, 1, 1, 2, SHARDING_ZERO1, 1, 1, 2, 0, 0 }, "natural" },
    { 2, { 1, 1, 2, 1, 1, 2, 1, SHARDING_REPLICATED, 1, 1, 2, 0, 0 }, "80:4" },
    { 1, { 1, 1, 1, 1, 1, 2, 2, SHARDING_FSDP, 1, 1, 1, 3, 1 }, "80:4" },
    { 2, { 2, 1, 2, 1, 1, 2, 1, SHARDING_FSDP, 1, 2, 1, 4, WGRAD_DELAY_ALL }, "natural" },
    { 2, { 1, 1, 2, 1, 1, 1, 2, SHARDING_FSDP, 1, 1, 2, 3, 1 }, "80:4" },
    { 3, { 3, 1, 1, 3, 1, 2, 1, SHARDING_FSDP, 1, 2, 1, 0, 0 }, "80:4" },
    { 3, { 1, 1, 1, 3, 1, 2, 1, SHARDING_FSDP, 1, 2, 3, 0, 0 }, "80:4" },
    { 4, { 4, 1, 4, 1, 1, 1, 1, SHARDING_FSDP, 1, 1, 1, 0, 0 }, "80:4" },
    { 4, { 4, 1, 2, 2, 1, 1, 1, SHARDING_FSDP, 2, 2, 1, 0, 0 }, "natural" },
    { 4, { 4, 1, 1, 4, 1, 1, 1, SHARDING_ZERO1, 1, 1, 1, 0, 0 }, "balanced" },
    { 4, { 4, 1, 2, 2, 1, 1, 1, SHARDING_ZERO1, 1, 1, 1, 0, 0 }, "80:4" },
    { 4, { 4, 1, 2, 2, 1, 1, 1, SHARDING_REPLICATED, 1, 1, 1, 0, 0 }, "80:4" },
    { 4, { 4, 1, 4, 1, 1, 1, 1, SHARDING_ZERO1, 1, 1, 1, 2, 0 }, "80:4" },
    { 4, { 4, 1, 2, 2, 1, 1, 1, SHARDING_FSDP, 1, 1, 1, 5, 2 }, "natural" },
    { 4, { 2, 2, 2, 1, 2, 1, 1, SHARDING_FSDP, 1, 2, 1, 0, 0 }, "balanced" },
    { 4, { 2, 2, 2, 1, 2, 1, 1, SHARDING_ZERO1, 1, 2, 1, 0, 0 }, "balanced" },
    { 4, { 1, 1, 1, 4, 1, 1, 2, SHARDING_FSDP, 1, 1, 4, 0, 0 }, "balanced" },
    { 4, { 2, 1, 4, 1, 1, 2, 1, SHARDING_FSDP, 2, 2, 2, 0, 0 }, "80:4" },
    { 4, { 2, 1, 2, 2, 1, 1, 2, SHARDING_ZERO1, 1, 1, 2, 0, 0 }, "natural" },
    { 4, { 1, 2, 2, 1, 2, 1, 1, SHARDING_FSDP, 0, 1, 2, 0, 0 }, "80:4" },
    { 8, { 2, 1, 2, 4, 1, 1, 1, SHARDING_FSDP, 1, 1, 4, 0, 0 }, "80:4" },
    { 8, { 4, 1, 4, 2, 1, 2, 1, SHARDING_FSDP, 1, 2, 2, 0, 0 }, "natural" },
};

/* RMS of the difference over RMS of `want`. */
static double difference(const struct dump_tensor *got, const struct dump_tensor *want)
{
    double square = 0, size = 0;
    for (uint64_t i = 0; i < want->elements; i++) {
        double d = (double)got->values[i] - (double)want->values[i];
        square += d * d;
        size += (double)want->values[i] * (double)want->values[i];
    }
    return size > 0 ? sqrt(square / size) : sqrt(square);
}

/* hybrid: a recurrence that ranks share, whose states are carried by transitions or whose products
 * have other neighbours; bf16 is rounded elsewhere then. */
static void compare(const struct step_run *got, const struct step_run *want,
                    const struct layout_case *c, bool hybrid)
{
    /* a token's row does not depend on the layout, down to the last bit; what remains is the order
     * in which fp32 gradients are summed, and under cp a key's gradient that this order rounds to
     * the neighbouring bf16 */
    const double tolerance = hybrid ? 0x1p-8 : c->layout.cp > 1 ? 2e-4 : 2e-6;
    double worst = 0;

    assert_int_equal(got->dump.count, want->dump.count);
    assert_true(want->dump.count > 10);
    for (size_t i = 0; i < want->dump.count; i++) {
        const struct dump_tensor *expected = &want->dump.tensors[i];
        const struct dump_tensor *tensor = dump_find(&got->dump, expected->name);
        assert_non_null(tensor);
        assert_int_equal(tensor->elements, expected->elements);
        double error = difference(tensor, expected);
        worst = error > worst ? error : worst;
        bool exact = !hybrid && strcmp(expected->name, dump_hidden_name) == 0;
        if (!(error <= (exact ? 0 : tolerance)))
            fail_msg("world %d sharding %d ep %d: %s differs by %g", c->world,
                     (int)c->layout.sharding, c->layout.ep, expected->name, error);
    }
    for (int step = 0; step < 3; step++) {
        double relative = fabs(got->loss[step] - want->loss[step]) / want->loss[step];
        /* AdamW divides a gradient by its own size: where it is close to nothing, the order of
         * sums decides the sign of a whole step */
        if (!(relative <= (step == 0 && !hybrid ? 1e-6 : 2e-5)))
            fail_msg("step %d: loss %.9g, one rank %.9g", step + 1, got->loss[step],
                     want->loss[step]);
        assert_true(fabs(got->norm[step] / want->norm[step] - 1) <= 1e-3);
    }
    print_message("world %d sharding %d ep %d %s: worst tensor differs by %.2g\n", c->world,
                  (int)c->layout.sharding, c->layout.ep, c->routing, worst);
}

static void run_case(const struct layout_case *c, const struct model *model, struct fabric *alone,
                     enum linear_context linear)
{
    struct plan *plans = calloc(2, sizeof *plans);
    struct step_run many, one;
    struct step_layout single = { .micro_batch = 1, .sharding = SHARDING_FSDP };

    assert_non_null(plans);
    step_plan(&plans[0], model, &c->layout, c->routing);
    plans[0].choices.primitives.linear_context = linear;
    single.micro_batches = (int)plans[0].global_batch;
    step_plan(&plans[1], model, &single, c->routing);
    step_run(step_fabric, &plans[0], 3, &many);
    step_run(alone, &plans[1], 3, &one);
    if (step_fabric->rank == 0)
        compare(&many, &one, c, linear != LINEAR_CONTEXT_NONE);
    dump_done(&many.dump);
    dump_done(&one.dump);
    free(plans);
}

/* Every form of linear attention that serves: heads are split where cp divides them, states passed
 * where runs are as long as a halo. */
static void run_contexts(const struct layout_case *c, const struct model *model,
                         struct fabric *alone)
{
    bool shared = model->gdn.value_heads > 0 && c->layout.cp > 1;
    if (!shared)
        run_case(c, model, alone, LINEAR_CONTEXT_NONE);
    else
        run_case(c, model, alone, LINEAR_CONTEXT_STATE_PASS);
    if (shared && model->gdn.key_heads % c->layout.cp == 0)
        run_case(c, model, alone, LINEAR_CONTEXT_HEAD_SPLIT);
}

static void run_cases(const struct model *model)
{
    struct fabric *alone = step_alone(step_fabric);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (cases[i].world == step_fabric->world &&
            (model->moe.experts > 0 || cases[i].layout.ep == 1))
            run_contexts(&cases[i], model, alone);
    step_alone_close(alone);
}

static void test_moe(void **state)
{
    (void)state;
    struct model model;
    step_moe_model(&model);
    run_cases(&model);
}

static void test_dense_tied(void **state)
{
    (void)state;
    struct model model;
    step_dense_model(&model);
    run_cases(&model);
}

/* Gate, biases, window, partial rotary embedding and centred norms, under every layout. */
static void test_featured(void **state)
{
    (void)state;
    struct model model;
    step_featured_model(&model, true);
    run_cases(&model);
}

/* Delta nets and gated attention, experts in one tensor and one by one. */
static void test_hybrids(void **state)
{
    (void)state;
    struct model model;
    step_hybrid_model(&model, HYBRID_QWEN3_5_MOE);
    run_cases(&model);
    step_hybrid_model(&model, HYBRID_QWEN3_NEXT);
    run_cases(&model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe),
        cmocka_unit_test(test_dense_tied),
        cmocka_unit_test(test_featured),
        cmocka_unit_test(test_hybrids),
    };
    return step_main(argc, argv, "step_layouts", tests, sizeof tests / sizeof *tests);
}
