/* Files that the format's own library wrote: every tensor is there under the names and shapes of
 * base/model's table, and the numbers are those that its authors computed. */
#include "base/model/model.h"
#include "base/model/tensor.h"
#include "base/safetensors/safetensors.h"

#include "tests/support/golden.h"
#include "tests/support/near.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = { "qwen3-dense", "qwen3-moe" };

static void reference_path(const char *model, const char *file, char *ret, size_t size)
{
    const char *root = getenv("RANKFIT_SOURCE_ROOT");
    (void)snprintf(ret, size, "%s/tests/data/reference/%s/%s", root ? root : ".", model, file);
}

static struct safetensors *open_reference(const char *model, const char *file)
{
    char path[PATH_MAX];
    struct diag_list errors = { 0 };
    struct safetensors *ret = NULL;
    reference_path(model, file, path, sizeof path);
    (void)safetensors_open(path, &ret, &errors);
    diag_list_print(stderr, &errors);
    assert_non_null(ret);
    return ret;
}

struct comparison {
    const struct safetensors *weights, *expected;
    struct diag_list errors;
    size_t tensors;
};

/* The name with "{e}" replaced by an expert's number. */
static void expert_name(const char *pattern, uint64_t expert, char *ret, size_t size)
{
    const char *place = strstr(pattern, "{e}");
    if (place)
        (void)snprintf(ret, size, "%.*s%" PRIu64 "%s", (int)(place - pattern), pattern, expert,
                       place + 3);
    else
        (void)snprintf(ret, size, "%s", pattern);
}

static int compare_tensor(const struct tensor *tensor, void *context)
{
    struct comparison *comparison = context;
    assert_true(tensor->copies == 1 || strstr(tensor->name, "{e}"));
    for (uint64_t copy = 0; copy < tensor->copies; copy++) {
        const struct stored_tensor *found = NULL;
        char name[128];
        char gradient[160];
        expert_name(tensor->name, copy, name, sizeof name);
        (void)snprintf(gradient, sizeof gradient, "gradient.%s", name);
        struct tensor_expectation wanted = { name, TENSOR_TYPE_BF16, tensor->axes, tensor->shape };
        (void)safetensors_expect(comparison->weights, &wanted, &found, &comparison->errors);
        wanted.name = gradient;
        wanted.type = TENSOR_TYPE_F32;
        (void)safetensors_expect(comparison->expected, &wanted, &found, &comparison->errors);
        comparison->tensors++;
    }
    return 0;
}

static void test_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_MAX];
        struct model model;
        struct comparison comparison = { .weights = open_reference(names[i], ""),
                                         .expected =
                                             open_reference(names[i], "expected.safetensors") };
        reference_path(names[i], "config.json", path, sizeof path);
        assert_int_equal(model_load(path, &model, &comparison.errors), 0);
        assert_int_equal(model_tensors(&model, compare_tensor, &comparison), 0);
        diag_list_print(stderr, &comparison.errors);
        assert_int_equal(comparison.errors.errors, 0);
        assert_int_equal(safetensors_count(comparison.weights), comparison.tensors);
        safetensors_close((struct safetensors *)(uintptr_t)comparison.weights);
        safetensors_close((struct safetensors *)(uintptr_t)comparison.expected);
    }
}

/* Every weight, widened, against the two bytes in the file that the sorted sizes lead to: the
 * writing library orders equal types by name, so a running sum gives each place. */
static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_MAX];
        struct diag_list errors = { 0 };
        struct safetensors *weights = open_reference(names[i], "model.safetensors");
        reference_path(names[i], "model.safetensors", path, sizeof path);
        FILE *in = fopen(path, "rb");
        assert_non_null(in);
        uint8_t length[2];
        assert_int_equal(fread(length, 1, 2, in), 2);
        assert_int_equal(fseek(in, 8 + length[0] + 256 * length[1], SEEK_SET), 0);
        for (size_t t = 0; t < safetensors_count(weights); t++) {
            const struct stored_tensor *tensor = safetensors_at(weights, t);
            float *values = malloc((size_t)tensor->elements * sizeof *values);
            assert_non_null(values);
            assert_int_equal(
                safetensors_read_all(weights, tensor, TENSOR_TYPE_F32, values, &errors), 0);
            for (uint64_t e = 0; e < tensor->elements; e++) {
                int low = fgetc(in);
                uint32_t bits = (uint32_t)fgetc(in) << 24 | (uint32_t)low << 16;
                assert_memory_equal(&values[e], &bits, 4);
            }
            free(values);
        }
        assert_int_equal(fgetc(in), EOF);
        assert_int_equal(fclose(in), 0);
        safetensors_close(weights);
    }
}

/* -log softmax of the next token, averaged: from the stored logits and tokens. */
static double cross_entropy(const float *logits, const uint32_t *tokens, int sequences, int length,
                            int vocab)
{
    double sum = 0;
    for (int s = 0; s < sequences; s++)
        for (int t = 0; t < length; t++) {
            const float *row = logits + (size_t)(s * length + t) * (size_t)vocab;
            double total = 0;
            for (int v = 0; v < vocab; v++)
                total += exp((double)row[v]);
            sum += log(total) - (double)row[tokens[s * (length + 1) + t + 1]];
        }
    return sum / (sequences * length);
}

static void test_loss(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_MAX];
        uint32_t tokens[2 * 65];
        struct diag_list errors = { 0 };
        const struct stored_tensor *found = NULL;
        const uint64_t shape[] = { 2, 64, 256 };
        const struct tensor_expectation wanted = { "logits", TENSOR_TYPE_F32, 3, shape };
        struct safetensors *expected = open_reference(names[i], "expected.safetensors");
        assert_int_equal(safetensors_expect(expected, &wanted, &found, &errors), 0);
        float *logits = malloc(sizeof(float) * 2 * 64 * 256);
        assert_int_equal(safetensors_read_all(expected, found, TENSOR_TYPE_F32, logits, &errors),
                         0);
        reference_path(names[i], "tokens.u32", path, sizeof path);
        FILE *in = fopen(path, "rb");
        assert_non_null(in);
        assert_int_equal(fread(tokens, 4, 130, in), 130);
        assert_int_equal(fclose(in), 0);
        reference_path(names[i], "facts.json", path, sizeof path);
        json_t *facts = json_load_file(path, 0, NULL);
        assert_non_null(facts);
        assert_near(cross_entropy(logits, tokens, 2, 64, 256),
                    json_real_value(json_object_get(facts, "loss")), 1e-6, "nats");
        json_decref(facts);
        free(logits);
        safetensors_close(expected);
    }
}

/* The router's choices: int32, two distinct experts of eight a token. */
static void test_choices(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct safetensors *expected = open_reference("qwen3-moe", "expected.safetensors");
    for (int layer = 0; layer < 2; layer++) {
        char name[32];
        int32_t choices[128][2];
        (void)snprintf(name, sizeof name, "choices.%d", layer);
        const struct stored_tensor *found = safetensors_find(expected, name);
        assert_non_null(found);
        assert_int_equal(found->elements, 256);
        assert_int_equal(safetensors_read_all(expected, found, TENSOR_TYPE_I32, choices, &errors),
                         0);
        for (int t = 0; t < 128; t++) {
            assert_in_range(choices[t][0], 0, 7);
            assert_in_range(choices[t][1], 0, 7);
            assert_int_not_equal(choices[t][0], choices[t][1]);
        }
    }
    safetensors_close(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
