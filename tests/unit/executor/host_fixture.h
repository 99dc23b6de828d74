/* host_fixture.h - the host backend opened with its workspace, seeded bf16 data and its values in
 * double, and comparison by root mean square. Conversions here are arithmetic, not the backend's.
 */
#ifndef RANKFIT_TESTS_UNIT_EXECUTOR_HOST_FIXTURE_H
#define RANKFIT_TESTS_UNIT_EXECUTOR_HOST_FIXTURE_H

#include "executor/backend/backend.h"

#include <stdint.h>

struct host_fixture {
    struct backend *backend;
    const struct backend_ops *ops;
    void *workspace;
    struct diag_list diags;
};

/* cmocka's group setup and teardown; the state is a struct host_fixture *. */
int host_fixture_open(void **state);
int host_fixture_close(void **state);

/* Memory that fails the test instead of returning NULL. */
void *get_memory(int64_t count, int64_t size);

double double_of(bf16 value);
/* The nearest bf16, ties to even, by division and rint. */
bf16 bf16_of(double value);

/* Roughly normal values of standard deviation `scale`. */
double random_normal(uint64_t *seed);
bf16 *random_bf16(uint64_t *seed, int64_t count, double scale);
float *random_floats(uint64_t *seed, int64_t count, double scale);

double *doubles_of_bf16(const bf16 *values, int64_t count);
double *doubles_of_floats(const float *values, int64_t count);

/* The root mean square error is at most `ulps` units of the last bf16 place of the wanted RMS.
 * Storing once in bf16 costs about 0.3. */
void assert_rms_bf16(const bf16 *got, const double *want, int64_t count, double ulps);
/* The same relative to the wanted RMS. */
void assert_rms_float(const float *got, const double *want, int64_t count, double relative);

/* d sum(function) / d at[i] by a central difference of step h. */
double slope(double (*function)(const void *context), const void *context, double *at, double h);

#endif
