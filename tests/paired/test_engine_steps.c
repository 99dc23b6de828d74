/* Real training steps of PyTorch on one H200 (tests/reference/hf_steps.py, run once) against engine
 * torch: bytes allocated and reserved at the peak. Cases that the engine does not describe are
 * skipped and counted. RANKFIT_SHOW_STEPS=1 prints every case. */
#include "planner/engine/torch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static const double allocated_bound = 0.02, reserved_bound = 0.05;
enum { LEAST_CASES = 11 };

struct tally {
    int asked, skipped, allocated_beyond, reserved_beyond;
    double allocated_sum, reserved_sum;
};

static int number(const json_t *map, const char *key)
{
    return (int)json_integer_value(json_object_get(map, key));
}

static bool is(const json_t *map, const char *key, const char *value)
{
    const char *text = json_string_value(json_object_get(map, key));
    return text && strcmp(text, value) == 0;
}

static bool is_true(const json_t *map, const char *key)
{
    return json_is_true(json_object_get(map, key));
}

static void read_model(const json_t *facts, struct model *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->layers = number(facts, "layers");
    ret->hidden = number(facts, "hidden");
    ret->vocab = number(facts, "vocab");
    ret->tied = is_true(facts, "tied");
    ret->dense_width = number(facts, "width");
    ret->gqa = (struct gqa){ .heads = number(facts, "heads"),
                             .kv_heads = number(facts, "kv_heads"),
                             .head_dim = number(facts, "head_dim"),
                             .qk_norm = !is(facts, "kind", "llama") };
    for (int i = 0; i < ret->layers; i++) {
        ret->layer_mixer[i] = MIXER_GQA;
        ret->layer_ffn[i] = json_object_get(facts, "experts") ? FFN_MOE : FFN_DENSE;
    }
}

static bool is_asked(const json_t *line)
{
    const json_t *c = json_object_get(line, "case");
    return is(c, "engine", "hf") && !json_object_get(json_object_get(line, "facts"), "experts") &&
           number(c, "lora") == 0 && !is_true(c, "compiled");
}

static void judge(const json_t *line, struct tally *tally)
{
    static struct model model;
    const json_t *c = json_object_get(line, "case"), *peak = json_object_get(line, "peak");
    struct torch_memory memory;
    struct diag_list errors = { 0 };
    read_model(json_object_get(line, "facts"), &model);
    const struct torch_run run = { .model = &model,
                                   .sequences = number(c, "batch"),
                                   .seq_tokens = number(c, "seq"),
                                   .fp32 = is(c, "state", "fp32"),
                                   .autocast = is_true(c, "autocast"),
                                   .checkpoint = is_true(c, "checkpoint") };
    assert_int_equal(torch_memory(&run, 1, &memory, &errors), 0);
    double allocated = json_number_value(json_object_get(peak, "allocated_peak"));
    double reserved = json_number_value(json_object_get(peak, "reserved"));
    double resting = json_number_value(json_object_get(peak, "allocated"));
    double error = (double)memory.allocated_bytes / allocated - 1;
    double reserved_error = (double)memory.reserved_bytes / reserved - 1;
    if (getenv("RANKFIT_SHOW_STEPS"))
        printf(
            "  %-28s allocated %7.3f GB %+6.2f %%  reserved %7.3f GB %+6.2f %%  resting %+.2f %%\n",
            json_string_value(json_object_get(c, "name")), allocated / 1e9, 100 * error,
            reserved / 1e9, 100 * reserved_error,
            100 * ((double)memory.resting_bytes / resting - 1));
    tally->asked++;
    tally->allocated_sum += fabs(error);
    tally->reserved_sum += fabs(reserved_error);
    tally->allocated_beyond += fabs(error) > allocated_bound;
    tally->reserved_beyond += fabs(reserved_error) > reserved_bound;
}

static void test_steps(void **state)
{
    char path[1024], *line = NULL;
    size_t room = 0;
    struct tally tally = { 0 };
    const char *root = getenv("RANKFIT_DATA");
    (void)state;
    assert_non_null(root);
    (void)snprintf(path, sizeof path, "%s/tests/data/reference/torch-steps.jsonl", root);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (getline(&line, &room, file) > 0) {
        json_t *record = json_loads(line, 0, NULL);
        assert_non_null(record);
        if (is_asked(record))
            judge(record, &tally);
        else
            tally.skipped++;
        json_decref(record);
    }
    free(line);
    (void)fclose(file);
    printf("  %d cases, %d not described: allocated %.2f %% off on the mean, reserved %.2f %%\n",
           tally.asked, tally.skipped, 100 * tally.allocated_sum / tally.asked,
           100 * tally.reserved_sum / tally.asked);
    assert_true(tally.asked >= LEAST_CASES);
    assert_int_equal(tally.allocated_beyond, 0);
    assert_int_equal(tally.reserved_beyond, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_steps) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
