#include "base/pool.h"
#include "base/text.h"

#include "tests/support/random.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 2000, WORDS = 6 };

static void test_nearest_by_hand(void **state)
{
    (void)state;
    static const char *const names[] = { "h100-sxm", "h200", "b200", "mi300x", "micro_batch" };
    size_t count = sizeof names / sizeof *names;
    assert_string_equal(text_nearest("h10-sxm", names, count), "h100-sxm");
    assert_string_equal(text_nearest("h200", names, count), "h200");
    assert_string_equal(text_nearest("micro-batch", names, count), "micro_batch");
    /* One replacement leads to h200, four letters more to what the word is the beginning of. */
    assert_string_equal(text_nearest("h100", names, count), "h100-sxm");
    assert_string_equal(text_nearest("H100", names, count), "h100-sxm");
    assert_string_equal(text_nearest("H2OO", names, count), "h200");
    assert_string_equal(text_nearest("mi", names, count), "mi300x");
    assert_null(text_nearest("m", names, count));
    /* One swap of neighbours against one replacement: the first of equals wins. */
    assert_string_equal(text_nearest("2h00", names, count), "h200");
    assert_null(text_nearest("quantum", names, count));
    /* A word of one letter may be one edit away, not two. */
    assert_null(text_nearest("x", names, count));
    static const char *const short_names[] = { "tp", "pp" };
    assert_string_equal(text_nearest("t", short_names, 2), "tp");
    assert_null(text_nearest("", names, count));
    assert_null(text_nearest("", short_names, 2));
    assert_null(text_nearest("h200", names, 0));
}

static void test_nearest_long_words(void **state)
{
    (void)state;
    char word[4000];
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    static const char *const names[] = { "a" };
    assert_null(text_nearest(word, names, 1));
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The definition itself, without a table: what the last step of an alignment may be. */
static size_t distance_by_definition(const char *a, size_t i, const char *b, size_t j)
{
    if (i == 0 || j == 0)
        return i + j;
    size_t ret = distance_by_definition(a, i - 1, b, j - 1) + (a[i - 1] != b[j - 1]);
    ret = least(ret, distance_by_definition(a, i - 1, b, j) + 1);
    ret = least(ret, distance_by_definition(a, i, b, j - 1) + 1);
    if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        ret = least(ret, distance_by_definition(a, i - 2, b, j - 2) + 1);
    return ret;
}

static void random_word(uint64_t *seed, char ret[8])
{
    size_t length = random_below(seed, 6);
    memset(ret, 0, 8);
    for (size_t i = 0; i < length; i++)
        ret[i] = (char)('a' + random_below(seed, 3));
}

/* By its definition: the first of the shortest names that `word` is cut from. */
static const char *completion(const char *word, const char *const names[WORDS])
{
    int matches = 0;
    for (int i = 0; i < WORDS; i++)
        matches += strstr(names[i], word) == names[i];
    if (!word[0] || matches == 0 || (!word[1] && matches > 1))
        return NULL;
    for (size_t length = strlen(word); length < 8; length++)
        for (int i = 0; i < WORDS; i++)
            if (strlen(names[i]) == length && strstr(names[i], word) == names[i])
                return names[i];
    return NULL;
}

static void test_nearest_property(void **state)
{
    (void)state;
    uint64_t seed = 22;
    print_message("seed %" PRIu64 "\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        char words[WORDS][8];
        char word[8];
        const char *names[WORDS];
        const char *want = NULL;
        random_word(&seed, word);
        size_t best = least(strlen(word) / 2, strlen(word)) + 1;
        if (best < 2)
            best = 2;
        for (int i = 0; i < WORDS; i++) {
            random_word(&seed, words[i]);
            names[i] = words[i];
            size_t distance =
                distance_by_definition(word, strlen(word), words[i], strlen(words[i]));
            if (word[0] && distance < best) { /* an empty word means none */
                best = distance;
                want = words[i];
            }
        }
        const char *whole = completion(word, names);
        want = whole ? whole : want;
        assert_ptr_equal(text_nearest(word, names, WORDS), want);
    }
}

static void test_copy(void **state)
{
    (void)state;
    char text[6];
    assert_int_equal(text_copy(text, sizeof text, "abcde"), 0);
    assert_string_equal(text, "abcde");
    assert_int_equal(text_copy(text, sizeof text, "abcdef"), -1);
    assert_string_equal(text, "abcde");
    assert_int_equal(text_copy(text, sizeof text, ""), 0);
    assert_string_equal(text, "");
    text[0] = 'x';
    assert_int_equal(text_copy(text, 0, "a"), -1);
    assert_int_equal(text[0], 'x');
}

static void test_append(void **state)
{
    (void)state;
    char text[10] = "";
    size_t used = 0;
    text_append(text, sizeof text, &used, "%d,", 12);
    assert_int_equal(used, 3);
    text_append(text, sizeof text, &used, "%s", "345");
    assert_string_equal(text, "12,345");
    text_append(text, sizeof text, &used, "%s", "6789");
    assert_string_equal(text, "12,345678");
    assert_int_equal(used, 9);
    text_append(text, sizeof text, &used, "more");
    assert_string_equal(text, "12,345678");
}

static void test_pool(void **state)
{
    (void)state;
    struct pool pool = { 0 };
    uint64_t seed = 23;
    print_message("seed %" PRIu64 "\n", seed);
    unsigned char *pieces[500];
    size_t sizes[500];
    for (size_t i = 0; i < 500; i++) {
        sizes[i] = random_below(&seed, i % 50 == 0 ? 100000 : 300);
        pieces[i] = pool_alloc(&pool, sizes[i]);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % alignof(max_align_t), 0);
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal(pieces[i][j], 0);
        memset(pieces[i], (int)(i % 251), sizes[i]);
    }
    /* Nothing written into one piece has reached another. */
    for (size_t i = 0; i < 500; i++)
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal(pieces[i][j], i % 251);
    assert_string_equal(pool_printf(&pool, "%s-%d", "a", 7), "a-7");
    assert_string_equal(pool_copy_text(&pool, "abcdef", 3), "abc");
    assert_null(pool_alloc(&pool, SIZE_MAX));
    assert_null(pool_alloc(&pool, SIZE_MAX - 64));
    pool_done(&pool);
    assert_null(pool.newest);
    pool_done(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest_by_hand),  cmocka_unit_test(test_nearest_long_words),
        cmocka_unit_test(test_nearest_property), cmocka_unit_test(test_copy),
        cmocka_unit_test(test_append),           cmocka_unit_test(test_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
