/* Every model that ships is planned, short and long: it fits, or the answer says what would. And
 * what is planned for one model: latents, chosen keys, states. */
#include "tests/e2e/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Entries of `rankfit list models` that are files: architectures come after them. */
static json_t *shipped_models(json_t *list)
{
    json_t *models = json_array(), *entry;
    size_t i;
    json_array_foreach(json_at(list, "models"), i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && (name[0] < 'A' || name[0] > 'Z'))
            json_array_append(models, json_object_get(entry, "name"));
    }
    return models;
}

static void assert_answered(const char *name, const char *seq, const char *more)
{
    char command[256];
    struct program_result result;
    json_error_t error;
    (void)snprintf(command, sizeof command,
                   "\"$RANKFIT\" plan --model %s --hardware h100-sxm --gpus 512 --seq %s%s --json",
                   name, seq, more);
    program_run(command, &result);
    json_t *plan = json_loads(result.out, 0, &error);
    if (result.status > 1 || !plan)
        print_error("%s, %s tokens: exit %d\n%s", name, seq, result.status, result.err);
    assert_true(result.status <= 1);
    assert_non_null(plan);
    bool refused = strcmp(json_string_value(json_at(plan, "verdict")), "does_not_fit") == 0;
    assert_int_equal(result.status, refused);
    assert_true(!refused || json_array_size(json_at(plan, "nearest")) > 0);
    assert_true(number_at(plan, "recommended.peak_bytes") > 0);
    assert_true(number_at(plan, "recommended.step.mfu") > 0);
    assert_true(number_at(plan, "recommended.step.mfu") < 1);
    json_decref(plan);
    program_done(&result);
}

static void every_model_is_answered(void **state)
{
    (void)state;
    json_t *list = program_json("list models --json", 0), *models = shipped_models(list), *name;
    size_t i;
    assert_true(json_array_size(models) > 50);
    json_array_foreach(models, i, name)
    {
        assert_answered(json_string_value(name), "8K", "");
        /* fewer layouts to search */
        assert_answered(json_string_value(name), "128K", " --set tp=1 --set etp=1 --set moe=plain");
    }
    json_decref(models);
    json_decref(list);
}

static json_t *rank_of(json_t *budget)
{
    return json_at(budget, "ranks.0.items");
}

static double max_of(json_t *items, const char *name)
{
    return json_number_value(json_object_get(json_named(items, name), "max_bytes"));
}

/* GLM-5.2, T = 16,384 tokens a rank of 131,072 over cp 8. A checkpoint is 2 x 6144 bytes a token
 * and layer, and 21 of 78 layers save 2048 choices of 4 bytes beside: 0.958 and 0.172 MB a token.
 * Gathered, a token has 512 + 64 of latents and, in layers that choose, 128 of index keys: bf16,
 * and in backward fp32 beside them for all and for the rank's own tokens. */
static void sparse_attention_at_128k(void **state)
{
    (void)state;
    const double T = 16384, A = 131072;
    json_t *budget = program_json("budget --model glm-5.2 --hardware h200 --gpus 512 --seq 128K "
                                  "--set cp=8 --set tp=1 --set pp=1 --set recompute=full "
                                  "--set context=allgather_kv --json",
                                  0);
    json_t *items = rank_of(budget);
    assert_true(max_of(items, "checkpoints") == T * (78 * 2 * 6144 + 21 * 2048 * 4));
    assert_true(max_of(items, "kv_gather") == A * 2 * (576 + 128) + A * 4 * 576);
    assert_string_equal(
        json_string_value(json_object_get(json_named(items, "layer_working"), "basis")), "assumed");
    json_decref(budget);
}

/* DeepSeek-V3 at the same place: latents of 512 + 64, and keys and values of 8 of 128 heads at a
 * time, 128 + 64 and 128 + 128, twice in backward; gradients of latents fp32. */
static void latent_attention_at_128k(void **state)
{
    (void)state;
    const double A = 131072;
    json_t *budget = program_json("budget --model deepseek-v3 --hardware h200 --gpus 512 "
                                  "--seq 128K --set cp=8 --set tp=1 --set pp=1 "
                                  "--set context=allgather_kv --json",
                                  0);
    json_t *items = rank_of(budget);
    assert_true(max_of(items, "kv_gather") ==
                A * 2 * 576 + 2 * A * 2 * 8 * (192 + 256) + A * 4 * 576);
    json_decref(budget);
}

static double weights_of_tower(const char *set)
{
    char arguments[256];
    (void)snprintf(arguments, sizeof arguments,
                   "budget --model qwen3-vl-8b --hardware h100-sxm --gpus 8 --seq 8K --set fsdp=8 "
                   "--set pp=1 --set sharding=fsdp %s --json",
                   set);
    json_t *budget = program_json(arguments, 0);
    double bytes =
        json_number_value(json_object_get(json_named(rank_of(budget), "weights"), "bytes"));
    json_decref(budget);
    return bytes;
}

/* The tower of Qwen3-VL-8B has 576,388,336 parameters: padded to 64 x 8 and shared by 8, two bytes
 * each, whether frozen or trained; without either it is not there. */
static void a_tower_is_held_or_not(void **state)
{
    (void)state;
    const int64_t share = INT64_C(576388608) / 8 * 2, blocks = (share + 255) / 256;
    const double rounded = 256.0 * (double)blocks, without = weights_of_tower("");
    assert_true(weights_of_tower("--set model.vision=frozen") - without == rounded);
    assert_true(weights_of_tower("--set model.vision=trained") - without == rounded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_is_answered),
        cmocka_unit_test(sparse_attention_at_128k),
        cmocka_unit_test(latent_attention_at_128k),
        cmocka_unit_test(a_tower_is_held_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
