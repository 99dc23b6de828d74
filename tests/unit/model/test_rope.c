/* Frequencies of stretched rotary embedding against those that transformers 5.17 computes
 * (ROPE_INIT_FUNCTIONS, theta 10,000, 16 rotary dimensions), printed to seven digits. */
#include "base/model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { ROTARY = 16, PAIRS = ROTARY / 2 };

static const struct {
    const char *name;
    struct rope_scaling rope;
    int64_t tokens;
    double want[PAIRS];
} rows[] = {
    { "plain",
      { .form = ROPE_PLAIN },
      64,
      { 1.0, 0.3162278, 0.1, 0.03162278, 0.01, 0.003162278, 0.001, 0.0003162278 } },
    { "linear",
      { .form = ROPE_LINEAR, .factor = 4 },
      64,
      { 0.25, 0.07905694, 0.025, 0.007905695, 0.0025, 0.0007905695, 0.00025, 7.905695e-05 } },
    { "dynamic, longer",
      { .form = ROPE_DYNAMIC, .factor = 2, .original_tokens = 2048 },
      8192,
      { 1.0, 0.2394814, 0.05735132, 0.01373457, 0.003289174, 0.0007876959, 0.0001886385,
        4.517539e-05 } },
    { "dynamic, shorter",
      { .form = ROPE_DYNAMIC, .factor = 2, .original_tokens = 2048 },
      1000,
      { 1.0, 0.3162278, 0.1, 0.03162278, 0.01, 0.003162278, 0.001, 0.0003162278 } },
    { "llama3",
      { .form = ROPE_LLAMA3, .factor = 8, .original_tokens = 1024, .low = 1, .high = 4 },
      64,
      { 1.0, 0.3162278, 0.1, 0.03162278, 0.003086761, 0.0003952847, 0.000125, 3.952847e-05 } },
    { "yarn of DeepSeek-V3",
      { .form = ROPE_YARN, .factor = 40, .original_tokens = 4096, .low = 1, .high = 32 },
      64,
      { 1.0, 0.3162278, 0.1, 0.02391472, 0.005125, 0.0008498622, 2.5e-05, 7.905694e-06 } },
    { "yarn of Kimi-K2, whose bounds are equal",
      { .form = ROPE_YARN, .factor = 32, .original_tokens = 4096, .low = 1, .high = 1 },
      64,
      { 1.0, 0.3162278, 0.1, 0.03162278, 0.01, 0.003162278, 3.125e-05, 9.882118e-06 } },
    { "yarn of gpt-oss, whose bounds are not rounded",
      { .form = ROPE_YARN,
        .factor = 32,
        .original_tokens = 4096,
        .low = 1,
        .high = 32,
        .unrounded = true },
      64,
      { 1.0, 0.3162278, 0.1, 0.02773594, 0.005552754, 0.0007382769, 3.125e-05, 9.882118e-06 } },
};

static void frequencies_are_those_of_transformers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gqa gqa = { .rope_theta = 10000, .rope = rows[i].rope };
        double got[PAIRS];
        model_rope_frequencies(&gqa, rows[i].tokens, ROTARY, got);
        for (int pair = 0; pair < PAIRS; pair++)
            if (fabs(got[pair] / rows[i].want[pair] - 1) > 2e-6)
                fail_msg("%s: pair %d turns by %.7g, not %.7g", rows[i].name, pair, got[pair],
                         rows[i].want[pair]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(frequencies_are_those_of_transformers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
