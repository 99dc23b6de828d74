#include "executor/backend/cuda/cuda.h"

/* Zeros on the last lane, behind what the stream holds so far; joins[0], which no product uses, is
 * when they are there. */
int cuda_zero_aside(struct backend *b, enum stream s, void *to, uint64_t bytes,
                    struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    cudaStream_t lane = c->lanes[CUDA_LANES - 1];
    if (bytes == 0)
        return 0;
    if (cuda_check(cudaEventRecord(c->fork, c->streams[s]), "cudaEventRecord", reterr) != 0 ||
        cuda_check(cudaStreamWaitEvent(lane, c->fork, 0), "cudaStreamWaitEvent", reterr) != 0 ||
        cuda_check(cudaMemsetAsync(to, 0, bytes, lane), "cudaMemsetAsync", reterr) != 0)
        return -1;
    return cuda_check(cudaEventRecord(c->joins[0], lane), "cudaEventRecord", reterr);
}

int cuda_await_aside(struct backend *b, enum stream s, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    return cuda_check(cudaStreamWaitEvent(c->streams[s], c->joins[0], 0), "cudaStreamWaitEvent",
                      reterr);
}
