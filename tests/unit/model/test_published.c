/* Published config.json files, when RANKFIT_HF_CONFIGS names a directory of ORG--NAME/config.json:
 * each is read with the published total or refused by the name of its architecture. Skipped
 * otherwise: those files are not ours to ship. */
#include "tests/unit/model/fixture.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SKIP = 77 };

/* Element counts of the published checkpoints; for the larger ones the same to three decimals. */
static const struct {
    const char *directory;
    double total, tolerance;
} published[] = {
    { "Qwen--Qwen3-30B-A3B", 30532122624, 0 },
    { "Qwen--Qwen3.5-35B-A3B", 35951822704, 0 },
    { "Qwen--Qwen3.5-27B", 27781427952, 0 },
    { "meta-llama--Meta-Llama-3.1-8B", 8030261248, 0 },
    { "Qwen--Qwen3.5-397B-A17B", 403.398e9, 0.0005e9 },
    { "Qwen--Qwen3-235B-A22B", 235.094e9, 0.0005e9 },
    { "Qwen--Qwen3-Coder-480B-A35B-Instruct", 480.155e9, 0.0005e9 },
    { "Qwen--Qwen3-1.7B", 1.721e9, 0.0005e9 },
    { "Qwen--Qwen3-8B", 8.191e9, 0.0005e9 },
    { "Qwen--Qwen3-32B", 32.762e9, 0.0005e9 },
    { "meta-llama--Meta-Llama-3.1-70B", 70.554e9, 0.0005e9 },
    { "meta-llama--Meta-Llama-3.1-405B", 405.853e9, 0.0005e9 },
};

static const char *configs;

static void check_one(const char *directory)
{
    char path[4096];
    struct model model;
    struct model_counts counts;
    struct diag_list list = { 0 };
    (void)snprintf(path, sizeof path, "%s/%s", configs, directory);
    if (model_load(path, &model, &list) != 0) {
        assert_non_null(strstr(list.items[0].what, "architecture"));
        assert_non_null(strstr(list.items[0].what, "is not read"));
        return;
    }
    model_count(&model, &counts);
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        if (strcmp(published[i].directory, directory) != 0)
            continue;
        double error = (double)counts.total - published[i].total;
        if (error > published[i].tolerance || -error > published[i].tolerance) {
            print_error("%s: %llu\n", directory, (unsigned long long)counts.total);
            fail();
        }
        return;
    }
    print_message("%s: %llu, no published total here\n", directory,
                  (unsigned long long)counts.total);
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
