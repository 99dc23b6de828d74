/* rankfit pair and what goes with it through the command line: primitives held against their
 * references, weights loaded and saved, routing replayed. */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SKIPPED = 77 };

#define REFERENCE "$RANKFIT_SOURCE_ROOT/tests/data/reference/"
#define DENSE "--model " REFERENCE "qwen3-dense --weights " REFERENCE "qwen3-dense"
#define MOE "--model " REFERENCE "qwen3-moe --weights " REFERENCE "qwen3-moe"

static json_t *pair_of(const char *arguments)
{
    char command[512];
    (void)snprintf(command, sizeof command, "pair %s --steps 1 --json 2>/dev/null", arguments);
    json_t *ret = program_json(command, 0);
    assert_string_equal(json_string_value(json_at(ret, "schema")), "rankfit.pair/1");
    assert_string_equal(json_string_value(json_at(ret, "verdict")), "within");
    return ret;
}

/* The two sides differ in what the pair is about, and in nothing else. */
static void sides_differ_by_the_primitive(void **state)
{
    (void)state;
    size_t found = 0;
    const char *key;
    json_t *value;
    json_t *pair = pair_of("recompute=full");
    json_t *primitives = json_at(pair, "primitive.primitives");
    json_object_foreach(primitives, key, value)
    {
        json_t *other = json_object_get(json_at(pair, "reference.primitives"), key);
        if (strcmp(key, "recompute") == 0)
            assert_false(json_equal(value, other));
        else
            assert_true(json_equal(value, other));
        found++;
    }
    assert_true(found > 10);
    assert_true(json_equal(json_at(pair, "primitive.layout"), json_at(pair, "reference.layout")));
    json_decref(pair);
}

/* A replay is the same arithmetic: equal to the bit, with less memory. */
static void recompute_is_exact(void **state)
{
    (void)state;
    json_t *pair = pair_of("recompute=full");
    assert_string_equal(json_string_value(json_at(pair, "tolerances.agreement")), "exact");
    assert_true(number_at(pair, "errors.loss") == 0);
    assert_true(number_at(pair, "errors.final_hidden") == 0);
    assert_true(number_at(pair, "errors.gradient") == 0);
    assert_true(number_at(pair, "primitive.peak_bytes") < number_at(pair, "reference.peak_bytes"));
    assert_true(number_at(pair, "primitive.loss") == number_at(pair, "reference.loss"));
    assert_true(number_at(pair, "primitive.seconds") > 0);
    /* embedding, final norm, head, and of 4 layers 9 tensors and 24 of experts */
    assert_int_equal(json_array_size(json_at(pair, "gradients")), 3 + 4 * (9 + 24));
    json_decref(pair);
}

/* The norm is that of all gradients together; a random model of 256 tokens begins at ln 256. */
static void figures_are_of_the_model(void **state)
{
    (void)state;
    double squares = 0;
    size_t index;
    json_t *gradient;
    json_t *pair = pair_of("sharding=fsdp");
    json_array_foreach(json_at(pair, "gradients"), index, gradient)
    {
        const char *name = json_string_value(json_at(gradient, "name"));
        bool expert = strstr(name, ".experts.") != NULL;
        if (expert) /* width 64 x hidden 64 */
            squares += 64.0 * 64.0 * pow(number_at(gradient, "rms"), 2);
    }
    double norm = number_at(pair, "reference.gradient_norm");
    assert_true(squares > 0 && sqrt(squares) < norm);
    assert_true(fabs(number_at(pair, "reference.loss") - log(256)) < 0.1);
    json_decref(pair);
}

/* One of every kind that the host runs. */
static void every_kind_agrees(void **state)
{
    (void)state;
    static const char *const names[] = { "loss=linear_ce",      "vocab_strip=96",
                                         "loss_tile_tokens=50", "moe=chunked",
                                         "sharding=zero1",      "ep=2",
                                         "grad_dtype=bf16",     "context=allgather_kv" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        json_decref(pair_of(names[i]));
}

/* What is asked and cannot be: a name, a value, a primitive that the backend does not run. */
static void wrong_questions(void **state)
{
    (void)state;
    assert_told("a pair without a key", 2, "\"$RANKFIT\" pair chunked");
    assert_told("a misspelt key", 2, "\"$RANKFIT\" pair mo=chunked");
    assert_told("a misspelt value", 2, "\"$RANKFIT\" pair sharding=fdsp");
    assert_told("a value that the backend does not run", 2, "\"$RANKFIT\" pair sharding=zero2");
    assert_told("experts of a dense model", 2,
                "\"$RANKFIT\" pair moe=chunked --model " REFERENCE "qwen3-dense");
}

/* An executor that dumps another gradient on its second run: the answer is no. */
static void disagreement_exits_1(void **state)
{
    (void)state;
    struct program_result result;
    program_expect(
        "export TMP REAL=$RANKFIT_LIBEXEC/rankfit-host; "
        "printf '#!/bin/sh\\nif [ -e $TMP/ran ]; then exec $REAL \"$@\" --seed 2; fi\\n"
        ": >$TMP/ran\\nexec $REAL \"$@\"\\n' >$TMP/rankfit-host; chmod +x $TMP/rankfit-host; "
        "RANKFIT_LIBEXEC=$TMP \"$RANKFIT\" pair sharding=zero1 --gpus 1 --steps 1 --json",
        1, &result);
    json_t *pair = json_loads(result.out, 0, NULL);
    assert_string_equal(json_string_value(json_at(pair, "verdict")), "out");
    json_decref(pair);
    program_done(&result);
}

static void list_shows_pairs(void **state)
{
    (void)state;
    json_t *list = program_json("list primitives --json", 0);
    json_t *entries = json_at(list, "primitives");
    assert_string_equal(json_string_value(json_at(json_named(entries, "moe=chunked"), "pair")),
                        "moe=plain");
    assert_string_equal(json_string_value(json_at(json_named(entries, "loss=full"), "pair")),
                        "loss=linear_ce");
    assert_null(json_at(json_named(entries, "linear_context=none"), "pair"));
    json_decref(list);
}

#define TRAIN                                                                                      \
    "\"$RANKFIT\" run --hardware host --seq 64 --global-batch 2 --data $TMP/tokens "               \
    "--data-format u32 --json 2>/dev/null --model " REFERENCE "qwen3-moe --weights "

/* Two steps on two ranks, saved, and one more on one rank from what was saved: its loss is that of
 * the third step of a run in one piece. 192 tokens hold two sequences of 64, over and over. */
static void weights_go_around(void **state)
{
    (void)state;
    struct program_result result;
    program_expect(
        "head -c 768 " REFERENCE "qwen3-moe/tokens.u32 >$TMP/tokens; " TRAIN REFERENCE
        "qwen3-moe --gpus 2 --set ep=2 --steps 3 >$TMP/whole.json && " TRAIN REFERENCE
        "qwen3-moe --gpus 2 --set ep=2 --steps 2 --save $TMP/w.safetensors >/dev/null && " TRAIN
        "$TMP/w.safetensors --gpus 1 --steps 1 >$TMP/last.json && "
        "echo '[' && cat $TMP/whole.json && echo , && cat $TMP/last.json && echo ']'",
        0, &result);
    json_t *runs = json_loads(result.out, 0, NULL);
    assert_non_null(runs);
    double third = number_at(runs, "0.ranks.0.loss.2"), last = number_at(runs, "1.ranks.0.loss.0");
    assert_true(fabs(third - number_at(runs, "0.ranks.0.loss.0")) > 1e-2);
    assert_true(fabs(last - third) < 1e-5);
    json_decref(runs);
    program_done(&result);
}

static void weights_of_another_model(void **state)
{
    (void)state;
    assert_told_diagnostics("weights of another model", 2,
                            "\"$RANKFIT\" run --model tiny-moe --weights " REFERENCE
                            "qwen3-dense --hardware host --gpus 1 --seq 64");
    assert_told_diagnostics("no weights", 2,
                            "\"$RANKFIT\" run --model tiny-moe --weights nowhere --hardware host "
                            "--gpus 1 --seq 64");
    assert_told_diagnostics("weights saved in no directory", 2,
                            "\"$RANKFIT\" run " DENSE
                            " --hardware host --gpus 1 --seq 64 --steps 1 "
                            "--save $TMP/none/w.safetensors");
}

/* Given experts: 2 sequences of 64 tokens send 256 rows, as many to each of 8 experts as stored. */
static void routing_is_replayed(void **state)
{
    (void)state;
    json_t *measured = program_json("run " MOE " --hardware host --gpus 2 --seq 64 --routing "
                                    "natural --set ep=2 --steps 1 --replay " REFERENCE
                                    "qwen3-moe/expected.safetensors --json 2>/dev/null",
                                    0);
    double received = 0;
    for (int rank = 0; rank < 2; rank++) {
        char path[64];
        (void)snprintf(path, sizeof path, "ranks.%d.routed_rows.0.rows_received", rank);
        received += number_at(measured, path);
    }
    assert_true(received == 256);
    json_decref(measured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sides_differ_by_the_primitive),
        cmocka_unit_test(recompute_is_exact),
        cmocka_unit_test(figures_are_of_the_model),
        cmocka_unit_test(every_kind_agrees),
        cmocka_unit_test(wrong_questions),
        cmocka_unit_test(disagreement_exits_1),
        cmocka_unit_test(list_shows_pairs),
        cmocka_unit_test(weights_go_around),
        cmocka_unit_test(weights_of_another_model),
        cmocka_unit_test(routing_is_replayed),
    };
    if (!program_can(CAN_RUN))
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
