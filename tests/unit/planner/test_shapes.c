/* Matmuls of public tables against what the hardware files say of them: third root of the sum of
 * the cubes of call, FLOPs and operands. The shapes of the A100 and the L40S were not fitted to;
 * the H200's file was calibrated by ourselves, so that its table is another's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hardware/hardware.h"
#include "planner/calibrate/fit.h"

#include <math.h>
#include <stdio.h>

enum product { FORWARD, INPUT, WEIGHT };

/* Rows, outputs and inputs of a linear layer; experts: 0 of a dense one, which share the rows. */
struct shape {
    enum product product;
    int experts;
    double rows, outputs, inputs, microseconds;
};

/* ai-dynamo/aiconfigurator (095f58a), forward, SGLang 0.5.10. */
static const struct shape a100[] = {
    { FORWARD, 0, 2048, 768, 3072, 46.7 },      { FORWARD, 0, 8192, 768, 3072, 164.4 },
    { FORWARD, 0, 32768, 768, 3072, 658.3 },    { FORWARD, 0, 2048, 5120, 1536, 148.2 },
    { FORWARD, 0, 8192, 5120, 1536, 508.0 },    { FORWARD, 0, 32768, 5120, 1536, 2191.8 },
    { FORWARD, 0, 2048, 10240, 5120, 810.0 },   { FORWARD, 0, 8192, 10240, 5120, 3553.5 },
    { FORWARD, 0, 32768, 10240, 5120, 13911.8 }
};
/* The same repository, vLLM 0.24.0. */
static const struct shape l40s[] = {
    { FORWARD, 0, 2048, 768, 3072, 46.0 },      { FORWARD, 0, 8192, 768, 3072, 202.5 },
    { FORWARD, 0, 32768, 768, 3072, 853.8 },    { FORWARD, 0, 2048, 5120, 1536, 166.1 },
    { FORWARD, 0, 8192, 5120, 1536, 674.5 },    { FORWARD, 0, 32768, 5120, 1536, 3694.8 },
    { FORWARD, 0, 2048, 10240, 5120, 918.4 },   { FORWARD, 0, 8192, 10240, 5120, 4025.1 },
    { FORWARD, 0, 32768, 10240, 5120, 12818.3 }
};
static const struct shape h200[] = {
    { FORWARD, 0, 2048, 768, 3072, 14.8 },     { FORWARD, 0, 8192, 768, 3072, 50.7 },
    { FORWARD, 0, 32768, 768, 3072, 189.1 },   { FORWARD, 0, 2048, 5120, 1536, 45.6 },
    { FORWARD, 0, 8192, 5120, 1536, 169.3 },   { FORWARD, 0, 32768, 5120, 1536, 709.3 },
    { FORWARD, 0, 2048, 10240, 5120, 266.8 },  { FORWARD, 0, 8192, 10240, 5120, 1297.1 },
    { FORWARD, 0, 32768, 10240, 5120, 4276.2 }
};
/* MooreThreads/SimuMax (4dcaae5), b200_bf16_ceperm: efficiencies of 2250 TFLOP/s. */
static const struct shape b200[] = {
    { FORWARD, 0, 4096, 8192, 8192, 528.3 },  { INPUT, 0, 4096, 8192, 8192, 492.3 },
    { WEIGHT, 0, 4096, 8192, 8192, 510.2 },   { FORWARD, 0, 4096, 57344, 8192, 3514.3 },
    { INPUT, 0, 4096, 57344, 8192, 3541.7 },  { WEIGHT, 0, 4096, 57344, 8192, 3770.7 },
    { FORWARD, 0, 4096, 5120, 16384, 485.5 }, { INPUT, 0, 4096, 5120, 16384, 654.3 },
    { WEIGHT, 0, 4096, 5120, 16384, 636.1 },  { FORWARD, 0, 16384, 576, 5120, 153.9 },
    { INPUT, 0, 16384, 576, 5120, 99.1 },     { WEIGHT, 0, 16384, 576, 5120, 94.3 },
    { FORWARD, 0, 4096, 10240, 8192, 473.4 }, { INPUT, 0, 4096, 10240, 8192, 613.2 },
    { WEIGHT, 0, 4096, 10240, 8192, 510.8 },  { FORWARD, 0, 4096, 1536, 5120, 69.2 },
    { INPUT, 0, 4096, 1536, 5120, 44.9 },     { WEIGHT, 0, 4096, 1536, 5120, 49.9 }
};
static const struct shape b200_experts[] = {
    { FORWARD, 160, 24640, 3072, 5120, 1725.2 }, { FORWARD, 80, 24640, 3072, 5120, 890.7 },
    { FORWARD, 40, 24640, 3072, 5120, 746.0 },   { FORWARD, 20, 24640, 3072, 5120, 671.0 },
    { INPUT, 128, 32768, 7168, 2048, 1887.0 },   { INPUT, 256, 32768, 4096, 7168, 3805.8 },
    { WEIGHT, 160, 24640, 3072, 5120, 3678.4 },  { WEIGHT, 64, 32768, 7168, 2048, 1993.4 },
    { WEIGHT, 128, 32768, 4096, 7168, 5804.6 },  { WEIGHT, 32, 32768, 7168, 2048, 1558.5 }
};

/* Operands and result, bf16; the gradient of a weight, fp32, is read and written. */
static double bytes_of(const struct shape *s)
{
    double x = s->rows * s->inputs, y = s->rows * s->outputs;
    double weights = (s->experts > 0 ? s->experts : 1) * s->inputs * s->outputs;
    return 2 * (x + y) + (s->product == WEIGHT ? 8 : 2) * weights;
}

static void assert_shapes(const char *name, const struct shape *shapes, size_t count, double rms)
{
    struct hardware h = { 0 };
    struct diag_list errors = { 0 };
    struct fit_rows rows = { .columns = 3, .power = 3 };
    bool experts = shapes->experts > 0;
    if (hardware_load(name, &h, &errors) != 0)
        fail_msg("%s: %s", name, errors.items[0].what);
    struct fit fit = { .coefficient = {
                           experts ? h.expert_gemm_call_seconds : h.gemm_call_seconds,
                           1 / (experts ? h.expert_gemm_efficiency : h.gemm_efficiency),
                           experts ? h.expert_gemm_traffic_share : h.gemm_traffic_share,
                       } };
    for (size_t i = 0; i < count; i++) {
        const struct shape *s = &shapes[i];
        double flops = 2 * s->rows * s->inputs * s->outputs;
        const double x[] = { experts ? s->experts : 1, flops / h.bf16_flops_per_second,
                             bytes_of(s) / h.memory_bytes_per_second };
        fit_add(&rows, x, s->microseconds / 1e6);
    }
    fit_judge(&rows, &fit);
    if (fit.rms > rms)
        fail_msg("%s: %.1f %% RMS over %zu shapes, shape %zu %.1f %% off", name, 100 * fit.rms,
                 count, fit.worst_row, 100 * fit.worst);
}
#define ASSERT_SHAPES(name, shapes, rms)                                                           \
    assert_shapes(name, shapes, sizeof(shapes) / sizeof *(shapes), rms)

static void dense_matmuls_take_what_is_published(void **state)
{
    (void)state;
    ASSERT_SHAPES("a100-80gb", a100, 0.12);
    ASSERT_SHAPES("h200", h200, 0.12);
    ASSERT_SHAPES("l40s", l40s, 0.18);
    ASSERT_SHAPES("b200", b200, 0.18);
}

static void grouped_matmuls_take_what_is_published(void **state)
{
    (void)state;
    ASSERT_SHAPES("b200", b200_experts, 0.18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_matmuls_take_what_is_published),
        cmocka_unit_test(grouped_matmuls_take_what_is_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
