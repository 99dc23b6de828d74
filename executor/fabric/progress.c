#include "executor/fabric/progress.h"
#include "base/text.h"

#include <stdio.h>
#include <unistd.h>

const char *const run_phase_names[RUN_PHASE_COUNT] = {
    [RUN_PHASE_START] = "start",   [RUN_PHASE_FORWARD] = "forward",
    [RUN_PHASE_LOSS] = "loss",     [RUN_PHASE_BACKWARD] = "backward",
    [RUN_PHASE_REDUCE] = "reduce", [RUN_PHASE_OPTIMIZER] = "optimizer",
    [RUN_PHASE_SAVE] = "save",
};

static struct progress_slot *own_slot(struct progress *progress)
{
    return &progress->slots[progress->own];
}

void progress_begin(struct progress *progress, int rank)
{
    if (!progress)
        return;
    own_slot(progress)->rank = rank;
    own_slot(progress)->pid = (int)getpid();
    progress_note(progress);
}

void progress_phase(struct progress *progress, enum run_phase phase, int step)
{
    if (!progress)
        return;
    own_slot(progress)->phase = (int)phase;
    own_slot(progress)->step = step;
    progress_note(progress);
}

void progress_wait(struct progress *progress, const char *operation)
{
    if (!progress)
        return;
    struct progress_slot *slot = own_slot(progress);
    (void)text_copy(slot->operation, sizeof slot->operation, operation);
    progress_note(progress);
    atomic_store(&slot->waiting, 1);
}

void progress_waited(struct progress *progress)
{
    if (!progress)
        return;
    atomic_store(&own_slot(progress)->waiting, 0);
    progress_note(progress);
}

void progress_done(struct progress *progress)
{
    if (progress)
        atomic_store(&own_slot(progress)->done, 1);
}

bool progress_may_tell(struct progress *progress)
{
    return !progress || atomic_exchange(&progress->slots[0].told, 1) == 0;
}

void progress_describe(const struct progress_slot *slot, char *ret, size_t size)
{
    bool known = slot->phase >= 0 && slot->phase < RUN_PHASE_COUNT;
    const char *phase = run_phase_names[known ? slot->phase : RUN_PHASE_START];

    if (slot->step > 0)
        (void)snprintf(ret, size, "%s of step %d", phase, slot->step);
    else
        (void)snprintf(ret, size, "%s", phase);
}
