/* The tensor table: names and order as the executor and checkpoints need them, and the counts as
 * the sum of its rows. */
#include "tests/unit/model/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const shipped[] = { "qwen3-30b-a3b", "qwen3.5-35b-a3b", "qwen3-0.6b",
                                       "llama-3.1-8b",  "tiny-moe",        "tiny-shared-moe",
                                       "small-moe" };
enum { SHIPPED = sizeof shipped / sizeof shipped[0] };

struct sums {
    uint64_t total, by_component[COMPONENT_COUNT];
    int tensors, last_unit;
};

static int add(const struct tensor *tensor, void *context)
{
    struct sums *sums = context;
    uint64_t params = tensor->copies;
    for (int i = 0; i < tensor->axes; i++)
        params *= tensor->shape[i];
    assert_int_equal(tensor->params, params);
    assert_true(tensor->axes > 0 && tensor->tp_axis < tensor->axes);
    assert_int_equal(tensor->mesh == MESH_EXPERT, tensor->copies > 1);
    assert_true(tensor->unit < 0 || tensor->unit >= sums->last_unit);
    sums->last_unit = tensor->unit;
    sums->total += params;
    sums->by_component[tensor->component] += params;
    sums->tensors++;
    return 0;
}

static void counts_are_the_sum_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHIPPED; i++) {
        struct model model;
        struct model_counts counts;
        struct sums sums = { 0 };
        fixture_shipped(shipped[i], &model);
        model_count(&model, &counts);
        assert_int_equal(model_tensors(&model, add, &sums), 0);
        assert_int_equal(sums.total, counts.total);
        for (int c = 0; c < COMPONENT_COUNT; c++)
            assert_int_equal(sums.by_component[c], counts.by_component[c]);
    }
}

struct wanted {
    const char *const *names;
    int at;
};

static int compare_name(const struct tensor *tensor, void *context)
{
    struct wanted *wanted = context;
    if (wanted->names[wanted->at] == NULL)
        return 1;
    assert_string_equal(tensor->name, wanted->names[wanted->at]);
    wanted->at++;
    return 0;
}

static void assert_begins(const struct model *model, const char *const *names)
{
    struct wanted wanted = { names, 0 };
    assert_int_equal(model_tensors(model, compare_name, &wanted), 1);
}

static void names_follow_the_checkpoint(void **state)
{
    (void)state;
    static const char *const moe[] = {
        "model.embed_tokens.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.k_norm.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.mlp.gate.weight",
        "model.layers.0.mlp.shared_expert.gate_proj.weight",
        "model.layers.0.mlp.shared_expert.up_proj.weight",
        "model.layers.0.mlp.shared_expert.down_proj.weight",
        "model.layers.0.mlp.shared_expert_gate.weight",
        "model.layers.0.mlp.experts.{e}.gate_proj.weight",
        "model.layers.0.mlp.experts.{e}.up_proj.weight",
        "model.layers.0.mlp.experts.{e}.down_proj.weight",
        "model.layers.1.input_layernorm.weight",
        NULL,
    };
    static const char *const hybrid[] = {
        "model.language_model.embed_tokens.weight",
        "model.language_model.layers.0.input_layernorm.weight",
        "model.language_model.layers.0.linear_attn.dt_bias",
        "model.language_model.layers.0.linear_attn.A_log",
        "model.language_model.layers.0.linear_attn.conv1d.weight",
        "model.language_model.layers.0.linear_attn.norm.weight",
        "model.language_model.layers.0.linear_attn.in_proj_qkv.weight",
        "model.language_model.layers.0.linear_attn.in_proj_z.weight",
        "model.language_model.layers.0.linear_attn.in_proj_b.weight",
        "model.language_model.layers.0.linear_attn.in_proj_a.weight",
        "model.language_model.layers.0.linear_attn.out_proj.weight",
        NULL,
    };
    struct model model;
    fixture_shipped("tiny-shared-moe", &model);
    assert_begins(&model, moe);
    fixture_shipped("qwen3.5-35b-a3b", &model);
    assert_begins(&model, hybrid);
}

struct found {
    const char *name;
    struct tensor tensor;
};

static int find(const struct tensor *tensor, void *context)
{
    struct found *found = context;
    if (strcmp(tensor->name, found->name) != 0)
        return 0;
    found->tensor = *tensor;
    return 1;
}

static void assert_tensor(const struct model *model, const char *name, int unit, int tp_axis,
                          uint64_t copies, uint64_t out, uint64_t in)
{
    struct found found = { name, { .axes = 0 } };
    if (model_tensors(model, find, &found) != 1)
        print_error("no tensor %s\n", name);
    assert_int_equal(found.tensor.axes, in == 0 ? 1 : 2);
    assert_int_equal(found.tensor.unit, unit);
    assert_int_equal(found.tensor.tp_axis, tp_axis);
    assert_int_equal(found.tensor.copies, copies);
    assert_int_equal(found.tensor.shape[0], out);
    assert_int_equal(found.tensor.shape[1], in);
}

static void shapes_units_and_axes(void **state)
{
    (void)state;
    struct model m;
    fixture_shipped("qwen3.5-35b-a3b", &m);
    assert_tensor(&m, "model.language_model.layers.3.self_attn.q_proj.weight", 3, 0, 1, 8192, 2048);
    assert_tensor(&m, "model.language_model.layers.3.self_attn.k_proj.weight", 3, 0, 1, 512, 2048);
    assert_tensor(&m, "model.language_model.layers.3.self_attn.o_proj.weight", 3, 1, 1, 2048, 4096);
    assert_tensor(&m, "model.language_model.layers.3.self_attn.q_norm.weight", 3, -1, 1, 256, 0);
    assert_tensor(&m, "model.language_model.layers.9.mlp.experts.gate_up_proj", 9, 0, 256, 1024,
                  2048);
    assert_tensor(&m, "model.language_model.layers.9.mlp.experts.down_proj", 9, 1, 256, 2048, 512);
    assert_tensor(&m, "model.language_model.norm.weight", UNIT_HEAD, -1, 1, 2048, 0);
    assert_tensor(&m, "lm_head.weight", UNIT_HEAD, 0, 1, 248320, 2048);
    assert_tensor(&m, "mtp.fc.weight", UNIT_MTP, -1, 1, 2048, 4096);
    assert_tensor(&m, "model.visual.blocks.26.attn.qkv.weight", UNIT_VISION, -1, 1, 3456, 1152);
    fixture_shipped("qwen3-30b-a3b", &m);
    assert_tensor(&m, "model.layers.47.mlp.experts.{e}.up_proj.weight", 47, 0, 128, 768, 2048);
    assert_tensor(&m, "model.layers.47.mlp.experts.{e}.down_proj.weight", 47, 1, 128, 2048, 768);
    assert_tensor(&m, "model.embed_tokens.weight", UNIT_EMBEDDING, 0, 1, 151936, 2048);
}

static void a_tied_head_is_not_visited(void **state)
{
    (void)state;
    struct model model;
    struct found found = { "lm_head.weight", { .axes = 0 } };
    fixture_shipped("qwen3-0.6b", &model);
    assert_int_equal(model_tensors(&model, find, &found), 0);
    model.tied = false;
    assert_int_equal(model_tensors(&model, find, &found), 1);
}

static int stop_at_third(const struct tensor *tensor, void *context)
{
    (void)tensor;
    int *calls = context;
    return ++*calls == 3 ? 77 : 0;
}

static void a_visitor_can_stop(void **state)
{
    (void)state;
    struct model model;
    int calls = 0;
    fixture_shipped("tiny-moe", &model);
    assert_int_equal(model_tensors(&model, stop_at_third, &calls), 77);
    assert_int_equal(calls, 3);
}

/* 6 tensors of attention (with head norms), 2 norms; 1 + 4 + 3 of the MoE; embedding, norm, head.
 */
static void tensor_numbers(void **state)
{
    (void)state;
    struct model model;
    struct sums sums = { 0 };
    fixture_shipped("tiny-shared-moe", &model);
    (void)model_tensors(&model, add, &sums);
    assert_int_equal(sums.tensors, 3 * (6 + 2 + 8) + 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_the_sum_of_the_table),
        cmocka_unit_test(names_follow_the_checkpoint),
        cmocka_unit_test(shapes_units_and_axes),
        cmocka_unit_test(a_tied_head_is_not_visited),
        cmocka_unit_test(a_visitor_can_stop),
        cmocka_unit_test(tensor_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
