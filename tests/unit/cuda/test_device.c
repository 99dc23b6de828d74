/* A GPU made smaller, and what ran on it when: the device's own account on both sides of a limit;
 * kernels of known operations in the order in which they were asked for. Skipped without a GPU. */
#include "executor/backend/cuda/streams.h"
#include "executor/runtime/cuda_device.h"
#include "executor/trace/cuda/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { SKIPPED = 77 };

static const uint64_t mib = UINT64_C(1) << 20;

/* 1 GiB for a process: what its context left of that can be had, and 4 MiB more cannot. The context
 * is the first of the process, so that what the device says before it is others'. */
static void test_limit(void **state)
{
    (void)state;
    struct cuda_device device;
    struct diag_list errors = { 0 }, none = { 0 };
    void *block = NULL;
    assert_int_equal(cuda_device_open(&device, 0, 1, &none), 0);
    assert_int_equal(cuda_device_limit(&device, 1 * mib, &errors), -1);
    assert_int_equal(errors.errors, 1);
    assert_int_equal(cuda_device_limit(&device, UINT64_MAX, &errors), -1);
    assert_int_equal(errors.errors, 2);
    assert_int_equal(device.ballast_bytes, 0);
    uint64_t context = device.context_bytes, limit = 1024 * mib, before = cuda_device_free_bytes();
    assert_true(context > 0 && context < limit - 16 * mib);
    assert_int_equal(cuda_device_limit(&device, limit, &none), 0);
    uint64_t left = cuda_device_free_bytes();
    assert_in_range(left, limit - context, limit - context + 2 * mib);
    assert_true(device.ballast_bytes == before - left);
    assert_true(cuda_device_held_bytes(&device) == context);
    assert_int_equal(cudaMalloc(&block, left + 4 * mib), cudaErrorMemoryAllocation);
    (void)cudaGetLastError();
    assert_int_equal(cudaMalloc(&block, left - 4 * mib), cudaSuccess);
    assert_true(cuda_device_held_bytes(&device) > limit - 8 * mib);
    assert_int_equal(cudaFree(block), cudaSuccess);
    cuda_device_close(&device);
    assert_true(cuda_device_free_bytes() >= before - 2 * mib);
    assert_int_equal(none.errors, 0);
}

static void zero(struct backend *cuda, const struct observer *o, void *to, struct diag_list *errors)
{
    o->begin(o->context, OBSERVED_OPERATION, "zero");
    assert_int_equal(cuda->ops->zero(cuda, STREAM_COMPUTE, to, 64 * mib, errors), 0);
    o->end(o->context);
}

static void add(struct backend *cuda, const struct observer *o, void *to, struct diag_list *errors)
{
    o->begin(o->context, OBSERVED_OPERATION, "add");
    assert_int_equal(cuda->ops->add(cuda, STREAM_COMPUTE, (int64_t)(8 * mib), to,
                                    (char *)to + 32 * mib, DTYPE_FP32, errors),
                     0);
    o->end(o->context);
}

/* A fill, then a kernel, in a layer of a phase: both are told with their operation, one after the
 * other, and the layer is where they ran. */
static void test_kernels(void **state)
{
    (void)state;
    struct diag_list errors = { 0 };
    struct backend *cuda = backend_cuda_open(0, &errors);
    assert_non_null(cuda);
    struct arena_source source = cuda->ops->arena_source(cuda);
    void *memory = source.reserve(source.context, 64 * mib);
    struct trace *trace = trace_open(&errors);
    assert_non_null(memory);
    assert_non_null(trace);
    struct kernels *kernels = kernels_open(trace, &errors);
    diag_list_print(stderr, &errors);
    assert_non_null(kernels);
    const struct observer o = trace_observer(trace);
    kernels_name_stream(kernels, backend_cuda_stream(cuda, STREAM_COMPUTE), "compute stream");
    o.begin(o.context, OBSERVED_PHASE, "step 1");
    o.begin(o.context, OBSERVED_PART, "layer 0");
    zero(cuda, &o, memory, &errors);
    add(cuda, &o, memory, &errors);
    o.end(o.context);
    assert_int_equal(cuda->ops->sync(cuda, STREAM_COMPUTE, &errors), 0);
    o.end(o.context);
    assert_int_equal(kernels_finish(kernels, &errors), 0);
    trace_settle(trace);
    assert_int_equal(trace->kernel_count, 2);
    const struct trace_kernel *first = &trace->kernels[0], *second = &trace->kernels[1];
    if (first->begin > second->begin) {
        const struct trace_kernel *other = first;
        first = second;
        second = other;
    }
    assert_string_equal(first->name, "fill");
    assert_int_equal(first->operation, 1);
    assert_int_equal(second->operation, 2);
    assert_true(second->begin >= first->end && second->end > second->begin);
    assert_int_equal(first->stream, trace->streams[0].stream);
    assert_true(trace->ranges[1].begin >= trace->ranges[0].begin);
    assert_true(trace->ranges[1].end <= trace->ranges[0].end);
    assert_true(trace->ranges[1].end - trace->ranges[1].begin >= first->end - first->begin);
    kernels_close(kernels);
    trace_close(trace);
    source.release(source.context, memory, 64 * mib);
    cuda->ops->close(cuda);
    assert_int_equal(errors.errors, 0);
}

int main(void)
{
    int count = 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_kernels),
    };
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0)
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
