/* Floating-point operations of one token against hand arithmetic and published figures. */
#include "tests/unit/model/fixture.h"

#include "tests/support/near.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* Published for Qwen3.5-35B-A3B in GFLOP a token, to one decimal. That convention leaves the
 * routers out of the matrices (6 x 40 x 2048 x 256) and takes the convolutions in
 * (6 x 30 x 8192 x 4); ours counts every matrix that multiplies activations, routers too. */
static void qwen3_5_agrees_with_the_published_figures(void **state)
{
    (void)state;
    static const struct {
        uint64_t seq;
        double gflop;
    } rows[] = {
        { 4096, 18.9 },  { 16384, 22.0 },  { 32768, 26.0 },
        { 65536, 34.0 }, { 131072, 50.1 }, { 262144, 82.4 },
    };
    const double routers = 6.0 * 40 * 2048 * 256, convolutions = 6.0 * 30 * 8192 * 4;
    struct model model;
    struct model_flops flops;
    fixture_shipped("qwen3.5-35b-a3b", &model);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        model_flops_per_token(&model, rows[i].seq, 0, &flops);
        double published = (flops.model - routers + convolutions) / 1e9;
        assert_true(fabs(published - rows[i].gflop) <= 0.05);
        assert_near(flops.model / 1e9, rows[i].gflop, 0.01, "GFLOP");
    }
}

/* tiny-moe by hand, 4 layers: q and o 2 x 64 x 64, k and v 2 x 64 x 32: 12,288 weights, router 512,
 * two experts 2 x 3 x 64 x 64 = 24,576; head 16,384. Attention 4 x 4 x 16 x S / 2 forward a layer.
 */
static void tiny_by_hand(void **state)
{
    (void)state;
    const double layers = 4.0 * (12288 + 512 + 24576), head = 16384;
    const double seq = 128, attention = 4.0 * (4.0 * 4 * 16 * seq / 2);
    struct model model;
    struct model_flops flops;
    fixture_shipped("tiny-moe", &model);
    model_flops_per_token(&model, 128, 0, &flops);
    assert_true(flops.matmul == 6 * (layers + head));
    assert_true(flops.attention == 3 * attention);
    assert_true(flops.linear_attention == 0);
    assert_true(flops.model == 6 * (layers + head) + 3 * attention);
    /* flash backward: 2.5 forwards in place of 2 */
    assert_true(flops.hardware == flops.model + 0.5 * attention);
    model_flops_per_token(&model, 128, 4, &flops);
    assert_true(flops.hardware == 8 * layers + 6 * head + 4.5 * attention);
    model_flops_per_token(&model, 128, 1, &flops);
    assert_true(flops.hardware ==
                6 * (layers + head) + 2 * layers / 4 + 3.5 * attention + attention / 4);
}

/* One-token sequences leave next to nothing but matrices: 6 N becomes 8 N for the layers. */
static void full_recompute_makes_8n_of_6n(void **state)
{
    (void)state;
    struct model model;
    struct model_counts counts;
    struct model_flops none, full;
    fixture_shipped("qwen3-30b-a3b", &model);
    model_count(&model, &counts);
    model_flops_per_token(&model, 0, 0, &none);
    model_flops_per_token(&model, 0, model.layers, &full);
    const double head = 151936.0 * 2048, layers = (double)counts.matmul_active - head;
    assert_true(none.hardware == 6 * layers + 6 * head);
    assert_true(full.hardware == 8 * layers + 6 * head);
    assert_true(full.model == none.model);
}

/* A delta-net layer: 4 x 2 x 32 x 128 x 128 forward, 3 x that with backward; 30 of 40. */
static void delta_net_states(void **state)
{
    (void)state;
    const double forward = 8.0 * 32 * 128 * 128;
    struct model model;
    struct model_flops none, three;
    fixture_shipped("qwen3.5-35b-a3b", &model);
    model_flops_per_token(&model, 0, 0, &none);
    assert_true(none.linear_attention == 30 * 3 * forward);
    /* the first three layers are delta nets: 33,685,504 matrix weights, router and eight experts
     * and the shared one with its gate */
    model_flops_per_token(&model, 0, 3, &three);
    const double matrices = 33685504 + 256.0 * 2048 + 9.0 * 3 * 512 * 2048 + 2048;
    assert_true(three.hardware - none.hardware == 3 * (forward + 2 * matrices));
}

/* The prediction layer trains with its own matrices, one more head and one more attention. */
static void trained_prediction_layer(void **state)
{
    (void)state;
    const double layer = 27262976 + 256.0 * 2048 + 9.0 * 3 * 512 * 2048 + 2048;
    const double join = 2048.0 * 4096, head = 248320.0 * 2048, seq = 4096;
    struct model model;
    struct model_flops without, with;
    fixture_shipped("qwen3.5-35b-a3b", &model);
    model_flops_per_token(&model, 4096, 0, &without);
    model.mtp_trained = true;
    model_flops_per_token(&model, 4096, 0, &with);
    assert_true(with.matmul - without.matmul == 6 * (layer + join + head));
    assert_true(with.attention - without.attention == 6.0 * 16 * 256 * seq);
}

/* Window 64 of 256 tokens: query i sees min(i + 1, 64) keys; in the continuous form
 * (64 x 32 + 192 x 64) / 256 = 56 on average, 256 / 2 without a window. */
static void a_window_bounds_attention(void **state)
{
    (void)state;
    struct model model;
    struct model_flops full, window;
    fixture_shipped("tiny-moe", &model);
    model_flops_per_token(&model, 256, 0, &full);
    model.gqa.window_tokens = 64;
    model_flops_per_token(&model, 256, 0, &window);
    assert_true(window.attention * 128 == full.attention * 56);
    model.gqa.window_tokens = 256;
    model_flops_per_token(&model, 256, 0, &window);
    assert_true(window.attention == full.attention);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3_5_agrees_with_the_published_figures),
        cmocka_unit_test(tiny_by_hand),
        cmocka_unit_test(full_recompute_makes_8n_of_6n),
        cmocka_unit_test(delta_net_states),
        cmocka_unit_test(trained_prediction_layer),
        cmocka_unit_test(a_window_bounds_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
