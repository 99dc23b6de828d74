#include "base/checked.h"

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

enum { ROUNDS = 50000 };

__extension__ typedef unsigned __int128 wide;

static uint64_t saturated(wide value)
{
    return value > UINT64_MAX ? UINT64_MAX : (uint64_t)value;
}

/* Values of every size, the borders of the type more often than chance would have them. */
static uint64_t any_size(uint64_t *seed)
{
    static const uint64_t borders[] = {
        0, 1, 2, UINT32_MAX, INT64_MAX, UINT64_MAX - 1, UINT64_MAX
    };
    if (random_below(seed, 4) == 0)
        return borders[random_below(seed, sizeof borders / sizeof *borders)];
    return random_next(seed) >> random_below(seed, 64);
}

static void test_against_128_bits(void **state)
{
    (void)state;
    uint64_t seed = 21;
    print_message("seed %" PRIu64 "\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t a = any_size(&seed);
        uint64_t b = any_size(&seed);
        assert_true(add_sat(a, b) == saturated((wide)a + b));
        assert_true(mul_sat(a, b) == saturated((wide)a * b));
        if (b == 0 || a == UINT64_MAX)
            continue;
        assert_true(div_up(a, b) == saturated(((wide)a + b - 1) / b));
        assert_true(round_up_to(a, b) == saturated(((wide)a + b - 1) / b * b));
    }
}

static void test_by_hand(void **state)
{
    (void)state;
    assert_true(mul3_sat(1000, 1000, 1000) == 1000000000);
    /* 2^32 * 2^32 is one more than 64 bits hold; a factor of 0 still makes it 0. */
    assert_true(bytes_overflowed(mul3_sat(UINT64_C(1) << 32, UINT64_C(1) << 32, 1)));
    assert_true(mul3_sat(UINT64_C(1) << 32, UINT64_C(1) << 32, 0) == 0);
    assert_true(div_up(0, 7) == 0);
    assert_true(div_up(14, 7) == 2);
    assert_true(div_up(15, 7) == 3);
    assert_true(round_up_to(257, 256) == 512);
    assert_true(round_up_to(256, 256) == 256);
}

static void test_saturation_stays(void **state)
{
    (void)state;
    assert_true(bytes_overflowed(add_sat(UINT64_MAX, 0)));
    assert_true(bytes_overflowed(div_up(UINT64_MAX, 8)));
    assert_true(bytes_overflowed(round_up_to(UINT64_MAX, 256)));
    assert_true(bytes_overflowed(round_up_to(UINT64_MAX - 1, 256)));
    assert_false(bytes_overflowed(UINT64_MAX - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_128_bits),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_saturation_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
