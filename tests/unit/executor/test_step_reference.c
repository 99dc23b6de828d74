/* A whole step on one rank against a second implementation in double precision: first weights,
 * loss, final hidden states, and elements of every gradient tensor by central differences. */
#include "executor/primitive/state/state.h"
#include "tests/unit/executor/reference.h"
#include "tests/unit/executor/step_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SAMPLES = 6, RUN_SEED = 7, DATA_SEED = 5 };

/* The nearest bf16: 8 significant bits, ties to even. */
static double to_bf16(double value)
{
    int exponent;
    double fraction = frexp(value, &exponent);
    return ldexp(rint(ldexp(fraction, 8)), exponent - 8);
}

/* Matrices and biases are drawn, norms multiply by 1; decays begin at a rate of 1 and a step of 1.
 */
static double first_value(const struct reference *r, const struct dump_tensor *tensor, uint64_t key,
                          uint64_t element)
{
    if (strstr(tensor->name, "linear_attn") && tensor->axes == 1)
        return strstr(tensor->name, "A_log") ? 0 : 1;
    if (tensor->axes == 1 && !strstr(tensor->name, ".bias"))
        return r->plan->model.norm_zero_centred ? 0 : 1;
    return to_bf16((double)state_random_normal(key, element));
}

static void add_weights(struct reference *r, const struct dump_tensor *tensor)
{
    struct reference_tensor *ret = &r->tensors[r->count++];
    uint64_t key = state_random_key(RUN_SEED, tensor->name);

    assert_true(r->count <= REFERENCE_MAX_TENSORS);
    memcpy(ret->name, tensor->name, sizeof ret->name);
    ret->elements = tensor->elements;
    ret->values = calloc(tensor->elements, sizeof *ret->values);
    assert_non_null(ret->values);
    for (uint64_t i = 0; i < tensor->elements; i++)
        ret->values[i] = first_value(r, tensor, key, i);
}

static void open_reference(struct reference *r, const struct plan *plan, const struct dump *dump)
{
    const struct data data = { .seed = DATA_SEED, .vocab = plan->model.vocab };
    size_t batch = (size_t)plan->global_batch, seq = (size_t)plan->seq_tokens;
    int *ids = calloc(batch * (seq + 1), sizeof *ids);
    int32_t inputs[SEQ_TOKENS], targets[SEQ_TOKENS];

    *r = (struct reference){ .plan = plan, .seed = RUN_SEED, .ids = ids };
    r->hidden = calloc(batch * seq * (size_t)plan->model.hidden, sizeof *r->hidden);
    assert_non_null(ids);
    assert_non_null(r->hidden);
    for (size_t s = 0; s < batch; s++) {
        data_sequence(&data, s, seq, inputs, targets);
        for (size_t t = 0; t < seq; t++)
            ids[s * (seq + 1) + t] = inputs[t];
        ids[s * (seq + 1) + seq] = targets[seq - 1];
        for (size_t t = 0; t + 1 < seq; t++)
            assert_int_equal(targets[t], inputs[t + 1]);
    }
    for (size_t i = 0; i < dump->count; i++)
        if (strcmp(dump->tensors[i].name, dump_hidden_name) != 0)
            add_weights(r, &dump->tensors[i]);
}

static void close_reference(struct reference *r)
{
    int *ids;
    for (int i = 0; i < r->count; i++)
        free(r->tensors[i].values);
    memcpy(&ids, &r->ids, sizeof ids);
    free(ids);
    free(r->hidden);
}

static void compare_hidden(const struct reference *r, const struct dump *dump)
{
    const struct dump_tensor *hidden = dump_find(dump, dump_hidden_name);
    double square = 0, size = 0;

    assert_non_null(hidden);
    for (uint64_t i = 0; i < hidden->elements; i++) {
        double d = (double)hidden->values[i] - r->hidden[i];
        square += d * d;
        size += r->hidden[i] * r->hidden[i];
    }
    print_message("final hidden: %.2g of its RMS\n", sqrt(square / size));
    assert_true(sqrt(square / size) < 0.01);
}

/* Elements spread over the tensor, and its largest gradient, which no tensor of zeros passes. */
static uint64_t sample(const struct dump_tensor *tensor, int i)
{
    uint64_t largest = 0;
    if (i > 0)
        return ((uint64_t)i * 2654435761U) % tensor->elements;
    for (uint64_t at = 0; at < tensor->elements; at++)
        if (fabsf(tensor->values[at]) > fabsf(tensor->values[largest]))
            largest = at;
    return largest;
}

static double compare_gradient(struct reference *r, int index, const struct dump_tensor *got)
{
    double square = 0, size = 0;
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t at = sample(got, i);
        double want = reference_slope(r, index, at, 1e-4), d = (double)got->values[at] - want;
        square += d * d;
        size += want * want;
    }
    return size > 0 ? sqrt(square / size) : sqrt(square);
}

static void compare_step(const struct model *model, const char *routing, double tolerance)
{
    struct plan *plan = calloc(1, sizeof *plan);
    struct step_layout layout = { .micro_batch = 1, .micro_batches = 2, .sharding = SHARDING_FSDP };
    struct step_run run;
    struct reference r;
    double worst = 0;

    assert_non_null(plan);
    step_plan(plan, model, &layout, routing);
    step_run(step_fabric, plan, 1, &run);
    open_reference(&r, plan, &run.dump);
    double loss = reference_loss(&r);
    print_message("loss %.6f, reference %.6f\n", run.loss[0], loss);
    assert_true(fabs(run.loss[0] / loss - 1) < 2e-4);
    compare_hidden(&r, &run.dump);
    for (int i = 0; i < r.count; i++) {
        double error = compare_gradient(&r, i, dump_find(&run.dump, r.tensors[i].name));
        if (!(error < tolerance))
            fail_msg("%s: the gradient differs by %.3g of its RMS", r.tensors[i].name, error);
        worst = error > worst ? error : worst;
    }
    print_message("%d tensors, worst gradient differs by %.2g of its RMS\n", r.count, worst);
    close_reference(&r);
    dump_done(&run.dump);
    free(plan);
}

static void test_moe(void **state)
{
    (void)state;
    struct model model;
    step_moe_model(&model);
    compare_step(&model, "80:4", 0.02);
}

static void test_dense_tied(void **state)
{
    (void)state;
    struct model model;
    step_dense_model(&model);
    compare_step(&model, "balanced", 0.02);
}

/* Router weights as the softmax left them, and no shared expert. */
static void test_moe_plain_weights(void **state)
{
    (void)state;
    struct model model;
    step_moe_model(&model);
    model.moe.normalize_top_k = false;
    model.moe.shared_width = 0;
    model.moe.shared_gate = false;
    compare_step(&model, "balanced", 0.02);
}

/* Head norms and a head of its own on dense layers. */
static void test_dense_head_norms(void **state)
{
    (void)state;
    struct model model;
    step_dense_model(&model);
    model.tied = false;
    model.gqa.qk_norm = true;
    compare_step(&model, "balanced", 0.02);
}

/* Gate, biases, window, rotary embedding on a part of the head and centred norms, each alone on
 * dense layers, then all of them over experts. */
static void test_features(void **state)
{
    (void)state;
    struct model all, model;
    step_featured_model(&all, false);
    for (int feature = 0; feature < 5; feature++) {
        step_dense_model(&model);
        model.norm_zero_centred = feature == 0;
        model.gqa.output_gate = feature == 1;
        model.gqa.qkv_bias = feature == 2;
        model.gqa.rotary_fraction = feature == 3 ? all.gqa.rotary_fraction : 1;
        model.gqa.window_tokens = feature == 4 ? all.gqa.window_tokens : 0;
        compare_step(&model, "balanced", 0.02);
    }
    /* of seven keys and half of the gate less gradient reaches the norms of heads, bf16 rounds as
     * before */
    step_featured_model(&model, true);
    compare_step(&model, "80:4", 0.03);
    compare_step(&all, "balanced", 0.03);
}

/* A delta net and gated attention, over experts stored as one tensor and a gated shared one
 * (Qwen3.5), over each expert's own tensors (Qwen3-Next, whose matrices are joint), over an MLP. */
static void test_hybrids(void **state)
{
    (void)state;
    struct model model;
    for (int kind = 0; kind < 3; kind++) {
        step_hybrid_model(&model, (enum hybrid)kind);
        compare_step(&model, "balanced", 0.03);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe),
        cmocka_unit_test(test_dense_tied),
        cmocka_unit_test(test_moe_plain_weights),
        cmocka_unit_test(test_dense_head_norms),
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_hybrids),
    };
    return step_main(argc, argv, "step_reference", tests, sizeof tests / sizeof *tests);
}
