/* record.h - from what a rank saw to the measurement file. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_RECORD_H
#define RANKFIT_EXECUTOR_RUNTIME_RECORD_H

#include "executor/runtime/trainer.h"

/* What ran it. */
struct record_machine {
    const char *backend;
    char device[128], versions[256];
    bool traced;
    /* Adds what the device itself says; NULL where there is none. */
    void (*add_device)(const void *context, struct measured_rank *rank);
    const void *context;
};

/* What a run notes step by step. A zeroed record is closed with record_close. */
struct record {
    int steps, room;
    double *seconds, *loss;
    /* Of the step in which the arena's peak was the highest, the first of several. */
    struct arena_record memory;
    int passes;                 /* micro-batches x layers */
    struct routed_rows *routed; /* [passes] */
    uint64_t *chunk_rows;       /* [passes, chunks] what they say of chunks */
    struct record_machine machine;
};

int record_open(struct record *record, const struct plan *plan, int steps,
                struct diag_list *reterr);
void record_close(struct record *record);
/* After each step; the trainer then measures the next one. */
void record_step(struct record *record, struct trainer *trainer, const struct step_result *result);

/* Gathers every rank's figures and writes the file at rank 0; called by all ranks. */
int record_write(const struct record *record, const struct trainer *trainer, const char *path,
                 struct diag_list *reterr);

/* Highest resident set of this process so far, in bytes. */
uint64_t record_rss_bytes(void);
/* The processor's own name for itself. */
void record_host_device(char *ret, size_t size);

#endif
