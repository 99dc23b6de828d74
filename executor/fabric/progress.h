/* progress.h - how far each rank of this machine has come, in memory that all of them see: whoever
 * watches can name the rank that stands still, and a rank that was killed. Notes cost an atomic
 * addition. Knows nothing of what is done between two notes. Every call takes NULL, for ranks that
 * nobody watches. */
#ifndef RANKFIT_EXECUTOR_FABRIC_PROGRESS_H
#define RANKFIT_EXECUTOR_FABRIC_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum run_phase {
    RUN_PHASE_START,
    RUN_PHASE_FORWARD,
    RUN_PHASE_LOSS,
    RUN_PHASE_BACKWARD,
    RUN_PHASE_REDUCE,
    RUN_PHASE_OPTIMIZER,
    RUN_PHASE_SAVE,
    RUN_PHASE_COUNT
};
extern const char *const run_phase_names[RUN_PHASE_COUNT];

/* One rank's notes. Only its owner writes; the others read what is not atomic once `notes` has
 * stood still. `told` is of the first slot and for all: somebody has said why the run ends. */
struct progress_slot {
    _Atomic uint64_t notes;
    _Atomic int waiting; /* in an operation of the fabric */
    _Atomic int done;    /* ends of its own will */
    _Atomic int told;
    int rank, pid;
    int phase, step; /* enum run_phase; step 0: before the first */
    char operation[24];
};

struct progress {
    struct progress_slot *slots; /* of the ranks of this machine, in ascending order */
    int count, own;              /* slots; this rank's */
    int world;
};

/* Fills this rank's slot, which is zeroed. */
void progress_begin(struct progress *progress, int rank);
void progress_phase(struct progress *progress, enum run_phase phase, int step);
/* Around an operation that waits for other ranks. */
void progress_wait(struct progress *progress, const char *operation);
void progress_waited(struct progress *progress);
/* This rank is about to end as it should. */
void progress_done(struct progress *progress);

/* True for the first rank of this machine that asks: it tells the cause, the others keep quiet. */
bool progress_may_tell(struct progress *progress);

/* "backward of step 2"; "start". */
void progress_describe(const struct progress_slot *slot, char *ret, size_t size);

static inline void progress_note(struct progress *progress)
{
    if (progress)
        atomic_fetch_add_explicit(&progress->slots[progress->own].notes, 1, memory_order_relaxed);
}

#endif
