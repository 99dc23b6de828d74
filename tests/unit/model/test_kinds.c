/* One layer of each kind by hand, on reduced configurations: hidden 64, vocabulary 256; 4 heads of
 * 32 and 2 key heads where attention is grouped: q and o 64 x 128 each, k and v 64 x 64 each. */
#include "tests/unit/model/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { GROUPED = 2 * 64 * 128 + 2 * 64 * 64, JOIN = 2 * 64 * 64 + 3 * 64 };

static void read(const char *file, struct model *model, struct model_counts *counts)
{
    fixture_model(file, NULL, model);
    model_count(model, counts);
}

static void assert_component(const struct model_counts *counts, enum component component,
                             int params)
{
    if (counts->by_component[component] != (uint64_t)params)
        print_error("%s\n", component_names[component]);
    assert_int_equal(counts->by_component[component], (uint64_t)params);
}

/* Query latent 32, latent 16, a head has 24 + 8 for queries and keys and 20 for values. */
static void latent_attention(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    const int mla =
        64 * 32 + 32 + 32 * 4 * 32 + 64 * (16 + 8) + 16 + 16 * 4 * (24 + 20) + 4 * 20 * 64;
    const int moe = 8 * 64 + 8 + 8 * 3 * 64 * 48 + 3 * 64 * 48;
    read("deepseek-small.json", &model, &c);
    assert_component(&c, COMPONENT_ATTENTION, 4 * mla);
    assert_component(&c, COMPONENT_INDEXER, 0);
    assert_component(&c, COMPONENT_DENSE_MLP, 3 * 64 * 96);
    assert_component(&c, COMPONENT_ROUTER, 3 * (8 * 64 + 8));
    assert_component(&c, COMPONENT_EXPERTS, 3 * 8 * 3 * 64 * 48);
    assert_component(&c, COMPONENT_SHARED_EXPERT, 3 * 3 * 64 * 48);
    assert_component(&c, COMPONENT_NORMS, 4 * 2 * 64 + 64);
    assert_component(&c, COMPONENT_MTP, mla + moe + 2 * 64 + JOIN);
    assert_int_equal(model.layer_ffn[0], FFN_DENSE);
    assert_int_equal(model.gqa.head_dim, 32);
    assert_true(model.moe.sigmoid && model.moe.router_bias);
}

/* Queries without a latent: 64 x 4 x 32 at once. The tower: width 32, patches of 3 x 4 x 4, 30
 * positions, two blocks, a norm, a merger of 128. */
static void latent_attention_beside_a_tower(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    const int mla = 64 * 4 * 32 + 64 * (16 + 8) + 16 + 16 * 4 * (24 + 20) + 4 * 20 * 64;
    const int block = 4 * 32 + 3 * 32 * 32 + 3 * 32 + 32 * 32 + 32 + 2 * 32 * 80 + 80 + 32;
    const int merger = 2 * 32 + 128 * 128 + 128 + 128 * 64 + 64;
    read("kimi-vl-small.json", &model, &c);
    assert_component(&c, COMPONENT_ATTENTION, 2 * mla);
    assert_component(&c, COMPONENT_VISION,
                     3 * 16 * 32 + 32 + 30 * 32 + 2 * 32 + 2 * block + merger);
    assert_component(&c, COMPONENT_MTP, 0);
}

/* Layers 0, 1, 2 and 6 of 8 have indexers (frequency 4, offset 3): 2 heads of 16. */
static void sparse_attention_shares_choices(void **state)
{
    (void)state;
    static const uint8_t want[] = {
        MIXER_DSA,        MIXER_DSA,        MIXER_DSA, MIXER_DSA_SHARED,
        MIXER_DSA_SHARED, MIXER_DSA_SHARED, MIXER_DSA, MIXER_DSA_SHARED
    };
    struct model model;
    struct model_counts c;
    const int indexer = 32 * 2 * 16 + 64 * 16 + 2 * 16 + 64 * 2;
    const int mla = 64 * 32 + 32 + 32 * 4 * 32 + 64 * 24 + 16 + 16 * 4 * (24 + 32) + 4 * 32 * 64;
    const int moe = 8 * 64 + 8 + 8 * 3 * 64 * 32 + 3 * 64 * 32;
    read("glm-moe-dsa-small.json", &model, &c);
    assert_memory_equal(model.layer_mixer, want, sizeof want);
    assert_component(&c, COMPONENT_INDEXER, 4 * indexer);
    assert_component(&c, COMPONENT_ATTENTION, 8 * mla);
    assert_component(&c, COMPONENT_MTP, mla + indexer + moe + 2 * 64 + JOIN);
}

/* A list and letters say the same as the frequency. */
static void indexers_by_list_and_letters(void **state)
{
    (void)state;
    const char *const ways[] = {
        "\"indexer_types\": [\"full\",\"full\",\"full\",\"shared\",\"shared\",\"shared\",\"full\","
        "\"shared\"], \"index_topk\": 64",
        "\"index_topk_pattern\": \"FFFSSSFS\", \"index_topk\": 64",
    };
    for (size_t i = 0; i < 2; i++) {
        const struct edit edits[] = { { "\"index_topk\": 64", ways[i] },
                                      { "\"index_topk_freq\": 4,", "" },
                                      { NULL, NULL } };
        assert_int_equal(fixture_total("glm-moe-dsa-small.json", edits),
                         fixture_total("glm-moe-dsa-small.json", NULL));
    }
}

/* ME*-ME: 8 heads of 16, state 32, 2 groups; experts of 48 at a latent of 24, a shared one of 80,
 * an MLP of 96, none with a gate. One norm a layer. */
static void half_layers(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    const int mamba =
        64 * (2 * 128 + 2 * 2 * 32 + 8) + (128 + 2 * 2 * 32) * (4 + 1) + 3 * 8 + 128 + 128 * 64;
    const int experts = 8 * 2 * 24 * 48 + 2 * 64 * 24, shared = 2 * 64 * 80;
    read("nemotron-latent-small.json", &model, &c);
    assert_int_equal(model.layers, 6);
    assert_component(&c, COMPONENT_LINEAR_ATTENTION, 2 * mamba);
    assert_component(&c, COMPONENT_ATTENTION, GROUPED);
    assert_component(&c, COMPONENT_DENSE_MLP, 2 * 64 * 96);
    assert_component(&c, COMPONENT_EXPERTS, 2 * experts);
    assert_component(&c, COMPONENT_SHARED_EXPERT, 2 * shared);
    assert_component(&c, COMPONENT_ROUTER, 2 * (8 * 64 + 8));
    assert_component(&c, COMPONENT_NORMS, 6 * 64 + 64);
    assert_component(&c, COMPONENT_MTP, GROUPED + 8 * 64 + 8 + experts + shared + 2 * 64 + JOIN);
    /* three of eight experts work; the latent's projections always do */
    const int idle = 2 * 5 * 2 * 24 * 48;
    assert_int_equal(c.trained - c.active_all, idle);
    assert_int_equal(model.layer_mixer[1], MIXER_NONE);
    assert_int_equal(model.layer_ffn[2], FFN_NONE);
}

/* Three layers of lightning attention to one of grouped. */
static void lightning_attention(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    read("minimax-lightning-small.json", &model, &c);
    assert_component(&c, COMPONENT_LINEAR_ATTENTION,
                     3 * (3 * 64 * 128 + 128 * 64 + 64 * 128 + 128));
    assert_component(&c, COMPONENT_ATTENTION, GROUPED);
    assert_component(&c, COMPONENT_EXPERTS, 4 * 8 * 3 * 64 * 48);
    assert_component(&c, COMPONENT_ROUTER, 4 * 8 * 64);
    assert_true(model.gqa.rotary_fraction == 0.5);
}

/* Norms over 128 queries and 64 keys; announced prediction modules are not there. */
static void wide_norms(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    read("minimax-wide-norm-small.json", &model, &c);
    assert_component(&c, COMPONENT_ATTENTION, 2 * (GROUPED + 128 + 64));
    assert_component(&c, COMPONENT_ROUTER, 2 * (8 * 64 + 8));
    assert_component(&c, COMPONENT_MTP, 0);
}

static void sinks_and_biases(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    read("gpt-oss-small.json", &model, &c);
    assert_component(&c, COMPONENT_ATTENTION, 4 * (GROUPED + 128 + 2 * 64 + 64 + 4));
    assert_component(&c, COMPONENT_ROUTER, 4 * (8 * 64 + 8));
    assert_component(&c, COMPONENT_EXPERTS, 4 * 8 * (3 * 64 * 48 + 2 * 48 + 64));
    assert_int_equal(model.layer_mixer[0], MIXER_LOCAL);
    assert_int_equal(model.layer_mixer[1], MIXER_GQA);
    /* two of eight experts work, with their biases */
    const int idle = 4 * 6 * (3 * 64 * 48 + 2 * 48 + 64);
    assert_int_equal(c.trained - c.active_all, idle);
}

static void chunks_and_interleaved_experts(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    read("llama4-small.json", &model, &c);
    assert_component(&c, COMPONENT_ATTENTION, 8 * GROUPED);
    assert_component(&c, COMPONENT_DENSE_MLP, 4 * 3 * 64 * 96);
    assert_component(&c, COMPONENT_EXPERTS, 4 * 8 * 3 * 64 * 48);
    assert_component(&c, COMPONENT_SHARED_EXPERT, 4 * 3 * 64 * 48);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(model.layer_mixer[i], i % 4 == 3 ? MIXER_GQA : MIXER_LOCAL);
        assert_int_equal(model.layer_ffn[i], i % 2 == 1 ? FFN_MOE : FFN_DENSE);
    }
}

/* Biases on q, k, v; norms of 32; two shared experts of 48. */
static void biased_attention_and_dense_layers_first(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    const int attention = GROUPED + 128 + 2 * 64 + 2 * 32;
    const int moe = 8 * 64 + 8 + 8 * 3 * 64 * 48 + 3 * 64 * 96;
    read("glm4-moe-small.json", &model, &c);
    assert_component(&c, COMPONENT_ATTENTION, 4 * attention);
    assert_component(&c, COMPONENT_DENSE_MLP, 3 * 64 * 96);
    assert_component(&c, COMPONENT_SHARED_EXPERT, 3 * 3 * 64 * 96);
    assert_component(&c, COMPONENT_MTP, attention + moe + 2 * 64 + JOIN);
}

/* Biases on q, k, v; a shared expert of 40 behind a scalar gate; layer 0 dense. */
static void qwen2_with_experts(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    read("qwen2-moe-small.json", &model, &c);
    assert_component(&c, COMPONENT_ATTENTION, 2 * (GROUPED + 128 + 2 * 64));
    assert_component(&c, COMPONENT_DENSE_MLP, 3 * 64 * 96);
    assert_component(&c, COMPONENT_EXPERTS, 8 * 3 * 64 * 48);
    assert_component(&c, COMPONENT_SHARED_EXPERT, 3 * 64 * 40 + 64);
    assert_true(!model.moe.normalize_top_k && model.moe.shared_gate);
}

/* Without text_config and tower it is the same text model. */
static void llama4_text_alone(void **state)
{
    (void)state;
    assert_int_equal(fixture_total("llama4-flat-small.json", NULL),
                     fixture_total("llama4-small.json", NULL));
}

/* Keys 2 x 16, values 4 x 8; gated attention has twice the queries. */
static void delta_net_in_joint_matrices(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    const int gated = GROUPED + 64 * 128 + 2 * 32;
    const int moe = 8 * 64 + 8 * 3 * 64 * 48 + 3 * 64 * 40 + 64;
    read("qwen3-next-small.json", &model, &c);
    assert_component(
        &c, COMPONENT_LINEAR_ATTENTION,
        3 * (64 * (2 * 32 + 2 * 32) + 64 * 2 * 4 + (2 * 32 + 32) * 4 + 2 * 4 + 8 + 32 * 64));
    assert_component(&c, COMPONENT_ATTENTION, gated);
    assert_component(&c, COMPONENT_MTP, gated + moe + 2 * 64 + JOIN);
}

/* Two further mergers, which norm the joined patches. */
static void a_tower_that_feeds_deeper_layers(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    const int block = 4 * 32 + 3 * 32 * 32 + 3 * 32 + 32 * 32 + 32 + 2 * 32 * 80 + 80 + 32;
    const int join = 128 * 128 + 128 + 128 * 64 + 64;
    read("qwen3-vl-small.json", &model, &c);
    assert_component(&c, COMPONENT_VISION,
                     3 * 2 * 16 * 32 + 32 + 16 * 32 + 3 * block + 2 * 32 + join +
                         2 * (2 * 128 + join));
}

/* 256 tokens. Of 64 chosen keys a query sees 64 (1 - 64/512) = 56 on average, of the indexer's all
 * 128; a window of 128: 96. A replay does not choose again. */
static void floating_point_operations(void **state)
{
    (void)state;
    struct model model;
    struct model_flops none, full;
    const double sparse = 2.0 * 4 * (32 + 32) * 56, scores = 2.0 * 2 * 16 * 128;
    const double grouped = 4.0 * 4 * 32 * 128, window = 4.0 * 4 * 32 * 96;
    fixture_model("glm-moe-dsa-small.json", NULL, &model);
    model_flops_per_token(&model, 256, 0, &none);
    assert_true(none.attention == 3 * (8 * sparse + 4 * scores));
    fixture_model("deepseek-small.json", NULL, &model);
    model_flops_per_token(&model, 256, 0, &none);
    assert_true(none.attention == 3 * 4 * (2.0 * 4 * (32 + 20) * 128));
    fixture_model("gpt-oss-small.json", NULL, &model);
    model_flops_per_token(&model, 256, 0, &none);
    assert_true(none.attention == 3 * (2 * grouped + 2 * window));
    fixture_model("nemotron-latent-small.json", NULL, &model);
    model_flops_per_token(&model, 256, 0, &none);
    assert_true(none.attention == 3 * grouped);
    assert_true(none.linear_attention == 3 * 2 * (7.0 * 8 * 16 * 32));
    fixture_model("minimax-lightning-small.json", NULL, &model);
    model_flops_per_token(&model, 256, 0, &none);
    model_flops_per_token(&model, 256, 4, &full);
    assert_true(none.linear_attention == 3 * 3 * (4.0 * 4 * 32 * 32));
    fixture_model("glm-moe-dsa-small.json", NULL, &model);
    model_flops_per_token(&model, 256, 0, &none);
    model_flops_per_token(&model, 256, 8, &full);
    struct model_counts c;
    model_count(&model, &c);
    const double head = 256.0 * 64;
    assert_true(full.hardware - none.hardware == 2 * ((double)c.matmul_active - head) + 8 * sparse);
}

/* A query in a chunk of 512 sees 256 keys; in a shorter sequence half of that. */
static void chunks_bound_attention(void **state)
{
    (void)state;
    struct model model;
    struct model_flops flops;
    fixture_model("llama4-small.json", NULL, &model);
    model_flops_per_token(&model, 1024, 0, &flops);
    assert_true(flops.attention == 3 * (2 * (4.0 * 4 * 32 * 512) + 6 * (4.0 * 4 * 32 * 256)));
    model_flops_per_token(&model, 256, 0, &flops);
    assert_true(flops.attention == 3 * 8 * (4.0 * 4 * 32 * 128));
}

struct names {
    const char *const *want;
    size_t count, found;
};

static int find_name(const struct tensor *tensor, void *context)
{
    struct names *names = context;
    for (size_t i = 0; i < names->count; i++)
        names->found += strcmp(names->want[i], tensor->name) == 0;
    return 0;
}

/* Tensors have the names that the published checkpoints give them, each once. */
static void tensors_are_called_as_published(void **state)
{
    (void)state;
    static const struct {
        const char *file, *names[6];
    } rows[] = {
        { "deepseek-small.json",
          { "model.layers.1.self_attn.kv_a_proj_with_mqa.weight",
            "model.layers.1.mlp.gate.e_score_correction_bias",
            "model.layers.1.mlp.shared_experts.up_proj.weight", "model.layers.4.eh_proj.weight",
            "model.layers.4.shared_head.norm.weight", "model.norm.weight" } },
        { "glm-moe-dsa-small.json",
          { "model.layers.6.self_attn.indexer.wq_b.weight",
            "model.layers.0.self_attn.indexer.k_norm.bias",
            "model.layers.8.self_attn.indexer.weights_proj.weight", "model.layers.8.hnorm.weight",
            "model.layers.3.self_attn.q_b_proj.weight", "model.embed_tokens.weight" } },
        { "mixtral-small.json",
          { "model.layers.0.block_sparse_moe.gate.weight",
            "model.layers.1.block_sparse_moe.experts.{e}.w1.weight",
            "model.layers.1.block_sparse_moe.experts.{e}.w2.weight",
            "model.layers.1.block_sparse_moe.experts.{e}.w3.weight",
            "model.layers.1.self_attn.q_proj.weight", "lm_head.weight" } },
        { "gpt-oss-small.json",
          { "model.layers.0.self_attn.sinks", "model.layers.0.mlp.router.bias",
            "model.layers.0.mlp.router.weight", "model.layers.0.mlp.experts.gate_up_proj_bias",
            "model.layers.0.mlp.experts.down_proj", "model.layers.0.self_attn.o_proj.bias" } },
        { "nemotron-latent-small.json",
          { "backbone.embeddings.weight", "backbone.layers.0.mixer.conv1d.bias",
            "backbone.layers.1.mixer.fc1_latent_proj.weight",
            "backbone.layers.2.mixer.q_proj.weight", "backbone.layers.5.norm.weight",
            "backbone.norm_f.weight" } },
        { "llama4-small.json",
          { "language_model.model.layers.0.feed_forward.gate_proj.weight",
            "language_model.model.layers.1.feed_forward.router.weight",
            "language_model.model.layers.1.feed_forward.shared_expert.up_proj.weight",
            "language_model.model.layers.1.feed_forward.experts.gate_up_proj",
            "language_model.model.norm.weight", "language_model.lm_head.weight" } },
        { "minimax-lightning-small.json",
          { "model.layers.0.self_attn.qkv_proj.weight", "model.layers.0.self_attn.norm.weight",
            "model.layers.0.self_attn.output_gate.weight", "model.layers.3.self_attn.k_proj.weight",
            "model.layers.0.block_sparse_moe.experts.{e}.w3.weight", "model.norm.weight" } },
        { "kimi-vl-small.json",
          { "vision_tower.encoder.blocks.1.wqkv.weight", "mm_projector.pre_norm.weight",
            "mm_projector.proj.2.bias", "vision_tower.encoder.final_layernorm.bias",
            "language_model.model.layers.1.self_attn.q_proj.weight",
            "language_model.lm_head.weight" } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model model;
        struct names names = { rows[i].names, 6, 0 };
        fixture_model(rows[i].file, NULL, &model);
        model_tensors(&model, find_name, &names);
        if (names.found != names.count)
            print_error("%s: %zu of %zu names\n", rows[i].file, names.found, names.count);
        assert_int_equal(names.found, names.count);
    }
}

struct place {
    const char *name;
    int tp_axis; /* -1: whole on every rank */
    enum mesh mesh;
    bool found;
};

static int check_place(const struct tensor *tensor, void *context)
{
    for (struct place *place = context; place->name != NULL; place++) {
        if (strcmp(place->name, tensor->name) != 0)
            continue;
        assert_int_equal(tensor->tp_axis, place->tp_axis);
        assert_int_equal(tensor->mesh, place->mesh);
        place->found = true;
    }
    return 0;
}

static void assert_places(const char *file, struct place *places)
{
    struct model model;
    fixture_model(file, NULL, &model);
    model_tensors(&model, check_place, places);
    for (struct place *place = places; place->name != NULL; place++)
        assert_true(place->found);
}

/* Tensor parallelism splits heads, columns and rows; what makes latents, chooses keys or experts,
 * or stands before a dispatch is whole. */
static void what_is_split_and_by_whom(void **state)
{
    (void)state;
    struct place latent[] = {
        { "model.layers.3.self_attn.q_a_proj.weight", -1, MESH_DENSE, false },
        { "model.layers.3.self_attn.kv_a_proj_with_mqa.weight", -1, MESH_DENSE, false },
        { "model.layers.3.self_attn.q_b_proj.weight", 0, MESH_DENSE, false },
        { "model.layers.3.self_attn.kv_b_proj.weight", 0, MESH_DENSE, false },
        { "model.layers.3.self_attn.o_proj.weight", 1, MESH_DENSE, false },
        { "model.layers.2.self_attn.indexer.wq_b.weight", -1, MESH_DENSE, false },
        { "model.layers.3.mlp.gate.e_score_correction_bias", -1, MESH_DENSE, false },
        { "model.layers.3.mlp.experts.{e}.down_proj.weight", 1, MESH_EXPERT, false },
        { NULL, 0, MESH_DENSE, false },
    };
    struct place halves[] = {
        { "backbone.layers.0.mixer.in_proj.weight", 0, MESH_DENSE, false },
        { "backbone.layers.0.mixer.out_proj.weight", 1, MESH_DENSE, false },
        { "backbone.layers.1.mixer.fc1_latent_proj.weight", -1, MESH_DENSE, false },
        { "backbone.layers.1.mixer.experts.{e}.up_proj.weight", 0, MESH_EXPERT, false },
        { "backbone.layers.1.mixer.shared_experts.down_proj.weight", 1, MESH_DENSE, false },
        { NULL, 0, MESH_DENSE, false },
    };
    struct place stacked[] = {
        { "model.layers.0.mlp.experts.gate_up_proj", 1, MESH_EXPERT, false },
        { "model.layers.0.mlp.experts.gate_up_proj_bias", 0, MESH_EXPERT, false },
        { "model.layers.0.mlp.experts.down_proj", 0, MESH_EXPERT, false },
        { "model.layers.0.mlp.experts.down_proj_bias", -1, MESH_EXPERT, false },
        { "model.layers.0.self_attn.sinks", 0, MESH_DENSE, false },
        { NULL, 0, MESH_DENSE, false },
    };
    assert_places("glm-moe-dsa-small.json", latent);
    assert_places("nemotron-latent-small.json", halves);
    assert_places("gpt-oss-small.json", stacked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latent_attention),
        cmocka_unit_test(latent_attention_beside_a_tower),
        cmocka_unit_test(sparse_attention_shares_choices),
        cmocka_unit_test(indexers_by_list_and_letters),
        cmocka_unit_test(half_layers),
        cmocka_unit_test(lightning_attention),
        cmocka_unit_test(wide_norms),
        cmocka_unit_test(sinks_and_biases),
        cmocka_unit_test(chunks_and_interleaved_experts),
        cmocka_unit_test(biased_attention_and_dense_layers_first),
        cmocka_unit_test(qwen2_with_experts),
        cmocka_unit_test(llama4_text_alone),
        cmocka_unit_test(delta_net_in_joint_matrices),
        cmocka_unit_test(a_tower_that_feeds_deeper_layers),
        cmocka_unit_test(floating_point_operations),
        cmocka_unit_test(chunks_bound_attention),
        cmocka_unit_test(tensors_are_called_as_published),
        cmocka_unit_test(what_is_split_and_by_whom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
