/* paced.h - kernels that move device memory over a given time, as a collective's do: a few blocks,
 * which stay as long as it takes, read and write at the rate of the wire. */
#ifndef RANKFIT_EXECUTOR_FABRIC_REHEARSAL_PACED_H
#define RANKFIT_EXECUTOR_FABRIC_REHEARSAL_PACED_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pace {
    cudaStream_t stream;
    int blocks;
    double seconds; /* from when a block begins */
};

/* to[i] = from[i % from_bytes]; from_bytes is above 0. */
cudaError_t paced_fill(const struct pace *pace, void *to, uint64_t bytes, const void *from,
                       uint64_t from_bytes);
/* to[i] = sum over s < slices of from[s * elements + i], in fp32. */
cudaError_t paced_sum(const struct pace *pace, void *to, const void *from, uint64_t elements,
                      int slices, bool is_float);
/* values[i] *= factor. */
cudaError_t paced_scale(const struct pace *pace, void *values, uint64_t elements, float factor,
                        bool is_float);

/* Notes in *mark (device memory) when the stream has come here; then waits, in one thread, until
 * pace->seconds after that. */
cudaError_t paced_mark(cudaStream_t stream, uint64_t *mark);
cudaError_t paced_wait(const struct pace *pace, const uint64_t *mark);

#ifdef __cplusplus
}
#endif

#endif
