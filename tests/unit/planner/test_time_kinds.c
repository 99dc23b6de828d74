/* The products that the step time walks, against the tensors of every model that ships: on a
 * machine where a FLOP takes a second and nothing else takes time, a forward of all layers takes
 * twice their active matrix weights a token, a backward twice that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checked.h"
#include "base/file.h"
#include "base/layout/trained.h"
#include "budget_sample.h"
#include "planner/predict/layer_seconds.h"
#include "planner/predict/parts.h"
#include "tests/support/asked.h"
#include "tests/support/near.h"

#include <stdio.h>

static struct sample s;

static void layers_cost(struct pass *forward, struct pass *backward)
{
    const struct machine machine = {
        .flop = 1, .expert_flop = 1, .attention_flop = 1, .attention_back = 1
    };
    const struct model *m = &s.model;
    uint64_t received = mul_sat(local_tokens(&s.in), (uint64_t)m->moe.top_k);
    for (int i = 0; i < m->layers; i++) {
        enum mixer mixer = (enum mixer)m->layer_mixer[i];
        enum ffn ffn = (enum ffn)m->layer_ffn[i];
        static struct step_layer layer;
        struct step_kind kind;
        struct step_sizes sizes;
        struct layer_rates rates;
        layer_kind(&s.in, mixer, ffn, &kind);
        step_layer_init(&kind, &layer);
        layer_sizes(&s.in, received, &sizes);
        layer_sizes_mixer(&s.in, mixer, &sizes);
        layer_rates_init(&s.in, &machine, &sizes, mixer, &rates);
        layer_seconds_fold(&layer.forward, &rates, forward);
        layer_seconds_fold(&layer.backward, &rates, backward);
    }
}

static double products(const struct pass *pass)
{
    return pass->item[TIME_MATMUL] + pass->item[TIME_EXPERTS];
}

/* What sparse attention multiplies again in backward: absorbed queries, and values out of latents.
 */
static double made_again(const struct model *m)
{
    double sparse = 0;
    for (int i = 0; i < m->layers; i++)
        sparse += m->layer_mixer[i] == MIXER_DSA || m->layer_mixer[i] == MIXER_DSA_SHARED;
    return sparse * m->gqa.heads * m->mla.kv_rank * (m->mla.nope_dim + m->mla.value_dim);
}

static bool is_sparse(const struct model *m)
{
    return m->indexer.heads > 0;
}

static void check_model(const char *name, const char *path, void *context)
{
    struct diag_list errors = { 0 };
    struct pass forward = { { 0 } }, backward = { { 0 } };
    struct model_flops flops;
    const double tokens = 4096;
    (void)context;
    print_message("%s\n", name);
    sample_init(&s);
    assert_int_equal(model_load(path, &s.model, &errors), 0);
    sample_input(&s, (uint64_t)tokens);
    layers_cost(&forward, &backward);
    double head = (double)s.model.vocab * s.model.hidden;
    double weights = (double)s.sizes.counts.matmul_active - head;
    assert_near(products(&forward), 2 * tokens * weights, 1e-12, "FLOP forward");
    assert_near(products(&backward), 2 * tokens * (2 * weights + made_again(&s.model)), 1e-12,
                "FLOP backward");
    model_flops_per_token(&s.model, (uint64_t)tokens, 0, &flops);
    if (is_sparse(&s.model)) /* in the latent space, which is wider */
        assert_true(forward.item[TIME_ATTENTION] > tokens * flops.attention / 3);
    else
        assert_near(forward.item[TIME_ATTENTION], tokens * flops.attention / 3, 1e-12,
                    "FLOP of attention");
}

static void walked_products_are_the_models(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    assert_int_equal(file_list_data("models", check_model, NULL, &errors), 0);
}

/* Weights that a token multiplies by in adapters of rank r: r x (rows + columns) a matrix as the
 * checkpoint stores it; and in those that read its input, r x columns (r x rows where experts are
 * stored as [in, out]). */
struct adapted {
    double all, in;
};

static struct adapted adapters_of(const struct model *m, int rank, unsigned components,
                                  bool inputs_first)
{
    struct adapted ret = { 0, 0 };
    for (int i = 0; i < m->layers; i++) {
        const struct layer_tensors *t = &s.sizes.tensors[m->layer_mixer[i]][m->layer_ffn[i]];
        for (int k = 0; k < t->count; k++) {
            const struct layer_tensor *one = &t->items[k];
            double uses = one->expert ? m->moe.top_k : 1;
            if (!one->matrix || !(components >> one->component & 1U))
                continue;
            ret.all += uses * rank * (double)(one->rows + one->cols);
            ret.in += uses * rank * (double)(inputs_first && one->expert ? one->rows : one->cols);
        }
    }
    return ret;
}

/* Model FLOPs of the same: 4 a weight, head included, 6 of an adapter; hardware FLOPs have x A
 * again, and half a forward of attention. A peak of 1e15 makes a rate of them. */
static void check_counts(double tokens, double weights, const struct adapted *a)
{
    struct model_flops plain;
    struct step_time time;
    s.hardware.bf16_flops_per_second = 1e15;
    s.hardware.gemm_efficiency = s.hardware.memory_bytes_per_second = 1;
    s.choices.primitives.recompute = RECOMPUTE_NONE;
    step_time_compute(asked(&s.in), &time);
    model_flops_per_token(&s.model, (uint64_t)tokens, 0, &plain);
    double attention = plain.model - plain.matmul, again = plain.hardware - plain.model;
    double rate = time.tokens_per_second_per_gpu;
    assert_near(time.model_flops_per_second_per_gpu / rate, 4 * weights + attention + 6 * a->all,
                1e-9, "FLOP of the model");
    assert_near(time.hardware_flops_per_second_per_gpu / rate,
                4 * weights + attention + again + 6 * a->all + 2 * a->in, 1e-9,
                "FLOP of the hardware");
}

/* Under adapters no weight has a gradient: backward multiplies by every weight once, for dx, by
 * adapters twice, and makes x A again. */
static void check_adapters(const char *name, const char *path, void *context)
{
    struct diag_list errors = { 0 };
    struct pass forward = { { 0 } }, backward = { { 0 } };
    const double tokens = 4096;
    static const char *const families[] = { "gpt-oss", "llama-4", "qwen3-vl-235b" };
    (void)context;
    print_message("%s\n", name);
    sample_init(&s);
    assert_int_equal(model_load(path, &s.model, &errors), 0);
    s.choices.primitives.lora_rank = 16;
    s.choices.primitives.lora_targets = LORA_ATTENTION | LORA_MLP | LORA_EXPERTS;
    sample_input(&s, (uint64_t)tokens);
    layers_cost(&forward, &backward);
    double head = (double)s.model.vocab * s.model.hidden;
    double weights = (double)s.sizes.counts.matmul_active - head;
    bool inputs_first = false;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        inputs_first |= strncmp(name, families[i], strlen(families[i])) == 0;
    struct adapted a =
        adapters_of(&s.model, 16, adapted_components(&s.choices.primitives), inputs_first);
    assert_near(products(&forward), 2 * tokens * (weights + a.all), 1e-12, "FLOP forward");
    assert_near(products(&backward),
                2 * tokens * (weights + made_again(&s.model) + 2 * a.all + a.in), 1e-12,
                "FLOP backward");
    check_counts(tokens, weights + head, &a);
}

static void adapters_have_no_weight_gradients(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    assert_int_equal(file_list_data("models", check_adapters, NULL, &errors), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walked_products_are_the_models),
        cmocka_unit_test(adapters_have_no_weight_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
