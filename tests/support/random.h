/* random.h - reproducible pseudo-random values for property tests; print the seed. */
#ifndef RANKFIT_TESTS_SUPPORT_RANDOM_H
#define RANKFIT_TESTS_SUPPORT_RANDOM_H

#include <jansson.h>
#include <stdint.h>

/* SplitMix64 (Steele, Lea, Flood 2014). The state is the seed. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 to below - 1; below > 0 and small against 2^64. */
static inline uint64_t random_below(uint64_t *state, uint64_t below)
{
    return random_next(state) % below;
}

/* A document of all JSON types, awkward strings and numbers among them, nested at most `depth`
 * deep. */
json_t *random_json(uint64_t *state, int depth);

#endif
