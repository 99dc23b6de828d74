/* trace.h - what a rank did when: the ranges of its steps, the operations that its thread asked
 * for, and, on a device, the kernels and copies that came of them. Becomes a file for
 * chrome://tracing. Knows nothing of plans. */
#ifndef RANKFIT_EXECUTOR_TRACE_TRACE_H
#define RANKFIT_EXECUTOR_TRACE_TRACE_H

#include "base/diag.h"
#include "executor/fabric/fabric.h"
#include "executor/primitive/observe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Times are nanoseconds of trace_now. A range within no other has parent -1. */
struct trace_range {
    char name[48];
    enum observed what; /* OBSERVED_PHASE or OBSERVED_PART */
    int32_t parent;
    int64_t begin, end;
};

struct trace_operation {
    const char *name;
    bool collective;
    int32_t range;
    int64_t begin, end;
};

/* operation: from 1; 0 where nobody knows. */
struct trace_kernel {
    const char *name; /* lives as long as the trace */
    uint32_t stream, operation;
    int64_t begin, end;
};

enum { TRACE_DEPTH = 16, TRACE_STREAMS = 16 };

/* The lists grow up to a million entries each; what comes later is only counted. */
struct trace {
    struct trace_range *ranges;
    struct trace_operation *operations;
    struct trace_kernel *kernels;
    size_t range_count, range_room, operation_count, operation_room, kernel_count, kernel_room;
    uint64_t dropped;
    int64_t offset; /* from trace_now to the time of day */
    int32_t current;
    /* what has begun and not ended: a range's index, or -1 - that of an operation */
    int depth;
    int64_t begun[TRACE_DEPTH];
    bool device;
    struct trace_stream {
        uint32_t stream;
        char name[32];
    } streams[TRACE_STREAMS];
    int stream_count;
    /* Called with the number of each operation as it begins, and 0 as it ends; may be NULL. */
    void (*on_operation)(void *context, uint32_t operation);
    void *context;
};

/* A clock that only moves forward. */
int64_t trace_now(void);

/* NULL with a diagnostic. */
struct trace *trace_open(struct diag_list *reterr);
void trace_close(struct trace *trace);

/* Notes what is observed, of steps only: operations outside of any range are left out. */
struct observer trace_observer(struct trace *trace);

void trace_add_kernel(struct trace *trace, const struct trace_kernel *kernel);
/* What a stream is called; others go by their number. */
void trace_name_stream(struct trace *trace, uint32_t stream, const char *name);

/* On a device the parts of a phase are moved to where their kernels ran, collectives aside; parts
 * without any vanish (end before begin). When everything has been added. */
void trace_settle(struct trace *trace);

/* The rank's events, each with a comma and a line's end behind it, as malloc'd text; times count
 * from `origin`, in nanoseconds of the time of day. NULL without memory. */
char *trace_text(const struct trace *trace, int rank, const char *device, int64_t origin,
                 size_t *ret_bytes);

/* One file of all ranks, whole or not at all, written by rank 0; called by all. */
int trace_write(const struct trace *trace, struct fabric *fabric, const char *path,
                const char *device, const char *plan_digest, struct diag_list *reterr);

#endif
