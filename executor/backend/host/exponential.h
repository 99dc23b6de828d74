/* exponential.h - exp and sigmoid in single precision that a compiler can turn into vector code. */
#ifndef RANKFIT_EXECUTOR_BACKEND_HOST_EXPONENTIAL_H
#define RANKFIT_EXECUTOR_BACKEND_HOST_EXPONENTIAL_H

#include <stdint.h>
#include <string.h>

/* exp(x) within 2 units of the last place; 0 below -87.3, and x is held at 88. e^x = 2^n e^r with
 * |r| <= ln 2 / 2, ln 2 taken in two parts, e^r by its Taylor series to the seventh power (the
 * remainder is below 6e-9). */
static inline __attribute__((always_inline)) float fast_exp(float x)
{
    float held = x > 88.0F ? 88.0F : x;
    held = held > -87.3F ? held : -87.3F;
    const float shift = 12582912.0F; /* 1.5 * 2^23: adding it rounds to a whole number */
    float n = (held * 1.44269504F + shift) - shift;
    float r = (held - n * 0.693359375F) - n * -2.12194440e-4F;
    float p = 1.0F / 5040.0F;
    p = p * r + 1.0F / 720.0F;
    p = p * r + 1.0F / 120.0F;
    p = p * r + 1.0F / 24.0F;
    p = p * r + 1.0F / 6.0F;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.3F ? 0.0F : p * power;
}

static inline __attribute__((always_inline)) float fast_sigmoid(float x)
{
    return 1.0F / (1.0F + fast_exp(-x));
}

#endif
