/* Attention's output gate: forward against the formula in double, backward against finite
 * differences of that formula. */
#include "tests/unit/executor/host_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Rows of the fused projection: per head query | gate, then two columns of something else. */
enum {
    ROWS = 5,
    HEADS = 3,
    HEAD = 12,
    WIDTH = HEADS * HEAD,
    STRIDE = 2 * WIDTH + 2,
    COUNT = ROWS * WIDTH,
    FUSED = ROWS * STRIDE
};

struct gate_problem {
    double *o, *qkv, *weight, *og;
};

/* Where the gate of element i of o lies. */
static int64_t gate_of(int64_t i)
{
    return i / WIDTH * STRIDE + i % WIDTH / HEAD * 2 * HEAD + HEAD + i % HEAD;
}

static double define_gate(const void *context)
{
    const struct gate_problem *p = context;
    double scalar = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        p->og[i] = p->o[i] / (1 + exp(-p->qkv[gate_of(i)]));
        scalar += p->weight[i] * p->og[i];
    }
    return scalar;
}

static void test_gate(void **state)
{
    struct host_fixture *f = *state;
    uint64_t seed = 51;
    bf16 *o = random_bf16(&seed, COUNT, 1), *qkv = random_bf16(&seed, FUSED, 3);
    bf16 *d_o = random_bf16(&seed, COUNT, 1), *d_qkv = random_bf16(&seed, FUSED, 1);
    bf16 og[COUNT];
    struct gate_problem p = { doubles_of_bf16(o, COUNT), doubles_of_bf16(qkv, FUSED),
                              doubles_of_bf16(d_o, COUNT), get_memory(COUNT, sizeof(double)) };
    double want_o[COUNT], *want_qkv = doubles_of_bf16(d_qkv, FUSED);
    (void)define_gate(&p);
    struct output_gate_gradient g = { .forward = { .rows = ROWS,
                                                   .heads = HEADS,
                                                   .head_dim = HEAD,
                                                   .o = o,
                                                   .gate = qkv + HEAD,
                                                   .row_stride = STRIDE,
                                                   .head_stride = (int64_t)2 * HEAD,
                                                   .og = og },
                                      .d_o = d_o,
                                      .d_gate = d_qkv + HEAD };
    assert_int_equal(f->ops->output_gate(f->backend, STREAM_COMPUTE, &g.forward, &f->diags), 0);
    assert_rms_bf16(og, p.og, COUNT, 0.5);
    for (int64_t i = 0; i < COUNT; i++) {
        want_o[i] = slope(define_gate, &p, &p.o[i], 1e-5);
        want_qkv[gate_of(i)] = slope(define_gate, &p, &p.qkv[gate_of(i)], 1e-5);
    }
    assert_int_equal(f->ops->output_gate_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    assert_rms_bf16(d_o, want_o, COUNT, 0.5);
    assert_rms_bf16(d_qkv, want_qkv, FUSED, 0.5);
    void *owned[] = { o, qkv, d_o, d_qkv, p.o, p.qkv, p.weight, p.og, want_qkv };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

/* A gate of 100 is open and of -100 is shut; at 0 half passes and the slope is a quarter. */
static void test_gate_by_hand(void **state)
{
    struct host_fixture *f = *state;
    const bf16 o[3] = { bf16_of(2), bf16_of(2), bf16_of(2) };
    const bf16 gate[3] = { bf16_of(100), bf16_of(-100), bf16_of(0) };
    bf16 og[3], d_o[3] = { bf16_of(4), bf16_of(4), bf16_of(4) }, d_gate[3];
    struct output_gate_gradient g = { .forward = { .rows = 1,
                                                   .heads = 1,
                                                   .head_dim = 3,
                                                   .o = o,
                                                   .gate = gate,
                                                   .row_stride = 3,
                                                   .head_stride = 3,
                                                   .og = og },
                                      .d_o = d_o,
                                      .d_gate = d_gate };
    assert_int_equal(f->ops->output_gate(f->backend, STREAM_COMPUTE, &g.forward, &f->diags), 0);
    assert_int_equal(f->ops->output_gate_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    assert_int_equal(og[0], bf16_of(2));
    assert_int_equal(d_o[0], bf16_of(4));
    assert_true(double_of(d_gate[0]) == 0);
    assert_true(fabs(double_of(og[1])) < 1e-30 && fabs(double_of(d_o[1])) < 1e-30);
    assert_true(fabs(double_of(d_gate[1])) < 1e-30);
    assert_int_equal(og[2], bf16_of(1));
    assert_int_equal(d_o[2], bf16_of(2));
    assert_int_equal(d_gate[2], bf16_of(2)); /* 4 * 2 / 4 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gate),
        cmocka_unit_test(test_gate_by_hand),
    };
    return cmocka_run_group_tests(tests, host_fixture_open, host_fixture_close);
}
