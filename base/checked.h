/* checked.h - byte and count arithmetic that cannot wrap. A sum or product beyond 64 bits saturates
 * at UINT64_MAX, which no real size reaches; whoever reports a size asks bytes_overflowed() once.
 */
#ifndef RANKFIT_BASE_CHECKED_H
#define RANKFIT_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t add_sat(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t mul_sat(uint64_t a, uint64_t b)
{
    uint64_t product;
    if (a == 0 || b == 0)
        return 0;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t mul3_sat(uint64_t a, uint64_t b, uint64_t c)
{
    return mul_sat(mul_sat(a, b), c);
}

/* Rounds up; a saturated value stays saturated. divisor > 0. */
static inline uint64_t div_up(uint64_t value, uint64_t divisor)
{
    return value == UINT64_MAX ? value : value / divisor + (value % divisor != 0);
}

static inline uint64_t round_up_to(uint64_t value, uint64_t multiple)
{
    return mul_sat(div_up(value, multiple), multiple);
}

static inline bool bytes_overflowed(uint64_t bytes)
{
    return bytes == UINT64_MAX;
}

#endif
