/* bf16.h - bf16 to float and back, rounding to nearest even as the hardware does, and the sums that
 * end in either type. */
#ifndef RANKFIT_EXECUTOR_BACKEND_HOST_BF16_H
#define RANKFIT_EXECUTOR_BACKEND_HOST_BF16_H

#include "executor/backend/backend.h"

#include <stdint.h>
#include <string.h>

static inline __attribute__((always_inline)) float bf16_to_float(bf16 value)
{
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* A NaN stays one (quiet, sign kept); overflow becomes infinity. */
static inline __attribute__((always_inline)) bf16 bf16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t nearest = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40U;
    return (bf16)((bits & 0x7fffffffU) > 0x7f800000U ? quiet : nearest);
}

/* to[i] += value, summed in fp32 and rounded to the type. */
static inline void add_typed(void *to, enum dtype type, int64_t i, float value)
{
    if (type == DTYPE_FP32) {
        ((float *)to)[i] += value;
        return;
    }
    bf16 *cell = (bf16 *)to + i;
    *cell = bf16_from_float(bf16_to_float(*cell) + value);
}

#endif
