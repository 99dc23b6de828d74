#include "base/units.h"

#include "tests/support/near.h"
#include "tests/support/random.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 20000 };

static const uint64_t untouched = 0x5eed;

static void test_bytes_accepted(void **state)
{
    (void)state;
    /* 2^30 = 1,073,741,824; 2^40 = 1,099,511,627,776. */
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        { "0", 0 },
        { "150109880320", 150109880320 },
        { "7B", 7 },
        { "80GB", 80000000000 },
        { "80 GB", 80000000000 },
        { "0.1GB", 100000000 },
        { "1kB", 1000 },
        { "2MB", 2000000 },
        { "3TB", 3000000000000 },
        { "1KiB", 1024 },
        { "2MiB", 2097152 },
        { "1.5GiB", 1610612736 },
        { "80gb", 80000000000 },
        { "80gib", 85899345920 },
        { "1KB", 1000 },
        { "1TiB", 1099511627776 },
        { "0.3GiB", 322122547 }, /* 322,122,547.2 */
        { "0.7GiB", 751619277 }, /* 751,619,276.8 */
        { "1.123456789123GB", 1123456789 },
        { "9223372036854775807", INT64_MAX },
        { "8388607TiB", 9223370937343148032 }, /* (2^23 - 1) * 2^40 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = untouched;
        print_message("%s\n", cases[i].text);
        assert_int_equal(units_parse_bytes(cases[i].text, &bytes), 0);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void test_bytes_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "12QB",
        "-1GB",
        "+1GB",
        "1e400GB",
        "1e3",
        "nan",
        "inf",
        "GB",
        ".5GB",
        "5.GB",
        "5.",
        "1.5",
        "1.5B",
        "80 GB ",
        " 80GB",
        "80  GB",
        "80GB!",
        "0x10",
        "1,000",
        "80G",
        "1.2.3GB",
        "8388608TiB",
        "9223372036854775808",
        "99999999999999999999",
        "99999999999999999999999GB",
        "9223372036.854775808GB",
        "0.0000000000000000000000000001TB",
        "1 ",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = untouched;
        print_message("'%s'\n", cases[i]);
        assert_int_equal(units_parse_bytes(cases[i], &bytes), -1);
        assert_int_equal(bytes, untouched);
    }
}

__extension__ typedef unsigned __int128 wide;

/* |bytes * 10^places - digits * factor| <= 10^places / 2, which is what rounding means. */
static void test_bytes_property(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t factor;
    } units[] = { { "kB", 1000 },     { "GB", 1000000000 }, { "TB", 1000000000000 },
                  { "MiB", 1 << 20 }, { "GiB", 1 << 30 },   { "TiB", UINT64_C(1) << 40 } };
    uint64_t seed = 20;
    print_message("seed %" PRIu64 "\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        size_t unit = random_below(&seed, sizeof units / sizeof *units);
        int places = 1 + (int)random_below(&seed, 12);
        uint64_t ten_to_places = 1;
        for (int i = 0; i < places; i++)
            ten_to_places *= 10;
        uint64_t whole = random_below(&seed, 100000);
        uint64_t rest = random_below(&seed, ten_to_places);
        char text[64];
        (void)snprintf(text, sizeof text, "%" PRIu64 ".%0*" PRIu64 "%s", whole, places, rest,
                       units[unit].name);
        uint64_t bytes = 0;
        assert_int_equal(units_parse_bytes(text, &bytes), 0);
        wide got = (wide)bytes * ten_to_places;
        wide want = ((wide)whole * ten_to_places + rest) * units[unit].factor;
        wide off = got > want ? got - want : want - got;
        if (off * 2 > ten_to_places)
            fail_msg("%s read as %" PRIu64, text, bytes);
    }
}

static void test_tokens(void **state)
{
    (void)state;
    uint64_t tokens = 0;
    assert_int_equal(units_parse_tokens("128K", &tokens), 0);
    assert_int_equal(tokens, 131072);
    assert_int_equal(units_parse_tokens("1M", &tokens), 0);
    assert_int_equal(tokens, 1048576);
    assert_int_equal(units_parse_tokens("4096", &tokens), 0);
    assert_int_equal(tokens, 4096);
    assert_int_equal(units_parse_tokens("1.5K", &tokens), 0);
    assert_int_equal(tokens, 1536);
    assert_int_equal(units_parse_tokens("128k", &tokens), 0);
    assert_int_equal(tokens, 131072);
    assert_int_equal(units_parse_tokens("1m", &tokens), 0);
    assert_int_equal(tokens, 1048576);
    static const char *const refused[] = { "",      "K",   "-1K",   "0.3K", "1G",
                                           "128KB", "1.5", "128K ", "1e3",  "8796093022208M" };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        tokens = untouched;
        print_message("'%s'\n", refused[i]);
        assert_int_equal(units_parse_tokens(refused[i], &tokens), -1);
        assert_int_equal(tokens, untouched);
    }
}

static void test_fraction(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double fraction;
    } cases[] = { { "2%", 0.02 }, { "0.02", 0.02 }, { "0", 0 },         { "1", 1 },
                  { "100%", 1 },  { "0%", 0 },      { "12.5%", 0.125 }, { "2e-2", 0.02 } };
    double fraction = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(units_parse_fraction(cases[i].text, &fraction), 0);
        assert_near(fraction, cases[i].fraction, 1e-15, "of one");
    }
    static const char *const refused[] = { "",    "%",   "-1%", "101%", "1.01",  "nan", "inf",
                                           "2%%", " 2%", "2% ", "0x1",  "1e400", "-0",  "2 %" };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        fraction = 7;
        print_message("'%s'\n", refused[i]);
        assert_int_equal(units_parse_fraction(refused[i], &fraction), -1);
        assert_true(fraction == 7);
    }
}

static void test_int(void **state)
{
    (void)state;
    int64_t value = 0;
    assert_int_equal(units_parse_int("512", 1, 512, &value), 0);
    assert_int_equal(value, 512);
    assert_int_equal(units_parse_int("-3", -3, 3, &value), 0);
    assert_int_equal(value, -3);
    assert_int_equal(units_parse_int("+3", -3, 3, &value), 0);
    assert_int_equal(value, 3);
    assert_int_equal(units_parse_int("-9223372036854775808", INT64_MIN, INT64_MAX, &value), 0);
    assert_true(value == INT64_MIN);
    static const char *const refused[] = { "",
                                           "0",
                                           "513",
                                           " 5",
                                           "5 ",
                                           "5x",
                                           "0x5",
                                           "5.0",
                                           "1e1",
                                           "-",
                                           "+",
                                           "- 5",
                                           "9223372036854775808" };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        value = 7;
        print_message("'%s'\n", refused[i]);
        assert_int_equal(units_parse_int(refused[i], 1, 512, &value), -1);
        assert_int_equal(value, 7);
    }
}

static void test_formats(void **state)
{
    (void)state;
    char text[32];
    /* 32.55e9 / 2^30 = 30.3145... */
    assert_string_equal(units_format_gb(text, sizeof text, 32550000000, 2), "32.55 GB");
    assert_string_equal(units_format_gib(text, sizeof text, 32550000000, 2), "30.31 GiB");
    assert_string_equal(units_format_gb(text, sizeof text, 0, 1), "0.0 GB");
    assert_string_equal(units_format_gb(text, sizeof text, 150109880320, 0), "150 GB");
    assert_string_equal(units_format_count(text, sizeof text, 0), "0");
    assert_string_equal(units_format_count(text, sizeof text, 999), "999");
    assert_string_equal(units_format_count(text, sizeof text, 1000), "1,000");
    assert_string_equal(units_format_count(text, sizeof text, 131072), "131,072");
    assert_string_equal(units_format_count(text, sizeof text, UINT64_MAX),
                        "18,446,744,073,709,551,615");
    assert_string_equal(units_format_tokens(text, sizeof text, 131072), "128K");
    assert_string_equal(units_format_tokens(text, sizeof text, 131073), "131073");
    assert_string_equal(units_format_tokens(text, sizeof text, 1048576), "1024K");
    assert_string_equal(units_format_tokens(text, sizeof text, 0), "0");
}

static void test_seconds(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {
        { 0.0123, "12.3 ms" },   { 1.62, "1.62 s" },
        { 840e-6, "840 us" },    { 0, "0 s" },
        { 0.99949, "999 ms" },   { 0.9996, "1.00 s" },
        { 9.996, "10.0 s" },     { 99.96, "100 s" },
        { 1234, "1234 s" },      { 999.6e-6, "1.00 ms" },
        { 1.5e-6, "1.50 us" },   { 0.25e-6, "0.250 us" },
        { -0.0123, "-12.3 ms" }, { (double)INFINITY, "inf s" },
    };
    char text[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(units_format_seconds(text, sizeof text, cases[i].seconds),
                            cases[i].text);
}

static void test_small_buffers(void **state)
{
    (void)state;
    char text[4] = "xyz";
    (void)units_format_count(text, sizeof text, 131072);
    assert_string_equal(text, "131");
    (void)units_format_gb(text, sizeof text, 32550000000, 2);
    assert_string_equal(text, "32.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_accepted), cmocka_unit_test(test_bytes_refused),
        cmocka_unit_test(test_bytes_property), cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_fraction),       cmocka_unit_test(test_int),
        cmocka_unit_test(test_formats),        cmocka_unit_test(test_seconds),
        cmocka_unit_test(test_small_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
