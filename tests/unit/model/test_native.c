/* The native form: written and read back it is the same model; --set changes one fact. */
#include "tests/unit/model/fixture.h"

#include "base/model/native.h"
#include "tests/support/golden.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_same(const struct model *a, const struct model *b)
{
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->title, b->title);
    assert_string_equal(a->architecture, b->architecture);
    for (size_t i = 0; i < model_field_count; i++) {
        double left = field_load(a, &model_fields[i]), right = field_load(b, &model_fields[i]);
        if (left != right)
            print_error("%s: %.17g and %.17g\n", model_fields[i].key, left, right);
        assert_true(left == right);
    }
    assert_memory_equal(a->layer_mixer, b->layer_mixer, sizeof a->layer_mixer);
    assert_memory_equal(a->layer_ffn, b->layer_ffn, sizeof a->layer_ffn);
}

static void assert_round_trip(const struct model *model)
{
    struct model again;
    struct diag_list list = { 0 };
    struct json *json = model_to_json(model);
    char *text = json_dumps(json_view(json), JSON_INDENT(2));
    assert_non_null(text);
    int result = fixture_read_text(text, &again, &list);
    if (result != 0)
        diag_list_print(stderr, &list);
    assert_int_equal(result, 0);
    assert_same(model, &again);
    free(text);
    json_free(json);
}

static void shipped_models_round_trip(void **state)
{
    (void)state;
    static const char *const names[] = { "qwen3-30b-a3b", "qwen3.5-35b-a3b", "qwen3-0.6b",
                                         "llama-3.1-8b",  "tiny-moe",        "tiny-shared-moe",
                                         "small-moe" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct model model;
        fixture_shipped(names[i], &model);
        assert_string_equal(model.name, names[i]);
        assert_round_trip(&model);
    }
}

static void hugging_face_models_round_trip(void **state)
{
    (void)state;
    static const char *const files[] = {
        "qwen3-moe-30b.json",
        "qwen3.5-moe-35b.json",
        "qwen3.5-moe-small.json",
        "qwen3.5-dense-text-small.json",
        "llama-small.json",
        "deepseek-small.json",
        "glm-moe-dsa-small.json",
        "glm4-moe-small.json",
        "gpt-oss-small.json",
        "kimi-vl-small.json",
        "llama4-small.json",
        "minimax-lightning-small.json",
        "minimax-wide-norm-small.json",
        "mixtral-small.json",
        "nemotron-latent-small.json",
        "qwen3-next-small.json",
        "qwen3-vl-small.json",
        "qwen2-moe-small.json",
        "llama4-flat-small.json",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct model model;
        fixture_model(files[i], NULL, &model);
        assert_round_trip(&model);
    }
    const struct edit irregular[] = { { "layers\": []", "layers\": [0, 7, 47]" }, { NULL, NULL } };
    struct model model;
    fixture_model("qwen3-moe-30b.json", irregular, &model);
    model.mtp_layers = 0;
    assert_round_trip(&model);
}

/* A shipped file and the published configuration say the same. */
static void native_and_hugging_face_agree(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        { "qwen3-30b-a3b", "qwen3-moe-30b.json" },
        { "qwen3.5-35b-a3b", "qwen3.5-moe-35b.json" },
        { "qwen3-0.6b", "qwen3-dense-0.6b.json" },
        { "llama-3.1-8b", "llama-directory/config.json" },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct model native, published;
        fixture_shipped(pairs[i][0], &native);
        fixture_model(pairs[i][1], NULL, &published);
        memcpy(published.name, native.name, sizeof native.name);
        memcpy(published.title, native.title, sizeof native.title);
        assert_same(&native, &published);
    }
}

static void assert_set(struct model *model, const char *field, const char *value)
{
    struct diag_list list = { 0 };
    int result = model_set(model, field, value, (struct pos){ 0 }, &list);
    if (result != 0)
        diag_list_print(stderr, &list);
    assert_int_equal(result, 0);
}

static uint64_t total(const struct model *model)
{
    struct model_counts counts;
    model_count(model, &counts);
    return counts.total;
}

static int softmax_layers(const struct model *model)
{
    int count = 0;
    for (int i = 0; i < model->layers; i++)
        count += model->layer_mixer[i] == MIXER_GQA;
    return count;
}

/* Layers 12..39 are 21 delta nets and 7 of softmax attention; the counts of test_count. */
static void setting_layers_cuts_the_pattern(void **state)
{
    (void)state;
    struct model model;
    fixture_shipped("qwen3.5-35b-a3b", &model);
    uint64_t before = total(&model);
    assert_set(&model, "layers", "12");
    assert_int_equal(model.layers, 12);
    assert_int_equal(softmax_layers(&model), 3);
    const uint64_t ffn = 524288 + 805306368 + 3147776 + 4096;
    assert_int_equal(total(&model),
                     before - UINT64_C(21) * (33718464 + ffn) - UINT64_C(7) * (27263488 + ffn));
    assert_round_trip(&model);
    assert_set(&model, "layers", "41");
    assert_int_equal(softmax_layers(&model), 10);
    assert_int_equal(total(&model), before + 33718464 + ffn);
}

static void layers_without_a_period_do_not_grow(void **state)
{
    (void)state;
    const struct edit dense_first[] = { { "layers\": []", "layers\": [0, 1, 2]" }, { NULL, NULL } };
    struct model model;
    struct diag_list list = { 0 };
    fixture_model("qwen3-moe-30b.json", dense_first, &model);
    assert_int_equal(model_set(&model, "layers", "49", (struct pos){ 0 }, &list), -1);
    assert_int_equal(model.layers, 48);
    assert_set(&model, "layers", "4");
    assert_int_equal(model.layer_ffn[2], FFN_DENSE);
    assert_int_equal(model.layer_ffn[3], FFN_MOE);
}

static void setting_sizes(void **state)
{
    (void)state;
    struct model model;
    fixture_shipped("qwen3.5-35b-a3b", &model);
    uint64_t before = total(&model);
    assert_set(&model, "experts", "512");
    assert_int_equal(total(&model), before + UINT64_C(41) * (805306368 + 524288));
    assert_set(&model, "moe.experts", "256");
    assert_set(&model, "vocab", "248321");
    assert_int_equal(total(&model), before + UINT64_C(2) * 2048);
    assert_set(&model, "vocab", "248320");
    assert_set(&model, "tied", "true");
    assert_int_equal(total(&model), before - 508559360);
    assert_set(&model, "tied", "0");
    assert_set(&model, "vision.depth", "26");
    const uint64_t block = UINT64_C(4) * 1152 + UINT64_C(3) * 1152 * 1152 + UINT64_C(3) * 1152 +
                           UINT64_C(1152) * 1152 + 1152 + UINT64_C(2) * 1152 * 4304 + 4304 + 1152;
    assert_int_equal(total(&model), before - block);
    assert_set(&model, "rope_theta", "2.5e6");
    assert_true(model.gqa.rope_theta == 2.5e6);
}

static void trained_parts(void **state)
{
    (void)state;
    struct model model;
    struct model_counts counts;
    fixture_shipped("qwen3.5-35b-a3b", &model);
    assert_set(&model, "mtp", "1");
    model_count(&model, &counts);
    assert_int_equal(counts.trained, 34660610688 + 844640768);
    assert_set(&model, "vision", "trained");
    model_count(&model, &counts);
    assert_int_equal(counts.trained, 35951822704);
    assert_round_trip(&model);
    assert_set(&model, "mtp", "0");
    assert_set(&model, "vision", "frozen");
    model_count(&model, &counts);
    assert_int_equal(counts.trained, 34660610688);
}

static void models_load_by_file_and_directory(void **state)
{
    (void)state;
    const char *root = getenv("RANKFIT_SOURCE_ROOT");
    char path[4096];
    struct model model;
    struct diag_list list = { 0 };
    (void)snprintf(path, sizeof path, "%s/tests/data/configs/llama-directory", root);
    assert_int_equal(model_load(path, &model, &list), 0);
    assert_int_equal(total(&model), 8030261248);
    assert_string_equal(model.name, "llama-directory");
    (void)snprintf(path, sizeof path, "%s/tests/data/configs/llama-directory/", root);
    assert_int_equal(model_load(path, &model, &list), 0);
    (void)snprintf(path, sizeof path, "%s/tests/data/configs/qwen3-moe-30b.json", root);
    assert_int_equal(model_load(path, &model, &list), 0);
    assert_string_equal(model.name, "qwen3-moe-30b");
    (void)snprintf(path, sizeof path, "%s/tests/data/configs", root);
    assert_int_equal(model_load(path, &model, &list), -1);
    assert_golden_diags("a directory without a model", &list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped_models_round_trip),
        cmocka_unit_test(hugging_face_models_round_trip),
        cmocka_unit_test(native_and_hugging_face_agree),
        cmocka_unit_test(setting_layers_cuts_the_pattern),
        cmocka_unit_test(layers_without_a_period_do_not_grow),
        cmocka_unit_test(setting_sizes),
        cmocka_unit_test(trained_parts),
        cmocka_unit_test(models_load_by_file_and_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
