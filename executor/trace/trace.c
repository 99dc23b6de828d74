#include "executor/trace/trace.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ENTRIES = 1 << 20 };

static int64_t clock_of(clockid_t clock)
{
    struct timespec now = { 0 };
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t trace_now(void)
{
    return clock_of(CLOCK_MONOTONIC);
}

struct trace *trace_open(struct diag_list *reterr)
{
    struct trace *trace = calloc(1, sizeof *trace);
    if (!trace) {
        (void)diag_error(reterr, (struct pos){ 0 }, "no memory left for a trace");
        return NULL;
    }
    trace->offset = clock_of(CLOCK_REALTIME) - trace_now();
    trace->current = -1;
    return trace;
}

void trace_close(struct trace *trace)
{
    if (!trace)
        return;
    free(trace->ranges);
    free(trace->operations);
    free(trace->kernels);
    free(trace);
}

/* Room for one more entry of `size` bytes in a list; false when there is none. */
static bool has_room(struct trace *trace, void *list, size_t *room, size_t count, size_t size)
{
    void *grown, *before;
    if (count < *room)
        return true;
    size_t more = *room ? 2 * *room : 1024;
    memcpy(&before, list, sizeof before);
    grown = more <= MOST_ENTRIES ? realloc(before, more * size) : NULL;
    if (!grown) {
        trace->dropped++;
        return false;
    }
    memcpy(list, &grown, sizeof grown);
    *room = more;
    return true;
}

/* The number of the entry, from 0; -1: none was made. */
static int64_t begin_range(struct trace *t, enum observed what, const char *name)
{
    if (!has_room(t, &t->ranges, &t->range_room, t->range_count, sizeof *t->ranges))
        return -1;
    struct trace_range *range = &t->ranges[t->range_count];
    *range = (struct trace_range){ .what = what, .parent = t->current, .begin = trace_now() };
    (void)text_copy(range->name, sizeof range->name, name);
    return (int64_t)t->range_count++;
}

static int64_t begin_operation(struct trace *t, enum observed what, const char *name)
{
    if (t->current < 0 ||
        !has_room(t, &t->operations, &t->operation_room, t->operation_count, sizeof *t->operations))
        return -1;
    t->operations[t->operation_count] = (struct trace_operation){
        .name = name,
        .collective = what == OBSERVED_COLLECTIVE,
        .range = t->current,
        .begin = trace_now(),
    };
    return (int64_t)t->operation_count++;
}

/* begun[]: 2 * entry for a range, 2 * entry + 1 for an operation, -1 for what was left out. */
static void begin(void *context, enum observed what, const char *name)
{
    struct trace *t = context;
    bool is_range = what == OBSERVED_PHASE || what == OBSERVED_PART;
    int64_t entry = -1;

    if (t->depth++ >= TRACE_DEPTH)
        return;
    entry = is_range ? begin_range(t, what, name) : begin_operation(t, what, name);
    t->begun[t->depth - 1] = entry < 0 ? -1 : 2 * entry + !is_range;
    if (entry < 0)
        return;
    if (is_range)
        t->current = (int32_t)entry;
    else if (t->on_operation)
        t->on_operation(t->context, (uint32_t)entry + 1);
}

static void end(void *context)
{
    struct trace *t = context;
    int64_t begun = --t->depth < TRACE_DEPTH ? t->begun[t->depth] : -1;

    if (begun < 0)
        return;
    if (begun % 2 == 0) {
        struct trace_range *range = &t->ranges[begun / 2];
        range->end = trace_now();
        t->current = range->parent;
        return;
    }
    if (t->on_operation)
        t->on_operation(t->context, 0);
    t->operations[begun / 2].end = trace_now();
}

struct observer trace_observer(struct trace *trace)
{
    return (struct observer){ begin, end, trace };
}

void trace_add_kernel(struct trace *t, const struct trace_kernel *kernel)
{
    if (has_room(t, &t->kernels, &t->kernel_room, t->kernel_count, sizeof *t->kernels))
        t->kernels[t->kernel_count++] = *kernel;
}

void trace_name_stream(struct trace *t, uint32_t stream, const char *name)
{
    if (t->stream_count == TRACE_STREAMS)
        return;
    t->streams[t->stream_count].stream = stream;
    (void)text_copy(t->streams[t->stream_count++].name, sizeof t->streams[0].name, name);
}

static void widen(struct trace *t, int32_t range, const struct trace_kernel *kernel)
{
    for (; range >= 0 && t->ranges[range].what == OBSERVED_PART; range = t->ranges[range].parent) {
        struct trace_range *r = &t->ranges[range];
        r->begin = kernel->begin < r->begin ? kernel->begin : r->begin;
        r->end = kernel->end > r->end ? kernel->end : r->end;
    }
}

/* The clocks of device and host are brought together to a microsecond or so: a part does not leave
 * what it is part of. Parents come before their children. */
static void keep_inside(struct trace *t, struct trace_range *range)
{
    const struct trace_range *outer = range->parent >= 0 ? &t->ranges[range->parent] : NULL;
    if (!outer || range->end < range->begin)
        return;
    range->begin = range->begin > outer->begin ? range->begin : outer->begin;
    range->end = range->end < outer->end ? range->end : outer->end;
}

void trace_settle(struct trace *t)
{
    if (!t->device)
        return;
    for (size_t i = 0; i < t->range_count; i++)
        if (t->ranges[i].what == OBSERVED_PART) {
            t->ranges[i].begin = INT64_MAX;
            t->ranges[i].end = INT64_MIN;
        }
    for (size_t i = 0; i < t->kernel_count; i++) {
        uint32_t number = t->kernels[i].operation;
        if (number == 0 || number > t->operation_count || t->operations[number - 1].collective)
            continue;
        widen(t, t->operations[number - 1].range, &t->kernels[i]);
    }
    for (size_t i = 0; i < t->range_count; i++)
        if (t->ranges[i].what == OBSERVED_PART)
            keep_inside(t, &t->ranges[i]);
}
