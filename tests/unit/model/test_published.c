/* Published config.json files, when RANKFIT_HF_CONFIGS names a directory of ORG--NAME/config.json:
 * each is read, with the facts of the model that ships under its name, or refused by the name of
 * its architecture. Skipped otherwise: those files are not ours to ship. */
#include "tests/unit/model/fixture.h"

#include <dirent.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SKIP = 77 };

/* What ships for each. test_shipped.c judges the totals. */
static const struct {
    const char *directory, *name;
} published[] = {
    { "MiniMaxAI--MiniMax-M2.5", "minimax-m2.5" },
    { "MiniMaxAI--MiniMax-M2.7", "minimax-m2.7" },
    { "Qwen--Qwen3-1.7B", "qwen3-1.7b" },
    { "Qwen--Qwen3-235B-A22B", "qwen3-235b-a22b" },
    { "Qwen--Qwen3-30B-A3B", "qwen3-30b-a3b" },
    { "Qwen--Qwen3-32B", "qwen3-32b" },
    { "Qwen--Qwen3-8B", "qwen3-8b" },
    { "Qwen--Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder-480b-a35b" },
    { "Qwen--Qwen3-VL-235B-A22B-Instruct", "qwen3-vl-235b-a22b" },
    { "Qwen--Qwen3-VL-32B-Instruct", "qwen3-vl-32b" },
    { "Qwen--Qwen3-VL-32B-Thinking", "qwen3-vl-32b" },
    { "Qwen--Qwen3-VL-4B-Instruct", "qwen3-vl-4b" },
    { "Qwen--Qwen3-VL-8B-Instruct", "qwen3-vl-8b" },
    { "Qwen--Qwen3.5-27B", "qwen3.5-27b" },
    { "Qwen--Qwen3.5-35B-A3B", "qwen3.5-35b-a3b" },
    { "Qwen--Qwen3.5-397B-A17B", "qwen3.5-397b-a17b" },
    { "deepseek-ai--DeepSeek-R1", "deepseek-r1" },
    { "deepseek-ai--DeepSeek-V3", "deepseek-v3" },
    { "deepseek-ai--DeepSeek-V3.2", "deepseek-v3.2" },
    { "meta-llama--Meta-Llama-3.1-405B", "llama-3.1-405b" },
    { "meta-llama--Meta-Llama-3.1-70B", "llama-3.1-70b" },
    { "meta-llama--Meta-Llama-3.1-8B", "llama-3.1-8b" },
    { "mistralai--Mixtral-8x22B-v0.1", "mixtral-8x22b" },
    { "mistralai--Mixtral-8x7B-v0.1", "mixtral-8x7b" },
    { "moonshotai--Kimi-K2-Instruct", "kimi-k2" },
    { "moonshotai--Kimi-K2.5", "kimi-k2.5" },
    { "nvidia--GLM-5.2-NVFP4", "glm-5.2" },
    { "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b" },
    { "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "nemotron-3-ultra-550b-a55b" },
    { "nvidia--Nemotron-H-56B-Base-8K", "nemotron-h-56b" },
    { "openai--gpt-oss-120b", "gpt-oss-120b" },
    { "openai--gpt-oss-20b", "gpt-oss-20b" },
    { "zai-org--GLM-5", "glm-5" },
    { "zai-org--GLM-5.1", "glm-5.1" },
    { "zai-org--GLM-5.2", "glm-5.2" },
};

/* Files whose parameters the keys do not tell: widths that change from layer to layer, gates and
 * heads that no key speaks of. */
static const char *const refused[] = {
    "nvidia--Llama-3_3-Nemotron-Super-49B-v1",
    "stepfun-ai--Step-3.7-Flash",
};

static const char *configs;

static void assert_refused(const char *directory, const struct diag_list *list)
{
    bool expected = false;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        expected |= strcmp(refused[i], directory) == 0;
    if (!expected)
        diag_list_print(stderr, list);
    assert_true(expected);
    assert_non_null(strstr(list->items[0].what, "architecture"));
    assert_true(list->items[0].line > 0);
}

static void assert_shipped(const char *directory, const char *name, struct model *read)
{
    struct model shipped;
    fixture_shipped(name, &shipped);
    memcpy(read->name, shipped.name, sizeof read->name);
    memcpy(read->title, shipped.title, sizeof read->title);
    memcpy(read->unrun, shipped.unrun, sizeof read->unrun); /* not said by files that ship */
    struct json *one = model_to_json(read), *two = model_to_json(&shipped);
    if (!json_equal(json_view(one), json_view(two))) {
        char *a = json_dumps(json_view(one), JSON_INDENT(1)),
             *b = json_dumps(json_view(two), JSON_INDENT(1));
        print_error("%s: read %s\nships %s\n", directory, a, b);
        free(a);
        free(b);
        fail();
    }
    json_free(one);
    json_free(two);
}

static void check_one(const char *directory)
{
    char path[4096];
    struct model model;
    struct diag_list list = { 0 };
    (void)snprintf(path, sizeof path, "%s/%s", configs, directory);
    if (model_load(path, &model, &list) != 0) {
        assert_refused(directory, &list);
        return;
    }
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++)
        if (strcmp(published[i].directory, directory) == 0)
            assert_shipped(directory, published[i].name, &model);
}

static void every_file_is_read_or_refused_by_name(void **state)
{
    (void)state;
    struct dirent **entries = NULL;
    int count = scandir(configs, &entries, NULL, alphasort);
    assert_true(count > 2);
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.')
            check_one(entries[i]->d_name);
        free(entries[i]);
    }
    free((void *)entries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file_is_read_or_refused_by_name),
    };
    configs = getenv("RANKFIT_HF_CONFIGS");
    if (configs == NULL)
        return SKIP;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
