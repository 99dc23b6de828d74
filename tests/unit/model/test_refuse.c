/* Models and settings that are refused, each with its message in the golden file. */
#include "tests/unit/model/fixture.h"

#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct refusal {
    const char *title, *file;
    struct edit edits[4];
};

static const char moe[] = "qwen3-moe-30b.json";
static const char hybrid[] = "qwen3.5-moe-35b.json";
static const char dense[] = "qwen3-dense-0.6b.json";
static const char llama[] = "llama-directory/config.json";
static const char latent[] = "glm-moe-dsa-small.json";
static const char mamba[] = "nemotron-latent-small.json";
static const char native[] = "../../../models/tiny-shared-moe.yaml";

static const struct refusal refusals[] = {
    { "an architecture of another family",
      "glm-moe-dsa-small.json",
      { { "GlmMoeDsaForCausalLM", "DeepseekV5ForCausalLM" } } },
    { "an architecture misspelt", "mixtral-small.json", { { "Mixtral", "Mixstral" } } },
    { "a model_type alone, unknown",
      dense,
      { { "\"architectures\": [\"Qwen3ForCausalLM\"],", "" }, { "\"qwen3\"", "\"qwen4\"" } } },
    { "neither form",
      dense,
      { { "\"architectures\": [\"Qwen3ForCausalLM\"],", "" }, { "\"model_type\"", "\"kind\"" } } },
    { "two architectures", dense, { { "[\"Qwen3", "[\"LlamaForCausalLM\", \"Qwen3" } } },
    { "no text model", hybrid, { { "\"text_config\"", "\"words_config\"" } } },
    { "all missing keys and wrong types at once",
      moe,
      { { "\"hidden_size\": 2048,", "" },
        { "\"num_experts\": 128", "\"num_experts\": \"128\"" },
        { "\"vocab_size\": 151936", "\"vocab_size\": -1" } } },
    { "a head_dim that does not come out",
      llama,
      { { "\"hidden_size\": 4096", "\"hidden_size\": 4100" } } },
    { "heads that do not divide", llama, { { "value_heads\": 8", "value_heads\": 7" } } },
    { "more choices than experts", moe, { { "tok\": 8", "tok\": 129" } } },
    { "a shared expert that the class does not have",
      moe,
      { { "\"num_experts\"", "\"shared_expert_intermediate_size\": 768, \"num_experts\"" } } },
    { "a dense layer that is none", moe, { { "layers\": []", "layers\": [48]" } } },
    { "a dense layer without a width",
      moe,
      { { "layers\": []", "layers\": [1]" }, { "\"intermediate_size\": 6144,", "" } } },
    { "embeddings of the prediction layer",
      hybrid,
      { { "embeddings\": false,\n    \"num_att", "embeddings\": true,\n    \"num_att" } } },
    { "a tower of another width",
      hybrid,
      { { "out_hidden_size\": 2048", "out_hidden_size\": 4096" } } },
    { "a tower whose width nobody names", hybrid, { { "\"out_hidden_size\": 2048,", "" } } },
    { "a pattern of another length",
      "qwen3.5-dense-text-small.json",
      { { "layers\": 3", "layers\": 4" } } },
    { "a layer of an unknown kind",
      "qwen3.5-dense-text-small.json",
      { { "\"full_attention\"", "\"chunked_attention\"" } } },
    { "delta nets without sizes",
      "qwen3.5-dense-text-small.json",
      { { "\"linear_num_key_heads\": 2,", "" }, { "\"linear_conv_kernel_dim\": 4,", "" } } },
    { "too many layers", llama, { { "_layers\": 32", "_layers\": 513" } } },
    { "absurd sizes",
      moe,
      { { "_size\": 2048", "_size\": 16000000" }, { "experts\": 128", "experts\": 16000000" } } },
    { "native: a misspelt key", native, { { "layers: 3", "layer: 3" } } },
    { "native: misspelt inside a section", native, { { "top_k: 4", "topk: 4" } } },
    { "native: an unknown architecture",
      native,
      { { "Qwen3MoeForCausalLM", "Qwen3MoEForCausalLM" } } },
    { "native: an unknown kind of layer",
      native,
      { { "hidden: 96", "hidden: 96\nmixers: [gqa, mlp]" } } },
    { "native: a run without a number",
      native,
      { { "hidden: 96", "hidden: 96\nmixers: [gqa*x]" } } },
    { "native: latents without sizes", native, { { "hidden: 96", "hidden: 96\nmixers: [mla]" } } },
    { "native: layers of nothing",
      native,
      { { "hidden: 96", "hidden: 96\nmixers: [none]\nffns: [moe, none]" } } },
    { "native: local layers without a width",
      native,
      { { "hidden: 96", "hidden: 96\nmixers: [gqa, local]" } } },
    { "native: a pattern longer than the model",
      native,
      { { "hidden: 96", "hidden: 96\nmixers: [gqa, gqa, gqa, gqa]" } } },
    { "native: delta nets without sizes",
      native,
      { { "hidden: 96", "hidden: 96\nmixers: [gdn]" } } },
    { "native: a gate without a shared expert",
      native,
      { { "shared_width: 128", "shared_width: 0" } } },
    { "native: a dense layer without a width",
      native,
      { { "hidden: 96", "hidden: 96\nffns: [dense, moe]" } } },
    { "native: everything at once",
      native,
      { { "tied: false", "tied: no-idea" },
        { "heads: 6", "heads: 0" },
        { "  kv_heads: 2\n", "" },
        { "experts: 16", "experts: 1.5" } } },
    { "keys that speak of tensors",
      latent,
      { { "\"kv_lora_rank\"", "\"o_lora_rank\": 64, \"compress_ratios\": [4], \"kv_lora_rank\"" },
        { "\"n_shared_experts\"", "\"hc_mult\": 4, \"color\": \"blue\", \"n_shared_experts\"" } } },
    { "latents that do not add up",
      latent,
      { { "\"qk_rope_head_dim\": 8", "\"qk_head_dim\": 40, \"qk_rope_head_dim\": 8" } } },
    { "another way to choose experts",
      latent,
      { { "noaux_tc", "expert_choice" }, { "\"sigmoid\"", "\"sqrtsoftplus\"" } } },
    { "indexers of an unknown kind",
      latent,
      { { "\"index_topk\": 64", "\"index_topk_pattern\": \"FFSSFSXS\", \"index_topk\": 64" } } },
    { "a choice that nobody made",
      latent,
      { { "\"index_topk\": 64", "\"index_topk_pattern\": \"SFSSFSSS\", \"index_topk\": 64" } } },
    { "groups of unequal size",
      latent,
      { { "\"n_routed_experts\": 8",
          "\"n_routed_experts\": 8, \"n_group\": 3, \"topk_group\": 2" } } },
    { "more groups than there are",
      latent,
      { { "\"n_routed_experts\": 8",
          "\"n_routed_experts\": 8, \"n_group\": 4, \"topk_group\": 5" } } },
    { "fewer experts in the groups than a token has",
      latent,
      { { "\"n_routed_experts\": 8",
          "\"n_routed_experts\": 8, \"n_group\": 8, \"topk_group\": 1" } } },
    { "experts in layers of an unknown kind",
      latent,
      { { "\"moe_layer_freq\": 1", "\"moe_layer_freq\": [0, 1, 1, 2, 1, 1, 1, 1]" } } },
    { "half layers of an unknown kind", mamba, { { "\"ME*-ME\"", "\"ME*-MX\"" } } },
    { "no half layers", mamba, { { "\"hybrid_override_pattern\": \"ME*-ME\",", "" } } },
    { "Mamba without a bias",
      mamba,
      { { "use_conv_bias\": true", "use_conv_bias\": false" },
        { "\"use_bias\": false", "\"use_bias\": true" } } },
    { "another activation of MLPs", mamba, { { "relu2", "gelu" } } },
    { "prediction layers of other parts",
      mamba,
      { { "\"mtp_layers_block_type\": [\"attention\", \"moe\"]",
          "\"mtp_layers_block_type\": [\"mamba\", \"moe\"]" } } },
    { "lightning layers that nobody names",
      "minimax-lightning-small.json",
      { { "\"attn_type_list\": [0, 0, 0, 1],", "" } } },
    { "a tower without end", hybrid, { { "depth\": 27", "depth\": 1000000" } } },
    { "prediction layers without end",
      hybrid,
      { { "mtp_num_hidden_layers\": 1", "mtp_num_hidden_layers\": 1000000" } } },
};

static int add_refusal(FILE *out, const struct refusal *refusal)
{
    struct diag_list list = { 0 };
    struct model model;
    struct edit edits[5] = { { NULL, NULL } };
    memcpy(edits, refusal->edits, sizeof refusal->edits);
    int result = fixture_read(refusal->file, edits, &model, &list);
    (void)fprintf(out, "# %s\n", refusal->title);
    diag_list_print(out, &list);
    return result == -1 && list.errors > 0 ? 0 : -1;
}

static void refusals_read_as_recorded(void **state)
{
    (void)state;
    FILE *out = golden_begin();
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        if (add_refusal(out, &refusals[i]) == 0)
            continue;
        print_error("not refused: %s\n", refusals[i].title);
        fail();
    }
    assert_golden_end("refused models");
}

static void settings_read_as_recorded(void **state)
{
    (void)state;
    static const struct {
        const char *model, *field, *value;
    } settings[] = {
        { "qwen3.5-35b-a3b", "expert", "64" },
        { "qwen3.5-35b-a3b", "moe.widht", "64" },
        { "qwen3.5-35b-a3b", "vision.dept", "1" },
        { "qwen3.5-35b-a3b", "quux", "1" },
        { "qwen3.5-35b-a3b", "layers", "0" },
        { "qwen3.5-35b-a3b", "layers", "12x" },
        { "qwen3.5-35b-a3b", "tied", "maybe" },
        { "qwen3.5-35b-a3b", "mtp", "2" },
        { "qwen3.5-35b-a3b", "vision", "on" },
        { "qwen3.5-35b-a3b", "rope_theta", "nan" },
        { "tiny-moe", "mtp", "1" },
        { "tiny-moe", "vision", "trained" },
        { "tiny-moe", "vision", "frozen" },
        { "tiny-moe", "key_heads", "4" },
        { "llama-3.1-8b", "experts", "8" },
    };
    struct diag_list list = { 0 };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        struct model model;
        struct model_counts before, after;
        fixture_shipped(settings[i].model, &model);
        model_count(&model, &before);
        assert_int_equal(
            model_set(&model, settings[i].field, settings[i].value, (struct pos){ 0 }, &list), -1);
        model_count(&model, &after);
        assert_int_equal(before.total, after.total);
    }
    assert_golden_diags("refused settings", &list);
}

static void what_is_no_map_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = { "[1, 2]", "just words", "" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct model model;
        struct diag_list list = { 0 };
        assert_int_equal(fixture_read_text(texts[i], &model, &list), -1);
        assert_true(list.errors > 0);
    }
    struct model model;
    struct diag_list list = { 0 };
    assert_int_equal(model_from_node(NULL, &model, &list), -1);
    assert_int_equal(list.errors, 1);
}

/* A setting may leave the facts inconsistent until the next one; the check says so. */
static void the_check_follows_the_settings(void **state)
{
    (void)state;
    struct model model;
    struct diag_list list = { 0 };
    fixture_shipped("tiny-moe", &model);
    assert_int_equal(model_set(&model, "top_k", "9", (struct pos){ 0 }, &list), 0);
    assert_int_equal(model_set(&model, "kv_heads", "3", (struct pos){ 0 }, &list), 0);
    assert_int_equal(model_check(&model, (struct pos){ 0 }, &list), -1);
    assert_int_equal(list.errors, 2);
    assert_int_equal(model_set(&model, "experts", "9", (struct pos){ 0 }, &list), 0);
    assert_int_equal(model_set(&model, "kv_heads", "4", (struct pos){ 0 }, &list), 0);
    assert_int_equal(model_check(&model, (struct pos){ 0 }, &list), 0);
}

/* What must be read although a naive reader stumbles: null as absent, unused keys, an inactive
 * window, tied at the root over the text part, an old-style rope, experts 0. */
static void harmless_keys_are_read(void **state)
{
    (void)state;
    struct model model;
    const struct edit nulls[] = { { "\"sliding_window\": 4096", "\"sliding_window\": null" },
                                  { "\"mlp_only_layers\": []", "\"mlp_only_layers\": null" },
                                  { NULL, NULL } };
    fixture_model(moe, nulls, &model);
    assert_int_equal(model.gqa.window_tokens, 0);
    assert_int_equal(model.dense_width, 0);
    const struct edit all_slide[] = {
        { "use_sliding_window\": false", "use_sliding_window\": true" }, { NULL, NULL }
    };
    fixture_model(moe, all_slide, &model);
    assert_int_equal(model.gqa.window_tokens, 4096);
    const struct edit some_slide[] = { { "use_sliding_window\": false",
                                         "use_sliding_window\": true" },
                                       { "sliding_window\": null", "sliding_window\": 512" },
                                       { "window_layers\": 28", "window_layers\": 20" },
                                       { NULL, NULL } };
    fixture_model(dense, some_slide, &model);
    assert_int_equal(model.gqa.window_tokens, 0);
    assert_int_equal(model.gqa.local_tokens, 512);
    assert_int_equal(model.layer_mixer[19], MIXER_GQA);
    assert_int_equal(model.layer_mixer[20], MIXER_LOCAL);
    const struct edit tied[] = { { "embeddings\": false", "embeddings\": true" },
                                 { "\"attention_bias\": false", "\"tie_word_embeddings\": false" },
                                 { NULL, NULL } };
    fixture_model(hybrid, tied, &model);
    assert_true(model.tied);
    assert_true(model.gqa.rope_theta == 1e7 && model.gqa.rotary_fraction == 0.25);
    const struct edit no_experts[] = { { "experts\": 128", "experts\": 0" }, { NULL, NULL } };
    fixture_model(moe, no_experts, &model);
    assert_int_equal(model.dense_width, 6144);
    assert_int_equal(model.layer_ffn[0], FFN_DENSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_read_as_recorded),
        cmocka_unit_test(settings_read_as_recorded),
        cmocka_unit_test(what_is_no_map_is_refused),
        cmocka_unit_test(the_check_follows_the_settings),
        cmocka_unit_test(harmless_keys_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
