/* events.c - the events of one rank in the form that chrome://tracing and Perfetto read: a row of
 * ranges, rows of what the rank's thread asked for, and a row a stream. */
#include "executor/trace/trace.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROW_STEP, ROW_OPERATIONS, ROW_COLLECTIVES, ROW_STREAMS, TIME_TEXT = 32 };

struct events {
    const struct trace *trace;
    int rank;
    int64_t origin;
    char *text;
    size_t used, room;
    bool failed;
};

static void append(struct events *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(struct events *e, const char *format, ...)
{
    enum { LONGEST = 1024 };
    va_list arguments;

    if (!e->failed && e->room - e->used < LONGEST) {
        char *grown = realloc(e->text, 2 * e->room + LONGEST);
        e->failed = !grown;
        e->text = grown ? grown : e->text;
        e->room = grown ? 2 * e->room + LONGEST : e->room;
    }
    if (e->failed)
        return;
    va_start(arguments, format);
    int length = vsnprintf(e->text + e->used, LONGEST, format, arguments);
    va_end(arguments);
    e->failed = length < 0 || length >= LONGEST;
    e->used += e->failed ? 0 : (size_t)length;
}

/* A string of JSON; what would need an escape, in names of kernels nothing does, becomes '?'. */
static void append_string(struct events *e, const char *text)
{
    enum { SHOWN = 120 };
    char plain[SHOWN + 1];
    size_t i = 0;

    for (; i < SHOWN && text[i]; i++) {
        bool escapes = text[i] == '"' || text[i] == '\\' || (unsigned char)text[i] < ' ';
        plain[i] = (unsigned char)text[i] > '~' || escapes ? '?' : text[i];
    }
    plain[i] = '\0';
    append(e, "\"%s\"", plain);
}

/* Microseconds with three digits, exactly. */
static const char *micro(char *ret, int64_t nanoseconds)
{
    uint64_t size = nanoseconds < 0 ? -(uint64_t)nanoseconds : (uint64_t)nanoseconds;
    (void)snprintf(ret, TIME_TEXT, "%s%" PRIu64 ".%03" PRIu64, nanoseconds < 0 ? "-" : "",
                   size / 1000, size % 1000);
    return ret;
}

/* Everything but arguments and the end. */
static void append_interval(struct events *e, uint32_t row, const char *category, const char *name,
                            int64_t begin, int64_t end)
{
    char at[TIME_TEXT], length[TIME_TEXT];
    append(e, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%" PRIu32 ",\"cat\":\"%s\",\"ts\":%s,\"dur\":%s,",
           e->rank, row, category, micro(at, begin + e->trace->offset - e->origin),
           micro(length, end - begin));
    append(e, "\"name\":");
    append_string(e, name);
}

static void append_row(struct events *e, uint32_t row, const char *name)
{
    append(e, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%" PRIu32 ",\"name\":\"thread_name\",", e->rank,
           row);
    append(e, "\"args\":{\"name\":");
    append_string(e, name);
    append(e,
           "}},\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%" PRIu32 ",\"name\":\"thread_sort_index\","
           "\"args\":{\"sort_index\":%" PRIu32 "}},\n",
           e->rank, row, row);
}

static uint32_t row_of_stream(const struct trace *t, uint32_t stream)
{
    for (int i = 0; i < t->stream_count; i++)
        if (t->streams[i].stream == stream)
            return ROW_STREAMS + (uint32_t)i;
    return ROW_STREAMS + TRACE_STREAMS + stream;
}

/* Rows of streams that were named; then of those that were used without a name. */
static void append_streams(struct events *e)
{
    const struct trace *t = e->trace;
    uint32_t seen[64];
    size_t count = 0;

    for (int i = 0; i < t->stream_count; i++)
        append_row(e, ROW_STREAMS + (uint32_t)i, t->streams[i].name);
    for (size_t i = 0; i < t->kernel_count; i++) {
        uint32_t row = row_of_stream(t, t->kernels[i].stream);
        size_t k = 0;
        char name[32];
        while (k < count && seen[k] != row)
            k++;
        if (k < count || count == sizeof seen / sizeof *seen || row < ROW_STREAMS + TRACE_STREAMS)
            continue;
        seen[count++] = row;
        (void)snprintf(name, sizeof name, "stream %" PRIu32, t->kernels[i].stream);
        append_row(e, row, name);
    }
}

static void append_rows(struct events *e, const char *device)
{
    const char *asked = e->trace->device ? " asked for" : "";
    char name[200];

    (void)snprintf(name, sizeof name, "rank %d, %s", e->rank, device);
    append(e, "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":", e->rank);
    append_string(e, name);
    append(e,
           "}},\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\",\"args\":"
           "{\"sort_index\":%d}},\n",
           e->rank, e->rank);
    append_row(e, ROW_STEP, "step");
    (void)snprintf(name, sizeof name, "operations%s", asked);
    append_row(e, ROW_OPERATIONS, name);
    (void)snprintf(name, sizeof name, "collectives%s", asked);
    append_row(e, ROW_COLLECTIVES, name);
    append_streams(e);
}

static void append_operations(struct events *e)
{
    const struct trace *t = e->trace;
    for (size_t i = 0; i < t->operation_count; i++) {
        const struct trace_operation *o = &t->operations[i];
        append_interval(e, o->collective ? ROW_COLLECTIVES : ROW_OPERATIONS,
                        o->collective ? "collective" : "operation", o->name, o->begin, o->end);
        append(e, "},\n");
    }
}

static void append_kernels(struct events *e)
{
    const struct trace *t = e->trace;
    for (size_t i = 0; i < t->kernel_count; i++) {
        const struct trace_kernel *k = &t->kernels[i];
        bool known = k->operation > 0 && k->operation <= t->operation_count;
        append_interval(e, row_of_stream(t, k->stream), "kernel", k->name, k->begin, k->end);
        if (known) {
            append(e, ",\"args\":{\"operation\":");
            append_string(e, t->operations[k->operation - 1].name);
            append(e, "}");
        }
        append(e, "},\n");
    }
}

char *trace_text(const struct trace *trace, int rank, const char *device, int64_t origin,
                 size_t *ret_bytes)
{
    struct events e = { .trace = trace, .rank = rank, .origin = origin };

    append_rows(&e, device);
    for (size_t i = 0; i < trace->range_count; i++) {
        const struct trace_range *range = &trace->ranges[i];
        if (range->end < range->begin)
            continue;
        append_interval(&e, ROW_STEP, range->what == OBSERVED_PHASE ? "phase" : "part", range->name,
                        range->begin, range->end);
        append(&e, "},\n");
    }
    append_operations(&e);
    append_kernels(&e);
    if (trace->dropped > 0)
        append(&e,
               "{\"ph\":\"M\",\"pid\":%d,\"name\":\"dropped\",\"args\":{\"intervals\":%" PRIu64
               "}},\n",
               rank, trace->dropped);
    *ret_bytes = e.used;
    if (!e.failed)
        return e.text;
    free(e.text);
    return NULL;
}
