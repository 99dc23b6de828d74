/* Parameter counts against published totals and against hand arithmetic on changed sizes. */
#include "tests/unit/model/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char qwen3_moe[] = "qwen3-moe-30b.json";
static const char qwen3_5_moe[] = "qwen3.5-moe-35b.json";
static const char qwen3_dense[] = "qwen3-dense-0.6b.json";
static const char llama[] = "llama-directory/config.json";

static const uint64_t qwen3_moe_total = 30532122624, qwen3_5_moe_total = 35951822704,
                      qwen3_dense_total = 596049920, llama_total = 8030261248;

#define EDITS(...) ((const struct edit[]){ __VA_ARGS__, { NULL, NULL } })

/* Published: total_size / 2 of the safetensors index, 61,064,245,248 and 71,903,645,408 bytes; the
 * dense two from their model cards' exact element counts. */
static void shipped_and_hugging_face_totals_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *name, *file;
        uint64_t total;
    } rows[] = {
        { "qwen3-30b-a3b", qwen3_moe, qwen3_moe_total },
        { "qwen3.5-35b-a3b", qwen3_5_moe, qwen3_5_moe_total },
        { "qwen3-0.6b", qwen3_dense, qwen3_dense_total },
        { "llama-3.1-8b", llama, llama_total },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model model;
        struct model_counts counts;
        fixture_shipped(rows[i].name, &model);
        model_count(&model, &counts);
        assert_int_equal(counts.total, rows[i].total);
        assert_int_equal(fixture_total(rows[i].file, NULL), rows[i].total);
    }
}

/* Qwen2.5-0.5B by its model card's element count: 151,936 x 896 once, and 24 layers of
 * 896 x 896 + 896 for q, twice 896 x 128 + 128 for k and v, 896 x 896, 3 x 896 x 4864, 2 x 896. */
static void qwen2_has_biases(void **state)
{
    (void)state;
    assert_int_equal(fixture_total("qwen2.5-dense-0.5b.json", NULL), 494032768);
}

static void qwen3_5_components_are_the_published_ones(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    fixture_shipped("qwen3.5-35b-a3b", &model);
    model_count(&model, &c);
    assert_int_equal(c.trained, 34660610688);
    assert_int_equal(c.by_component[COMPONENT_MTP], 844640768);
    assert_int_equal(c.by_component[COMPONENT_VISION], 446571248);
    assert_int_equal(c.by_component[COMPONENT_EMBEDDING], 508559360);
    assert_int_equal(c.by_component[COMPONENT_HEAD], 508559360);
    assert_int_equal(c.by_component[COMPONENT_EXPERTS], 32212254720);
    assert_int_equal(c.by_component[COMPONENT_ATTENTION], UINT64_C(10) * 27263488);
    assert_int_equal(c.by_component[COMPONENT_LINEAR_ATTENTION], UINT64_C(30) * 33718464);
    assert_int_equal(c.by_component[COMPONENT_ROUTER], UINT64_C(40) * 524288);
    assert_int_equal(c.by_component[COMPONENT_SHARED_EXPERT], UINT64_C(40) * 3147776);
    assert_int_equal(c.by_component[COMPONENT_NORMS], UINT64_C(40) * 2 * 2048 + 2048);
    assert_int_equal(c.active_all, 3454988928);
    assert_int_equal(c.active, 2946429568);
    assert_int_equal(c.active_core, 2437870208);
}

/* A tied matrix is one tensor: it is active as the head, and the lookup adds nothing. */
static void a_tied_head_is_counted_once(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    fixture_shipped("qwen3-0.6b", &model);
    model_count(&model, &c);
    assert_int_equal(c.by_component[COMPONENT_HEAD], 0);
    assert_int_equal(c.active, qwen3_dense_total);
    assert_int_equal(c.active_all, qwen3_dense_total);
    assert_int_equal(c.active_core, qwen3_dense_total - UINT64_C(151936) * 1024);
    /* all but norms: 28 x (2 x 1024 + 2 x 128) + 1024 */
    assert_int_equal(c.matmul_active, qwen3_dense_total - UINT64_C(28) * (2048 + 256) - 1024);
}

/* One layer: q and o 2 x 2048 x 4096, k and v 2 x 2048 x 512, head norms 2 x 128, norms 2 x 2048,
 * router 128 x 2048, experts 128 x 3 x 768 x 2048. */
static void qwen3_moe_changed_sizes(void **state)
{
    (void)state;
    const uint64_t experts = UINT64_C(128) * 3 * 768 * 2048, router = UINT64_C(128) * 2048;
    const uint64_t layer = UINT64_C(2) * 2048 * 4096 + UINT64_C(2) * 2048 * 512 +
                           UINT64_C(2) * 128 + UINT64_C(2) * 2048 + router + experts;
    assert_int_equal(layer, 623120640);
    assert_int_equal(fixture_total(qwen3_moe, EDITS({ "_layers\": 48", "_layers\": 49" })),
                     qwen3_moe_total + layer);
    assert_int_equal(fixture_total(qwen3_moe, EDITS({ "_layers\": 48", "_layers\": 47" })),
                     qwen3_moe_total - layer);
    assert_int_equal(fixture_total(qwen3_moe, EDITS({ "experts\": 128", "experts\": 256" })),
                     qwen3_moe_total + UINT64_C(48) * (experts + router));
    assert_int_equal(
        fixture_total(qwen3_moe, EDITS({ "embeddings\": false", "embeddings\": true" })),
        qwen3_moe_total - UINT64_C(151936) * 2048);
    /* head_dim 2048 / 32 = 64, half of 128: q, o, k, v and the head norms halve */
    const uint64_t halved = UINT64_C(2048) * 4096 + UINT64_C(2048) * 512 + 128;
    assert_int_equal(fixture_total(qwen3_moe, EDITS({ "head_dim\": 128", "head_dim\": null" })),
                     qwen3_moe_total - 48 * halved);
    assert_int_equal(fixture_total(qwen3_moe, EDITS({ "\"head_dim\": 128,", "" })),
                     qwen3_moe_total - 48 * halved);
}

/* A dense layer has 3 x 6144 x 2048 in place of router and experts. */
static void qwen3_moe_dense_layers(void **state)
{
    (void)state;
    const uint64_t gone =
        UINT64_C(128) * 3 * 768 * 2048 + UINT64_C(128) * 2048 - UINT64_C(3) * 6144 * 2048;
    assert_int_equal(fixture_total(qwen3_moe, EDITS({ "layers\": []", "layers\": [0, 47]" })),
                     qwen3_moe_total - 2 * gone);
    assert_int_equal(fixture_total(qwen3_moe, EDITS({ "step\": 1", "step\": 2" })),
                     qwen3_moe_total - 24 * gone);
    /* layer 1 is sparse by the step and dense by the list, layer 2 dense by the step */
    assert_int_equal(fixture_total(qwen3_moe, EDITS({ "step\": 1", "step\": 2" },
                                                    { "layers\": []", "layers\": [1, 2]" })),
                     qwen3_moe_total - 25 * gone);
}

/* Layer 40 (from 0) is a delta net, layer 39 softmax attention: (i + 1) % 4 == 0. */
static void qwen3_5_moe_changed_sizes(void **state)
{
    (void)state;
    const uint64_t moe =
        UINT64_C(256) * 3 * 512 * 2048 + UINT64_C(256) * 2048 + UINT64_C(3) * 512 * 2048 + 2048;
    const uint64_t attention = UINT64_C(2048) * 8192 + UINT64_C(2) * 2048 * 512 +
                               UINT64_C(4096) * 2048 + UINT64_C(2) * 256;
    /* qkv and z, b and a, convolution, dt_bias and A_log, norm, out */
    const uint64_t delta = UINT64_C(2048) * (8192 + 4096) + UINT64_C(2048) * 2 * 32 +
                           UINT64_C(8192) * 4 + UINT64_C(2) * 32 + 128 + UINT64_C(4096) * 2048;
    const uint64_t norms = UINT64_C(2) * 2048;
    assert_int_equal(fixture_total(qwen3_5_moe, EDITS({ "_layers\": 40", "_layers\": 41" })),
                     qwen3_5_moe_total + delta + moe + norms);
    assert_int_equal(fixture_total(qwen3_5_moe, EDITS({ "_layers\": 40", "_layers\": 39" })),
                     qwen3_5_moe_total - attention - moe - norms);
    /* the prediction layer has experts too: 41 times */
    assert_int_equal(fixture_total(qwen3_5_moe, EDITS({ "experts\": 256", "experts\": 512" })),
                     qwen3_5_moe_total +
                         UINT64_C(41) * (UINT64_C(256) * 3 * 512 * 2048 + UINT64_C(256) * 2048));
    assert_int_equal(
        fixture_total(qwen3_5_moe, EDITS({ "embeddings\": false", "embeddings\": true" })),
        qwen3_5_moe_total - UINT64_C(248320) * 2048);
    /* head_dim 2048 / 16 = 128, half of 256, in 10 layers and the prediction layer */
    assert_int_equal(
        fixture_total(qwen3_5_moe, EDITS({ "\"head_dim\": 256", "\"head_dim\": null" })),
        qwen3_5_moe_total - 11 * attention / 2);
    /* without the prediction layer: its layer, 2 x 2048^2 and three norms */
    assert_int_equal(fixture_total(qwen3_5_moe, EDITS({ "mtp_num_hidden_layers\": 1",
                                                        "mtp_num_hidden_layers\": 0" })),
                     qwen3_5_moe_total - (attention + moe + norms + UINT64_C(2) * 2048 * 2048 +
                                          UINT64_C(3) * 2048));
    assert_int_equal(fixture_total(qwen3_5_moe, EDITS({ "gate\": true", "gate\": false" })),
                     qwen3_5_moe_total - 11 * UINT64_C(2048) * 4096);
}

static void dense_changed_sizes(void **state)
{
    (void)state;
    const uint64_t qwen = UINT64_C(2) * 1024 * 2048 + UINT64_C(2) * 1024 * 1024 +
                          UINT64_C(2) * 128 + UINT64_C(3) * 1024 * 3072 + UINT64_C(2) * 1024;
    assert_int_equal(qwen, 15730944);
    assert_int_equal(fixture_total(qwen3_dense, EDITS({ "_layers\": 28,\n  \"num_key",
                                                        "_layers\": 29,\n  \"num_key" })),
                     qwen3_dense_total + qwen);
    assert_int_equal(fixture_total(qwen3_dense, EDITS({ "_layers\": 28,\n  \"num_key",
                                                        "_layers\": 27,\n  \"num_key" })),
                     qwen3_dense_total - qwen);
    assert_int_equal(
        fixture_total(qwen3_dense, EDITS({ "embeddings\": true", "embeddings\": false" })),
        qwen3_dense_total + UINT64_C(151936) * 1024);
    /* head_dim 1024 / 16 = 64 */
    assert_int_equal(fixture_total(qwen3_dense, EDITS({ "head_dim\": 128", "head_dim\": null" })),
                     qwen3_dense_total -
                         UINT64_C(28) * (UINT64_C(1024) * 2048 + UINT64_C(1024) * 1024 + 128));

    const uint64_t layer = UINT64_C(2) * 4096 * 4096 + UINT64_C(2) * 4096 * 1024 +
                           UINT64_C(3) * 4096 * 14336 + UINT64_C(2) * 4096;
    assert_int_equal(layer, 218112000);
    assert_int_equal(fixture_total(llama, EDITS({ "_layers\": 32", "_layers\": 33" })),
                     llama_total + layer);
    assert_int_equal(fixture_total(llama, EDITS({ "_layers\": 32", "_layers\": 31" })),
                     llama_total - layer);
    /* 32 key-value heads instead of 8: k and v are 24 x 128 wider */
    assert_int_equal(fixture_total(llama, EDITS({ "value_heads\": 8", "value_heads\": null" })),
                     llama_total + UINT64_C(32) * 2 * 4096 * 24 * 128);
}

/* Attention 64 x 256 + 2 x 64 x 64 + 128 x 64 + 2 x 32 = 32,832. Delta net, K 32 and V 64:
 * 64 x 192 + 64 x 8 + 128 x 4 + 8 + 16 + 64 x 64 = 17,432. Experts 8 x 3 x 64 x 16 = 24,576, router
 * 512, shared 3 x 64 x 16 + 64 = 3,136, norms 128: 28,352. */
static void small_hybrid_by_hand(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    fixture_model("qwen3.5-moe-small.json", NULL, &model);
    model_count(&model, &c);
    const uint64_t trunk = UINT64_C(8) * 28352 + UINT64_C(2) * 32832 + UINT64_C(6) * 17432 +
                           UINT64_C(2) * 256 * 64 + 64;
    const uint64_t mtp = 32832 + 28352 + UINT64_C(2) * 64 * 64 + UINT64_C(3) * 64;
    /* width 32, the rest of the released tower: patch 3 x 2 x 256, 2304 positions, MLP 4304, merged
     * width 128 */
    const uint64_t block = UINT64_C(4) * 32 + (UINT64_C(3) * 32 * 32 + 96) +
                           (UINT64_C(32) * 32 + 32) + UINT64_C(2) * 32 * 4304 + 4304 + 32;
    const uint64_t vision =
        UINT64_C(32) * 1536 + 32 + UINT64_C(2304) * 32 + 2 * block +
        (UINT64_C(2) * 32 + UINT64_C(128) * 128 + 128 + UINT64_C(64) * 128 + 64);
    assert_int_equal(c.by_component[COMPONENT_ATTENTION], UINT64_C(2) * 32832);
    assert_int_equal(c.trained, trunk);
    assert_int_equal(c.by_component[COMPONENT_MTP], mtp);
    assert_int_equal(c.by_component[COMPONENT_VISION], vision);
    assert_int_equal(c.total, trunk + mtp + vision);
}

/* Multi-head attention 4 x 64 x 64, MLP 3 x 64 x 176, norms 128; untied 2 x 256 x 64; norm 64. */
static void small_llama_by_hand(void **state)
{
    (void)state;
    assert_int_equal(fixture_total("llama-small.json", NULL),
                     UINT64_C(2) * (16384 + 33792 + 128) + 32768 + 64);
}

/* The delta net and attention of small_hybrid_by_hand, MLP 3 x 64 x 96, norms 128. */
static void small_dense_hybrid_by_hand(void **state)
{
    (void)state;
    assert_int_equal(fixture_total("qwen3.5-dense-text-small.json", NULL),
                     UINT64_C(2) * 17432 + 32832 + UINT64_C(3) * (18432 + 128) + 32768 + 64);
}

/* attention 2 x 64 x 64 + 2 x 64 x 32 + 2 x 16 = 12,320; router 512; experts 8 x 3 x 64 x 64 */
static void tiny_models_by_hand(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    fixture_shipped("tiny-moe", &model);
    model_count(&model, &c);
    assert_int_equal(c.total,
                     UINT64_C(4) * (12320 + 512 + 98304 + 128) + UINT64_C(2) * 256 * 64 + 64);
    fixture_shipped("tiny-shared-moe", &model);
    model_count(&model, &c);
    /* 2 x 96 x 96 + 2 x 96 x 32 + 32; 16 x 96; 16 x 3 x 96 x 64; 3 x 96 x 128 + 96; 192 */
    assert_int_equal(c.total, UINT64_C(3) * (24608 + 1536 + 294912 + 36960 + 192) +
                                  UINT64_C(2) * 256 * 96 + 96);
    fixture_shipped("small-moe", &model);
    model_count(&model, &c);
    /* 2 x 256 x 256 + 2 x 256 x 64 + 64; 16 x 256; 16 x 3 x 256 x 128; 512 */
    assert_int_equal(c.total, UINT64_C(6) * (163904 + 4096 + 1572864 + 512) +
                                  UINT64_C(2) * 4096 * 256 + 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped_and_hugging_face_totals_are_the_published_ones),
        cmocka_unit_test(qwen2_has_biases),
        cmocka_unit_test(qwen3_5_components_are_the_published_ones),
        cmocka_unit_test(a_tied_head_is_counted_once),
        cmocka_unit_test(qwen3_moe_changed_sizes),
        cmocka_unit_test(qwen3_moe_dense_layers),
        cmocka_unit_test(qwen3_5_moe_changed_sizes),
        cmocka_unit_test(dense_changed_sizes),
        cmocka_unit_test(small_hybrid_by_hand),
        cmocka_unit_test(small_llama_by_hand),
        cmocka_unit_test(small_dense_hybrid_by_hand),
        cmocka_unit_test(tiny_models_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
