/* Every model that ships against what is published of it. EXACT: the element count of the published
 * tensor inventory, or half of its bf16 bytes. Others: published to three decimals of a billion. */
#include "tests/unit/model/fixture.h"

#include "base/file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct published {
    const char *name;
    double total;  /* every tensor once; with prediction layers and tower */
    double trunk;  /* the text trunk; 0: the same */
    double all;    /* active with embedding and head, in billions; 0: not published */
    double active; /* active with the head and without the lookup */
};

/* Element counts, or billions with three decimals (below a million). */
static const struct published models[] = {
    { "qwen3-30b-a3b", 30532122624, 0, 3.353, 3.042 },
    { "gpt-oss-20b", 20914757184, 0, 4.187, 3.608 },
    { "gpt-oss-120b", 116829156672, 0, 5.712, 5.133 },
    { "qwen3.5-35b-a3b", 35951822704, 34660610688, 3.455, 2.946 },
    { "qwen3.5-27b", 27781427952, 26.896, 0, 0 },
    { "glm-5.2", 753329940480, 743377019904, 41.251, 40.299 },
    { "glm-5", 753864139008, 743911218432, 41.785, 0 },
    { "glm-5.1", 753864139008, 743911218432, 41.785, 0 },
    { "nemotron-3-super-120b-a12b", 123611033088, 120.669, 12.770, 12.233 },
    { "nemotron-3-nano-30b-a3b", 31577940288, 0, 3.580, 3.228 },
    { "nemotron-3-ultra-550b-a55b", 560.525, 549.309, 56.059, 54.985 },
    { "deepseek-v3", 682.636, 671.026, 37.552, 36.626 },
    { "deepseek-r1", 682.636, 671.026, 37.552, 36.626 },
    { "deepseek-v3.2", 0, 671.878, 38.404, 37.477 },
    { "kimi-k2", 1026408232448, 0, 32.862, 31.687 },
    { "kimi-k2.5", 0, 1026408232448, 32.862, 31.687 },
    { "glm-4.5", 0, 352.798, 33.632, 32.856 },
    { "glm-4.6", 0, 352.798, 33.632, 32.856 },
    { "glm-4.5-air", 0, 106.852, 13.424, 12.803 },
    { "glm-4.7-flash", 0, 29.943, 3.897, 3.580 },
    { "mixtral-8x7b", 46.703, 0, 12.880, 12.749 },
    { "mixtral-8x22b", 140.621, 0, 39.152, 38.955 },
    { "mistral-7b", 7241732096, 0, 0, 0 },
    { "llama-3.1-8b", 8030261248, 0, 0, 0 },
    { "llama-3.1-70b", 70.554, 0, 0, 0 },
    { "llama-3.1-405b", 405.853, 0, 0, 0 },
    { "llama-4-scout", 108641793536, 107.770, 17.173, 16.138 },
    { "llama-4-maverick", 0, 400.712, 17.185, 16.150 },
    { "qwen2.5-7b", 7.616, 0, 0, 0 },
    { "qwen2.5-32b", 32.764, 0, 0, 0 },
    { "qwen2.5-72b", 72.706, 0, 0, 0 },
    { "qwen3-0.6b", 596049920, 0, 0, 0 },
    { "qwen3-1.7b", 1.721, 0, 0, 0 },
    { "qwen3-4b", 4.022, 0, 0, 0 },
    { "qwen3-8b", 8.191, 0, 0, 0 },
    { "qwen3-14b", 14.768, 0, 0, 0 },
    { "qwen3-32b", 32.762, 0, 0, 0 },
    { "qwen3-235b-a22b", 235.094, 0, 22.191, 21.568 },
    { "qwen3-coder-480b-a35b", 480.155, 0, 35.475, 34.541 },
    { "qwen3-vl-4b", 4437815808, 4.022, 0, 0 },
    { "qwen3-vl-8b", 8767123696, 8.191, 0, 0 },
    { "qwen3-vl-32b", 0, 32.762, 0, 0 },
    { "qwen3-vl-235b-a22b", 0, 235.094, 22.191, 21.568 },
    { "qwen3-next-80b-a3b", 81.325, 79.674, 3.875, 3.564 },
    { "qwen3.5-122b-a10b", 125.086, 122.112, 9.771, 9.008 },
    { "qwen3.5-397b-a17b", 403.398, 396.346, 17.349, 16.332 },
    { "minimax-m2", 228.690, 0, 11.031, 10.416 },
    { "minimax-m2.5", 228.690, 0, 11.031, 10.416 },
    { "minimax-m2.7", 228.690, 0, 11.031, 10.416 },
    { "minimax-m1", 456.090, 0, 48.403, 47.174 },
    /* a hand count of its 118 half layers; published as 56B */
    { "nemotron-h-56b", 56324350464, 0, 0, 0 },
};
enum { MODELS = sizeof models / sizeof models[0] };

static void assert_count(const char *name, const char *what, uint64_t count, double published)
{
    if (published == 0)
        return;
    bool exact = published > 1e6;
    double error = exact ? (double)count - published : (double)count / 1e9 - published;
    if (fabs(error) <= (exact ? 0 : 0.0005001))
        return;
    print_error("%s, %s: %llu\n", name, what, (unsigned long long)count);
    fail();
}

static void totals_are_the_published_ones(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        const struct published *p = &models[i];
        struct model model;
        struct model_counts counts;
        fixture_shipped(p->name, &model);
        model_count(&model, &counts);
        assert_count(p->name, "total", counts.total, p->total);
        assert_count(p->name, "trunk", counts.trained, p->trunk > 0 ? p->trunk : p->total);
        assert_count(p->name, "active with all", counts.active_all, p->all);
        assert_count(p->name, "active", counts.active, p->active);
    }
}

/* GLM-5.2, number by number: 78 layers, 3 dense; the trunk without the router's 75 x 256
 * corrections is what a strict reload of the published checkpoint counts. */
static void glm_5_2_part_by_part(void **state)
{
    (void)state;
    struct model model;
    struct model_counts c;
    fixture_shipped("glm-5.2", &model);
    model_count(&model, &c);
    assert_int_equal(c.by_component[COMPONENT_ATTENTION], UINT64_C(78) * 165022208);
    assert_int_equal(c.by_component[COMPONENT_INDEXER], UINT64_C(21) * 9371904);
    assert_int_equal(c.by_component[COMPONENT_DENSE_MLP], UINT64_C(3) * 226492416);
    assert_int_equal(c.by_component[COMPONENT_EXPERTS], UINT64_C(724775731200));
    assert_int_equal(c.by_component[COMPONENT_ROUTER], UINT64_C(75) * 1573120);
    assert_int_equal(c.by_component[COMPONENT_MTP], UINT64_C(9952920576));
    assert_int_equal(c.trained - UINT64_C(75) * 256, UINT64_C(743377000704));
    assert_int_equal(c.active_core, UINT64_C(39347364864));
    assert_int_equal(c.active, UINT64_C(40298947584));
    assert_int_equal(c.active_all, UINT64_C(41250530304));
    fixture_shipped("glm-5", &model);
    model_count(&model, &c);
    assert_int_equal(c.trained - UINT64_C(75) * 256, UINT64_C(743911199232));
}

/* Published with copies of embedding and head in the prediction layer, which are no further
 * weights: DeepSeek-V3 684.490B, GLM-4.5 358.338B, GLM-4.5-Air 110.469B. */
static void checkpoints_with_copies(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double stored;
    } rows[] = { { "deepseek-v3", 684.490 }, { "glm-4.5", 358.338 }, { "glm-4.5-air", 110.469 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model model;
        struct model_counts counts;
        fixture_shipped(rows[i].name, &model);
        model_count(&model, &counts);
        uint64_t copies = UINT64_C(2) * (uint64_t)model.vocab * (uint64_t)model.hidden;
        assert_count(rows[i].name, "stored", counts.total + copies, rows[i].stored);
    }
}

static void minimax_m1_without_embedding_and_head(void **state)
{
    (void)state;
    struct model model;
    struct model_counts counts;
    fixture_shipped("minimax-m1", &model);
    model_count(&model, &counts);
    assert_count("minimax-m1", "core", counts.active_core, 45.945);
}

static int visit_sum(const struct tensor *tensor, void *context)
{
    *(uint64_t *)context += tensor->params;
    uint64_t params = tensor->copies;
    for (int i = 0; i < tensor->axes; i++)
        params *= tensor->shape[i];
    assert_int_equal(params, tensor->params);
    assert_true(strlen(tensor->name) + 1 < sizeof tensor->name);
    return 0;
}

/* The enumeration and the counts come from the same rows by two ways. */
static void tensors_add_up_to_the_counts(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        struct model model;
        struct model_counts counts;
        uint64_t sum = 0;
        fixture_shipped(models[i].name, &model);
        model_count(&model, &counts);
        assert_int_equal(model_tensors(&model, visit_sum, &sum), 0);
        assert_int_equal(sum, counts.total);
    }
}

static void count_file(const char *name, const char *path, void *context)
{
    (void)path;
    for (int i = 0; i < MODELS; i++)
        if (strcmp(models[i].name, name) == 0)
            return;
    if (strncmp(name, "tiny-", 5) == 0 || strncmp(name, "small-", 6) == 0)
        return;
    print_error("%s ships and is not in this table\n", name);
    ++*(int *)context;
}

static void every_model_that_ships_is_here(void **state)
{
    (void)state;
    struct diag_list list = { 0 };
    int missing = 0;
    assert_int_equal(file_list_data("models", count_file, &missing, &list), 0);
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(totals_are_the_published_ones),
        cmocka_unit_test(glm_5_2_part_by_part),
        cmocka_unit_test(checkpoints_with_copies),
        cmocka_unit_test(minimax_m1_without_embedding_and_head),
        cmocka_unit_test(tensors_add_up_to_the_counts),
        cmocka_unit_test(every_model_that_ships_is_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
