/* log.h - memory and time in the logs of other engines: Megatron's and torchtitan's lines, a memory
 * summary and an out-of-memory message of PyTorch, nvidia-smi. Reads, judges nothing. */
#ifndef RANKFIT_PLANNER_COMPARE_LOG_H
#define RANKFIT_PLANNER_COMPARE_LOG_H

#include "base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Three figures of one peak: live tensors, memory that the allocator reserved, memory that the
 * device lost. */
enum log_metric { LOG_ALLOCATED, LOG_RESERVED, LOG_DEVICE, LOG_METRICS };
extern const char *const log_metric_names[LOG_METRICS];

enum { LOG_STEPS_MAX = 4096 };

struct log_figures {
    uint64_t bytes[LOG_METRICS]; /* the largest of any line and rank; 0: not in the log */
    int lines[LOG_METRICS];      /* where it stands; from 1 */
    bool out_of_memory;
    int out_of_memory_line;
    uint64_t request_bytes;  /* of the allocation that failed */
    uint64_t capacity_bytes; /* of the device, as the message says */
    int step_count;
    double step_seconds[LOG_STEPS_MAX];
    /* The run that the log is of; 0: not said. */
    int world, layers, hidden;
    uint64_t params;
};

/* Fills *ret from a log's text. -1: it has no line about memory or time, with an error. */
int log_read(const char *name, const char *text, size_t bytes, struct log_figures *ret,
             struct diag_list *reterr);

/* Median of the steps but the first, in seconds; 0: none. */
double log_seconds(const struct log_figures *figures);

#endif
