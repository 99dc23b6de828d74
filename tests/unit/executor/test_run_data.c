/* What a run is trained on, and the executor's command line. */
#include "executor/primitive/context/zigzag.h"
#include "executor/runtime/data.h"
#include "executor/runtime/options.h"
#include "tests/support/directory.h"
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { VOCAB = 300, SEQ = 4 };

static void assert_sequence(const struct data *data, uint64_t index, const char *want)
{
    int32_t ids[SEQ], targets[SEQ];
    data_sequence(data, index, SEQ, ids, targets);
    for (int i = 0; i < SEQ; i++) {
        assert_int_equal(ids[i], want[i]);
        assert_int_equal(targets[i], want[i + 1]);
    }
}

/* 11 bytes: sequences of 4 begin at 0 and 4; the third would begin at 8, whose 5 tokens are not all
 * there: it begins at 8 mod (11 - 4) = 1. */
static void test_bytes(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct data data;

    directory_put("data", "abcdefghijk", 11);
    assert_int_equal(data_open(&data, "data", DATA_BYTES, SEQ, VOCAB, &errors), 0);
    assert_int_equal(data.tokens, 11);
    assert_sequence(&data, 0, "abcde");
    assert_sequence(&data, 1, "efghi");
    assert_sequence(&data, 2, "bcdef");
    data_close(&data);
}

static void test_u32(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct data data;
    const uint32_t tokens[] = { 5, 299, 0, 7, 8 };
    int32_t ids[SEQ], targets[SEQ];

    directory_put("data", tokens, sizeof tokens);
    assert_int_equal(data_open(&data, "data", DATA_U32, SEQ, VOCAB, &errors), 0);
    data_sequence(&data, 0, SEQ, ids, targets);
    assert_int_equal(ids[1], 299);
    assert_int_equal(targets[0], 299);
    assert_int_equal(targets[3], 8);
    data_close(&data);
    assert_int_equal(data_open(&data, "data", DATA_U32, SEQ, 299, &errors), -1);
    assert_golden_diags("a token beyond the vocabulary", &errors);
    data_close(&data);
}

static void test_drawn(void **state)
{
    (void)state;
    const struct data one = { .seed = 1, .vocab = VOCAB }, two = { .seed = 2, .vocab = VOCAB };
    int32_t ids[64], again[64], targets[64];
    int same = 0;

    data_sequence(&one, 3, 64, ids, targets);
    data_sequence(&one, 3, 64, again, targets);
    assert_memory_equal(ids, again, sizeof ids);
    assert_memory_equal(ids + 1, targets, 63 * sizeof *ids);
    data_sequence(&two, 3, 64, again, targets);
    for (int i = 0; i < 64; i++) {
        assert_in_range(ids[i], 0, VOCAB - 1);
        same += ids[i] == again[i];
    }
    assert_true(same < 8);
    data_sequence(&one, 4, 64, again, targets);
    assert_memory_not_equal(ids, again, sizeof ids);
}

static void test_faults(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct data data;

    assert_int_equal(data_open(&data, "absent", DATA_BYTES, SEQ, VOCAB, &errors), -1);
    assert_int_equal(data_open(&data, ".", DATA_BYTES, SEQ, VOCAB, &errors), -1);
    directory_put("data", "", 0);
    assert_int_equal(data_open(&data, "data", DATA_BYTES, SEQ, VOCAB, &errors), -1);
    directory_put("data", "abcd", 4);
    assert_int_equal(data_open(&data, "data", DATA_BYTES, SEQ, VOCAB, &errors), -1);
    data_close(&data);
    directory_put("data", "abcde", 5);
    assert_int_equal(data_open(&data, "data", DATA_BYTES, SEQ, 255, &errors), -1);
    data_close(&data);
    assert_int_equal(errors.count, 5);
    assert_golden_diags("refused data", &errors);
}

static int parse(struct run_options *options, struct diag_list *errors, int argc, ...)
{
    static char words[16][32];
    char *argv[16] = { words[0] };
    va_list list;

    va_start(list, argc);
    for (int i = 1; i <= argc; i++) {
        (void)snprintf(words[i], sizeof words[i], "%s", va_arg(list, const char *));
        argv[i] = words[i];
    }
    va_end(list);
    return run_options_parse(argc + 1, argv, options, errors);
}

static void test_options(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct run_options o;

    assert_int_equal(parse(&o, &errors, 3, "p.yaml", "--measurement", "m.json"), 0);
    assert_string_equal(o.plan, "p.yaml");
    assert_string_equal(o.measurement, "m.json");
    assert_int_equal(o.steps, 3);
    assert_int_equal(o.seed, 0);
    assert_null(o.data);
    assert_int_equal(parse(&o, &errors, 7, "--measurement=m", "--steps", "9", "--seed=4", "p",
                           "--data-format", "u32"),
                     0);
    assert_int_equal(o.steps, 9);
    assert_int_equal(o.seed, 4);
    assert_int_equal(o.data_format, DATA_U32);
}

static void test_option_faults(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct run_options o;

    assert_int_equal(parse(&o, &errors, 1, "--measurement=m"), -1);
    assert_int_equal(parse(&o, &errors, 1, "p"), -1);
    assert_int_equal(parse(&o, &errors, 2, "p", "--measur=m"), -1);
    assert_int_equal(parse(&o, &errors, 3, "p", "--measurement=m", "--steps=0"), -1);
    assert_int_equal(parse(&o, &errors, 3, "p", "q", "--measurement=m"), -1);
    assert_int_equal(parse(&o, &errors, 3, "p", "--measurement=m", "--data"), -1);
    assert_int_equal(errors.count, 6);
    assert_golden_diags("refused options", &errors);
}

/* Any run of a sequence is that part of it, drawn or read. */
static void test_runs(void **state)
{
    (void)state;
    const struct data data = { .seed = 3, .vocab = VOCAB };
    int32_t ids[12], targets[12], run_ids[5], run_targets[5];

    data_sequence(&data, 7, 12, ids, targets);
    for (uint64_t begin = 0; begin <= 7; begin++) {
        data_run(&data, 7, 12, begin, 5, run_ids, run_targets);
        assert_memory_equal(run_ids, ids + begin, sizeof run_ids);
        assert_memory_equal(run_targets, targets + begin, sizeof run_targets);
    }
}

/* 12 tokens over 3 ranks, chunks of 2: rank 0 holds chunks 0 and 5, rank 1 1 and 4, rank 2 2 and 3;
 * the second sequence begins at 12. Without a group a rank holds everything in order. */
static void test_zigzag(void **state)
{
    (void)state;
    static const int64_t want[3][8] = { { 0, 1, 10, 11, 12, 13, 22, 23 },
                                        { 2, 3, 8, 9, 14, 15, 20, 21 },
                                        { 4, 5, 6, 7, 16, 17, 18, 19 } };
    const struct zigzag alone = { .seq_tokens = 12, .cp = 1, .rank = 0 };

    for (int rank = 0; rank < 3; rank++) {
        const struct zigzag z = { .seq_tokens = 12, .cp = 3, .rank = rank };
        int64_t seen_keys = 0;
        assert_int_equal(zigzag_tokens(&z), 4);
        assert_int_equal(zigzag_run_tokens(&z), 2);
        for (int row = 0; row < 8; row++) {
            assert_int_equal(zigzag_token(&z, row), want[rank][row]);
            seen_keys += row < 4 ? want[rank][row] + 1 : 0;
        }
        assert_int_equal(seen_keys, 12 * 13 / 2 / 3); /* a third of the causal triangle */
    }
    assert_int_equal(zigzag_runs(&alone), 1);
    for (int row = 0; row < 24; row++)
        assert_int_equal(zigzag_token(&alone, row), row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_bytes),       IN_DIRECTORY(test_u32),
        cmocka_unit_test(test_drawn),   cmocka_unit_test(test_runs),
        cmocka_unit_test(test_zigzag),  IN_DIRECTORY(test_faults),
        cmocka_unit_test(test_options), cmocka_unit_test(test_option_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
