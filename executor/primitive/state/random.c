/* random.c - first weights as a function of seed, tensor name and element, so that every layout
 * begins with the same model. */
#include "executor/primitive/state/state.h"

#include <math.h>

/* The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every input bit moves every output bit. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t state_random_key(uint64_t seed, const char *tensor_name)
{
    uint64_t key = mix(seed + UINT64_C(0x9e3779b97f4a7c15));
    for (; *tensor_name; tensor_name++)
        key = mix(key ^ (unsigned char)*tensor_name);
    return key;
}

/* In (0, 1]: the logarithm below needs no zero. */
static double uniform(uint64_t key, uint64_t counter)
{
    uint64_t bits = mix(key + counter * UINT64_C(0x9e3779b97f4a7c15));
    return ((double)(bits >> 11) + 1) * 0x1p-53;
}

const double state_random_deviation = 0.02;

float state_random_normal(uint64_t key, uint64_t element)
{
    const double two_pi = 6.283185307179586;
    double radius = sqrt(-2 * log(uniform(key, 2 * element + 1)));
    return (float)(state_random_deviation * radius * cos(two_pi * uniform(key, 2 * element + 2)));
}

float state_first_value(const struct state_tensor *tensor, uint64_t key, uint64_t element)
{
    return tensor->start == START_DRAWN ? state_random_normal(key, element)
                                        : (float)(tensor->start == START_ONE);
}

int state_random_read(void *context, const struct state_range *range, float *ret,
                      struct diag_list *reterr)
{
    const uint64_t *seed = context;
    char name[128];

    (void)reterr;
    state_tensor_name(range->tensor, range->copy, name, sizeof name);
    uint64_t key = state_random_key(*seed, name);
    uint64_t first = state_tensor_before(range->tensor, range->copy) + range->from;
    for (uint64_t i = 0; i < range->count; i++)
        ret[i] = state_first_value(range->tensor, key, first + i);
    return 0;
}
