#include "base/layout/key.h"

#include "tests/support/golden.h"
#include "tests/support/random.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct pos here = { "recipe.yaml", 3, 5 };

static struct choices sample(void)
{
    struct choices c = { .primitives = primitives_default() };
    c.layout = (struct layout){ .tp = 1,
                                .pp = 2,
                                .vpp = 1,
                                .cp = 4,
                                .ep = 8,
                                .etp = 1,
                                .fsdp = 2,
                                .d_rep = 2,
                                .e_fsdp = 1,
                                .e_rep = 2,
                                .micro_batch = 1,
                                .micro_batches = 8,
                                .stage_layers = { 25, 23 } };
    return c;
}

static struct diag_list errors_of(const char *key, const char *value)
{
    struct fixed_choices fixed = { 0 };
    struct diag_list errors = { 0 };
    assert_int_equal(choice_set(&fixed, key, value, here, &errors), -1);
    assert_int_equal(errors.errors, 1);
    assert_int_equal(fixed.set, 0);
    assert_string_equal(errors.items[0].file, "recipe.yaml");
    return errors;
}

static void sets_every_kind(void **state)
{
    static const char *const said[][2] = {
        { "ep", "8" },
        { "sharding", "zero1" },
        { "stage_layers", "11,13" },
        { "wgrad_delay", "all" },
        { "moe_cap_tokens", "64K" },
        { "sco_host_bytes", "64GiB" },
        { "offload", "checkpoints,optimizer" },
        { "recompute_layers", "5" },
    };
    struct fixed_choices fixed = { 0 };
    struct choices c = { .primitives = primitives_default() };
    struct diag_list errors = { 0 };
    (void)state;

    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        assert_int_equal(choice_set(&fixed, said[i][0], said[i][1], here, &errors), 0);
    assert_true(choice_is_fixed(&fixed, "ep"));
    assert_false(choice_is_fixed(&fixed, "pp"));
    assert_false(choice_is_fixed(NULL, "ep"));
    assert_int_equal(choice_pos(&fixed, "ep").line, 3);
    assert_null(choice_pos(&fixed, "pp").file);
    choices_apply(&fixed, &c);
    assert_int_equal(c.layout.ep, 8);
    assert_int_equal(c.primitives.sharding, SHARDING_ZERO1);
    assert_int_equal(c.layout.stage_layers[0] * 100 + c.layout.stage_layers[1], 1113);
    assert_int_equal(c.primitives.wgrad_delay, WGRAD_DELAY_ALL);
    assert_int_equal(c.primitives.moe_cap_tokens, 65536);
    assert_int_equal(c.primitives.sco_host_bytes, INT64_C(68719476736));
    assert_int_equal(c.primitives.offload, OFFLOAD_CHECKPOINTS | OFFLOAD_OPTIMIZER);
    assert_int_equal(c.primitives.recompute_layers, 5);
    assert_int_equal(c.primitives.slots, 2); /* not said: as it was */
}

static void refuses_what_is_no_value(void **state)
{
    static const char *const said[][2] = {
        { "sharding", "zero3" },
        { "loss", "linear-ce" },
        { "ep", "0" },
        { "ep", "8x" },
        { "ep", "" },
        { "ep", "99999999999999999999" },
        { "stage_layers", "12,,12" },
        { "stage_layers", "12,0" },
        { "stage_layers", "12," },
        { "offload", "disk" },
        { "offload", "" },
        { "sco_host_bytes", "64QB" },
        { "moe_cap_tokens", "-1" },
        { "bucket_params", "0" },
        { "comm_streams", "3" },
        { "shardng", "fsdp" },
        { "qqqqqqqqqq", "1" },
    };
    FILE *out = golden_begin();
    (void)state;

    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct diag_list e = errors_of(said[i][0], said[i][1]);
        diag_list_print(out, &e);
    }
    assert_golden_end("refused values");
}

static void every_key_refuses_other_words(void **state)
{
    FILE *out = golden_begin();
    (void)state;

    for (size_t row = 0; row < choice_key_count; row++) {
        struct diag_list e = errors_of(choice_keys[row].key, "oops");
        diag_list_print(out, &e);
    }
    assert_golden_end("a refused value of every key");
}

static void second_values_must_agree(void **state)
{
    struct fixed_choices fixed = { 0 };
    struct diag_list errors = { 0 };
    (void)state;

    assert_int_equal(choice_set(&fixed, "ep", "8", here, &errors), 0);
    assert_int_equal(choice_set(&fixed, "ep", "8", here, &errors), 0);
    assert_int_equal(choice_set(&fixed, "ep", "4", here, &errors), -1);
    assert_golden_diags("a key set twice", &errors);
    assert_int_equal(fixed.values.layout.ep, 8);
}

/* A value of each row, printed and parsed, is the same value. */
static void formats_what_it_parses(void **state)
{
    struct choices c = sample();
    char text[1024], again[1024];
    struct diag_list errors = { 0 };
    (void)state;

    c.primitives.offload = OFFLOAD_CHECKPOINTS | OFFLOAD_OPTIMIZER;
    c.primitives.wgrad_delay = WGRAD_DELAY_ALL;
    for (size_t row = 0; row < choice_key_count; row++) {
        struct choices read = c;
        choice_format(&c, (int)row, text, sizeof text);
        assert_int_equal(choice_parse(&read, (int)row, text, here, &errors), 0);
        choice_format(&read, (int)row, again, sizeof again);
        assert_string_equal(text, again);
        assert_int_equal(choice_key_find(choice_keys[row].key), (int)row);
        assert_memory_equal(&read, &c, sizeof c);
    }
}

/* Reads a plan's two objects from one JSON text. */
static int read_back(const char *text, struct choices *ret, struct diag_list *errors)
{
    struct tree tree = { 0 };
    int rc = tree_read_text(&tree, "plan.json", text, strlen(text), errors);
    if (rc == 0)
        rc = choices_from_nodes(node_get(tree.root, "layout"), node_get(tree.root, "primitives"),
                                ret, errors);
    tree_done(&tree);
    return rc;
}

static char *written(const struct choices *c)
{
    struct json *both = json_map();
    json_put(both, "layout", choices_layout_json(c));
    json_put(both, "primitives", choices_primitives_json(c));
    char *text = json_dumps(json_view(both), 0);
    json_free(both);
    return text;
}

/* Random values through JSON and back, compared member by member through the canonical text. */
static void json_round_trip(void **state)
{
    uint64_t seed = 3;
    (void)state;

    for (int round = 0; round < 200; round++) {
        struct choices c = sample(), read;
        struct diag_list errors = { 0 };
        c.layout.fsdp = 1 + (int)random_below(&seed, 64);
        c.layout.d_rep = 1 + (int)random_below(&seed, 64);
        c.layout.micro_batches = 1 + (int)random_below(&seed, 1000);
        c.layout.stage_layers[2] = (int)random_below(&seed, 3);
        c.primitives.sharding = (enum sharding)random_below(&seed, SHARDING_COUNT);
        c.primitives.context = (enum context)random_below(&seed, CONTEXT_COUNT);
        c.primitives.wgrad_delay = (int)random_below(&seed, 3) - 1;
        c.primitives.offload = (unsigned)random_below(&seed, 4);
        c.primitives.sco_host_bytes = random_next(&seed) >> 1;
        c.primitives.bucket_params = 1 + random_below(&seed, 1 << 30);
        char *text = written(&c);
        assert_int_equal(read_back(text, &read, &errors), 0);
        assert_memory_equal(&read, &c, sizeof c);
        free(text);
    }
}

static void json_holds_the_contract(void **state)
{
    struct choices c = sample();
    struct json *layout = choices_layout_json(&c);
    (void)state;

    assert_int_equal(json_integer_value(json_object_get(json_view(layout), "dp")), 4);
    assert_int_equal(json_integer_value(json_object_get(json_view(layout), "e_dp")), 2);
    assert_int_equal(json_integer_value(json_object_get(json_view(layout), "d_rep")), 2);
    assert_int_equal(json_integer_value(json_object_get(json_view(layout), "micro_batches")), 8);
    assert_int_equal(json_array_size(json_object_get(json_view(layout), "stage_layers")), 2);
    json_free(layout);
}

static void inconsistent_plans_are_refused(void **state)
{
    static const char *const edits[][2] = {
        { "\"dp\": 4", "\"dp\": 5" },
        { "\"e_dp\": 2", "\"e_dp\": 3" },
        { "\"tp\": 1, ", "" },
        { "\"d_rep\": 2, ", "" },
        { "\"cp\": 4", "\"cp\": [4]" },
        { "\"fsdp\"", "\"sharding\"" },
        { "\"loss\": \"linear_ce\"", "\"loss\": \"none\"" },
    };
    struct choices c = sample(), read;
    char *text = written(&c);
    FILE *out = golden_begin();
    (void)state;

    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        struct diag_list errors = { 0 };
        char edited[4096];
        const char *at = strstr(text, edits[i][0]);
        assert_non_null(at);
        assert_true(snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, edits[i][1],
                             at + strlen(edits[i][0])) < (int)sizeof edited);
        assert_int_equal(read_back(edited, &read, &errors), -1);
        assert_true(errors.errors >= 1);
        assert_true(errors.items[0].line == 1);
        (void)fprintf(out, "# %s\n", *edits[i][1] ? edits[i][1] : edits[i][0]);
        diag_list_print(out, &errors);
    }
    free(text);
    static const char *const not_maps[] = { "{\"layout\": [1], \"primitives\": {}}",
                                            "{\"layout\": {}, \"primitives\": 3}" };
    for (size_t i = 0; i < 2; i++) {
        struct diag_list errors = { 0 };
        assert_int_equal(read_back(not_maps[i], &read, &errors), -1);
        diag_list_print(out, &errors);
    }
    assert_golden_end("inconsistent plans");
}

static void defaults_are_the_documented(void **state)
{
    struct primitives p = primitives_default();
    (void)state;

    assert_string_equal(sharding_names[p.sharding], "fsdp");
    assert_string_equal(dtype_names[p.grad_dtype], "fp32");
    assert_string_equal(dtype_names[p.logits_dtype], "fp32");
    assert_string_equal(recompute_names[p.recompute], "full");
    assert_int_equal(p.recompute_layers, RECOMPUTE_ALL_LAYERS);
    assert_string_equal(loss_names[p.loss], "linear_ce");
    assert_string_equal(moe_names[p.moe], "plain");
    assert_int_equal(p.moe_chunks, 1);
    assert_string_equal(context_names[p.context], "none");
    assert_string_equal(linear_context_names[p.linear_context], "none");
    assert_int_equal(p.prefetch_units, 1);
    assert_int_equal(p.comm_streams, 1);
    assert_int_equal(p.slots, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_every_kind),
        cmocka_unit_test(refuses_what_is_no_value),
        cmocka_unit_test(every_key_refuses_other_words),
        cmocka_unit_test(second_values_must_agree),
        cmocka_unit_test(formats_what_it_parses),
        cmocka_unit_test(json_round_trip),
        cmocka_unit_test(json_holds_the_contract),
        cmocka_unit_test(inconsistent_plans_are_refused),
        cmocka_unit_test(defaults_are_the_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
