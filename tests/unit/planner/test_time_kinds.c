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
#include "budget_sample.h"
#include "planner/time/cost.h"
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
        struct residency_shape shape;
        struct layer_shape layer;
        struct walk w;
        working_shape(&s.in, received, &shape);
        working_shape_mixer(&s.in, mixer, &shape);
        layer_shape_init(&s.in, &machine, &shape, received, &layer);
        walk_begin(&w, &machine, forward);
        mixer_forward(&w, &layer, mixer);
        ffn_forward(&w, &layer, ffn, false);
        walk_begin(&w, &machine, backward);
        ffn_backward(&w, &layer, ffn);
        mixer_backward(&w, &layer, mixer);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walked_products_are_the_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
