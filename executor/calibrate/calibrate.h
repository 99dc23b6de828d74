/* calibrate.h - measures a machine: the operations of a training step one by one, through the same
 * tables of operations that a step uses, so that host and GPUs share every measurement. Knows
 * nothing of what is made of the points, nor of files and command lines. */
#ifndef RANKFIT_EXECUTOR_CALIBRATE_CALIBRATE_H
#define RANKFIT_EXECUTOR_CALIBRATE_CALIBRATE_H

#include "base/plan/points.h"
#include "executor/backend/backend.h"
#include "executor/fabric/fabric.h"

/* What only a device has. NULL functions: it has it not (the host). */
struct calibrate_device {
    const void *context;
    uint64_t context_bytes;                      /* of a process without work */
    uint64_t memory_bytes;                       /* what it gives a program */
    uint64_t (*held_bytes)(const void *context); /* by this process, now */
    void *(*pin)(uint64_t bytes);                /* page-locked host memory, or NULL */
    void (*unpin)(void *block);
};

struct calibration {
    struct backend *backend;
    struct fabric *fabric;
    struct calibrate_device device;
    bool host;  /* sizes for a processor core, not for a GPU */
    bool quick; /* one run of the small ones */
    /* Called between measurements on rank 0 with what is measured next; may be NULL. */
    void (*tell)(const char *what);
};

/* Measures at every rank at once (each has a device of its own) and fills *ret, whose texts are the
 * caller's matter, with this rank's points; those between ranks where there are several. Called by
 * all ranks of the fabric. -1 with a diagnostic. */
int calibrate(const struct calibration *calibration, struct points *ret, struct diag_list *reterr);

#endif
