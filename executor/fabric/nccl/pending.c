#include "executor/fabric/nccl/nccl_group.h"

#include <string.h>
#include <time.h>

double pending_clock(void)
{
    struct timespec now = { 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int pending_open(struct pending *pending)
{
    memset(pending, 0, sizeof *pending);
    if (pthread_mutex_init(&pending->lock, NULL) != 0)
        return -1;
    for (int i = 0; i < PENDING_ROOM; i++)
        if (cudaEventCreateWithFlags(&pending->calls[i].done, cudaEventDisableTiming) !=
            cudaSuccess) {
            pending_close(pending);
            return -1;
        }
    return 0;
}

void pending_close(struct pending *pending)
{
    for (int i = 0; i < PENDING_ROOM; i++)
        if (pending->calls[i].done)
            (void)cudaEventDestroy(pending->calls[i].done);
    (void)pthread_mutex_destroy(&pending->lock);
}

/* With the lock held. */
static void drop_ended(struct pending *pending)
{
    while (pending->count > 0 &&
           cudaEventQuery(pending->calls[pending->first].done) == cudaSuccess) {
        pending->first = (pending->first + 1) % PENDING_ROOM;
        pending->count--;
    }
}

cudaError_t pending_add(struct pending *pending, cudaStream_t stream, const char *operation,
                        int members)
{
    cudaError_t status = cudaSuccess;

    (void)pthread_mutex_lock(&pending->lock);
    drop_ended(pending);
    if (pending->count < PENDING_ROOM) {
        struct pending_call *call =
            &pending->calls[(pending->first + pending->count) % PENDING_ROOM];
        call->operation = operation;
        call->members = members;
        call->begun = pending_clock();
        status = cudaEventRecord(call->done, stream);
        pending->count += status == cudaSuccess;
    }
    (void)pthread_mutex_unlock(&pending->lock);
    return status;
}

bool pending_oldest(struct pending *pending, struct pending_call *ret)
{
    (void)pthread_mutex_lock(&pending->lock);
    drop_ended(pending);
    bool found = pending->count > 0;
    if (found)
        *ret = pending->calls[pending->first];
    (void)pthread_mutex_unlock(&pending->lock);
    return found;
}
