#include "tests/unit/executor/host_fixture.h"

#include "tests/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

int host_fixture_open(void **state)
{
    struct host_fixture *f = calloc(1, sizeof *f);
    if (!f)
        return -1;
    *state = f;
    f->backend = backend_host_open(&f->diags);
    if (!f->backend)
        return -1;
    f->ops = f->backend->ops;
    f->workspace = malloc(f->ops->workspace_bytes(f->backend));
    f->ops->set_workspace(f->backend, f->workspace);
    return f->workspace ? 0 : -1;
}

int host_fixture_close(void **state)
{
    struct host_fixture *f = *state;
    int errors = f->diags.errors;
    f->ops->close(f->backend);
    free(f->workspace);
    free(f);
    return errors ? -1 : 0;
}

void *get_memory(int64_t count, int64_t size)
{
    void *memory = calloc((size_t)(count ? count : 1), (size_t)size);
    assert_non_null(memory);
    return memory;
}

double double_of(bf16 value)
{
    int exponent = (value >> 7) & 0xff, fraction = value & 0x7f;
    double sign = value & 0x8000 ? -1.0 : 1.0;
    if (exponent == 0xff)
        return fraction ? (double)NAN : sign * HUGE_VAL;
    if (exponent == 0)
        return sign * ldexp(fraction, -133);
    return sign * ldexp(128 + fraction, exponent - 134);
}

bf16 bf16_of(double value)
{
    bf16 sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    int exponent;
    (void)frexp(size, &exponent);
    int unit = exponent - 8 < -133 ? -133 : exponent - 8;
    double rounded = ldexp(rint(ldexp(size, -unit)), unit);
    if (rounded == 0)
        return sign;
    if (rounded > 3.4e38)
        return (bf16)(sign | 0x7f80);
    (void)frexp(rounded, &exponent);
    if (exponent < -125)
        return (bf16)(sign | (int)ldexp(rounded, 133));
    return (bf16)(sign | ((exponent + 126) << 7) | ((int)ldexp(rounded, 8 - exponent) - 128));
}

/* The sum of twelve uniform values has variance one (Irwin-Hall). */
double random_normal(uint64_t *seed)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (double)(random_next(seed) >> 11) * 0x1p-53;
    return sum;
}

bf16 *random_bf16(uint64_t *seed, int64_t count, double scale)
{
    bf16 *values = get_memory(count, sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = bf16_of(scale * random_normal(seed));
    return values;
}

float *random_floats(uint64_t *seed, int64_t count, double scale)
{
    float *values = get_memory(count, sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(scale * random_normal(seed));
    return values;
}

double *doubles_of_bf16(const bf16 *values, int64_t count)
{
    double *result = get_memory(count, sizeof *result);
    for (int64_t i = 0; i < count; i++)
        result[i] = double_of(values[i]);
    return result;
}

double *doubles_of_floats(const float *values, int64_t count)
{
    double *result = get_memory(count, sizeof *result);
    for (int64_t i = 0; i < count; i++)
        result[i] = (double)values[i];
    return result;
}

static void assert_rms(const double *got, const double *want, int64_t count, double allowed,
                       double rms)
{
    double error = 0;
    for (int64_t i = 0; i < count; i++)
        error += (got[i] - want[i]) * (got[i] - want[i]);
    error = count ? sqrt(error / (double)count) : 0;
    if (!(error <= allowed))
        fail_msg("rms error %g, allowed %g, of an rms of %g (%lld values)", error, allowed, rms,
                 (long long)count);
}

static double rms_of(const double *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return count ? sqrt(sum / (double)count) : 0;
}

void assert_rms_bf16(const bf16 *got, const double *want, int64_t count, double ulps)
{
    double *values = doubles_of_bf16(got, count), rms = rms_of(want, count);
    int exponent = 0;
    (void)frexp(rms, &exponent);
    assert_rms(values, want, count, rms > 0 ? ulps * ldexp(1.0, exponent - 8) : 0, rms);
    free(values);
}

void assert_rms_float(const float *got, const double *want, int64_t count, double relative)
{
    double *values = doubles_of_floats(got, count), rms = rms_of(want, count);
    assert_rms(values, want, count, relative * rms, rms);
    free(values);
}

double slope(double (*function)(const void *context), const void *context, double *at, double h)
{
    double kept = *at;
    *at = kept + h;
    double above = function(context);
    *at = kept - h;
    double below = function(context);
    *at = kept;
    return (above - below) / (2 * h);
}
