/* A trace as a device gives it: parts are where their kernels ran, inside of their phase, those of
 * collectives aside; the events of a rank as text. */
#include "executor/trace/trace.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The numbers that operations were told by. */
struct told {
    uint32_t numbers[32];
    int count;
};

static void tell(void *context, uint32_t operation)
{
    struct told *told = context;
    told->numbers[told->count++] = operation;
}

static struct trace *open_trace(void)
{
    struct diag_list errors = { 0 };
    struct trace *trace = trace_open(&errors);
    assert_non_null(trace);
    assert_int_equal(errors.errors, 0);
    return trace;
}

static void operate(const struct observer *o, enum observed what, const char *name)
{
    o->begin(o->context, what, name);
    o->end(o->context);
}

/* step 1 { forward { layer 0 { gemm, replay { rope } }, layer 1 { all_gather }, layer 2 { copy } }
 * } after an operation outside of any range. Ranges: step 0, forward 1, layer 0 is 2, its replay 3,
 * layer 1 is 4, layer 2 is 5; operations from 1: gemm, rope, all_gather, copy. */
static void walk(const struct observer *o)
{
    operate(o, OBSERVED_OPERATION, "draw_normal");
    o->begin(o->context, OBSERVED_PHASE, "step 1");
    o->begin(o->context, OBSERVED_PHASE, "forward");
    o->begin(o->context, OBSERVED_PART, "layer 0");
    operate(o, OBSERVED_OPERATION, "gemm");
    o->begin(o->context, OBSERVED_PART, "replay");
    operate(o, OBSERVED_OPERATION, "rope");
    o->end(o->context);
    o->end(o->context);
    o->begin(o->context, OBSERVED_PART, "layer 1");
    operate(o, OBSERVED_COLLECTIVE, "all_gather");
    o->end(o->context);
    o->begin(o->context, OBSERVED_PART, "layer 2");
    operate(o, OBSERVED_OPERATION, "copy");
    o->end(o->context);
    o->end(o->context);
    o->end(o->context);
}

static void test_ranges_and_operations(void **state)
{
    (void)state;
    static const uint32_t numbers[] = { 1, 0, 2, 0, 3, 0, 4, 0 };
    static const int parents[] = { -1, 0, 1, 2, 1, 1 }, ranges[] = { 2, 3, 4, 5 };
    struct trace *trace = open_trace();
    struct told told = { .count = 0 };
    trace->on_operation = tell;
    trace->context = &told;
    const struct observer observer = trace_observer(trace);
    walk(&observer);
    assert_int_equal(told.count, 8);
    assert_memory_equal(told.numbers, numbers, sizeof numbers);
    assert_int_equal(trace->range_count, 6);
    assert_int_equal(trace->operation_count, 4);
    for (int i = 0; i < 6; i++)
        assert_int_equal(trace->ranges[i].parent, parents[i]);
    for (int i = 0; i < 4; i++) {
        const struct trace_operation *operation = &trace->operations[i];
        const struct trace_range *range = &trace->ranges[operation->range];
        assert_int_equal(operation->range, ranges[i]);
        assert_true(operation->begin >= range->begin && operation->end <= range->end);
        assert_int_equal(operation->collective, i == 2);
    }
    assert_int_equal(trace->depth, 0);
    trace_close(trace);
}

static void add(struct trace *trace, uint32_t operation, int64_t begin, int64_t end)
{
    const struct trace_kernel kernel = {
        .name = "k", .stream = 7, .operation = operation, .begin = begin, .end = end
    };
    trace_add_kernel(trace, &kernel);
}

/* The walk with ranges of round numbers: step 0..1000, forward 100..900. */
static struct trace *device_trace(void)
{
    struct trace *trace = open_trace();
    const struct observer observer = trace_observer(trace);
    walk(&observer);
    trace->device = true;
    trace->offset = 0;
    trace->ranges[0].begin = 0, trace->ranges[0].end = 1000;
    trace->ranges[1].begin = 100, trace->ranges[1].end = 900;
    add(trace, 1, 95, 200);  /* gemm, by the device's clock before its phase */
    add(trace, 2, 210, 300); /* rope of the replay, another kernel of which was before */
    add(trace, 2, 205, 208);
    add(trace, 3, 250, 700); /* the collective counts for no part */
    add(trace, 4, 320, 350);
    add(trace, 0, 1, 2); /* of nobody */
    add(trace, 99, 1, 2);
    return trace;
}

static void check_range(const struct trace *trace, int range, int64_t begin, int64_t end)
{
    assert_int_equal(trace->ranges[range].begin, begin);
    assert_int_equal(trace->ranges[range].end, end);
}

static void test_parts_are_where_kernels_ran(void **state)
{
    (void)state;
    struct trace *trace = device_trace();
    trace_settle(trace);
    check_range(trace, 0, 0, 1000);
    check_range(trace, 1, 100, 900);
    check_range(trace, 2, 100, 300);
    check_range(trace, 3, 205, 300);
    assert_true(trace->ranges[4].end < trace->ranges[4].begin);
    check_range(trace, 5, 320, 350);
    trace_close(trace);
}

static json_t *events_of(const struct trace *trace)
{
    size_t bytes = 0;
    char *text = trace_text(trace, 3, "NVIDIA \"H200\"", 0, &bytes);
    assert_non_null(text);
    assert_string_equal(text + bytes - 2, ",\n");
    char *list = malloc(bytes + 3);
    assert_non_null(list);
    (void)snprintf(list, bytes + 3, "[%.*s]", (int)bytes - 2, text);
    json_t *ret = json_loads(list, 0, NULL);
    assert_non_null(ret);
    free(list);
    free(text);
    return ret;
}

static json_t *event(json_t *events, const char *kind, const char *name)
{
    size_t index;
    json_t *ret;
    json_array_foreach(events, index, ret)
    {
        const char *is = json_string_value(json_object_get(ret, "ph"));
        const char *called = json_string_value(json_object_get(ret, "name"));
        if (strcmp(is, kind) == 0 && strcmp(called, name) == 0)
            return ret;
    }
    return NULL;
}

static double number(json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void test_text(void **state)
{
    (void)state;
    struct trace *trace = device_trace();
    trace_name_stream(trace, 7, "compute stream");
    trace->kernels[0].name = "gemm<\"x\", \\>";
    trace->kernels[1].stream = 9;
    trace->dropped = 5;
    trace_settle(trace);
    json_t *events = events_of(trace);
    json_t *process = event(events, "M", "process_name");
    assert_int_equal(json_integer_value(json_object_get(process, "pid")), 3);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(process, "args"), "name")),
        "rank 3, NVIDIA ?H200?");
    json_t *kernel = event(events, "X", "gemm<?x?, ?>");
    assert_non_null(kernel);
    assert_true(fabs(number(kernel, "ts") - 0.095) < 1e-9);
    assert_true(fabs(number(kernel, "dur") - 0.105) < 1e-9);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(kernel, "args"), "operation")), "gemm");
    assert_non_null(event(events, "X", "replay"));
    assert_null(event(events, "X", "layer 1"));
    assert_non_null(event(events, "X", "all_gather"));
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(event(events, "M", "dropped"), "args"), "intervals")),
                     5);
    /* three rows of the rank, the named stream, and stream 9 */
    int rows = 0;
    size_t index;
    json_t *each;
    json_array_foreach(events, index, each) rows +=
        strcmp(json_string_value(json_object_get(each, "name")), "thread_name") == 0;
    assert_int_equal(rows, 5);
    json_decref(events);
    trace_close(trace);
}

/* Deeper than there is room for, and an operation that the list has no room for: nothing breaks. */
static void test_too_much(void **state)
{
    (void)state;
    struct trace *trace = open_trace();
    const struct observer o = trace_observer(trace);
    for (int i = 0; i < TRACE_DEPTH + 4; i++)
        o.begin(o.context, OBSERVED_PART, "deep");
    operate(&o, OBSERVED_OPERATION, "gemm");
    for (int i = 0; i < TRACE_DEPTH + 4; i++)
        o.end(o.context);
    assert_int_equal(trace->depth, 0);
    o.begin(o.context, OBSERVED_PHASE, "step 1");
    for (int i = 0; i < (1 << 20) + 10; i++)
        operate(&o, OBSERVED_OPERATION, "gemm");
    o.end(o.context);
    assert_int_equal(trace->operation_count, 1 << 20);
    assert_true(trace->dropped >= 10);
    trace_close(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_and_operations),
        cmocka_unit_test(test_parts_are_where_kernels_ran),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
