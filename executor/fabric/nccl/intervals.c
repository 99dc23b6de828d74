#include "executor/fabric/nccl/nccl_group.h"

#include <stdlib.h>

static struct interval *new_interval(void)
{
    struct interval *ret = calloc(1, sizeof *ret);

    if (ret && cudaEventCreate(&ret->begin) == cudaSuccess) {
        if (cudaEventCreate(&ret->end) == cudaSuccess)
            return ret;
        (void)cudaEventDestroy(ret->begin);
    }
    free(ret);
    return NULL;
}

struct interval *interval_begin(struct intervals *all, cudaStream_t stream)
{
    struct interval *ret = all->idle;

    if (ret)
        all->idle = ret->next;
    else
        ret = new_interval();
    if (!ret)
        return NULL;
    ret->next = all->used;
    all->used = ret;
    (void)cudaEventRecord(ret->begin, stream);
    return ret;
}

void interval_end(struct interval *interval, cudaStream_t stream)
{
    if (interval)
        (void)cudaEventRecord(interval->end, stream);
}

double intervals_sum_seconds(struct intervals *all)
{
    double ret = 0;

    while (all->used) {
        struct interval *interval = all->used;
        float milliseconds = 0;
        if (cudaEventElapsedTime(&milliseconds, interval->begin, interval->end) == cudaSuccess)
            ret += (double)milliseconds * 1e-3;
        all->used = interval->next;
        interval->next = all->idle;
        all->idle = interval;
    }
    return ret;
}

void intervals_close(struct intervals *all)
{
    (void)intervals_sum_seconds(all);
    while (all->idle) {
        struct interval *interval = all->idle;
        all->idle = interval->next;
        (void)cudaEventDestroy(interval->begin);
        (void)cudaEventDestroy(interval->end);
        free(interval);
    }
}
